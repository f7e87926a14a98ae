/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How often the host keeps a task waiting for a CPU that wants to run for a moment twice a millisecond: sleeps
 * until its standard input ends, and says how many of the sleeps were a millisecond too long.
 */
#include <poll.h>

#include "workload.h"

#define SLEEP_NSEC 500000
#define LATE_NSEC 1000000

int main(void) {
        const struct timespec span = { .tv_nsec = SLEEP_NSEC };
        struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
        unsigned long sleeps = 0, late = 0;

        do {
                uint64_t before = monotonic_nsec();

                (void) nanosleep(&span, NULL);
                sleeps++;
                late += monotonic_nsec() - before > SLEEP_NSEC + LATE_NSEC;
        } while (poll(&input, 1, 0) == 0);

        printf("{\"sleeps\":%lu,\"late\":%lu}\n", sleeps, late);
        return EXIT_SUCCESS;
}
