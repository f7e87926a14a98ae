/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/delay-totals.h"
#include "core/histogram.h"

/*
 * One slot of a rolling window (core/delay-stats.h). There are up to 53 for each kind of each active
 * cgroup, so they are kept small: 72 bytes, and for the span of buckets in use one byte a bucket
 * while every count is below 256, else two, four or eight. Up to eight bytes of counts are kept in the slot itself.
 */
#define DELAY_SLOT_UNIT_NSEC (5 * UINT64_C(1000000000)) /* every slot starts at a multiple of it */

#define DELAY_SLOT_FEW sizeof(void *)

struct delay_slot {
        union {
                void *counts;    /* where they take more than there is room here */
                uint8_t few[DELAY_SLOT_FEW];
        };
        uint32_t start;     /* in units of DELAY_SLOT_UNIT_NSEC */
        uint8_t first;      /* counts begin with this bucket */
        uint8_t n;
        uint8_t count_size; /* bytes a count */
        struct delay_totals totals;
};

/* Adds waits that all lie in one bucket. Returns -ENOMEM and changes nothing when memory is short. */
int delay_slot_add(struct delay_slot *slot, unsigned bucket, const struct delay_totals *added);

/* Adds all of other to slot. Returns -ENOMEM and changes nothing when memory is short. */
int delay_slot_merge(struct delay_slot *slot, const struct delay_slot *other);

/* The i-th of slot->n counts, and all of them at once, for a slot that has none yet (-ENOMEM). */
uint64_t delay_slot_count(const struct delay_slot *slot, unsigned i);
int delay_slot_set_counts(struct delay_slot *slot, unsigned first, unsigned n, const uint64_t counts[]);

/* Adds the slot to totals and its counts to those of all buckets. */
void delay_slot_sum(
                const struct delay_slot *slot,
                struct delay_totals *totals,
                uint64_t counts[static HISTOGRAM_BUCKET_COUNT]);

size_t delay_slot_memory(const struct delay_slot *slot); /* bytes on the heap */
void delay_slot_free(struct delay_slot *slot);           /* empties it; the struct itself is the caller's */
