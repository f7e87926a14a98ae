/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>

#include "core/state-bytes.h"

#define ALLOCATION_MIN ((size_t) 64 * 1024)

bool state_reserve(struct state_writer *w, size_t size) {
        if (w->allocated - w->size >= size && !w->failed)
                return true;
        if (w->failed || size > SIZE_MAX / 4 || w->allocated > SIZE_MAX / 4) {
                w->failed = true;
                return false;
        }

        size_t allocated = w->allocated * 2 > w->size + size ? w->allocated * 2 : w->size + size;
        if (allocated < ALLOCATION_MIN)
                allocated = ALLOCATION_MIN;

        uint8_t *bytes = realloc(w->bytes, allocated);
        if (!bytes) {
                w->failed = true;
                return false;
        }

        w->bytes = bytes;
        w->allocated = allocated;
        return true;
}

void state_writer_done(struct state_writer *w) {
        free(w->bytes);
        *w = (struct state_writer) {};
}

uint64_t state_get_long(struct state_reader *r) {
        uint64_t value = 0;

        for (unsigned shift = 0; shift < 64 && !r->bad && r->p < r->end; shift += 7) {
                uint64_t byte = *r->p++;

                if (shift == 63 && byte > 1) /* more than 64 bits */
                        break;
                value |= (byte & 0x7f) << shift;
                if (byte < 0x80)
                        return value;
        }

        r->bad = true;
        return 0;
}

const void *state_get_bytes(struct state_reader *r, size_t size) {
        const uint8_t *p = r->p;

        if (r->bad || size > (size_t) (r->end - p)) {
                r->bad = true;
                return NULL;
        }

        r->p += size;
        return p;
}

size_t state_get_count(struct state_reader *r, size_t size_min) {
        return (size_t) state_get_up_to(r, (size_t) (r->end - r->p) / size_min);
}
