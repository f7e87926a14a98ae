/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/delay-evidence.h"

static void nothing_is_known_without_witnesses(void **state) {
        struct delay_evidence e = {};

        assert_int_equal(delay_evidence_judge(&e, 10), DELAY_EVIDENCE_UNKNOWN);
}

static void switched_on_once(void **state) {
        struct delay_evidence e = {};

        delay_evidence_add(&e, 50, false);
        delay_evidence_add(&e, 20, false);
        delay_evidence_add(&e, 100, true);
        delay_evidence_add(&e, 300, true);
        assert_int_equal(e.n, 2);

        assert_int_equal(delay_evidence_judge(&e, 5), DELAY_EVIDENCE_OFF);
        assert_int_equal(delay_evidence_judge(&e, 30), DELAY_EVIDENCE_OFF);
        assert_int_equal(delay_evidence_judge(&e, 50), DELAY_EVIDENCE_OFF);
        assert_int_equal(delay_evidence_judge(&e, 70), DELAY_EVIDENCE_AFTER_OFF);
        assert_int_equal(delay_evidence_judge(&e, 100), DELAY_EVIDENCE_ON);
        assert_int_equal(delay_evidence_judge(&e, 200), DELAY_EVIDENCE_ON);
        assert_int_equal(delay_evidence_judge(&e, 400), DELAY_EVIDENCE_UNKNOWN);

        /* A later witness of the time before the switch moves the edge. */
        delay_evidence_add(&e, 80, true);
        assert_int_equal(delay_evidence_judge(&e, 90), DELAY_EVIDENCE_ON);
        delay_evidence_add(&e, 75, false);
        assert_int_equal(delay_evidence_judge(&e, 70), DELAY_EVIDENCE_OFF);
        assert_int_equal(e.n, 2);
}

static void switched_off_for_a_while(void **state) {
        struct delay_evidence e = {};

        delay_evidence_add(&e, 100, true);
        delay_evidence_add(&e, 500, true);
        delay_evidence_add(&e, 300, false);
        assert_int_equal(e.n, 3);
        delay_evidence_add(&e, 350, false);
        delay_evidence_add(&e, 200, true);
        delay_evidence_add(&e, 400, true);
        assert_int_equal(e.n, 3);

        assert_int_equal(delay_evidence_judge(&e, 50), DELAY_EVIDENCE_UNKNOWN);
        assert_int_equal(delay_evidence_judge(&e, 150), DELAY_EVIDENCE_ON);
        assert_int_equal(delay_evidence_judge(&e, 250), DELAY_EVIDENCE_UNKNOWN);
        assert_int_equal(delay_evidence_judge(&e, 320), DELAY_EVIDENCE_OFF);
        assert_int_equal(delay_evidence_judge(&e, 380), DELAY_EVIDENCE_AFTER_OFF);
        assert_int_equal(delay_evidence_judge(&e, 450), DELAY_EVIDENCE_ON);
}

/* What it says of witnesses stays true, whatever their order; and what is kept is in order. */
static void any_order_of_witnesses(void **state) {
        for (unsigned seed = 1; seed <= 200; seed++) {
                struct delay_evidence e = {};
                bool on[64];

                srandom(seed);
                for (unsigned i = 0; i < 64; i++)
                        on[i] = i / 16 % 2; /* four spells */

                for (unsigned k = 0; k < 300; k++) {
                        unsigned i = (unsigned) random() % 64;

                        delay_evidence_add(&e, 100 + i, on[i]);
                        assert_int_equal(delay_evidence_judge(&e, 100 + i), on[i] ? DELAY_EVIDENCE_ON : DELAY_EVIDENCE_OFF);
                        for (unsigned r = 0; r < e.n; r++) {
                                assert_true(e.runs[r].first_nsec <= e.runs[r].last_nsec);
                                assert_true(r == 0 || e.runs[r - 1].last_nsec < e.runs[r].first_nsec);
                                assert_true(r == 0 || e.runs[r - 1].on != e.runs[r].on);
                        }
                }
                assert_in_range(e.n, 4, 5);

                /* Nothing is said against a witness that was not asked. */
                for (unsigned i = 0; i < 64; i++)
                        assert_int_not_equal(delay_evidence_judge(&e, 100 + i), on[i] ? DELAY_EVIDENCE_OFF : DELAY_EVIDENCE_ON);
        }
}

static void old_spells_are_forgotten(void **state) {
        struct delay_evidence e = {};

        for (uint64_t i = 1; i <= 100; i++)
                delay_evidence_add(&e, i * 10, i % 2);
        assert_true(e.n <= DELAY_EVIDENCE_RUNS);
        assert_int_equal(delay_evidence_judge(&e, 990), DELAY_EVIDENCE_ON);
        assert_int_equal(delay_evidence_judge(&e, 1000), DELAY_EVIDENCE_OFF);

        /* In the midst of the oldest, when there is no room. */
        delay_evidence_add(&e, 1, true);
        delay_evidence_add(&e, 5, false);
        assert_true(e.n <= DELAY_EVIDENCE_RUNS);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_is_known_without_witnesses),
                cmocka_unit_test(switched_on_once),
                cmocka_unit_test(switched_off_for_a_while),
                cmocka_unit_test(any_order_of_witnesses),
                cmocka_unit_test(old_spells_are_forgotten),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
