/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernel/cpu-list.h"

static void parses_and_formats(void **state) {
        static const struct {
                const char *text;
                size_t n;
                const char *formatted;
        } cases[] = {
                { "0\n", 1, "0" },
                { "0-1\n", 2, "0-1" },
                { "0-3,8-11", 8, "0-3,8-11" },
                { "0,2,4-6,7", 6, "0,2,4-7" },
                { "0-65535", 65536, "0-65535" },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct cpu_list list;

                assert_int_equal(cpu_list_parse(cases[i].text, &list), 0);
                assert_int_equal(list.n, cases[i].n);
                char *s = cpu_list_format(&list, 0, list.n);
                assert_string_equal(s, cases[i].formatted);
                free(s);
                cpu_list_free(&list);
        }
}

static void formats_parts(void **state) {
        struct cpu_list list;

        assert_int_equal(cpu_list_parse("0-3,8-11", &list), 0);
        char *s = cpu_list_format(&list, 2, 6);
        assert_string_equal(s, "2-3,8-9");
        free(s);
        s = cpu_list_format(&list, 7, 8);
        assert_string_equal(s, "11");
        free(s);
        cpu_list_free(&list);
}

static void refuses_what_is_no_list(void **state) {
        static const char *const bad[] = { "", "\n", "a", "-1", "1-", "0,", "0,,1", "3-1", "1,1", "2,1", "0-2,2", "0 1", "0\n1" };
        struct cpu_list list;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(cpu_list_parse(bad[i], &list), -EINVAL);
        assert_int_equal(cpu_list_parse("65536", &list), -ERANGE);
        assert_int_equal(cpu_list_parse("0-99999999999999999999", &list), -ERANGE);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(parses_and_formats),
                cmocka_unit_test(formats_parts),
                cmocka_unit_test(refuses_what_is_no_list),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
