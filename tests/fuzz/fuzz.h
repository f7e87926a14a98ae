/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What libFuzzer calls for each input; each target defines it. Without libFuzzer run-corpus.c does. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold whatever the input is; unlike assert() also in builds without it. */
#define CHECK(condition)                                                                          \
        do {                                                                                      \
                if (!(condition)) {                                                               \
                        fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);   \
                        abort();                                                                  \
                }                                                                                 \
        } while (0)

/* A copy that ends where the input does, so that a sanitizer sees each byte that is read behind it. */
static inline void *fuzz_copy(const uint8_t *data, size_t size) {
        void *copy = calloc(1, size > 0 ? size : 1);

        CHECK(copy);
        if (size > 0)
                memcpy(copy, data, size);
        return copy;
}

static inline char *fuzz_string(const uint8_t *data, size_t size) {
        char *copy = malloc(size + 1);

        CHECK(copy);
        if (size > 0)
                memcpy(copy, data, size);
        copy[size] = '\0';
        return copy;
}

/* Text that every output may show: valid UTF-8 without control characters. */
static inline void check_displayable(const char *s) {
        const uint8_t *p = (const uint8_t *) s;

        while (*p) {
                unsigned more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
                uint32_t code = more == 0 ? *p : *p & (0x3fU >> more);

                CHECK(*p < 0x80 || (*p >= 0xc2 && *p <= 0xf4));
                for (p++; more > 0; more--, p++) {
                        CHECK((*p & 0xc0) == 0x80);
                        code = code << 6 | (*p & 0x3f);
                }
                CHECK(code >= 0x20 && (code < 0x7f || code >= 0xa0) && code <= 0x10ffff
                      && (code < 0xd800 || code > 0xdfff));
        }
}
