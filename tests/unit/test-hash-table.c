/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/hash-table.h"

#define KEYS 512

static char things[KEYS];

/* xorshift64: the same sequence on every machine. */
static uint64_t next_random(uint64_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state;
}

/* Keys of the sorts that occur: small and dense, inode numbers far apart, the ends of the range. */
static uint64_t key_of(unsigned i) {
        switch (i % 3) {
        case 0:
                return i / 3;
        case 1:
                return (uint64_t) i << 32;
        default:
                return UINT64_MAX - i / 3;
        }
}

static void empty_table(void **state) {
        struct hash_table t = {};
        size_t cursor = 0;

        assert_null(hash_get(&t, 0));
        assert_null(hash_remove(&t, 0));
        assert_null(hash_next(&t, &cursor));
        assert_int_equal(hash_memory(&t), 0);
        hash_free(&t);
}

static void put_replace_remove(void **state) {
        struct hash_table t = {};

        assert_int_equal(hash_put(&t, 0, &things[0]), 0);
        assert_int_equal(hash_put(&t, 0, &things[1]), -EEXIST);
        assert_ptr_equal(hash_get(&t, 0), &things[0]);
        assert_int_equal(hash_replace(&t, 0, &things[1]), 0);
        assert_int_equal(t.n, 1);
        assert_int_equal(hash_replace(&t, UINT64_MAX, &things[2]), 0);
        assert_int_equal(t.n, 2);
        assert_ptr_equal(hash_get(&t, UINT64_MAX), &things[2]);
        assert_ptr_equal(hash_remove(&t, 0), &things[1]);
        assert_null(hash_remove(&t, 0));
        assert_null(hash_get(&t, 0));
        assert_int_equal(t.n, 1);

        hash_free(&t);
        assert_int_equal(t.n, 0);
        assert_null(t.entries);
}

static void same_as_model(const struct hash_table *t, char *const model[static KEYS]) {
        size_t cursor = 0, expected = 0, walked = 0;
        bool seen[KEYS] = {};

        for (unsigned i = 0; i < KEYS; i++) {
                assert_ptr_equal(hash_get(t, key_of(i)), model[i]);
                expected += !!model[i];
        }
        assert_int_equal(t->n, expected);

        for (char *thing; (thing = hash_next(t, &cursor)); walked++) {
                assert_false(seen[thing - things]);
                seen[thing - things] = true;
        }
        assert_int_equal(walked, expected);
}

static void random_operations(void **state) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct hash_table t = {};
                char *model[KEYS] = {};
                uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);

                for (unsigned step = 0; step < 6000; step++) {
                        unsigned i = next_random(&random) % KEYS;
                        /* Long phases of mostly putting and of mostly removing, so that it grows and shrinks. */
                        bool removing = next_random(&random) % 8 < (step / 1500 % 2 ? 7 : 2);

                        if (removing) {
                                assert_ptr_equal(hash_remove(&t, key_of(i)), model[i]);
                                model[i] = NULL;
                        } else if (next_random(&random) % 2) {
                                assert_int_equal(hash_put(&t, key_of(i), &things[i]), model[i] ? -EEXIST : 0);
                                model[i] = &things[i];
                        } else {
                                assert_int_equal(hash_replace(&t, key_of(i), &things[i]), 0);
                                model[i] = &things[i];
                        }

                        if (step % 100 == 0)
                                same_as_model(&t, model);
                }

                same_as_model(&t, model);
                hash_free(&t);
        }
}

static void grows_and_shrinks(void **state) {
        struct hash_table t = {};

        for (uint64_t i = 0; i < 100000; i++)
                assert_int_equal(hash_put(&t, i, &things[0]), 0);

        /* Never fuller than seven tenths, and never more than twice what that needs. */
        assert_true(hash_memory(&t) / sizeof(struct hash_entry) >= 100000 * 10 / 7);
        assert_true(hash_memory(&t) / sizeof(struct hash_entry) <= 2 * (100000 * 10 / 7 + 1));

        for (uint64_t i = 0; i < 99990; i++)
                assert_non_null(hash_remove(&t, i));
        assert_true(hash_memory(&t) <= 128 * sizeof(struct hash_entry));
        for (uint64_t i = 99990; i < 100000; i++)
                assert_non_null(hash_get(&t, i));
        hash_free(&t);
}

/* Keys that differ in high bits or by powers of two only must not pile up. */
static void probes_stay_short(void **state) {
        for (unsigned shift = 0; shift < 48; shift += 4) {
                struct hash_table t = {};
                size_t run = 0, longest = 0;

                for (uint64_t i = 0; i < 2800; i++)
                        assert_int_equal(hash_put(&t, i << shift, &things[0]), 0);
                for (size_t i = 0; i <= t.mask; i++) {
                        run = t.entries[i].value ? run + 1 : 0;
                        longest = run > longest ? run : longest;
                }
                assert_in_range(longest, 2, 150);
                hash_free(&t);
        }
}

static void bytes_hash(void **state) {
        assert_true(hash_bytes("a", 1) != hash_bytes("b", 1));
        assert_true(hash_bytes("ab", 2) != hash_bytes("ba", 2));
        assert_true(hash_bytes("", 0) != hash_bytes("", 1));
        assert_true(hash_bytes("a\0b", 3) != hash_bytes("a\0c", 3));
        assert_true(hash_bytes("/system.slice", 13) == hash_bytes("/system.slice/x", 13));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(empty_table),
                cmocka_unit_test(put_replace_remove),
                cmocka_unit_test(random_operations),
                cmocka_unit_test(grows_and_shrinks),
                cmocka_unit_test(probes_stay_short),
                cmocka_unit_test(bytes_hash),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
