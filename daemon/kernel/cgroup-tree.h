/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The cgroup hierarchy that tasks are put under: v2 where it is mounted (unified, or beside v1 on a
 * hybrid host), else one v1 hierarchy (name=systemd if it has cgroups, else memory, else any).
 * Ids are kernfs ids: st_ino of the directory, which on v2 is also what PIDFD_GET_INFO returns.
 */
struct cgroup_tree;

enum cgroup_mode { CGROUP_UNIFIED, CGROUP_HYBRID, CGROUP_V1 };

struct cgroup_tree_handler {
        /* parent_id is 0 for the root; path is "/" for the root, "/a/b" else; raw bytes. Called again with a new path after a rename. */
        void (*added)(uint64_t id, uint64_t parent_id, const char *path, void *userdata);
        void (*removed)(uint64_t id, void *userdata);
        /*
         * Tasks may have come into the cgroup. written: for somebody wrote to its cgroup.procs or tasks, or it
         * was found after the first walk, so that somebody may have; id is 0 if it is gone by now. Else it has
         * become populated or empty (v2), of which the kernel tells up to 10 ms late and not each time. Only
         * process() and rescan() call it, when all else is told. It may ask for tasks and ids; the other two
         * must not call into the tree.
         */
        void (*joined)(uint64_t id, bool written, void *userdata);
        void *userdata;
};

/*
 * root: a mount point of cgroupfs, or NULL to choose. Returns -ENOENT (no cgroupfs mounted),
 * -ENOTDIR/-EINVAL (root is no cgroup hierarchy), or another negative errno.
 */
int cgroup_tree_open(const char *root, const struct cgroup_tree_handler *handler, struct cgroup_tree **ret);
struct cgroup_tree *cgroup_tree_close(struct cgroup_tree *t); /* returns NULL */

enum cgroup_mode cgroup_tree_mode(const struct cgroup_tree *t);
const char *cgroup_tree_root(const struct cgroup_tree *t);        /* mount point */
const char *cgroup_tree_description(const struct cgroup_tree *t); /* "unified", "hybrid (v2)", "v1 (memory)" */

/*
 * Walks the hierarchy and tells the handler what is new and what is gone; the first time, everything.
 * Directories that vanish during the walk are no error, and those that may not be read hide what is
 * below them. Paths beyond PATH_MAX are left out, as /proc does. Returns 0 or a negative errno.
 */
int cgroup_tree_rescan(struct cgroup_tree *t);

/* Calls back for each cgroup that is known to exist; the callback may call into the tree. Returns 0 or -ENOMEM. */
int cgroup_tree_each(struct cgroup_tree *t, void (*cgroup)(uint64_t id, void *userdata), void *userdata);

/* inotify descriptor: readable when cgroups were made or removed, or tasks moved. -EBADF: inotify is not to be had, only rescans tell. */
int cgroup_tree_fd(const struct cgroup_tree *t);

/*
 * Handles what waits on the descriptor. Returns 1 if the caller is to rescan (events were lost, a cgroup
 * was renamed, or watches began to be missing), else 0, or a negative errno.
 */
int cgroup_tree_process(struct cgroup_tree *t);

/* True while some directory could not be watched (fs.inotify.max_user_watches and the like): rescans are the only source there. */
bool cgroup_tree_blind(const struct cgroup_tree *t);

/* Opens a file of the cgroup for reading. Returns the descriptor, -ENOENT when the cgroup is gone or has no such file, or another errno. */
int cgroup_tree_open_file(struct cgroup_tree *t, uint64_t id, const char *name);

/* False once removed() has told of it, unless it was found again. */
bool cgroup_tree_exists(const struct cgroup_tree *t, uint64_t id);

/* Calls back for each TID in the cgroup itself (cgroup.threads, or tasks on v1). -ENOENT when it is gone. */
int cgroup_tree_tasks(
                struct cgroup_tree *t, uint64_t id, void (*task)(uint64_t id, uint32_t tid, void *userdata), void *userdata);

/*
 * The id for a path as /proc/PID/cgroup shows it, with " (deleted)" for the cgroups removed last; 0 when
 * there is none. May call added() for a cgroup that no event has told of yet.
 */
uint64_t cgroup_tree_id_of_path(struct cgroup_tree *t, const char *path);

/*
 * The cgroup of a task (now, which for one just forked may be the root; may call added()) from /proc/TID/cgroup, in this hierarchy. On v1 a task that is exiting reads
 * as the root, which is returned as -ENODATA when the task is a zombie or exiting.
 * Returns 0, -ENOENT/-ESRCH (the task is gone), -ENODATA.
 */
int cgroup_tree_of_task(struct cgroup_tree *t, uint32_t tid, uint64_t *ret_id);

/*
 * The same through a pidfd (PIDFD_GET_INFO, Linux 6.13; v2 only), which also answers for a zombie. The
 * id may be one that no added() told of. Returns -EOPNOTSUPP where the kernel cannot, else as above.
 */
int cgroup_tree_of_task_by_pidfd(struct cgroup_tree *t, uint32_t tid, uint64_t *ret_id);

/*
 * The cgroup of a task whose exit record has come, which on v1 nobody can tell any more. -ESRCH when it
 * has been reaped, also if its number belongs to another task by now; else as above.
 */
int cgroup_tree_of_ended_task(struct cgroup_tree *t, uint32_t tid, uint64_t *ret_id, bool *ret_by_pidfd);

/*
 * Keeps hold of a task that lives, so that there will be an answer even when it has been reaped (Linux
 * 6.15); of the last few hundred. Says where it is now. let_go() is for one that need not be known any
 * more. tgid and ppid are those of the task that is meant (0: not known), for its number may be used
 * again already. Returns 0, -EOPNOTSUPP, -ESRCH or another negative errno.
 */
int cgroup_tree_hold(struct cgroup_tree *t, uint32_t tid, uint32_t tgid, uint32_t ppid, uint64_t *ret_id);
void cgroup_tree_let_go(struct cgroup_tree *t, uint32_t tid);
