/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "bytes.h"
#include "core/accounting.h"
#include "core/query.h"
#include "kernel/taskstats-decode.h"
#include "recorder.h"
#include "replay.h"
#include "taskstats-encoder.h"

#define T0 (1000 * NSEC_PER_SEC)
#define N_TASKS 60U
#define N_CGROUPS 12U

/* A daemon of events that chance makes, with what a recording of it needs. */
struct run {
        char path[64];
        struct health health;
        struct recorder *recorder;
        struct accounting *accounting;
        uint64_t now;
        uint64_t next_key, keys[N_CGROUPS];
        struct {
                uint64_t start;
                struct wire_a record;
        } tasks[N_TASKS];
};

/* As in the daemon, asking can bring up a new cgroup. */
static int lookup(
                uint32_t tid, uint32_t tgid, bool ended, uint64_t *ret_key, enum attribution_source *ret_source, void *userdata) {

        struct run *run = userdata;
        unsigned i = random64() % N_CGROUPS;

        if (random64() % 3 == 0)
                return -ESRCH;
        if (random64() % 2 == 0) {
                char path[64];

                run->keys[i] = run->next_key++;
                snprintf(path, sizeof(path), "/secret/looked-up-%llu.service", (unsigned long long) run->keys[i]);
                assert_int_equal(accounting_cgroup_added(run->accounting, run->now, run->keys[i], 1, path), 0);
        }

        *ret_key = run->keys[i];
        *ret_source = ATTRIBUTION_PIDFD;
        return 0;
}

static void start_run(struct run *run, bool anonymous) {
        *run = (struct run) { .now = T0, .next_key = 1 };
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT | DELAY_KIND_BIT(DELAY_FREEPAGES),
                .max_cgroups = 40,
                .max_exported = 3,
                .retention_nsec = 20 * NSEC_PER_SEC,
                .poll_interval_nsec = NSEC_PER_SEC,
                .started_nsec = T0,
                .rough_clock = true,
                .lookup = lookup,
                .userdata = run,
        };
        const struct recording_meta meta = {
                .started_nsec = T0,
                .started_monotonic_nsec = T0,
                .kinds = config.kinds,
                .taskstats_version = 16,
                .layout = TASKSTATS_LAYOUT_A,
                .rough_clock = true,
                .kernel_release = "6.18.44",
                .cgroup_hierarchy = "unified",
        };

        strcpy(run->path, "/tmp/delayd-test-replay-XXXXXX");
        int fd = mkstemp(run->path);
        assert_true(fd >= 0);
        close(fd);

        assert_int_equal(accounting_new(&config, &run->accounting), 0);
        assert_int_equal(recorder_new(run->path, anonymous, &run->health, &run->recorder), 0);
        recorder_begin(run->recorder, run->accounting, run->now, &meta);
        assert_int_equal(accounting_cgroup_added(run->accounting, run->now, run->next_key++, 0, "/"), 0);
}

static void end_run(struct run *run) {
        if (run->recorder)
                recorder_free(run->recorder);
        accounting_free(run->accounting);
        health_free(&run->health);
        unlink(run->path);
}

static void finish_recording(struct run *run) {
        recorder_end(run->recorder, run->now);
        run->recorder = recorder_free(run->recorder);
}

/* The next record of a task, which has waited since the last one, as the kernel sends it. */
static void make_sample(struct run *run, unsigned i, struct task_sample *ret) {
        struct wire_a *record = &run->tasks[i].record;
        uint64_t waits = random64() % 4, length = random64() % (20 * NSEC_PER_MSEC);

        record->head.version = 16;
        record->head.flag = 0x20;
        record->basic.pid = record->identity.tgid = 100 + i;
        record->basic.ppid = 100 + (i + 1) % N_TASKS;
        record->basic.etime = (run->now - run->tasks[i].start) / NSEC_PER_USEC;
        record->basic.minflt = 1000;
        record->basic.read_bytes += 1024 * (random64() % 2);
        snprintf(record->basic.comm, sizeof(record->basic.comm), "secret-%u", i);
        record->blkio.count += waits;
        record->blkio.total += waits * length;
        record->swapin.count += random64() % 2;
        record->swapin.total = record->swapin.count * 1000;
        record->freepages.count += waits;
        record->freepages.total += random64() % 16 == 0 ? UINT64_C(1) << 50 : waits * 77777; /* some impossible */
        if (random64() % 50 == 0)
                record->blkio.count = random64() % 5; /* and some backwards */

        assert_int_equal(taskstats_decode(record, wire_size(16), 100 + i, TASKSTATS_LAYOUT_A, ret), 0);
        ret->start_min_nsec = run->tasks[i].start - NSEC_PER_MSEC;
        ret->start_max_nsec = run->tasks[i].start + NSEC_PER_MSEC;
        ret->raw = record;
        ret->raw_size = wire_size(16);
}

static void one_event(struct run *run) {
        struct accounting *a = run->accounting;
        unsigned i = random64() % N_TASKS, k = random64() % N_CGROUPS;
        struct task_sample sample;
        struct fork_event fork;
        char path[64];

        run->now += random64() % (30 * NSEC_PER_MSEC);
        switch (random64() % 16) {
        case 0:
                run->keys[k] = run->next_key++;
                snprintf(path, sizeof(path), "/secret/%llu.service", (unsigned long long) run->keys[k]);
                assert_int_equal(accounting_cgroup_added(a, run->now, run->keys[k], 1, path), 0);
                break;
        case 1:
                accounting_cgroup_removed(a, run->now, run->keys[k]);
                break;
        case 2:
        case 3:
        case 4:
                run->tasks[i].start = run->now;
                memset(&run->tasks[i].record, 0, sizeof(run->tasks[i].record));
                fork = (struct fork_event) { 100 + i, 100 + i, 100 + k, 100 + k, run->now };
                assert_true(accounting_fork(a, run->now, &fork) >= 0);
                break;
        case 5:
                accounting_exec(a, run->now, 100 + i);
                break;
        case 6:
        case 7:
                assert_int_equal(accounting_place(a, run->now, 100 + i, 0, run->keys[k]), 0);
                break;
        case 8:
                accounting_vanished(a, run->now, 100 + i);
                break;
        case 9:
                accounting_sweep_begin(a);
                for (unsigned t = 0; t < N_TASKS / 2; t++)
                        assert_int_equal(accounting_place(a, run->now, 100 + t, 0, run->keys[t % N_CGROUPS]), 0);
                accounting_sweep_end(a, run->now);
                break;
        case 10:
                accounting_age(a, run->now);
                break;
        case 11:
                if (run->tasks[i].start > 0) {
                        make_sample(run, i, &sample);
                        assert_int_equal(accounting_exit_sample(a, run->now, &sample), 0);
                }
                break;
        default:
                if (run->tasks[i].start > 0) {
                        make_sample(run, i, &sample);
                        assert_int_equal(accounting_live_sample(a, run->now, &sample), 0);
                }
        }
}

static void assert_same_stats(const struct accounting *a, const struct cgroup *x, const struct accounting *b,
                              const struct cgroup *y, uint64_t now, enum delay_kind kind) {
        static const uint64_t windows[] = DELAYD_WINDOWS_NSEC;

        for (unsigned w = 0; w < DELAYD_WINDOW_COUNT; w++) {
                struct delay_totals totals[2];
                struct histogram histograms[2];
                uint64_t window;

                assert_int_equal(query_histogram(a, now, x, kind, windows[w], false, &window, &totals[0], &histograms[0]), 0);
                assert_int_equal(query_histogram(b, now, y, kind, windows[w], false, &window, &totals[1], &histograms[1]), 0);
                assert_memory_equal(&totals[0], &totals[1], sizeof(totals[0]));
                for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
                        assert_int_equal(histogram_get(&histograms[0], i), histogram_get(&histograms[1], i));
                histogram_free(&histograms[0]);
                histogram_free(&histograms[1]);
        }

        assert_int_equal(!x->stats[kind], !y->stats[kind]);
        if (x->stats[kind])
                assert_memory_equal(&x->stats[kind]->totals, &y->stats[kind]->totals, sizeof(x->stats[kind]->totals));
}

/* Everything that can be asked of the two is the same, but for names. Returns the waits. */
static uint64_t assert_same(const struct accounting *a, const struct accounting *b, uint64_t now) {
        const struct cgroup *x;
        uint64_t waits = 0;
        size_t cursor = 0, n = 0;

        assert_int_equal(a->exits, b->exits);
        assert_int_equal(a->accepted_samples, b->accepted_samples);
        assert_memory_equal(a->attributed, b->attributed, sizeof(a->attributed));
        assert_memory_equal(a->rejected_samples, b->rejected_samples, sizeof(a->rejected_samples));
        assert_int_equal(a->cgroups.tracked, b->cgroups.tracked);
        assert_int_equal(a->cgroups.removed, b->cgroups.removed);
        assert_int_equal(a->cgroups.overflowed, b->cgroups.overflowed);
        assert_int_equal(a->tasks.n_live, b->tasks.n_live);

        while ((x = cgroup_table_next(&a->cgroups, &cursor))) {
                const struct cgroup *y = cgroup_table_find(&b->cgroups, x->key);

                assert_non_null(y);
                assert_int_equal(x->tasks, y->tasks);
                assert_int_equal(x->unaccounted_tasks, y->unaccounted_tasks);
                assert_int_equal(x->removed_nsec, y->removed_nsec);
                assert_int_equal(x->exported, y->exported);
                for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                        if (delay_kind_in(a->config.kinds, kind)) {
                                assert_same_stats(a, x, b, y, now, kind);
                                waits += x->stats[kind] ? x->stats[kind]->totals.waits : 0;
                        }
                n++;
        }
        assert_true(n > 3);
        return waits;
}

static struct replay *replay_file(const char *path, struct health *health, struct recorder *recorder) {
        static const struct config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = 10,
                .max_exported = 1,
                .poll_interval_nsec = NSEC_PER_SEC,
                .retention_nsec = NSEC_PER_SEC,
        };
        struct replay *replay;
        int r;

        assert_int_equal(replay_new(path, &config, health, recorder, &replay), 0);
        while ((r = replay_step(replay)) > 0)
                ;
        assert_int_equal(r, 0);
        return replay;
}

static void a_replay_gives_the_same_numbers(void **state) {
        struct health health = {};
        struct status_facts facts;
        struct run run;

        start_run(&run, false);
        for (unsigned i = 0; i < 20000; i++)
                one_event(&run);
        finish_recording(&run);

        struct replay *replay = replay_file(run.path, &health, NULL);
        assert_false(replay_is_damaged(replay));
        assert_null(health.problems);
        assert_int_equal(replay_now(replay), run.now);
        assert_true(replay_accounting(replay)->config.rough_clock);
        uint64_t waits = assert_same(run.accounting, replay_accounting(replay), run.now);
        assert_true(waits > 5000);
        for (enum attribution_source s = 0; s < ATTRIBUTION_SOURCE_COUNT; s++)
                assert_true(s == ATTRIBUTION_PROCFS || run.accounting->attributed[s] > 0);

        replay_fill_status(replay, &facts);
        assert_string_equal(facts.replay, run.path);
        assert_string_equal(facts.kernel_release, "6.18.44");
        assert_int_equal(facts.uptime_nsec, run.now - T0);

        replay_free(replay);
        end_run(&run);
}

/* Nothing of the file, unpacked, holds the text. */
static void assert_without(const char *path, const char *text) {
        size_t size, at = RECORDING_FILE_HEADER_SIZE;
        uint8_t *file = read_file(path, &size), *events = malloc(RECORDING_BLOCK_MAX);
        struct recording_block block;

        assert_true(size < (1U << 20) - 1);
        assert_non_null(events);
        while (at < size) {
                assert_int_equal(recording_block_header(file + at, &block), 0);
                assert_int_equal(recording_unpack(&block, file + at, file + at + RECORDING_BLOCK_HEADER_SIZE, events), 0);
                assert_null(memmem(events, block.events_size, text, strlen(text)));
                at += RECORDING_BLOCK_HEADER_SIZE + block.stored_size;
        }
        assert_int_equal(at, size);
        free(events);
        free(file);
}

static void an_anonymous_one_has_the_numbers_and_no_names(void **state) {
        struct health health = {};
        struct run run;

        start_run(&run, true);
        recorder_problem(run.recorder, run.now, "some-problem", PROBLEM_DEGRADED, "in secret", "remove secret");
        for (unsigned i = 0; i < 5000; i++)
                one_event(&run);
        finish_recording(&run);

        assert_without(run.path, "secret");
        struct replay *replay = replay_file(run.path, &health, NULL);
        assert_same(run.accounting, replay_accounting(replay), run.now);
        assert_string_equal(health.problems->id, "some-problem");

        /* What kind of thing it is stays, as does who is whose parent. */
        const struct cgroup *cgroup;
        size_t cursor = 0, n = 0;
        while ((cgroup = cgroup_table_next(&replay_accounting(replay)->cgroups, &cursor)))
                if (cgroup->parent) {
                        assert_string_equal(cgroup->name.unit, strrchr(cgroup->path, '/') + 1);
                        assert_string_equal(strrchr(cgroup->path, '.'), ".service");
                        assert_int_equal(cgroup->parent->key, 1);
                        n++;
                }
        assert_true(n > 5);

        replay_free(replay);
        health_free(&health);
        end_run(&run);
}

static void a_replay_can_be_recorded(void **state) {
        char path[] = "/tmp/delayd-test-replay-XXXXXX";
        struct health health = {};
        struct recorder *recorder;
        struct run run;

        close(mkstemp(path));
        start_run(&run, false);
        for (unsigned i = 0; i < 5000; i++)
                one_event(&run);
        finish_recording(&run);

        assert_int_equal(recorder_new(path, true, &health, &recorder), 0);
        struct replay *first = replay_file(run.path, &health, recorder);
        recorder_free(recorder);
        struct replay *second = replay_file(path, &health, NULL);
        assert_false(replay_is_damaged(second));
        assert_same(run.accounting, replay_accounting(second), run.now);
        assert_without(path, "secret");
        assert_null(health.problems);

        replay_free(first);
        replay_free(second);
        end_run(&run);
        unlink(path);
}

static void settings_may_change(void **state) {
        struct health health = {};
        struct run run;

        start_run(&run, false);
        for (unsigned i = 0; i < 6000; i++) {
                if (i == 3000) {
                        struct accounting_config config = run.accounting->config;

                        config.retention_nsec = NSEC_PER_SEC;
                        config.max_cgroups = 20;
                        config.max_exported = 5;
                        assert_int_equal(accounting_reconfigure(run.accounting, run.now, &config), 0);
                        assert_int_equal(accounting_cgroup_added(run.accounting, run.now, 9999, 1, "/beyond"), 0);
                }
                one_event(&run);
        }
        finish_recording(&run);

        struct replay *replay = replay_file(run.path, &health, NULL);
        assert_same(run.accounting, replay_accounting(replay), run.now);
        assert_true(run.accounting->cgroups.overflowed > 0);
        replay_free(replay);
        end_run(&run);
}

static void what_status_says_is_replayed(void **state) {
        struct status_facts facts = {
                .exits_received = 5, .exits_lost = 3, .task_delayacct = true, .delayed_dequeue = TRISTATE_ON,
                .exit_filter = true, .last_poll_nsec = 77,
        };
        struct health health = {};
        struct run run;

        start_run(&run, false);
        recorder_facts(run.recorder, run.now, &facts);
        recorder_problem(run.recorder, run.now, "stays", PROBLEM_FAILING, "message", "remedy");
        recorder_problem(run.recorder, run.now, "goes", PROBLEM_FAILING, "message", "remedy");
        recorder_problem_gone(run.recorder, run.now, "goes");
        run.accounting->rejected_samples[REJECT_MALFORMED] = 9;
        facts.exits_lost = 4;
        recorder_facts(run.recorder, run.now, &facts);
        finish_recording(&run);

        struct replay *replay = replay_file(run.path, &health, NULL);
        replay_fill_status(replay, &facts);
        assert_int_equal(facts.exits_received, 5);
        assert_int_equal(facts.exits_lost, 4);
        assert_int_equal(facts.delayed_dequeue, TRISTATE_ON);
        assert_int_equal(facts.last_poll_nsec, 77);
        assert_true(facts.task_delayacct && facts.exit_filter);
        assert_int_equal(replay_accounting(replay)->rejected_samples[REJECT_MALFORMED], 9);
        assert_string_equal(health.problems->id, "stays");
        assert_string_equal(health.problems->message, "message");
        assert_int_equal(health.problems->severity, PROBLEM_FAILING);
        assert_null(health.problems->next);

        replay_free(replay);
        health_free(&health);
        end_run(&run);
}

/* A limit of the process stands for a full disk: live tests fill a real one. */
static void without_room_only_the_recording_stops(void **state) {
        struct rlimit limit, before;
        struct health health = {};
        struct stat st;
        struct run run;

        (void) signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        start_run(&run, false);
        limit = (struct rlimit) { 60000, before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        for (unsigned i = 0; i < 5000 && !run.health.problems; i++)
                one_event(&run);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);

        assert_non_null(run.health.problems);
        assert_string_equal(run.health.problems->id, "recording-stopped");
        assert_null(run.accounting->observe);
        for (unsigned i = 0; i < 100; i++)
                one_event(&run);
        finish_recording(&run);

        /* Whole blocks only, and it shows that the rest is missing. */
        assert_int_equal(stat(run.path, &st), 0);
        assert_true(st.st_size > 1000 && st.st_size < 60000);
        struct replay *replay = replay_file(run.path, &health, NULL);
        assert_true(replay_is_damaged(replay));
        assert_string_equal(health.problems->id, "recording-damaged");
        assert_non_null(strstr(health.problems->message, "is missing, and so is the end"));
        assert_true(replay_accounting(replay)->accepted_samples > 100);

        replay_free(replay);
        health_free(&health);
        end_run(&run);
}

static void a_capture_is_replayed(void **state) {
        static const struct { const char *path; unsigned records; } captures[] = {
                { FIXTURES "/exits-linux-6.1.bin", 41 },
                { FIXTURES "/exits-linux-6.12.bin", 41 },
                { FIXTURES "/exits-linux-6.18.bin", 30 },
        };

        for (size_t i = 0; i < sizeof(captures) / sizeof(captures[0]); i++) {
                struct health health = {};
                struct replay *replay = replay_file(captures[i].path, &health, NULL);
                const struct accounting *a = replay_accounting(replay);

                assert_false(replay_is_damaged(replay));
                assert_int_equal(a->exits, captures[i].records);
                assert_int_equal(a->attributed[ATTRIBUTION_NONE], captures[i].records);
                assert_int_equal(a->rejected_samples[REJECT_MALFORMED], 0);
                assert_true(a->cgroups.unattributed->stats[DELAY_BLKIO]->totals.waits > 1000);
                replay_free(replay);
        }
}

static void a_damaged_capture_counts_up_to_there(void **state) {
        struct health health = {};
        struct replay *replay;
        size_t size;
        uint8_t *file = read_file(FIXTURES "/exits-linux-6.1.bin", &size);
        const struct config config = { .kinds = 2, .max_cgroups = 1, .poll_interval_nsec = NSEC_PER_SEC };

        assert_int_equal(replay_new_from(fmemopen(file, size - 10, "r"), "x", &config, &health, NULL, &replay), 0);
        assert_int_equal(replay_step(replay), 0);
        assert_true(replay_is_damaged(replay));
        assert_int_equal(replay_accounting(replay)->exits, 40);
        assert_string_equal(health.problems->message,
                            "The recording is damaged and used up to there: message 41 is cut short.");
        replay_free(replay);
        health_free(&health);
        free(file);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_replay_gives_the_same_numbers, seed),
                cmocka_unit_test_setup(an_anonymous_one_has_the_numbers_and_no_names, seed),
                cmocka_unit_test_setup(a_replay_can_be_recorded, seed),
                cmocka_unit_test_setup(settings_may_change, seed),
                cmocka_unit_test_setup(what_status_says_is_replayed, seed),
                cmocka_unit_test_setup(without_room_only_the_recording_stops, seed),
                cmocka_unit_test(a_capture_is_replayed),
                cmocka_unit_test(a_damaged_capture_counts_up_to_there),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
