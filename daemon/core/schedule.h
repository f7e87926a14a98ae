/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct task;

/*
 * Which tasks to sample when. Sampling follows the waits: level 0 is sampled every 10 ms, each next
 * level half as often, the last one every idle interval. A task whose delta held several waits goes
 * to a faster level, one that did not wait to a slower one.
 */
#define SCHEDULE_LEVELS 12
#define SCHEDULE_FASTEST_NSEC (10 * UINT64_C(1000000))

struct schedule_level {
        struct task **tasks;
        size_t n;
        size_t allocated;
        uint64_t interval_nsec;
        uint64_t due_nsec;
};

struct schedule {
        struct schedule_level levels[SCHEDULE_LEVELS];
        unsigned base;    /* the level of PollInterval=, where new tasks start */
        unsigned fastest; /* the fastest level that the budget allows at the moment */
        size_t n;
};

void schedule_init(struct schedule *s, uint64_t base_interval_nsec);
void schedule_done(struct schedule *s);

int schedule_add(struct schedule *s, struct task *task); /* at the base level; -ENOMEM */
void schedule_remove(struct schedule *s, struct task *task);

/* Moves the task according to the number of waits that its last delta held. */
void schedule_adapt(struct schedule *s, struct task *task, uint64_t waits);

/* When the next level is due; UINT64_MAX while there is no task. */
uint64_t schedule_next(const struct schedule *s);

/*
 * Collects the TIDs that are due and sets the next time of their levels. *tids is grown with
 * realloc() as needed. Returns how many there are, or -ENOMEM.
 */
ssize_t schedule_due(struct schedule *s, uint64_t now_nsec, uint32_t **tids, size_t *allocated);
