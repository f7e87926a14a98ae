/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Readings of the "some" total of io.pressure, dense for the last minute and sparser with age: a
 * witness for waits that the kernel's fault of 6.12 does not touch, since PSI keeps time of its own.
 */
#define PRESSURE_LOG_READINGS 64

struct pressure_log {
        struct pressure_reading {
                uint64_t time_nsec;
                uint64_t stall_nsec;
        } readings[PRESSURE_LOG_READINGS]; /* oldest first */
        unsigned n;
};

/* Times must ascend; a reading at an earlier or the same time is ignored. */
void pressure_log_add(struct pressure_log *log, uint64_t time_nsec, uint64_t stall_nsec);

/*
 * The longest single wait that can have been between since_nsec and the reading (now_nsec, stall_nsec). PSI
 * averages over CPUs by their busy time, in whole jiffies (collect_percpu_times() in kernel/sched/psi.c), so a
 * wait of t on one of n CPUs adds at least t * t / (n * span) to the total, less what is rounded down. Many short
 * waits may be rounded away altogether: their sum has no such bound. Time before the first reading
 * counts in full. UINT64_MAX: there is no reading.
 */
uint64_t pressure_log_longest_wait(
                const struct pressure_log *log,
                uint64_t since_nsec,
                uint64_t now_nsec,
                uint64_t stall_nsec,
                unsigned n_cpus);
