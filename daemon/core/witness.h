/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

#include "core/pressure-log.h"

struct accounting;
struct delay_bounds;
struct task;
struct task_sample;

/*
 * Asks PSI about long blkio waits, on kernels where the totals may be wrong: a task that slept for ten seconds
 * and did not wait for I/O can be credited with all ten, which its own counters do not contradict, but
 * io.pressure does. The host's pressure is always logged, a cgroup's from its first long wait on.
 */
#define WITNESS_FROM_NSEC (50 * UINT64_C(1000000)) /* PSI cannot speak of single waits that are shorter */
#define WITNESS_CGROUPS_MAX 64

struct witness {
        struct pressure_log host;
        struct {
                uint64_t key;
                uint64_t asked_nsec;
        } cgroups[WITNESS_CGROUPS_MAX]; /* whose pressure is logged */
        unsigned n;
        uint64_t started_nsec; /* of the first reading */
};

/* Narrows the bounds of a blkio delta by what PSI saw. */
void witness_bounds(
                struct accounting *a,
                uint64_t now_nsec,
                const struct task *task,
                const struct task_sample *sample,
                struct delay_bounds *bounds);

void witness_tick(struct accounting *a, uint64_t now_nsec); /* once a second: takes the readings */
