/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "kernel/cgroup-tree-internal.h"

#define READ_SIZE 4096U
#define READ_MAX (256U * 1024U) /* a line for each of a dozen hierarchies, none longer than a page */

ssize_t cgroup_read_file(const char *path, char **ret) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;

        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;

        while (size < READ_MAX) {
                char *grown = realloc(text, size + READ_SIZE + 1);
                if (!grown)
                        return -ENOMEM;
                text = grown;

                ssize_t n = read(fd, text + size, READ_SIZE);
                if (n < 0)
                        return -errno;
                size += (size_t) n;
                if (n == 0)
                        break;
        }

        text[size] = '\0';
        *ret = TAKE_PTR(text);
        return (ssize_t) size;
}

bool cgroup_lists_meet(const char *a, size_t size_a, const char *b, size_t size_b) {
        for (size_t i = 0; i < size_a;) {
                const char *comma = memchr(a + i, ',', size_a - i);
                size_t length = comma ? (size_t) (comma - (a + i)) : size_a - i;

                for (size_t k = 0; k < size_b && length > 0;) {
                        const char *end = memchr(b + k, ',', size_b - k);
                        size_t other = end ? (size_t) (end - (b + k)) : size_b - k;

                        if (other == length && memcmp(a + i, b + k, length) == 0)
                                return true;
                        k += other + 1;
                }
                i += length + 1;
        }

        return false;
}

int cgroup_proc_parse(const char *text, size_t size, const char *controllers, const char **ret_path, size_t *ret_size) {
        const char *end = text + size;

        while (text < end) {
                const char *newline = memchr(text, '\n', (size_t) (end - text));
                if (!newline)
                        break; /* cut off: what is there of the path may be another cgroup's */

                /* "HIERARCHY:CONTROLLERS:PATH"; only the path may hold more colons. */
                const char *first = memchr(text, ':', (size_t) (newline - text));
                const char *second = first ? memchr(first + 1, ':', (size_t) (newline - first - 1)) : NULL;

                if (second && second + 1 < newline && second[1] == '/') {
                        size_t listed = (size_t) (second - first - 1);
                        bool ours = controllers
                                ? cgroup_lists_meet(first + 1, listed, controllers, strlen(controllers))
                                : listed == 0 && first == text + 1 && *text == '0';

                        if (ours) {
                                *ret_path = second + 1;
                                *ret_size = (size_t) (newline - second - 1);
                                return 0;
                        }
                }
                text = newline + 1;
        }

        return -ENODATA;
}

/* Follows a path that is not known yet, for it may just have been made. */
static struct cgroup_node *discover(struct cgroup_tree *t, const char *path) {
        struct cgroup_node *node = t->root;

        while (node && *path == '/') {
                char name[NAME_MAX + 1];
                size_t length = strcspn(++path, "/");

                if (length == 0 || length > NAME_MAX)
                        return NULL;
                *(char *) mempcpy(name, path, length) = '\0';
                path += length;

                /* Paths outside of the own cgroup namespace begin like that. */
                if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                        return NULL;

                struct cgroup_node *child = cgroup_node_child(t, node, name);
                if (!child && cgroup_node_discover(t, node, name, &child) <= 0)
                        return NULL;
                node = child;
        }

        return node;
}

static uint64_t find_gone(const struct cgroup_tree *t, const char *path, size_t size) {
        uint64_t hash = hash_bytes(path, size);

        for (size_t i = 0; i < GONE_MAX; i++) {
                const struct gone_cgroup *gone = &t->gone[(t->next_gone + GONE_MAX - 1 - i) % GONE_MAX];

                if (!gone->path)
                        break;
                if (gone->path_hash == hash && strlen(gone->path) == size && memcmp(gone->path, path, size) == 0)
                        return gone->id;
        }

        return 0;
}

/* A cgroup that the kernel says is deleted: if another one is at its path by now, that one is not meant. */
static uint64_t id_of_deleted(struct cgroup_tree *t, const char *path) {
        size_t size = strlen(path);

        const struct cgroup_node *node = cgroup_node_by_path(t, path, size);
        if (node && cgroup_stat_path(t, path) != node->id)
                return node->id; /* its removal has not been noticed yet */

        return find_gone(t, path, size);
}

uint64_t cgroup_tree_id_of_path(struct cgroup_tree *t, const char *path) {
        static const char suffix[] = " (deleted)";
        size_t size = strlen(path), suffix_size = sizeof(suffix) - 1;

        if (path[0] != '/')
                return 0;

        /* Before the first walk there is no root to start from. */
        const struct cgroup_node *node = cgroup_node_by_path(t, path, size);
        if (!node && t->root && size < PATH_MAX)
                node = discover(t, path);
        if (node)
                return node->id;

        uint64_t id = find_gone(t, path, size);
        if (id != 0 || size <= suffix_size || strcmp(path + size - suffix_size, suffix) != 0)
                return id;

        _cleanup_free_ char *alive = strndup(path, size - suffix_size);
        return alive ? id_of_deleted(t, alive) : 0;
}

int cgroup_tree_of_task(struct cgroup_tree *t, uint32_t tid, uint64_t *ret_id) {
        _cleanup_free_ char *text = NULL;
        const char *found;
        char path[32];
        size_t length;

        snprintf(path, sizeof(path), "/proc/%u/cgroup", tid);
        ssize_t size = cgroup_read_file(path, &text);
        if (size < 0)
                return (int) size;
        if (size == 0)
                return -ESRCH;

        int r = cgroup_proc_parse(text, (size_t) size, t->mount.controllers, &found, &length);
        if (r < 0)
                return r;

        if (t->mount.mode == CGROUP_V1 && length == 1 && cgroup_task_is_exiting(tid))
                return -ENODATA;

        text[found - text + (ptrdiff_t) length] = '\0';
        uint64_t id = cgroup_tree_id_of_path(t, found);
        if (id == 0)
                return -ENODATA;

        *ret_id = id;
        return 0;
}
