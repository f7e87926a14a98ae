/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the accounting of a recording costs, apart from the reading of it: CPU time and heap, with the number
 * of events of each type to divide by. Under callgrind, the cost of accounting_*() is the number to look at.
 */
#include <err.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "record/recording-reader.h"
#include "record/replay.h"

static const char *const names[ACCOUNTING_EVENT_COUNT] = {
        [ACCOUNTING_CGROUP_ADDED] = "cgroups_added",
        [ACCOUNTING_CGROUP_REMOVED] = "cgroups_removed",
        [ACCOUNTING_FORK] = "forks",
        [ACCOUNTING_EXEC] = "execs",
        [ACCOUNTING_PLACE] = "places",
        [ACCOUNTING_SWEEP_BEGIN] = "sweeps",
        [ACCOUNTING_SWEEP_END] = "sweep_ends",
        [ACCOUNTING_LIVE_SAMPLE] = "live_samples",
        [ACCOUNTING_EXIT_SAMPLE] = "exit_samples",
        [ACCOUNTING_VANISHED] = "vanished",
        [ACCOUNTING_AGE] = "ages",
        [ACCOUNTING_LOOKED_UP] = "lookups",
};

static uint64_t cpu_nsec(void) {
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (uint64_t) t.tv_sec * UINT64_C(1000000000) + (uint64_t) t.tv_nsec;
}

/* Reads all events and does nothing with them. */
static uint64_t read_only(const char *path, uint64_t counts[static ACCOUNTING_EVENT_COUNT]) {
        struct recording_reader *reader;
        struct recording_event event;
        uint32_t version;
        int r;

        FILE *file = fopen(path, "re");
        if (!file)
                err(EXIT_FAILURE, "Cannot open %s", path);

        uint64_t cpu = cpu_nsec();
        r = recording_reader_new(file, &reader, &version);
        if (r < 0)
                errx(EXIT_FAILURE, "%s: %s", path, strerror(-r));
        while ((r = recording_reader_next(reader, &event)) > 0)
                if (recording_is_accounting(event.type))
                        counts[event.type - RECORDING_ACCOUNTING]++;
        if (r < 0)
                errx(EXIT_FAILURE, "%s: %s", path, strerror(-r));
        recording_reader_free(reader);
        return cpu_nsec() - cpu;
}

int main(int argc, char *argv[]) {
        uint64_t counts[ACCOUNTING_EVENT_COUNT] = {};
        const struct config config = {};
        struct health health = {};
        struct replay *replay;
        int r;

        if (argc != 2)
                errx(EXIT_FAILURE, "Usage: %s RECORDING", argv[0]);

        uint64_t reading = read_only(argv[1], counts);
        malloc_trim(0);
        size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;

        uint64_t cpu = cpu_nsec();
        r = replay_new(argv[1], &config, &health, NULL, &replay);
        while (r >= 0 && (r = replay_step(replay)) > 0)
                ;
        if (r < 0 || replay_is_damaged(replay))
                errx(EXIT_FAILURE, "%s could not be replayed", argv[1]);
        cpu = cpu_nsec() - cpu;

        const struct accounting *a = replay_accounting(replay);
        printf("{\"reading_nsec\":%" PRIu64 ",\"replay_nsec\":%" PRIu64 ",\"heap_bytes\":%zu,\"tasks\":%zu,\"cgroups\":%zu",
               reading, cpu, mallinfo2().uordblks + mallinfo2().hblkhd - before, a->tasks.n_live, a->cgroups.tracked);
        for (unsigned i = 0; i < ACCOUNTING_EVENT_COUNT; i++)
                if (names[i])
                        printf(",\"%s\":%" PRIu64, names[i], counts[i]);
        puts("}");

        replay_free(replay);
        health_free(&health);
        return EXIT_SUCCESS;
}
