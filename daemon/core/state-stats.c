/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "core/delay-slot.h"
#include "core/state-stats.h"

/* No sum gets here in the life of a host; what does is refused, so that later sums do not wrap. */
#define SUM_MAX ((uint64_t) INT64_MAX)

#define SLOT_SIZE_MIN 9U /* its start, seven totals, no counts */

/* A start or time, seven totals, two bounds and all the buckets. */
#define RECORD_MAX ((10U + HISTOGRAM_BUCKET_COUNT) * STATE_INTEGER_MAX)

static uint8_t *put_totals(uint8_t *p, const struct delay_totals *t) {
        p = state_put_at(p, t->waits);
        p = state_put_at(p, t->total_nsec);
        p = state_put_at(p, t->min_nsec);
        p = state_put_at(p, t->max_nsec);
        p = state_put_at(p, t->exact_waits);
        p = state_put_at(p, t->without_io_waits);
        return state_put_at(p, t->rejected_waits);
}

static void put_slot(struct state_writer *w, const struct delay_slot *slot, uint32_t start_before) {
        if (!state_reserve(w, RECORD_MAX))
                return;

        uint8_t *p = state_put_at(w->bytes + w->size, slot->start - start_before);
        p = put_totals(p, &slot->totals);
        p = state_put_at(p, slot->n);
        if (slot->n > 0)
                p = state_put_at(p, slot->first);
        for (unsigned i = 0; i < slot->n; i++)
                p = state_put_at(p, delay_slot_count(slot, i));

        w->size = (size_t) (p - w->bytes);
}

static void put_cumulative(struct state_writer *w, const struct delay_stats *stats) {
        const struct histogram *h = &stats->histogram;

        if (!state_reserve(w, RECORD_MAX))
                return;

        uint8_t *p = state_put_at(w->bytes + w->size, stats->latest_nsec);
        p = put_totals(p, &stats->totals);
        p = state_put_at(p, h->n);
        if (h->n > 0)
                p = state_put_at(p, h->first);
        for (unsigned i = 0; i < h->n; i++)
                p = state_put_at(p, h->counts[i]);

        w->size = (size_t) (p - w->bytes);
}

void state_put_stats(struct state_writer *w, const struct delay_stats *stats, bool windows) {
        put_cumulative(w, stats);

        for (unsigned tier = 0; tier < DELAY_TIER_COUNT && windows; tier++) {
                const struct delay_tier *t = &stats->tiers[tier];
                uint32_t before = 0;

                state_put(w, t->n);
                for (unsigned i = 0; i < t->n; i++) {
                        put_slot(w, &t->slots[i], before);
                        before = t->slots[i].start;
                }
        }
}

static void get_totals(struct state_reader *r, struct delay_totals *ret) {
        ret->waits = state_get_up_to(r, SUM_MAX);
        ret->total_nsec = state_get_up_to(r, SUM_MAX);
        ret->min_nsec = state_get_up_to(r, SUM_MAX);
        ret->max_nsec = state_get_up_to(r, SUM_MAX);
        ret->exact_waits = state_get_up_to(r, ret->waits);
        ret->without_io_waits = state_get_up_to(r, ret->waits);
        ret->rejected_waits = state_get_up_to(r, SUM_MAX);

        /* A wait shorter than the clock can tell has 1 as its shortest and 0 as its longest. */
        if (ret->waits > 0 ? ret->min_nsec == 0 || (ret->min_nsec > ret->max_nsec && ret->min_nsec > 1)
                           : ret->min_nsec > 0 || ret->max_nsec > 0)
                r->bad = true;
}

/* Buckets that exist, with the given sum; or none. */
static void get_counts(
                struct state_reader *r, uint64_t waits, bool or_none, unsigned *ret_first, unsigned *ret_n,
                uint64_t counts[static HISTOGRAM_BUCKET_COUNT]) {

        unsigned n = (unsigned) state_get_up_to(r, HISTOGRAM_BUCKET_COUNT);
        unsigned first = n > 0 ? (unsigned) state_get_up_to(r, HISTOGRAM_BUCKET_COUNT - n) : 0;
        uint64_t left = waits;

        for (unsigned i = 0; i < n; i++) {
                counts[i] = state_get_up_to(r, left);
                left -= counts[i];
        }
        if (left > 0 && !(or_none && n == 0))
                r->bad = true;

        *ret_first = first;
        *ret_n = n;
}

/* h is NULL: there need be none. */
static int get_histogram(struct state_reader *r, uint64_t waits, struct histogram *h) {
        uint64_t counts[HISTOGRAM_BUCKET_COUNT];
        unsigned first, n;

        get_counts(r, waits, !h, &first, &n, counts);
        if (r->bad)
                return -EBADMSG;
        if (!h)
                return 0;

        for (unsigned i = 0; i < n; i++) {
                /* The outer ones first, so that it is allocated once. */
                unsigned bucket = i == 0 ? n - 1 : i - 1;

                if (histogram_add_to_bucket(h, first + bucket, counts[bucket]) < 0)
                        return -ENOMEM;
        }

        return 0;
}

static int get_slot(struct state_reader *r, uint64_t width_nsec, uint64_t saved_nsec, uint32_t before, struct delay_slot *ret) {
        uint64_t counts[HISTOGRAM_BUCKET_COUNT];
        uint64_t latest = saved_nsec / DELAY_SLOT_UNIT_NSEC, start = before + state_get_up_to(r, UINT32_MAX);
        unsigned first, n;

        if (start > latest || start > UINT32_MAX || start % (width_nsec / DELAY_SLOT_UNIT_NSEC) != 0)
                r->bad = true;

        ret->start = (uint32_t) start;
        get_totals(r, &ret->totals);
        get_counts(r, ret->totals.waits, false, &first, &n, counts);
        if (r->bad)
                return -EBADMSG;

        return delay_slot_set_counts(ret, first, n, counts);
}

/* What the cumulative numbers have left: no window can hold more than they do. */
static void take_from(struct state_reader *r, struct delay_totals *left, const struct delay_totals *part) {
        if (part->waits > left->waits || part->total_nsec > left->total_nsec || part->exact_waits > left->exact_waits
            || part->without_io_waits > left->without_io_waits || part->rejected_waits > left->rejected_waits) {
                r->bad = true;
                return;
        }

        left->waits -= part->waits;
        left->total_nsec -= part->total_nsec;
        left->exact_waits -= part->exact_waits;
        left->without_io_waits -= part->without_io_waits;
        left->rejected_waits -= part->rejected_waits;
}

static int get_tier(
                struct state_reader *r, unsigned tier, uint64_t saved_nsec, struct delay_tier *t, struct delay_totals *left) {

        size_t n = state_get_count(r, SLOT_SIZE_MIN);
        uint32_t before = 0;

        if (r->bad || n > DELAY_TIER_SLOTS_MAX) {
                r->bad = true;
                return -EBADMSG;
        }
        if (n == 0)
                return 0;

        t->slots = calloc(n, sizeof(*t->slots));
        if (!t->slots)
                return -ENOMEM;
        t->allocated = (uint16_t) n;

        for (unsigned i = 0; i < n; i++) {
                struct delay_slot *slot = &t->slots[t->n++];

                int error = get_slot(r, delay_tier_width(tier), saved_nsec, before, slot);
                if (error < 0)
                        return error;

                take_from(r, left, &slot->totals);
                if (i > 0 && slot->start == before)
                        r->bad = true;
                if (r->bad)
                        return -EBADMSG;
                before = slot->start;
        }

        return 0;
}

static void free_stats(struct delay_stats **stats) {
        delay_stats_free(*stats);
}

int state_get_stats(
                struct state_reader *r, bool windows, bool windows_only, uint64_t saved_nsec, struct delay_stats **ret) {

        _cleanup_(free_stats) struct delay_stats *stats = NULL;
        int error;

        error = windows_only ? delay_stats_new_windows(&stats) : delay_stats_new(&stats);
        if (error < 0)
                return error;

        stats->latest_nsec = state_get_up_to(r, saved_nsec);
        get_totals(r, &stats->totals);
        error = get_histogram(r, stats->totals.waits, windows_only ? NULL : &stats->histogram);
        if (error < 0)
                return error;

        struct delay_totals left = stats->totals;
        for (unsigned tier = 0; tier < DELAY_TIER_COUNT && windows; tier++) {
                error = get_tier(r, tier, saved_nsec, &stats->tiers[tier], &left);
                if (error < 0)
                        return error;
        }

        *ret = TAKE_PTR(stats);
        return 0;
}

/* What the later one has more. False if it has less of something: then they have no history in common. */
static bool subtract(
                const struct delay_stats *later, const struct delay_stats *earlier,
                struct delay_totals *ret_totals, uint64_t counts[static HISTOGRAM_BUCKET_COUNT]) {

        const struct delay_totals *a = &later->totals, *b = &earlier->totals;

        if (a->waits < b->waits || a->total_nsec < b->total_nsec || a->exact_waits < b->exact_waits
            || a->without_io_waits < b->without_io_waits || a->rejected_waits < b->rejected_waits)
                return false;

        *ret_totals = (struct delay_totals) {
                .waits = a->waits - b->waits,
                .total_nsec = a->total_nsec - b->total_nsec,
                .exact_waits = a->exact_waits - b->exact_waits,
                .without_io_waits = a->without_io_waits - b->without_io_waits,
                .rejected_waits = a->rejected_waits - b->rejected_waits,
        };

        for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKET_COUNT; bucket++) {
                uint64_t x = histogram_get(&later->histogram, bucket), y = histogram_get(&earlier->histogram, bucket);

                if (x < y)
                        return false;
                counts[bucket] = x - y;
        }

        return ret_totals->exact_waits <= ret_totals->waits && ret_totals->without_io_waits <= ret_totals->waits;
}

/* As far as the buckets tell. */
static void set_extremes(
                const struct delay_totals *all, const uint64_t counts[static HISTOGRAM_BUCKET_COUNT], struct delay_totals *totals) {

        unsigned first = 0, last = HISTOGRAM_BUCKET_COUNT - 1;

        if (totals->waits == 0)
                return;

        while (counts[first] == 0)
                first++;
        while (counts[last] == 0)
                last--;

        uint64_t lower = first > 0 ? histogram_bucket_upper_nsec(first - 1) + 1 : 1;
        uint64_t upper = histogram_bucket_upper_nsec(last);

        totals->min_nsec = lower > all->min_nsec ? lower : all->min_nsec;
        totals->max_nsec = upper < all->max_nsec ? upper : all->max_nsec;
}

int state_take_windows_of_stats(struct delay_stats *stats, struct delay_stats *earlier, uint64_t now_nsec) {
        static const struct delay_stats nothing = {};
        uint64_t counts[HISTOGRAM_BUCKET_COUNT];
        struct delay_totals totals;

        if (!subtract(stats, earlier ?: &nothing, &totals, counts))
                return 0;

        if (earlier)
                delay_stats_take_windows(stats, earlier);

        set_extremes(&stats->totals, counts, &totals);
        return delay_stats_fill(stats, now_nsec, &totals, counts);
}
