/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files behind cgroup-tree.h share; nobody else includes it but their tests. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/hash-table.h"
#include "kernel/cgroup-tree.h"

/* Mounts (cgroup-mounts.c) */

struct cgroup_mount {
        char *point;
        char *controllers;    /* v1: those of the hierarchy, "cpu,cpuacct" or "name=systemd"; NULL on v2 */
        bool partial;         /* shows only a part of its hierarchy (a bind mount) */
        enum cgroup_mode mode;
};
void cgroup_mount_free(struct cgroup_mount *mount);

/*
 * Reads mountinfo and, for the names of v1 controllers, a /proc/PID/cgroup. Later mounts come later.
 * The caller frees ret_mounts (cgroup_mounts_free). Returns 0 or -ENOMEM; lines that make no sense are left out.
 */
int cgroup_mounts_parse(FILE *mountinfo, const char *own_cgroups, struct cgroup_mount **ret_mounts, size_t *ret_n);
void cgroup_mounts_free(struct cgroup_mount *mounts, size_t n);

/* The hierarchy to use and a descriptor (O_PATH would not do for listing) of its root; errors as in cgroup_tree_open(). */
int cgroup_mount_choose(const char *root, struct cgroup_mount *ret, int *ret_fd);

/* Lookup (cgroup-lookup.c) */

/* True if the comma-separated lists have an element in common. */
bool cgroup_lists_meet(const char *a, size_t size_a, const char *b, size_t size_b);

/*
 * Finds the path of a hierarchy (controllers NULL: v2) in the text of a /proc/PID/cgroup. Returns 0 or
 * -ENODATA.
 */
int cgroup_proc_parse(const char *text, size_t size, const char *controllers, const char **ret_path, size_t *ret_size);

/* Reads a file of /proc whole into a buffer that the caller frees, ended with NUL. Returns its size or a negative errno. */
ssize_t cgroup_read_file(const char *path, char **ret);

/* Tasks that are held (cgroup-hold.c) */

#define HELD_MAX 256U

struct held_task {
        uint32_t tid;
        int fd; /* a pidfd; negative: free */
};

bool cgroup_pidfd_supported(void);
bool cgroup_task_is_exiting(uint32_t tid); /* or is gone */
void cgroup_hold_done(struct cgroup_tree *t);

/* Nodes (cgroup-tree.c) */

struct cgroup_node {
        uint64_t id;
        uint64_t path_hash;
        char *path;
        struct cgroup_node *parent, *first_child;
        struct cgroup_node *previous, *next; /* siblings */
        struct cgroup_node *same_hash;       /* other paths with the same hash */
        struct cgroup_node *next_to_scan;
        struct cgroup_node *previous_joined, *next_joined;
        int wd;                              /* inotify watch, -1: none */
        uint32_t generation;                 /* of the last walk that saw it */
        bool to_scan;
        bool joined;                         /* is in that list */
        bool written;                        /* for somebody wrote to one of its files of members, or may have */
};

/* Cgroups removed last: exit records of their tasks may still come. */
#define GONE_MAX 1024U

struct gone_cgroup {
        uint64_t id;
        uint64_t path_hash;
        char *path;
};

struct cgroup_tree {
        struct cgroup_mount mount;
        char *description;
        struct cgroup_tree_handler handler;
        int root_fd;

        struct cgroup_node *root;
        struct hash_table by_id, by_path, by_wd;
        struct cgroup_node *to_scan; /* directories that are still to be listed */
        struct cgroup_node *joined;  /* tasks may have come into them: the handler is to be told */
        bool joined_gone;            /* into one that is gone by now */
        uint32_t generation;

        int inotify_fd;
        size_t unwatched;            /* nodes without a watch */
        bool watches_exhausted;      /* not worth another try before some are given back */

        struct gone_cgroup gone[GONE_MAX]; /* a ring */
        size_t next_gone;

        bool pidfd_supported;
        struct held_task *held;      /* a ring, made on first use */
        size_t next_held;
        struct hash_table held_by_tid;
};

/* Opens a cgroup's directory for listing. -ENOENT when it is gone, even if another one has taken its path. */
int cgroup_node_open(struct cgroup_tree *t, const struct cgroup_node *node);

struct cgroup_node *cgroup_node_by_path(const struct cgroup_tree *t, const char *path, size_t size);
struct cgroup_node *cgroup_node_child(const struct cgroup_tree *t, const struct cgroup_node *node, const char *name);

/* The id of the directory that is at the path now, known or not; 0 if there is none. */
uint64_t cgroup_stat_path(struct cgroup_tree *t, const char *path);

/* Adds the child of that name with all below it, if it exists. Returns 1 if it does, 0 if not, or a negative errno. */
int cgroup_node_discover(struct cgroup_tree *t, struct cgroup_node *node, const char *name, struct cgroup_node **ret);

/* Takes a cgroup and all below it out, and tells the handler. */
void cgroup_node_remove(struct cgroup_tree *t, struct cgroup_node *node);

/* Notes that tasks may have come into a cgroup, and tells the handler of all that were noted. */
void cgroup_node_joined(struct cgroup_tree *t, struct cgroup_node *node, bool written);
void cgroup_tree_tell_joined(struct cgroup_tree *t);

/* Watches (cgroup-watch.c) */

void cgroup_watch_open(struct cgroup_tree *t);
void cgroup_watch_add(struct cgroup_tree *t, struct cgroup_node *node, int fd);
void cgroup_watch_remove(struct cgroup_tree *t, struct cgroup_node *node);
