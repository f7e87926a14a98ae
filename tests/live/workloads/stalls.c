/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How much of the time the host keeps a task waiting for a CPU that wants to run for a moment twice a
 * millisecond: sleeps until its standard input ends, and says how long it was and how long it slept beyond
 * a millisecond too much.
 */
#include <inttypes.h>
#include <poll.h>

#include "workload.h"

#define SLEEP_NSEC 500000
#define LATE_NSEC 1000000

int main(void) {
        const struct timespec span = { .tv_nsec = SLEEP_NSEC };
        struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
        uint64_t start = monotonic_nsec(), late = 0;

        do {
                uint64_t before = monotonic_nsec();

                (void) nanosleep(&span, NULL);
                uint64_t slept = monotonic_nsec() - before;
                if (slept > SLEEP_NSEC + LATE_NSEC)
                        late += slept - SLEEP_NSEC;
        } while (poll(&input, 1, 0) == 0);

        printf("{\"elapsed_nsec\":%" PRIu64 ",\"late_nsec\":%" PRIu64 "}\n", monotonic_nsec() - start, late);
        return EXIT_SUCCESS;
}
