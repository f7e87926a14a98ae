/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the live tests of the cgroup tree share: cgroups of their own on the real cgroupfs. */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "kernel/cgroup-tree-internal.h"

#define LIVE_CHILDREN_MAX 16

struct event {
        char what; /* 'a'dded, 'r'emoved, 'j'oined */
        uint64_t id, parent_id;
        char *path;
};

/* What a test works with; the base is its own cgroup. */
struct live {
        bool v1;
        char *root;       /* of the hierarchy; NULL: there is none */
        char base[64];    /* "/delayd-test-PID" */
        int base_fd;      /* -1: this user may not make cgroups */
        struct cgroup_tree *tree;
        struct event *events;
        size_t n_events;
        struct hash_table own; /* ids of the test's cgroups: the rest of the host has some as well */
        pid_t children[LIVE_CHILDREN_MAX];
        size_t n_children;
};

/* Each test of this kind runs on v2 and on a v1 hierarchy. */
#define ON_BOTH(f)                                                                                \
        { #f " (v2)", f, live_set_up_v2, live_tear_down, NULL }, { #f " (v1)", f, live_set_up_v1, live_tear_down, NULL }

int live_set_up_v1(void **state);
int live_set_up_v2(void **state);
int live_tear_down(void **state);

/*
 * Runs the tests in a child, so that their cgroups go however they end. Leaves out those of a hierarchy
 * that is not there, and says so.
 */
#define LIVE_TESTS_MAX 32
int live_main(const struct CMUnitTest *tests, size_t n);

/* What a test starts with: a tree that knows the base. */
struct live *live_need(void **state);
void live_start(struct live *l);
struct cgroup_tree_handler live_handler(struct live *l);

/* A hierarchy to test on; of v1 one whose cgroups take tasks without further ado. */
char *live_find_root(bool v1);

/* Events so far, of one id or (0) of any; the last added() of a name below the base. */
size_t live_count(const struct live *l, char what, uint64_t id);
const struct event *live_added(const struct live *l, const char *name);
void live_forget(struct live *l);

/* Names are relative to the base. */
uint64_t live_make(struct live *l, const char *name);
void live_unmake(struct live *l, const char *name);
uint64_t live_id(struct live *l, const char *name);

/* Handles all events, until there is a pause; returns 1 if one of the calls did. */
int live_process(struct live *l);

/* A child in a cgroup of the test, with a second thread whose TID is returned if wanted. */
pid_t live_spawn(struct live *l, const char *name, uint32_t *ret_thread);

/* Leaves a zombie. */
void live_end(pid_t pid);
void live_reap(struct live *l, pid_t pid);

/* Runs f in a child, which may change its namespaces; it exits with LIVE_SKIP where it may not. */
void live_in_child(struct live *l, void (*f)(struct live *l));
#define LIVE_SKIP 77

/* For there: cmocka cannot report from a child. */
#define CHECK(condition)                                                                          \
        do {                                                                                      \
                if (!(condition)) {                                                               \
                        fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
                        _exit(1);                                                                 \
                }                                                                                 \
        } while (0)
