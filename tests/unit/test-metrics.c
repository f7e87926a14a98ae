/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleanup.h"
#include "serve-fixture.h"
#include "serve/exposition.h"
#include "serve/metrics.h"

static int setup(void **state) {
        struct fixture *f = malloc(sizeof(*f));

        fixture_init(f);
        f->accounting.config.kinds = DELAY_KIND_BIT(DELAY_BLKIO);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        fixture_done(*state);
        free(*state);
        return 0;
}

static void numbers_and_bounds(void **state) {
        char bound[EXPOSITION_BOUND_SIZE], *text;
        struct buffer b = {};
        size_t size;

        assert_string_equal(exposition_bound(bound, ldexp(1, -10)), "0.0009765625");
        assert_string_equal(exposition_bound(bound, ldexp(1, -20)), "9.5367431640625e-07");
        assert_string_equal(exposition_bound(bound, 1), "1.0");
        assert_string_equal(exposition_bound(bound, 4096), "4096.0");
        assert_string_equal(exposition_bound(bound, 64), "64.0");
        assert_string_equal(exposition_bound(bound, INFINITY), "+Inf");
        assert_true(strtod(exposition_bound(bound, exp2(0.25)), NULL) == exp2(0.25));

        const uint64_t spans[] = { 0, 1, 10, 999999999, NSEC_PER_SEC, 1500000000, UINT64_MAX };
        for (size_t i = 0; i < sizeof(spans) / sizeof(*spans); i++) {
                buffer_seconds(&b, spans[i]);
                buffer_add_char(&b, ' ');
        }
        buffer_u64(&b, UINT64_MAX);
        buffer_html(&b, "<a href=\"x\">'&'");
        assert_int_equal(buffer_take(&b, &text, &size), 0);
        assert_string_equal(text, "0 0.000000001 0.00000001 0.999999999 1 1.5 18446744073.709551615 "
                                  "18446744073709551615&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
        assert_int_equal(size, strlen(text));
        free(text);
}

/* Everything that has a cgroup, to the letter: order, escapes, sums, bounds, the re-created path, zeros. */
static const char expected_cgroups[] =
        "# HELP delayd_cgroup_blkio_delay_seconds Waits of tasks for block I/O.\n"
        "# TYPE delayd_cgroup_blkio_delay_seconds histogram\n"
#define SERIES(cgroup, a, b, c, d, e, count, sum)                                                  \
        "delayd_cgroup_blkio_delay_seconds_bucket{cgroup=\"" cgroup "\",le=\"0.0009765625\"} " a "\n" \
        "delayd_cgroup_blkio_delay_seconds_bucket{cgroup=\"" cgroup "\",le=\"0.015625\"} " b "\n"  \
        "delayd_cgroup_blkio_delay_seconds_bucket{cgroup=\"" cgroup "\",le=\"0.25\"} " c "\n"      \
        "delayd_cgroup_blkio_delay_seconds_bucket{cgroup=\"" cgroup "\",le=\"4.0\"} " d "\n"       \
        "delayd_cgroup_blkio_delay_seconds_bucket{cgroup=\"" cgroup "\",le=\"64.0\"} " e "\n"      \
        "delayd_cgroup_blkio_delay_seconds_bucket{cgroup=\"" cgroup "\",le=\"+Inf\"} " count "\n"  \
        "delayd_cgroup_blkio_delay_seconds_sum{cgroup=\"" cgroup "\"} " sum "\n"                   \
        "delayd_cgroup_blkio_delay_seconds_count{cgroup=\"" cgroup "\"} " count "\n"
        SERIES("(overflow)", "0", "0", "0", "0", "0", "0", "0")
        SERIES("(unattributed)", "0", "1", "1", "1", "1", "1", "0.001")
        SERIES("/", "0", "0", "0", "0", "0", "0", "0")
        SERIES("/job", "0", "1", "1", "1", "1", "1", "0.001")
        SERIES("/system.slice", "0", "0", "0", "0", "0", "0", "0")
        SERIES("/system.slice/db.service", "0", "3", "3", "4", "4", "4", "2.003000001")
        SERIES("/we\\\"ird\\\\x2d\\\\x0a\\\\xff\xc3\xa9", "0", "0", "1", "1", "1", "1", "0.25")
        "# HELP delayd_cgroup_rejected_waits_total Waits with impossible lengths that were refused and are in no other "
        "number of the cgroup.\n"
        "# TYPE delayd_cgroup_rejected_waits_total counter\n"
        "delayd_cgroup_rejected_waits_total{cgroup=\"(overflow)\",kind=\"blkio\"} 0\n"
        "delayd_cgroup_rejected_waits_total{cgroup=\"(unattributed)\",kind=\"blkio\"} 0\n"
        "delayd_cgroup_rejected_waits_total{cgroup=\"/\",kind=\"blkio\"} 0\n"
        "delayd_cgroup_rejected_waits_total{cgroup=\"/job\",kind=\"blkio\"} 0\n"
        "delayd_cgroup_rejected_waits_total{cgroup=\"/system.slice\",kind=\"blkio\"} 0\n"
        "delayd_cgroup_rejected_waits_total{cgroup=\"/system.slice/db.service\",kind=\"blkio\"} 7\n"
        "delayd_cgroup_rejected_waits_total{cgroup=\"/we\\\"ird\\\\x2d\\\\x0a\\\\xff\xc3\xa9\",kind=\"blkio\"} 0\n";

static const char expected_info[] =
        "# HELP delayd_cgroup_info 1, with what the path of the cgroup says about it.\n"
        "# TYPE delayd_cgroup_info gauge\n"
        "delayd_cgroup_info{cgroup=\"/\"} 1\n"
        "delayd_cgroup_info{cgroup=\"/job\"} 1\n"
        "delayd_cgroup_info{cgroup=\"/system.slice\",slice=\"system.slice\"} 1\n"
        "delayd_cgroup_info{cgroup=\"/system.slice/db.service\",unit=\"db.service\",slice=\"system.slice\"} 1\n"
        "delayd_cgroup_info{cgroup=\"/we\\\"ird\\\\x2d\\\\x0a\\\\xff\xc3\xa9\"} 1\n";

static void cgroups_to_the_letter(void **state) {
        struct fixture *f = *state;
        _cleanup_free_ char *text = NULL;
        size_t size;

        assert_int_equal(metrics_render(&f->view, &text, &size), 0);
        assert_int_equal(strlen(text), size);
        assert_memory_equal(text, expected_cgroups, strlen(expected_cgroups));
        assert_non_null(strstr(text, "\ndelayd_cgroup_tasks{cgroup=\"/system.slice/db.service\"} 2\n"));
        assert_non_null(strstr(text, "\ndelayd_cgroup_unaccounted_tasks{cgroup=\"/system.slice/db.service\"} 1\n"));
        assert_non_null(strstr(text, expected_info));
        assert_int_equal(text[size - 1], '\n');
}

static void only_the_newest_of_a_path(void **state) {
        struct fixture *f = *state;
        _cleanup_free_ char *text = NULL;
        size_t size;

        /* Both are removed now: the one removed last is shown. */
        f->now_nsec += NSEC_PER_SEC;
        cgroup_table_remove(&f->accounting.cgroups, f->now_nsec, 6);

        assert_int_equal(metrics_render(&f->view, &text, &size), 0);
        assert_memory_equal(text, expected_cgroups, strlen(expected_cgroups));
}

static void not_exported_is_not_shown(void **state) {
        struct fixture *f = *state;
        _cleanup_free_ char *text = NULL;
        size_t size;

        cgroup_table_find(&f->accounting.cgroups, 3)->exported = false;
        assert_int_equal(metrics_render(&f->view, &text, &size), 0);
        assert_null(strstr(text, "db.service"));
}

static void others_are_summed_once_there_are_any(void **state) {
        struct fixture *f = *state;
        struct cgroup *other = f->accounting.cgroups.other;
        _cleanup_free_ char *text = NULL;
        size_t size;

        cgroup_table_find(&f->accounting.cgroups, 3)->exported = false;
        other->exported = true;
        fixture_wait(f, other, DELAY_BLKIO, 2, NSEC_PER_MSEC);

        assert_int_equal(metrics_render(&f->view, &text, &size), 0);
        assert_non_null(strstr(text, "\ndelayd_cgroup_blkio_delay_seconds_sum{cgroup=\"(other)\"} 0.002\n"
                                     "delayd_cgroup_blkio_delay_seconds_count{cgroup=\"(other)\"} 2\n"
                                     "delayd_cgroup_blkio_delay_seconds_bucket{cgroup=\"(overflow)\","));
        assert_null(strstr(text, "delayd_cgroup_info{cgroup=\"(other)\""));
}

static void own_health_is_complete(void **state) {
        static const char *const lines[] = {
                "delayd_exits_received_total 12",
                "delayd_exits_lost_total 1",
                "delayd_exits_attributed_total{source=\"cache\"} 2",
                "delayd_exits_attributed_total{source=\"pidfd\"} 0",
                "delayd_exits_attributed_total{source=\"procfs\"} 0",
                "delayd_exits_attributed_total{source=\"parent\"} 0",
                "delayd_exits_attributed_total{source=\"none\"} 1",
                "delayd_samples_rejected_total{reason=\"impossible\"} 4",
                "delayd_samples_rejected_total{reason=\"malformed\"} 1",
                "delayd_polled_tasks 2",
                "delayd_poll_duration_seconds 0.0015",
                "delayd_cgroups_overflowed_total 0",
                "delayd_task_delayacct_enabled 1",
                "delayd_build_info{version=\"" DELAYD_VERSION "\"} 1",
                "process_cpu_seconds_total 1.23456789",
                "process_open_fds 9",
                "process_max_fds 1024",
                "process_virtual_memory_bytes 8192",
                "process_resident_memory_bytes 4096",
                "process_start_time_seconds 1700000000.123456789",
                "process_threads 1",
        };
        struct fixture *f = *state;
        _cleanup_free_ char *text = NULL;
        size_t size;

        assert_int_equal(metrics_render(&f->view, &text, &size), 0);
        for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
                char line[128];

                snprintf(line, sizeof(line), "\n%s\n", lines[i]);
                if (!strstr(text, line))
                        fail_msg("no line \"%s\"", lines[i]);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(numbers_and_bounds),
                cmocka_unit_test_setup_teardown(cgroups_to_the_letter, setup, teardown),
                cmocka_unit_test_setup_teardown(only_the_newest_of_a_path, setup, teardown),
                cmocka_unit_test_setup_teardown(not_exported_is_not_shown, setup, teardown),
                cmocka_unit_test_setup_teardown(others_are_summed_once_there_are_any, setup, teardown),
                cmocka_unit_test_setup_teardown(own_health_is_complete, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
