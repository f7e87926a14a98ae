/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <math.h>
#include <string.h>

#include "core/wait-shape.h"

/* A wait of a bucket, for all of them: the middle on the log scale. */
static double middle_nsec(unsigned bucket) {
        double upper;

        if (bucket == 0)
                return (double) histogram_bucket_upper_nsec(0) / 2;

        upper = bucket == HISTOGRAM_BUCKET_COUNT - 1 ? histogram_bucket_upper_sec(bucket - 1) * M_SQRT2
                                                     : histogram_bucket_upper_sec(bucket);
        return upper * 1e9 * 0.9170040432046712; /* 2^(-1/8): half a bucket down */
}

void wait_shape_learn(struct wait_shape *shape, uint64_t nsec, uint64_t waits) {
        if (waits > WAIT_SHAPE_MEMORY / 4)
                waits = WAIT_SHAPE_MEMORY / 4;

        unsigned bucket = histogram_bucket_of(nsec);
        shape->counts[bucket] += (uint32_t) waits;
        if (bucket > shape->highest)
                shape->highest = (uint16_t) bucket;
        shape->waits += (uint32_t) waits;
        if (shape->waits <= WAIT_SHAPE_MEMORY)
                return;

        /* What was seen long ago counts less and less. */
        shape->waits = 0;
        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
                shape->counts[i] /= 2;
                shape->waits += shape->counts[i];
                if (shape->counts[i] > 0)
                        shape->highest = (uint16_t) i;
        }
}

/* How many of the waits fall to each bucket: at evenly spaced ranks, which begin a golden section further each time. */
static void share_out(struct wait_shape *shape, uint64_t waits, uint64_t shares[static HISTOGRAM_BUCKET_COUNT]) {
        double step = (double) shape->waits / (double) waits;
        double rank = step * (double) shape->phase / 4294967296.0;
        uint64_t before = 0, given = 0;

        shape->phase += UINT32_C(2654435769);
        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
                uint64_t upto;

                before += shape->counts[i];
                /* Ranks below before: k with rank + k * step < before. */
                upto = (double) before <= rank ? 0 : (uint64_t) ceil(((double) before - rank) / step);
                if (upto > waits || before == shape->waits)
                        upto = waits;
                shares[i] = upto > given ? upto - given : 0;
                given += shares[i];
        }
}

/* The bucket of the median wait, and the highest bucket, among the shares. */
static unsigned median_bucket(const uint64_t shares[static HISTOGRAM_BUCKET_COUNT], uint64_t waits) {
        uint64_t before = 0;
        unsigned i = 0;

        while (i < HISTOGRAM_BUCKET_COUNT - 1 && (before += shares[i]) * 2 < waits)
                i++;
        return i;
}

static unsigned highest_bucket(const uint64_t shares[static HISTOGRAM_BUCKET_COUNT]) {
        unsigned i = HISTOGRAM_BUCKET_COUNT - 1;

        while (i > 0 && shares[i] == 0)
                i--;
        return i;
}

/*
 * The shares are of the average batch, this one has its own sum. A sum that is far off comes from waits far
 * above the others, of which this batch has more or fewer: takes such waits out (their lengths go into
 * outliers), or away. What difference remains is small and is scaled over all.
 */
static unsigned fit_outliers(
                uint64_t shares[static HISTOGRAM_BUCKET_COUNT],
                const struct delay_batch *batch,
                double longest,
                double outliers[static WAIT_SHAPE_OUTLIERS_MAX]) {

        unsigned median = median_bucket(shares, batch->waits), n = 0;
        double missing = (double) batch->total_nsec;

        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
                missing -= (double) shares[i] * middle_nsec(i);

        for (unsigned top; (top = highest_bucket(shares)) > median; shares[top]--, shares[median]++) {
                double surplus = middle_nsec(top) - middle_nsec(median);

                if (middle_nsec(top) < 4 * middle_nsec(median) || -missing < surplus * 0.7)
                        break;
                missing += surplus;
        }

        while (n < WAIT_SHAPE_OUTLIERS_MAX) {
                unsigned top = highest_bucket(shares);
                double nsec = middle_nsec(top) + missing;

                if (missing < 2 * middle_nsec(top) || shares[top] == 0)
                        break;
                if (nsec > longest)
                        nsec = longest;
                if (nsec <= middle_nsec(top))
                        break;
                missing -= nsec - middle_nsec(top);
                outliers[n++] = nsec;
                shares[top]--;
        }

        return n;
}

/* Writes down the shares, scaled to the sum that is left, and behind them the outliers. The last batch takes what rounding left over. */
struct spread {
        const struct delay_batch *batch;
        struct delay_batch *ret;
        unsigned n;
        uint64_t left_waits, left_nsec;
};

static void spread_add(struct spread *s, uint64_t waits, double nsec) {
        uint64_t total = waits == s->left_waits ? s->left_nsec : (uint64_t) (nsec * (double) waits);

        if (total > s->left_nsec)
                total = s->left_nsec;

        s->ret[s->n++] = (struct delay_batch) {
                .waits = waits,
                .total_nsec = total,
                .without_io = s->batch->without_io,
        };
        s->left_waits -= waits;
        s->left_nsec -= total;
}

unsigned wait_shape_spread(
                struct wait_shape *shape,
                const struct delay_batch *batch,
                uint64_t min_nsec,
                uint64_t max_nsec,
                struct delay_batch ret[static WAIT_SHAPE_SPREAD_MAX]) {

        struct spread s = { .batch = batch, .ret = ret, .left_waits = batch->waits, .left_nsec = batch->total_nsec };
        double outliers[WAIT_SHAPE_OUTLIERS_MAX], expected = 0, rest = (double) batch->total_nsec;
        uint64_t shares[HISTOGRAM_BUCKET_COUNT];

        ret[0] = *batch;
        if (batch->waits < 2 || shape->waits < WAIT_SHAPE_ENOUGH)
                return 1;

        double longest = middle_nsec(shape->highest);
        if (longest > (double) max_nsec)
                longest = (double) max_nsec;

        share_out(shape, batch->waits, shares);
        unsigned n_outliers = fit_outliers(shares, batch, longest, outliers);
        for (unsigned i = 0; i < n_outliers; i++)
                rest -= outliers[i];
        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
                expected += (double) shares[i] * middle_nsec(i);

        /* Waits of another order than those seen one by one: the shape does not speak of them. */
        double scale = expected > 0 ? rest / expected : 1;
        if (!(scale > 0.25 && scale < 4))
                return 1;

        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
                if (shares[i] > 0) {
                        double nsec = middle_nsec(i) * scale;

                        spread_add(&s, shares[i], nsec < (double) min_nsec ? (double) min_nsec
                                                  : nsec > (double) max_nsec ? (double) max_nsec : nsec);
                }

        /* Found from the longest on. */
        for (unsigned i = n_outliers; i > 0; i--)
                spread_add(&s, 1, outliers[i - 1]);

        return s.n;
}
