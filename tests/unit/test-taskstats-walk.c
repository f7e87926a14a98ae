/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "kernel/taskstats-decode.h"
#include "taskstats-encoder.h"

#define FAMILY 31

struct seen {
        unsigned records, errors;
        uint32_t tid, sequence;
        int error;
        struct task_sample sample;
};

static void see_record(const struct task_sample *sample, uint32_t sequence, void *userdata) {
        struct seen *seen = userdata;

        assert_int_equal(sample->comm[TASK_COMM_SIZE - 1], '\0');
        seen->records++;
        seen->tid = sample->tid;
        seen->sequence = sequence;
        seen->sample = *sample;
}

static void see_error(int error, uint32_t sequence, void *userdata) {
        struct seen *seen = userdata;

        assert_true(error <= 0);
        seen->errors++;
        seen->error = error;
        seen->sequence = sequence;
}

/* From a buffer of exactly this size, at every alignment. */
static unsigned walk_bytes(const void *bytes, size_t size, struct seen *seen) {
        struct taskstats_walk walk = {
                .family = FAMILY,
                .layout = TASKSTATS_LAYOUT_BY_VERSION,
                .record = see_record,
                .error = see_error,
                .userdata = seen,
        };
        unsigned malformed = 0;

        for (size_t shift = 0; shift < 2; shift++) {
                uint8_t *copy = malloc(size + shift);

                assert_non_null(copy);
                memcpy(copy + shift, bytes, size);
                *seen = (struct seen) {};
                malformed = taskstats_walk(&walk, copy + shift, size);
                free(copy);
        }

        return malformed;
}

static void make_message(struct message *m, uint32_t sequence, uint32_t tid, bool with_group) {
        struct wire_a w = {};

        w.head.version = 16;
        w.basic.pid = tid;
        message_begin(m, FAMILY, sequence);
        message_put_record(m, TASKSTATS_TYPE_AGGR_PID, tid, &w, 560);
        if (with_group) {
                w.head.version = 0; /* as kernels before the fix of 2026 send it */
                message_put_record(m, TASKSTATS_TYPE_AGGR_TGID, tid, &w, 560);
        }
        message_end(m);
}

static void walk_takes_task_records_alone(void **state) {
        struct wire_a w = { .head.version = 16 };
        struct message m;
        struct seen seen;

        make_message(&m, 5, 100, true);
        assert_int_equal(m.size, 1172); /* as measured on Linux 6.18 */
        assert_int_equal(walk_bytes(m.bytes, m.size, &seen), 0);
        assert_int_equal(seen.records, 1);
        assert_int_equal(seen.tid, 100);
        assert_int_equal(seen.sequence, 5);

        message_begin(&m, FAMILY, 6);
        message_put_record(&m, TASKSTATS_TYPE_AGGR_TGID, 100, &w, 560);
        message_end(&m);
        assert_int_equal(walk_bytes(m.bytes, m.size, &seen), 0);
        assert_int_equal(seen.records, 0);

        /* A record of a task that claims version 0 is not one. */
        w.head.version = 0;
        message_begin(&m, FAMILY, 7);
        message_put_record(&m, TASKSTATS_TYPE_AGGR_PID, 100, &w, 560);
        message_end(&m);
        assert_int_equal(walk_bytes(m.bytes, m.size, &seen), 1);
        assert_int_equal(seen.records, 0);
}

static void walk_tolerates_padding_and_flags(void **state) {
        struct wire_a w = { .head.version = 16, .blkio.count = 9 };
        uint32_t tid = 100;
        struct message m;
        struct seen seen;

        message_begin(&m, FAMILY, 5);
        attribute_put(&m, TASKSTATS_TYPE_NULL, NULL, 0);
        size_t at = attribute_begin(&m, TASKSTATS_TYPE_AGGR_PID | NLA_F_NESTED);
        attribute_put(&m, TASKSTATS_TYPE_PID, &tid, sizeof(tid));
        attribute_put(&m, TASKSTATS_TYPE_NULL, NULL, 0);
        attribute_put(&m, TASKSTATS_TYPE_STATS | NLA_F_NET_BYTEORDER, &w, 560);
        attribute_end(&m, at);
        message_end(&m);

        assert_int_equal(walk_bytes(m.bytes, m.size, &seen), 0);
        assert_int_equal(seen.records, 1);
        assert_int_equal(seen.sample.delays[DELAY_BLKIO].count, 9);
}

static void walk_reports_errors(void **state) {
        struct {
                struct nlmsghdr header;
                struct nlmsgerr error;
        } m = {
                .header = { .nlmsg_len = sizeof(m), .nlmsg_type = NLMSG_ERROR, .nlmsg_seq = 77 },
                .error = { .error = -ESRCH },
        };
        struct seen seen;

        assert_int_equal(walk_bytes(&m, sizeof(m), &seen), 0);
        assert_int_equal(seen.errors, 1);
        assert_int_equal(seen.error, -ESRCH);
        assert_int_equal(seen.sequence, 77);

        m.error.error = 1;
        assert_int_equal(walk_bytes(&m, sizeof(m), &seen), 1);
        m.error.error = INT32_MIN;
        assert_int_equal(walk_bytes(&m, sizeof(m), &seen), 1);
        m.header.nlmsg_len = 20;
        assert_int_equal(walk_bytes(&m, 20, &seen), 1);
        assert_int_equal(seen.errors, 0);

        m.header.nlmsg_len = sizeof(m);
        m.header.nlmsg_type = FAMILY + 1;
        assert_int_equal(walk_bytes(&m, sizeof(m), &seen), 1);
        m.header.nlmsg_type = NLMSG_NOOP;
        assert_int_equal(walk_bytes(&m, sizeof(m), &seen), 0);
}

static void walk_goes_on_after_a_bad_message(void **state) {
        struct message a, b;
        uint8_t both[4096];
        struct seen seen;

        make_message(&a, 1, 100, false);
        make_message(&b, 2, 200, false);
        a.bytes[16] = 99; /* command */
        memcpy(both, a.bytes, a.size);
        memcpy(both + a.size, b.bytes, b.size);

        assert_int_equal(walk_bytes(both, a.size + b.size, &seen), 1);
        assert_int_equal(seen.records, 1);
        assert_int_equal(seen.tid, 200);
}

static void walk_spans_the_start(void **state) {
        struct wire_a w = { .head.version = 16, .basic.etime = 1000 }; /* 1 ms */
        struct taskstats_walk walk = {
                .family = FAMILY,
                .layout = TASKSTATS_LAYOUT_A,
                .made_min_nsec = 5000000,
                .made_max_nsec = 6000000,
                .record = see_record,
        };
        struct seen seen = {};
        struct message m;

        walk.userdata = &seen;
        message_begin(&m, FAMILY, 1);
        message_put_record(&m, TASKSTATS_TYPE_AGGR_PID, 1, &w, 560);
        message_end(&m);

        taskstats_walk(&walk, m.bytes, m.size);
        assert_int_equal(seen.sample.start_min_nsec, 3999000); /* the microsecond that ac_etime cuts off */
        assert_int_equal(seen.sample.start_max_nsec, 5000000);

        walk.made_min_nsec = 100;
        walk.made_max_nsec = 200;
        taskstats_walk(&walk, m.bytes, m.size);
        assert_int_equal(seen.sample.start_min_nsec, 0);
        assert_int_equal(seen.sample.start_max_nsec, 0);
}

/* Hostile input: what matters is that nothing is read out of bounds, which a sanitizer or valgrind sees. */

static void truncations_are_malformed(void **state) {
        size_t size;
        uint8_t *bytes = read_file(FIXTURES "/exits-linux-6.18.bin", &size);
        uint32_t length;
        struct taskstats_walk walk = { .record = see_record };
        struct seen seen;

        memcpy(&walk.family, bytes + 4, sizeof(walk.family));
        walk.userdata = &seen;

        for (size_t at = 0; at < size; at += length) {
                memcpy(&length, bytes + at, sizeof(length));
                if (at > 0 && length < 1000) /* the first, and each that has both records */
                        continue;

                for (uint32_t cut = 1; cut < length; cut++) {
                        uint8_t *copy = malloc(cut);

                        memcpy(copy, bytes + at, cut);
                        seen = (struct seen) {};
                        assert_int_equal(taskstats_walk(&walk, copy, cut), 1);

                        /* The same with a header that agrees. */
                        if (cut >= 16) {
                                memcpy(copy, &cut, sizeof(cut));
                                assert_int_equal(taskstats_walk(&walk, copy, cut) + seen.records, 1);
                                /* Only where the cut falls between the two records is the first one whole. */
                                assert_int_equal(seen.records, cut == 596);
                        }
                        free(copy);
                }
        }

        free(bytes);
}

static void flipped_bits_do_no_harm(void **state) {
        size_t size, mutations = 0, records = 0;
        uint8_t *bytes = read_file(FIXTURES "/exits-linux-6.18.bin", &size);
        struct taskstats_walk walk = { .record = see_record, .error = see_error };
        struct seen seen = {};

        memcpy(&walk.family, bytes + 4, sizeof(walk.family));
        walk.userdata = &seen;

        for (int round = 0; round < 20000; round++) {
                size_t length = 64 + random64() % 1500;
                size_t at = (random64() % 20) * 596;
                uint8_t *copy = malloc(length);

                memcpy(copy, bytes + at, length);
                for (uint64_t flips = 1 + random64() % 8; flips > 0; flips--) {
                        size_t byte = random64() % 3 ? random64() % 48 : random64() % length; /* mostly in the headers */

                        copy[byte] ^= (uint8_t) (1U << random64() % 8);
                        mutations++;
                }

                walk.layout = (enum taskstats_layout) (random64() % 3);
                (void) taskstats_walk(&walk, copy, length);
                (void) taskstats_prove_layout(copy, length, (uint32_t) random64());
                free(copy);
        }

        records = seen.records;
        assert_true(mutations > 20000);
        assert_true(records > 0); /* some survive, so the deeper code was reached */
        free(bytes);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(walk_takes_task_records_alone),
                cmocka_unit_test(walk_tolerates_padding_and_flags),
                cmocka_unit_test(walk_reports_errors),
                cmocka_unit_test(walk_goes_on_after_a_bad_message),
                cmocka_unit_test(walk_spans_the_start),
                cmocka_unit_test(truncations_are_malformed),
                cmocka_unit_test_setup(flipped_bits_do_no_harm, seed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
