/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/address.h"

static void addresses_are_split(void **state) {
        char host[ADDRESS_HOST_SIZE];
        const char *port;

        assert_int_equal(address_split("127.0.0.1:10066", host, &port), 0);
        assert_string_equal(host, "127.0.0.1");
        assert_string_equal(port, "10066");
        assert_int_equal(address_split("[::1]:0", host, &port), 0);
        assert_string_equal(host, "::1");
        assert_string_equal(port, "0");
        assert_int_equal(address_split(":65535", host, &port), 0);
        assert_string_equal(host, "");
}

static void valid_addresses(void **state) {
        static const char *const valid[] = {
                "127.0.0.1:1", "0.0.0.0:65535", "[::1]:10066", "[::]:1", "[fe80::1%eth0]:1", ":10066", "[::ffff:1.2.3.4]:1",
        };
        static const char *const invalid[] = {
                "", ":", "nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:99999999999999999999999",
                "127.0.0.1:-1", "127.0.0.1:1x", "::1:1", "[::1:1", "[::1]1", "[]:1", "[127.0.0.1]:1", "localhost:1",
                "1.2.3:1", "[%eth0]:1", "256.0.0.1:1",
        };
        char deep[ADDRESS_HOST_SIZE + 16];

        for (size_t i = 0; i < sizeof(valid) / sizeof(valid[0]); i++)
                assert_true(address_is_valid(valid[i]));
        for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++)
                assert_false(address_is_valid(invalid[i]));

        memset(deep, '1', sizeof(deep));
        memcpy(deep + ADDRESS_HOST_SIZE, ":1", sizeof(":1"));
        assert_false(address_is_valid(deep));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(addresses_are_split),
                cmocka_unit_test(valid_addresses),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
