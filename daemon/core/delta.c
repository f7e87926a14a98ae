/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "core/delta.h"

static void add_batch(struct delay_delta *delta, uint64_t waits, uint64_t total_nsec, bool exact) {
        delta->batches[delta->n_batches++] = (struct delay_batch) {
                .waits = waits,
                .total_nsec = total_nsec,
                .exact = exact,
        };
        delta->waits += waits;
}

/*
 * Splits accepted waits. A lifetime maximum that rose, or a minimum that fell, in this delta is the
 * exact length of one of its waits; what then remains is exact too if it is a single wait.
 */
static void split(struct delay_delta *delta, uint64_t waits, uint64_t total, uint64_t new_max, uint64_t new_min) {
        uint64_t rest = waits, rest_total = total;

        if (waits == 0) {
                add_batch(delta, 0, total, false);
                return;
        }

        if (waits > 1 && new_max > 0 && new_max <= rest_total) {
                rest--;
                rest_total -= new_max;
        } else
                new_max = 0;

        if (rest > 1 && new_min > 0 && new_min <= rest_total / rest) {
                rest--;
                rest_total -= new_min;
        } else
                new_min = 0;

        /* Extremes that do not fit the sums are not to be believed. */
        if (new_max > 0 && rest > 0 && rest_total / rest > new_max) {
                add_batch(delta, waits, total, waits == 1);
                return;
        }

        if (new_max > 0)
                add_batch(delta, 1, new_max, true);
        if (new_min > 0)
                add_batch(delta, 1, new_min, true);
        if (rest > 0)
                add_batch(delta, rest, rest_total, rest == 1);
}

/* Takes the waits if they can have happened, or what can be saved of them. */
static void judge(
                struct delay_delta *delta,
                const struct delay_bounds *bounds,
                uint64_t waits,
                uint64_t total,
                uint64_t new_max,
                uint64_t new_min) {

        /* One of the waits is as long as their mean at least. */
        if (total <= bounds->sum_nsec && new_max <= bounds->single_nsec
            && (waits == 0 || total / waits <= bounds->single_nsec)) {
                split(delta, waits, total, new_max, new_min);
                return;
        }

        delta->reason = REJECT_IMPOSSIBLE;

        /* The maximum rose: it is the impossible wait, and the others are known without it. */
        if (new_max > 0 && new_max <= total && total - new_max <= bounds->sum_nsec
            && (waits > 1 || total == new_max)) {
                delta->refused_waits = 1;
                delta->refused_nsec = new_max;
                if (waits > 1)
                        split(delta, waits - 1, total - new_max, 0, new_min);
                return;
        }

        delta->refused_waits = waits;
        delta->refused_nsec = total;
}

void delta_take(
                struct task_baseline *baseline,
                const struct delay_counters *now,
                const struct delay_bounds *bounds,
                bool has_extremes,
                bool final,
                struct delay_delta *ret) {

        uint32_t count = (uint32_t) now->count;
        uint64_t waits = (uint32_t) (count - baseline->count);
        uint64_t new_max = has_extremes && now->max_nsec > baseline->max_nsec ? now->max_nsec : 0;
        uint64_t new_min = has_extremes && now->min_nsec > 0
                           && (baseline->min_nsec == 0 || now->min_nsec < baseline->min_nsec) ? now->min_nsec : 0;

        *ret = (struct delay_delta) {};

        /* Total 0 beside a count is the kernel's mark of an overflow (__delayacct_add_tsk()); before any wait it may be a torn pair. */
        if (now->total_nsec == 0 && count > 0 && (baseline->total_nsec > 0 || final)) {
                ret->reason = REJECT_OVERFLOW;
                ret->refused_waits = waits < INT32_MAX ? waits : 1;
                goto rebase;
        }

        /* A count that goes down looks like a step of more than half its range. */
        if (now->total_nsec < baseline->total_nsec || waits > INT32_MAX) {
                ret->reason = REJECT_BACKWARDS;
                ret->backwards = true;

                /* One low value may be a torn read, and the next is above the baseline again; two are a reset. */
                if (baseline->went_down)
                        goto rebase;
                baseline->went_down = true;
                return;
        }
        baseline->went_down = false;

        uint64_t total = now->total_nsec - baseline->total_nsec;
        if (waits == 0 && total == 0)
                return;

        /* Count and total that moved one without the other were read while the kernel wrote them. */
        if ((waits == 0 || total == 0) && !final) {
                ret->carried = true;
                return;
        }

        /* The last record is whole; a total that rose alone completes waits that were counted torn before. */
        judge(ret, bounds, waits, total, new_max, new_min);

        /* A torn pair that looks whole: what is longer than the longest wait is not the length of one. */
        for (unsigned i = 0; has_extremes && i < ret->n_batches; i++)
                if (ret->batches[i].total_nsec > now->max_nsec)
                        ret->batches[i].exact = false;

        baseline->refused_nsec += ret->refused_nsec;

        baseline->count = count;
        baseline->total_nsec = now->total_nsec;
        baseline->max_nsec = now->max_nsec;
        baseline->min_nsec = now->min_nsec;
        return;

rebase:
        *baseline = (struct task_baseline) {
                .count = count,
                .total_nsec = now->total_nsec,
                .max_nsec = now->max_nsec,
                .min_nsec = now->min_nsec,
        };
}
