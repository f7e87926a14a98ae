/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/delay-slot.h"

_Static_assert(sizeof(void *) != 8 || sizeof(struct delay_slot) == 72, "as its header says");
_Static_assert(HISTOGRAM_BUCKET_COUNT <= UINT8_MAX, "a bucket's number fits into a byte");

static bool is_in_place(const struct delay_slot *slot) {
        return (size_t) slot->n * slot->count_size <= DELAY_SLOT_FEW;
}

static const void *counts_of(const struct delay_slot *slot) {
        return is_in_place(slot) ? (const void *) slot->few : slot->counts;
}

uint64_t delay_slot_count(const struct delay_slot *slot, unsigned i) {
        const void *counts = counts_of(slot);

        switch (slot->count_size) {
        case 1:
                return ((const uint8_t *) counts)[i];
        case 2:
                return ((const uint16_t *) counts)[i];
        case 4:
                return ((const uint32_t *) counts)[i];
        default:
                return ((const uint64_t *) counts)[i];
        }
}

static void store_count(struct delay_slot *slot, unsigned i, uint64_t count) {
        void *counts = is_in_place(slot) ? (void *) slot->few : slot->counts;

        switch (slot->count_size) {
        case 1:
                ((uint8_t *) counts)[i] = (uint8_t) count;
                break;
        case 2:
                ((uint16_t *) counts)[i] = (uint16_t) count;
                break;
        case 4:
                ((uint32_t *) counts)[i] = (uint32_t) count;
                break;
        default:
                ((uint64_t *) counts)[i] = count;
        }
}

static uint8_t size_of_count(uint64_t count) {
        return count <= UINT8_MAX ? 1 : count <= UINT16_MAX ? 2 : count <= UINT32_MAX ? 4 : 8;
}

static uint64_t count_of_bucket(const struct delay_slot *slot, unsigned bucket) {
        bool in_span = bucket >= slot->first && bucket - slot->first < slot->n;

        return in_span ? delay_slot_count(slot, bucket - slot->first) : 0;
}

/* Makes room for counts of the given size in the buckets from first up to, not including, end. */
static int reserve_counts(struct delay_slot *slot, unsigned first, unsigned end, uint8_t count_size) {
        if (slot->n > 0) {
                unsigned have_end = (unsigned) slot->first + slot->n;

                if (first >= slot->first && end <= have_end && count_size <= slot->count_size)
                        return 0;

                first = first < slot->first ? first : slot->first;
                end = end > have_end ? end : have_end;
                count_size = count_size > slot->count_size ? count_size : slot->count_size;
        }

        struct delay_slot wider = *slot;
        wider.first = (uint8_t) first;
        wider.n = (uint8_t) (end - first);
        wider.count_size = count_size;
        memset(wider.few, 0, sizeof(wider.few));
        if (!is_in_place(&wider)) {
                wider.counts = calloc(wider.n, count_size);
                if (!wider.counts)
                        return -ENOMEM;
        }

        for (unsigned i = 0; i < slot->n; i++)
                store_count(&wider, slot->first - first + i, delay_slot_count(slot, i));

        delay_slot_free(slot);
        *slot = wider;
        return 0;
}

int delay_slot_add(struct delay_slot *slot, unsigned bucket, const struct delay_totals *added) {
        if (added->waits > 0) {
                uint64_t count = count_of_bucket(slot, bucket) + added->waits;

                int r = reserve_counts(slot, bucket, bucket + 1, size_of_count(count));
                if (r < 0)
                        return r;

                store_count(slot, bucket - slot->first, count);
        }

        delay_totals_merge(&slot->totals, added);
        return 0;
}

int delay_slot_merge(struct delay_slot *slot, const struct delay_slot *other) {
        if (other->n > 0) {
                uint8_t count_size = 1;

                for (unsigned i = 0; i < other->n; i++) {
                        uint64_t count = count_of_bucket(slot, other->first + i) + delay_slot_count(other, i);
                        uint8_t needed = size_of_count(count);

                        count_size = needed > count_size ? needed : count_size;
                }

                int r = reserve_counts(slot, other->first, (unsigned) other->first + other->n, count_size);
                if (r < 0)
                        return r;

                for (unsigned i = 0; i < other->n; i++) {
                        unsigned k = other->first - slot->first + i;

                        store_count(slot, k, delay_slot_count(slot, k) + delay_slot_count(other, i));
                }
        }

        delay_totals_merge(&slot->totals, &other->totals);
        return 0;
}

int delay_slot_set_counts(struct delay_slot *slot, unsigned first, unsigned n, const uint64_t counts[]) {
        uint64_t most = 0;

        if (n == 0)
                return 0;

        for (unsigned i = 0; i < n; i++)
                most = counts[i] > most ? counts[i] : most;

        int r = reserve_counts(slot, first, first + n, size_of_count(most));
        if (r < 0)
                return r;

        for (unsigned i = 0; i < n; i++)
                store_count(slot, i, counts[i]);
        return 0;
}

void delay_slot_sum(
                const struct delay_slot *slot,
                struct delay_totals *totals,
                uint64_t counts[static HISTOGRAM_BUCKET_COUNT]) {

        for (unsigned i = 0; i < slot->n; i++)
                counts[slot->first + i] += delay_slot_count(slot, i);

        delay_totals_merge(totals, &slot->totals);
}

size_t delay_slot_memory(const struct delay_slot *slot) {
        return is_in_place(slot) ? 0 : (size_t) slot->n * slot->count_size;
}

void delay_slot_free(struct delay_slot *slot) {
        if (!is_in_place(slot))
                free(slot->counts);
        *slot = (struct delay_slot) {};
}
