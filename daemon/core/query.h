/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "core/accounting.h"
#include "core/delay-stats.h"

/*
 * Questions that people ask of the accounting, the same for HTTP, D-Bus and anything else that shows
 * it. Rows point into the accounting and are valid until it next changes.
 */
enum query_sort {
        QUERY_SORT_TOTAL, /* most delayed first: the default */
        QUERY_SORT_WAITS,
        QUERY_SORT_MEAN,
        QUERY_SORT_P50,
        QUERY_SORT_P90,
        QUERY_SORT_P99,
        QUERY_SORT_MAX,
        QUERY_SORT_NAME,  /* "cgroup" (cgroups) or "comm" (tasks), ascending */
};

struct query {
        uint64_t window_nsec;      /* any span; the nearest kept window is used. 0: the default */
        delay_kind_set kinds;      /* 0: all that are collected */
        enum delay_kind sort_kind; /* must be in kinds */
        enum query_sort sort;
        size_t limit;              /* rows; 0: all */
        bool recursive;            /* cgroups: with their subtrees, which are sorted by */
        bool only_uid;             /* tasks: those of uid alone */
        uint32_t uid;
};

/* The kind that is sorted by where nobody named one: blkio if it is there, else the first. */
enum delay_kind query_default_sort_kind(delay_kind_set kinds);

/* Parses the texts that users give (NULL or "" for the defaults); error texts are for them. Return 0 or -EINVAL. */
int query_parse_kinds(const char *s, delay_kind_set collected, struct query *query, const char **ret_error);
int query_parse_sort(const char *s, struct query *query, const char **ret_error);

/*
 * Cgroups are all that are tracked, removed ones too, and the special entries when they hold waits of
 * the window. Equal rows are ordered by name, so that the order is stable.
 */
struct cgroup_row {
        const struct cgroup *cgroup;
        struct delay_summary delays[DELAY_KIND_COUNT]; /* of the kinds asked for, and of the cgroup alone */
        const struct cgroup_subtree *subtree;          /* in a recursive query */
};

/* A cgroup and all below it, each counted once. */
struct cgroup_subtree {
        uint32_t tasks;
        uint32_t unaccounted_tasks;
        struct delay_summary delays[DELAY_KIND_COUNT];
};

struct task_row {
        uint32_t tid;
        uint32_t tgid;      /* 0: unknown */
        uint32_t uid;
        const char *comm;   /* raw bytes */
        const struct cgroup *cgroup; /* the cgroup that it is or was last in */
        enum attribution_source attribution; /* how that is known */
        bool alive;
        struct delay_summary delays[DELAY_KIND_COUNT];
};

/*
 * Return 0 or -ENOMEM. The window used is stored in *ret_window_nsec; the rows are the caller's to
 * free(), subtrees with them. Tasks are only those that waited in the window, dead ones among them.
 */
int query_cgroups(
                const struct accounting *a,
                uint64_t now_nsec,
                const struct query *query,
                uint64_t *ret_window_nsec,
                struct cgroup_row **ret_rows,
                size_t *ret_n);
int query_tasks(
                const struct accounting *a,
                uint64_t now_nsec,
                const struct query *query,
                uint64_t *ret_window_nsec,
                struct task_row **ret_rows,
                size_t *ret_n);

/* The histogram of one cgroup and kind in a window; the caller frees ret_histogram. Returns 0 or -ENOMEM. */
int query_histogram(
                const struct accounting *a,
                uint64_t now_nsec,
                const struct cgroup *cgroup,
                enum delay_kind kind,
                uint64_t window_nsec,
                bool recursive,
                uint64_t *ret_window_nsec,
                struct delay_totals *ret_totals,
                struct histogram *ret_histogram);
