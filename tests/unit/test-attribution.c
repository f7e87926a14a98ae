/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where the accounting believes tasks to be, when it asks, and what it says when there is no answer. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "core/accounting.h"

#define MSEC NSEC_PER_MSEC
#define SEC NSEC_PER_SEC
#define T0 (1000 * SEC)
#define SHELL 100U

enum { ROOT = 1, A = 10, B = 20, UNKNOWN = 99 };

/* What the kernel says of any task, live or ended; 0: nothing. */
static struct {
        uint64_t live, ended;
        int error;
        unsigned asked;
} kernel;

static int lookup(
                uint32_t tid, uint32_t tgid, bool ended, uint64_t *ret_key, enum attribution_source *ret_source, void *userdata) {

        uint64_t key = ended ? kernel.ended : kernel.live;

        kernel.asked++;
        if (key == 0)
                return kernel.error ?: -ESRCH;

        *ret_key = key;
        *ret_source = ATTRIBUTION_PIDFD;
        return 0;
}

static int setup(void **state) {
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = 100,
                .max_exported = 100,
                .retention_nsec = 300 * SEC,
                .poll_interval_nsec = SEC,
                .started_nsec = T0,
                .lookup = lookup,
        };
        struct accounting *a;

        memset(&kernel, 0, sizeof(kernel));
        if (accounting_new(&config, &a) < 0 || accounting_cgroup_added(a, T0, ROOT, 0, "/") < 0
            || accounting_cgroup_added(a, T0, A, ROOT, "/a") < 0 || accounting_cgroup_added(a, T0, B, ROOT, "/b") < 0
            || accounting_place(a, T0, SHELL, SHELL, A) < 0)
                return -1;

        *state = a;
        return 0;
}

static int teardown(void **state) {
        accounting_free(*state);
        return 0;
}

static struct task_sample record(uint32_t tid, uint64_t now, uint64_t lifetime, uint64_t waits) {
        struct task_sample s = {
                .tid = tid,
                .tgid = tid,
                .ppid = SHELL,
                .lifetime_nsec = lifetime,
                .start_min_nsec = now - lifetime - MSEC / 2,
                .start_max_nsec = now - lifetime + MSEC / 2,
                .read_bytes = 4096,
                .version = 13,
                .kinds = DELAY_KINDS_ALL,
        };

        s.delays[DELAY_BLKIO] = (struct delay_counters) { .count = waits, .total_nsec = waits * 1000 };
        return s;
}

static int fork_task(struct accounting *a, uint64_t now, uint32_t tid) {
        const struct fork_event event = { tid, tid, SHELL, SHELL, now };

        return accounting_fork(a, now, &event);
}

static void ends(struct accounting *a, uint64_t now, uint32_t tid, uint64_t lifetime, uint64_t waits) {
        struct task_sample s = record(tid, now, lifetime, waits);

        assert_int_equal(accounting_exit_sample(a, now, &s), 0);
}

static void lives(struct accounting *a, uint64_t now, uint32_t tid, uint64_t lifetime, uint64_t waits) {
        struct task_sample s = record(tid, now, lifetime, waits);

        assert_int_equal(accounting_live_sample(a, now, &s), 0);
}

/* A child that waits once and ends within 2 ms. */
static void short_child(struct accounting *a, uint64_t now, uint32_t tid) {
        fork_task(a, now, tid);
        ends(a, now + 2 * MSEC, tid, 2 * MSEC, 1);
}

static uint64_t waits_in(const struct accounting *a, uint64_t key) {
        const struct delay_stats *stats = cgroup_table_get(&a->cgroups, key)->stats[DELAY_BLKIO];

        return stats ? stats->totals.waits : 0;
}

/* Enough children that were where they should be. */
static void prove_shell(struct accounting *a) {
        kernel.ended = A;
        for (uint32_t i = 0; i < 40; i++)
                short_child(a, T0 + i * 10 * MSEC, 1000 + i);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 40);
        kernel.asked = 0;
        kernel.ended = 0;
}

/* By the time its record is read, the kernel would tell of the task that has the number now. */
static void an_earlier_owner_of_a_number_is_not_asked_for(void **state) {
        struct accounting *a = *state;
        struct task_sample first = record(1000, T0 + 2 * MSEC, 2 * MSEC, 3);
        const struct fork_event later = { 1000, 1000, 200, 200, T0 + 4 * MSEC };

        assert_int_equal(accounting_place(a, T0, 200, 200, B), 0);
        fork_task(a, T0, 1000);
        accounting_fork(a, T0 + 4 * MSEC, &later);
        accounting_doubt(a, DOUBT_ALL); /* of all, so that each is asked for */
        kernel.ended = B;

        assert_int_equal(accounting_exit_sample(a, T0 + 5 * MSEC, &first), 0);
        assert_int_equal(kernel.asked, 0);
        assert_int_equal(waits_in(a, A), 3);

        struct task_sample second = record(1000, T0 + 6 * MSEC, 2 * MSEC, 5);
        second.ppid = 200;
        assert_int_equal(accounting_exit_sample(a, T0 + 7 * MSEC, &second), 0);
        assert_int_equal(kernel.asked, 1);
        assert_int_equal(waits_in(a, A), 3);
        assert_int_equal(waits_in(a, B), 5);
}

static void few_of_many_children_are_looked_at(void **state) {
        struct accounting *a = *state;
        unsigned watched = 0;

        kernel.ended = A;
        for (uint32_t i = 0; i < 256; i++) {
                watched += fork_task(a, T0 + i * 10 * MSEC, 1000 + i) == 2;
                ends(a, T0 + i * 10 * MSEC + 2 * MSEC, 1000 + i, 2 * MSEC, 1);
        }
        assert_int_equal(watched, kernel.asked);
        assert_in_range(kernel.asked, 8, 20);
        assert_int_equal(waits_in(a, A), 256);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 256);

        /* Without waits there is nothing to put anywhere. */
        kernel.asked = 0;
        for (uint32_t i = 0; i < 256; i++) {
                fork_task(a, T0 + 10 * SEC + i * 10 * MSEC, 2000 + i);
                ends(a, T0 + 10 * SEC + i * 10 * MSEC + 2 * MSEC, 2000 + i, 2 * MSEC, 0);
        }
        assert_int_equal(kernel.asked, 0);
}

static void a_parent_that_scatters_is_found_out(void **state) {
        struct accounting *a = *state;

        kernel.ended = B;
        for (uint32_t i = 0; i < 30; i++)
                short_child(a, T0 + i * 10 * MSEC, 1000 + i);
        assert_int_equal(waits_in(a, A), 0);
        assert_int_equal(waits_in(a, B), 30);
        assert_int_equal(a->attributed[ATTRIBUTION_PIDFD], 30);
        assert_int_equal(kernel.asked, 30);

        /* No answer any more: in the parent's cgroup, but not as if that were certain. */
        kernel.ended = 0;
        short_child(a, T0 + SEC, 1100);
        assert_int_equal(waits_in(a, A), 1);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);

        /* A habit that is given up is forgotten. */
        kernel.ended = A;
        for (uint32_t i = 0; i < 100; i++)
                short_child(a, T0 + 2 * SEC + i * 10 * MSEC, 1200 + i);
        kernel.asked = 0;
        kernel.ended = 0;
        for (uint32_t i = 0; i < 20; i++)
                short_child(a, T0 + 4 * SEC + i * 10 * MSEC, 1400 + i);
        assert_in_range(kernel.asked, 0, 2);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);
}

/* Nobody has ever seen a child of it. */
static void an_unproven_parent_is_a_weak_source(void **state) {
        struct accounting *a = *state;

        short_child(a, T0, 1000);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);

        kernel.ended = A;
        short_child(a, T0 + SEC, 1001);
        kernel.ended = 0;
        short_child(a, T0 + 2 * SEC, 1002);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 2);

        /* Where the kernel can never answer (v1), silence means nothing. */
        kernel.error = -EOPNOTSUPP;
        const struct fork_event event = { 2000, 2000, 1500, 1500, T0 + 3 * SEC };
        accounting_place(a, T0 + 2 * SEC, 1500, 1500, B);
        accounting_fork(a, T0 + 3 * SEC, &event);
        ends(a, T0 + 3 * SEC + MSEC, 2000, MSEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 3);
        assert_int_equal(waits_in(a, B), 1);
}

static void a_live_task_is_looked_at_before_its_first_waits(void **state) {
        struct accounting *a = *state;

        prove_shell(a);
        fork_task(a, T0 + SEC, 200);
        kernel.live = B;
        lives(a, T0 + 2 * SEC, 200, SEC, 0);
        assert_int_equal(kernel.asked, 0);
        lives(a, T0 + 3 * SEC, 200, 2 * SEC, 5);
        assert_int_equal(kernel.asked, 1);
        lives(a, T0 + 4 * SEC, 200, 3 * SEC, 6);
        assert_int_equal(kernel.asked, 1);
        assert_int_equal(waits_in(a, B), 6);
        assert_int_equal(cgroup_table_get(&a->cgroups, B)->tasks, 1);

        /* For a moment after the fork it reads as the root. */
        fork_task(a, T0 + 5 * SEC, 201);
        kernel.live = ROOT;
        lives(a, T0 + 5 * SEC + MSEC, 201, MSEC, 1);
        assert_int_equal(waits_in(a, ROOT), 0);
        kernel.live = A;
        lives(a, T0 + 6 * SEC, 201, SEC, 2);
        assert_int_equal(waits_in(a, A), 40 + 2);

        /* In a cgroup that nobody knows: certainly not in the parent's. */
        fork_task(a, T0 + 7 * SEC, 202);
        kernel.live = UNKNOWN;
        lives(a, T0 + 8 * SEC, 202, SEC, 1);
        assert_int_equal(waits_in(a, CGROUP_KEY_UNATTRIBUTED), 1);
}

static void a_move_that_no_member_explains(void **state) {
        struct accounting *a = *state;

        prove_shell(a);
        accounting_place(a, T0 + SEC, 300, 300, A);
        accounting_place(a, T0 + SEC, 301, 301, A);
        fork_task(a, T0 + SEC, 200);
        fork_task(a, T0 + SEC, 201);
        fork_task(a, T0 + SEC, 202);

        /* Some were explained: it may have been another one that inherited, not one that was seen. */
        accounting_doubt(a, DOUBT_INHERITED);
        kernel.ended = B;
        ends(a, T0 + SEC + MSEC, 200, MSEC, 1);
        ends(a, T0 + SEC + MSEC, 300, MSEC, 1);
        assert_int_equal(kernel.asked, 1);
        assert_int_equal(waits_in(a, B), 1);

        /* Nothing was: it may have been anybody. */
        accounting_doubt(a, DOUBT_ALL);
        ends(a, T0 + SEC + MSEC, 301, MSEC, 1);
        assert_int_equal(waits_in(a, B), 2);
        kernel.ended = 0;
        ends(a, T0 + SEC + MSEC, 201, MSEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);

        accounting_doubt(a, DOUBT_NONE);
        kernel.asked = 0;
        accounting_place(a, T0 + SEC, 302, 302, A);
        ends(a, T0 + SEC + MSEC, 302, MSEC, 1);
        assert_int_equal(kernel.asked, 0);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);
}

static void lost_events_leave_doubt_until_the_task_is_seen(void **state) {
        struct accounting *a = *state;

        prove_shell(a);
        fork_task(a, T0 + SEC, 200);
        fork_task(a, T0 + SEC, 201);
        accounting_doubt(a, DOUBT_LOST);
        accounting_doubt(a, DOUBT_NONE);
        fork_task(a, T0 + SEC, 202);

        accounting_place(a, T0 + SEC, 201, 201, A); /* by the sweep */
        ends(a, T0 + SEC + MSEC, 200, MSEC, 1);
        ends(a, T0 + SEC + MSEC, 201, MSEC, 1);
        ends(a, T0 + SEC + MSEC, 202, MSEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 42);
}

static void an_exec_of_a_task_that_is_gone(void **state) {
        struct accounting *a = *state;

        prove_shell(a);
        fork_task(a, T0 + SEC, 200);
        accounting_doubt_task(a, 200);
        ends(a, T0 + SEC + MSEC, 200, MSEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);

        /* The kernel confirms what was known. */
        fork_task(a, T0 + 2 * SEC, 201);
        accounting_doubt_task(a, 201);
        kernel.ended = A;
        ends(a, T0 + 2 * SEC + MSEC, 201, MSEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 41);

        /* Or says that it is where nobody knows: then it is nowhere. */
        fork_task(a, T0 + 3 * SEC, 202);
        accounting_doubt_task(a, 202);
        kernel.ended = UNKNOWN;
        ends(a, T0 + 3 * SEC + MSEC, 202, MSEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_NONE], 1);
        assert_int_equal(waits_in(a, CGROUP_KEY_UNATTRIBUTED), 1);
        accounting_doubt_task(a, 4711);
}

/* The kernel removes no cgroup in which a task lives: it has left it. */
static void a_cgroup_that_is_gone_before_its_task(void **state) {
        struct accounting *a = *state;

        accounting_place(a, T0, 200, 200, B);
        accounting_place(a, T0, 201, 201, B);
        accounting_place(a, T0, 202, 202, B);
        accounting_cgroup_removed(a, T0 + SEC, B);

        kernel.ended = A;
        ends(a, T0 + SEC, 200, MSEC, 1);
        kernel.ended = 0;
        ends(a, T0 + SEC, 201, MSEC, 1);
        kernel.live = A;
        lives(a, T0 + 2 * SEC, 202, 2 * SEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_PIDFD], 1);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);
        assert_int_equal(waits_in(a, A), 2);
        assert_int_equal(waits_in(a, B), 1);
}

static void a_task_that_nobody_told_of(void **state) {
        struct accounting *a = *state;
        struct task_sample s;

        /* Asked at its exit; then its parent; the number of init says nothing. */
        kernel.ended = B;
        ends(a, T0 + SEC, 200, MSEC, 1);
        kernel.ended = 0;
        ends(a, T0 + SEC, 201, MSEC, 1);
        accounting_place(a, T0 + SEC, 1, 1, ROOT);
        s = record(202, T0 + SEC, MSEC, 1);
        s.ppid = 1;
        assert_int_equal(accounting_exit_sample(a, T0 + SEC, &s), 0);
        assert_int_equal(a->attributed[ATTRIBUTION_PIDFD], 1);
        assert_int_equal(a->attributed[ATTRIBUTION_PARENT], 1);
        assert_int_equal(a->attributed[ATTRIBUTION_NONE], 1);

        /* The kernel knows, but not we: that is not the parent's cgroup. */
        kernel.ended = UNKNOWN;
        ends(a, T0 + SEC, 203, MSEC, 1);
        assert_int_equal(a->attributed[ATTRIBUTION_NONE], 2);
        assert_int_equal(waits_in(a, CGROUP_KEY_UNATTRIBUTED), 2);

        /* Alive it is asked about at each poll until there is an answer. */
        s = record(204, T0 + SEC, SEC / 2, 1);
        s.ppid = 0;
        assert_int_equal(accounting_live_sample(a, T0 + SEC, &s), 0);
        kernel.live = B;
        s = record(204, T0 + 2 * SEC, SEC + SEC / 2, 2);
        s.ppid = 0;
        assert_int_equal(accounting_live_sample(a, T0 + 2 * SEC, &s), 0);
        assert_int_equal(waits_in(a, B), 2);
}

/* A poll has found the parent gone before the child's event was read. */
static void a_child_of_a_parent_that_is_gone(void **state) {
        struct accounting *a = *state;

        prove_shell(a);
        accounting_vanished(a, T0 + SEC, SHELL);
        assert_int_equal(fork_task(a, T0 + SEC, 200), 0);
        ends(a, T0 + SEC + MSEC, 200, MSEC, 1);
        assert_int_equal(waits_in(a, A), 41);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 41);
}

static void threads_are_as_certain_as_their_process(void **state) {
        struct accounting *a = *state;
        const struct fork_event seen = { 301, 300, 300, 300, T0 + SEC };
        const struct fork_event inherited = { 401, 400, 400, 400, T0 + SEC };

        accounting_place(a, T0, 300, 300, B);
        assert_int_equal(accounting_fork(a, T0 + SEC, &seen), 0);
        assert_true(accounting_is_in(a, 301, B));

        fork_task(a, T0 + SEC, 400);
        assert_int_equal(accounting_fork(a, T0 + SEC, &inherited), 2);
        assert_true(accounting_is_in(a, 401, A));
        assert_false(accounting_is_in(a, 401, B));
        assert_false(accounting_is_in(a, 4711, A));
}

/* Looked at right after the fork, which says nothing of where a child of this one will be. */
static void children_that_are_on_their_way(void **state) {
        struct accounting *a = *state;

        fork_task(a, T0, 200);
        accounting_place(a, T0, 200, 200, A);
        ends(a, T0 + MSEC, 200, MSEC, 1);
        assert_int_equal(kernel.asked, 0);
        assert_int_equal(a->attributed[ATTRIBUTION_CACHE], 1);

        fork_task(a, T0 + SEC, 201);
        accounting_place(a, T0 + SEC, 201, 201, B); /* moved */
        fork_task(a, T0 + SEC, 202);
        accounting_place(a, T0 + SEC, 202, 202, A);
        kernel.ended = B;
        ends(a, T0 + SEC + MSEC, 202, MSEC, 1);
        assert_int_equal(kernel.asked, 1);
        assert_int_equal(waits_in(a, B), 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(an_earlier_owner_of_a_number_is_not_asked_for, setup, teardown),
                cmocka_unit_test_setup_teardown(few_of_many_children_are_looked_at, setup, teardown),
                cmocka_unit_test_setup_teardown(a_parent_that_scatters_is_found_out, setup, teardown),
                cmocka_unit_test_setup_teardown(an_unproven_parent_is_a_weak_source, setup, teardown),
                cmocka_unit_test_setup_teardown(a_live_task_is_looked_at_before_its_first_waits, setup, teardown),
                cmocka_unit_test_setup_teardown(a_move_that_no_member_explains, setup, teardown),
                cmocka_unit_test_setup_teardown(lost_events_leave_doubt_until_the_task_is_seen, setup, teardown),
                cmocka_unit_test_setup_teardown(an_exec_of_a_task_that_is_gone, setup, teardown),
                cmocka_unit_test_setup_teardown(a_cgroup_that_is_gone_before_its_task, setup, teardown),
                cmocka_unit_test_setup_teardown(a_task_that_nobody_told_of, setup, teardown),
                cmocka_unit_test_setup_teardown(a_child_of_a_parent_that_is_gone, setup, teardown),
                cmocka_unit_test_setup_teardown(children_that_are_on_their_way, setup, teardown),
                cmocka_unit_test_setup_teardown(threads_are_as_certain_as_their_process, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
