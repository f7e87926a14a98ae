/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The bytes of a saved state. Integers are little-endian, seven bits to the byte, the highest bit set in
 * all but the last one (LEB128): most of what is saved is small.
 */
#define STATE_INTEGER_MAX 10U /* bytes of a 64-bit integer */

/* Bytes that grow. A failed allocation sticks, so that only the end needs a check. */
struct state_writer {
        uint8_t *bytes;
        size_t size;
        size_t allocated;
        bool failed;
};

bool state_reserve(struct state_writer *w, size_t size); /* false when memory is short */
void state_writer_done(struct state_writer *w);

/* For many at once: p points to room that is reserved. Returns what follows. */
static inline uint8_t *state_put_at(uint8_t *p, uint64_t value) {
        for (; value >= 0x80; value >>= 7)
                *p++ = (uint8_t) value | 0x80;
        *p++ = (uint8_t) value;
        return p;
}

static inline void state_put(struct state_writer *w, uint64_t value) {
        if (state_reserve(w, STATE_INTEGER_MAX)) {
                uint8_t *p = w->bytes + w->size;

                w->size += (size_t) (state_put_at(p, value) - p);
        }
}

static inline void state_put_bytes(struct state_writer *w, const void *bytes, size_t size) {
        if (size > 0 && state_reserve(w, size)) {
                memcpy(w->bytes + w->size, bytes, size);
                w->size += size;
        }
}

/* Bytes that are being read, and are not trusted: what is not there or too large reads as 0, and is noted. */
struct state_reader {
        const uint8_t *p, *end;
        bool bad;
};

uint64_t state_get_long(struct state_reader *r);
const void *state_get_bytes(struct state_reader *r, size_t size); /* NULL if there are not that many */

static inline uint64_t state_get(struct state_reader *r) {
        if (r->p < r->end && *r->p < 0x80 && !r->bad)
                return *r->p++;

        return state_get_long(r);
}

/* A larger one is bad. */
static inline uint64_t state_get_up_to(struct state_reader *r, uint64_t max) {
        uint64_t value = state_get(r);

        if (value <= max)
                return value;

        r->bad = true;
        return 0;
}

/* The number of things that follow, each of at least so many bytes. */
size_t state_get_count(struct state_reader *r, size_t size_min);
