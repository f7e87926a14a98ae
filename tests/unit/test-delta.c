/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "core/delta.h"
#include "core/plausibility.h"

#define MSEC NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

static const struct delay_bounds unbounded = { UINT64_MAX, UINT64_MAX };

static struct delay_delta take(
                struct task_baseline *baseline, uint64_t count, uint64_t total, uint64_t max, uint64_t min) {

        const struct delay_counters now = { count, total, max, min };
        struct delay_delta delta;

        delta_take(baseline, &now, &unbounded, max > 0, false, &delta);
        return delta;
}

static void one_wait_is_exact(void **state) {
        struct task_baseline b = {};
        struct delay_delta d = take(&b, 1, 5 * MSEC, 0, 0);

        assert_int_equal(d.n_batches, 1);
        assert_int_equal(d.batches[0].waits, 1);
        assert_int_equal(d.batches[0].total_nsec, 5 * MSEC);
        assert_true(d.batches[0].exact);

        d = take(&b, 1, 5 * MSEC, 0, 0);
        assert_int_equal(d.n_batches, 0);
        assert_int_equal(d.waits, 0);
}

static void extremes_are_exact(void **state) {
        struct task_baseline b = {};
        /* Waits of 10, 4, 4, 1 ms. */
        struct delay_delta d = take(&b, 4, 19 * MSEC, 10 * MSEC, 1 * MSEC);

        assert_int_equal(d.n_batches, 3);
        assert_int_equal(d.batches[0].total_nsec, 10 * MSEC);
        assert_true(d.batches[0].exact);
        assert_int_equal(d.batches[1].total_nsec, 1 * MSEC);
        assert_true(d.batches[1].exact);
        assert_int_equal(d.batches[2].waits, 2);
        assert_int_equal(d.batches[2].total_nsec, 8 * MSEC);
        assert_false(d.batches[2].exact);

        /* Two more, the first of them a new maximum: then the other is exact as well. */
        d = take(&b, 6, 19 * MSEC + 22 * MSEC, 20 * MSEC, 1 * MSEC);
        assert_int_equal(d.n_batches, 2);
        assert_int_equal(d.batches[0].total_nsec, 20 * MSEC);
        assert_int_equal(d.batches[1].total_nsec, 2 * MSEC);
        assert_true(d.batches[1].exact);
}

static void nonsense_extremes_are_not_used(void **state) {
        struct task_baseline b = {};
        /* Three waits of 10 ms each cannot have a maximum of 5 ms. */
        struct delay_delta d = take(&b, 3, 30 * MSEC, 5 * MSEC, 0);

        assert_int_equal(d.n_batches, 1);
        assert_int_equal(d.batches[0].waits, 3);
        assert_int_equal(d.batches[0].total_nsec, 30 * MSEC);
        assert_false(d.batches[0].exact);
}

static void torn_pairs_are_carried(void **state) {
        struct task_baseline b = {};
        struct delay_delta d = take(&b, 0, 3 * MSEC, 0, 0);

        assert_true(d.carried);
        assert_int_equal(d.n_batches, 0);
        d = take(&b, 1, 3 * MSEC, 0, 0);
        assert_int_equal(d.waits, 1);
        assert_int_equal(d.batches[0].total_nsec, 3 * MSEC);

        /* Count ahead of the total. */
        d = take(&b, 2, 3 * MSEC, 0, 0);
        assert_true(d.carried);
        d = take(&b, 2, 7 * MSEC, 0, 0);
        assert_int_equal(d.waits, 1);
        assert_int_equal(d.batches[0].total_nsec, 4 * MSEC);
}

static void last_record_completes_torn_ones(void **state) {
        struct task_baseline b = {};
        struct delay_delta d = take(&b, 2, 3 * MSEC, 0, 0); /* the total lacks the second wait */

        assert_int_equal(d.waits, 2);
        delta_take(&b, &(struct delay_counters) { 2, 10 * MSEC, 0, 0 }, &unbounded, false, true, &d);
        assert_int_equal(d.waits, 0);
        assert_int_equal(d.n_batches, 1);
        assert_int_equal(d.batches[0].total_nsec, 7 * MSEC);
}

static void count_wraps(void **state) {
        struct task_baseline b = { .count = UINT32_MAX - 1, .total_nsec = 100 * SEC };
        struct delay_delta d = take(&b, 3, 100 * SEC + 10 * MSEC, 0, 0);

        assert_int_equal(d.waits, 5);
        assert_int_equal(d.refused_waits, 0);
        assert_int_equal(b.count, 3);

        /* The wire has 64 bits: a kernel that stops wrapping changes nothing. */
        d = take(&b, (UINT64_C(1) << 32) + 4, 100 * SEC + 11 * MSEC, 0, 0);
        assert_int_equal(d.waits, 1);
}

static void overflow_mark(void **state) {
        struct task_baseline b = { .count = 5, .total_nsec = 5 * SEC };
        struct delay_delta d = take(&b, 7, 0, 0, 0);

        assert_int_equal(d.n_batches, 0);
        assert_int_equal(d.refused_waits, 2);
        assert_int_equal(d.reason, REJECT_OVERFLOW);

        d = take(&b, 8, 1 * MSEC, 0, 0);
        assert_int_equal(d.waits, 1);
        assert_int_equal(d.batches[0].total_nsec, 1 * MSEC);
}

static void going_down_takes_nothing(void **state) {
        struct task_baseline b = { .count = 10, .total_nsec = 10 * SEC };
        struct delay_delta d = take(&b, 9, 9 * SEC, 0, 0);

        assert_true(d.backwards);
        assert_int_equal(d.n_batches, 0);

        /* A single low value was a torn read: only what is new counts. */
        d = take(&b, 11, 11 * SEC, 0, 0);
        assert_int_equal(d.waits, 1);
        assert_int_equal(d.batches[0].total_nsec, 1 * SEC);

        /* Two low values in a row are a reset, from which counting goes on. */
        assert_true(take(&b, 2, 2 * SEC, 0, 0).backwards);
        assert_true(take(&b, 3, 3 * SEC, 0, 0).backwards);
        d = take(&b, 4, 4 * SEC, 0, 0);
        assert_int_equal(d.waits, 1);
        assert_int_equal(d.batches[0].total_nsec, 1 * SEC);

        /* The count alone. */
        assert_true(take(&b, 3, 5 * SEC, 0, 0).backwards);
}

static void impossible_maximum_is_taken_out(void **state) {
        /* Seen on Linux 6.18: a task of 58 ms, 6 waits, total 989.83 s, maximum 989.82 s. */
        struct task_baseline b = {};
        const struct delay_counters now = { 6, 989830 * MSEC, 989820 * MSEC, 1 * MSEC };
        const struct delay_bounds bounds = { 58 * MSEC, 58 * MSEC };
        struct delay_delta d;

        delta_take(&b, &now, &bounds, true, true, &d);
        assert_int_equal(d.refused_waits, 1);
        assert_int_equal(d.refused_nsec, 989820 * MSEC);
        assert_int_equal(d.reason, REJECT_IMPOSSIBLE);
        assert_int_equal(d.waits, 5);

        uint64_t total = 0;
        for (unsigned i = 0; i < d.n_batches; i++)
                total += d.batches[i].total_nsec;
        assert_int_equal(total, 10 * MSEC);
        assert_int_equal(b.refused_nsec, 989820 * MSEC);

        /* Without a maximum nothing can be saved. */
        b = (struct task_baseline) {};
        delta_take(&b, &now, &bounds, false, true, &d);
        assert_int_equal(d.refused_waits, 6);
        assert_int_equal(d.n_batches, 0);

        /* Two such waits in one delta: the rest is impossible still. */
        b = (struct task_baseline) {};
        delta_take(&b, &(struct delay_counters) { 6, 2 * 989820 * MSEC, 989820 * MSEC, 1 }, &bounds, true, true, &d);
        assert_int_equal(d.refused_waits, 6);
}

static struct delay_bounds bounds_of(
                uint64_t lifetime, uint64_t run, uint64_t cpu, const struct task *task, const struct task_baseline *b) {

        struct task_sample sample = { .lifetime_nsec = lifetime, .run_nsec = run };
        struct delay_bounds bounds;

        sample.delays[DELAY_CPU].total_nsec = cpu;
        plausibility_bounds(task, b, &sample, DELAY_BLKIO, CLOCK_ERROR_NSEC, &bounds);
        return bounds;
}

static void bounds_of_a_life(void **state) {
        struct task task = {};
        struct task_baseline b = { .total_nsec = 300 * MSEC, .refused_nsec = 100 * MSEC };
        struct delay_bounds bounds = bounds_of(1000 * MSEC, 400 * MSEC, 100 * MSEC, &task, &b);

        /* 1000 - 400 - 100, less 200 that are accounted; a few milliseconds of slack. */
        assert_in_range(bounds.sum_nsec, 300 * MSEC, 303 * MSEC);
        assert_in_range(bounds.single_nsec, 500 * MSEC, 503 * MSEC);

        /* Counters from nowhere do not wrap around. */
        bounds = bounds_of(10 * MSEC, UINT64_MAX, UINT64_MAX, &task, &b);
        assert_int_equal(bounds.sum_nsec, 0);
}

static void bounds_since_it_last_ran(void **state) {
        /* It ran between the samples at 90 s and 95 s; since 95 s it has been asleep, up to now at 100 s. */
        struct task task = {
                .sampled = true,
                .lifetime_nsec = 99 * SEC,
                .run_nsec = 2 * SEC,
                .anchor_nsec = 90 * SEC,
        };
        struct task_baseline b = {};
        struct delay_bounds bounds = bounds_of(100 * SEC, 2 * SEC, 0, &task, &b);

        assert_in_range(bounds.sum_nsec, 10 * SEC, 10 * SEC + 25 * MSEC);

        /* A stall of a minute that ends now is real. */
        task.anchor_nsec = 35 * SEC;
        assert_true(bounds_of(100 * SEC, 2 * SEC, 0, &task, &b).sum_nsec >= 60 * SEC);
}

/*
 * A task's history: waits and runs one after the other. Cut into samples at random places, some of them
 * torn, it has to come out with every wait and every nanosecond. Only waiting for a CPU is read without
 * a lock (delayacct_add_tsk() in kernel/delayacct.c), so only that can be torn.
 */
static void property_histories_are_conserved(void **state) {
        unsigned short seed[3] = { 7, 11, 2026 };

        for (unsigned round = 0; round < 2000; round++) {
                struct task task = {};
                struct task_baseline b = { .count = (uint32_t) nrand48(seed) << 1 };
                uint32_t first = b.count;
                uint64_t life = 0, run = 0, total = 0, max = 0, min = 0, waits = 0;
                uint64_t got_waits = 0, got_total = 0, got_exact_max = 0;
                bool extremes = nrand48(seed) % 2;
                enum delay_kind kind = nrand48(seed) % 2 ? DELAY_CPU : DELAY_BLKIO;
                unsigned steps = 1 + (unsigned) nrand48(seed) % 200;

                for (unsigned step = 0; step < steps; step++) {
                        /* Half of the steps are the end of a wait of up to 2^36 ns, about a minute. */
                        bool waited = nrand48(seed) % 2;
                        uint64_t length = 1 + (((uint64_t) nrand48(seed) << 6) >> (nrand48(seed) % 36));
                        uint64_t before_count = waits, before_total = total;

                        life += length;
                        if (waited) {
                                waits++;
                                total += length;
                                max = length > max ? length : max;
                                min = min == 0 || length < min ? length : min;
                        } else
                                run += length;

                        bool final = step == steps - 1;
                        if (!final && nrand48(seed) % 3)
                                continue;

                        struct task_sample sample = { .lifetime_nsec = life, .run_nsec = run };
                        struct delay_counters now = { (uint32_t) (first + waits), total, max, min };

                        /* A tear: one half of the pair is a step behind. */
                        if (kind == DELAY_CPU && !final && waited && nrand48(seed) % 4 == 0) {
                                if (nrand48(seed) % 2)
                                        now.count = (uint32_t) (first + before_count);
                                else
                                        now.total_nsec = before_total;
                        }

                        struct delay_bounds bounds;
                        struct delay_delta d;
                        plausibility_bounds(&task, &b, &sample, kind, CLOCK_ERROR_NSEC, &bounds);
                        delta_take(&b, &now, &bounds, extremes, final, &d);
                        assert_int_equal(d.refused_waits, 0);
                        assert_false(d.backwards);
                        assert_in_range(d.n_batches, 0, DELTA_BATCHES_MAX);

                        uint64_t in_batches = 0;
                        for (unsigned i = 0; i < d.n_batches; i++) {
                                assert_true(d.batches[i].waits > 0 || final);
                                in_batches += d.batches[i].waits;
                                got_total += d.batches[i].total_nsec;
                                if (d.batches[i].exact && d.batches[i].total_nsec > got_exact_max)
                                        got_exact_max = d.batches[i].total_nsec;
                        }
                        assert_int_equal(in_batches, d.waits);
                        got_waits += d.waits;

                        if (task.sampled && sample.run_nsec != task.run_nsec)
                                task.anchor_nsec = task.lifetime_nsec;
                        task.lifetime_nsec = life;
                        task.run_nsec = run;
                        task.sampled = true;
                }

                assert_int_equal(got_waits, waits);
                assert_int_equal(got_total, total);
                if (extremes || kind == DELAY_BLKIO)
                        assert_true(got_exact_max <= max);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(one_wait_is_exact),
                cmocka_unit_test(extremes_are_exact),
                cmocka_unit_test(nonsense_extremes_are_not_used),
                cmocka_unit_test(torn_pairs_are_carried),
                cmocka_unit_test(last_record_completes_torn_ones),
                cmocka_unit_test(count_wraps),
                cmocka_unit_test(overflow_mark),
                cmocka_unit_test(going_down_takes_nothing),
                cmocka_unit_test(impossible_maximum_is_taken_out),
                cmocka_unit_test(bounds_of_a_life),
                cmocka_unit_test(bounds_since_it_last_ran),
                cmocka_unit_test(property_histories_are_conserved),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
