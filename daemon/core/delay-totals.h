/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

/* What a histogram alone does not say. All counts are of waits. */
struct delay_totals {
        uint64_t waits;
        uint64_t total_nsec;
        uint64_t min_nsec;            /* of exact waits and of interval means; 0 while there are none */
        uint64_t max_nsec;
        uint64_t exact_waits;         /* waits whose own length is known, not only the mean of several */
        uint64_t without_io_waits;    /* waits of tasks that did no I/O */
        uint64_t rejected_waits;      /* waits with impossible lengths: in no other number here */
};

/* Adds other to totals, as if the waits had been counted there. */
static inline void delay_totals_merge(struct delay_totals *totals, const struct delay_totals *other) {
        totals->waits += other->waits;
        totals->total_nsec += other->total_nsec;
        if (other->min_nsec > 0 && (totals->min_nsec == 0 || other->min_nsec < totals->min_nsec))
                totals->min_nsec = other->min_nsec;
        if (other->max_nsec > totals->max_nsec)
                totals->max_nsec = other->max_nsec;
        totals->exact_waits += other->exact_waits;
        totals->without_io_waits += other->without_io_waits;
        totals->rejected_waits += other->rejected_waits;
}
