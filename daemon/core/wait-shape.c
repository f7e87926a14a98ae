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

        shape->counts[histogram_bucket_of(nsec)] += (uint32_t) waits;
        shape->waits += (uint32_t) waits;
        if (shape->waits <= WAIT_SHAPE_MEMORY)
                return;

        /* What was seen long ago counts less and less. */
        shape->waits = 0;
        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
                shape->counts[i] /= 2;
                shape->waits += shape->counts[i];
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
                upto = before <= rank ? 0 : (uint64_t) ceil(((double) before - rank) / step);
                if (upto > waits || before == shape->waits)
                        upto = waits;
                shares[i] = upto > given ? upto - given : 0;
                given += shares[i];
        }
}

unsigned wait_shape_spread(
                struct wait_shape *shape,
                const struct delay_batch *batch,
                uint64_t min_nsec,
                uint64_t max_nsec,
                struct delay_batch ret[static HISTOGRAM_BUCKET_COUNT]) {

        uint64_t shares[HISTOGRAM_BUCKET_COUNT], left_nsec = batch->total_nsec, left_waits = batch->waits;
        double expected = 0;
        unsigned n = 0;

        ret[0] = *batch;
        if (batch->waits < 2 || shape->waits < WAIT_SHAPE_ENOUGH)
                return 1;

        share_out(shape, batch->waits, shares);
        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
                expected += (double) shares[i] * middle_nsec(i);

        /* Waits of another order than those seen one by one: the shape does not speak of them. */
        double scale = (double) batch->total_nsec / expected;
        if (!(scale > 0.25 && scale < 4))
                return 1;

        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT && left_waits > 0; i++) {
                if (shares[i] == 0)
                        continue;

                double nsec = middle_nsec(i) * scale;
                nsec = nsec < (double) min_nsec ? (double) min_nsec : nsec > (double) max_nsec ? (double) max_nsec : nsec;

                /* The last one takes what rounding and limits left over. */
                uint64_t total = shares[i] == left_waits ? left_nsec : (uint64_t) (nsec * (double) shares[i]);
                if (total > left_nsec)
                        total = left_nsec;

                ret[n++] = (struct delay_batch) {
                        .waits = shares[i],
                        .total_nsec = total,
                        .without_io = batch->without_io,
                };
                left_nsec -= total;
                left_waits -= shares[i];
        }

        return n;
}
