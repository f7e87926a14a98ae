/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "core/schedule.h"
#include "core/task-table.h"

#define MSEC NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

/* Samples the task whenever it is due, while it waits at a steady rate. Returns the number of samples. */
static unsigned run(struct schedule *s, struct task *task, uint64_t from, uint64_t to, uint64_t waits_per_sec) {
        uint32_t *tids = NULL;
        size_t allocated = 0;
        uint64_t told = from * waits_per_sec / SEC;
        unsigned samples = 0;

        for (uint64_t now = from;;) {
                if (schedule_next(s) > now)
                        now = schedule_next(s);
                if (now >= to)
                        break;

                ssize_t n = schedule_due(s, now, &tids, &allocated);

                assert_true(n >= 0);
                for (ssize_t i = 0; i < n; i++) {
                        uint64_t waits = now * waits_per_sec / SEC;

                        assert_int_equal(tids[i], task->tid);
                        schedule_adapt(s, task, now, waits - told);
                        told = waits;
                        samples++;
                }
                assert_true(n > 0); /* nobody is woken for nothing */
        }

        free(tids);
        return samples;
}

static void intervals(void **state) {
        struct schedule s;

        schedule_init(&s, SEC);
        assert_int_equal(s.levels[s.base].interval_nsec, SEC);
        assert_int_equal(s.levels[s.slowest].interval_nsec, 4 * SEC);
        assert_in_range(s.levels[0].interval_nsec, 10 * MSEC, 20 * MSEC);
        assert_int_equal(schedule_next(&s), UINT64_MAX);
        schedule_done(&s);

        schedule_init(&s, 10 * MSEC);
        assert_int_equal(s.base, 0);
        schedule_done(&s);

        schedule_init(&s, 3600 * SEC);
        assert_int_equal(s.levels[s.base].interval_nsec, 3600 * SEC);
        schedule_done(&s);
}

static void quiet_tasks_are_sampled_rarely(void **state) {
        struct schedule s;
        struct task task = { .tid = 7 };

        schedule_init(&s, SEC);
        assert_int_equal(schedule_add(&s, &task, 0), 0);
        run(&s, &task, 0, 20 * SEC, 0);
        assert_int_equal(task.level, s.slowest);
        assert_in_range(run(&s, &task, 20 * SEC, 60 * SEC, 0), 9, 11);

        /* The first wait brings it back to the poll interval at least. */
        run(&s, &task, 60 * SEC, 70 * SEC, 1);
        assert_true(task.level <= s.base);
        schedule_remove(&s, &task);
        assert_int_equal(s.n, 0);
        schedule_done(&s);
}

static void sampling_follows_the_waits(void **state) {
        struct schedule s;
        struct task task = { .tid = 7 };

        schedule_init(&s, SEC);
        assert_int_equal(schedule_add(&s, &task, 0), 0);
        run(&s, &task, 0, 10 * SEC, 20);
        assert_in_range(s.levels[task.level].interval_nsec, 25 * MSEC, 130 * MSEC);
        assert_false(task.in_burst);

        /* 2000 waits a second are more than 10 ms can tell. */
        run(&s, &task, 10 * SEC, 12 * SEC, 2000);
        assert_int_equal(task.level, 0);
        assert_true(task.in_burst);

        /* In one second: a tenth of it every quarter of a millisecond, and the rest every 15 ms. */
        assert_in_range(run(&s, &task, 12 * SEC, 13 * SEC, 2000), 300, 600);

        s.burst.share = 1;
        assert_in_range(run(&s, &task, 13 * SEC, 14 * SEC, 2000), 3000, 5000);

        run(&s, &task, 14 * SEC, 30 * SEC, 0);
        assert_false(task.in_burst);
        assert_int_equal(s.burst.n, 0);
        schedule_remove(&s, &task);
        schedule_done(&s);
}

static void budget_binds_and_lets_go(void **state) {
        struct schedule s;
        struct task task = { .tid = 7 };

        schedule_init(&s, SEC);
        assert_int_equal(schedule_add(&s, &task, 0), 0);
        run(&s, &task, 0, 5 * SEC, 2000);
        assert_true(schedule_is_bound(&s)); /* bursts do not run all the time yet */

        for (unsigned i = 0; i < 40; i++)
                schedule_keep_budget(&s, 0.05, 0.01);
        assert_int_equal(s.fastest, s.base);
        assert_int_equal(task.level, s.base);
        assert_false(task.in_burst);
        assert_true(schedule_is_bound(&s));

        for (unsigned i = 0; i < 40; i++)
                schedule_keep_budget(&s, 0.001, 0.01);
        assert_int_equal(s.fastest, 0);
        run(&s, &task, 5 * SEC, 10 * SEC, 2000);
        assert_true(task.in_burst);
        for (unsigned i = 0; i < 40; i++)
                schedule_keep_budget(&s, 0.001, 0.01);
        assert_false(schedule_is_bound(&s));

        schedule_remove(&s, &task);
        assert_int_equal(s.burst.n, 0);
        schedule_done(&s);
}

static void many_tasks_come_and_go(void **state) {
        struct task *tasks = calloc(1000, sizeof(*tasks));
        unsigned short seed[3] = { 1, 2, 3 };
        struct schedule s;
        uint32_t *tids = NULL;
        size_t allocated = 0, scheduled = 0;

        assert_non_null(tasks);
        schedule_init(&s, SEC);
        for (unsigned step = 0; step < 100000; step++) {
                struct task *task = &tasks[nrand48(seed) % 1000];
                uint64_t now = step * MSEC;

                task->tid = (uint32_t) (task - tasks) + 1;
                switch (nrand48(seed) % 4) {
                case 0:
                        scheduled += !task->scheduled;
                        assert_int_equal(schedule_add(&s, task, now), 0);
                        break;
                case 1:
                        scheduled -= task->scheduled;
                        schedule_remove(&s, task);
                        break;
                default:
                        schedule_adapt(&s, task, now, (uint64_t) nrand48(seed) % 100);
                }
                if (step % 100 == 0) {
                        assert_true(schedule_due(&s, now, &tids, &allocated) >= 0);
                        schedule_keep_budget(&s, 0.01 * (double) (nrand48(seed) % 3), 0.01);
                }
                assert_int_equal(s.n, scheduled);
        }

        size_t n = 0;
        for (unsigned i = 0; i <= s.slowest; i++)
                for (size_t k = 0; k < s.levels[i].n; k++, n++) {
                        assert_int_equal(s.levels[i].tasks[k]->level, i);
                        assert_int_equal(s.levels[i].tasks[k]->index, k);
                }
        assert_int_equal(n, scheduled);
        for (unsigned i = 0; i < s.burst.n; i++)
                assert_true(s.burst.tasks[i].task->in_burst && s.burst.tasks[i].task->scheduled);

        schedule_done(&s);
        free(tids);
        free(tasks);
}

static void interval_changes(void **state) {
        struct schedule s;
        struct task tasks[3] = { { .tid = 1 }, { .tid = 2 }, { .tid = 3 } };
        uint32_t *tids = NULL;
        size_t allocated = 0;

        schedule_init(&s, SEC);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(schedule_add(&s, &tasks[i], 0), 0);
        schedule_adapt(&s, &tasks[1], SEC, 100); /* to the fastest, */
        schedule_adapt(&s, &tasks[2], SEC, 0);   /* and to a slow one */
        assert_true(tasks[1].level < s.base && tasks[2].level > s.base);

        /* To one that has fewer levels, and all are due. */
        assert_int_equal(schedule_set_interval(&s, 10 * MSEC, 2 * SEC), 0);
        assert_int_equal(s.base, 0);
        assert_int_equal(s.n, 3);
        assert_int_equal(schedule_due(&s, 2 * SEC, &tids, &allocated), 3);
        assert_int_equal(schedule_next(&s), 2 * SEC + 10 * MSEC);
        schedule_remove(&s, &tasks[0]);
        assert_int_equal(schedule_due(&s, 3 * SEC, &tids, &allocated), 2);

        assert_int_equal(schedule_set_interval(&s, 3600 * SEC, 4 * SEC), 0);
        assert_int_equal(schedule_due(&s, 4 * SEC, &tids, &allocated), 2);
        assert_int_equal(schedule_next(&s), 3604 * SEC);
        schedule_adapt(&s, &tasks[1], 3604 * SEC, 1000000);
        assert_true(tasks[1].level < s.base);
        schedule_remove(&s, &tasks[1]);
        schedule_remove(&s, &tasks[2]);
        assert_int_equal(s.n, 0);

        free(tids);
        schedule_done(&s);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(interval_changes),
                cmocka_unit_test(intervals),
                cmocka_unit_test(quiet_tasks_are_sampled_rarely),
                cmocka_unit_test(sampling_follows_the_waits),
                cmocka_unit_test(budget_binds_and_lets_go),
                cmocka_unit_test(many_tasks_come_and_go),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
