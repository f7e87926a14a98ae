/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>

#include "cleanup.h"
#include "kernel/cgroup-tree-internal.h"

#define EVENTS_SIZE 16384U

/* Reads in one go, so that a storm of cgroups does not keep the loop from its other sources. */
#define READS_MAX 64U

#define EVENTS_WANTED (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY | IN_ONLYDIR)

void cgroup_watch_open(struct cgroup_tree *t) {
        t->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        if (t->inotify_fd < 0)
                t->inotify_fd = -EBADF; /* fs.inotify.max_user_instances: rescans are left */
}

void cgroup_watch_add(struct cgroup_tree *t, struct cgroup_node *node, int fd) {
        char path[32];

        if (t->inotify_fd < 0 || node->wd >= 0 || t->watches_exhausted)
                return;

        /* Through the open directory: the same one that is listed next, and of any depth. */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int wd = inotify_add_watch(t->inotify_fd, path, EVENTS_WANTED);
        if (wd < 0) {
                t->watches_exhausted = true; /* fs.inotify.max_user_watches or memory */
                return;
        }

        if (hash_put(&t->by_wd, (uint64_t) wd, node) < 0) {
                (void) inotify_rm_watch(t->inotify_fd, wd);
                return;
        }

        node->wd = wd;
        t->unwatched--;
}

void cgroup_watch_remove(struct cgroup_tree *t, struct cgroup_node *node) {
        if (node->wd < 0) {
                t->unwatched--;
                return;
        }

        /* The kernel does not end the watch of a cgroup that is removed, and it would keep the inode. */
        hash_remove(&t->by_wd, (uint64_t) node->wd);
        (void) inotify_rm_watch(t->inotify_fd, node->wd);
        node->wd = -1;
}

static bool is_membership_file(const char *name) {
        return strcmp(name, "cgroup.procs") == 0 || strcmp(name, "cgroup.threads") == 0 || strcmp(name, "tasks") == 0;
}

/* v2 alone has it; its parents tell as well, for tasks below count. */
static bool is_population_file(const struct cgroup_tree *t, const char *name) {
        return t->mount.mode != CGROUP_V1 && strcmp(name, "cgroup.events") == 0;
}

static void on_delete(struct cgroup_tree *t, struct cgroup_node *parent, const char *name) {
        struct cgroup_node *node = cgroup_node_child(t, parent, name);

        /* The event may be of an earlier directory of that name, and the node of the one there now. */
        if (node && cgroup_stat_path(t, node->path) != node->id)
                cgroup_node_remove(t, node);
}

/* Returns 1 if only a rescan can tell what happened, else 0 or a negative errno. */
static int on_event(struct cgroup_tree *t, const struct inotify_event *event, const char *name) {
        if (event->mask & (IN_Q_OVERFLOW | IN_UNMOUNT))
                return 1;

        /* Events that were queued before the end of their watch come to nothing. */
        struct cgroup_node *node = hash_get(&t->by_wd, (uint64_t) (unsigned) event->wd), *child;
        if (!node || event->len == 0)
                return 0;

        if (event->mask & (IN_MOVED_FROM | IN_MOVED_TO))
                return 1;

        if (event->mask & IN_MODIFY) {
                if (is_membership_file(name))
                        cgroup_node_joined(t, node, true);
                else if (is_population_file(t, name))
                        cgroup_node_joined(t, node, false);
                return 0;
        }

        if (!(event->mask & IN_ISDIR))
                return 0;

        if (event->mask & IN_DELETE) {
                on_delete(t, node, name);
                return 0;
        }

        int r = cgroup_node_discover(t, node, name, &child);
        if (r == 0)
                t->joined_gone = true; /* for it is gone, and what was in it is not known */
        return r < 0 ? r : 0;
}

static int process_batch(struct cgroup_tree *t, const char *buf, size_t size) {
        int lost = 0;

        for (size_t i = 0; size - i >= sizeof(struct inotify_event);) {
                struct inotify_event event;

                memcpy(&event, buf + i, sizeof(event));
                i += sizeof(event);
                if (event.len > size - i)
                        break;

                /* An error (memory, descriptors) is made good by a rescan as well. */
                if (on_event(t, &event, buf + i) != 0)
                        lost = 1;
                i += event.len;
        }

        /* However often a cgroup was written to, its tasks are read once, and after the last write. */
        cgroup_tree_tell_joined(t);
        return lost;
}

int cgroup_tree_process(struct cgroup_tree *t) {
        char buf[EVENTS_SIZE];
        bool blind = cgroup_tree_blind(t);
        int lost = 0;

        if (t->inotify_fd < 0)
                return 0;

        for (unsigned i = 0; i < READS_MAX; i++) {
                ssize_t n = read(t->inotify_fd, buf, sizeof(buf));

                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0)
                        return errno == EINTR ? lost : -errno;

                lost |= process_batch(t, buf, (size_t) n);
        }

        return lost || (!blind && cgroup_tree_blind(t));
}

int cgroup_tree_fd(const struct cgroup_tree *t) {
        return t->inotify_fd;
}

bool cgroup_tree_blind(const struct cgroup_tree *t) {
        return t->inotify_fd < 0 || t->unwatched > 0;
}
