/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "kernel/cgroup-tree-internal.h"

#define TASKS_BUFFER_SIZE 4096U

/* The path for the *at() calls: "." for the root. */
static const char *relative(const char *path) {
        return path[1] ? path + 1 : ".";
}

static char *path_join(const char *parent, const char *name) {
        char *path;

        /* The kernel itself cannot name what lies deeper, neither in /proc nor to open(). */
        if (strlen(parent) + 1 + strlen(name) >= PATH_MAX)
                return NULL;

        return asprintf(&path, "%s/%s", parent[1] ? parent : "", name) >= 0 ? path : NULL;
}

static bool is_too_deep(const struct cgroup_node *node, const char *name) {
        return strlen(node->path) + 1 + strlen(name) >= PATH_MAX;
}

static bool is_child_path(const char *path, const char *parent, const char *name) {
        size_t n = parent[1] ? strlen(parent) : 0;

        return strncmp(path, parent, n) == 0 && path[n] == '/' && strcmp(path + n + 1, name) == 0;
}

struct cgroup_node *cgroup_node_by_path(const struct cgroup_tree *t, const char *path, size_t size) {
        struct cgroup_node *node = hash_get(&t->by_path, hash_bytes(path, size));

        while (node && (strlen(node->path) != size || memcmp(node->path, path, size) != 0))
                node = node->same_hash;
        return node;
}

struct cgroup_node *cgroup_node_child(const struct cgroup_tree *t, const struct cgroup_node *node, const char *name) {
        _cleanup_free_ char *path = path_join(node->path, name);

        return path ? cgroup_node_by_path(t, path, strlen(path)) : NULL;
}

uint64_t cgroup_stat_path(struct cgroup_tree *t, const char *path) {
        struct stat st;

        if (fstatat(t->root_fd, relative(path), &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
                return 0;
        return st.st_ino;
}

int cgroup_node_open(struct cgroup_tree *t, const struct cgroup_node *node) {
        struct stat st;

        _cleanup_close_ int fd = openat(t->root_fd, relative(node->path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return errno == ENODEV || errno == ENOTDIR ? -ENOENT : -errno;

        return st.st_ino == node->id ? TAKE_FD(fd) : -ENOENT;
}

static int by_path_add(struct cgroup_tree *t, struct cgroup_node *node) {
        node->path_hash = hash_bytes(node->path, strlen(node->path));
        node->same_hash = hash_get(&t->by_path, node->path_hash);
        return hash_replace(&t->by_path, node->path_hash, node);
}

static void by_path_remove(struct cgroup_tree *t, struct cgroup_node *node) {
        struct cgroup_node *first = hash_get(&t->by_path, node->path_hash);

        if (first != node) {
                while (first && first->same_hash != node)
                        first = first->same_hash;
                if (first)
                        first->same_hash = node->same_hash;
        } else if (node->same_hash)
                (void) hash_replace(&t->by_path, node->path_hash, node->same_hash); /* needs no memory: the key is there */
        else
                hash_remove(&t->by_path, node->path_hash);
}

static void to_scan_push(struct cgroup_tree *t, struct cgroup_node *node) {
        if (node->to_scan)
                return;

        node->to_scan = true;
        node->next_to_scan = t->to_scan;
        t->to_scan = node;
}

static struct cgroup_node *to_scan_pop(struct cgroup_tree *t) {
        struct cgroup_node *node = t->to_scan;

        if (node) {
                node->to_scan = false;
                t->to_scan = node->next_to_scan;
        }
        return node;
}

static void to_scan_remove(struct cgroup_tree *t, struct cgroup_node *node) {
        for (struct cgroup_node **p = &t->to_scan; node->to_scan && *p; p = &(*p)->next_to_scan)
                if (*p == node) {
                        *p = node->next_to_scan;
                        return;
                }
}

void cgroup_node_joined(struct cgroup_tree *t, struct cgroup_node *node, bool written) {
        node->written = node->written || written;
        if (node->joined)
                return;

        node->joined = true;
        node->previous_joined = NULL;
        node->next_joined = t->joined;
        if (t->joined)
                t->joined->previous_joined = node;
        t->joined = node;
}

static void joined_remove(struct cgroup_tree *t, struct cgroup_node *node) {
        if (!node->joined)
                return;

        node->joined = node->written = false;
        if (node->previous_joined)
                node->previous_joined->next_joined = node->next_joined;
        else
                t->joined = node->next_joined;
        if (node->next_joined)
                node->next_joined->previous_joined = node->previous_joined;
}

void cgroup_tree_tell_joined(struct cgroup_tree *t) {
        for (struct cgroup_node *node; (node = t->joined);) {
                bool written = node->written;

                joined_remove(t, node);
                t->handler.joined(node->id, written, t->handler.userdata);
        }

        if (t->joined_gone) {
                t->joined_gone = false;
                t->handler.joined(0, true, t->handler.userdata);
        }
}

static void remember_gone(struct cgroup_tree *t, struct cgroup_node *node) {
        struct gone_cgroup *gone = t->gone + t->next_gone;

        free(gone->path);
        *gone = (struct gone_cgroup) { .id = node->id, .path_hash = node->path_hash, .path = TAKE_PTR(node->path) };
        t->next_gone = (t->next_gone + 1) % GONE_MAX;
}

/* A node without children. */
static void remove_leaf(struct cgroup_tree *t, struct cgroup_node *node) {
        uint64_t id = node->id;

        if (node->previous)
                node->previous->next = node->next;
        else if (node->parent)
                node->parent->first_child = node->next;
        if (node->next)
                node->next->previous = node->previous;

        to_scan_remove(t, node);
        t->joined_gone = t->joined_gone || node->written;
        joined_remove(t, node);
        cgroup_watch_remove(t, node);
        by_path_remove(t, node);
        hash_remove(&t->by_id, id);
        if (t->root == node)
                t->root = NULL;

        remember_gone(t, node);
        free(node->path);
        free(node);

        t->handler.removed(id, t->handler.userdata);
}

void cgroup_node_remove(struct cgroup_tree *t, struct cgroup_node *node) {
        for (struct cgroup_node *leaf = node;;) {
                while (leaf->first_child)
                        leaf = leaf->first_child;

                struct cgroup_node *parent = leaf->parent;
                bool last = leaf == node;

                remove_leaf(t, leaf);
                if (last)
                        return;
                leaf = parent;
        }
}

/* The next one below top, parents first. */
static struct cgroup_node *node_next(const struct cgroup_node *top, struct cgroup_node *node) {
        if (node->first_child)
                return node->first_child;

        while (node != top && !node->next)
                node = node->parent;
        return node == top ? NULL : node->next;
}

/* What is below could not be looked at, which does not mean that it is gone. */
static void keep_below(struct cgroup_tree *t, struct cgroup_node *top) {
        for (struct cgroup_node *node = top; node; node = node_next(top, node))
                node->generation = t->generation;
}

static void tell_added(struct cgroup_tree *t, const struct cgroup_node *node) {
        t->handler.added(node->id, node->parent ? node->parent->id : 0, node->path, t->handler.userdata);
}

/* path becomes the node's if all goes well. */
static int node_new(struct cgroup_tree *t, struct cgroup_node *parent, uint64_t id, char **path, struct cgroup_node **ret) {
        struct cgroup_node *node = calloc(1, sizeof(*node));
        if (!node)
                return -ENOMEM;

        *node = (struct cgroup_node) { .id = id, .parent = parent, .wd = -1, .generation = t->generation, .path = *path };
        if (hash_put(&t->by_id, id, node) < 0 || by_path_add(t, node) < 0) {
                hash_remove(&t->by_id, id);
                free(node);
                return -ENOMEM;
        }
        *path = NULL;

        if (parent) {
                node->next = parent->first_child;
                if (node->next)
                        node->next->previous = node;
                parent->first_child = node;
        } else
                t->root = node;

        /* Tasks may have come into it before its watch is there. */
        cgroup_node_joined(t, node, true);
        t->unwatched++;
        tell_added(t, node);
        *ret = node;
        return 0;
}

static int node_rename(struct cgroup_tree *t, struct cgroup_node *node, char **path) {
        char *old = node->path;

        by_path_remove(t, node);
        node->path = *path;
        *path = NULL;

        int r = by_path_add(t, node);
        free(old);
        if (r < 0)
                return r;

        tell_added(t, node);
        return 0;
}

/* A directory was seen. Returns 1 and the node, 0 if it lies too deep, or -ENOMEM. */
static int see_child(
                struct cgroup_tree *t,
                struct cgroup_node *parent,
                const char *name,
                uint64_t id,
                struct cgroup_node **ret) {

        struct cgroup_node *node = hash_get(&t->by_id, id);
        int r = 0;

        if (is_too_deep(parent, name))
                return 0;

        if (node && node->parent != parent) {
                /* No cgroup can move; the kernel has given the number to another one. */
                cgroup_node_remove(t, node);
                node = NULL;
        }

        if (!node || !is_child_path(node->path, parent->path, name)) {
                _cleanup_free_ char *path = path_join(parent->path, name);
                if (!path)
                        return -ENOMEM;

                struct cgroup_node *earlier = cgroup_node_by_path(t, path, strlen(path));
                if (earlier)
                        cgroup_node_remove(t, earlier);

                if (node)
                        r = node_rename(t, node, &path);
                else
                        r = node_new(t, parent, id, &path, &node);
                if (r < 0)
                        return r;
        }

        node->generation = t->generation;
        *ret = node;
        return 1;
}

/* Sees all children; they are listed later. */
static int list_children(struct cgroup_tree *t, struct cgroup_node *node, DIR *dir) {
        for (struct dirent *entry; (errno = 0, entry = readdir(dir));) {
                struct cgroup_node *child;

                if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;

                int r = see_child(t, node, entry->d_name, entry->d_ino, &child);
                if (r < 0)
                        return r;
                if (r > 0)
                        to_scan_push(t, child);
        }

        return errno == ENOENT || errno == ENODEV ? 0 : -errno;
}

static int scan_directory(struct cgroup_tree *t, struct cgroup_node *node) {
        struct stat st;

        _cleanup_close_ int fd = cgroup_node_open(t, node);
        if (fd == -ENOENT)
                return 0;
        if (fd < 0) {
                keep_below(t, node);
                return fd == -EACCES || fd == -EPERM ? 0 : fd;
        }

        /* The watch comes first, so that a child which the list does not hold is told of by an event. */
        cgroup_watch_add(t, node, fd);

        /* Most cgroups are leaves: two links say so without the reading of a hundred file names. */
        if (fstat(fd, &st) == 0 && st.st_nlink == 2)
                return 0;

        DIR *dir = fdopendir(fd);
        if (!dir) {
                keep_below(t, node);
                return -errno;
        }
        (void) TAKE_FD(fd);

        int r = list_children(t, node, dir);
        closedir(dir);
        if (r < 0)
                keep_below(t, node);
        return r;
}

/* Lists node and all below it. Goes on after an error and returns the first one. */
static int scan(struct cgroup_tree *t, struct cgroup_node *node) {
        int r = 0;

        to_scan_push(t, node);
        while ((node = to_scan_pop(t))) {
                int q = scan_directory(t, node);

                if (q < 0 && r >= 0)
                        r = q;
        }

        return r;
}

int cgroup_node_discover(struct cgroup_tree *t, struct cgroup_node *node, const char *name, struct cgroup_node **ret) {
        if (is_too_deep(node, name))
                return 0;

        _cleanup_free_ char *path = path_join(node->path, name);
        if (!path)
                return -ENOMEM;

        uint64_t id = cgroup_stat_path(t, path);
        if (id == 0)
                return 0;

        struct cgroup_node *child;
        int r = see_child(t, node, name, id, &child);
        if (r <= 0)
                return r;

        r = scan(t, child);
        if (r < 0)
                return r;

        /* The scan may have found the directory replaced once more. */
        *ret = hash_get(&t->by_id, id);
        return *ret ? 1 : 0;
}

/* Takes out what the walk has not seen. */
static void remove_unseen(struct cgroup_tree *t) {
        for (struct cgroup_node *node = t->root; node;) {
                if (node->generation == t->generation) {
                        node = node_next(t->root, node);
                        continue;
                }

                /* The next one that is not below it. */
                struct cgroup_node *unseen = node;
                while (node != t->root && !node->next)
                        node = node->parent;
                node = node == t->root ? NULL : node->next;

                cgroup_node_remove(t, unseen);
        }
}

static int add_root(struct cgroup_tree *t) {
        struct cgroup_node *root;
        struct stat st;

        _cleanup_free_ char *path = strdup("/");
        if (!path)
                return -ENOMEM;
        if (fstat(t->root_fd, &st) < 0)
                return -errno;

        return node_new(t, NULL, st.st_ino, &path, &root);
}

int cgroup_tree_rescan(struct cgroup_tree *t) {
        bool first = !t->root;
        int r;

        t->generation++;
        t->watches_exhausted = false;

        if (first) {
                r = add_root(t);
                if (r < 0)
                        return r;
        }

        assert(t->root);
        t->root->generation = t->generation;
        r = scan(t, t->root);
        remove_unseen(t);

        /* At first every cgroup is new, and the caller reads the tasks of all of them anyway. */
        while (first && t->joined)
                joined_remove(t, t->joined);
        t->joined_gone = t->joined_gone && !first;
        cgroup_tree_tell_joined(t);
        return r;
}

static int read_tasks(int fd, uint64_t id, void (*task)(uint64_t id, uint32_t tid, void *userdata), void *userdata) {
        char buf[TASKS_BUFFER_SIZE];
        uint64_t tid = 0;

        for (;;) {
                ssize_t n = read(fd, buf, sizeof(buf));
                if (n < 0)
                        return errno == ENODEV ? -ENOENT : -errno;
                if (n == 0)
                        return 0;

                for (ssize_t i = 0; i < n; i++) {
                        if (buf[i] >= '0' && buf[i] <= '9') {
                                tid = tid * 10 + (uint64_t) (buf[i] - '0');
                                continue;
                        }

                        /* 0 stands for a task that the own PID namespace cannot see. */
                        if (tid > 0 && tid <= INT_MAX)
                                task(id, (uint32_t) tid, userdata);
                        tid = 0;
                }
        }
}

int cgroup_tree_open_file(struct cgroup_tree *t, uint64_t id, const char *name) {
        const struct cgroup_node *node = hash_get(&t->by_id, id);
        if (!node)
                return -ENOENT;

        /* By the directory and not by one path, which another cgroup may have taken. */
        _cleanup_close_ int dir = cgroup_node_open(t, node);
        if (dir < 0)
                return dir;

        int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return errno == ENODEV ? -ENOENT : -errno;

        return fd;
}

int cgroup_tree_tasks(
                struct cgroup_tree *t, uint64_t id, void (*task)(uint64_t id, uint32_t tid, void *userdata), void *userdata) {

        _cleanup_close_ int fd = cgroup_tree_open_file(
                        t, id, t->mount.mode == CGROUP_V1 ? "tasks" : "cgroup.threads");
        if (fd < 0)
                return fd;

        return read_tasks(fd, id, task, userdata);
}

static int describe(const struct cgroup_mount *mount, char **ret) {
        switch (mount->mode) {
        case CGROUP_UNIFIED:
                *ret = strdup("unified");
                return *ret ? 0 : -ENOMEM;
        case CGROUP_HYBRID:
                *ret = strdup("hybrid (v2)");
                return *ret ? 0 : -ENOMEM;
        case CGROUP_V1:
                return asprintf(ret, "v1 (%s)", mount->controllers) >= 0 ? 0 : (*ret = NULL, -ENOMEM);
        }

        return -EINVAL;
}

int cgroup_tree_open(const char *root, const struct cgroup_tree_handler *handler, struct cgroup_tree **ret) {
        struct cgroup_tree *t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;

        t->root_fd = t->inotify_fd = -EBADF;
        t->handler = *handler;

        int r = cgroup_mount_choose(root, &t->mount, &t->root_fd);
        if (r >= 0)
                r = describe(&t->mount, &t->description);
        if (r < 0) {
                cgroup_tree_close(t);
                return r;
        }

        cgroup_watch_open(t);
        t->pidfd_supported = t->mount.mode != CGROUP_V1 && cgroup_pidfd_supported();

        *ret = t;
        return 0;
}

struct cgroup_tree *cgroup_tree_close(struct cgroup_tree *t) {
        size_t cursor = 0;

        if (!t)
                return NULL;

        for (struct cgroup_node *node; (node = hash_next(&t->by_id, &cursor));) {
                free(node->path);
                free(node);
        }
        hash_free(&t->by_id);
        hash_free(&t->by_path);
        hash_free(&t->by_wd);
        cgroup_hold_done(t);
        for (size_t i = 0; i < GONE_MAX; i++)
                free(t->gone[i].path);

        cleanup_close(&t->inotify_fd);
        cleanup_close(&t->root_fd);
        cgroup_mount_free(&t->mount);
        free(t->description);
        free(t);
        return NULL;
}

enum cgroup_mode cgroup_tree_mode(const struct cgroup_tree *t) {
        return t->mount.mode;
}

const char *cgroup_tree_root(const struct cgroup_tree *t) {
        return t->mount.point;
}

const char *cgroup_tree_description(const struct cgroup_tree *t) {
        return t->description;
}

bool cgroup_tree_exists(const struct cgroup_tree *t, uint64_t id) {
        return hash_get(&t->by_id, id) != NULL;
}

int cgroup_tree_each(struct cgroup_tree *t, void (*cgroup)(uint64_t id, void *userdata), void *userdata) {
        size_t n = 0, cursor = 0;

        /* A copy, for the callback may learn of further cgroups. */
        _cleanup_free_ uint64_t *ids = calloc(t->by_id.n + 1, sizeof(*ids));
        if (!ids)
                return -ENOMEM;

        for (const struct cgroup_node *node; (node = hash_next(&t->by_id, &cursor));)
                ids[n++] = node->id;
        for (size_t i = 0; i < n; i++)
                cgroup(ids[i], userdata);

        return 0;
}
