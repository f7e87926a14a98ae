/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "core/cgroup-table.h"
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
        bool went_down;        /* the last sample was below this one */
        bool unknown;          /* the kind was not collected when the task was last sampled: the next sample begins anew */
};

struct task_history;

struct task {
        struct task *older;    /* another task with the same TID, one that started earlier */
        struct task *leaving;  /* next in the list of entries that are about to be forgotten */
        struct cgroup *cgroup; /* where waits are put that end now */
        struct task_history *history; /* only for tasks that waited */

        /* Span in which the task started, CLOCK_MONOTONIC; every record narrows it. */
        uint64_t start_min_nsec;
        uint64_t start_max_nsec;

        uint64_t lifetime_nsec;  /* these three at the last sample */
        uint64_t run_nsec;
        uint64_t cpu_delay_nsec;
        uint64_t anchor_nsec;    /* lifetime at the last sample before the task last ran */

        uint32_t tid;
        uint32_t tgid;           /* 0: unknown */
        uint32_t ppid;           /* process of the parent, as last told; 0: unknown */
        uint32_t uid;
        uint32_t threads;        /* of a process: entries of its other threads */
        uint32_t index;          /* place in its polling level (core/schedule.h) */
        uint32_t recent_waits;   /* since level_nsec */
        uint32_t parent_tgid;    /* the process that forked it, or its own for a thread; 0: unknown */
        uint64_t level_nsec;     /* when its level was last judged */
        uint16_t generation;     /* of the last sweep that saw it */
        uint8_t level;
        uint8_t attribution;     /* enum attribution_source: how cgroup became known */

        /* Of a process, about its children (core/attribution.c). */
        uint8_t forks;           /* modulo 256 */
        uint8_t scatters;        /* above 0: some are elsewhere than itself */
        bool proven:1;           /* one was found where itself is */

        bool exited:1;           /* its exit record is accounted: kept so that a late reply is not taken for a new task */
        bool is_leaving:1;       /* in the list */
        bool sampled:1;          /* baselines are valid */
        bool unaccounted:1;      /* forked while kernel.task_delayacct was 0: has no delays for life */
        bool scheduled:1;
        bool in_burst:1;
        bool young:1;            /* scheduled, but not to be sampled yet; index is its number then */
        uint8_t settling:2;      /* moved to another cgroup, and has to run twice before that cgroup's pressure speaks for it */
        bool forked:1;           /* made by its fork event, of which there is only one */
        bool inherited:1;        /* its cgroup is its parent's, and nobody has looked */
        bool to_check:1;         /* somebody should, at its exit */
        bool doubtful:1;         /* its cgroup may be another by now */

        uint64_t leaving_nsec;   /* when it joined the list */

        struct task_baseline baseline[]; /* one for each collected kind, in the kinds' order */
};

/* Entries stay this long after their exit or replacement, for records that are still on their way. */
#define TASK_LEAVING_NSEC (2 * UINT64_C(1000000000))

struct task_table {
        struct hash_table by_tid; /* the newest task of each TID */
        unsigned n_kinds;
        size_t n_live;            /* entries that are not leaving */
        struct task *leaving_first, *leaving_last;
        struct task *spare;       /* freed entries, linked by older: most of the next ones are made of them */
        unsigned n_spare;
};

/* The newest live entry of a TID; NULL when there is none. */
struct task *task_newest(const struct task_table *t, uint32_t tid);

/*
 * The entry that a record of a live task belongs to, or that an exit record belongs to (then the
 * oldest that fits best, for exits come in order on each CPU). NULL when the record is of a task that is not known.
 */
struct task *task_of_live_sample(const struct task_table *t, const struct task_sample *sample);
struct task *task_of_exit_sample(const struct task_table *t, const struct task_sample *sample);

/*
 * True when the sample's task is over, according to its record or to the sweeps, which do not see zombies; but
 * the kernel still answers for it.
 */
bool task_is_ghost(const struct task_table *t, const struct task_sample *sample);

/*
 * Makes an entry. It becomes the newest of its TID, and one that was there before is leaving from now on;
 * unless that one started later, as when an exit record was read late. NULL when memory is short.
 */
struct task *task_add(
                struct task_table *t,
                uint64_t now_nsec,
                uint32_t tid,
                uint32_t tgid,
                uint64_t start_min_nsec,
                uint64_t start_max_nsec);

/*
 * Makes an entry as it was before a restart: live ones first, then those that were leaving, in the order in
 * which they left. Returns 0, -EEXIST for a second live entry of a TID, -ENOMEM.
 */
int task_restore(
                struct task_table *t,
                uint32_t tid,
                uint32_t tgid,
                uint64_t start_min_nsec,
                uint64_t start_max_nsec,
                bool leaving,
                struct task **ret);

/* Narrows the span in which the task started. */
void task_narrow_start(struct task *task, uint64_t start_min_nsec, uint64_t start_max_nsec);

void task_set_tgid(struct task_table *t, struct task *task, uint32_t tgid);

/* Gives the task another TID (exec from a thread that is not the leader). The number's last owner is leaving. Returns 0 or -ENOMEM. */
int task_rename(struct task_table *t, uint64_t now_nsec, struct task *task, uint32_t tid);

/* Takes the task out of use; its entry is freed later by task_expire(). */
void task_leave(struct task_table *t, uint64_t now_nsec, struct task *task);

/* Frees a task of which nothing will come any more. It must not be leaving. */
void task_forget(struct task_table *t, struct task *task);

/* Frees entries that left before the given time (UINT64_MAX: all of them). */
void task_expire(struct task_table *t, uint64_t before_nsec);

/* Walks live entries in no order: *cursor = 0 at first. Nothing may be added or freed meanwhile. */
struct task *task_next(const struct task_table *t, size_t *cursor);

void task_table_done(struct task_table *t);

/* Puts the task into another cgroup, or into the first. */
void task_set_cgroup(struct task *task, struct cgroup *cgroup, uint8_t attribution);
