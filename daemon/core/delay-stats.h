/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/delay-slot.h"
#include "core/delay-totals.h"
#include "core/histogram.h"

/*
 * The waits of one kind in one cgroup (or of one task): cumulative since the daemon began to
 * count, and in rolling windows. Time is an argument everywhere; it must not run backwards (an
 * earlier time is taken as the latest one seen).
 *
 * Windows are made of slots that grow coarser with age: 5 s for the last minute, 30 s up to
 * fifteen minutes, 5 min up to an hour. A window is the sum of all slots that reach into it, so it
 * covers its span and at most one slot more. Slots exist only where waits were. The first one is
 * kept in place, for most tasks never have another.
 */

/*
 * A batch of waits of (about) equal length, as the delta of two samples gives them. Without waits it only
 * adds time, to waits that were counted before their time was known.
 */
struct delay_batch {
        uint64_t waits;
        uint64_t total_nsec;
        bool exact;        /* each wait is total_nsec / waits long, known exactly */
        bool without_io;
};

struct delay_tier {
        struct delay_slot *slots; /* oldest first */
        uint16_t n;
        uint16_t allocated;
};

#define DELAY_TIER_COUNT 3
#define DELAY_TIER_SLOTS_MAX UINT16_MAX

struct delay_stats {
        struct delay_totals totals;      /* cumulative */
        struct histogram histogram;      /* cumulative; empty if it is not kept */
        struct delay_tier tiers[DELAY_TIER_COUNT];
        uint64_t latest_nsec;            /* newest time seen */
        bool windows_only;               /* no cumulative histogram is kept */
        struct delay_slot in_place;      /* the only slot of tiers[0] while there is room for one */
};

int delay_stats_new(struct delay_stats **ret);
int delay_stats_new_windows(struct delay_stats **ret); /* without the cumulative histogram */
struct delay_stats *delay_stats_free(struct delay_stats *stats); /* returns NULL; NULL is fine */
void delay_stats_done(struct delay_stats *stats); /* the same for one that is part of something else */

/* Return -ENOMEM and change nothing when memory is short. */
int delay_stats_add(struct delay_stats *stats, uint64_t now_nsec, const struct delay_batch *batch);
int delay_stats_reject(struct delay_stats *stats, uint64_t now_nsec, uint64_t waits);

/* Both, with one look for the slot. On -ENOMEM the first of them may have been added. */
int delay_stats_add_all(
                struct delay_stats *stats, uint64_t now_nsec, const struct delay_batch batches[], size_t n, uint64_t rejected);

/*
 * Puts waits into the windows alone, where they are missing, as of this moment. totals says of them what counts
 * does not. Returns -ENOMEM and changes nothing when memory is short.
 */
int delay_stats_fill(
                struct delay_stats *stats,
                uint64_t now_nsec,
                const struct delay_totals *totals,
                const uint64_t counts[static HISTOGRAM_BUCKET_COUNT]);

/* Moves the windows from one to another that has none. */
void delay_stats_take_windows(struct delay_stats *stats, struct delay_stats *from);

uint64_t delay_tier_width(unsigned tier); /* of its slots */

/* Moves slots that have aged into their coarser tier and drops what is older than an hour. */
void delay_stats_age(struct delay_stats *stats, uint64_t now_nsec);

/* The kept window nearest to span_nsec (0: the default window), as its length. */
uint64_t delay_window_nearest(uint64_t span_nsec);

/*
 * Sums up a window (one of the kept ones). ret_histogram may be NULL; else it must be empty or
 * initialised to zero and is the caller's to free. Returns -ENOMEM when memory is short.
 */
int delay_stats_window(
                const struct delay_stats *stats,
                uint64_t now_nsec,
                uint64_t window_nsec,
                struct delay_totals *ret_totals,
                struct histogram *ret_histogram);

/* The numbers that people read. The three quantiles, mean and max are 0 and mean "unknown" while waits is 0. */
struct delay_summary {
        struct delay_totals totals;
        uint64_t mean_nsec;
        uint64_t p50_nsec;
        uint64_t p90_nsec;
        uint64_t p99_nsec;
};

void delay_summary_make(const struct delay_totals *totals, const struct histogram *h, struct delay_summary *ret);

size_t delay_stats_memory(const struct delay_stats *stats);
