/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Live: the cgroup of a task, from /proc and through a pidfd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "cgroup-live.h"

static void a_task_has_a_cgroup(void **state) {
        struct live *l = live_need(state);
        uint32_t thread;
        uint64_t id = 0;

        uint64_t a = live_make(l, "a:b");
        live_process(l);
        uint32_t pid = (uint32_t) live_spawn(l, "a:b", &thread);
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        id = 0;
        assert_int_equal(cgroup_tree_of_task(l->tree, thread, &id), 0);
        assert_int_equal(id, a);
        assert_int_equal(cgroup_tree_of_task(l->tree, (uint32_t) getpid(), &id), 0);
        assert_int_not_equal(id, a);

        /* v1 says "/" of a zombie. */
        id = 0;
        live_end((pid_t) pid);
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), l->v1 ? -ENODATA : 0);
        assert_int_equal(id, l->v1 ? 0 : a);

        live_reap(l, (pid_t) pid);
        int r = cgroup_tree_of_task(l->tree, pid, &id);
        assert_true(r == -ENOENT || r == -ESRCH);
        assert_true(cgroup_tree_of_task(l->tree, UINT32_MAX, &id) < 0);
}

/* A v2 cgroup can go while zombies are in it; their records must not go to the one that takes its path. */
static void zombies_stay_in_deleted_cgroups(void **state) {
        struct live *l = live_need(state);
        uint64_t id = 0;

        uint64_t a = live_make(l, "a");
        live_process(l);
        uint32_t pid = (uint32_t) live_spawn(l, "a", NULL);
        live_end((pid_t) pid);
        live_unmake(l, "a");

        /* Nothing has told of the removal yet, then of that and of the next one. */
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        uint64_t again = live_make(l, "a");
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        live_process(l);
        assert_int_equal(live_count(l, 'r', a), 1);
        assert_int_equal(live_id(l, "a"), again);
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        assert_int_equal(live_id(l, "a (deleted)"), a);
        assert_int_equal(live_id(l, "b (deleted)"), 0);

        /* One that is named like that exists. */
        uint64_t named = live_make(l, "a (deleted)");
        assert_int_equal(live_id(l, "a (deleted)"), named);
        live_unmake(l, "a (deleted)");
        live_process(l);
        assert_int_equal(live_id(l, "a (deleted) (deleted)"), named);
}

static void removed_cgroups_are_remembered_but_not_for_ever(void **state) {
        struct live *l = live_need(state);

        uint64_t first = live_make(l, "first");
        live_process(l);
        live_unmake(l, "first");
        live_process(l);
        assert_int_equal(live_id(l, "first"), first);
        assert_int_equal(live_id(l, "first (deleted)"), first);

        for (unsigned i = 0; i < GONE_MAX; i++) {
                live_make(l, "next");
                assert_true(cgroup_tree_process(l->tree) >= 0);
                live_unmake(l, "next");
                assert_true(cgroup_tree_process(l->tree) >= 0);
        }
        assert_int_equal(live_count(l, 'r', 0), GONE_MAX + 1);
        assert_int_equal(live_id(l, "first"), 0);
        assert_int_not_equal(live_id(l, "next"), 0);
}

static void a_path_is_found_before_its_event(void **state) {
        struct live *l = live_need(state);

        live_make(l, "a");
        uint64_t b = live_make(l, "a/b"), c = live_make(l, "a/b/c");
        assert_int_equal(live_id(l, "a/b"), b);
        assert_int_equal(live_count(l, 'a', 0), 3);
        assert_int_equal(live_count(l, 'j', 0), 0);
        assert_int_equal(live_count(l, 'a', c), 1);

        /* The events that follow tell of nothing new, but tasks may be in it. */
        assert_int_equal(live_process(l), 0);
        assert_int_equal(live_count(l, 'a', 0), 3);
        assert_int_equal(live_count(l, 'j', b), 1);
        assert_int_equal(live_count(l, 'j', c), 1);

        assert_int_equal(live_id(l, "none"), 0);
        assert_int_equal(live_id(l, "a/./b"), 0);
        assert_int_equal(live_id(l, "a/../a"), 0);
        assert_int_equal(live_id(l, "a//b"), 0);
        assert_int_equal(live_id(l, "cgroup.procs"), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, "/../x"), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, ""), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, "x"), 0);
}

static void pidfds_know_the_cgroup(void **state) {
        struct live *l = live_need(state);
        uint32_t thread;
        uint64_t id = 0;

        if (l->v1 || !cgroup_pidfd_supported()) {
                assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, (uint32_t) getpid(), &id), -EOPNOTSUPP);
                return;
        }

        uint64_t a = live_make(l, "a");
        uint32_t pid = (uint32_t) live_spawn(l, "a", &thread);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        assert_int_equal(live_count(l, 'a', a), 1); /* nothing had told of it before */
        id = 0;
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, thread, &id), 0);
        assert_int_equal(id, a);

        id = 0;
        live_end((pid_t) pid);
        live_unmake(l, "a");
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, pid, &id), 0);
        assert_int_equal(id, a);

        live_reap(l, (pid_t) pid);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, pid, &id), -ESRCH);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, 0, &id), -ESRCH);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, UINT32_MAX, &id), -ESRCH);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, (uint32_t) getpid(), &id), 0);
}

/* A number that was used again: the task that has it now is not the one that was meant. */
static void only_the_task_that_is_meant_is_held(void **state) {
        struct live *l = live_need(state);
        uint32_t thread;
        uint64_t id = 0;

        uint64_t a = live_make(l, "a");
        live_process(l);
        uint32_t pid = (uint32_t) live_spawn(l, "a", &thread), parent = (uint32_t) getpid();
        int r = cgroup_tree_hold(l->tree, pid, pid, parent, &id);
        if (r == -EOPNOTSUPP)
                skip();

        assert_int_equal(r, 0);
        assert_int_equal(id, a);
        id = 0;
        assert_int_equal(cgroup_tree_hold(l->tree, pid, pid, parent + 1, &id), -ESRCH);
        assert_int_equal(cgroup_tree_hold(l->tree, pid, pid + 1, parent, &id), -ESRCH);
        assert_int_equal(cgroup_tree_hold(l->tree, thread, thread, 0, &id), -ESRCH);
        assert_int_equal(id, 0);
        assert_int_equal(cgroup_tree_hold(l->tree, thread, pid, 0, &id), 0);
        assert_int_equal(id, a);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                ON_BOTH(a_task_has_a_cgroup),
                cmocka_unit_test_setup_teardown(zombies_stay_in_deleted_cgroups, live_set_up_v2, live_tear_down),
                ON_BOTH(removed_cgroups_are_remembered_but_not_for_ever),
                ON_BOTH(a_path_is_found_before_its_event),
                ON_BOTH(pidfds_know_the_cgroup),
                cmocka_unit_test_setup_teardown(only_the_task_that_is_meant_is_held, live_set_up_v2, live_tear_down),
        };

        return live_main(tests, sizeof(tests) / sizeof(tests[0]));
}
