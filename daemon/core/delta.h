/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/accounting.h"
#include "core/delay-stats.h"
#include "core/sample.h"
#include "core/task-table.h"

/*
 * What changed in one kind between two samples of the same task, split into batches of waits whose
 * length is known (exactly, or as the mean of what remains), and what had to be refused.
 */
#define DELTA_BATCHES_MAX 3

struct delay_delta {
        struct delay_batch batches[DELTA_BATCHES_MAX];
        unsigned n_batches;
        uint64_t waits;          /* in the batches */
        uint64_t refused_waits;
        uint64_t refused_nsec;
        enum reject_reason reason; /* valid if refused_waits or backwards */
        bool backwards;          /* the counters went down: nothing is taken, the baseline stays */
        bool carried;            /* a torn pair: nothing is taken, the next sample has it */
};

/* What a delta of one kind cannot exceed (core/plausibility.h). */
struct delay_bounds {
        uint64_t single_nsec; /* longest possible single wait */
        uint64_t sum_nsec;    /* longest possible sum of the waits in this delta */
};

/*
 * Computes the delta from baseline to now and moves the baseline on. has_extremes: now.max_nsec and
 * min_nsec are valid. final: no further sample of the task will come, so nothing can be carried.
 */
void delta_take(
                struct task_baseline *baseline,
                const struct delay_counters *now,
                const struct delay_bounds *bounds,
                bool has_extremes,
                bool final,
                struct delay_delta *ret);
