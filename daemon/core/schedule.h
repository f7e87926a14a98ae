/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

struct schedule_level {
        struct task **tasks;
        size_t n;
        size_t allocated;
        uint64_t interval_nsec;
        uint64_t due_nsec;
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
        size_t n;
};

void schedule_init(struct schedule *s, uint64_t base_interval_nsec);
void schedule_done(struct schedule *s);

/* Another base interval; all tasks start anew at the base level. -ENOMEM: nothing has changed. */
int schedule_set_interval(struct schedule *s, uint64_t base_interval_nsec, uint64_t now_nsec);

int schedule_add(struct schedule *s, struct task *task, uint64_t now_nsec); /* at the base level; -ENOMEM */
void schedule_remove(struct schedule *s, struct task *task);

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
