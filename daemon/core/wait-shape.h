/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

#include "core/delay-stats.h"
#include "core/histogram.h"

/*
 * How the waits of one task are distributed, as far as they were seen one by one. A sample that holds
 * many waits tells only their number and their sum; with a shape they are spread as the task's single
 * waits are, scaled so that number and sum stay what the kernel counted.
 */
struct wait_shape {
        uint32_t counts[HISTOGRAM_BUCKET_COUNT];
        uint32_t waits;  /* sum of counts */
        uint16_t highest; /* bucket in use */
        uint32_t phase;  /* where the next spread begins between two ranks, in 2^-32 */
};

#define WAIT_SHAPE_ENOUGH 64    /* waits without which a shape says nothing */
#define WAIT_SHAPE_MEMORY 8192  /* waits after which half of them are forgotten */
#define WAIT_SHAPE_OUTLIERS_MAX 8
#define WAIT_SHAPE_SPREAD_MAX (HISTOGRAM_BUCKET_COUNT + WAIT_SHAPE_OUTLIERS_MAX)

/* Learns from waits of (about) this length. */
void wait_shape_learn(struct wait_shape *shape, uint64_t nsec, uint64_t waits);

/*
 * Spreads a batch into several whose waits and total_nsec sum up to the
 * batch's. min_nsec and max_nsec are what the task's single waits cannot go beyond (0 and UINT64_MAX: not
 * known). Returns how many there are; 1, the batch itself, if the shape does not know enough.
 */
unsigned wait_shape_spread(
                struct wait_shape *shape,
                const struct delay_batch *batch,
                uint64_t min_nsec,
                uint64_t max_nsec,
                struct delay_batch ret[static WAIT_SHAPE_SPREAD_MAX]);
