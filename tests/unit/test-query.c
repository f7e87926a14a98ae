/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/query.h"
#include "serve-fixture.h"

static int setup(void **state) {
        struct fixture *f = malloc(sizeof(*f));

        fixture_init(f);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        fixture_done(*state);
        free(*state);
        return 0;
}

static void kinds_are_parsed(void **state) {
        const delay_kind_set collected = DELAY_KINDS_DEFAULT | DELAY_KIND_BIT(DELAY_CPU);
        struct query query = {};
        const char *error = NULL;

        assert_int_equal(query_parse_kinds(NULL, collected, &query, &error), 0);
        assert_int_equal(query.kinds, collected);
        assert_int_equal(query.sort_kind, DELAY_BLKIO);
        assert_int_equal(query_parse_kinds(" , ", DELAY_KIND_BIT(DELAY_IRQ), &query, &error), 0);
        assert_int_equal(query.sort_kind, DELAY_IRQ);

        assert_int_equal(query_parse_kinds(" swapin,\tblkio ", collected, &query, &error), 0);
        assert_int_equal(query.kinds, DELAY_KINDS_DEFAULT);
        assert_int_equal(query.sort_kind, DELAY_SWAPIN);

        assert_int_equal(query_parse_kinds("blkio blk", collected, &query, &error), -EINVAL);
        assert_non_null(strstr(error, "thrashing"));
        assert_int_equal(query_parse_kinds("blkiox", collected, &query, &error), -EINVAL);
        assert_int_equal(query_parse_kinds("irq", collected, &query, &error), -EINVAL);
        assert_non_null(strstr(error, "Collect.Kinds="));
}

static void orders_are_parsed(void **state) {
        struct query query = { .sort = QUERY_SORT_MAX };
        const char *error = NULL;

        assert_int_equal(query_parse_sort(NULL, &query, &error), 0);
        assert_int_equal(query.sort, QUERY_SORT_TOTAL);
        assert_int_equal(query_parse_sort("p99", &query, &error), 0);
        assert_int_equal(query.sort, QUERY_SORT_P99);
        assert_int_equal(query_parse_sort("cgroup", &query, &error), 0);
        assert_int_equal(query.sort, QUERY_SORT_NAME);
        assert_int_equal(query_parse_sort("p9", &query, &error), -EINVAL);
        assert_non_null(strstr(error, "p90"));
}

static struct cgroup_row *ask(const struct fixture *f, const struct query *query, size_t expected, uint64_t *ret_window) {
        struct cgroup_row *rows = NULL;
        uint64_t window_nsec;
        size_t n = 0;

        assert_int_equal(query_cgroups(&f->accounting, f->now_nsec, query, &window_nsec, &rows, &n), 0);
        assert_int_equal(n, expected);
        if (ret_window)
                *ret_window = window_nsec;
        return rows;
}

static void most_delayed_first(void **state) {
        const struct fixture *f = *state;
        uint64_t window_nsec;
        struct cgroup_row *rows = ask(f, &(struct query) {}, 7, &window_nsec);

        assert_int_equal(window_nsec, DELAYD_WINDOW_DEFAULT_NSEC);
        assert_string_equal(rows[0].cgroup->display, "/job");
        assert_true(rows[0].cgroup->removed_nsec > 0);
        assert_int_equal(rows[0].delays[DELAY_BLKIO].totals.total_nsec, 5 * NSEC_PER_SEC);

        assert_string_equal(rows[1].cgroup->display, "/system.slice/db.service");
        assert_int_equal(rows[1].cgroup->tasks, 2);
        assert_int_equal(rows[1].cgroup->unaccounted_tasks, 1);
        assert_int_equal(rows[1].delays[DELAY_BLKIO].totals.waits, 4);
        assert_int_equal(rows[1].delays[DELAY_BLKIO].totals.max_nsec, 2 * NSEC_PER_SEC + 1);
        assert_int_equal(rows[1].delays[DELAY_BLKIO].totals.rejected_waits, 7);
        assert_int_equal(rows[1].delays[DELAY_SWAPIN].totals.waits, 1);
        assert_in_range(rows[1].delays[DELAY_BLKIO].p50_nsec, 800000, 1200000);

        assert_int_equal(rows[2].cgroup->key, 4);
        /* equal totals: by name */
        assert_string_equal(rows[3].cgroup->display, DELAYD_CGROUP_UNATTRIBUTED);
        assert_string_equal(rows[4].cgroup->display, "/job");
        assert_int_equal(rows[4].cgroup->removed_nsec, 0);
        assert_string_equal(rows[5].cgroup->display, "/");
        assert_string_equal(rows[6].cgroup->display, "/system.slice");
        free(rows);
}

static void other_orders_and_limits(void **state) {
        const struct fixture *f = *state;

        struct cgroup_row *rows = ask(f, &(struct query) { .sort = QUERY_SORT_NAME, .limit = 3 }, 3, NULL);
        assert_string_equal(rows[0].cgroup->display, DELAYD_CGROUP_UNATTRIBUTED);
        assert_string_equal(rows[1].cgroup->display, "/");
        assert_string_equal(rows[2].cgroup->display, "/job");
        assert_int_equal(rows[2].cgroup->removed_nsec, 0); /* the one that exists goes first */
        free(rows);

        rows = ask(f, &(struct query) { .kinds = DELAY_KIND_BIT(DELAY_SWAPIN), .sort = QUERY_SORT_P99, .limit = 1 }, 1, NULL);
        assert_string_equal(rows[0].cgroup->display, "/system.slice/db.service");
        assert_int_equal(rows[0].delays[DELAY_SWAPIN].p99_nsec, 250 * NSEC_PER_USEC);
        assert_int_equal(rows[0].delays[DELAY_BLKIO].totals.waits, 0); /* not asked for */
        free(rows);

        rows = ask(f, &(struct query) { .sort = QUERY_SORT_WAITS, .limit = 1 }, 1, NULL);
        assert_int_equal(rows[0].delays[DELAY_BLKIO].totals.waits, 5);
        free(rows);
}

static void special_entries_only_with_waits(void **state) {
        struct fixture *f = *state;

        f->now_nsec += 3 * 3600 * NSEC_PER_SEC;

        struct cgroup_row *rows = ask(f, &(struct query) {}, 6, NULL);
        for (size_t i = 0; i < 6; i++) {
                assert_int_equal(rows[i].cgroup->display[0], '/');
                assert_int_equal(rows[i].delays[DELAY_BLKIO].totals.waits, 0);
        }
        free(rows);
}

static void recursive_sums_subtrees(void **state) {
        struct fixture *f = *state;

        /* The parent has waits of its own, too. */
        fixture_wait(f, cgroup_table_find(&f->accounting.cgroups, 2), DELAY_BLKIO, 2, 10 * NSEC_PER_MSEC);

        struct cgroup_row *rows = ask(f, &(struct query) { .recursive = true, .sort = QUERY_SORT_NAME }, 7, NULL);

        assert_string_equal(rows[1].cgroup->display, "/");
        assert_int_equal(rows[1].subtree->delays[DELAY_BLKIO].totals.waits, 5 + 4 + 2 + 1 + 1);
        assert_int_equal(rows[1].subtree->delays[DELAY_BLKIO].totals.total_nsec,
                         5 * NSEC_PER_SEC + 2 * NSEC_PER_SEC + 1 + 3 * NSEC_PER_MSEC + 20 * NSEC_PER_MSEC +
                         250 * NSEC_PER_MSEC + NSEC_PER_MSEC);
        assert_int_equal(rows[1].subtree->delays[DELAY_BLKIO].totals.max_nsec, 2 * NSEC_PER_SEC + 1);
        assert_int_equal(rows[1].subtree->tasks, 2);
        assert_int_equal(rows[1].subtree->unaccounted_tasks, 1);

        assert_string_equal(rows[4].cgroup->display, "/system.slice");
        assert_int_equal(rows[4].subtree->delays[DELAY_BLKIO].totals.waits, 6);
        assert_int_equal(rows[4].subtree->delays[DELAY_SWAPIN].totals.waits, 1);
        assert_string_equal(rows[5].cgroup->display, "/system.slice/db.service");
        assert_int_equal(rows[5].subtree->delays[DELAY_BLKIO].totals.waits, 4);

        /* The cgroups' own numbers stay what they are, so that nobody counts twice. */
        assert_int_equal(rows[1].delays[DELAY_BLKIO].totals.waits, 0);
        assert_int_equal(rows[4].delays[DELAY_BLKIO].totals.waits, 2);
        assert_int_equal(rows[5].delays[DELAY_BLKIO].totals.waits, 4);
        uint64_t own = 0;
        for (size_t i = 1; i < 7; i++)
                own += rows[i].delays[DELAY_BLKIO].totals.waits;
        assert_int_equal(own, rows[1].subtree->delays[DELAY_BLKIO].totals.waits);

        assert_string_equal(rows[0].cgroup->display, DELAYD_CGROUP_UNATTRIBUTED);
        assert_int_equal(rows[0].delays[DELAY_BLKIO].totals.waits, 1);
        assert_int_equal(rows[0].subtree->delays[DELAY_BLKIO].totals.waits, 1);
        free(rows);

        rows = ask(f, &(struct query) { .sort = QUERY_SORT_NAME }, 7, NULL);
        assert_null(rows[1].subtree);
        free(rows);

        /* Sorted by what is in the subtree. */
        rows = ask(f, &(struct query) { .recursive = true, .limit = 2 }, 2, NULL);
        assert_string_equal(rows[0].cgroup->display, "/");
        assert_string_equal(rows[1].cgroup->display, "/job");
        free(rows);
}

static void histograms_are_summed(void **state) {
        const struct fixture *f = *state;
        const struct cgroup *root = cgroup_table_find(&f->accounting.cgroups, 1);
        struct histogram h = {};
        struct delay_totals totals;
        uint64_t window_nsec;

        assert_int_equal(query_histogram(&f->accounting, f->now_nsec, root, DELAY_BLKIO, 70 * NSEC_PER_SEC, false,
                                         &window_nsec, &totals, &h), 0);
        assert_int_equal(window_nsec, 60 * NSEC_PER_SEC);
        assert_int_equal(totals.waits, 0);
        assert_int_equal(histogram_waits(&h), 0);

        assert_int_equal(query_histogram(&f->accounting, f->now_nsec, root, DELAY_BLKIO, 0, true, &window_nsec, &totals, &h), 0);
        assert_int_equal(totals.waits, 11);
        assert_int_equal(histogram_waits(&h), 11);
        assert_int_equal(histogram_get(&h, histogram_bucket_of(NSEC_PER_SEC)), 5);
        histogram_free(&h);
}

static void tasks_live_and_gone(void **state) {
        const struct fixture *f = *state;
        struct task_row *rows = NULL;
        uint64_t window_nsec;
        size_t n;

        assert_int_equal(query_tasks(&f->accounting, f->now_nsec, &(struct query) {}, &window_nsec, &rows, &n), 0);
        assert_int_equal(n, 3);
        assert_int_equal(rows[0].tid, 100);
        assert_true(rows[0].alive);
        assert_string_equal(rows[0].comm, "postgres");
        assert_string_equal(rows[0].cgroup->display, "/system.slice/db.service");
        assert_int_equal(rows[0].delays[DELAY_BLKIO].totals.waits, 3);
        assert_int_equal(rows[1].tid, 99);
        assert_false(rows[1].alive);
        assert_int_equal(rows[2].tid, 101);
        free(rows);

        const struct query own = { .only_uid = true, .uid = 1, .sort = QUERY_SORT_NAME };
        assert_int_equal(query_tasks(&f->accounting, f->now_nsec, &own, &window_nsec, &rows, &n), 0);
        assert_int_equal(n, 2);
        assert_string_equal(rows[0].comm, "gone");
        free(rows);

        /* None waited for swap, so that there is nothing to show. */
        const struct query swapin = { .kinds = DELAY_KIND_BIT(DELAY_SWAPIN), .sort_kind = DELAY_SWAPIN };
        assert_int_equal(query_tasks(&f->accounting, f->now_nsec, &swapin, &window_nsec, &rows, &n), 0);
        assert_int_equal(n, 0);
        free(rows);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(kinds_are_parsed),
                cmocka_unit_test(orders_are_parsed),
                cmocka_unit_test_setup_teardown(most_delayed_first, setup, teardown),
                cmocka_unit_test_setup_teardown(other_orders_and_limits, setup, teardown),
                cmocka_unit_test_setup_teardown(special_entries_only_with_waits, setup, teardown),
                cmocka_unit_test_setup_teardown(recursive_sums_subtrees, setup, teardown),
                cmocka_unit_test_setup_teardown(histograms_are_summed, setup, teardown),
                cmocka_unit_test_setup_teardown(tasks_live_and_gone, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
