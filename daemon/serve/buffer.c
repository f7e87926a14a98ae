/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "serve/buffer.h"

#define BUFFER_FIRST_SIZE 4096
#define U64_DIGITS 20

bool buffer_reserve(struct buffer *b, size_t size) {
        if (b->failed)
                return false;
        if (size <= b->allocated - b->size)
                return true;

        size_t wanted, allocated = b->allocated > 0 ? b->allocated : BUFFER_FIRST_SIZE;
        bool overflow = __builtin_add_overflow(b->size, size, &wanted);

        while (!overflow && allocated < wanted)
                overflow = __builtin_mul_overflow(allocated, 2, &allocated);

        char *data = overflow ? NULL : realloc(b->data, allocated);
        if (!data) {
                b->failed = true;
                return false;
        }

        b->data = data;
        b->allocated = allocated;
        return true;
}

void buffer_printf(struct buffer *b, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        va_list ap;

        va_start(ap, format);
        int n = vasprintf(&text, format, ap);
        va_end(ap);

        if (n < 0) {
                text = NULL;
                b->failed = true;
                return;
        }

        buffer_add(b, text, (size_t) n);
}

void buffer_u64(struct buffer *b, uint64_t value) {
        char digits[U64_DIGITS], *p = digits + sizeof(digits);

        do
                *--p = (char) ('0' + value % 10);
        while (value /= 10);

        buffer_add(b, p, (size_t) (digits + sizeof(digits) - p));
}

void buffer_seconds(struct buffer *b, uint64_t nsec) {
        char digits[10] = ".";
        size_t n = sizeof(digits);
        uint64_t fraction = nsec % NSEC_PER_SEC;

        buffer_u64(b, nsec / NSEC_PER_SEC);
        if (fraction == 0)
                return;

        for (size_t i = sizeof(digits) - 1; i > 0; i--) {
                digits[i] = (char) ('0' + fraction % 10);
                fraction /= 10;
        }
        while (digits[n - 1] == '0')
                n--;

        buffer_add(b, digits, n);
}

void buffer_html(struct buffer *b, const char *text) {
        for (; *text; text++)
                switch (*text) {
                case '<':
                        buffer_add_string(b, "&lt;");
                        break;
                case '>':
                        buffer_add_string(b, "&gt;");
                        break;
                case '&':
                        buffer_add_string(b, "&amp;");
                        break;
                case '"':
                        buffer_add_string(b, "&quot;");
                        break;
                case '\'':
                        buffer_add_string(b, "&#39;");
                        break;
                default:
                        buffer_add_char(b, *text);
                }
}

int buffer_take(struct buffer *b, char **ret, size_t *ret_size) {
        buffer_add_char(b, '\0');
        if (b->failed)
                return -ENOMEM;

        *ret_size = b->size - 1;
        *ret = TAKE_PTR(b->data);
        *b = (struct buffer) {};
        return 0;
}

void buffer_free(struct buffer *b) {
        free(b->data);
        *b = (struct buffer) {};
}
