/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <delayd/kinds.h>

struct cgroup;
struct task;

/*
 * Which tasks to sample when. Sampling follows the waits: each level is sampled twice as often as the
 * next, from 10 ms to the poll interval, and tasks that have not waited for a while rarely. A task whose
 * samples held several waits goes to a faster level, one that did not wait to a slower one.
 *
 * What waits more often than every 10 ms can tell is sampled in bursts: for a share of each tenth of a
 * second, at an interval in which it ends about one wait in two samples. What a burst sees is exact, and
 * tells how the waits of the samples in between are distributed (core/wait-shape.h). The share follows
 * the CPU budget.
 */
#define SCHEDULE_LEVELS 14
#define SCHEDULE_FASTEST_NSEC (10 * UINT64_C(1000000))
#define SCHEDULE_IDLE_LEVELS 2 /* slower than the poll interval, for tasks that have not waited for long */
#define SCHEDULE_BURST_MAX 64
#define SCHEDULE_BURST_PERIOD_NSEC (100 * UINT64_C(1000000))
#define SCHEDULE_BURST_INTERVAL_MIN_NSEC UINT64_C(100000)

/*
 * At the slowest level, cgroups of this many tasks and more are looked at before their tasks are asked. A
 * wait that has ended woke its task, so where no task ran since the last time there is nothing to learn.
 * Where tasks ran but none stalled, there are no waits but those that are too short and too rare for PSI,
 * which rounds to whole jiffies (collect_percpu_times() in kernel/sched/psi.c): these can wait for the
 * last of SCHEDULE_QUIET_ROUNDS rounds.
 */
#define SCHEDULE_QUIET_TASKS_MIN 6U /* so many replies cost more than to open and read a file or two */
#define SCHEDULE_QUIET_ROUNDS 4U

enum schedule_reading {
        SCHEDULE_CPU_USAGE,    /* CPU time */
        SCHEDULE_IO_STALL,     /* "some" totals of PSI */
        SCHEDULE_MEMORY_STALL,
        SCHEDULE_READING_COUNT,
};

/* Reads what a cgroup with all below it has used up, or stalled for, so far. Returns 0 or a negative errno: ask the tasks then. */
typedef int (*schedule_read_fn)(uint64_t cgroup_key, enum schedule_reading reading, uint64_t *ret_nsec, void *userdata);

/* What was read when a cgroup's tasks at the slowest level were last asked. */
struct schedule_quiet {
        uint64_t readings[SCHEDULE_READING_COUNT];
        bool known;         /* the reading of CPU time is valid */
        bool stalls_known;  /* the other two are */
        bool ask;           /* in this round */
        uint8_t skipped;    /* rounds since, in which tasks ran */
        uint32_t round;     /* of the last judgement */
};

struct schedule_level {
        struct task **tasks;
        size_t n;
        size_t allocated;
        uint64_t interval_nsec;
        uint64_t due_nsec;
};

/*
 * Tasks that were forked a moment ago, in that order. Most are gone before their first sample would be due:
 * they are looked for first, which costs less than to ask for them, and leave nothing behind.
 */
struct schedule_young {
        struct task **tasks; /* a ring; NULL where a task left it */
        uint32_t first, end; /* numbers, which go on and on */
        uint32_t allocated;  /* a power of two */
};

struct schedule_burst {
        struct {
                struct task *task;
                uint64_t interval_nsec; /* that would show each of its waits */
        } tasks[SCHEDULE_BURST_MAX];
        unsigned n;
        double share;              /* of each period, that the budget allows */
        uint64_t period_started_nsec;
        uint64_t due_nsec;
};

struct schedule {
        struct schedule_level levels[SCHEDULE_LEVELS];
        unsigned base;    /* the level of PollInterval=, where new tasks start */
        unsigned slowest;
        unsigned fastest; /* the fastest level that the budget allows at the moment */
        struct schedule_burst burst;
        struct schedule_young young;
        size_t n;

        schedule_read_fn read; /* NULL: every task is asked in every round */
        void *read_userdata;
        bool stalls_tell;      /* PSI sees all the kinds that are collected */
        uint32_t round;        /* of the slowest level */
};

void schedule_init(struct schedule *s, uint64_t base_interval_nsec);
void schedule_done(struct schedule *s);

/* Looks at cgroups with read() before tasks that have not waited for long are asked. */
void schedule_spare_quiet(struct schedule *s, schedule_read_fn read, void *userdata, delay_kind_set kinds);

/* Another base interval; all tasks start anew at the base level. -ENOMEM: nothing has changed. */
int schedule_set_interval(struct schedule *s, uint64_t base_interval_nsec, uint64_t now_nsec);

int schedule_add(struct schedule *s, struct task *task, uint64_t now_nsec); /* at the base level; -ENOMEM */
void schedule_remove(struct schedule *s, struct task *task);

/* A task that was forked now. It is not sampled before it is taken out again and added. -ENOMEM. */
int schedule_add_young(struct schedule *s, struct task *task, uint64_t now_nsec);

/* Takes out the next one that was added before; it is not in the schedule any more. NULL: none. */
struct task *schedule_take_young(struct schedule *s, uint64_t before_nsec);

/* Tells of a sample's waits; moves the task to the level that fits, once it has been at its own for an interval. */
void schedule_adapt(struct schedule *s, struct task *task, uint64_t now_nsec, uint64_t waits);

/*
 * Keeps to the budget: share is the part of one core that the daemon used since the last call, budget what
 * it may. Bursts are given up before the faster levels are; both come back when there is room.
 */
void schedule_keep_budget(struct schedule *s, double share, double budget);
bool schedule_is_bound(const struct schedule *s); /* the budget keeps tasks from being sampled as often as they wait */

/* All tasks are due now, however rarely they wait. */
void schedule_make_due(struct schedule *s);

/* When the next sample is due; UINT64_MAX while there is no task. */
uint64_t schedule_next(const struct schedule *s);

/*
 * Collects the TIDs that are due and sets the next time of their levels. *tids is grown with
 * realloc() as needed. Returns how many there are, or -ENOMEM.
 */
ssize_t schedule_due(struct schedule *s, uint64_t now_nsec, uint32_t **tids, size_t *allocated);
