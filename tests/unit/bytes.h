/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cleanup.h"

/* Bytes for tests: random ones and those of fixtures. Include after cmocka.h. */

/* xorshift64: the same numbers in every run. */
static uint64_t random_state;

static inline uint64_t random64(void) {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return random_state;
}

static inline uint8_t *read_file(const char *path, size_t *ret_size) {
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        uint8_t *bytes = malloc(1U << 20);

        assert_non_null(f);
        assert_non_null(bytes);
        *ret_size = fread(bytes, 1, (1U << 20) - 1, f);
        bytes[*ret_size] = '\0';
        return bytes;
}

/* A cmocka setup function. */
static inline int seed(void **state) {
        random_state = UINT64_C(0x9E3779B97F4A7C15);
        return 0;
}
