/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "bytes.h"
#include "recording-reader.h"
#include "recording.h"

#define N_BLOCKS 3U
#define N_EVENTS (ACCOUNTING_EVENT_COUNT + 4U) /* of sample_events(), END left out */

static const uint8_t payload[328] = { 8, 0, 1, 2, 3 };

/* One event of each type that can be in a recording, in order of their types. */
static unsigned sample_events(struct recording_event ret[static N_EVENTS]) {
        unsigned n = 0;

        for (unsigned type = 0; type < ACCOUNTING_EVENT_COUNT; type++)
                ret[n++] = (struct recording_event) {
                        .type = RECORDING_ACCOUNTING + type,
                        .now_nsec = 1000 + type,
                        .accounting = { .type = type, .now_nsec = 1000 + type },
                };

        ret[ACCOUNTING_CGROUP_ADDED].accounting.cgroup.key = UINT64_MAX - 7;
        ret[ACCOUNTING_CGROUP_ADDED].accounting.cgroup.parent_key = 5;
        ret[ACCOUNTING_CGROUP_ADDED].accounting.cgroup.path = "/a\xff\n/b";
        ret[ACCOUNTING_CGROUP_REMOVED].accounting.cgroup.key = 77;
        ret[ACCOUNTING_FORK].accounting.fork = (struct fork_event) { 1, 2, 3, UINT32_MAX, UINT64_MAX };
        ret[ACCOUNTING_EXEC].accounting.tid = 11;
        ret[ACCOUNTING_PLACE].accounting.place.tid = 12;
        ret[ACCOUNTING_PLACE].accounting.place.tgid = 13;
        ret[ACCOUNTING_PLACE].accounting.place.cgroup_key = 14;
        ret[ACCOUNTING_VANISHED].accounting.tid = 15;
        ret[ACCOUNTING_LOOKED_UP].accounting.lookup.tid = 16;
        ret[ACCOUNTING_LOOKED_UP].accounting.lookup.result = -ESRCH;
        ret[ACCOUNTING_LOOKED_UP].accounting.lookup.cgroup_key = 17;
        ret[ACCOUNTING_LOOKED_UP].accounting.lookup.source = ATTRIBUTION_PROCFS;
        ret[ACCOUNTING_PRESSURE].accounting.pressure.key = 24;
        ret[ACCOUNTING_PRESSURE].accounting.pressure.result = -EOPNOTSUPP;
        ret[ACCOUNTING_PRESSURE].accounting.pressure.n_cpus = 25;
        ret[ACCOUNTING_PRESSURE].accounting.pressure.stall_nsec = UINT64_MAX - 26;
        ret[ACCOUNTING_DOUBT].accounting.doubt.tid = 24;
        ret[ACCOUNTING_DOUBT].accounting.doubt.doubt = DOUBT_LOST;
        ret[ACCOUNTING_LIVE_SAMPLE].sample = (struct recording_sample) { 18, 19, 20, payload, sizeof(payload) };
        ret[ACCOUNTING_EXIT_SAMPLE].sample = (struct recording_sample) { 21, 22, 23, payload, 0 };

        ret[n++] = (struct recording_event) {
                .type = RECORDING_META,
                .now_nsec = 1,
                .meta = { 1, 2, 3, DELAY_KINDS_ALL, 16, 1, true, true, "0.1", "6.18.1-x", "hybrid (v2)" },
        };
        ret[n++] = (struct recording_event) { .type = RECORDING_SETTINGS, .settings = { 1, 2, 3, UINT64_MAX } };
        ret[n++] = (struct recording_event) {
                .type = RECORDING_FACTS,
                .facts = { 1, 2, 3, 4, 1, TRISTATE_UNKNOWN, 1, {} },
        };
        ret[n++] = (struct recording_event) {
                .type = RECORDING_PROBLEM,
                .problem = { PROBLEM_FAILING, "an-id", "message", "remedy" },
        };
        assert_int_equal(n, N_EVENTS);
        return n;
}

static void assert_same_text(const char *a, const char *b) {
        assert_string_equal(a ?: "", b ?: "");
}

static void assert_same_accounting(const struct recording_event *a, const struct recording_event *b) {
        const struct accounting_event *x = &a->accounting, *y = &b->accounting;

        assert_int_equal(x->type, y->type);
        assert_int_equal(x->now_nsec, y->now_nsec);
        switch (x->type) {
        case ACCOUNTING_CGROUP_ADDED:
                assert_true(x->cgroup.key == y->cgroup.key && x->cgroup.parent_key == y->cgroup.parent_key);
                assert_string_equal(x->cgroup.path, y->cgroup.path);
                break;
        case ACCOUNTING_CGROUP_REMOVED:
                assert_true(x->cgroup.key == y->cgroup.key);
                break;
        case ACCOUNTING_FORK:
                assert_memory_equal(&x->fork, &y->fork, sizeof(x->fork));
                break;
        case ACCOUNTING_PLACE:
                assert_memory_equal(&x->place, &y->place, sizeof(x->place));
                break;
        case ACCOUNTING_LOOKED_UP:
                assert_int_equal(x->lookup.tid, y->lookup.tid);
                assert_int_equal(x->lookup.result, y->lookup.result);
                assert_int_equal(x->lookup.cgroup_key, y->lookup.cgroup_key);
                assert_int_equal(x->lookup.source, y->lookup.source);
                break;
        case ACCOUNTING_PRESSURE:
                assert_int_equal(x->pressure.key, y->pressure.key);
                assert_int_equal(x->pressure.result, y->pressure.result);
                assert_int_equal(x->pressure.n_cpus, y->pressure.n_cpus);
                assert_int_equal(x->pressure.stall_nsec, y->pressure.stall_nsec);
                break;
        case ACCOUNTING_LIVE_SAMPLE:
        case ACCOUNTING_EXIT_SAMPLE:
                assert_int_equal(a->sample.tid, b->sample.tid);
                assert_int_equal(a->sample.start_min_nsec, b->sample.start_min_nsec);
                assert_int_equal(a->sample.start_max_nsec, b->sample.start_max_nsec);
                assert_int_equal(a->sample.size, b->sample.size);
                assert_memory_equal(a->sample.payload, b->sample.payload, a->sample.size);
                break;
        case ACCOUNTING_DOUBT:
                assert_int_equal(x->doubt.tid, y->doubt.tid);
                assert_int_equal(x->doubt.doubt, y->doubt.doubt);
                break;
        case ACCOUNTING_EXEC:
        case ACCOUNTING_VANISHED:
                assert_int_equal(x->tid, y->tid);
                break;
        default:
                break;
        }
}

static void assert_same_event(const struct recording_event *a, const struct recording_event *b) {
        assert_int_equal(a->type, b->type);
        assert_true(a->now_nsec == b->now_nsec);

        if (recording_is_accounting(a->type))
                assert_same_accounting(a, b);
        else if (a->type == RECORDING_META) {
                assert_memory_equal(&a->meta, &b->meta, offsetof(struct recording_meta, rough_clock));
                assert_int_equal(a->meta.rough_clock, b->meta.rough_clock);
                assert_same_text(a->meta.daemon_version, b->meta.daemon_version);
                assert_same_text(a->meta.kernel_release, b->meta.kernel_release);
                assert_same_text(a->meta.cgroup_hierarchy, b->meta.cgroup_hierarchy);
        } else if (a->type == RECORDING_SETTINGS)
                assert_memory_equal(&a->settings, &b->settings, sizeof(a->settings));
        else if (a->type == RECORDING_FACTS)
                assert_memory_equal(&a->facts, &b->facts, sizeof(a->facts));
        else if (a->type == RECORDING_PROBLEM) {
                assert_int_equal(a->problem.severity, b->problem.severity);
                assert_same_text(a->problem.id, b->problem.id);
                assert_same_text(a->problem.message, b->problem.message);
                assert_same_text(a->problem.remedy, b->problem.remedy);
        }
}

static void events_come_back_as_they_were(void **state) {
        struct recording_event events[N_EVENTS];
        unsigned n = sample_events(events);

        for (unsigned i = 0; i < n; i++) {
                struct recording_event back;
                uint8_t bytes[1024];

                size_t size = recording_encode(&events[i], bytes, sizeof(bytes));
                assert_true(size > 0);
                assert_int_equal(recording_decode(bytes, size, &back), size);
                assert_same_event(&events[i], &back);

                /* What does not fit is not written, and half an event is none. */
                for (size_t less = 0; less < size; less++) {
                        uint8_t *cut = malloc(less + 1); /* of exactly that size, for the sanitizers */

                        assert_non_null(cut);
                        assert_int_equal(recording_encode(&events[i], cut, less), 0);
                        memcpy(cut, bytes, less);
                        if (less > 0)
                                assert_int_equal(recording_decode(cut, less, &back), -EBADMSG);
                        free(cut);
                }
        }
}

static void impossible_events_are_refused(void **state) {
        struct recording_event events[N_EVENTS], back;
        uint8_t bytes[1024];
        size_t size;

        (void) sample_events(events);

        /* A lookup's result must be an errno, its source one that exists. */
        size = recording_encode(&events[ACCOUNTING_LOOKED_UP], bytes, sizeof(bytes));
        bytes[size - 1] = ATTRIBUTION_SOURCE_COUNT;
        assert_int_equal(recording_decode(bytes, size, &back), -EBADMSG);
        bytes[size - 1] = 0;
        bytes[23] = 0x7f;
        assert_int_equal(recording_decode(bytes, size, &back), -EBADMSG);

        /* A path is absolute and ends. */
        size = recording_encode(&events[ACCOUNTING_CGROUP_ADDED], bytes, sizeof(bytes));
        bytes[32] = 'a';
        assert_int_equal(recording_decode(bytes, size, &back), -EBADMSG);
        bytes[32] = '/';
        bytes[size - 1] = 'a';
        assert_int_equal(recording_decode(bytes, size, &back), -EBADMSG);

        /* A payload's size lies within the event. */
        size = recording_encode(&events[ACCOUNTING_LIVE_SAMPLE], bytes, sizeof(bytes));
        bytes[20]++;
        assert_int_equal(recording_decode(bytes, size, &back), -EBADMSG);
}

static void later_versions_may_add(void **state) {
        struct recording_event event = { .type = RECORDING_ACCOUNTING + ACCOUNTING_AGE, .now_nsec = 5 }, back;
        uint8_t bytes[64] = {};

        /* More in an event. */
        event.accounting.type = ACCOUNTING_AGE;
        assert_int_equal(recording_encode(&event, bytes, sizeof(bytes)), 16);
        bytes[4] = 8;
        assert_int_equal(recording_decode(bytes, 24, &back), 24);
        assert_int_equal(back.accounting.type, ACCOUNTING_AGE);

        /* Other events. */
        bytes[0] = 200;
        assert_int_equal(recording_decode(bytes, 24, &back), 24);
        assert_int_equal(back.type, 200);
        assert_int_equal(back.now_nsec, 5);
}

/* A recording with the sample events in each of its blocks, and its end. */
static uint8_t *make_recording(size_t *ret_size) {
        uint8_t *file = malloc(65536), events[4096];
        struct recording_event all[N_EVENTS + 1];
        size_t size = RECORDING_FILE_HEADER_SIZE;

        assert_non_null(file);
        recording_file_header(file);
        for (unsigned b = 0; b < N_BLOCKS; b++) {
                struct recording_block block = { .sequence = b, .boottime_nsec = 100 + b, .monotonic_nsec = 90 + b };
                size_t n_events = 0, packed_size;
                unsigned n = sample_events(all);
                uint8_t *packed;

                if (b == N_BLOCKS - 1)
                        all[n++] = (struct recording_event) { .type = RECORDING_END, .now_nsec = 9999 };
                for (unsigned i = 0; i < n; i++)
                        n_events += recording_encode(&all[i], events + n_events, sizeof(events) - n_events);

                assert_int_equal(recording_pack(&block, events, n_events, &packed, &packed_size), 0);
                memcpy(file + size, packed, packed_size);
                size += packed_size;
                free(packed);
        }

        *ret_size = size;
        return file;
}

/* Reads it to its end or its first damage. Returns 0 or the error; all that is read must be right. */
static int read_recording(const uint8_t *file, size_t size, unsigned *ret_events, char *ret_damage) {
        struct recording_event expected[N_EVENTS], event;
        struct recording_reader *reader;
        uint32_t version = 0;
        unsigned n = 0;
        int r;

        /* fmemopen() refuses to open nothing. */
        FILE *f = size > 0 ? fmemopen((void *) file, size, "r") : fopen("/dev/null", "re");
        assert_non_null(f);
        *ret_events = 0;
        r = recording_reader_new(f, &reader, &version);
        if (r < 0)
                return r;

        (void) sample_events(expected);
        while ((r = recording_reader_next(reader, &event)) > 0) {
                if (event.type == RECORDING_END) {
                        assert_int_equal(n, N_BLOCKS * N_EVENTS);
                        assert_int_equal(event.now_nsec, 9999);
                        assert_int_equal(recording_reader_block(reader)->monotonic_nsec, 90 + N_BLOCKS - 1);
                } else
                        assert_same_event(&event, &expected[n++ % N_EVENTS]);

                /* What is put back comes again. */
                if (n % 5 == 0) {
                        recording_reader_put_back(reader);
                        assert_int_equal(recording_reader_next(reader, &event), 1);
                }
        }

        *ret_events = n;
        if (ret_damage)
                snprintf(ret_damage, 128, "%s", recording_reader_damage(reader) ?: "");
        assert_int_equal(r == -EBADMSG, recording_reader_damage(reader) != NULL);
        recording_reader_free(reader);
        return r;
}

static void whole_recordings_are_read(void **state) {
        unsigned n;
        size_t size;
        uint8_t *file = make_recording(&size);

        assert_int_equal(read_recording(file, size, &n, NULL), 0);
        assert_int_equal(n, N_BLOCKS * N_EVENTS);
        free(file);
}

static void every_truncation_is_noticed(void **state) {
        unsigned n, before = 0;
        size_t size;
        uint8_t *file = make_recording(&size);

        for (size_t cut = 0; cut < size; cut++) {
                int r = read_recording(file, cut, &n, NULL);

                assert_int_equal(r, cut < 8 ? -ENOMSG : -EBADMSG);
                assert_int_equal(n % N_EVENTS, 0);
                assert_true(n >= before); /* what is whole is used */
                before = n;
        }
        assert_int_equal(before, (N_BLOCKS - 1) * N_EVENTS);
        free(file);
}

static void every_flipped_bit_is_noticed(void **state) {
        unsigned n;
        size_t size;
        uint8_t *file = make_recording(&size);

        for (size_t bit = 0; bit < size * 8; bit++) {
                file[bit / 8] ^= (uint8_t) (1U << bit % 8);
                int r = read_recording(file, size, &n, NULL);
                file[bit / 8] ^= (uint8_t) (1U << bit % 8);

                assert_int_equal(r, bit / 8 < 8 ? -ENOMSG : -EBADMSG);
                assert_true(n <= (N_BLOCKS - 1) * N_EVENTS);
        }
        free(file);
}

static void damage_is_described(void **state) {
        char damage[128];
        unsigned n;
        size_t size;
        uint8_t *file = make_recording(&size);

        assert_int_equal(read_recording(file, size - 1, &n, damage), -EBADMSG);
        assert_string_equal(damage, "block 3 is cut short");

        file[size] = 0;
        assert_int_equal(read_recording(file, size + 1, &n, damage), -EBADMSG);
        assert_int_equal(n, N_BLOCKS * N_EVENTS);
        assert_string_equal(damage, "block 4 follows the end");

        file[size - 3] ^= 1;
        assert_int_equal(read_recording(file, size, &n, damage), -EBADMSG);
        assert_int_equal(n, 2 * N_EVENTS);
        assert_string_equal(damage, "block 3 is damaged: its checksum is wrong");

        /* A block that is not there. */
        size_t block = (size - RECORDING_FILE_HEADER_SIZE) / 4;
        while (memcmp(file + block, "DBLK\1", 5) != 0)
                block++;
        memmove(file + RECORDING_FILE_HEADER_SIZE, file + block, size - block);
        assert_int_equal(read_recording(file, size - block + RECORDING_FILE_HEADER_SIZE, &n, damage), -EBADMSG);
        assert_int_equal(n, 0);
        assert_string_equal(damage, "block 1 is missing, others follow");
        free(file);
}

static void an_empty_block_is_damage(void **state) {
        uint8_t file[RECORDING_FILE_HEADER_SIZE + RECORDING_BLOCK_HEADER_SIZE] = {};
        char damage[128];
        unsigned n;

        recording_file_header(file);
        memcpy(file + RECORDING_FILE_HEADER_SIZE, "DBLK", 4);
        assert_int_equal(read_recording(file, sizeof(file), &n, damage), -EBADMSG);
        assert_string_equal(damage, "block 1 has a header that makes no sense");
}

static void a_wrong_event_in_a_good_block_is_damage(void **state) {
        uint8_t file[4096], events[64] = { 1, 0, 0, 0, 200 }, *packed;
        struct recording_block block = {};
        char damage[128];
        unsigned n;
        size_t size;

        recording_file_header(file);
        assert_int_equal(recording_pack(&block, events, sizeof(events), &packed, &size), 0);
        memcpy(file + RECORDING_FILE_HEADER_SIZE, packed, size);
        free(packed);

        assert_int_equal(read_recording(file, RECORDING_FILE_HEADER_SIZE + size, &n, damage), -EBADMSG);
        assert_string_equal(damage, "block 1 holds an event that makes no sense");
}

static int recognise(const void *bytes, size_t size, uint32_t *ret_version) {
        struct recording_reader *reader = NULL;
        FILE *f = fmemopen((void *) bytes, size, "r");

        assert_non_null(f);
        int r = recording_reader_new(f, &reader, ret_version);
        if (r >= 0)
                r = recording_reader_is_capture(reader);
        recording_reader_free(reader);
        return r;
}

static void files_are_recognised_by_their_beginning(void **state) {
        static const char text[] = "Nothing that delayd has ever written.";
        static const char zeros[64];
        uint32_t version = 0;
        size_t size;
        uint8_t *file = make_recording(&size);

        assert_int_equal(recognise(file, size, &version), 0);
        free(file);
        file = read_file(FIXTURES "/exits-linux-6.18.bin", &size);
        assert_int_equal(recognise(file, size, &version), 1);
        assert_int_equal(recognise(file, 15, &version), -ENOMSG);
        free(file);
        assert_int_equal(recognise(text, sizeof(text), &version), -ENOMSG);
        assert_int_equal(recognise(zeros, sizeof(zeros), &version), -ENOMSG);

        /* Version 2, with its checksum. */
        static const uint8_t later[] = {
                0x89, 'D', 'L', 'Y', 'D', '\r', '\n', 0x1a, 2, 0, 0, 0, 0x69, 0x20, 0x9f, 0x57,
        };
        assert_int_equal(recognise(later, sizeof(later), &version), -EPROTONOSUPPORT);
        assert_int_equal(version, 2);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(events_come_back_as_they_were),
                cmocka_unit_test(impossible_events_are_refused),
                cmocka_unit_test(later_versions_may_add),
                cmocka_unit_test(whole_recordings_are_read),
                cmocka_unit_test(every_truncation_is_noticed),
                cmocka_unit_test(every_flipped_bit_is_noticed),
                cmocka_unit_test(damage_is_described),
                cmocka_unit_test(an_empty_block_is_damage),
                cmocka_unit_test(a_wrong_event_in_a_good_block_is_damage),
                cmocka_unit_test(files_are_recognised_by_their_beginning),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
