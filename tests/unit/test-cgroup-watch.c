/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Live: inotify tells of cgroups that come and go, and of tasks that move. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "cgroup-live.h"

static void events_tell_at_once(void **state) {
        struct live *l = live_need(state);

        assert_true(cgroup_tree_fd(l->tree) >= 0);
        assert_false(cgroup_tree_blind(l->tree));

        /* Deeper ones are made before the watch of their parent can be there. */
        uint64_t a = live_make(l, "a"), b = live_make(l, "a/b"), c = live_make(l, "a/b/c");
        assert_int_equal(live_process(l), 0);
        assert_int_equal(live_count(l, 'a', 0), 3);
        assert_int_equal(live_added(l, "a/b/c")->id, c);
        assert_int_equal(live_added(l, "a/b/c")->parent_id, b);
        /* Tasks may have joined before the watch was there. */
        assert_int_equal(live_count(l, 'j', a) > 0 && live_count(l, 'j', b) > 0 && live_count(l, 'j', c) > 0, 1);

        live_forget(l);
        live_unmake(l, "a/b/c");
        assert_int_equal(live_process(l), 0);
        assert_int_equal(live_count(l, 'r', c), 1);
        assert_int_equal(l->n_events, 1);

        /* Removed and made again before anybody looked, with a child. */
        live_forget(l);
        live_unmake(l, "a/b");
        uint64_t again = live_make(l, "a/b"), d = live_make(l, "a/b/d");
        assert_int_equal(live_process(l), 0);
        assert_int_equal(live_count(l, 'r', b), 1);
        assert_int_equal(live_count(l, 'r', 0), 1);
        assert_int_equal(live_count(l, 'a', again), 1);
        assert_int_equal(live_count(l, 'a', d), 1);

        /* Gone before anybody looked: no word of it, or both. */
        live_forget(l);
        uint64_t brief = live_make(l, "a/brief");
        live_unmake(l, "a/brief");
        assert_int_equal(live_process(l), 0);
        assert_int_equal(live_count(l, 'a', brief), live_count(l, 'r', brief));

        /* All watches but those of existing cgroups were given back. */
        char path[64], *info = NULL;
        size_t watches = 0;
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", cgroup_tree_fd(l->tree));
        assert_true(cgroup_read_file(path, &info) > 0);
        for (const char *p = info; (p = strstr(p, "inotify wd:")); p++)
                watches++;
        free(info);
        assert_int_equal(watches, l->tree->by_id.n);

        live_forget(l);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(l->n_events, 0);
}

static void note_task(uint64_t id, uint32_t tid, void *userdata) {
        uint32_t *tids = userdata;

        if (tids[0] < 7)
                tids[++tids[0]] = tid;
}

static void tasks_are_listed_and_their_moves_seen(void **state) {
        struct live *l = live_need(state);
        uint32_t tids[8] = {}, thread = 0;

        uint64_t a = live_make(l, "a"), b = live_make(l, "b");
        assert_int_equal(live_process(l), 0);
        live_forget(l);

        uint32_t pid = (uint32_t) live_spawn(l, "a", &thread);
        assert_int_equal(live_process(l), 0);
        assert_int_equal(live_count(l, 'j', a), 1);
        assert_int_equal(l->n_events, 1);

        assert_int_equal(cgroup_tree_tasks(l->tree, a, note_task, tids), 0);
        assert_int_equal(tids[0], 2);
        assert_true((tids[1] == pid && tids[2] == thread) || (tids[1] == thread && tids[2] == pid));
        tids[0] = 0;
        assert_int_equal(cgroup_tree_tasks(l->tree, b, note_task, tids), 0);
        assert_int_equal(tids[0], 0);

        /* Not known, gone, and another one in its place. */
        assert_int_equal(cgroup_tree_tasks(l->tree, 12345678901, note_task, tids), -ENOENT);
        live_unmake(l, "b");
        assert_int_equal(cgroup_tree_tasks(l->tree, b, note_task, tids), -ENOENT);
        live_make(l, "b");
        live_spawn(l, "b", NULL);
        assert_int_equal(cgroup_tree_tasks(l->tree, b, note_task, tids), -ENOENT);
        assert_int_equal(tids[0], 0);
}

static void lost_events_are_said(void **state) {
        struct live *l = live_need(state);
        char *text = NULL;

        uint64_t a = live_make(l, "a");
        live_make(l, "b");
        live_process(l);
        live_forget(l);

        /* Equal events in a row become one, so take turns. */
        const char *file = l->v1 ? "notify_on_release" : "cgroup.max.depth";
        char path[2][64];
        int fds[2];
        for (size_t i = 0; i < 2; i++) {
                snprintf(path[i], sizeof(path[i]), "%c/%s", (char) ('a' + i), file);
                fds[i] = openat(l->base_fd, path[i], O_WRONLY | O_CLOEXEC);
                assert_true(fds[i] >= 0);
        }
        assert_true(cgroup_read_file("/proc/sys/fs/inotify/max_queued_events", &text) > 0);
        unsigned n = (unsigned) atoi(text) + 2;
        free(text);
        for (unsigned i = 0; i < n; i++)
                assert_int_equal(pwrite(fds[i % 2], "1", 1, 0), 1);
        close(fds[0]);
        close(fds[1]);
        live_unmake(l, "a");
        uint64_t c = live_make(l, "c");

        assert_int_equal(live_process(l), 1);
        assert_int_equal(l->n_events, 0);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(live_count(l, 'r', a), 1);
        assert_int_equal(live_count(l, 'a', c), 1);
        assert_false(cgroup_tree_blind(l->tree));
}

static void a_rename_changes_the_path(void **state) {
        struct live *l = live_need(state);

        uint64_t a = live_make(l, "a"), b = live_make(l, "a/b");
        live_process(l);
        live_forget(l);

        if (renameat(l->base_fd, "a", l->base_fd, "z") < 0) {
                assert_false(l->v1); /* v2 has none */
                return;
        }
        assert_int_equal(live_process(l), 1);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(live_count(l, 'r', 0), 0);
        assert_int_equal(live_added(l, "z")->id, a);
        assert_int_equal(live_added(l, "z/b")->id, b);
        assert_int_equal(live_id(l, "z/b"), b);
        assert_int_equal(live_id(l, "a/b"), 0);
}

static void write_file(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        CHECK(fd >= 0);
        CHECK(write(fd, text, strlen(text)) == (ssize_t) strlen(text));
        close(fd);
}

static void check_blind(struct live *l) {
        const struct cgroup_tree_handler handler = live_handler(l);
        char n[32];

        /* The limits of a user namespace of its own bind only this process. */
        if (geteuid() != 0 || unshare(CLONE_NEWUSER) < 0)
                _exit(LIVE_SKIP);
        write_file("/proc/self/setgroups", "deny");
        write_file("/proc/self/uid_map", "0 0 1");
        write_file("/proc/self/gid_map", "0 0 1");

        /* As many watches as there are cgroups; once more if others have come or gone meanwhile. */
        for (size_t known = 0, i = 0; i < 20 && known != l->tree->by_id.n; i++) {
                known = l->tree->by_id.n;
                l->tree = cgroup_tree_close(l->tree);
                snprintf(n, sizeof(n), "%zu", known);
                write_file("/proc/sys/user/max_inotify_watches", n);
                CHECK(cgroup_tree_open(l->root, &handler, &l->tree) == 0);
                CHECK(cgroup_tree_rescan(l->tree) == 0);
        }
        CHECK(!cgroup_tree_blind(l->tree));

        CHECK(mkdirat(l->base_fd, "one", 0755) == 0);
        CHECK(cgroup_tree_process(l->tree) == 1);
        CHECK(cgroup_tree_blind(l->tree));
        CHECK(live_added(l, "one"));
        CHECK(mkdirat(l->base_fd, "one/two", 0755) == 0);
        CHECK(cgroup_tree_process(l->tree) == 0);
        CHECK(!live_added(l, "one/two"));
        CHECK(cgroup_tree_rescan(l->tree) == 0);
        CHECK(live_added(l, "one/two"));
        CHECK(cgroup_tree_blind(l->tree));

        /* The operator raises the limit. */
        write_file("/proc/sys/user/max_inotify_watches", "1000000");
        CHECK(cgroup_tree_rescan(l->tree) == 0);
        CHECK(!cgroup_tree_blind(l->tree));
        write_file("/proc/sys/user/max_inotify_watches", "1");
        CHECK(mkdirat(l->base_fd, "four", 0755) == 0);
        CHECK(cgroup_tree_process(l->tree) == 1);

        /* It ends with the need for more watches, too. */
        CHECK(unlinkat(l->base_fd, "four", AT_REMOVEDIR) == 0);
        CHECK(unlinkat(l->base_fd, "one/two", AT_REMOVEDIR) == 0);
        CHECK(unlinkat(l->base_fd, "one", AT_REMOVEDIR) == 0);
        CHECK(cgroup_tree_rescan(l->tree) == 0);
        CHECK(!cgroup_tree_blind(l->tree));
        l->tree = cgroup_tree_close(l->tree);

        write_file("/proc/sys/user/max_inotify_instances", "0");
        CHECK(cgroup_tree_open(l->root, &handler, &l->tree) == 0);
        CHECK(cgroup_tree_fd(l->tree) == -EBADF);
        CHECK(cgroup_tree_blind(l->tree));
        CHECK(cgroup_tree_process(l->tree) == 0);
        CHECK(mkdirat(l->base_fd, "three", 0755) == 0);
        CHECK(cgroup_tree_rescan(l->tree) == 0);
        CHECK(live_added(l, "three"));
        CHECK(unlinkat(l->base_fd, "three", AT_REMOVEDIR) == 0);
}

static void missing_watches_are_said(void **state) {
        live_in_child(live_need(state), check_blind);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                ON_BOTH(events_tell_at_once),
                ON_BOTH(tasks_are_listed_and_their_moves_seen),
                ON_BOTH(lost_events_are_said),
                ON_BOTH(a_rename_changes_the_path),
                ON_BOTH(missing_watches_are_said),
        };

        return live_main(tests, sizeof(tests) / sizeof(tests[0]));
}
