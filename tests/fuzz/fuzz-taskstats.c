/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <delayd/limits.h>

#include "core/accounting.h"
#include "fuzz.h"
#include "kernel/taskstats-decode.h"

/* Netlink payloads: what a socket of the taskstats family could receive, into an accounting. */

#define FAMILY 0x1b
#define NOW (1000 * NSEC_PER_SEC)

struct run {
        struct accounting *accounting;
        enum taskstats_layout layout;
        uint64_t lifetimes;
        unsigned records;
};

static void on_record(const struct task_sample *sample, uint32_t sequence, void *userdata) {
        struct run *run = userdata;
        uint8_t *copy = fuzz_copy(sample->raw, sample->raw_size);

        CHECK(memchr(sample->comm, '\0', sizeof(sample->comm)));
        CHECK(sample->start_min_nsec <= sample->start_max_nsec);
        CHECK(!(sample->kinds & ~DELAY_KINDS_ALL));

        (void) taskstats_prove_layout(copy, sample->raw_size, sample->tid);
        size_t known = taskstats_replace_comm(copy, sample->raw_size, run->layout, "another");
        CHECK(known <= sample->raw_size && known >= TASKSTATS_SIZE_MIN);

        struct task_sample again;
        CHECK(taskstats_decode(copy, known, sample->tid, run->layout, &again) == 0);
        CHECK(strcmp(again.comm, "another") == 0);
        CHECK(memcmp(again.delays, sample->delays, sizeof(again.delays)) == 0);
        free(copy);

        run->records++;
        if (__builtin_add_overflow(run->lifetimes, sample->lifetime_nsec, &run->lifetimes))
                run->lifetimes = UINT64_MAX;
        (void) accounting_exit_sample(run->accounting, NOW, sample);
}

static void on_error(int error, uint32_t sequence, void *userdata) {
        CHECK(error <= 0 && error >= -4095);
}

/* No task can have waited for longer than it lived, whatever the kernel says. */
static void check_totals(const struct run *run) {
        uint64_t slack = run->lifetimes / 1024 + run->records * 2 * NSEC_PER_MSEC, limit;

        if (__builtin_add_overflow(run->lifetimes, slack, &limit))
                limit = UINT64_MAX;
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                const struct delay_stats *stats = run->accounting->cgroups.unattributed->stats[kind];

                CHECK(!stats || stats->totals.total_nsec <= limit);
                CHECK(!stats || stats->totals.max_nsec <= limit);
        }
}

/* The same records as replies about live tasks, each a little later than the last. */
static void on_live_record(const struct task_sample *sample, uint32_t sequence, void *userdata) {
        struct run *run = userdata;

        (void) accounting_live_sample(run->accounting, NOW + ++run->records * NSEC_PER_MSEC, sample);
}

static struct accounting *make_accounting(void) {
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_ALL,
                .max_cgroups = 4,
                .max_exported = 1,
                .retention_nsec = NSEC_PER_SEC,
                .poll_interval_nsec = NSEC_PER_SEC,
        };
        struct accounting *a;

        CHECK(accounting_new(&config, &a) == 0);
        return a;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        void *datagram = fuzz_copy(data, size);

        for (enum taskstats_layout layout = TASKSTATS_LAYOUT_A; layout <= TASKSTATS_LAYOUT_BY_VERSION; layout++) {
                struct run run = { .accounting = make_accounting(), .layout = layout };
                struct taskstats_walk walk = {
                        .family = FAMILY,
                        .layout = layout,
                        .made_min_nsec = NOW - NSEC_PER_MSEC,
                        .made_max_nsec = NOW,
                        .record = on_record,
                        .error = on_error,
                        .userdata = &run,
                };

                (void) taskstats_walk(&walk, datagram, size);
                check_totals(&run);

                walk.record = on_live_record;
                (void) taskstats_walk(&walk, datagram, size);
                accounting_age(run.accounting, NOW + 3600 * NSEC_PER_SEC);
                accounting_free(run.accounting);
        }

        free(datagram);
        return 0;
}
