/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "kernel/exit-filter.h"
#include "kernel/netlink-socket.h"
#include "kernel/taskstats-decode.h"
#include "taskstats-encoder.h"

#define FAMILY 31

/* The kernel runs filters of any datagram socket with the same machine. */
static int sockets[2];

static int open_sockets(void **state) {
        return socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets);
}

static int close_sockets(void **state) {
        close(sockets[0]);
        close(sockets[1]);
        return 0;
}

static void attach(uint16_t family, enum taskstats_layout layout, delay_kind_set kinds) {
        struct sock_filter program[EXIT_FILTER_MAX];

        size_t n = exit_filter_build(program, family, layout, kinds);
        assert_true(n > 0 && n <= EXIT_FILTER_MAX);
        assert_int_equal(netlink_attach_filter(sockets[1], program, n), 0);
}

static bool passes(const void *bytes, size_t size) {
        uint8_t buf[4096];

        assert_int_equal(send(sockets[0], bytes, size, 0), size);
        ssize_t n = recv(sockets[1], buf, sizeof(buf), MSG_DONTWAIT);
        if (n >= 0)
                assert_int_equal(n, size); /* whole */
        return n >= 0;
}

static bool record_passes(const void *stats, size_t size) {
        struct message m;

        message_begin(&m, FAMILY, 1);
        message_put_record(&m, TASKSTATS_TYPE_AGGR_PID, 1, stats, size);
        message_end(&m);
        bool alone = passes(m.bytes, m.size);

        /* The last thread of a group brings the group's sums, which say nothing. */
        struct wire_a group;
        memset(&group, 0xFF, sizeof(group));
        message_begin(&m, FAMILY, 1);
        message_put_record(&m, TASKSTATS_TYPE_AGGR_PID, 1, stats, size);
        message_put_record(&m, TASKSTATS_TYPE_AGGR_TGID, 1, &group, size);
        message_end(&m);
        assert_int_equal(passes(m.bytes, m.size), alone);
        return alone;
}

/* Each bit of count and total decides, in its own kind alone. */
static void check_kinds(void *stats, size_t size, uint64_t *const pairs[DELAY_KIND_COUNT], enum taskstats_layout layout) {
        for (int wanted = DELAY_BLKIO; wanted < DELAY_KIND_COUNT; wanted++) {
                attach(FAMILY, layout, DELAY_KIND_BIT(wanted));
                assert_false(record_passes(stats, size));

                for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                        for (int bit = 0; bit < 128; bit += 9) {
                                pairs[kind][bit / 64] = UINT64_C(1) << bit % 64;
                                assert_int_equal(record_passes(stats, size), kind == wanted);
                                pairs[kind][bit / 64] = 0;
                        }
        }
}

static void drops_what_never_waited(void **state) {
        struct wire_a a = { .head.version = 16, .basic = { .pid = 1, .etime = 5, .minflt = 77 } };
        uint64_t *const pairs_a[DELAY_KIND_COUNT] = {
                [DELAY_CPU] = &a.cpu.count,             [DELAY_BLKIO] = &a.blkio.count,
                [DELAY_SWAPIN] = &a.swapin.count,       [DELAY_FREEPAGES] = &a.freepages.count,
                [DELAY_THRASHING] = &a.thrashing.count, [DELAY_COMPACT] = &a.compact.count,
                [DELAY_WPCOPY] = &a.wpcopy.count,       [DELAY_IRQ] = &a.irq.count,
        };
        check_kinds(&a, 560, pairs_a, TASKSTATS_LAYOUT_A);

        struct wire_b b = { .head.version = 15, .basic = { .pid = 1, .etime = 5, .minflt = 77 } };
        uint64_t *const pairs_b[DELAY_KIND_COUNT] = {
                [DELAY_CPU] = &b.cpu.waits.count,             [DELAY_BLKIO] = &b.blkio.waits.count,
                [DELAY_SWAPIN] = &b.swapin.waits.count,       [DELAY_FREEPAGES] = &b.freepages.waits.count,
                [DELAY_THRASHING] = &b.thrashing.waits.count, [DELAY_COMPACT] = &b.compact.waits.count,
                [DELAY_WPCOPY] = &b.wpcopy.waits.count,       [DELAY_IRQ] = &b.irq.waits.count,
        };
        check_kinds(&b, sizeof(b), pairs_b, TASKSTATS_LAYOUT_B);
}

static void kinds_beyond_the_record_never_waited(void **state) {
        struct wire_a a = { .head.version = 8 };

        attach(FAMILY, TASKSTATS_LAYOUT_A, DELAY_KINDS_ALL & ~DELAY_KIND_BIT(DELAY_CPU));
        assert_false(record_passes(&a, wire_size(8)));
        a.freepages.total = 1;
        assert_true(record_passes(&a, wire_size(8)));
}

static void passes_what_is_unexpected(void **state) {
        struct wire_a a = { .head.version = 16 };
        struct message m, changed;

        attach(FAMILY, TASKSTATS_LAYOUT_A, DELAY_KINDS_DEFAULT);
        message_begin(&m, FAMILY, 1);
        message_put_record(&m, TASKSTATS_TYPE_AGGR_PID, 1, &a, 560);
        message_end(&m);
        assert_false(passes(m.bytes, m.size));

        /* Too short for what it claims, at any length; an acknowledgement has 36 or more bytes. */
        for (size_t size = 1; size < m.size; size++)
                assert_true(passes(m.bytes, size));

        static const unsigned types[] = { 4, 16, 22, 26, 34 }; /* family, command, and the types of the attributes */
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
                changed = m;
                changed.bytes[types[i]] ^= 0x80;
                assert_true(passes(changed.bytes, changed.size));
        }

        changed = m; /* an error or acknowledgement */
        changed.bytes[4] = NLMSG_ERROR;
        changed.bytes[5] = 0;
        assert_true(passes(changed.bytes, changed.size));

        /* Padding as some machines have it, before the statistics. */
        uint32_t tid = 1;
        message_begin(&m, FAMILY, 1);
        size_t at = attribute_begin(&m, TASKSTATS_TYPE_AGGR_PID);
        attribute_put(&m, TASKSTATS_TYPE_PID, &tid, sizeof(tid));
        attribute_put(&m, TASKSTATS_TYPE_NULL, NULL, 0);
        attribute_put(&m, TASKSTATS_TYPE_STATS, &a, 560);
        attribute_end(&m, at);
        message_end(&m);
        assert_true(passes(m.bytes, m.size));
}

static void no_filter_where_it_could_lie(void **state) {
        struct sock_filter program[EXIT_FILTER_MAX];

        assert_int_equal(exit_filter_build(program, FAMILY, TASKSTATS_LAYOUT_A, 0), 0);
        assert_int_equal(exit_filter_build(program, FAMILY, TASKSTATS_LAYOUT_A, DELAY_KINDS_ALL), 0);
        assert_int_equal(exit_filter_build(program, FAMILY, TASKSTATS_LAYOUT_BY_VERSION, DELAY_KINDS_DEFAULT), 0);
}

struct expected {
        delay_kind_set kinds;
        bool waited;
};

static void see_record(const struct task_sample *s, uint32_t sequence, void *userdata) {
        struct expected *e = userdata;

        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                e->waited |= delay_kind_in(e->kinds, (enum delay_kind) kind) && s->delays[kind].count > 0;
}

/* Real messages: the filter and the decoder agree on each. */
static void agrees_with_the_decoder(void **state) {
        static const char *const files[] = { "exits-linux-6.1.bin", "exits-linux-6.12.bin", "exits-linux-6.18.bin" };
        unsigned passed = 0, dropped = 0;

        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
                char path[256];
                static uint8_t bytes[1U << 16];
                uint16_t family;
                uint32_t length;

                snprintf(path, sizeof(path), FIXTURES "/%s", files[i]);
                _cleanup_fclose_ FILE *f = fopen(path, "re");
                assert_non_null(f);
                size_t size = fread(bytes, 1, sizeof(bytes), f);
                memcpy(&family, bytes + 4, sizeof(family));
                attach(family, TASKSTATS_LAYOUT_A, DELAY_KINDS_DEFAULT);

                for (size_t at = 0; at < size; at += length) {
                        struct expected expected = { .kinds = DELAY_KINDS_DEFAULT };
                        struct taskstats_walk walk = { .family = family, .record = see_record, .userdata = &expected };

                        memcpy(&length, bytes + at, sizeof(length));
                        assert_int_equal(taskstats_walk(&walk, bytes + at, length), 0);
                        assert_int_equal(passes(bytes + at, length), expected.waited);
                        *(expected.waited ? &passed : &dropped) += 1;
                }
        }

        assert_true(passed > 20);
        assert_true(dropped > 5);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(drops_what_never_waited),
                cmocka_unit_test(kinds_beyond_the_record_never_waited),
                cmocka_unit_test(passes_what_is_unexpected),
                cmocka_unit_test(no_filter_where_it_could_lie),
                cmocka_unit_test(agrees_with_the_decoder),
        };

        return cmocka_run_group_tests(tests, open_sockets, close_sockets);
}
