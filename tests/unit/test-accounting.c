/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "core/accounting.h"
#include "core/query.h"

#define MSEC NSEC_PER_MSEC
#define SEC NSEC_PER_SEC
#define T0 (1000 * SEC) /* when the accounting starts, by both clocks */

enum { ROOT = 1, A = 10, B = 20 };

static uint64_t lookup_key;
static int lookup(
                uint32_t tid, uint32_t tgid, bool ended, uint64_t *ret_key, enum attribution_source *ret_source, void *userdata) {

        if (lookup_key == 0)
                return -ENOENT;

        *ret_key = lookup_key;
        *ret_source = ATTRIBUTION_PIDFD;
        return 0;
}

static int setup(void **state) {
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = 100,
                .max_exported = 2,
                .retention_nsec = 300 * SEC,
                .poll_interval_nsec = SEC,
                .started_nsec = T0,
                .lookup = lookup,
        };
        struct accounting *a;
        struct cgroup *cgroup;

        lookup_key = 0;
        assert_int_equal(accounting_new(&config, &a), 0);
        assert_int_equal(cgroup_table_add(&a->cgroups, T0, ROOT, 0, "/", &cgroup), 0);
        assert_int_equal(cgroup_table_add(&a->cgroups, T0, A, ROOT, "/a", &cgroup), 0);
        assert_int_equal(cgroup_table_add(&a->cgroups, T0, B, ROOT, "/b", &cgroup), 0);
        *state = a;
        return 0;
}

static int teardown(void **state) {
        accounting_free(*state);
        return 0;
}

/* A record made at time now of a task that started at start: blkio waits of 5 ms each, no time spent otherwise. */
static struct task_sample record(uint32_t tid, uint32_t tgid, uint64_t start, uint64_t now, uint64_t waits) {
        struct task_sample s = {
                .tid = tid,
                .tgid = tgid,
                .lifetime_nsec = now - start,
                .start_min_nsec = start > MSEC ? start - MSEC / 2 : 0,
                .start_max_nsec = start + MSEC / 2,
                .read_bytes = 4096,
                .version = 13,
                .kinds = DELAY_KINDS_ALL,
        };

        s.delays[DELAY_BLKIO] = (struct delay_counters) { .count = waits, .total_nsec = waits * 5 * MSEC };
        strcpy(s.comm, "task");
        return s;
}

static void fork_task(struct accounting *a, uint64_t now, uint32_t tid, uint32_t tgid, uint32_t parent) {
        const struct fork_event event = { tid, tgid, parent, parent, now };

        accounting_fork(a, now, &event);
}

static void live(struct accounting *a, uint64_t now, struct task_sample s) {
        assert_int_equal(accounting_live_sample(a, now, &s), 0);
}

static void ends(struct accounting *a, uint64_t now, struct task_sample s) {
        assert_int_equal(accounting_exit_sample(a, now, &s), 0);
}

static uint64_t waits_in(const struct accounting *a, uint64_t key) {
        const struct delay_stats *stats = cgroup_table_get(&a->cgroups, key)->stats[DELAY_BLKIO];

        return stats ? stats->totals.waits : 0;
}

static uint64_t rejected_in(const struct accounting *a, uint64_t key) {
        const struct delay_stats *stats = cgroup_table_get(&a->cgroups, key)->stats[DELAY_BLKIO];

        return stats ? stats->totals.rejected_waits : 0;
}

/* A shell of old in cgroup A, whose own waits do not count. */
static void old_shell(struct accounting *a) {
        assert_int_equal(accounting_place(a, T0, 100, 100, A), 0);
        live(a, T0 + MSEC, record(100, 100, 10 * SEC, T0 + MSEC, 7));
}

static void short_task_in_its_parents_cgroup(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        lookup_key = A; /* looked at once, for it is the first child */
        assert_int_equal(waits_in(a, A), 0); /* they happened before the daemon came */

        fork_task(a, T0 + 10 * MSEC, 101, 101, 100);
        ends(a, T0 + 80 * MSEC, record(101, 101, T0 + 10 * MSEC, T0 + 60 * MSEC, 3));
        assert_int_equal(waits_in(a, A), 3);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 1);
        assert_int_equal(a->exits, 1);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->tasks, 1);
}

static void polled_and_exited_counts_once(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        live(a, T0 + 2 * SEC, record(101, 101, T0 + SEC, T0 + 2 * SEC, 10));
        live(a, T0 + 3 * SEC, record(101, 101, T0 + SEC, T0 + 3 * SEC, 14));
        assert_int_equal(waits_in(a, A), 14);
        ends(a, T0 + 4 * SEC, record(101, 101, T0 + SEC, T0 + 4 * SEC, 15));
        assert_int_equal(waits_in(a, A), 15);

        /* The zombie still answers, and may be listed once more. */
        accounting_place(a, T0 + 4 * SEC, 101, 101, A);
        live(a, T0 + 4 * SEC, record(101, 101, T0 + SEC, T0 + 4 * SEC, 16));
        assert_int_equal(waits_in(a, A), 15);
        assert_int_equal(a->tasks.n_live, 1);
}

static void vanished_before_its_record(void **state) {
        struct accounting *a = *state;
        const struct query query = { .kinds = DELAY_KINDS_DEFAULT, .sort_kind = DELAY_BLKIO };
        struct task_row *rows;
        uint64_t window;
        size_t n;

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        live(a, T0 + 2 * SEC, record(101, 101, T0 + SEC, T0 + 2 * SEC, 10));
        accounting_vanished(a, T0 + 3 * SEC, 101);
        ends(a, T0 + 3 * SEC, record(101, 101, T0 + SEC, T0 + 2500 * MSEC, 12));
        assert_int_equal(waits_in(a, A), 12);

        assert_int_equal(query_tasks(a, T0 + 3 * SEC, &query, &window, &rows, &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(rows[0].delays[DELAY_BLKIO].totals.waits, 12);
        assert_false(rows[0].alive);
        free(rows);
}

/* Looked for a moment after the fork: gone, gone with a record that has come, alive. */
static void what_becomes_of_the_young(void **state) {
        struct accounting *a = *state;
        const struct cgroup *cgroup = cgroup_table_get(&a->cgroups, A);
        struct task *young[3];

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        fork_task(a, T0 + SEC, 102, 102, 100);
        fork_task(a, T0 + SEC, 103, 103, 100);
        assert_null(accounting_next_young(a, T0 + SEC));
        for (unsigned i = 0; i < 3; i++) {
                young[i] = accounting_next_young(a, T0 + SEC + 1);
                assert_non_null(young[i]);
                assert_int_equal(young[i]->tid, 101 + i);
        }
        assert_null(accounting_next_young(a, T0 + 2 * SEC));

        ends(a, T0 + 2 * SEC, record(102, 102, T0 + SEC, T0 + 2 * SEC, 2));
        accounting_ended(a, T0 + 2 * SEC, young[0]);
        accounting_ended(a, T0 + 2 * SEC, young[1]);
        assert_int_equal(accounting_grown_up(a, T0 + 2 * SEC, young[2]), 0);

        assert_int_equal(waits_in(a, A), 2);
        assert_int_equal(cgroup->tasks, 2);
        assert_int_equal(a->tasks.n_live, 2);
        assert_null(hash_get(&a->tasks.by_tid, 101));     /* at once: nothing more can come of it */
        assert_non_null(hash_get(&a->tasks.by_tid, 102)); /* may still be answered for */
        assert_int_equal(a->schedule.n, 2);

        accounting_age(a, T0 + 5 * SEC);
        assert_int_equal(cgroup->entries, 3); /* the shell, the last child, and what the second one waited */

        /* Where nobody looks, they are sampled after a while. */
        fork_task(a, T0 + 6 * SEC, 104, 104, 100);
        accounting_age(a, T0 + 8 * SEC);
        assert_null(accounting_next_young(a, T0 + 9 * SEC));
        assert_int_equal(a->schedule.n, 3);
}

static void reused_number_is_a_new_task(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        accounting_place(a, T0, 200, 200, B);
        live(a, T0 + MSEC, record(200, 200, 10 * SEC, T0 + MSEC, 0));

        /* 101 of the shell is replaced by 101 of B's task before its exit record is read. */
        fork_task(a, T0 + 1000 * MSEC, 101, 101, 100);
        live(a, T0 + 1010 * MSEC, record(101, 101, T0 + 1000 * MSEC, T0 + 1010 * MSEC, 1));
        fork_task(a, T0 + 1100 * MSEC, 101, 101, 200);
        ends(a, T0 + 1200 * MSEC, record(101, 101, T0 + 1000 * MSEC, T0 + 1050 * MSEC, 4));
        assert_int_equal(waits_in(a, A), 4);
        assert_int_equal(waits_in(a, B), 0);
        ends(a, T0 + 1300 * MSEC, record(101, 101, T0 + 1100 * MSEC, T0 + 1250 * MSEC, 2));
        assert_int_equal(waits_in(a, A), 4);
        assert_int_equal(waits_in(a, B), 2);
        assert_int_equal(a->tasks.n_live, 2);
}

/* Both records wait in the sockets of two CPUs, and the later task's is read first. */
static void records_of_one_number_out_of_order(void **state) {
        struct accounting *a = *state;
        struct task_sample first = record(101, 101, T0 + SEC, T0 + SEC + MSEC, 3);
        struct task_sample second = record(101, 101, T0 + SEC + 2 * MSEC, T0 + SEC + 3 * MSEC, 5);

        old_shell(a);
        assert_int_equal(accounting_place(a, T0, 200, 200, B), 0);
        first.ppid = 100;
        second.ppid = 200;
        first.delays[DELAY_BLKIO].total_nsec = second.delays[DELAY_BLKIO].total_nsec = MSEC / 2;
        for (struct task_sample *s = &first; s; s = s == &first ? &second : NULL) {
                s->start_min_nsec -= 10 * MSEC;
                s->start_max_nsec += 10 * MSEC;
        }

        fork_task(a, T0 + SEC, 101, 101, 100);
        fork_task(a, T0 + SEC + 2 * MSEC, 101, 101, 200);
        ends(a, T0 + SEC + 12 * MSEC, second);
        ends(a, T0 + SEC + 12 * MSEC, first);
        assert_int_equal(waits_in(a, A), 3);
        assert_int_equal(waits_in(a, B), 5);
}

/* The parent ended, so the kernel names another: then the order decides. */
static void records_of_one_number_after_reparenting(void **state) {
        struct accounting *a = *state;
        struct task_sample first = record(101, 101, T0 + SEC, T0 + SEC + MSEC, 3);
        struct task_sample second = record(101, 101, T0 + SEC + 2 * MSEC, T0 + SEC + 3 * MSEC, 5);

        old_shell(a);
        assert_int_equal(accounting_place(a, T0, 200, 200, B), 0);
        first.ppid = second.ppid = 1;
        first.delays[DELAY_BLKIO].total_nsec = second.delays[DELAY_BLKIO].total_nsec = MSEC / 2;
        fork_task(a, T0 + SEC, 101, 101, 100);
        fork_task(a, T0 + SEC + 2 * MSEC, 101, 101, 200);
        ends(a, T0 + SEC + 12 * MSEC, first);
        ends(a, T0 + SEC + 12 * MSEC, second);
        assert_int_equal(waits_in(a, A), 3);
        assert_int_equal(waits_in(a, B), 5);
}

static void late_record_of_an_unknown_owner(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        fork_task(a, T0 + 1100 * MSEC, 101, 101, 100);
        /* Nobody told of the task that had the number before; its record comes after the number's reuse. */
        ends(a, T0 + 1200 * MSEC, record(101, 101, T0 + 1000 * MSEC, T0 + 1050 * MSEC, 4));
        assert_int_equal(waits_in(a, CGROUP_KEY_UNATTRIBUTED), 4);
        assert_non_null(task_newest(&a->tasks, 101)); /* the new one is still there */
        live(a, T0 + 1300 * MSEC, record(101, 101, T0 + 1100 * MSEC, T0 + 1300 * MSEC, 1));
        assert_int_equal(waits_in(a, A), 1);
}

static void exec_from_another_thread(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        fork_task(a, T0 + SEC, 102, 101, 101);
        fork_task(a, T0 + SEC, 103, 101, 101);
        live(a, T0 + 2 * SEC, record(101, 101, T0 + SEC, T0 + 2 * SEC, 5));
        live(a, T0 + 2 * SEC, record(102, 101, T0 + SEC, T0 + 2 * SEC, 20));
        live(a, T0 + 2 * SEC, record(103, 101, T0 + SEC, T0 + 2 * SEC, 30));
        assert_int_equal(waits_in(a, A), 55);

        /* 102 executes: 101 and 103 end, 102 becomes 101 and keeps its counters. */
        ends(a, T0 + 3 * SEC, record(101, 101, T0 + SEC, T0 + 3 * SEC, 6));
        ends(a, T0 + 3 * SEC, record(103, 101, T0 + SEC, T0 + 3 * SEC, 31));
        assert_int_equal(waits_in(a, A), 57);
        assert_true(accounting_exec_ends_threads(a, 101));
        accounting_exec(a, T0 + 3 * SEC, 101);
        live(a, T0 + 4 * SEC, record(101, 101, T0 + SEC, T0 + 4 * SEC, 22));
        assert_int_equal(waits_in(a, A), 59);
        assert_null(task_newest(&a->tasks, 102));
        ends(a, T0 + 5 * SEC, record(101, 101, T0 + SEC, T0 + 5 * SEC, 23));
        assert_int_equal(waits_in(a, A), 60);
        assert_int_equal(a->tasks.n_live, 1);
}

static void exec_when_records_without_waits_are_filtered(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        fork_task(a, T0 + SEC, 102, 101, 101);
        live(a, T0 + 2 * SEC, record(101, 101, T0 + SEC, T0 + 2 * SEC, 0));
        live(a, T0 + 2 * SEC, record(102, 101, T0 + SEC, T0 + 2 * SEC, 20));
        accounting_exec(a, T0 + 3 * SEC, 101); /* no record of 101 came: it had not waited */
        live(a, T0 + 4 * SEC, record(101, 101, T0 + SEC, T0 + 4 * SEC, 22));
        assert_int_equal(waits_in(a, A), 22);

        /* The leader itself executes, and its only other thread had not waited. */
        fork_task(a, T0 + 4 * SEC, 104, 101, 101);
        accounting_exec(a, T0 + 5 * SEC, 101);
        live(a, T0 + 6 * SEC, record(101, 101, T0 + SEC, T0 + 6 * SEC, 23));
        assert_int_equal(waits_in(a, A), 23);
        assert_null(task_newest(&a->tasks, 104));
}

static void moved_task_leaves_its_waits_behind(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        live(a, T0 + 2 * SEC, record(100, 100, 10 * SEC, T0 + 2 * SEC, 10));
        assert_true(accounting_would_move(a, T0 + 2 * SEC, 100, B));
        assert_false(accounting_would_move(a, T0 + 2 * SEC, 100, A));
        live(a, T0 + 3 * SEC, record(100, 100, 10 * SEC, T0 + 3 * SEC, 12));
        accounting_place(a, T0 + 3 * SEC, 100, 100, B);
        live(a, T0 + 4 * SEC, record(100, 100, 10 * SEC, T0 + 4 * SEC, 13));
        assert_int_equal(waits_in(a, A), 5);
        assert_int_equal(waits_in(a, B), 1);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->tasks, 0);
        assert_int_equal(cgroup_table_get(&a->cgroups, B)->tasks, 1);
}

static void child_moved_at_once_waits_where_it_is_moved_to(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        assert_false(accounting_would_move(a, T0 + SEC + 10 * MSEC, 101, B)); /* what it waited for meanwhile is the program's */
        accounting_place(a, T0 + SEC, 101, 101, B);
        assert_true(accounting_would_move(a, T0 + SEC + 10 * MSEC, 101, A)); /* but this would be a second move */
        ends(a, T0 + 2 * SEC, record(101, 101, T0 + SEC, T0 + 2 * SEC, 3));
        assert_int_equal(waits_in(a, A), 0);
        assert_int_equal(waits_in(a, B), 3);

        /* Once it was sampled in its parent's cgroup, it has lived there. */
        fork_task(a, T0 + 3 * SEC, 102, 102, 100);
        live(a, T0 + 4 * SEC, record(102, 102, T0 + 3 * SEC, T0 + 4 * SEC, 1));
        assert_true(accounting_would_move(a, T0 + 4 * SEC, 102, B));

        /* Nor does one that has lived there for long move at its birth, sampled or not. */
        fork_task(a, T0 + 5 * SEC, 103, 103, 100);
        assert_false(accounting_would_move(a, T0 + 5 * SEC + 10 * MSEC, 103, B));
        assert_true(accounting_would_move(a, T0 + 5 * SEC + 500 * MSEC, 103, B));
}

static void sources_of_attribution(void **state) {
        struct accounting *a = *state;
        struct task_sample s = record(300, 300, T0 + SEC, T0 + 2 * SEC, 1);

        old_shell(a);
        ends(a, T0 + 2 * SEC, s);
        assert_int_equal(a->attributed[ATTRIBUTION_NONE], 1);
        assert_int_equal(waits_in(a, CGROUP_KEY_UNATTRIBUTED), 1);

        s.tid = s.tgid = 301;
        lookup_key = B;
        ends(a, T0 + 2 * SEC, s);
        assert_int_equal(a->attributed[ATTRIBUTION_PIDFD], 1);
        assert_int_equal(waits_in(a, B), 1);

        s.tid = s.tgid = 302;
        s.ppid = 100;
        lookup_key = 0;
        ends(a, T0 + 2 * SEC, s);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);
        assert_int_equal(waits_in(a, A), 1);

        s.tid = 303; /* a thread of the shell, of which no event told */
        s.tgid = 100;
        s.ppid = 0;
        ends(a, T0 + 2 * SEC, s);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 2);
        assert_int_equal(waits_in(a, A), 2);
}

static void impossible_waits_are_refused(void **state) {
        struct accounting *a = *state;
        struct task_sample s = record(101, 101, T0 + SEC, T0 + 1058 * MSEC, 6);

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        s.version = 16;
        s.has_extremes = true;
        s.delays[DELAY_BLKIO] = (struct delay_counters) { 6, 989830 * MSEC, 989820 * MSEC, 1 * MSEC };
        ends(a, T0 + 1100 * MSEC, s);
        assert_int_equal(waits_in(a, A), 5);
        assert_int_equal(rejected_in(a, A), 1);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->stats[DELAY_BLKIO]->totals.total_nsec, 10 * MSEC);
        assert_int_equal(a->rejected_samples[REJECT_IMPOSSIBLE], 1);

        s = record(102, 102, T0 + SEC, T0 + 1058 * MSEC, 0);
        s.delays[DELAY_SWAPIN] = (struct delay_counters) { 2, 60 * MSEC, 0, 0 }; /* longer than it lived */
        fork_task(a, T0 + SEC, 102, 102, 100);
        ends(a, T0 + 1100 * MSEC, s);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->stats[DELAY_SWAPIN]->totals.waits, 0);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->stats[DELAY_SWAPIN]->totals.rejected_waits, 2);
}

static void a_rough_clock_makes_nothing_impossible(void **state) {
        struct accounting *a = *state;
        struct task_sample s = record(101, 101, T0 + SEC, T0 + 1058 * MSEC, 0);

        a->config.rough_clock = true;
        old_shell(a);
        s.delays[DELAY_SWAPIN] = (struct delay_counters) { 2, 75 * MSEC, 0, 0 }; /* by less than two ticks longer than it lived */
        fork_task(a, T0 + SEC, 101, 101, 100);
        ends(a, T0 + 1100 * MSEC, s);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->stats[DELAY_SWAPIN]->totals.waits, 2);

        s = record(102, 102, T0 + SEC, T0 + 1058 * MSEC, 0);
        s.delays[DELAY_SWAPIN] = (struct delay_counters) { 2, 80 * MSEC, 0, 0 };
        fork_task(a, T0 + SEC, 102, 102, 100);
        ends(a, T0 + 1100 * MSEC, s);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->stats[DELAY_SWAPIN]->totals.rejected_waits, 2);
}

static void old_task_with_an_impossible_past(void **state) {
        struct accounting *a = *state;
        struct task_sample s = record(100, 100, 900 * SEC, T0 + SEC, 1);

        /* A 100 s old task whose blkio total is 11,000 s: what comes after is still judged by itself. */
        s.delays[DELAY_BLKIO] = (struct delay_counters) { 10, 11000 * SEC };
        accounting_place(a, T0, 100, 100, A);
        live(a, T0 + SEC, s);

        s.lifetime_nsec += SEC;
        s.delays[DELAY_BLKIO] = (struct delay_counters) { 12, 11000 * SEC + 30 * MSEC };
        live(a, T0 + 2 * SEC, s);
        assert_int_equal(waits_in(a, A), 2);
        assert_int_equal(rejected_in(a, A), 0);
}

static void sweeps_forget_what_is_gone(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(a->tasks.n_live, i < 2 ? 2 : 1);
                accounting_sweep_begin(a);
                accounting_place(a, T0 + 2 * SEC, 100, 100, A);
                accounting_sweep_end(a, T0 + 2 * SEC);
        }
        assert_int_equal(a->tasks.n_live, 1);
        assert_null(task_newest(&a->tasks, 101));

        accounting_age(a, T0 + 10 * SEC);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->entries, 1);
        assert_int_equal(a->schedule.n, 1);
}

static void tasks_without_accounting(void **state) {
        struct accounting *a = *state;
        struct task_sample s = record(100, 100, 10 * SEC, T0, 0);
        struct cgroup *cgroup = cgroup_table_get(&a->cgroups, A);

        s.minor_faults = 5000; /* and not one copy on write */
        accounting_place(a, T0, 100, 100, A);
        live(a, T0, s);
        assert_int_equal(cgroup->unaccounted_tasks, 1);

        /* Older than it, and idle: the same. Younger: not known to be. */
        accounting_place(a, T0, 99, 99, A);
        live(a, T0, record(99, 99, 9 * SEC, T0, 0));
        accounting_place(a, T0, 101, 101, A);
        live(a, T0, record(101, 101, 11 * SEC, T0, 0));
        assert_int_equal(cgroup->unaccounted_tasks, 2);

        /* Its thread: the same, until another task shows that accounting was on by then. */
        accounting_place(a, T0, 102, 100, A);
        live(a, T0, record(102, 100, 12 * SEC, T0, 0));
        assert_int_equal(cgroup->unaccounted_tasks, 3);
        accounting_place(a, T0, 103, 103, A);
        live(a, T0, record(103, 103, 11 * SEC + MSEC, T0, 1));
        accounting_place(a, T0, 104, 104, A);
        live(a, T0, record(104, 104, 13 * SEC, T0, 1));
        live(a, T0, record(102, 100, 12 * SEC, T0, 0));
        assert_int_equal(cgroup->unaccounted_tasks, 2);
        for (uint32_t tid = 102; tid <= 104; tid++)
                accounting_vanished(a, T0 + SEC, tid);

        accounting_vanished(a, T0 + SEC, 100);
        accounting_vanished(a, T0 + SEC, 99);
        assert_int_equal(cgroup->unaccounted_tasks, 0);
        assert_int_equal(cgroup->tasks, 1);
}

static void waits_without_io(void **state) {
        struct accounting *a = *state;
        struct task_sample s = record(101, 101, T0 + SEC, T0 + 2 * SEC, 4);

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        s.read_bytes = 0;
        ends(a, T0 + 2 * SEC, s);
        assert_int_equal(waits_in(a, A), 4);
        assert_int_equal(cgroup_table_get(&a->cgroups, A)->stats[DELAY_BLKIO]->totals.without_io_waits, 4);
}

static void cgroups_without_series_of_their_own(void **state) {
        struct accounting *a = *state;
        struct cgroup *b = cgroup_table_get(&a->cgroups, B);

        /* Two places for three cgroups: the last has none, and its waits are counted under (other) as well. */
        assert_false(b->exported);
        accounting_place(a, T0, 200, 200, B);
        live(a, T0 + MSEC, record(200, 200, 10 * SEC, T0 + MSEC, 1));
        live(a, T0 + SEC, record(200, 200, 10 * SEC, T0 + SEC, 3));
        assert_int_equal(waits_in(a, B), 2);
        assert_int_equal(a->cgroups.other->stats[DELAY_BLKIO]->totals.waits, 2);

        old_shell(a);
        live(a, T0 + SEC, record(100, 100, 10 * SEC, T0 + SEC, 8));
        assert_int_equal(a->cgroups.other->stats[DELAY_BLKIO]->totals.waits, 2);
}

static void removed_cgroup_stays_for_its_retention(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        fork_task(a, T0 + SEC, 101, 101, 100);
        accounting_vanished(a, T0 + SEC, 100);
        ends(a, T0 + 2 * SEC, record(101, 101, T0 + SEC, T0 + 2 * SEC, 4));
        cgroup_table_remove(&a->cgroups, T0 + 2 * SEC, A);
        accounting_age(a, T0 + 100 * SEC);
        assert_int_equal(waits_in(a, A), 4);

        for (unsigned i = 0; i < 3; i++)
                accounting_age(a, T0 + (303 + i) * SEC);
        assert_null(cgroup_table_find(&a->cgroups, A));
        assert_int_equal(a->gone.n, 0);
}

static void fuller_deltas_are_sampled_faster(void **state) {
        struct accounting *a = *state;

        old_shell(a);
        const struct task *task = task_newest(&a->tasks, 100);
        assert_int_equal(task->level, a->schedule.base);
        live(a, T0 + SEC, record(100, 100, 10 * SEC, T0 + SEC, 7 + 16));
        assert_int_equal(task->level, a->schedule.base - 4);
        live(a, T0 + 2 * SEC, record(100, 100, 10 * SEC, T0 + 2 * SEC, 7 + 17));
        assert_int_equal(task->level, a->schedule.base - 4);
        live(a, T0 + 3 * SEC, record(100, 100, 10 * SEC, T0 + 3 * SEC, 7 + 17));
        assert_int_equal(task->level, a->schedule.base - 3);
}

int main(void) {
#define with_accounting(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        const struct CMUnitTest tests[] = {
                with_accounting(short_task_in_its_parents_cgroup),
                with_accounting(polled_and_exited_counts_once),
                with_accounting(vanished_before_its_record),
                with_accounting(what_becomes_of_the_young),
                with_accounting(reused_number_is_a_new_task),
                with_accounting(records_of_one_number_out_of_order),
                with_accounting(records_of_one_number_after_reparenting),
                with_accounting(late_record_of_an_unknown_owner),
                with_accounting(exec_from_another_thread),
                with_accounting(exec_when_records_without_waits_are_filtered),
                with_accounting(moved_task_leaves_its_waits_behind),
                with_accounting(child_moved_at_once_waits_where_it_is_moved_to),
                with_accounting(sources_of_attribution),
                with_accounting(impossible_waits_are_refused),
                with_accounting(a_rough_clock_makes_nothing_impossible),
                with_accounting(old_task_with_an_impossible_past),
                with_accounting(sweeps_forget_what_is_gone),
                with_accounting(tasks_without_accounting),
                with_accounting(waits_without_io),
                with_accounting(cgroups_without_series_of_their_own),
                with_accounting(removed_cgroup_stays_for_its_retention),
                with_accounting(fuller_deltas_are_sampled_faster),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
