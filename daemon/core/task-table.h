/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "core/cgroup-table.h"
#include "core/delay-stats.h"
#include "core/hash-table.h"
#include "core/sample.h"

/*
 * The tasks that the accounting knows. A task is a TID plus a start time, so a TID can have more than
 * one entry: an earlier task whose exit record has not been read yet stays behind the one that took
 * its number.
 */

/* The counters of one kind that are already accounted for. */
struct task_baseline {
        uint64_t total_nsec;
        uint64_t max_nsec;
        uint64_t min_nsec;
        uint64_t refused_nsec; /* part of total_nsec that cannot have happened */
        uint32_t count;        /* modulo 2^32, as the kernel keeps it */
};

struct task {
        struct task *older;    /* another task with the same TID, one that started earlier */
        struct cgroup *cgroup; /* where waits are put that end now */

        /* Span in which the task started, CLOCK_MONOTONIC; every record narrows it. */
        uint64_t start_min_nsec;
        uint64_t start_max_nsec;

        uint32_t tid;
        uint32_t tgid;         /* 0: unknown */
        uint32_t uid;
        uint32_t index;        /* place in its polling level (core/schedule.h) */
        uint8_t level;
        uint8_t attribution;   /* enum attribution_source: how cgroup became known */
        uint16_t generation;   /* of the last sweep that saw it */

        bool exited:1;         /* its exit record is accounted; kept only so that a zombie is not taken for new */
        bool sampled:1;        /* baselines are valid */
        bool unaccounted:1;    /* forked while kernel.task_delayacct was 0: has no delays for life */
        bool in_schedule:1;
        bool did_io:1;

        uint64_t lifetime_nsec; /* at the last sample */
        uint64_t run_nsec;      /* at the last sample */
        uint64_t cpu_delay_nsec;
        uint64_t anchor_nsec;   /* lifetime at the last sample before the task last ran: no wait that ends later began before */

        struct task_history *history; /* windows per kind, only for tasks that waited */
        struct task_baseline baseline[]; /* one for each collected kind, in the kinds' order */
};

/* What ListTasks shows: kept for a while after the task is gone. */
struct task_history {
        uint32_t tid;
        uint32_t tgid;
        uint32_t uid;
        char comm[TASK_COMM_SIZE];
        struct cgroup *cgroup;
        uint64_t gone_nsec; /* 0 while the task lives */
        struct delay_stats *stats[DELAY_KIND_COUNT];
};
