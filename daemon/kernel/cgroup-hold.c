/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "kernel/cgroup-tree-internal.h"

/* From include/uapi/linux/pidfd.h: the ioctl came with Linux 6.13, threads with 6.9, exit data with 6.15. */
struct pidfd_info_v0 {
        uint64_t mask;
        uint64_t cgroupid;
        uint32_t pid, tgid, ppid;
        uint32_t credentials[8];
        int32_t exit_code;
};
_Static_assert(sizeof(struct pidfd_info_v0) == 64, "PIDFD_INFO_SIZE_VER0");

#define PIDFD_GET_INFO_V0 _IOWR(0xFF, 11, struct pidfd_info_v0)
#define PIDFD_HAVE_CGROUPID (UINT64_C(1) << 2)
#define PIDFD_HAVE_EXIT (UINT64_C(1) << 3)
#define PIDFD_OF_THREAD O_EXCL

#define TASK_EXITING 0x4U /* PF_EXITING: include/linux/sched.h */

static int open_pidfd(uint32_t tid) {
        if (tid == 0 || tid > INT_MAX)
                return -ESRCH;

        int fd = (int) syscall(SYS_pidfd_open, (pid_t) tid, PIDFD_OF_THREAD);

        /* Some kernels say EINVAL for a task that is just going. */
        return fd >= 0 ? fd : errno == EINVAL ? -ESRCH : -errno;
}

/* tgid, ppid: what is known of the task, or 0; -ESRCH if it is another one. */
static int ask(int fd, uint32_t tgid, uint32_t ppid, uint64_t *ret_id) {
        struct pidfd_info_v0 info = { .mask = PIDFD_HAVE_CGROUPID | PIDFD_HAVE_EXIT };

        if (ioctl(fd, PIDFD_GET_INFO_V0, &info) < 0)
                return errno == EINVAL ? -ESRCH : -errno;
        if (!(info.mask & PIDFD_HAVE_CGROUPID) || info.cgroupid == 0)
                return -ENODATA;
        if ((tgid != 0 && info.tgid != tgid) || (ppid != 0 && info.ppid != ppid))
                return -ESRCH;

        *ret_id = info.cgroupid;
        return 0;
}

bool cgroup_pidfd_supported(void) {
        uint64_t id = 0;

        /* Asked of a task that certainly exists. */
        _cleanup_close_ int fd = open_pidfd((uint32_t) getpid());
        return fd >= 0 && ask(fd, 0, 0, &id) >= 0;
}

/* True unless /proc/TID/stat says that the task lives and is not about to end. */
bool cgroup_task_is_exiting(uint32_t tid) {
        _cleanup_free_ char *stat = NULL;
        char path[32], state;
        unsigned flags;

        snprintf(path, sizeof(path), "/proc/%u/stat", tid);
        if (cgroup_read_file(path, &stat) < 0)
                return true;

        /* The name may hold anything, so fields are counted from the last parenthesis: state ppid pgrp session tty tpgid flags. */
        const char *p = strrchr(stat, ')');
        if (!p || sscanf(p + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
                return true;

        return state == 'Z' || state == 'X' || state == 'x' || (flags & TASK_EXITING);
}

/* A pidfd becomes readable when the task has ended; a moment before that only its flags tell. */
static bool has_ended(int fd, uint32_t tid) {
        struct pollfd p = { .fd = fd, .events = POLLIN };

        return poll(&p, 1, 0) > 0 || cgroup_task_is_exiting(tid);
}

/* A cgroup so new that no event has told of it yet: its path is found while the task is there. */
static void make_known(struct cgroup_tree *t, uint32_t tid, uint64_t id) {
        uint64_t found;

        if (!hash_get(&t->by_id, id))
                (void) cgroup_tree_of_task(t, tid, &found);
}

int cgroup_tree_of_task_by_pidfd(struct cgroup_tree *t, uint32_t tid, uint64_t *ret_id) {
        uint64_t id = 0;

        if (!t->pidfd_supported)
                return -EOPNOTSUPP;

        _cleanup_close_ int fd = open_pidfd(tid);
        if (fd < 0)
                return fd;

        int r = ask(fd, 0, 0, &id);
        if (r < 0)
                return r;

        make_known(t, tid, id);
        *ret_id = id;
        return 0;
}

static struct held_task *find_held(const struct cgroup_tree *t, uint32_t tid) {
        return t->held_by_tid.n > 0 ? hash_get(&t->held_by_tid, tid) : NULL;
}

void cgroup_tree_let_go(struct cgroup_tree *t, uint32_t tid) {
        struct held_task *held = find_held(t, tid);

        if (!held)
                return;

        hash_remove(&t->held_by_tid, tid);
        cleanup_close(&held->fd);
        held->fd = -EBADF;
}

int cgroup_tree_hold(struct cgroup_tree *t, uint32_t tid, uint32_t tgid, uint32_t ppid, uint64_t *ret_id) {
        uint64_t id = 0;
        int r;

        if (!t->pidfd_supported)
                return -EOPNOTSUPP;

        if (!t->held) {
                t->held = calloc(HELD_MAX, sizeof(*t->held));
                if (!t->held)
                        return -ENOMEM;
                for (size_t i = 0; i < HELD_MAX; i++)
                        t->held[i].fd = -EBADF;
        }

        cgroup_tree_let_go(t, tid);
        _cleanup_close_ int fd = open_pidfd(tid);
        if (fd < 0)
                return fd;
        r = ask(fd, tgid, ppid, &id);
        if (r < 0)
                return r;
        make_known(t, tid, id);

        /* The oldest makes room. */
        struct held_task *held = t->held + t->next_held;
        if (held->fd >= 0)
                cgroup_tree_let_go(t, held->tid);

        r = hash_put(&t->held_by_tid, tid, held);
        if (r < 0)
                return r;

        *held = (struct held_task) { .tid = tid, .fd = TAKE_FD(fd) };
        t->next_held = (t->next_held + 1) % HELD_MAX;
        *ret_id = id;
        return 0;
}

static int ask_ended(struct cgroup_tree *t, uint32_t tid, uint64_t *ret_id) {
        const struct held_task *held = find_held(t, tid);
        _cleanup_close_ int fd = -EBADF;

        if (held)
                return ask(held->fd, 0, 0, ret_id);

        fd = open_pidfd(tid);
        if (fd < 0)
                return fd;

        int r = ask(fd, 0, 0, ret_id);
        return r >= 0 && !has_ended(fd, tid) ? -ESRCH : r; /* another task has the number by now */
}

int cgroup_tree_of_ended_task(struct cgroup_tree *t, uint32_t tid, uint64_t *ret_id, bool *ret_by_pidfd) {
        uint64_t id = 0;
        int r;

        /* A task that exits reads as the root there. */
        if (t->mount.mode == CGROUP_V1)
                return -EOPNOTSUPP;

        if (t->pidfd_supported) {
                r = ask_ended(t, tid, &id);
                if (r >= 0)
                        make_known(t, tid, id);
        } else {
                r = cgroup_tree_of_task(t, tid, &id);
                if (r >= 0 && !cgroup_task_is_exiting(tid))
                        r = -ESRCH;
        }
        if (r < 0)
                return r;

        *ret_id = id;
        *ret_by_pidfd = t->pidfd_supported;
        return 0;
}

void cgroup_hold_done(struct cgroup_tree *t) {
        for (size_t i = 0; t->held && i < HELD_MAX; i++)
                cleanup_close(&t->held[i].fd);
        free(t->held);
        hash_free(&t->held_by_tid);
}
