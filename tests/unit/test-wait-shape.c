/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "core/wait-shape.h"

static unsigned short seed[3] = { 3, 1, 4 };

/* Around 150 us, log-normal, and one in fifty twenty times as long. */
static uint64_t draw_wait(void) {
        double normal = 0;

        for (unsigned i = 0; i < 12; i++)
                normal += erand48(seed);
        normal -= 6;
        return (uint64_t) (150e3 * exp(0.3 * normal) * (nrand48(seed) % 50 ? 1 : 20));
}

static void knows_nothing_at_first(void **state) {
        struct wait_shape shape = {};
        struct delay_batch batch = { .waits = 10, .total_nsec = 1000 }, out[WAIT_SHAPE_SPREAD_MAX];

        wait_shape_learn(&shape, 100, WAIT_SHAPE_ENOUGH - 1);
        assert_int_equal(wait_shape_spread(&shape, &batch, 0, UINT64_MAX, out), 1);
        assert_int_equal(out[0].waits, 10);
        assert_int_equal(out[0].total_nsec, 1000);
}

static void number_and_sum_stay(void **state) {
        struct wait_shape shape = {};

        for (unsigned i = 0; i < 5000; i++)
                wait_shape_learn(&shape, draw_wait(), 1);

        for (unsigned round = 0; round < 5000; round++) {
                struct delay_batch out[WAIT_SHAPE_SPREAD_MAX];
                struct delay_batch batch = { .waits = 2 + (uint64_t) nrand48(seed) % 3000, .without_io = round % 2 };
                uint64_t waits = 0, total = 0;

                /* Also of quite another length than the shape knows. */
                batch.total_nsec = (uint64_t) ((double) batch.waits * 200e3 * exp(6 * (erand48(seed) - 0.5)));
                uint64_t max = 100 * NSEC_PER_MSEC, min = 1000;
                unsigned n = wait_shape_spread(&shape, &batch, min, max, out);

                assert_in_range(n, 1, WAIT_SHAPE_SPREAD_MAX);
                for (unsigned i = 0; i < n; i++) {
                        assert_true(out[i].waits > 0);
                        assert_false(out[i].exact);
                        assert_int_equal(out[i].without_io, batch.without_io);
                        waits += out[i].waits;
                        total += out[i].total_nsec;
                }
                assert_int_equal(waits, batch.waits);
                assert_int_equal(total, batch.total_nsec);
        }
}

/* One wait in five is seen, the others in batches of twenty: the quantiles come out within a bucket. */
static void quantiles_of_a_sampled_task(void **state) {
        struct histogram truth = {}, seen = {}, means = {};
        struct wait_shape shape = {};
        static const double quantiles[] = { 0.5, 0.9, 0.99 };

        for (unsigned round = 0; round < 10000; round++) {
                struct delay_batch batch = {}, out[WAIT_SHAPE_SPREAD_MAX];

                for (unsigned i = 0; i < 25; i++) {
                        uint64_t nsec = draw_wait();

                        assert_int_equal(histogram_add(&truth, nsec, 1), 0);
                        if (i < 5) {
                                wait_shape_learn(&shape, nsec, 1);
                                assert_int_equal(histogram_add(&seen, nsec, 1), 0);
                                assert_int_equal(histogram_add(&means, nsec, 1), 0);
                        } else {
                                batch.waits++;
                                batch.total_nsec += nsec;
                        }
                }

                unsigned n = wait_shape_spread(&shape, &batch, 0, UINT64_MAX, out);
                for (unsigned i = 0; i < n; i++)
                        assert_int_equal(histogram_add(&seen, out[i].total_nsec / out[i].waits, out[i].waits), 0);
                assert_int_equal(histogram_add(&means, batch.total_nsec / batch.waits, batch.waits), 0);
        }

        bool means_would_do = true;
        for (unsigned i = 0; i < 3; i++) {
                double is = (double) histogram_quantile(&truth, quantiles[i], 1, UINT64_MAX);
                double got = (double) histogram_quantile(&seen, quantiles[i], 1, UINT64_MAX);
                double mean = (double) histogram_quantile(&means, quantiles[i], 1, UINT64_MAX);

                print_message("# p%g: truth %.0f, spread %.0f, means %.0f ns\n", quantiles[i] * 100, is, got, mean);
                assert_true(fabs(log2(got / is)) < 0.25);
                means_would_do = means_would_do && fabs(log2(mean / is)) < 0.25;
        }
        assert_false(means_would_do); /* else this test shows nothing */

        histogram_free(&truth);
        histogram_free(&seen);
        histogram_free(&means);
}

static void forgets_what_was_long_ago(void **state) {
        struct wait_shape shape = {};

        for (unsigned i = 0; i < 100000; i++)
                wait_shape_learn(&shape, NSEC_PER_MSEC, 1);
        for (unsigned i = 0; i < 100000; i++)
                wait_shape_learn(&shape, NSEC_PER_SEC, 1);
        assert_true(shape.waits <= WAIT_SHAPE_MEMORY);
        assert_in_range(shape.counts[histogram_bucket_of(NSEC_PER_MSEC)], 0, 8);
        wait_shape_learn(&shape, 1, UINT64_MAX);
        assert_true(shape.waits <= WAIT_SHAPE_MEMORY);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(knows_nothing_at_first),
                cmocka_unit_test(number_and_sum_stay),
                cmocka_unit_test(quantiles_of_a_sampled_task),
                cmocka_unit_test(forgets_what_was_long_ago),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
