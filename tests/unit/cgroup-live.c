/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cgroup-live.h"

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
        l->events[l->n_events++] = (struct event) { .what = what, .id = id, .parent_id = parent_id, .path = strdup(path) };
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

static void on_joined(uint64_t id, bool written, void *userdata) {
        struct live *l = userdata;

        if (hash_get(&l->own, id))
                note(l, 'j', id, 0, "");
}

struct cgroup_tree_handler live_handler(struct live *l) {
        return (struct cgroup_tree_handler) {
                .added = on_added, .removed = on_removed, .joined = on_joined, .userdata = l,
        };
}

size_t live_count(const struct live *l, char what, uint64_t id) {
        size_t n = 0;

        for (size_t i = 0; i < l->n_events; i++)
                n += l->events[i].what == what && (id == 0 || l->events[i].id == id);
        return n;
}

const struct event *live_added(const struct live *l, const char *name) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s%s%s", l->base, *name ? "/" : "", name);
        for (size_t i = l->n_events; i-- > 0;)
                if (l->events[i].what == 'a' && strcmp(l->events[i].path, path) == 0)
                        return l->events + i;
        return NULL;
}

void live_forget(struct live *l) {
        while (l->n_events > 0)
                free(l->events[--l->n_events].path);
}

uint64_t live_make(struct live *l, const char *name) {
        struct stat st;

        assert_int_equal(mkdirat(l->base_fd, name, 0755), 0);
        assert_int_equal(fstatat(l->base_fd, name, &st, 0), 0);
        return st.st_ino;
}

void live_unmake(struct live *l, const char *name) {
        assert_int_equal(unlinkat(l->base_fd, name, AT_REMOVEDIR), 0);
}

uint64_t live_id(struct live *l, const char *name) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", l->base, name);
        return cgroup_tree_id_of_path(l->tree, path);
}

int live_process(struct live *l) {
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

pid_t live_spawn(struct live *l, const char *name, uint32_t *ret_thread) {
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
        assert_in_range(l->n_children, 0, LIVE_CHILDREN_MAX - 1);
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

void live_end(pid_t pid) {
        siginfo_t info;

        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT), 0);
}

void live_reap(struct live *l, pid_t pid) {
        for (size_t i = 0; i < l->n_children; i++)
                if (l->children[i] == pid) {
                        l->children[i] = l->children[--l->n_children];
                        assert_int_equal(waitpid(pid, NULL, 0), pid);
                        return;
                }
}

void live_start(struct live *l) {
        struct cgroup_tree_handler handler = live_handler(l);

        l->tree = cgroup_tree_close(l->tree);
        assert_int_equal(cgroup_tree_open(l->root, &handler, &l->tree), 0);
        assert_int_equal(cgroup_tree_rescan(l->tree), 0);
}

char *live_find_root(bool v1) {
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
        l->root = live_find_root(v1);
        if (l->root) {
                snprintf(path, sizeof(path), "%s%s", l->root, l->base);
                if (mkdir(path, 0755) >= 0)
                        l->base_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }

        *state = l;
        return 0;
}

int live_set_up_v1(void **state) {
        return set_up(state, true);
}

int live_set_up_v2(void **state) {
        return set_up(state, false);
}

int live_tear_down(void **state) {
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
        live_forget(l);
        hash_free(&l->own);
        free(l->events);
        free(l->root);
        free(l);
        return 0;
}

struct live *live_need(void **state) {
        struct live *l = *state;

        assert_true(l->base_fd >= 0);
        live_start(l);
        live_forget(l);
        return l;
}

void live_in_child(struct live *l, void (*f)(struct live *l)) {
        int status = -1;

        pid_t pid = fork();
        if (pid == 0) {
                f(l);
                _exit(0);
        }
        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == LIVE_SKIP) {
                print_message("# left out: this user may not make the namespaces that it needs\n");
                return;
        }
        assert_int_equal(status, 0);
}

static void on_signal(int signal) {
        /* Only ends the wait. */
}

/* True if cgroups can be made in such a hierarchy. */
static bool is_usable(bool v1) {
        void *state = NULL;

        if (set_up(&state, v1) < 0)
                return false;

        bool usable = ((struct live *) state)->base_fd >= 0;
        live_tear_down(&state);
        if (!usable)
                printf("# no %s hierarchy in which this user may make cgroups: its tests are left out\n", v1 ? "v1" : "v2");
        return usable;
}

/* Those left out are not told of one by one: what cmocka 1.1 prints for a skipped test is a failure in TAP. */
static int run(const struct CMUnitTest *tests, size_t n) {
        bool v1 = is_usable(true), v2 = is_usable(false);
        struct CMUnitTest usable[LIVE_TESTS_MAX];
        size_t n_usable = 0;

        for (size_t i = 0; i < n && n_usable < LIVE_TESTS_MAX; i++)
                if (tests[i].setup_func == live_set_up_v1 ? v1 : v2)
                        usable[n_usable++] = tests[i];

        if (n_usable == 0) {
                printf("1..0 # SKIP no hierarchy in which this user may make cgroups\n");
                return 0;
        }

        fflush(stdout);
        return _cmocka_run_group_tests("cgroups", usable, n_usable, NULL, NULL);
}

int live_main(const struct CMUnitTest *tests, size_t n) {
        const struct sigaction interrupt = { .sa_handler = on_signal };
        char name[64];
        int status = 0;

        supervisor = getpid();
        pid_t pid = fork();
        if (pid == 0)
                return run(tests, n);
        if (pid < 0)
                return 1;

        sigaction(SIGINT, &interrupt, NULL);
        sigaction(SIGTERM, &interrupt, NULL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                kill(pid, SIGKILL);

        snprintf(name, sizeof(name), "delayd-test-%d", supervisor);
        for (int v1 = 0; v1 < 2; v1++) {
                char *root = live_find_root(v1);
                int fd = root ? open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

                if (fd >= 0) {
                        remove_cgroups(fd, name);
                        close(fd);
                }
                free(root);
        }

        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
