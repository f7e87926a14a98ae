/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/histogram.h"

#define LAST_BUCKET (HISTOGRAM_BUCKET_COUNT - 1)

/*
 * floor(2^(i/4) * 10^9), four to a line, a line to the octave that ends with the bound in front.
 * Written out, because not every long double is wide enough to round all of them right; the unit
 * test proves each with integers.
 */
static const uint64_t upper_nsec[HISTOGRAM_BUCKET_COUNT] = {
        /* clang-format off */
        /* 2^-20 s */ 953,
        /* 2^-19 s */ 1134, 1348, 1603, 1907,
        /* 2^-18 s */ 2268, 2697, 3207, 3814,
        /* 2^-17 s */ 4536, 5394, 6415, 7629,
        /* 2^-16 s */ 9072, 10789, 12831, 15258,
        /* 2^-15 s */ 18145, 21579, 25662, 30517,
        /* 2^-14 s */ 36291, 43158, 51324, 61035,
        /* 2^-13 s */ 72583, 86316, 102648, 122070,
        /* 2^-12 s */ 145166, 172633, 205296, 244140,
        /* 2^-11 s */ 290333, 345266, 410593, 488281,
        /* 2^-10 s */ 580667, 690533, 821187, 976562,
        /* 2^-9 s */ 1161335, 1381067, 1642375, 1953125,
        /* 2^-8 s */ 2322670, 2762135, 3284751, 3906250,
        /* 2^-7 s */ 4645340, 5524271, 6569503, 7812500,
        /* 2^-6 s */ 9290680, 11048543, 13139006, 15625000,
        /* 2^-5 s */ 18581361, 22097086, 26278012, 31250000,
        /* 2^-4 s */ 37162722, 44194173, 52556025, 62500000,
        /* 2^-3 s */ 74325444, 88388347, 105112051, 125000000,
        /* 2^-2 s */ 148650889, 176776695, 210224103, 250000000,
        /* 2^-1 s */ 297301778, 353553390, 420448207, 500000000,
        /* 2^0 s */ 594603557, 707106781, 840896415, 1000000000,
        /* 2^1 s */ 1189207115, 1414213562, 1681792830, 2000000000,
        /* 2^2 s */ 2378414230, 2828427124, 3363585661, 4000000000,
        /* 2^3 s */ 4756828460, 5656854249, 6727171322, 8000000000,
        /* 2^4 s */ 9513656920, 11313708498, 13454342644, 16000000000,
        /* 2^5 s */ 19027313840, 22627416997, 26908685288, 32000000000,
        /* 2^6 s */ 38054627680, 45254833995, 53817370576, 64000000000,
        /* 2^7 s */ 76109255360, 90509667991, 107634741152, 128000000000,
        /* 2^8 s */ 152218510720, 181019335983, 215269482304, 256000000000,
        /* 2^9 s */ 304437021440, 362038671967, 430538964609, 512000000000,
        /* 2^10 s */ 608874042881, 724077343935, 861077929219, 1024000000000,
        /* 2^11 s */ 1217748085762, 1448154687870, 1722155858439, 2048000000000,
        /* 2^12 s */ 2435496171525, 2896309375740, 3444311716879, 4096000000000,
        UINT64_MAX,
        /* clang-format on */
};

unsigned histogram_bucket_of(uint64_t nsec) {
        /*
         * A power of two, 2^e ns, lies in bucket 4 * e - 39, because 10^9 is 2^29.897. There are
         * four bounds at most before the next one.
         */
        unsigned e = 63U - (unsigned) __builtin_clzll(nsec | 1);
        unsigned bucket = e < 10 ? 0 : 4 * e - 39;

        if (bucket >= LAST_BUCKET)
                return LAST_BUCKET;

        while (nsec > upper_nsec[bucket])
                bucket++;

        return bucket;
}

uint64_t histogram_bucket_upper_nsec(unsigned bucket) {
        return bucket < LAST_BUCKET ? upper_nsec[bucket] : UINT64_MAX;
}

double histogram_bucket_upper_sec(unsigned bucket) {
        static const double fractions[HISTOGRAM_BUCKETS_PER_OCTAVE] = {
                1,
                1.18920711500272106672, /* 2^(1/4) */
                1.41421356237309504880, /* 2^(2/4) */
                1.68179283050742908606, /* 2^(3/4) */
        };

        if (bucket >= LAST_BUCKET)
                return INFINITY;

        return ldexp(fractions[bucket % HISTOGRAM_BUCKETS_PER_OCTAVE],
                     HISTOGRAM_FIRST_OCTAVE + (int) (bucket / HISTOGRAM_BUCKETS_PER_OCTAVE));
}

/* Makes the span hold the buckets from first up to, not including, end. */
static int extend(struct histogram *h, unsigned first, unsigned end) {
        if (h->n > 0) {
                unsigned have_end = (unsigned) h->first + h->n;

                if (first >= h->first && end <= have_end)
                        return 0;

                first = first < h->first ? first : h->first;
                end = end > have_end ? end : have_end;
        }

        uint64_t *counts = realloc(h->counts, (end - first) * sizeof(uint64_t));
        if (!counts)
                return -ENOMEM;

        unsigned below = h->n > 0 ? h->first - first : 0;
        memmove(counts + below, counts, h->n * sizeof(uint64_t));
        memset(counts, 0, below * sizeof(uint64_t));
        memset(counts + below + h->n, 0, (end - first - below - h->n) * sizeof(uint64_t));

        *h = (struct histogram) { .counts = counts, .first = (uint16_t) first, .n = (uint16_t) (end - first) };
        return 0;
}

int histogram_add_to_bucket(struct histogram *h, unsigned bucket, uint64_t waits) {
        if (bucket > LAST_BUCKET)
                return -EINVAL;
        if (waits == 0)
                return 0;

        int r = extend(h, bucket, bucket + 1);
        if (r < 0)
                return r;

        h->counts[bucket - h->first] += waits;
        return 0;
}

int histogram_add(struct histogram *h, uint64_t nsec, uint64_t waits) {
        return histogram_add_to_bucket(h, histogram_bucket_of(nsec), waits);
}

int histogram_merge(struct histogram *h, const struct histogram *other) {
        if (other->n == 0)
                return 0;

        int r = extend(h, other->first, (unsigned) other->first + other->n);
        if (r < 0)
                return r;

        for (unsigned i = 0; i < other->n; i++)
                h->counts[other->first - h->first + i] += other->counts[i];

        return 0;
}

uint64_t histogram_get(const struct histogram *h, unsigned bucket) {
        return bucket >= h->first && bucket - h->first < h->n ? h->counts[bucket - h->first] : 0;
}

uint64_t histogram_waits(const struct histogram *h) {
        uint64_t waits = 0;

        for (unsigned i = 0; i < h->n; i++)
                waits += h->counts[i];

        return waits;
}

static uint64_t clamp(double nsec, uint64_t min_nsec, uint64_t max_nsec) {
        if (nsec >= (double) max_nsec)
                return max_nsec;
        if (nsec <= (double) min_nsec)
                return min_nsec;

        return (uint64_t) (nsec + 0.5);
}

/* The length that the given share of the bucket's waits does not exceed. */
static double interpolate(unsigned bucket, double share, uint64_t min_nsec, uint64_t max_nsec) {
        double lower, upper;

        /* The two outermost buckets are open; there what was seen is the end. */
        if (bucket == 0)
                lower = min_nsec > 0 ? (double) min_nsec : 1;
        else
                lower = histogram_bucket_upper_sec(bucket - 1) * 1e9;
        upper = bucket == LAST_BUCKET ? (double) max_nsec : histogram_bucket_upper_sec(bucket) * 1e9;
        if (upper <= lower)
                return upper;

        return lower * pow(upper / lower, share);
}

uint64_t histogram_quantile(const struct histogram *h, double quantile, uint64_t min_nsec, uint64_t max_nsec) {
        double rank = (quantile > 0 ? fmin(quantile, 1) : 0) * (double) histogram_waits(h);
        uint64_t below = 0;
        unsigned last = 0;

        for (unsigned i = 0; i < h->n; i++) {
                if (h->counts[i] == 0)
                        continue;

                if ((double) (below + h->counts[i]) >= rank)
                        return clamp(interpolate(h->first + i, (rank - (double) below) / (double) h->counts[i],
                                                 min_nsec, max_nsec),
                                     min_nsec, max_nsec);

                below += h->counts[i];
                last = h->first + i;
        }

        /* Only rounding of very large counts leads here. */
        return below > 0 ? clamp(interpolate(last, 1, min_nsec, max_nsec), min_nsec, max_nsec) : 0;
}

size_t histogram_memory(const struct histogram *h) {
        return h->n * sizeof(uint64_t);
}

void histogram_free(struct histogram *h) {
        free(h->counts);
        *h = (struct histogram) {};
}
