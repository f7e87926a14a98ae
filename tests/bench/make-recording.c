/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes recordings of hosts that are larger than any at hand: so many tasks, cgroups and exits a second.
 * The same arguments give the same events. All goes through an accounting that is observed, as in the daemon.
 */
#include <err.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "../unit/taskstats-encoder.h"
#include "core/accounting.h"
#include "kernel/taskstats-decode.h"
#include "record/recorder.h"

#define START_NSEC (1000 * NSEC_PER_SEC)
#define FIRST_CGROUP 100U
#define FIRST_TID 10000U
#define SHORT_LIVED_NSEC (3 * NSEC_PER_MSEC)
#define CHANGE_NSEC (5 * NSEC_PER_SEC) /* the finest slot of a window: what waits, waits in each */

static struct {
        unsigned long tasks, cgroups, active, exits, waiting, seconds;
} options = { .tasks = 1000, .cgroups = 100, .active = 10, .exits = 0, .waiting = 100, .seconds = 10 };

/* What a task that lives has waited for so far. */
struct counters {
        struct wire_pair blkio, swapin;
        struct wire_extremes extremes[2];
};

static struct accounting *accounting;
static struct counters *counters;
static uint64_t seed = 1;
static uint32_t next_tid;

static uint64_t random_number(void) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return seed >> 33;
}

/* From 16 microseconds to 8 ms, short ones as often as long ones on the log scale. */
static uint64_t random_wait(void) {
        unsigned octave = 14 + (unsigned) (random_number() % 9);

        return (UINT64_C(1) << octave) + random_number() % (UINT64_C(1) << octave);
}

static void check(int r) {
        if (r < 0)
                errx(EXIT_FAILURE, "%s", strerror(-r));
}

static void add_wait(struct wire_pair *pair, struct wire_extremes *extremes) {
        uint64_t nsec = random_wait();

        pair->count++;
        pair->total += nsec;
        extremes->max = nsec > extremes->max ? nsec : extremes->max;
        extremes->min = extremes->min == 0 || nsec < extremes->min ? nsec : extremes->min;
}

static uint64_t cgroup_of(unsigned long task) {
        return FIRST_CGROUP + task % options.cgroups;
}

static void add_cgroups(void) {
        char path[128];

        check(accounting_cgroup_added(accounting, START_NSEC, 1, 0, "/"));
        check(accounting_cgroup_added(accounting, START_NSEC, 2, 1, "/system.slice"));
        for (unsigned long i = 0; i < options.cgroups; i++) {
                snprintf(path, sizeof(path), "/system.slice/application-%05lu.service", i);
                check(accounting_cgroup_added(accounting, START_NSEC, FIRST_CGROUP + i, 2, path));
        }
}

/* A record as Linux 6.18 makes it, and as the daemon reads it. */
static void sample(uint64_t now, uint64_t born, uint32_t tid, const struct counters *c, bool exit) {
        struct wire_a wire = {
                .head.version = 16,
                .cpu = { 10, 100000 },
                .blkio = c->blkio,
                .swapin = c->swapin,
                .basic = {
                        .cpu_run_virtual_total = 200000,
                        .comm = "application",
                        .pid = tid,
                        .ppid = 1,
                        .etime = (now - born) / 1000,
                        .majflt = c->swapin.count,
                        .minflt = 200,
                        .read_bytes = c->blkio.count * 4096,
                },
                .identity.tgid = tid,
                .wpcopy = { 20, 40000 },
                .extremes = { { 0, 0 }, c->extremes[0], c->extremes[1] },
        };
        struct task_sample s;

        check(taskstats_decode(&wire, wire_size(16), tid, TASKSTATS_LAYOUT_A, &s));
        s.start_min_nsec = born;
        s.start_max_nsec = born + NSEC_PER_USEC;
        s.raw = &wire;
        s.raw_size = wire_size(16);
        check(exit ? accounting_exit_sample(accounting, now, &s) : accounting_live_sample(accounting, now, &s));
}

static void fork_task(uint64_t now, uint32_t tid, uint32_t parent) {
        const struct fork_event event = {
                .tid = tid, .tgid = tid, .parent_tid = parent, .parent_tgid = parent, .time_nsec = now,
        };

        check(accounting_fork(accounting, now, &event));
}

static void add_tasks(void) {
        for (unsigned long i = 0; i < options.tasks; i++) {
                uint32_t tid = FIRST_TID + (uint32_t) i;

                fork_task(START_NSEC, tid, 1);
                check(accounting_place(accounting, START_NSEC, tid, tid, cgroup_of(i)));
                sample(START_NSEC + NSEC_PER_MSEC, START_NSEC, tid, &counters[i], false);
        }
}

/* In each active cgroup one task has waited, for both kinds. */
static void live_waits(uint64_t now) {
        for (unsigned long i = 0; i < options.active && i < options.tasks; i++) {
                for (unsigned k = 0; k < 3; k++)
                        add_wait(&counters[i].blkio, &counters[i].extremes[0]);
                add_wait(&counters[i].swapin, &counters[i].extremes[1]);
                sample(now, START_NSEC, FIRST_TID + (uint32_t) i, &counters[i], false);
        }
}

/* Children of the first tasks, in their cgroups; some of them had to wait for a read. */
static void one_exit(uint64_t now) {
        unsigned long parent = random_number() % (options.tasks < 1000 ? options.tasks : 1000);
        struct counters c = {};
        uint32_t tid = next_tid;

        next_tid = next_tid == UINT32_C(4000000) ? FIRST_TID + (uint32_t) options.tasks : next_tid + 1;
        fork_task(now - SHORT_LIVED_NSEC, tid, FIRST_TID + (uint32_t) parent);
        if (random_number() % 1000 < options.waiting) {
                add_wait(&c.blkio, &c.extremes[0]);
                if (c.blkio.total > SHORT_LIVED_NSEC / 2)
                        c = (struct counters) { .blkio = { 1, 100000 }, .extremes = { { 100000, 100000 } } };
        }
        sample(now, now - SHORT_LIVED_NSEC, tid, &c, true);
}

static void one_second(struct recorder *recorder, uint64_t start) {
        for (unsigned long i = 0; i < options.exits; i++)
                one_exit(start + SHORT_LIVED_NSEC + i * (NSEC_PER_SEC - SHORT_LIVED_NSEC) / options.exits);

        uint64_t end = start + NSEC_PER_SEC;
        recorder_set_clocks(recorder, end, end);
        if (end % CHANGE_NSEC == 0)
                live_waits(end);
        accounting_age(accounting, end);
}

static void parse(int argc, char *argv[]) {
        static const struct option long_options[] = {
                { "tasks", required_argument, NULL, 't' },   { "cgroups", required_argument, NULL, 'c' },
                { "active", required_argument, NULL, 'a' },  { "exits", required_argument, NULL, 'e' },
                { "waiting", required_argument, NULL, 'w' }, { "seconds", required_argument, NULL, 's' },
                {},
        };

        for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) >= 0;) {
                unsigned long n = c != '?' ? strtoul(optarg, NULL, 10) : 0;

                switch (c) {
                case 't': options.tasks = n; break;
                case 'c': options.cgroups = n; break;
                case 'a': options.active = n; break;
                case 'e': options.exits = n; break;
                case 'w': options.waiting = n; break;
                case 's': options.seconds = n; break;
                default: exit(EXIT_FAILURE);
                }
        }
        if (optind != argc - 1 || options.cgroups == 0 || options.tasks == 0)
                errx(EXIT_FAILURE,
                     "Usage: %s [--tasks=N] [--cgroups=N] [--active=N] [--exits=N a second] [--waiting=N of 1000 exits] "
                     "[--seconds=N] FILE", argv[0]);
}

int main(int argc, char *argv[]) {
        struct health health = {};
        struct recorder *recorder;

        parse(argc, argv);
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = options.cgroups + 10,
                .max_exported = 1000,
                .retention_nsec = 300 * NSEC_PER_SEC,
                .poll_interval_nsec = NSEC_PER_SEC,
                .started_nsec = START_NSEC,
        };
        const struct recording_meta meta = {
                .started_nsec = START_NSEC,
                .started_monotonic_nsec = START_NSEC,
                .realtime_nsec = START_NSEC,
                .kinds = config.kinds,
                .taskstats_version = 16,
                .layout = TASKSTATS_LAYOUT_A,
                .daemon_version = DELAYD_VERSION,
                .kernel_release = "made up",
                .cgroup_hierarchy = "unified",
        };

        next_tid = FIRST_TID + (uint32_t) options.tasks;
        counters = calloc(options.tasks, sizeof(*counters));
        if (!counters)
                err(EXIT_FAILURE, "calloc() failed");
        check(accounting_new(&config, &accounting));
        check(recorder_new(argv[optind], false, &health, &recorder));
        recorder_set_clocks(recorder, START_NSEC, START_NSEC);
        recorder_begin(recorder, accounting, START_NSEC, &meta);

        add_cgroups();
        add_tasks();
        for (unsigned long s = 0; s < options.seconds; s++)
                one_second(recorder, START_NSEC + s * NSEC_PER_SEC);

        recorder_end(recorder, START_NSEC + options.seconds * NSEC_PER_SEC);
        recorder_free(recorder);
        accounting_free(accounting);
        health_free(&health);
        free(counters);
        return EXIT_SUCCESS;
}
