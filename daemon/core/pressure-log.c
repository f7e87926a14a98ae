/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <math.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/pressure-log.h"

/* Busy time is weighed in whole jiffies (HZ is 100 at least), rounded down at the begin and the end of a wait. */
#define READING_SLACK_NSEC (20 * NSEC_PER_MSEC)

/* Rounded down in between as well, at each reading of the file by anyone: by half at most, unless that is every 20 ms. */
#define ROUNDING_FACTOR 2

void pressure_log_add(struct pressure_log *log, uint64_t time_nsec, uint64_t stall_nsec) {
        if (log->n > 0 && time_nsec <= log->readings[log->n - 1].time_nsec)
                return;

        /* Thins out the older half: what lies twice as far back is known half as exactly. */
        if (log->n == PRESSURE_LOG_READINGS) {
                unsigned kept = 0;

                for (unsigned i = 0; i < PRESSURE_LOG_READINGS; i++)
                        if (i >= PRESSURE_LOG_READINGS / 2 || i % 2 == 0)
                                log->readings[kept++] = log->readings[i];
                log->n = kept;
        }

        log->readings[log->n++] = (struct pressure_reading) { time_nsec, stall_nsec };
}

uint64_t pressure_log_longest_wait(
                const struct pressure_log *log,
                uint64_t since_nsec,
                uint64_t now_nsec,
                uint64_t stall_nsec,
                unsigned n_cpus) {

        unsigned i = log->n;

        while (i > 0 && log->readings[i - 1].time_nsec > since_nsec)
                i--;
        if (log->n == 0)
                return UINT64_MAX;

        /* What lies before the first reading nobody saw: it may all have been waiting. */
        const struct pressure_reading *before = &log->readings[i > 0 ? i - 1 : 0];
        uint64_t unseen = i > 0 ? 0 : before->time_nsec - since_nsec;
        if (now_nsec < before->time_nsec || stall_nsec < before->stall_nsec)
                return UINT64_MAX; /* not of the same counter */

        double grown = (double) (stall_nsec - before->stall_nsec + READING_SLACK_NSEC);
        double span = (double) (now_nsec - before->time_nsec + READING_SLACK_NSEC);

        return (uint64_t) sqrt(ROUNDING_FACTOR * grown * span * n_cpus) + READING_SLACK_NSEC + unseen;
}
