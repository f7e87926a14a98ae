/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve-fixture.h"
#include "serve/json-build.h"
#include "serve/json-view.h"

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

static const char *text_of(struct json_object *object) {
        return json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
}

static void assert_begins(const char *text, const char *beginning) {
        if (strncmp(text, beginning, strlen(beginning)) != 0)
                fail_msg("%.300s", text);
}

#define NO_WAITS \
        "{\"waits\":0,\"total_nsec\":0,\"mean_nsec\":null,\"p50_nsec\":null,\"p90_nsec\":null,\"p99_nsec\":null,"           \
        "\"max_nsec\":null,\"rejected_waits\":0,\"without_io_waits\":0,\"exact_waits\":0}"

static void cgroups_to_the_letter(void **state) {
        struct fixture *f = *state;
        _cleanup_json_ struct json_object *object = NULL;
        const struct query query = { .window_nsec = 60 * NSEC_PER_SEC, .limit = 2 };

        assert_int_equal(json_cgroups(&f->view, &query, &object), 0);
        assert_string_equal(
                text_of(object),
                "{\"window_nsec\":60000000000,\"cgroups\":["
                "{\"cgroup\":\"/job\",\"unit\":null,\"container_id\":null,\"slice\":null,\"pod_uid\":null,\"removed\":true,"
                "\"tasks\":0,\"unaccounted_tasks\":0,"
                "\"blkio\":{\"waits\":5,\"total_nsec\":5000000000,\"mean_nsec\":1000000000,\"p50_nsec\":1000000000,"
                "\"p90_nsec\":1000000000,\"p99_nsec\":1000000000,\"max_nsec\":1000000000,\"rejected_waits\":0,"
                "\"without_io_waits\":0,\"exact_waits\":5},\"swapin\":" NO_WAITS "},"
                "{\"cgroup\":\"/system.slice/db.service\",\"unit\":\"db.service\",\"container_id\":null,"
                "\"slice\":\"system.slice\",\"pod_uid\":null,\"removed\":false,\"tasks\":2,\"unaccounted_tasks\":1,"
                "\"blkio\":{\"waits\":4,\"total_nsec\":2003000001,\"mean_nsec\":500750000,\"p50_nsec\":1096154,"
                "\"p90_nsec\":2000000001,\"p99_nsec\":2000000001,\"max_nsec\":2000000001,\"rejected_waits\":7,"
                "\"without_io_waits\":0,\"exact_waits\":4},"
                "\"swapin\":{\"waits\":1,\"total_nsec\":250000,\"mean_nsec\":250000,\"p50_nsec\":250000,"
                "\"p90_nsec\":250000,\"p99_nsec\":250000,\"max_nsec\":250000,\"rejected_waits\":0,"
                "\"without_io_waits\":0,\"exact_waits\":1}}]}");
}

static void histogram_has_all_buckets(void **state) {
        struct fixture *f = *state;
        _cleanup_json_ struct json_object *object = NULL;
        struct json_object *buckets, *le, *waits;
        uint64_t sum = 0;

        assert_int_equal(json_histogram(&f->view, "db.service", DELAY_BLKIO, 0, false, &object), 0);
        assert_begins(
                text_of(object),
                "{\"cgroup\":\"/system.slice/db.service\",\"kind\":\"blkio\",\"window_nsec\":300000000000,\"waits\":4,"
                "\"total_nsec\":2003000001,\"buckets\":[{\"le_nsec\":953,\"waits\":0},{\"le_nsec\":1134,\"waits\":0},");

        buckets = json_object_object_get(object, "buckets");
        assert_int_equal(json_object_array_length(buckets), HISTOGRAM_BUCKET_COUNT);
        for (size_t i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
                struct json_object *bucket = json_object_array_get_idx(buckets, i);

                assert_true(json_object_object_get_ex(bucket, "le_nsec", &le));
                assert_true(json_object_object_get_ex(bucket, "waits", &waits));
                assert_true(!le == (i == HISTOGRAM_BUCKET_COUNT - 1));
                sum += json_object_get_uint64(waits);
        }
        assert_int_equal(sum, 4);

        object = (json_object_put(object), NULL);
        assert_int_equal(json_histogram(&f->view, "/nowhere", DELAY_BLKIO, 0, false, &object), -ENOENT);
        assert_int_equal(json_histogram(&f->view, "", DELAY_BLKIO, 0, false, &object), -ENOENT);
        assert_int_equal(json_histogram(&f->view, FIXTURE_NASTY_PATH, DELAY_BLKIO, 0, false, &object), 0);
        assert_begins(text_of(object), "{\"cgroup\":\"/we\\\"ird\\\\x2d\\\\x0a\\\\xff\xc3\xa9\",");
}

static void ambiguous_names_are_refused(void **state) {
        struct fixture *f = *state;
        struct json_object *object = NULL;

        fixture_add(f, 20, 1, "/other.slice");
        fixture_add(f, 21, 20, "/other.slice/db.service");
        assert_int_equal(json_histogram(&f->view, "db.service", DELAY_BLKIO, 0, false, &object), -ENOTUNIQ);
        assert_null(object);
}

static void tasks_are_displayable(void **state) {
        struct fixture *f = *state;
        _cleanup_json_ struct json_object *object = NULL;
        const struct query query = { .kinds = DELAY_KIND_BIT(DELAY_BLKIO) };

        f->tasks[1]->history->tgid = 0; /* unknown */
        assert_int_equal(json_tasks(&f->view, &query, &object), 0);
        assert_string_equal(
                text_of(object),
                "{\"window_nsec\":300000000000,\"tasks\":["
                "{\"tid\":100,\"tgid\":100,\"comm\":\"postgres\",\"cgroup\":\"/system.slice/db.service\",\"alive\":true,"
                "\"blkio\":{\"waits\":3,\"total_nsec\":3000000,\"mean_nsec\":1000000,\"p50_nsec\":1000000,"
                "\"p90_nsec\":1000000,\"p99_nsec\":1000000,\"max_nsec\":1000000,\"rejected_waits\":0,\"without_io_waits\":0,"
                "\"exact_waits\":3},\"uid\":0,\"attribution\":\"cache\"},"
                "{\"tid\":99,\"tgid\":99,\"comm\":\"gone\",\"cgroup\":\"/job\",\"alive\":false,"
                "\"blkio\":{\"waits\":2,\"total_nsec\":2000000,\"mean_nsec\":1000000,\"p50_nsec\":1000000,"
                "\"p90_nsec\":1000000,\"p99_nsec\":1000000,\"max_nsec\":1000000,\"rejected_waits\":0,\"without_io_waits\":0,"
                "\"exact_waits\":2},\"uid\":1,\"attribution\":\"cache\"},"
                "{\"tid\":101,\"tgid\":null,\"comm\":\"we\\\"ird\\\\x0a\\\\xff\","
                "\"cgroup\":\"/we\\\"ird\\\\x2d\\\\x0a\\\\xff\xc3\xa9\",\"alive\":true,"
                "\"blkio\":{\"waits\":1,\"total_nsec\":1000000,\"mean_nsec\":1000000,\"p50_nsec\":1000000,"
                "\"p90_nsec\":1000000,\"p99_nsec\":1000000,\"max_nsec\":1000000,\"rejected_waits\":0,\"without_io_waits\":0,"
                "\"exact_waits\":1},\"uid\":1,\"attribution\":\"cache\"}]}");
}

static void status_to_the_letter(void **state) {
        struct fixture *f = *state;
        _cleanup_json_ struct json_object *object = NULL;

        health_raise(&f->health, "bus-unavailable", PROBLEM_DEGRADED, "No\nbus \xff", "Start it.");
        assert_int_equal(json_status(&f->view, &object), 0);
        assert_string_equal(
                text_of(object),
                "{\"version\":\"" DELAYD_VERSION "\",\"uptime_nsec\":60000000000,\"health\":\"degraded\","
                "\"problems\":[{\"id\":\"bus-unavailable\",\"message\":\"No\\\\x0abus \\\\xff\",\"remedy\":\"Start it.\","
                "\"severity\":\"degraded\"}],"
                "\"kernel\":{\"release\":\"6.18.0\",\"taskstats_version\":16,\"task_delayacct\":true,"
                "\"delayed_dequeue\":\"on\",\"cgroup_hierarchy\":\"unified\"},"
                "\"exits\":{\"received\":12,\"lost\":1,\"filter\":\"on\","
                "\"attributed\":{\"cache\":2,\"pidfd\":0,\"procfs\":0,\"parent\":0,\"none\":1}},"
                "\"samples\":{\"accepted\":10,\"rejected\":5,"
                "\"reasons\":{\"impossible\":4,\"overflow\":0,\"backwards\":0,\"no_baseline\":0,\"malformed\":1}},"
                "\"polling\":{\"interval_nsec\":1000000000,\"tasks\":2,\"last_duration_nsec\":1500000},"
                "\"cgroups\":{\"tracked\":5,\"removed\":1,\"overflowed\":0},"
                "\"cpu_nsec\":1234567890,\"rss_bytes\":4096,\"replay\":null}");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(cgroups_to_the_letter, setup, teardown),
                cmocka_unit_test_setup_teardown(histogram_has_all_buckets, setup, teardown),
                cmocka_unit_test_setup_teardown(ambiguous_names_are_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(tasks_are_displayable, setup, teardown),
                cmocka_unit_test_setup_teardown(status_to_the_letter, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
