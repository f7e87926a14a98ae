/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/health.h"

static void problems_come_and_go(void **state) {
        struct health health = {};

        assert_string_equal(health_word(&health), "ok");
        assert_int_equal(health_raise(&health, "a", PROBLEM_DEGRADED, "message", "remedy"), 1);
        assert_int_equal(health_raise(&health, "a", PROBLEM_DEGRADED, "newer", "remedy"), 0);
        assert_string_equal(health.problems->message, "newer");
        assert_string_equal(health_word(&health), "degraded");

        assert_int_equal(health_raise(&health, "b", PROBLEM_FAILING, "message", "remedy"), 1);
        assert_string_equal(health_word(&health), "failing");
        assert_string_equal(health.problems->next->id, "b");

        assert_true(health_clear(&health, "b"));
        assert_false(health_clear(&health, "b"));
        assert_true(health_clear(&health, "a"));
        assert_string_equal(health_word(&health), "ok");
        health_free(&health);
}

static void gaps_expire(void **state) {
        struct health health = {};

        assert_int_equal(health_raise(&health, "stays", PROBLEM_DEGRADED, "message", "remedy"), 1);
        assert_int_equal(health_raise(&health, "gap", PROBLEM_DEGRADED, "message", "remedy"), 1);
        health_expire_at(&health, "gap", 100);
        health_expire_at(&health, "unknown", 100);
        assert_null(health_expired(&health, 99));

        /* Once more: the time begins anew. */
        assert_int_equal(health_raise(&health, "gap", PROBLEM_DEGRADED, "message", "remedy"), 0);
        assert_null(health_expired(&health, 1000));
        health_expire_at(&health, "gap", 1100);
        assert_null(health_expired(&health, 1099));
        assert_string_equal(health_expired(&health, 1100), "gap");
        assert_null(health_expired(&health, UINT64_MAX));
        assert_string_equal(health.problems->id, "stays");
        assert_null(health.problems->next);
        health_free(&health);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(gaps_expire),
                cmocka_unit_test(problems_come_and_go),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
