/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/cgroup-name.h"
#include "record/anonymize.h"

/* The first and other of the 64 vectors in the authors' reference implementation: key 00 01 … 0f, input 00 01 … */
static void siphash_is_the_authors(void **state) {
        static const uint64_t key[2] = { UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908) };
        uint8_t input[64];

        for (unsigned i = 0; i < sizeof(input); i++)
                input[i] = (uint8_t) i;

        assert_true(siphash(key, input, 0) == UINT64_C(0x726fdb47dd0e0e31));
        assert_true(siphash(key, input, 1) == UINT64_C(0x74f839c593dc67fd));
        assert_true(siphash(key, input, 8) == UINT64_C(0x93f5f5799a932462));
        assert_true(siphash(key, input, 15) == UINT64_C(0xa129ca6149be45e5));
}

#define ID64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void what_is_common_stays(void **state) {
        static const struct { const char *path, *expected; /* "*" stands for a hash */ } cases[] = {
                { "/", "/" },
                { "/system.slice", "/system.slice" },
                { "/system.slice/shop.service", "/system.slice/*.service" },
                { "/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/session-3.scope" },
                { "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome\\x2dx.scope",
                  "/user.slice/user-1000.slice/user@1000.service/*.slice/*.scope" },
                { "/system.slice/docker-" ID64 ".scope", "/system.slice/docker-*.scope" },
                { "/docker/" ID64, "/docker/*" },
                { "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice/"
                  "cri-containerd-" ID64 ".scope",
                  "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod*.slice/cri-containerd-*.scope" },
                { "/a/bb/.service", "/*/*/*" },
        };
        struct anonymizer a;

        assert_int_equal(anonymizer_init(&a), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                char *path = anonymize_path(&a, cases[i].path), *p = path;
                const char *e = cases[i].expected;

                assert_non_null(path);
                for (; *e; e++)
                        if (*e == '*') {
                                size_t n = strspn(p, "0123456789abcdef_");

                                assert_true(n >= 16);
                                p += n;
                        } else
                                assert_int_equal(*p++, *e);
                assert_int_equal(*p, '\0');
                free(path);
        }
}

static void the_kind_of_container_is_still_told(void **state) {
        static const char path[] = "/kubepods.slice/kubepods-burstable.slice/"
                        "kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-containerd-" ID64 ".scope";
        struct cgroup_name name, original;
        struct anonymizer a;

        assert_int_equal(anonymizer_init(&a), 0);
        char *anonymous = anonymize_path(&a, path);
        assert_non_null(anonymous);
        assert_int_equal(strlen(anonymous), strlen(path));
        assert_int_equal(cgroup_name_parse(path, &original), 0);
        assert_int_equal(cgroup_name_parse(anonymous, &name), 0);
        assert_string_equal(name.pod_qos, "burstable");
        assert_int_equal(strlen(name.container_id), 64);
        assert_int_equal(strlen(name.pod_uid), 36);
        assert_string_not_equal(name.container_id, original.container_id);
        assert_string_not_equal(name.pod_uid, original.pod_uid);
        cgroup_name_free(&name);
        cgroup_name_free(&original);
        free(anonymous);
}

static void the_same_name_is_the_same_hash(void **state) {
        struct anonymizer a, b;
        char comm[3][ANONYMIZED_COMM_SIZE];

        assert_int_equal(anonymizer_init(&a), 0);
        assert_int_equal(anonymizer_init(&b), 0);
        anonymize_comm(&a, "postgres", comm[0]);
        anonymize_comm(&a, "postgres", comm[1]);
        assert_string_equal(comm[0], comm[1]);
        anonymize_comm(&a, "postgre", comm[1]);
        assert_string_not_equal(comm[0], comm[1]);
        anonymize_comm(&b, "postgres", comm[1]); /* but not in another recording */
        assert_string_not_equal(comm[0], comm[1]);
        anonymize_comm(&a, "", comm[2]);
        assert_string_equal(comm[2], "");

        char *x = anonymize_path(&a, "/shop/shop/cart"), *second = strchr(x + 1, '/'), *third = strrchr(x, '/');
        assert_memory_equal(x, second, (size_t) (second - x));
        assert_string_not_equal(second, third);
        assert_string_not_equal(x, third);
        free(x);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(siphash_is_the_authors),
                cmocka_unit_test(what_is_common_stays),
                cmocka_unit_test(the_kind_of_container_is_still_told),
                cmocka_unit_test(the_same_name_is_the_same_hash),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
