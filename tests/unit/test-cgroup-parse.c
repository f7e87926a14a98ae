/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/cgroup-tree-internal.h"

#define HYBRID                                                                                    \
        "12:cpu,cpuacct:/system.slice/a:b.service\n"                                              \
        "11:memory:/mem\n"                                                                        \
        "2:name=systemd:/named\n"                                                                 \
        "1:cpuset:/\n"                                                                            \
        "0::/system.slice/a:b.service\n"

static const struct {
        const char *text, *controllers, *path;
} lines[] = {
        { "0::/\n", NULL, "/" },
        { "0::/a/b (deleted)\n", NULL, "/a/b (deleted)" },
        { "0::/../../x\n", NULL, "/../../x" },
        { HYBRID, NULL, "/system.slice/a:b.service" },
        { HYBRID, "cpuacct", "/system.slice/a:b.service" },
        { HYBRID, "cpu,cpuacct", "/system.slice/a:b.service" },
        { HYBRID, "memory", "/mem" },
        { HYBRID, "name=systemd", "/named" },
        { HYBRID, "cpuset", "/" },
        { HYBRID, "cpus", NULL },
        { HYBRID, "mem", NULL },
        { HYBRID, "systemd", NULL },
        { HYBRID, "memory:/mem", NULL },
        { "0::/a:0::/b\n", NULL, "/a:0::/b" },
        { "10::/a\n0::/b\n", NULL, "/b" },
        { "1:name=0:/x\n", NULL, NULL },
        { "1:cpu::/x\n", "cpu", NULL }, /* a path begins with a slash */
        { "0::/no newline", NULL, NULL },
        { "0::\n", NULL, NULL },
        { "0:\n", NULL, NULL },
        { "::/\n", NULL, NULL },
        { "\n\n0::/x\n", NULL, "/x" },
        { "garbage\n0::/x\n", NULL, "/x" },
        { "", NULL, NULL },
};

static void lines_are_told_apart(void **state) {
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                size_t size = strlen(lines[i].text), length = 0;
                const char *path = NULL;

                /* No byte more than the text has, so that a sanitizer sees every read beyond it. */
                char *text = malloc(size ?: 1);
                assert_non_null(text);
                memcpy(text, lines[i].text, size);

                int r = cgroup_proc_parse(text, size, lines[i].controllers, &path, &length);
                if (lines[i].path) {
                        assert_int_equal(r, 0);
                        assert_int_equal(length, strlen(lines[i].path));
                        assert_memory_equal(path, lines[i].path, length);
                } else
                        assert_int_equal(r, -ENODATA);

                free(text);
        }
}

static bool meet(const char *a, const char *b) {
        return cgroup_lists_meet(a, strlen(a), b, strlen(b));
}

static void lists_meet_in_whole_elements(void **state) {
        assert_true(meet("cpu,cpuacct", "rw,xattr,cpuacct"));
        assert_true(meet("memory", "memory"));
        assert_false(meet("cpu", "cpuset,cpuacct"));
        assert_false(meet("cpuset_v2_mode", "cpuset"));
        assert_false(meet("", ""));
        assert_false(meet(",", ",,"));
        assert_false(meet("", "rw"));
}

static void parse(const char *text, const char *own, struct cgroup_mount **ret, size_t *ret_n) {
        FILE *f = fmemopen((void *) text, strlen(text), "r");

        assert_non_null(f);
        assert_int_equal(cgroup_mounts_parse(f, own, ret, ret_n), 0);
        fclose(f);
}

static void unified_mounts_are_understood(void **state) {
        struct cgroup_mount *mounts = NULL;
        size_t n = 0;

        parse("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
              "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
              "31 23 0:40 / /mnt/net\\040cls\\134x rw - cgroup cgroup rw,net_cls\n",
              "1:net_cls:/\n0::/init.scope\n", &mounts, &n);

        assert_int_equal(n, 2);
        assert_string_equal(mounts[0].point, "/sys/fs/cgroup");
        assert_null(mounts[0].controllers);
        assert_int_equal(mounts[0].mode, CGROUP_UNIFIED); /* v1 beside it is somebody's private matter */
        assert_string_equal(mounts[1].point, "/mnt/net cls\\x");
        assert_string_equal(mounts[1].controllers, "net_cls");
        assert_int_equal(mounts[1].mode, CGROUP_V1);
        cgroup_mounts_free(mounts, n);
}

static void hybrid_mounts_are_understood(void **state) {
        struct cgroup_mount *mounts = NULL;
        size_t n = 0;

        parse("31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
              "32 31 0:29 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n"
              "33 31 0:30 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd\n"
              "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct\n"
              "35 31 0:32 /docker/x /mnt/part rw - cgroup cgroup rw,memory\n"
              "36 31 0:33 / /mnt/unknown rw - cgroup cgroup rw,hugetlb\n",
              "3:memory:/\n2:cpu,cpuacct:/\n1:name=systemd:/init.scope\n0::/init.scope\n", &mounts, &n);

        assert_int_equal(n, 4);
        assert_int_equal(mounts[0].mode, CGROUP_HYBRID);
        assert_string_equal(mounts[1].controllers, "name=systemd");
        assert_string_equal(mounts[2].controllers, "cpu,cpuacct");
        assert_false(mounts[2].partial);
        assert_true(mounts[3].partial);
        cgroup_mounts_free(mounts, n);
}

static void mounts_that_make_no_sense_are_left_out(void **state) {
        static const char *const texts[] = {
                "\n",
                "30 23 0:26 / /sys/fs/cgroup rw - cgroup2\n",
                "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2\n",
                "30 23 0:26 / - cgroup2 cgroup2 rw\n",
                "30 23 0:26 / /sys/fs/cgroup rw cgroup2 cgroup2 rw\n",
                "30 23 0:26 / /x rw - cgroup cgroup rw\n",
                ("- - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - "
                 "- - - - - - - - - - - - - - - - - - - - - - - -\n"),
        };

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                struct cgroup_mount *mounts = NULL;
                size_t n = 1;

                parse(texts[i], "0::/\nrw\n1:\n:::\n", &mounts, &n);
                assert_int_equal(n, 0);
                cgroup_mounts_free(mounts, n);
        }

        /* A mount point that ends in half an escape. */
        struct cgroup_mount *mounts = NULL;
        size_t n = 0;
        parse("30 23 0:26 / /x\\04 rw - cgroup2 cgroup2 rw\n", "0::/\n", &mounts, &n);
        assert_int_equal(n, 1);
        assert_string_equal(mounts[0].point, "/x\\04");
        cgroup_mounts_free(mounts, n);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lines_are_told_apart),
                cmocka_unit_test(lists_meet_in_whole_elements),
                cmocka_unit_test(unified_mounts_are_understood),
                cmocka_unit_test(hybrid_mounts_are_understood),
                cmocka_unit_test(mounts_that_make_no_sense_are_left_out),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
