/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Text that grows. A failed allocation sticks, so that writers need no check at each step: whoever
 * takes the text asks buffer_take(), which then fails.
 */
struct buffer {
        char *data;
        size_t size;
        size_t allocated;
        bool failed;
};

/* Makes room for size more bytes; false when memory is short. */
bool buffer_reserve(struct buffer *b, size_t size);
void buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_u64(struct buffer *b, uint64_t value);

/* Nanoseconds as seconds, every digit of them and no floating point on the way: "0", "1.5", "12.000000001". */
void buffer_seconds(struct buffer *b, uint64_t nsec);

/* Text in which <, >, &, and quotes mean themselves in HTML. */
void buffer_html(struct buffer *b, const char *text);

/* Hands over the text, which ends with NUL beyond its size. Returns 0 or -ENOMEM. */
int buffer_take(struct buffer *b, char **ret, size_t *ret_size);
void buffer_free(struct buffer *b);

static inline void buffer_add(struct buffer *b, const void *bytes, size_t size) {
        if (size > 0 && buffer_reserve(b, size)) {
                memcpy(b->data + b->size, bytes, size);
                b->size += size;
        }
}

static inline void buffer_add_string(struct buffer *b, const char *s) {
        buffer_add(b, s, strlen(s));
}

static inline void buffer_add_char(struct buffer *b, char c) {
        buffer_add(b, &c, 1);
}
