/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "core/accounting.h"

#define MSEC NSEC_PER_MSEC
#define SEC NSEC_PER_SEC
#define T0 (1000 * SEC)

enum { A = 10 };

static uint64_t host_stall, cgroup_stall;
static int pressure_error;

static int pressure(uint64_t key, uint64_t *ret_stall_nsec, void *userdata) {
        if (pressure_error < 0)
                return pressure_error;

        *ret_stall_nsec = key == CGROUP_KEY_UNATTRIBUTED ? host_stall : cgroup_stall;
        return 0;
}

static void bound_of_a_reading(void **state) {
        struct pressure_log log = {};

        assert_int_equal(pressure_log_longest_wait(&log, 0, SEC, 0, 2), UINT64_MAX);
        pressure_log_add(&log, 10 * SEC, 5 * SEC);
        assert_in_range(pressure_log_longest_wait(&log, 9 * SEC, 12 * SEC, 5 * SEC, 2), SEC, SEC + 500 * MSEC);

        /* All the time on one of one CPU. */
        assert_in_range(pressure_log_longest_wait(&log, 10 * SEC, 14 * SEC, 9 * SEC, 1), 4 * SEC, 6 * SEC);
        /* Nothing stalled. */
        assert_in_range(pressure_log_longest_wait(&log, 10 * SEC, 14 * SEC, 5 * SEC, 2), 0, 650 * MSEC);
        /* A counter that went down is another one. */
        assert_int_equal(pressure_log_longest_wait(&log, 10 * SEC, 14 * SEC, 4 * SEC, 2), UINT64_MAX);
}

/*
 * Whatever the CPUs do meanwhile, and however often the file is read (but not every 20 ms), a single wait that
 * happened stays below the bound. The kernel weighs each CPU's stall by its busy time in whole jiffies.
 */
static void property_real_waits_pass(void **state) {
        unsigned short seed[3] = { 5, 6, 7 };

        for (unsigned round = 0; round < 5000; round++) {
                unsigned n_cpus = 1 + (unsigned) nrand48(seed) % 16, n_periods = 1 + (unsigned) nrand48(seed) % 20;
                struct pressure_log log = {};
                double total = 0, wait = 0;
                uint64_t now = T0;

                pressure_log_add(&log, now, 0);
                for (unsigned period = 0; period < n_periods; period++) {
                        double length = (double) (20 + nrand48(seed) % 2000) * 1e6, weighed = 0, weights = 0;
                        bool at_edge = period == 0 || period == n_periods - 1;
                        double part = at_edge ? erand48(seed) * length : length; /* the wait goes through the others */

                        for (unsigned cpu = 0; cpu < n_cpus; cpu++) {
                                double stall = cpu == 0 ? part : erand48(seed) < 0.5 ? 0 : erand48(seed) * length;
                                double nonidle = stall + erand48(seed) * (length - stall);
                                double jiffies = floor(nonidle / 1e7);

                                weighed += stall * jiffies;
                                weights += jiffies;
                        }
                        total += weighed / (weights > 0 ? weights : 1);
                        wait += part;
                        now += (uint64_t) length;
                }

                assert_true((double) pressure_log_longest_wait(&log, T0, now, (uint64_t) total, n_cpus) >= wait);
        }
}

static void old_readings_thin_out(void **state) {
        struct pressure_log log = {};

        for (uint64_t i = 0; i < 3600; i++)
                pressure_log_add(&log, T0 + i * SEC, i * MSEC);
        assert_in_range(log.n, PRESSURE_LOG_READINGS / 2, PRESSURE_LOG_READINGS);
        assert_int_equal(log.readings[0].time_nsec, T0);
        for (unsigned i = 1; i < log.n; i++)
                assert_true(log.readings[i].time_nsec > log.readings[i - 1].time_nsec);

        /* The last quarter of a minute is there second by second. */
        for (unsigned i = log.n - 15; i < log.n; i++)
                assert_int_equal(log.readings[i].time_nsec - log.readings[i - 1].time_nsec, SEC);
}

static int setup(void **state) {
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = 100,
                .max_exported = 100,
                .retention_nsec = 300 * SEC,
                .poll_interval_nsec = SEC,
                .started_nsec = T0,
                .pressure = pressure,
                .n_cpus = 2,
        };
        struct accounting *a;

        host_stall = cgroup_stall = 0;
        pressure_error = 0;
        assert_int_equal(accounting_new(&config, &a), 0);
        accounting_cgroup_added(a, T0, A, 0, "/a");
        accounting_age(a, T0);
        *state = a;
        return 0;
}

static int teardown(void **state) {
        accounting_free(*state);
        return 0;
}

static void live(struct accounting *a, uint64_t now, uint64_t run, uint64_t waits, uint64_t total) {
        struct task_sample s = {
                .tid = 100,
                .tgid = 100,
                .lifetime_nsec = now - 10 * SEC,
                .run_nsec = run,
                .start_min_nsec = 10 * SEC - MSEC,
                .start_max_nsec = 10 * SEC,
                .read_bytes = 4096,
                .version = 13,
                .kinds = DELAY_KINDS_ALL,
        };

        s.delays[DELAY_BLKIO] = (struct delay_counters) { .count = waits, .total_nsec = total };
        assert_int_equal(accounting_live_sample(a, now, &s), 0);
}

static const struct delay_totals *totals(const struct accounting *a) {
        static const struct delay_totals none;
        const struct delay_stats *stats = cgroup_table_get(&a->cgroups, A)->stats[DELAY_BLKIO];

        return stats ? &stats->totals : &none;
}

/* A task that slept for ten seconds, was not waiting for I/O, and is credited with all ten of them. */
static void ten_seconds_of_sleep_are_refused(void **state) {
        struct accounting *a = *state;

        accounting_place(a, T0, 100, 100, A);
        live(a, T0, 0, 0, 0);
        live(a, T0 + SEC, MSEC, 1, MSEC);
        for (unsigned i = 1; i <= 12; i++)
                accounting_age(a, T0 + i * SEC);
        host_stall = 20 * MSEC;
        live(a, T0 + 12 * SEC, 2 * MSEC, 2, 10 * SEC + MSEC);
        assert_int_equal(totals(a)->waits, 1);
        assert_int_equal(totals(a)->rejected_waits, 1);

        /* Ten seconds that PSI saw are real. */
        host_stall += 10 * SEC;
        cgroup_stall += 10 * SEC;
        live(a, T0 + 22 * SEC, 3 * MSEC, 3, 20 * SEC + MSEC);
        assert_int_equal(totals(a)->waits, 2);
        assert_int_equal(totals(a)->total_nsec, 10 * SEC + MSEC);
        assert_int_equal(totals(a)->rejected_waits, 1);
}

static void a_busy_host_does_not_vouch_for_a_quiet_cgroup(void **state) {
        struct accounting *a = *state;

        accounting_place(a, T0, 100, 100, A);
        live(a, T0, 0, 0, 0);

        /* Others stall all the time; the first long wait here is real and makes the cgroup's pressure be logged. */
        for (unsigned i = 1; i <= 20; i++) {
                host_stall += SEC;
                cgroup_stall += i == 5 ? 50 * MSEC : 0;
                accounting_age(a, T0 + i * SEC);
                if (i <= 5)
                        live(a, T0 + i * SEC, i * MSEC, i == 5 ? 1 : 0, i == 5 ? 50 * MSEC : 0);
        }
        assert_int_equal(totals(a)->waits, 1);
        live(a, T0 + 20 * SEC, 8 * MSEC, 2, 10 * SEC + 50 * MSEC);
        assert_int_equal(totals(a)->waits, 1);
        assert_int_equal(totals(a)->rejected_waits, 1);
}

static void without_psi_nothing_is_refused(void **state) {
        struct accounting *a = *state;

        pressure_error = -ENOENT;
        accounting_place(a, T0, 100, 100, A);
        live(a, T0, 0, 0, 0);
        accounting_age(a, T0 + SEC);
        live(a, T0 + 12 * SEC, MSEC, 1, 10 * SEC);
        assert_int_equal(totals(a)->waits, 1);
        assert_int_equal(totals(a)->rejected_waits, 0);
}

/* A wait that began before a move was not seen by the new cgroup's pressure from its beginning. */
static void a_moved_task_is_not_judged_by_its_new_cgroup(void **state) {
        struct accounting *a = *state;

        accounting_cgroup_added(a, T0, A + 1, 0, "/b");
        accounting_place(a, T0, 100, 100, A + 1);
        live(a, T0, 0, 0, 0);
        cgroup_table_get(&a->cgroups, A)->pressure = calloc(1, sizeof(struct pressure_log));
        pressure_log_add(cgroup_table_get(&a->cgroups, A)->pressure, T0, 0);

        accounting_place(a, T0 + 5 * SEC, 100, 100, A);
        host_stall = 9 * SEC;
        cgroup_stall = MSEC;
        live(a, T0 + 9 * SEC, MSEC, 1, 9 * SEC);
        assert_int_equal(totals(a)->waits, 1);
        assert_int_equal(totals(a)->rejected_waits, 0);
}

int main(void) {
#define with_accounting(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bound_of_a_reading),
                cmocka_unit_test(property_real_waits_pass),
                cmocka_unit_test(old_readings_thin_out),
                with_accounting(ten_seconds_of_sleep_are_refused),
                with_accounting(a_busy_host_does_not_vouch_for_a_quiet_cgroup),
                with_accounting(without_psi_nothing_is_refused),
                with_accounting(a_moved_task_is_not_judged_by_its_new_cgroup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
