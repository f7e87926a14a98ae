/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/delay-slot.h"
#include "core/delay-stats.h"

/*
 * Each width is a multiple of the one before, and slots start at multiples of their width, so a slot
 * fits whole into one of the next tier.
 */
static const struct {
        uint64_t width_nsec;
        uint64_t span_nsec; /* a slot that ended longer ago belongs into the next tier */
} tier_limits[DELAY_TIER_COUNT] = {
        { 5 * NSEC_PER_SEC, 60 * NSEC_PER_SEC },
        { 30 * NSEC_PER_SEC, 900 * NSEC_PER_SEC },
        { 300 * NSEC_PER_SEC, 3600 * NSEC_PER_SEC },
};

static uint64_t later(uint64_t a, uint64_t b) {
        return a > b ? a : b;
}

static uint64_t rounded_mean(uint64_t total, uint64_t n) {
        return total / n + (total % n >= n - n / 2);
}

/* The start of the slot of that tier that holds the moment. */
static uint64_t aligned(uint64_t nsec, unsigned tier) {
        return nsec - nsec % tier_limits[tier].width_nsec;
}

/* Whether a slot with this start ended that long ago or earlier. No slot starts after now. */
static bool ended_before(uint64_t start_nsec, unsigned tier, uint64_t span_nsec, uint64_t now_nsec) {
        return now_nsec - start_nsec >= tier_limits[tier].width_nsec + span_nsec;
}

static uint64_t start_of(const struct delay_slot *slot) {
        return slot->start * DELAY_SLOT_UNIT_NSEC;
}

static int make_room(struct delay_stats *stats, struct delay_tier *t) {
        size_t allocated = (size_t) t->allocated + t->allocated / 2 + 1;
        bool in_place = t->slots == &stats->in_place;

        if (t->n < t->allocated)
                return 0;
        if (allocated > UINT16_MAX)
                return -ENOMEM;

        if (t == &stats->tiers[0] && t->allocated == 0) {
                t->slots = &stats->in_place;
                t->allocated = 1;
                return 0;
        }

        struct delay_slot *slots = reallocarray(in_place ? NULL : t->slots, allocated, sizeof(struct delay_slot));
        if (!slots)
                return -ENOMEM;

        if (in_place)
                slots[0] = stats->in_place;
        t->slots = slots;
        t->allocated = (uint16_t) allocated;
        return 0;
}

/* The slot with this start: returns 0 for one that there was, 1 for a new, empty one, or -ENOMEM. */
static int tier_slot(struct delay_stats *stats, unsigned tier, uint64_t start_nsec, struct delay_slot **ret) {
        struct delay_tier *t = &stats->tiers[tier];
        uint32_t start = (uint32_t) (start_nsec / DELAY_SLOT_UNIT_NSEC);
        size_t i = t->n;

        while (i > 0 && t->slots[i - 1].start > start)
                i--;

        if (i > 0 && t->slots[i - 1].start == start) {
                *ret = &t->slots[i - 1];
                return 0;
        }

        int r = make_room(stats, t);
        if (r < 0)
                return r;

        memmove(t->slots + i + 1, t->slots + i, (t->n - i) * sizeof(struct delay_slot));
        t->slots[i] = (struct delay_slot) { .start = start };
        t->n++;
        *ret = &t->slots[i];
        return 1;
}

static void free_slots(const struct delay_stats *stats, struct delay_tier *t) {
        if (t->slots != &stats->in_place)
                free(t->slots);
        *t = (struct delay_tier) {};
}

/* Forgets n slots from the given one on; they are empty. What has no waits left takes no memory. */
static void tier_drop(struct delay_stats *stats, unsigned tier, size_t first, size_t n) {
        struct delay_tier *t = &stats->tiers[tier];

        t->n = (uint16_t) (t->n - n);
        memmove(t->slots + first, t->slots + first + n, (t->n - first) * sizeof(struct delay_slot));

        if (t->n == 0)
                free_slots(stats, t);
}

static void tier_done(const struct delay_stats *stats, struct delay_tier *t) {
        for (size_t i = 0; i < t->n; i++)
                delay_slot_free(&t->slots[i]);
        free_slots(stats, t);
}

/* Moves the slot into the first tier that it is not too old for, or drops it. Changes nothing on -ENOMEM. */
static int slot_move_on(struct delay_stats *stats, struct delay_slot *slot, unsigned tier, uint64_t now_nsec) {
        uint64_t start;

        do {
                if (++tier == DELAY_TIER_COUNT) {
                        delay_slot_free(slot);
                        return 0;
                }
                start = aligned(start_of(slot), tier);
        } while (ended_before(start, tier, tier_limits[tier].span_nsec, now_nsec));

        struct delay_slot *coarser;
        int r = tier_slot(stats, tier, start, &coarser);
        if (r < 0)
                return r;

        if (r > 0) {
                uint32_t coarser_start = coarser->start;

                *coarser = *slot;
                coarser->start = coarser_start;
                *slot = (struct delay_slot) {};
                return 0;
        }

        r = delay_slot_merge(coarser, slot);
        if (r < 0)
                return r;

        delay_slot_free(slot);
        return 0;
}

void delay_stats_age(struct delay_stats *stats, uint64_t now_nsec) {
        stats->latest_nsec = now_nsec = later(now_nsec, stats->latest_nsec);

        for (unsigned tier = 0; tier < DELAY_TIER_COUNT; tier++) {
                struct delay_tier *t = &stats->tiers[tier];
                size_t moved = 0;

                /* When memory is short, a slot stays where it is until the next time: it counts there as well. */
                while (moved < t->n &&
                       ended_before(start_of(&t->slots[moved]), tier, tier_limits[tier].span_nsec, now_nsec) &&
                       slot_move_on(stats, &t->slots[moved], tier, now_nsec) == 0)
                        moved++;

                if (moved > 0)
                        tier_drop(stats, tier, 0, moved);
        }
}

int delay_stats_new(struct delay_stats **ret) {
        struct delay_stats *stats = calloc(1, sizeof(struct delay_stats));

        if (!stats)
                return -ENOMEM;

        *ret = stats;
        return 0;
}

int delay_stats_new_windows(struct delay_stats **ret) {
        int r = delay_stats_new(ret);

        if (r >= 0)
                (*ret)->windows_only = true;
        return r;
}

void delay_stats_done(struct delay_stats *stats) {
        for (unsigned tier = 0; tier < DELAY_TIER_COUNT; tier++)
                tier_done(stats, &stats->tiers[tier]);
        histogram_free(&stats->histogram);
}

struct delay_stats *delay_stats_free(struct delay_stats *stats) {
        if (stats) {
                delay_stats_done(stats);
                free(stats);
        }
        return NULL;
}

/* The slot for what happens now: as tier_slot(). */
static int current_slot(struct delay_stats *stats, uint64_t now_nsec, struct delay_slot **ret) {
        delay_stats_age(stats, now_nsec);
        return tier_slot(stats, 0, aligned(stats->latest_nsec, 0), ret);
}

/* Adds to the cumulative numbers and to the current slot, or to neither. */
static int account(struct delay_stats *stats, struct delay_slot *slot, unsigned bucket, const struct delay_totals *added) {
        int r = stats->windows_only ? 0 : histogram_add_to_bucket(&stats->histogram, bucket, added->waits);

        if (r < 0)
                return r;

        r = delay_slot_add(slot, bucket, added);
        if (r < 0) {
                if (!stats->windows_only)
                        stats->histogram.counts[bucket - stats->histogram.first] -= added->waits;
                return r;
        }

        delay_totals_merge(&stats->totals, added);
        return 0;
}

static int account_batch(struct delay_stats *stats, struct delay_slot *slot, const struct delay_batch *batch) {
        if (batch->waits == 0)
                return account(stats, slot, 0, &(struct delay_totals) { .total_nsec = batch->total_nsec });

        uint64_t nsec = batch->waits == 1 ? batch->total_nsec : rounded_mean(batch->total_nsec, batch->waits);
        struct delay_totals added = {
                .waits = batch->waits,
                .total_nsec = batch->total_nsec,
                .min_nsec = later(nsec, 1), /* the kernel counts no shorter wait, and 0 means none */
                .max_nsec = nsec,
                .exact_waits = batch->exact ? batch->waits : 0,
                .without_io_waits = batch->without_io ? batch->waits : 0,
        };

        return account(stats, slot, histogram_bucket_of(nsec), &added);
}

int delay_stats_add_all(
                struct delay_stats *stats, uint64_t now_nsec, const struct delay_batch batches[], size_t n, uint64_t rejected) {

        struct delay_slot *slot;
        size_t done = 0;

        if (n == 0 && rejected == 0)
                return 0;

        int r = current_slot(stats, now_nsec, &slot);
        if (r < 0)
                return r;
        bool slot_is_new = r > 0;

        for (r = 0; done < n && (r = account_batch(stats, slot, &batches[done])) >= 0; done++)
                ;
        if (r >= 0 && rejected > 0)
                r = account(stats, slot, 0, &(struct delay_totals) { .rejected_waits = rejected });

        if (r < 0 && slot_is_new && done == 0) /* the current slot is the last one */
                tier_drop(stats, 0, stats->tiers[0].n - 1U, 1);
        return r;
}

int delay_stats_add(struct delay_stats *stats, uint64_t now_nsec, const struct delay_batch *batch) {
        return delay_stats_add_all(stats, now_nsec, batch, 1, 0);
}

int delay_stats_reject(struct delay_stats *stats, uint64_t now_nsec, uint64_t waits) {
        return delay_stats_add_all(stats, now_nsec, NULL, 0, waits);
}

int delay_stats_fill(
                struct delay_stats *stats,
                uint64_t now_nsec,
                const struct delay_totals *totals,
                const uint64_t counts[static HISTOGRAM_BUCKET_COUNT]) {

        struct delay_slot added = { .totals = *totals }, *slot;
        unsigned first = 0, end = HISTOGRAM_BUCKET_COUNT;

        if (totals->waits == 0 && totals->total_nsec == 0 && totals->rejected_waits == 0)
                return 0;

        while (end > 0 && counts[end - 1] == 0)
                end--;
        while (first < end && counts[first] == 0)
                first++;
        int r = delay_slot_set_counts(&added, first, end - first, counts + first);
        if (r < 0)
                return r;

        r = current_slot(stats, now_nsec, &slot);
        if (r >= 0) {
                bool slot_is_new = r > 0;

                r = delay_slot_merge(slot, &added);
                if (r < 0 && slot_is_new)
                        tier_drop(stats, 0, stats->tiers[0].n - 1U, 1);
        }

        delay_slot_free(&added);
        return r;
}

void delay_stats_take_windows(struct delay_stats *stats, struct delay_stats *from) {
        memcpy(stats->tiers, from->tiers, sizeof(stats->tiers));
        if (from->tiers[0].slots == &from->in_place) {
                stats->in_place = from->in_place;
                stats->tiers[0].slots = &stats->in_place;
        }
        memset(from->tiers, 0, sizeof(from->tiers));
}

uint64_t delay_tier_width(unsigned tier) {
        return tier_limits[tier].width_nsec;
}

uint64_t delay_window_nearest(uint64_t span_nsec) {
        static const uint64_t windows[DELAYD_WINDOW_COUNT] = DELAYD_WINDOWS_NSEC;
        uint64_t nearest = windows[0];

        if (span_nsec == 0)
                return DELAYD_WINDOW_DEFAULT_NSEC;

        /* Half way between two, the longer one leaves nothing out. */
        for (size_t i = 1; i < DELAYD_WINDOW_COUNT; i++)
                if (span_nsec >= nearest + (windows[i] - nearest) / 2)
                        nearest = windows[i];

        return nearest;
}

/* Only the span in use, in one allocation. */
static int histogram_from_counts(const uint64_t counts[static HISTOGRAM_BUCKET_COUNT], struct histogram *ret) {
        unsigned first = 0, end = HISTOGRAM_BUCKET_COUNT;

        while (end > 0 && counts[end - 1] == 0)
                end--;
        while (first < end && counts[first] == 0)
                first++;

        struct histogram h = { .first = (uint16_t) first, .n = (uint16_t) (end - first) };
        if (h.n > 0) {
                h.counts = malloc(histogram_memory(&h));
                if (!h.counts)
                        return -ENOMEM;
                memcpy(h.counts, counts + first, histogram_memory(&h));
        }

        histogram_free(ret);
        *ret = h;
        return 0;
}

int delay_stats_window(
                const struct delay_stats *stats,
                uint64_t now_nsec,
                uint64_t window_nsec,
                struct delay_totals *ret_totals,
                struct histogram *ret_histogram) {

        uint64_t counts[HISTOGRAM_BUCKET_COUNT] = {};
        struct delay_totals totals = {};

        now_nsec = later(now_nsec, stats->latest_nsec);

        for (unsigned tier = 0; tier < DELAY_TIER_COUNT; tier++) {
                const struct delay_tier *t = &stats->tiers[tier];

                for (size_t i = t->n; i > 0; i--) {
                        if (ended_before(start_of(&t->slots[i - 1]), tier, window_nsec, now_nsec))
                                break;
                        delay_slot_sum(&t->slots[i - 1], &totals, counts);
                }

                /* Coarser tiers hold only what had left this one's span. */
                if (window_nsec <= tier_limits[tier].span_nsec)
                        break;
        }

        if (ret_histogram) {
                int r = histogram_from_counts(counts, ret_histogram);
                if (r < 0)
                        return r;
        }

        *ret_totals = totals;
        return 0;
}

void delay_summary_make(const struct delay_totals *totals, const struct histogram *h, struct delay_summary *ret) {
        *ret = (struct delay_summary) { .totals = *totals };

        if (totals->waits == 0)
                return;

        ret->mean_nsec = rounded_mean(totals->total_nsec, totals->waits);
        ret->p50_nsec = histogram_quantile(h, 0.50, totals->min_nsec, totals->max_nsec);
        ret->p90_nsec = histogram_quantile(h, 0.90, totals->min_nsec, totals->max_nsec);
        ret->p99_nsec = histogram_quantile(h, 0.99, totals->min_nsec, totals->max_nsec);
}

size_t delay_stats_memory(const struct delay_stats *stats) {
        size_t size = sizeof(struct delay_stats) + histogram_memory(&stats->histogram);

        for (unsigned tier = 0; tier < DELAY_TIER_COUNT; tier++) {
                const struct delay_tier *t = &stats->tiers[tier];

                if (t->slots != &stats->in_place)
                        size += t->allocated * sizeof(struct delay_slot);
                for (size_t i = 0; i < t->n; i++)
                        size += delay_slot_memory(&t->slots[i]);
        }

        return size;
}
