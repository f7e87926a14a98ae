/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <delayd/limits.h>

/*
 * A log-scale histogram of waits: four buckets an octave from 2^-20 s to 2^12 s, bounds 2^(i/4)
 * seconds, which is Prometheus' native schema 2 exactly. Bucket 0 holds what is at or below
 * 2^-20 s, the last one what is above 2^12 s; every other bucket holds (lower, upper].
 * Only the span between the lowest and the highest bucket in use takes memory.
 */
#define HISTOGRAM_BUCKETS_PER_OCTAVE 4
#define HISTOGRAM_FIRST_OCTAVE (-20)
#define HISTOGRAM_LAST_OCTAVE 12
#define HISTOGRAM_BUCKET_COUNT                                                                    \
        ((HISTOGRAM_LAST_OCTAVE - HISTOGRAM_FIRST_OCTAVE) * HISTOGRAM_BUCKETS_PER_OCTAVE + 2)

struct histogram {
        uint64_t *counts;  /* counts[i] belongs to bucket first + i; NULL while empty */
        uint16_t first;
        uint16_t n;
};

/* The bucket that a wait of this length falls into. */
unsigned histogram_bucket_of(uint64_t nsec);

/* The largest whole number of nanoseconds that still falls into the bucket; UINT64_MAX for the last. */
uint64_t histogram_bucket_upper_nsec(unsigned bucket);

/* The exact bound in seconds, 2^(i/4); +Inf for the last bucket. */
double histogram_bucket_upper_sec(unsigned bucket);

/*
 * Adds waits to the bucket of nsec. Returns -ENOMEM and changes nothing when memory is short, -EINVAL
 * for a bucket that does not exist.
 */
int histogram_add(struct histogram *h, uint64_t nsec, uint64_t waits);
int histogram_add_to_bucket(struct histogram *h, unsigned bucket, uint64_t waits);

/* Adds all of other to h. Returns -ENOMEM and changes nothing when memory is short. */
int histogram_merge(struct histogram *h, const struct histogram *other);

uint64_t histogram_get(const struct histogram *h, unsigned bucket);
uint64_t histogram_waits(const struct histogram *h);

/*
 * The length below which the given share of the waits lies (0 <= quantile <= 1), interpolated on the
 * log scale inside its bucket and clamped to [min_nsec, max_nsec], the smallest and the largest wait
 * seen. 0 when the histogram is empty.
 */
uint64_t histogram_quantile(const struct histogram *h, double quantile, uint64_t min_nsec, uint64_t max_nsec);

size_t histogram_memory(const struct histogram *h); /* bytes on the heap */
void histogram_free(struct histogram *h);           /* empties it; the struct itself is the caller's */
