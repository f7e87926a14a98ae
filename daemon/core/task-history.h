/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/cgroup-table.h"
#include "core/delay-stats.h"
#include "core/sample.h"
#include "core/task-table.h"
#include "core/wait-shape.h"

/* What ListTasks shows of a task that waited; kept for a while after the task is gone. */
struct task_history {
        uint32_t tid;
        uint32_t tgid;
        uint32_t uid;
        char comm[TASK_COMM_SIZE]; /* as of its last record; raw bytes */
        struct cgroup *cgroup;     /* where it last waited */
        uint8_t attribution;       /* enum attribution_source: how that was known */
        uint64_t gone_nsec;        /* 0 while the task lives */
        struct delay_stats *stats[DELAY_KIND_COUNT];
        struct wait_shape *shapes[DELAY_KIND_COUNT]; /* only of tasks that are sampled in bursts */
        struct delay_stats first;  /* one of stats, as most have one only */
        struct task_history *next; /* of those that are out of use */
};

struct task_history *task_history_free(struct task_history *history); /* returns NULL */
void task_history_set_cgroup(struct task_history *history, struct cgroup *cgroup);

/*
 * Histories of tasks that are gone, oldest first. Bounded: when it is full, the half with the smallest
 * delays is dropped, for those who ask want the most delayed.
 */
#define HISTORY_LIST_MAX 4096

struct history_list {
        struct task_history **items;
        size_t n;
        size_t allocated;
        uint64_t dropped; /* to make room */
        struct task_history *spare; /* of those that were dropped: most of the next ones are made of them */
        unsigned n_spare;
};

/*
 * The stats of one kind of a task, made on first use; those of a task that left a moment ago are found
 * in the list. Renews what the sample says of the task. NULL when memory is short.
 */
struct delay_stats *task_history_stats(
                struct task *task, struct history_list *gone, const struct task_sample *sample, enum delay_kind kind);

/* The shape of the waits of a task that has a history, made on first use. NULL without one, and when memory is short. */
struct wait_shape *task_history_shape(struct task *task, enum delay_kind kind);

/* Takes over the history of a task that is gone, if it has one. Never fails: without memory the history is dropped. */
void history_list_take(struct history_list *list, uint64_t now_nsec, struct task *task);

/* Takes over one that nobody has; gone_nsec is set, and not before that of the last one. */
void history_list_append(struct history_list *list, struct task_history *history);

/* Drops what no window reaches any more, and what belongs to removed cgroups whose retention is over. */
void history_list_age(struct history_list *list, uint64_t now_nsec, uint64_t retention_nsec);

void history_list_done(struct history_list *list);
