/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Live: the hierarchy is found and walked. */
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cmocka.h>

#include "cgroup-live.h"

static void check_mode(const char *root, enum cgroup_mode mode, const char *description, const char *point) {
        const struct cgroup_tree_handler handler = live_handler(&(struct live) { .base = "//" });
        struct cgroup_tree *t = NULL;

        CHECK(cgroup_tree_open(root, &handler, &t) == 0);
        CHECK(cgroup_tree_mode(t) == mode);
        CHECK(strncmp(cgroup_tree_description(t), description, strlen(description)) == 0);
        CHECK(!point || strcmp(cgroup_tree_root(t), point) == 0);
        cgroup_tree_close(t);
}

static void check_detection(struct live *l) {
        struct cgroup_tree *t = NULL;
        const struct cgroup_tree_handler handler = {};
        char path[PATH_MAX];

        if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                _exit(LIVE_SKIP);

        CHECK(cgroup_tree_open("/nowhere", &handler, &t) == -ENOENT);
        CHECK(cgroup_tree_open("/proc/self/stat", &handler, &t) == -ENOTDIR);
        CHECK(cgroup_tree_open("/proc", &handler, &t) == -EINVAL);
        snprintf(path, sizeof(path), "%s%s", l->root, l->base);
        CHECK(cgroup_tree_open(path, &handler, &t) == -EINVAL);

        /* As on a host without v2. */
        if (l->v1) {
                check_mode(l->root, CGROUP_V1, "v1 (", l->root);

                /* It may be mounted more than once. */
                for (char *v2; (v2 = live_find_root(false)); free(v2))
                        CHECK(umount2(v2, MNT_DETACH) == 0);
                check_mode(NULL, CGROUP_V1, "v1 (", NULL);
                return;
        }

        /* As on a host that has nothing else, in the usual place and in one with a strange name. */
        CHECK(mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0);
        CHECK(cgroup_tree_open(NULL, &handler, &t) == -ENOENT || cgroup_tree_close(t) == NULL);
        CHECK(mkdir("/sys/fs/cgroup/a b\\040", 0755) == 0);
        CHECK(mount("none", "/sys/fs/cgroup/a b\\040", "cgroup2", 0, NULL) == 0);
        check_mode("/sys/fs/cgroup/a b\\040/", l->tree->mount.mode, l->tree->description, "/sys/fs/cgroup/a b\\040");

        CHECK(mkdir("/sys/fs/cgroup/part", 0755) == 0);
        snprintf(path, sizeof(path), "/sys/fs/cgroup/a b\\040%s", l->base);
        CHECK(mount(path, "/sys/fs/cgroup/part", NULL, MS_BIND, NULL) == 0);
        CHECK(cgroup_tree_open("/sys/fs/cgroup/part", &handler, &t) == -EINVAL);

        CHECK(mount("none", "/sys/fs/cgroup", "cgroup2", 0, NULL) == 0);
        check_mode(NULL, CGROUP_UNIFIED, "unified", "/sys/fs/cgroup");
}

static void the_hierarchy_is_found(void **state) {
        struct live *l = live_need(state);
        struct statfs fs;

        assert_int_equal(statfs("/sys/fs/cgroup", &fs), 0);
        char *v1 = live_find_root(true);
        if (!l->v1 && fs.f_type != CGROUP2_SUPER_MAGIC && v1) {
                assert_int_equal(cgroup_tree_mode(l->tree), CGROUP_HYBRID);
                assert_string_equal(cgroup_tree_description(l->tree), "hybrid (v2)");
        }
        free(v1);
        live_in_child(l, check_detection);
}

static void a_walk_tells_everything(void **state) {
        struct live *l = live_need(state);
        struct stat st;

        uint64_t a = live_make(l, "a"), b = live_make(l, "a/b"), odd = live_make(l, "a/\xff \x1b\"\\:(deleted)");
        live_start(l);
        assert_int_equal(live_count(l, 'a', 0), 4);
        assert_int_equal(fstat(l->base_fd, &st), 0);
        assert_int_equal(live_added(l, "")->id, st.st_ino);
        assert_int_equal(live_added(l, "a")->id, a);
        assert_int_equal(live_added(l, "a")->parent_id, st.st_ino);
        assert_int_equal(live_added(l, "a/b")->id, b);
        assert_int_equal(live_added(l, "a/b")->parent_id, a);
        assert_int_equal(live_added(l, "a/\xff \x1b\"\\:(deleted)")->id, odd);
        assert_true(live_added(l, "") < live_added(l, "a") && live_added(l, "a") < live_added(l, "a/b"));
        assert_int_equal(live_count(l, 'j', 0), 0);
        assert_int_equal(stat(l->root, &st), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, "/"), st.st_ino);

        /* Only differences are told: children go before parents, a path made again is another cgroup. */
        live_forget(l);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(l->n_events, 0);

        live_unmake(l, "a/b");
        live_unmake(l, "a/\xff \x1b\"\\:(deleted)");
        live_unmake(l, "a");
        uint64_t again = live_make(l, "a");
        assert_int_not_equal(a, again);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(live_count(l, 'r', 0), 3);
        assert_int_equal(live_count(l, 'r', b), 1);
        assert_int_equal(l->events[2].id, a);
        assert_int_equal(live_count(l, 'a', 0), 1);
        assert_int_equal(live_added(l, "a")->id, again);
        assert_int_equal(live_count(l, 'j', again), 1);
        assert_int_equal(live_id(l, "a"), again);
}

static void depth_is_no_limit(void **state) {
        struct live *l = live_need(state);
        char path[PATH_MAX];
        int fd = dup(l->base_fd);
        unsigned depth = 0;

        for (; depth < 300; depth++) {
                assert_int_equal(mkdirat(fd, "deeeeeeep", 0755), 0);
                int next = openat(fd, "deeeeeeep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                close(fd);
                fd = next;
        }
        close(fd);

        int lost = live_process(l);
        assert_int_equal(lost, 0);
        assert_int_equal(live_count(l, 'a', 0), depth);
        assert_int_equal(live_count(l, 'j', 0), depth);

        memset(path, 0, sizeof(path));
        for (unsigned i = 0; i < depth; i++)
                strcat(path, i > 0 ? "/deeeeeeep" : "deeeeeeep");
        assert_non_null(live_added(l, path));
        assert_int_equal(live_id(l, path), live_added(l, path)->id);
}

/* The kernel cannot name what lies beyond PATH_MAX, and a chain of long names must not take memory without end. */
static void paths_end_where_the_kernels_do(void **state) {
        struct live *l = live_need(state);
        char name[256] = "";
        int fd = dup(l->base_fd);

        memset(name, 'n', 255);
        for (unsigned depth = 0; depth < 20; depth++) {
                assert_int_equal(mkdirat(fd, name, 0755), 0);
                int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                close(fd);
                fd = next;
        }
        close(fd);

        assert_int_equal(live_process(l), 0);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(live_count(l, 'a', 0), (PATH_MAX - 1 - strlen(l->base)) / 256);
}

static void what_may_not_be_read_is_not_gone(void **state) {
        struct live *l = live_need(state);

        if (geteuid() != 0) {
                print_message("# left out: this user may not become another one\n");
                return;
        }
        live_make(l, "a");
        uint64_t b = live_make(l, "a/b");
        live_process(l);
        live_forget(l);

        assert_int_equal(fchmodat(l->base_fd, "a", 0700, 0), 0);
        assert_int_equal(seteuid(65534), 0);
        int r = cgroup_tree_rescan(l->tree);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(r, 0);
        assert_int_equal(l->n_events, 0);
        assert_int_equal(live_id(l, "a/b"), b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                ON_BOTH(the_hierarchy_is_found),
                ON_BOTH(a_walk_tells_everything),
                ON_BOTH(depth_is_no_limit),
                ON_BOTH(paths_end_where_the_kernels_do),
                ON_BOTH(what_may_not_be_read_is_not_gone),
        };

        return live_main(tests, sizeof(tests) / sizeof(tests[0]));
}
