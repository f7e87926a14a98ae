/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The source itself, so that its allocations can be made to fail. */
static bool memory_short;

static void *limited_realloc(void *p, size_t size) {
        return memory_short ? NULL : realloc(p, size);
}

#define realloc limited_realloc
#include "core/histogram.c"
#undef realloc

#define WAITS 400

/* xorshift64: the same sequence on every machine. */
static uint64_t next_random(uint64_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state;
}

/* Just enough long arithmetic to compare fourth powers. */
struct big {
        uint32_t limbs[12];
};

static struct big big_of(uint64_t x) {
        return (struct big) { { (uint32_t) x, (uint32_t) (x >> 32) } };
}

static struct big big_times(struct big a, struct big b) {
        struct big product = {};

        for (size_t i = 0; i < 12; i++) {
                uint64_t carry = 0;

                for (size_t k = 0; i + k < 12; k++) {
                        carry += (uint64_t) a.limbs[i] * b.limbs[k] + product.limbs[i + k];
                        product.limbs[i + k] = (uint32_t) carry;
                        carry >>= 32;
                }
                assert_true(carry == 0);
        }

        return product;
}

static struct big big_shifted(struct big a, int bits) {
        for (; bits > 0; bits--)
                a = big_times(a, big_of(2));
        return a;
}

static int big_compare(struct big a, struct big b) {
        for (size_t i = 12; i-- > 0;)
                if (a.limbs[i] != b.limbs[i])
                        return a.limbs[i] < b.limbs[i] ? -1 : 1;
        return 0;
}

/* The sign of nsec^4 - 2^i * 10^36, with 10^36 = 5^36 * 2^36. */
static int against_bound(uint64_t nsec, int i) {
        struct big square = big_times(big_of(nsec), big_of(nsec)), fourth = big_times(square, square);
        struct big power = big_of(1);

        for (int k = 0; k < 36; k++)
                power = big_times(power, big_of(5));

        return big_compare(big_shifted(fourth, -(36 + i)), big_shifted(power, 36 + i));
}

/* Under valgrind a long double is a double, which cannot tell. */
static bool long_double_is_wide(void) {
        volatile long double one = 1, tiny = 0x1p-60L;

        return one + tiny != one;
}

static void bounds_are_exact(void **state) {
        if (!long_double_is_wide()) {
                print_message("# left out: a long double is no wider than a double here\n");
                return;
        }

        for (int bucket = 0; bucket <= 128; bucket++) {
                uint64_t nsec = histogram_bucket_upper_nsec((unsigned) bucket);

                assert_true(against_bound(nsec, bucket - 80) <= 0);
                assert_true(against_bound(nsec + 1, bucket - 80) > 0);

                double exact = (double) powl(2, (bucket - 80) / 4.0L);
                assert_true(histogram_bucket_upper_sec((unsigned) bucket) == exact);
        }

        assert_int_equal(HISTOGRAM_BUCKET_COUNT, 130);
        assert_true(histogram_bucket_upper_nsec(129) == UINT64_MAX);
        assert_true(isinf(histogram_bucket_upper_sec(129)));
        assert_true(histogram_bucket_upper_nsec(1000) == UINT64_MAX);
        assert_true(isinf(histogram_bucket_upper_sec(1000)));
}

/* The plain search that the fast one must agree with. */
static unsigned slow_bucket_of(uint64_t nsec) {
        unsigned bucket = 0;

        while (nsec > histogram_bucket_upper_nsec(bucket))
                bucket++;
        return bucket;
}

static void bucket_search(void **state) {
        uint64_t random = 1;

        for (unsigned bucket = 0; bucket < 129; bucket++) {
                uint64_t upper = histogram_bucket_upper_nsec(bucket);

                assert_int_equal(histogram_bucket_of(upper), bucket);
                assert_int_equal(histogram_bucket_of(upper + 1), bucket + 1);
        }
        for (unsigned e = 0; e < 64; e++)
                for (int step = -1; step <= 1; step++) {
                        uint64_t nsec = (UINT64_C(1) << e) + (uint64_t) (int64_t) step;

                        assert_int_equal(histogram_bucket_of(nsec), slow_bucket_of(nsec));
                }
        for (unsigned i = 0; i < 100000; i++) {
                uint64_t nsec = next_random(&random) >> (i % 64);

                assert_int_equal(histogram_bucket_of(nsec), slow_bucket_of(nsec));
        }
        assert_int_equal(histogram_bucket_of(0), 0);
        assert_int_equal(histogram_bucket_of(UINT64_MAX), 129);
}

static void span_grows_both_ways(void **state) {
        struct histogram h = {};

        assert_int_equal(histogram_get(&h, 0), 0);
        assert_int_equal(histogram_memory(&h), 0);
        assert_int_equal(histogram_add_to_bucket(&h, 60, 0), 0);
        assert_null(h.counts);

        assert_int_equal(histogram_add_to_bucket(&h, 60, 7), 0);
        assert_int_equal(h.n, 1);
        assert_int_equal(histogram_add_to_bucket(&h, 58, 1), 0);
        assert_int_equal(histogram_add_to_bucket(&h, 63, 2), 0);
        assert_int_equal(h.first, 58);
        assert_int_equal(h.n, 6);
        assert_int_equal(histogram_memory(&h), 48);

        static const uint64_t expected[] = { 0, 1, 0, 7, 0, 0, 2, 0 };
        for (unsigned i = 0; i < 8; i++)
                assert_int_equal(histogram_get(&h, 57 + i), expected[i]);
        assert_int_equal(histogram_waits(&h), 10);

        assert_int_equal(histogram_add_to_bucket(&h, 129, 1), 0);
        assert_int_equal(histogram_add_to_bucket(&h, 0, 1), 0);
        assert_int_equal(h.n, 130);
        assert_int_equal(histogram_add_to_bucket(&h, 130, 1), -EINVAL);
        assert_int_equal(histogram_get(&h, 130), 0);
        assert_int_equal(histogram_waits(&h), 12);

        histogram_free(&h);
        assert_null(h.counts);
        assert_int_equal(h.n, 0);
}

static void short_memory_changes_nothing(void **state) {
        struct histogram h = {}, other = {};

        assert_int_equal(histogram_add_to_bucket(&h, 50, 3), 0);
        assert_int_equal(histogram_add_to_bucket(&other, 40, 4), 0);
        assert_int_equal(histogram_add_to_bucket(&other, 50, 5), 0);

        memory_short = true;
        assert_int_equal(histogram_add_to_bucket(&h, 51, 1), -ENOMEM);
        assert_int_equal(histogram_add(&h, 1, 1), -ENOMEM);
        assert_int_equal(histogram_merge(&h, &other), -ENOMEM);
        assert_int_equal(h.first, 50);
        assert_int_equal(h.n, 1);
        assert_int_equal(histogram_get(&h, 50), 3);
        assert_int_equal(histogram_add_to_bucket(&h, 50, 1), 0); /* needs none */
        memory_short = false;

        assert_int_equal(histogram_merge(&h, &other), 0);
        assert_int_equal(histogram_get(&h, 40), 4);
        assert_int_equal(histogram_get(&h, 50), 9);
        assert_int_equal(histogram_waits(&other), 9);

        histogram_free(&h);
        histogram_free(&other);
}

static int compare_waits(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

        return (x > y) - (x < y);
}

/* Waits as they are: mostly close together, some far away, now and then anything. */
static uint64_t random_wait(uint64_t *random, uint64_t typical) {
        switch (next_random(random) % 8) {
        case 0:
                return next_random(random) >> (next_random(random) % 64);
        case 1:
                return typical * (1 + next_random(random) % 100);
        default:
                return typical / 2 + next_random(random) % typical;
        }
}

static void random_waits(void **state) {
        static const double quantiles[] = { 0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1 };

        for (uint64_t seed = 1; seed <= 200; seed++) {
                struct histogram h = {}, half = {};
                uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15), waits[WAITS];
                uint64_t typical = UINT64_C(1000) << (seed % 30);
                size_t n = 1 + next_random(&random) % WAITS;
                uint64_t expected[HISTOGRAM_BUCKET_COUNT] = {};

                for (size_t i = 0; i < n; i++) {
                        waits[i] = random_wait(&random, typical);
                        expected[slow_bucket_of(waits[i])]++;
                        assert_int_equal(histogram_add(i % 3 ? &h : &half, waits[i], 1), 0);
                }
                assert_int_equal(histogram_merge(&h, &half), 0);
                qsort(waits, n, sizeof(waits[0]), compare_waits);

                for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKET_COUNT; bucket++)
                        assert_int_equal(histogram_get(&h, bucket), expected[bucket]);
                assert_int_equal(histogram_waits(&h), n);

                uint64_t previous = 0;
                for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
                        uint64_t value = histogram_quantile(&h, quantiles[i], waits[0], waits[n - 1]);
                        size_t rank = (size_t) ceil(quantiles[i] * (double) n);
                        uint64_t truth = waits[rank > 0 ? rank - 1 : 0];
                        int difference = (int) slow_bucket_of(value) - (int) slow_bucket_of(truth);

                        assert_in_range(difference + 1, 0, 2);
                        assert_in_range(value, waits[0], waits[n - 1]);
                        assert_true(value >= previous);
                        previous = value;
                }

                histogram_free(&h);
                histogram_free(&half);
        }
}

static void quantile_edges(void **state) {
        struct histogram h = {};

        assert_int_equal(histogram_quantile(&h, 0.5, 0, 0), 0);

        /* One wait is its own quantile, whatever the bucket's bounds are. */
        assert_int_equal(histogram_add(&h, 1500000, 1), 0);
        assert_int_equal(histogram_quantile(&h, 0, 1500000, 1500000), 1500000);
        assert_int_equal(histogram_quantile(&h, 0.99, 1500000, 1500000), 1500000);
        histogram_free(&h);

        /* Half way through a bucket is half way on the log scale: 2^-7 s * 2^(1/8). */
        assert_int_equal(histogram_add_to_bucket(&h, 53, 10), 0);
        assert_in_range(histogram_quantile(&h, 0.5, 1, NSEC_PER_SEC), 8519591, 8519593);
        assert_true(histogram_quantile(&h, NAN, 1, NSEC_PER_SEC) == histogram_quantile(&h, 0, 1, NSEC_PER_SEC));
        assert_true(histogram_quantile(&h, 7, 1, NSEC_PER_SEC) == histogram_quantile(&h, 1, 1, NSEC_PER_SEC));
        histogram_free(&h);

        /* The open buckets end at what was seen: sqrt(100 * 953.67) and sqrt(4096 s * 65536 s). */
        assert_int_equal(histogram_add_to_bucket(&h, 0, 2), 0);
        assert_in_range(histogram_quantile(&h, 0.5, 100, 900), 308, 310);
        assert_int_equal(histogram_quantile(&h, 1, 100, 900), 900);
        histogram_free(&h);
        assert_int_equal(histogram_add_to_bucket(&h, 129, 2), 0);
        assert_in_range(histogram_quantile(&h, 0.5, 1, 65536 * NSEC_PER_SEC), 16383999999999, 16384000000001);
        assert_true(histogram_quantile(&h, 1, 1, UINT64_MAX) == UINT64_MAX);
        histogram_free(&h);

        /* Counts beyond what a double can tell apart. */
        assert_int_equal(histogram_add_to_bucket(&h, 60, (UINT64_C(1) << 60) + 1), 0);
        assert_int_equal(histogram_add_to_bucket(&h, 61, 3), 0);
        assert_in_range(histogram_quantile(&h, 1, 1, UINT64_MAX),
                        histogram_bucket_upper_nsec(59), histogram_bucket_upper_nsec(61));
        histogram_free(&h);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bounds_are_exact),
                cmocka_unit_test(bucket_search),
                cmocka_unit_test(span_grows_both_ways),
                cmocka_unit_test(short_memory_changes_nothing),
                cmocka_unit_test(random_waits),
                cmocka_unit_test(quantile_edges),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
