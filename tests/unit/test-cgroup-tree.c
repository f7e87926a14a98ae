/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Live: on the real cgroupfs, in cgroups of its own. Each test runs on v2 and on a v1 hierarchy. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernel/cgroup-tree-internal.h"

#define CHILDREN_MAX 16

struct event {
        char what; /* 'a'dded, 'r'emoved, 'j'oined */
        uint64_t id, parent_id;
        char path[PATH_MAX];
};

/* What a test works with; the base is its own cgroup. */
struct live {
        bool v1;
        char *root;       /* of the hierarchy; NULL: there is none that may be written to */
        char base[64];    /* "/delayd-test-PID" */
        int base_fd;
        struct cgroup_tree *tree;
        struct event *events;
        size_t n_events;
        struct hash_table own; /* ids of the test's cgroups: the rest of the host has some as well */
        pid_t children[CHILDREN_MAX];
        size_t n_children;
};

static pid_t supervisor;

/* Removes a cgroup with all below it; what runs in it can only be left over from the test. */
static void remove_cgroups(int parent, const char *name) {
        char pid[32];
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return;

        int procs = openat(fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
        FILE *f = procs >= 0 ? fdopen(procs, "r") : NULL;
        while (f && fgets(pid, sizeof(pid), f))
                if (atoi(pid) > 1 && atoi(pid) != getpid())
                        kill(atoi(pid), SIGKILL);
        if (f)
                fclose(f);

        DIR *dir = fdopendir(fd);
        for (struct dirent *entry; dir && (entry = readdir(dir));)
                if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        remove_cgroups(fd, entry->d_name);
        if (dir)
                closedir(dir);

        /* Killed tasks take a moment to leave. */
        for (unsigned i = 0; i < 100 && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno == EBUSY; i++)
                usleep(10000);
}

static void note(struct live *l, char what, uint64_t id, uint64_t parent_id, const char *path) {
        l->events = reallocarray(l->events, l->n_events + 1, sizeof(*l->events));
        l->events[l->n_events] = (struct event) { .what = what, .id = id, .parent_id = parent_id };
        strncpy(l->events[l->n_events++].path, path, PATH_MAX - 1);
}

static void on_added(uint64_t id, uint64_t parent_id, const char *path, void *userdata) {
        struct live *l = userdata;

        if (strncmp(path, l->base, strlen(l->base)) != 0)
                return;
        hash_replace(&l->own, id, l);
        note(l, 'a', id, parent_id, path);
}

static void on_removed(uint64_t id, void *userdata) {
        struct live *l = userdata;

        if (hash_get(&l->own, id))
                note(l, 'r', id, 0, "");
}

static void on_joined(uint64_t id, void *userdata) {
        struct live *l = userdata;

        if (hash_get(&l->own, id))
                note(l, 'j', id, 0, "");
}

static size_t count(const struct live *l, char what, uint64_t id) {
        size_t n = 0;

        for (size_t i = 0; i < l->n_events; i++)
                n += l->events[i].what == what && (id == 0 || l->events[i].id == id);
        return n;
}

static const struct event *added(const struct live *l, const char *name) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s%s%s", l->base, *name ? "/" : "", name);
        for (size_t i = l->n_events; i-- > 0;)
                if (l->events[i].what == 'a' && strcmp(l->events[i].path, path) == 0)
                        return l->events + i;
        return NULL;
}

static void forget(struct live *l) {
        l->n_events = 0;
}

static uint64_t make(struct live *l, const char *name) {
        struct stat st;

        assert_int_equal(mkdirat(l->base_fd, name, 0755), 0);
        assert_int_equal(fstatat(l->base_fd, name, &st, 0), 0);
        return st.st_ino;
}

static void unmake(struct live *l, const char *name) {
        assert_int_equal(unlinkat(l->base_fd, name, AT_REMOVEDIR), 0);
}

static uint64_t id_of(struct live *l, const char *name) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", l->base, name);
        return cgroup_tree_id_of_path(l->tree, path);
}

/* Handles all events, until there is a pause; returns 1 if one of the calls did. */
static int process(struct live *l) {
        struct pollfd fd = { .fd = cgroup_tree_fd(l->tree), .events = POLLIN };
        int lost = 0;

        for (unsigned i = 0; i < 200 && poll(&fd, 1, 50) > 0; i++) {
                int r = cgroup_tree_process(l->tree);

                assert_true(r >= 0);
                lost |= r;
        }
        return lost;
}

static void *idle_thread(void *pipe_fd) {
        uint32_t tid = (uint32_t) gettid();

        if (write(*(int *) pipe_fd, &tid, sizeof(tid)) < 0)
                _exit(1);
        for (;;)
                pause();
}

/* A child in a cgroup of the test, with a second thread whose TID is returned if wanted. */
static pid_t spawn(struct live *l, const char *name, uint32_t *ret_thread) {
        char path[PATH_MAX], pid_text[16];
        int fds[2];
        uint32_t tid = 0;

        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
                pthread_t thread;

                if (pthread_create(&thread, NULL, idle_thread, fds + 1) != 0)
                        _exit(1);
                for (;;)
                        pause();
        }
        assert_true(pid > 0);
        assert_in_range(l->n_children, 0, CHILDREN_MAX - 1);
        l->children[l->n_children++] = pid;
        close(fds[1]);
        assert_int_equal(read(fds[0], &tid, sizeof(tid)), sizeof(tid));
        close(fds[0]);

        snprintf(path, sizeof(path), "%s/cgroup.procs", name);
        int fd = openat(l->base_fd, path, O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        snprintf(pid_text, sizeof(pid_text), "%d", pid);
        assert_int_equal(write(fd, pid_text, strlen(pid_text)), strlen(pid_text));
        close(fd);

        if (ret_thread)
                *ret_thread = tid;
        return pid;
}

/* Leaves a zombie. */
static void end(pid_t pid) {
        siginfo_t info;

        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT), 0);
}

static void reap(struct live *l, pid_t pid) {
        for (size_t i = 0; i < l->n_children; i++)
                if (l->children[i] == pid) {
                        l->children[i] = l->children[--l->n_children];
                        assert_int_equal(waitpid(pid, NULL, 0), pid);
                        return;
                }
}

static void start_tree(struct live *l) {
        struct cgroup_tree_handler handler = {
                .added = on_added, .removed = on_removed, .joined = on_joined, .userdata = l,
        };

        l->tree = cgroup_tree_close(l->tree);
        assert_int_equal(cgroup_tree_open(l->root, &handler, &l->tree), 0);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
}

/* A hierarchy to test on; of v1 one whose cgroups take tasks without further ado. */
static char *find_root(bool v1) {
        static const char *const wanted[] = { "name=systemd", "pids", "freezer", "memory" };
        struct cgroup_mount *mounts = NULL;
        char *own = NULL, *root = NULL;
        size_t n = 0;

        FILE *f = fopen("/proc/self/mountinfo", "re");
        if (f && cgroup_read_file("/proc/self/cgroup", &own) > 0 && cgroup_mounts_parse(f, own, &mounts, &n) >= 0)
                for (size_t w = 0; w < sizeof(wanted) / sizeof(wanted[0]) && !root; w++)
                        for (size_t i = 0; i < n && !root; i++) {
                                const struct cgroup_mount *m = mounts + i;
                                bool fits = v1 ? m->controllers && strcmp(m->controllers, wanted[w]) == 0 : !m->controllers;

                                if (fits && !m->partial)
                                        root = strdup(m->point);
                        }

        cgroup_mounts_free(mounts, n);
        free(own);
        if (f)
                fclose(f);
        return root;
}

static int set_up(void **state, bool v1) {
        struct live *l = calloc(1, sizeof(*l));
        char path[PATH_MAX];

        if (!l)
                return -1;
        l->v1 = v1;
        l->base_fd = -1;
        snprintf(l->base, sizeof(l->base), "/delayd-test-%d", supervisor);
        l->root = find_root(v1);
        if (l->root) {
                snprintf(path, sizeof(path), "%s%s", l->root, l->base);
                if (mkdir(path, 0755) >= 0)
                        l->base_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }

        *state = l;
        return 0;
}

static int set_up_v1(void **state) {
        return set_up(state, true);
}

static int set_up_v2(void **state) {
        return set_up(state, false);
}

static int tear_down(void **state) {
        struct live *l = *state;

        for (size_t i = 0; i < l->n_children; i++) {
                kill(l->children[i], SIGKILL);
                waitpid(l->children[i], NULL, 0);
        }
        cgroup_tree_close(l->tree);
        if (l->base_fd >= 0) {
                int root = open(l->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

                remove_cgroups(root, l->base + 1);
                close(root);
                close(l->base_fd);
        }
        hash_free(&l->own);
        free(l->events);
        free(l->root);
        free(l);
        return 0;
}

/* What a test starts with. */
static struct live *need(void **state) {
        struct live *l = *state;

        if (l->base_fd < 0) {
                print_message("no %s hierarchy in which this user may make cgroups\n", l->v1 ? "v1" : "v2");
                skip();
        }
        start_tree(l);
        forget(l);
        return l;
}

static void a_walk_tells_everything(void **state) {
        struct live *l = need(state);
        struct stat st;

        uint64_t a = make(l, "a"), b = make(l, "a/b"), odd = make(l, "a/\xff \x1b\"\\:(deleted)");
        start_tree(l);
        assert_int_equal(count(l, 'a', 0), 4);
        assert_int_equal(fstat(l->base_fd, &st), 0);
        assert_int_equal(added(l, "")->id, st.st_ino);
        assert_int_equal(added(l, "a")->id, a);
        assert_int_equal(added(l, "a")->parent_id, st.st_ino);
        assert_int_equal(added(l, "a/b")->id, b);
        assert_int_equal(added(l, "a/b")->parent_id, a);
        assert_int_equal(added(l, "a/\xff \x1b\"\\:(deleted)")->id, odd);
        assert_true(added(l, "") < added(l, "a") && added(l, "a") < added(l, "a/b"));
        assert_int_equal(count(l, 'j', 0), 0);
        assert_int_equal(stat(l->root, &st), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, "/"), st.st_ino);

        /* Only differences are told: children go before parents, a path made again is another cgroup. */
        forget(l);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(l->n_events, 0);

        unmake(l, "a/b");
        unmake(l, "a/\xff \x1b\"\\:(deleted)");
        unmake(l, "a");
        uint64_t again = make(l, "a");
        assert_int_not_equal(a, again);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(count(l, 'r', 0), 3);
        assert_int_equal(count(l, 'r', b), 1);
        assert_int_equal(l->events[2].id, a);
        assert_int_equal(count(l, 'a', 0), 1);
        assert_int_equal(added(l, "a")->id, again);
        assert_int_equal(count(l, 'j', again), 1);
        assert_int_equal(id_of(l, "a"), again);
}

static void depth_is_no_limit(void **state) {
        struct live *l = need(state);
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

        int lost = process(l);
        assert_int_equal(lost, 0);
        assert_int_equal(count(l, 'a', 0), depth);
        assert_int_equal(count(l, 'j', 0), depth);

        memset(path, 0, sizeof(path));
        for (unsigned i = 0; i < depth; i++)
                strcat(path, i > 0 ? "/deeeeeeep" : "deeeeeeep");
        assert_non_null(added(l, path));
        assert_int_equal(id_of(l, path), added(l, path)->id);
}

/* The kernel cannot name what lies beyond PATH_MAX, and a chain of long names must not take memory without end. */
static void paths_end_where_the_kernels_do(void **state) {
        struct live *l = need(state);
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

        assert_int_equal(process(l), 0);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(count(l, 'a', 0), (PATH_MAX - 1 - strlen(l->base)) / 256);
}

static void events_tell_at_once(void **state) {
        struct live *l = need(state);

        assert_true(cgroup_tree_fd(l->tree) >= 0);
        assert_false(cgroup_tree_blind(l->tree));

        /* Deeper ones are made before the watch of their parent can be there. */
        uint64_t a = make(l, "a"), b = make(l, "a/b"), c = make(l, "a/b/c");
        assert_int_equal(process(l), 0);
        assert_int_equal(count(l, 'a', 0), 3);
        assert_int_equal(added(l, "a/b/c")->id, c);
        assert_int_equal(added(l, "a/b/c")->parent_id, b);
        /* Tasks may have joined before the watch was there. */
        assert_int_equal(count(l, 'j', a) > 0 && count(l, 'j', b) > 0 && count(l, 'j', c) > 0, 1);

        forget(l);
        unmake(l, "a/b/c");
        assert_int_equal(process(l), 0);
        assert_int_equal(count(l, 'r', c), 1);
        assert_int_equal(l->n_events, 1);

        /* Removed and made again before anybody looked, with a child. */
        forget(l);
        unmake(l, "a/b");
        uint64_t again = make(l, "a/b"), d = make(l, "a/b/d");
        assert_int_equal(process(l), 0);
        assert_int_equal(count(l, 'r', b), 1);
        assert_int_equal(count(l, 'r', 0), 1);
        assert_int_equal(count(l, 'a', again), 1);
        assert_int_equal(count(l, 'a', d), 1);

        /* Gone before anybody looked: no word of it, or both. */
        forget(l);
        uint64_t brief = make(l, "a/brief");
        unmake(l, "a/brief");
        assert_int_equal(process(l), 0);
        assert_int_equal(count(l, 'a', brief), count(l, 'r', brief));

        /* All watches but those of existing cgroups were given back. */
        char path[64], *info = NULL;
        size_t watches = 0;
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", cgroup_tree_fd(l->tree));
        assert_true(cgroup_read_file(path, &info) > 0);
        for (const char *p = info; (p = strstr(p, "inotify wd:")); p++)
                watches++;
        free(info);
        assert_int_equal(watches, l->tree->by_id.n);

        forget(l);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(l->n_events, 0);
}

static void note_task(uint64_t id, uint32_t tid, void *userdata) {
        uint32_t *tids = userdata;

        if (tids[0] < 7)
                tids[++tids[0]] = tid;
}

static void tasks_are_listed_and_their_moves_seen(void **state) {
        struct live *l = need(state);
        uint32_t tids[8] = {}, thread = 0;

        uint64_t a = make(l, "a"), b = make(l, "b");
        assert_int_equal(process(l), 0);
        forget(l);

        uint32_t pid = (uint32_t) spawn(l, "a", &thread);
        assert_int_equal(process(l), 0);
        assert_int_equal(count(l, 'j', a), 1);
        assert_int_equal(l->n_events, 1);

        assert_int_equal(cgroup_tree_tasks(l->tree, a, note_task, tids), 0);
        assert_int_equal(tids[0], 2);
        assert_true((tids[1] == pid && tids[2] == thread) || (tids[1] == thread && tids[2] == pid));
        tids[0] = 0;
        assert_int_equal(cgroup_tree_tasks(l->tree, b, note_task, tids), 0);
        assert_int_equal(tids[0], 0);

        /* Not known, gone, and another one in its place. */
        assert_int_equal(cgroup_tree_tasks(l->tree, 12345678901, note_task, tids), -ENOENT);
        unmake(l, "b");
        assert_int_equal(cgroup_tree_tasks(l->tree, b, note_task, tids), -ENOENT);
        make(l, "b");
        spawn(l, "b", NULL);
        assert_int_equal(cgroup_tree_tasks(l->tree, b, note_task, tids), -ENOENT);
        assert_int_equal(tids[0], 0);
}

static void a_task_has_a_cgroup(void **state) {
        struct live *l = need(state);
        uint32_t thread;
        uint64_t id = 0;

        uint64_t a = make(l, "a:b");
        process(l);
        uint32_t pid = (uint32_t) spawn(l, "a:b", &thread);
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        id = 0;
        assert_int_equal(cgroup_tree_of_task(l->tree, thread, &id), 0);
        assert_int_equal(id, a);
        assert_int_equal(cgroup_tree_of_task(l->tree, (uint32_t) getpid(), &id), 0);
        assert_int_not_equal(id, a);

        /* v1 says "/" of a zombie. */
        id = 0;
        end((pid_t) pid);
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), l->v1 ? -ENODATA : 0);
        assert_int_equal(id, l->v1 ? 0 : a);

        reap(l, (pid_t) pid);
        int r = cgroup_tree_of_task(l->tree, pid, &id);
        assert_true(r == -ENOENT || r == -ESRCH);
        assert_true(cgroup_tree_of_task(l->tree, UINT32_MAX, &id) < 0);
}

/* A v2 cgroup can go while zombies are in it; their records must not go to the one that takes its path. */
static void zombies_stay_in_deleted_cgroups(void **state) {
        struct live *l = need(state);
        uint64_t id = 0;

        uint64_t a = make(l, "a");
        process(l);
        uint32_t pid = (uint32_t) spawn(l, "a", NULL);
        end((pid_t) pid);
        unmake(l, "a");

        /* Nothing has told of the removal yet, then of that and of the next one. */
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        uint64_t again = make(l, "a");
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        process(l);
        assert_int_equal(count(l, 'r', a), 1);
        assert_int_equal(id_of(l, "a"), again);
        assert_int_equal(cgroup_tree_of_task(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        assert_int_equal(id_of(l, "a (deleted)"), a);
        assert_int_equal(id_of(l, "b (deleted)"), 0);

        /* One that is named like that exists. */
        uint64_t named = make(l, "a (deleted)");
        assert_int_equal(id_of(l, "a (deleted)"), named);
        unmake(l, "a (deleted)");
        process(l);
        assert_int_equal(id_of(l, "a (deleted) (deleted)"), named);
}

static void removed_cgroups_are_remembered_but_not_for_ever(void **state) {
        struct live *l = need(state);

        uint64_t first = make(l, "first");
        process(l);
        unmake(l, "first");
        process(l);
        assert_int_equal(id_of(l, "first"), first);
        assert_int_equal(id_of(l, "first (deleted)"), first);

        for (unsigned i = 0; i < GONE_MAX; i++) {
                make(l, "next");
                assert_true(cgroup_tree_process(l->tree) >= 0);
                unmake(l, "next");
                assert_true(cgroup_tree_process(l->tree) >= 0);
        }
        assert_int_equal(count(l, 'r', 0), GONE_MAX + 1);
        assert_int_equal(id_of(l, "first"), 0);
        assert_int_not_equal(id_of(l, "next"), 0);
}

static void a_path_is_found_before_its_event(void **state) {
        struct live *l = need(state);

        make(l, "a");
        uint64_t b = make(l, "a/b"), c = make(l, "a/b/c");
        assert_int_equal(id_of(l, "a/b"), b);
        assert_int_equal(count(l, 'a', 0), 3);
        assert_int_equal(count(l, 'j', 0), 0);
        assert_int_equal(count(l, 'a', c), 1);

        /* The events that follow tell of nothing new, but tasks may be in it. */
        assert_int_equal(process(l), 0);
        assert_int_equal(count(l, 'a', 0), 3);
        assert_int_equal(count(l, 'j', b), 1);
        assert_int_equal(count(l, 'j', c), 1);

        assert_int_equal(id_of(l, "none"), 0);
        assert_int_equal(id_of(l, "a/./b"), 0);
        assert_int_equal(id_of(l, "a/../a"), 0);
        assert_int_equal(id_of(l, "a//b"), 0);
        assert_int_equal(id_of(l, "cgroup.procs"), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, "/../x"), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, ""), 0);
        assert_int_equal(cgroup_tree_id_of_path(l->tree, "x"), 0);
}

static void pidfds_know_the_cgroup(void **state) {
        struct live *l = need(state);
        uint32_t thread;
        uint64_t id = 0;

        if (l->v1 || !cgroup_pidfd_supported()) {
                assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, (uint32_t) getpid(), &id), -EOPNOTSUPP);
                return;
        }

        uint64_t a = make(l, "a");
        uint32_t pid = (uint32_t) spawn(l, "a", &thread);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, pid, &id), 0);
        assert_int_equal(id, a);
        assert_int_equal(count(l, 'a', a), 1); /* nothing had told of it before */
        id = 0;
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, thread, &id), 0);
        assert_int_equal(id, a);

        id = 0;
        end((pid_t) pid);
        unmake(l, "a");
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, pid, &id), 0);
        assert_int_equal(id, a);

        reap(l, (pid_t) pid);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, pid, &id), -ESRCH);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, 0, &id), -ESRCH);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, UINT32_MAX, &id), -ESRCH);
        assert_int_equal(cgroup_tree_of_task_by_pidfd(l->tree, (uint32_t) getpid(), &id), 0);
}

static void lost_events_are_said(void **state) {
        struct live *l = need(state);
        char *text = NULL;

        uint64_t a = make(l, "a");
        make(l, "b");
        process(l);
        forget(l);

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
        unmake(l, "a");
        uint64_t c = make(l, "c");

        assert_int_equal(process(l), 1);
        assert_int_equal(l->n_events, 0);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(count(l, 'r', a), 1);
        assert_int_equal(count(l, 'a', c), 1);
        assert_false(cgroup_tree_blind(l->tree));
}

static void a_rename_changes_the_path(void **state) {
        struct live *l = need(state);

        uint64_t a = make(l, "a"), b = make(l, "a/b");
        process(l);
        forget(l);

        if (renameat(l->base_fd, "a", l->base_fd, "z") < 0) {
                assert_false(l->v1); /* v2 has none */
                return;
        }
        assert_int_equal(process(l), 1);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
        assert_int_equal(count(l, 'r', 0), 0);
        assert_int_equal(added(l, "z")->id, a);
        assert_int_equal(added(l, "z/b")->id, b);
        assert_int_equal(id_of(l, "z/b"), b);
        assert_int_equal(id_of(l, "a/b"), 0);
}

static void what_may_not_be_read_is_not_gone(void **state) {
        struct live *l = need(state);

        if (geteuid() != 0)
                skip();
        make(l, "a");
        uint64_t b = make(l, "a/b");
        process(l);
        forget(l);

        assert_int_equal(fchmodat(l->base_fd, "a", 0700, 0), 0);
        assert_int_equal(seteuid(65534), 0);
        int r = cgroup_tree_rescan(l->tree);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(r, 0);
        assert_int_equal(l->n_events, 0);
        assert_int_equal(id_of(l, "a/b"), b);
}

/* Runs in a child, which may change its namespaces; the line of the first failure is its exit status. */
#define CHECK(condition)                                                                          \
        do {                                                                                      \
                if (!(condition)) {                                                               \
                        fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
                        _exit(1);                                                                 \
                }                                                                                 \
        } while (0)

static void in_child(struct live *l, void (*f)(struct live *l)) {
        int status = -1;

        pid_t pid = fork();
        if (pid == 0) {
                f(l);
                _exit(0);
        }
        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                print_message("this user may not make the namespaces that the test needs\n");
                skip();
        }
        assert_int_equal(status, 0);
}

static void write_file(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        CHECK(fd >= 0);
        CHECK(write(fd, text, strlen(text)) == (ssize_t) strlen(text));
        close(fd);
}

static void check_blind(struct live *l) {
        struct cgroup_tree_handler handler = {
                .added = on_added, .removed = on_removed, .joined = on_joined, .userdata = l,
        };
        char n[32];

        /* The limits of a user namespace of its own bind only this process. */
        if (geteuid() != 0 || unshare(CLONE_NEWUSER) < 0)
                _exit(77);
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
        CHECK(added(l, "one"));
        CHECK(mkdirat(l->base_fd, "one/two", 0755) == 0);
        CHECK(cgroup_tree_process(l->tree) == 0);
        CHECK(!added(l, "one/two"));
        CHECK(cgroup_tree_rescan(l->tree) == 0);
        CHECK(added(l, "one/two"));
        CHECK(cgroup_tree_blind(l->tree));

        /* It ends with the need for more watches. */
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
        CHECK(added(l, "three"));
        CHECK(unlinkat(l->base_fd, "three", AT_REMOVEDIR) == 0);
}

static void missing_watches_are_said(void **state) {
        in_child(need(state), check_blind);
}

static void check_mode(const char *root, enum cgroup_mode mode, const char *description, const char *point) {
        const struct cgroup_tree_handler handler = { .added = on_added, .userdata = &(struct live) { .base = "//" } };
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
                _exit(77);

        CHECK(cgroup_tree_open("/nowhere", &handler, &t) == -ENOENT);
        CHECK(cgroup_tree_open("/proc/self/stat", &handler, &t) == -ENOTDIR);
        CHECK(cgroup_tree_open("/proc", &handler, &t) == -EINVAL);
        snprintf(path, sizeof(path), "%s%s", l->root, l->base);
        CHECK(cgroup_tree_open(path, &handler, &t) == -EINVAL);

        /* As on a host without v2. */
        if (l->v1) {
                char *v2 = find_root(false);

                check_mode(l->root, CGROUP_V1, "v1 (", l->root);
                CHECK(!v2 || umount2(v2, MNT_DETACH) == 0);
                check_mode(NULL, CGROUP_V1, "v1 (", NULL);
                free(v2);
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
        struct live *l = need(state);
        struct statfs fs;

        assert_int_equal(statfs("/sys/fs/cgroup", &fs), 0);
        char *v1 = find_root(true);
        if (!l->v1 && fs.f_type != CGROUP2_SUPER_MAGIC && v1) {
                assert_int_equal(cgroup_tree_mode(l->tree), CGROUP_HYBRID);
                assert_string_equal(cgroup_tree_description(l->tree), "hybrid (v2)");
        }
        free(v1);
        in_child(l, check_detection);
}

#define ON_BOTH(f)                                                                                \
        { #f " (v2)", f, set_up_v2, tear_down, NULL }, { #f " (v1)", f, set_up_v1, tear_down, NULL }

static int run(void) {
        const struct CMUnitTest tests[] = {
                ON_BOTH(the_hierarchy_is_found),
                ON_BOTH(a_walk_tells_everything),
                ON_BOTH(depth_is_no_limit),
                ON_BOTH(paths_end_where_the_kernels_do),
                ON_BOTH(events_tell_at_once),
                ON_BOTH(tasks_are_listed_and_their_moves_seen),
                ON_BOTH(a_task_has_a_cgroup),
                cmocka_unit_test_setup_teardown(zombies_stay_in_deleted_cgroups, set_up_v2, tear_down),
                ON_BOTH(removed_cgroups_are_remembered_but_not_for_ever),
                ON_BOTH(a_path_is_found_before_its_event),
                ON_BOTH(pidfds_know_the_cgroup),
                ON_BOTH(lost_events_are_said),
                ON_BOTH(a_rename_changes_the_path),
                ON_BOTH(what_may_not_be_read_is_not_gone),
                ON_BOTH(missing_watches_are_said),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The tests run in a child, so that their cgroups go however they end. */
int main(void) {
        int status = 0;

        supervisor = getpid();
        pid_t pid = fork();
        if (pid == 0)
                return run();
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
                return 1;

        for (int v1 = 0; v1 < 2; v1++) {
                char *root = find_root(v1);
                char name[64];

                snprintf(name, sizeof(name), "delayd-test-%d", supervisor);
                int fd = root ? open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
                if (fd >= 0) {
                        remove_cgroups(fd, name);
                        close(fd);
                }
                free(root);
        }

        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
