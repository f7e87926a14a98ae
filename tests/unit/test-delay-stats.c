/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <delayd/limits.h>

/* The sources themselves, so that their allocations can be counted and made to fail. */
static unsigned allocations, failures_in_8;
static uint64_t allocation_random = 1;

static bool allocation_fails(void) {
        allocations++;
        allocation_random = allocation_random * UINT64_C(6364136223846793005) + 1;
        return (allocation_random >> 61) < failures_in_8;
}

static void *limited_malloc(size_t size) {
        return allocation_fails() ? NULL : malloc(size);
}

static void *limited_calloc(size_t n, size_t size) {
        return allocation_fails() ? NULL : calloc(n, size);
}

static void *limited_realloc(void *p, size_t size) {
        return allocation_fails() ? NULL : realloc(p, size);
}

static void *limited_reallocarray(void *p, size_t n, size_t size) {
        return allocation_fails() ? NULL : reallocarray(p, n, size);
}

#define malloc limited_malloc
#define calloc limited_calloc
#define realloc limited_realloc
#define reallocarray limited_reallocarray
#include "core/delay-slot.c"
#include "core/delay-stats.c"
#include "core/histogram.c"
#undef malloc
#undef calloc
#undef realloc
#undef reallocarray

static const uint64_t windows[DELAYD_WINDOW_COUNT] = DELAYD_WINDOWS_NSEC;
static const uint64_t widths[DELAYD_WINDOW_COUNT] = {
        5 * NSEC_PER_SEC, 30 * NSEC_PER_SEC, 30 * NSEC_PER_SEC, 300 * NSEC_PER_SEC
};

/* xorshift64: the same sequence on every machine. */
static uint64_t next_random(uint64_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state;
}

/* The plain list of everything that was added, which the windows must agree with. */
struct event {
        uint64_t nsec;
        unsigned bucket;
        struct delay_totals totals;
};

static struct event events[30000];
static size_t n_events;

static void expect(uint64_t from_nsec, struct delay_totals *ret, uint64_t counts[static HISTOGRAM_BUCKET_COUNT]) {
        struct delay_totals t = {};

        memset(counts, 0, HISTOGRAM_BUCKET_COUNT * sizeof(uint64_t));
        for (size_t i = 0; i < n_events; i++) {
                const struct delay_totals *e = &events[i].totals;

                if (events[i].nsec < from_nsec)
                        continue;
                t.waits += e->waits;
                t.total_nsec += e->total_nsec;
                t.exact_waits += e->exact_waits;
                t.without_io_waits += e->without_io_waits;
                t.rejected_waits += e->rejected_waits;
                if (e->waits > 0) {
                        t.min_nsec = t.min_nsec == 0 || e->min_nsec < t.min_nsec ? e->min_nsec : t.min_nsec;
                        t.max_nsec = e->max_nsec > t.max_nsec ? e->max_nsec : t.max_nsec;
                        counts[events[i].bucket] += e->waits;
                }
        }
        *ret = t;
}

static void same_totals(const struct delay_totals *a, const struct delay_totals *b) {
        assert_true(a->waits == b->waits);
        assert_true(a->total_nsec == b->total_nsec);
        assert_true(a->min_nsec == b->min_nsec);
        assert_true(a->max_nsec == b->max_nsec);
        assert_true(a->exact_waits == b->exact_waits);
        assert_true(a->without_io_waits == b->without_io_waits);
        assert_true(a->rejected_waits == b->rejected_waits);
}

static void same_counts(const struct histogram *h, const uint64_t counts[static HISTOGRAM_BUCKET_COUNT]) {
        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
                assert_true(histogram_get(h, i) == counts[i]);
}

static int read_window(
                const struct delay_stats *stats, uint64_t now_nsec, uint64_t window_nsec,
                struct delay_totals *ret_totals, struct histogram *ret_histogram) {

        unsigned saved = failures_in_8;

        failures_in_8 = 0;
        int r = delay_stats_window(stats, now_nsec, window_nsec, ret_totals, ret_histogram);
        failures_in_8 = saved;
        return r;
}

/* After ageing, a window is exactly the slots that reach into it, of the width of its last tier. */
static void check_exact(const struct delay_stats *stats, uint64_t now_nsec) {
        for (size_t i = 0; i < DELAYD_WINDOW_COUNT; i++) {
                uint64_t counts[HISTOGRAM_BUCKET_COUNT], from = 0;
                struct delay_totals expected, totals;
                struct histogram h = {};

                if (now_nsec >= windows[i]) /* the first start of a slot whose end is after now - window */
                        from = (now_nsec - windows[i]) / widths[i] * widths[i];
                expect(from, &expected, counts);
                assert_int_equal(read_window(stats, now_nsec, windows[i], &totals, &h), 0);
                same_totals(&totals, &expected);
                same_counts(&h, counts);
                histogram_free(&h);
        }
}

/* Aged or not, all of the window is in it and nothing that is older by more than a slot. */
static void check_bounds(const struct delay_stats *stats, uint64_t now_nsec) {
        for (size_t i = 0; i < DELAYD_WINDOW_COUNT; i++) {
                uint64_t counts[HISTOGRAM_BUCKET_COUNT], more_counts[HISTOGRAM_BUCKET_COUNT];
                uint64_t outer = windows[i] + widths[i];
                struct delay_totals least, most, totals;
                struct histogram h = {};

                expect(now_nsec >= windows[i] ? now_nsec - windows[i] : 0, &least, counts);
                expect(now_nsec >= outer ? now_nsec - outer : 0, &most, more_counts);
                assert_int_equal(read_window(stats, now_nsec, windows[i], &totals, &h), 0);
                assert_true(totals.waits >= least.waits && totals.waits <= most.waits);
                assert_true(totals.total_nsec >= least.total_nsec && totals.total_nsec <= most.total_nsec);
                assert_true(totals.max_nsec >= least.max_nsec && totals.max_nsec <= most.max_nsec);
                assert_true(totals.rejected_waits >= least.rejected_waits);
                assert_true(totals.rejected_waits <= most.rejected_waits);
                for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKET_COUNT; bucket++)
                        assert_true(histogram_get(&h, bucket) >= counts[bucket] &&
                                    histogram_get(&h, bucket) <= more_counts[bucket]);
                assert_true(histogram_waits(&h) == totals.waits);
                histogram_free(&h);
        }
}

static int add_random(struct delay_stats *stats, uint64_t now_nsec, uint64_t *random) {
        struct delay_batch batch = {
                .waits = 1 + next_random(random) % (next_random(random) % 16 ? 4 : 100000),
                .exact = next_random(random) % 2,
                .without_io = next_random(random) % 4 == 0,
        };
        uint64_t mean = UINT64_C(1) << next_random(random) % 40;
        struct event *e = &events[n_events];
        int r;

        assert_true(n_events < sizeof(events) / sizeof(events[0]));
        *e = (struct event) { .nsec = now_nsec };

        if (next_random(random) % 32 == 0) {
                e->totals.rejected_waits = 1 + next_random(random) % 3;
                r = delay_stats_reject(stats, now_nsec, e->totals.rejected_waits);
        } else {
                batch.total_nsec = batch.waits * mean + next_random(random) % mean;
                uint64_t each = (uint64_t) ((long double) batch.total_nsec / (long double) batch.waits + 0.5L);

                e->bucket = histogram_bucket_of(each);
                e->totals = (struct delay_totals) {
                        .waits = batch.waits,
                        .total_nsec = batch.total_nsec,
                        .min_nsec = each,
                        .max_nsec = each,
                        .exact_waits = batch.exact ? batch.waits : 0,
                        .without_io_waits = batch.without_io ? batch.waits : 0,
                };
                r = delay_stats_add(stats, now_nsec, &batch);
        }

        n_events += r == 0;
        return r;
}

/* Dense, sparse and silent stretches. */
static uint64_t random_gap(uint64_t *random) {
        switch (next_random(random) % 64) {
        case 0:
                return next_random(random) % (20 * 60 * NSEC_PER_SEC);
        case 1 ... 8:
                return next_random(random) % (60 * NSEC_PER_SEC);
        case 9:
                return 5 * NSEC_PER_SEC; /* lands on and beside edges of slots */
        case 10:
                return 0;
        default:
                return next_random(random) % NSEC_PER_SEC;
        }
}

static void two_hours(uint64_t seed, unsigned failures) {
        uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15), start = next_random(&random) >> (seed % 60);
        struct delay_stats *stats;
        unsigned failed = 0;

        assert_int_equal(delay_stats_new(&stats), 0);
        n_events = 0;
        start -= start % (seed % 2 ? 1 : 300 * NSEC_PER_SEC);
        if (start > UINT64_MAX / 2)
                start /= 2;

        for (uint64_t now = start; now < start + 7200 * NSEC_PER_SEC; now += random_gap(&random)) {
                failures_in_8 = failures;
                int r = add_random(stats, now, &random);
                failures_in_8 = 0;
                assert_true(r == 0 || (failures > 0 && r == -ENOMEM));
                failed += r < 0;
                for (size_t i = 0; i < stats->tiers[0].n; i++) {
                        const struct delay_slot *slot = &stats->tiers[0].slots[i];

                        assert_true(slot->totals.waits + slot->totals.rejected_waits > 0); /* none is left empty */
                }

                if (next_random(&random) % 8 == 0) {
                        uint64_t later_on = now + next_random(&random) % 2 * random_gap(&random);

                        check_bounds(stats, later_on);
                        if (next_random(&random) % 2) {
                                now = later_on;
                                delay_stats_age(stats, now);
                                check_exact(stats, now);
                        }
                }
        }

        uint64_t counts[HISTOGRAM_BUCKET_COUNT];
        struct delay_totals expected;
        expect(0, &expected, counts);
        same_totals(&stats->totals, &expected);
        same_counts(&stats->histogram, counts);
        assert_true(failures == 0 || failed > 0);

        /* In the end only the cumulative numbers are left. */
        delay_stats_age(stats, start + 4 * 3600 * NSEC_PER_SEC);
        assert_int_equal(delay_stats_memory(stats), sizeof(*stats) + histogram_memory(&stats->histogram));
        same_totals(&stats->totals, &expected);
        assert_null(delay_stats_free(stats));
}

static void windows_agree_with_list(void **state) {
        for (uint64_t seed = 1; seed <= 60; seed++)
                two_hours(seed, 0);
}

static void short_memory_loses_nothing(void **state) {
        for (uint64_t seed = 1; seed <= 60; seed++)
                two_hours(seed, 1 + seed % 7);
}

static void batches(void **state) {
        struct delay_totals totals;
        struct histogram h = {};
        struct delay_stats *stats;

        assert_int_equal(delay_stats_new(&stats), 0);
        assert_int_equal(delay_stats_reject(stats, 0, 0), 0);
        assert_int_equal(delay_stats_memory(stats), sizeof(*stats));

        /* Time alone belongs to waits that were counted before. */
        struct delay_stats *timed;
        assert_int_equal(delay_stats_new(&timed), 0);
        assert_int_equal(delay_stats_add(timed, 0, &(struct delay_batch) { .waits = 1, .total_nsec = 7 }), 0);
        assert_int_equal(delay_stats_add(timed, 0, &(struct delay_batch) { .total_nsec = 5 }), 0);
        assert_true(timed->totals.waits == 1 && timed->totals.total_nsec == 12 && timed->totals.max_nsec == 7);
        assert_int_equal(histogram_waits(&timed->histogram), 1);
        delay_stats_free(timed);

        /* 10 / 4 is rounded to 3, but the total stays 10. */
        assert_int_equal(delay_stats_add(stats, 0, &(struct delay_batch) { .waits = 4, .total_nsec = 10 }), 0);
        assert_true(stats->totals.total_nsec == 10 && stats->totals.min_nsec == 3 && stats->totals.max_nsec == 3);
        assert_int_equal(delay_stats_add(stats, 0, &(struct delay_batch) { .waits = 4, .total_nsec = 9 }), 0);
        assert_int_equal(stats->totals.min_nsec, 2);
        assert_int_equal(delay_stats_add(stats, 0, &(struct delay_batch) { .waits = 3, .total_nsec = 4 }), 0);
        assert_int_equal(stats->totals.min_nsec, 1);

        /* A rejected wait is in no other number, and leaves no minimum of 0 behind. */
        assert_int_equal(delay_stats_reject(stats, 7 * NSEC_PER_SEC, 2), 0);
        assert_int_equal(delay_stats_window(stats, 66 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, &totals, &h), 0);
        assert_int_equal(totals.rejected_waits, 2);
        assert_int_equal(totals.waits + totals.total_nsec + totals.min_nsec + totals.max_nsec, 0);
        assert_int_equal(histogram_waits(&h), 0);
        assert_int_equal(delay_stats_window(stats, 66 * NSEC_PER_SEC, 300 * NSEC_PER_SEC, &totals, NULL), 0);
        assert_int_equal(totals.waits, 11);
        assert_int_equal(totals.min_nsec, 1);

        /* The widest numbers. */
        const struct delay_batch widest = { .waits = 1, .total_nsec = UINT64_MAX };
        assert_int_equal(delay_stats_add(stats, UINT64_MAX, &widest), 0);
        assert_int_equal(delay_stats_window(stats, UINT64_MAX, 3600 * NSEC_PER_SEC, &totals, NULL), 0);
        assert_int_equal(totals.waits, 1);
        assert_true(totals.max_nsec == UINT64_MAX);
        histogram_free(&h);
        delay_stats_free(stats);
}

static void time_never_runs_backwards(void **state) {
        const struct delay_batch one = { .waits = 1, .total_nsec = 1000 };
        struct delay_totals totals;
        struct delay_stats *stats;

        assert_int_equal(delay_stats_new(&stats), 0);
        assert_int_equal(delay_stats_add(stats, 100 * NSEC_PER_SEC, &one), 0);
        assert_int_equal(delay_stats_add(stats, 3 * NSEC_PER_SEC, &one), 0);
        assert_int_equal(delay_stats_window(stats, 0, 60 * NSEC_PER_SEC, &totals, NULL), 0);
        assert_int_equal(totals.waits, 2);
        assert_int_equal(delay_stats_window(stats, 164 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, &totals, NULL), 0);
        assert_int_equal(totals.waits, 2);
        assert_int_equal(delay_stats_window(stats, 165 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, &totals, NULL), 0);
        assert_int_equal(totals.waits, 0);
        delay_stats_free(stats);
}

/* Counts outgrow a byte, two and four, in one slot and in merges. */
static void counts_widen(void **state) {
        static const uint64_t sizes[] = { 1, 255, 256, 65535, 65536, UINT32_MAX, UINT64_C(1) << 32 };
        uint64_t waits = 0, counts[HISTOGRAM_BUCKET_COUNT] = {};
        struct delay_slot slot = {}, sum = {};
        struct delay_totals totals = {};

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                assert_int_equal(delay_slot_add(&slot, 40 + (unsigned) i % 2,
                                                &(struct delay_totals) { .waits = sizes[i] }), 0);
                assert_int_equal(delay_slot_merge(&sum, &slot), 0);
                waits += sizes[i];
        }
        delay_slot_sum(&slot, &totals, counts);
        assert_true(counts[40] == 1 + 256 + 65536 + (UINT64_C(1) << 32));
        assert_true(counts[41] == 255 + 65535 + (uint64_t) UINT32_MAX);
        assert_true(totals.waits == waits);
        assert_int_equal(delay_slot_memory(&slot), 16);

        memset(counts, 0, sizeof(counts));
        delay_slot_sum(&sum, &totals, counts);
        assert_true(counts[40] == 7 * 1 + 5 * 256 + 3 * 65536 + (UINT64_C(1) << 32));
        assert_true(counts[41] == 6 * 255 + 4 * 65535 + 2 * (uint64_t) UINT32_MAX);
        delay_slot_free(&slot);
        delay_slot_free(&sum);

        for (unsigned bits = 8; bits <= 32; bits *= 2) {
                const struct delay_totals one = { .waits = 1 }, many = { .waits = (UINT64_C(1) << bits) - 1 };

                assert_int_equal(delay_slot_add(&slot, 7, &many), 0);
                assert_int_equal(delay_slot_memory(&slot), 0); /* one bucket has room in the slot itself */
                assert_int_equal(delay_slot_add(&slot, 7, &one), 0);
                memset(counts, 0, sizeof(counts));
                delay_slot_sum(&slot, &totals, counts);
                assert_true(counts[7] == UINT64_C(1) << bits);
                delay_slot_free(&slot);
        }
}

static void costs_little(void **state) {
        const struct delay_batch one = { .waits = 1, .total_nsec = 100000 };
        struct delay_stats *stats;

        assert_int_equal(delay_stats_new(&stats), 0);
        assert_int_equal(delay_stats_add(stats, 0, &one), 0);
        assert_in_range(delay_stats_memory(stats), sizeof(*stats) + 1, 240);

        /* Nothing is allocated while the slot and its buckets are there. */
        allocations = 0;
        for (unsigned i = 0; i < 200; i++)
                assert_int_equal(delay_stats_add(stats, i * 1000, &one), 0);
        delay_stats_age(stats, NSEC_PER_SEC);
        assert_int_equal(allocations, 0);

        /* An hour of waits between 8 us and 128 ms in every slot: 14 octaves. */
        for (unsigned second = 1; second < 4 * 3600; second++)
                for (unsigned octave = 13; octave < 27; octave++) {
                        struct delay_batch wait = { .waits = 1, .total_nsec = UINT64_C(1) << octave };

                        assert_int_equal(delay_stats_add(stats, second * NSEC_PER_SEC, &wait), 0);
                }
        assert_in_range(delay_stats_memory(stats), 1000, 11000);
        for (unsigned tier = 0; tier < DELAY_TIER_COUNT; tier++)
                assert_in_range(stats->tiers[tier].n, 10, 30);
        delay_stats_free(stats);
}

/* Counts move out of the slot when they no longer fit, from either side, and when they are merged. */
static void counts_leave_the_slot(void **state) {
        const struct delay_totals one = { .waits = 1 };

        for (unsigned seed = 1; seed <= 200; seed++) {
                struct delay_slot slot = {}, sum = {};
                uint64_t expected[HISTOGRAM_BUCKET_COUNT] = {}, found[HISTOGRAM_BUCKET_COUNT] = {};
                struct delay_totals totals = {};
                uint64_t random = seed;

                for (unsigned i = 0; i < 40; i++) {
                        unsigned bucket = 40 + (unsigned) (next_random(&random) % (1 + seed % 20));

                        assert_int_equal(delay_slot_add(&slot, bucket, &one), 0);
                        expected[bucket] += 2;
                        assert_int_equal(delay_slot_memory(&slot), slot.n <= 8 ? 0 : slot.n);
                        if (i % 7 == 0 || i == 39) {
                                assert_int_equal(delay_slot_merge(&sum, &slot), 0);
                                delay_slot_free(&slot);
                        }
                }
                delay_slot_sum(&sum, &totals, found);
                delay_slot_sum(&sum, &totals, found);
                assert_memory_equal(found, expected, sizeof(found));
                assert_int_equal(totals.waits, 80);
                delay_slot_free(&sum);
        }
}

/* The first slot takes no memory, and those of windows alone no histogram; the windows say the same. */
static void first_slot_in_place(void **state) {
        const struct delay_batch one = { .waits = 1, .total_nsec = 100000 };
        struct histogram h = {}, other = {};
        struct delay_totals totals, same;
        struct delay_stats *stats, *moved;

        assert_int_equal(delay_stats_new_windows(&stats), 0);
        assert_int_equal(delay_stats_new(&moved), 0);
        allocations = 0;
        assert_int_equal(delay_stats_add(stats, 0, &one), 0);
        assert_int_equal(allocations, 0);
        assert_int_equal(delay_stats_memory(stats), sizeof(*stats));

        /* Alone, then with others, then with none again. */
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(delay_stats_window(stats, 15 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, &totals, &h), 0);
                delay_stats_take_windows(moved, stats);
                assert_int_equal(stats->tiers[0].n, 0);
                assert_int_equal(delay_stats_window(moved, 15 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, &same, &other), 0);
                assert_memory_equal(&same, &totals, sizeof(totals));
                assert_int_equal(totals.waits, 1 + 3 * i);
                assert_int_equal(histogram_waits(&other), histogram_waits(&h));
                delay_stats_take_windows(stats, moved);
                for (unsigned k = 1; k <= 3; k++)
                        assert_int_equal(delay_stats_add(stats, k * 5 * NSEC_PER_SEC, &one), 0);
        }
        assert_int_equal(stats->histogram.n, 0);
        delay_stats_age(stats, 4 * 3600 * NSEC_PER_SEC);
        assert_int_equal(delay_stats_memory(stats), sizeof(*stats));
        assert_int_equal(delay_stats_add(stats, 4 * 3600 * NSEC_PER_SEC, &one), 0);
        assert_int_equal(delay_stats_memory(stats), sizeof(*stats));

        histogram_free(&h);
        histogram_free(&other);
        delay_stats_free(stats);
        delay_stats_free(moved);
}

static void nearest_window(void **state) {
        static const struct {
                uint64_t asked, answer;
        } cases[] = {
                { 0, 300 }, { 1, 60 }, { 60, 60 }, { 179, 60 }, { 180, 300 }, { 599, 300 }, { 600, 900 },
                { 900, 900 }, { 2249, 900 }, { 2250, 3600 }, { 3600, 3600 }, { UINT64_MAX / NSEC_PER_SEC, 3600 },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
                assert_true(delay_window_nearest(cases[i].asked * NSEC_PER_SEC) == cases[i].answer * NSEC_PER_SEC);
        assert_true(delay_window_nearest(UINT64_MAX) == 3600 * NSEC_PER_SEC);
}

static void summary(void **state) {
        struct delay_summary s;
        struct delay_stats *stats;

        assert_int_equal(delay_stats_new(&stats), 0);
        delay_summary_make(&stats->totals, &stats->histogram, &s);
        assert_int_equal(s.mean_nsec + s.p50_nsec + s.p90_nsec + s.p99_nsec, 0);

        for (uint64_t i = 1; i <= 1000; i++)
                assert_int_equal(delay_stats_add(stats, 0, &(struct delay_batch) { 1, i * 1000, true, false }), 0);
        delay_summary_make(&stats->totals, &stats->histogram, &s);
        assert_int_equal(s.totals.waits, 1000);
        assert_int_equal(s.mean_nsec, 500500);
        assert_in_range(s.p50_nsec, 450000, 550000);
        assert_in_range(s.p90_nsec, 800000, 1000000);
        assert_in_range(s.p99_nsec, 900000, 1000000);
        assert_true(s.p50_nsec < s.p90_nsec && s.p90_nsec < s.p99_nsec);
        assert_int_equal(s.totals.min_nsec, 1000);
        assert_int_equal(s.totals.max_nsec, 1000000);
        delay_stats_free(stats);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(windows_agree_with_list),
                cmocka_unit_test(short_memory_loses_nothing),
                cmocka_unit_test(counts_leave_the_slot),
                cmocka_unit_test(first_slot_in_place),
                cmocka_unit_test(batches),
                cmocka_unit_test(time_never_runs_backwards),
                cmocka_unit_test(counts_widen),
                cmocka_unit_test(costs_little),
                cmocka_unit_test(nearest_window),
                cmocka_unit_test(summary),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
