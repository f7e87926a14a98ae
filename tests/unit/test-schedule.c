/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

static void the_young_are_not_sampled(void **state) {
        struct task *tasks = calloc(1000, sizeof(*tasks));
        struct schedule s;
        uint32_t *tids = NULL;
        size_t allocated = 0;

        assert_non_null(tasks);
        schedule_init(&s, SEC);
        for (unsigned i = 0; i < 1000; i++) {
                tasks[i].tid = i + 1;
                assert_int_equal(schedule_add_young(&s, &tasks[i], i * MSEC), 0);
        }
        assert_int_equal(s.n, 1000);
        assert_int_equal(schedule_due(&s, 10 * SEC, &tids, &allocated), 0);

        /* What leaves by itself is not handed out, wherever in the row it stood. */
        for (unsigned i = 0; i < 1000; i++)
                if (i % 3 != 1)
                        schedule_remove(&s, &tasks[i]);
        assert_int_equal(s.n, 333);

        unsigned next = 1;
        for (struct task *task; (task = schedule_take_young(&s, 500 * MSEC)); next += 3) {
                assert_ptr_equal(task, &tasks[next]);
                assert_false(task->scheduled);
                schedule_adapt(&s, task, SEC, 5);
                assert_int_equal(schedule_add(&s, task, SEC), 0);
        }
        assert_int_equal(next, 502); /* at 499 ms, and then from 500 ms on */
        assert_int_equal(s.n, 333);
        assert_int_equal(schedule_due(&s, 10 * SEC, &tids, &allocated), 167);

        schedule_done(&s);
        free(tids);
        free(tasks);
}

/* What the kernel would say of the two cgroups of the tests below. */
struct host {
        uint64_t readings[2][SCHEDULE_READING_COUNT];
        bool unreadable;
        unsigned reads;
};

static int read_host(uint64_t key, enum schedule_reading reading, uint64_t *ret, void *userdata) {
        struct host *host = userdata;

        host->reads++;
        if (host->unreadable || key > 1)
                return -ENOENT;
        *ret = host->readings[key][reading];
        return 0;
}

#define N_BIG SCHEDULE_QUIET_TASKS_MIN
#define N_SMALL (SCHEDULE_QUIET_TASKS_MIN - 1)

/* A cgroup with enough tasks to be looked at, and one with too few; all tasks have not waited for long. */
struct quiet_host {
        struct host host;
        struct schedule s;
        struct cgroup cgroups[2];
        struct task tasks[N_BIG + N_SMALL];
        uint64_t now;
        uint32_t *tids;
        size_t allocated;
};

static struct quiet_host *quiet_host_new(delay_kind_set kinds) {
        struct quiet_host *q = calloc(1, sizeof(*q));

        assert_non_null(q);
        schedule_init(&q->s, SEC);
        schedule_spare_quiet(&q->s, read_host, &q->host, kinds);
        q->cgroups[0] = (struct cgroup) { .key = 0, .tasks = N_BIG };
        q->cgroups[1] = (struct cgroup) { .key = 1, .tasks = N_SMALL };
        for (unsigned i = 0; i < N_BIG + N_SMALL; i++) {
                q->tasks[i] = (struct task) { .tid = i + 1, .cgroup = &q->cgroups[i >= N_BIG] };
                assert_int_equal(schedule_add(&q->s, &q->tasks[i], 0), 0);
        }
        while (q->s.levels[q->s.slowest].n < N_BIG + N_SMALL) {
                q->now += SEC;
                for (unsigned i = 0; i < N_BIG + N_SMALL; i++)
                        schedule_adapt(&q->s, &q->tasks[i], q->now, 0);
        }
        return q;
}

static void quiet_host_free(struct quiet_host *q) {
        schedule_done(&q->s);
        free(q->cgroups[0].quiet);
        free(q->cgroups[1].quiet);
        free(q->tids);
        free(q);
}

/* The number of tasks of the big cgroup that are asked in one more round; the small one's always are. */
static unsigned ask_round(struct quiet_host *q) {
        unsigned big = 0, small = 0;

        q->now += q->s.levels[q->s.slowest].interval_nsec;
        ssize_t n = schedule_due(&q->s, q->now, &q->tids, &q->allocated);

        for (ssize_t i = 0; i < n; i++)
                if (q->tids[i] <= N_BIG)
                        big++;
                else
                        small++;
        assert_int_equal(small, N_SMALL);
        return big;
}

static void where_nobody_ran_nobody_is_asked(void **state) {
        struct quiet_host *q = quiet_host_new(DELAY_KINDS_DEFAULT);

        assert_int_equal(ask_round(q), N_BIG); /* nothing is known yet */
        for (unsigned i = 0; i < 100; i++)
                assert_int_equal(ask_round(q), 0);

        /* One look a round, however many tasks; the small cgroup is not looked at. */
        unsigned reads = q->host.reads;
        ask_round(q);
        assert_int_equal(q->host.reads, reads + 1);

        q->host.readings[0][SCHEDULE_CPU_USAGE] = 1;
        q->host.readings[0][SCHEDULE_MEMORY_STALL] = 1;
        assert_int_equal(ask_round(q), N_BIG);
        assert_int_equal(ask_round(q), 0);
        quiet_host_free(q);
}

static void where_none_stalled_they_are_asked_later(void **state) {
        struct quiet_host *q = quiet_host_new(DELAY_KINDS_DEFAULT);

        assert_int_equal(ask_round(q), N_BIG);

        /* A wait too short for PSI is found in the last round at the latest. */
        for (unsigned i = 1; i <= 3 * SCHEDULE_QUIET_ROUNDS; i++) {
                q->host.readings[0][SCHEDULE_CPU_USAGE]++;
                assert_int_equal(ask_round(q), i % SCHEDULE_QUIET_ROUNDS == 0 ? N_BIG : 0);
        }

        for (unsigned i = 0; i < 5; i++) {
                q->host.readings[0][SCHEDULE_CPU_USAGE]++;
                q->host.readings[0][SCHEDULE_IO_STALL]++;
                assert_int_equal(ask_round(q), N_BIG);
        }
        quiet_host_free(q);
}

static void what_cannot_be_read_is_asked(void **state) {
        struct quiet_host *q = quiet_host_new(DELAY_KINDS_DEFAULT);

        q->host.unreadable = true;
        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(ask_round(q), N_BIG);
        quiet_host_free(q);

        /* Kinds that no stall tells of: only who did not run has nothing to say. */
        q = quiet_host_new(DELAY_KINDS_DEFAULT | DELAY_KIND_BIT(DELAY_WPCOPY));
        assert_int_equal(ask_round(q), N_BIG);
        assert_int_equal(ask_round(q), 0);
        for (unsigned i = 0; i < 5; i++) {
                q->host.readings[0][SCHEDULE_CPU_USAGE]++;
                assert_int_equal(ask_round(q), N_BIG);
        }
        quiet_host_free(q);
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

/* Nothing else of the schedule goes with the old interval: not the young tasks, nor what spares the quiet ones. */
static void interval_changes_amid_young_tasks(void **state) {
        struct task tasks[300] = {};
        struct host host = {};
        struct schedule s;

        schedule_init(&s, SEC);
        schedule_spare_quiet(&s, read_host, &host, DELAY_KINDS_DEFAULT);
        for (unsigned i = 0; i < 300; i++) {
                tasks[i].tid = i + 1;
                assert_int_equal(i % 3 ? schedule_add_young(&s, &tasks[i], MSEC) : schedule_add(&s, &tasks[i], MSEC), 0);
        }
        for (unsigned round = 0; round < 10; round++)
                assert_int_equal(schedule_set_interval(&s, (round + 1) * SEC, SEC), 0);
        assert_ptr_equal(s.read, read_host);
        assert_int_equal(s.levels[s.base].n, 100);

        unsigned n = 0;
        while (schedule_take_young(&s, 10 * SEC))
                n++;
        assert_int_equal(n, 200);
        for (unsigned i = 0; i < 300; i++)
                schedule_remove(&s, &tasks[i]);
        assert_int_equal(s.levels[s.base].n, 0);
        schedule_done(&s);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(interval_changes),
                cmocka_unit_test(interval_changes_amid_young_tasks),
                cmocka_unit_test(intervals),
                cmocka_unit_test(quiet_tasks_are_sampled_rarely),
                cmocka_unit_test(sampling_follows_the_waits),
                cmocka_unit_test(budget_binds_and_lets_go),
                cmocka_unit_test(many_tasks_come_and_go),
                cmocka_unit_test(the_young_are_not_sampled),
                cmocka_unit_test(where_nobody_ran_nobody_is_asked),
                cmocka_unit_test(where_none_stalled_they_are_asked_later),
                cmocka_unit_test(what_cannot_be_read_is_asked),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
