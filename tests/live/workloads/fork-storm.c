/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes children that exit at once, as fast as the machine can and some at a time, and reaps them
 * at once: what no sampling reader of /proc can see. Says how many there were.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/wait.h>

#include "workload.h"

static void reap(void) {
        int status;

        while (wait(&status) < 0)
                if (errno != EINTR)
                        err(EXIT_FAILURE, "wait() failed");
        if (status != 0)
                errx(EXIT_FAILURE, "A child ended with status %d.", status);
}

int main(int argc, char *argv[]) {
        if (argc != 3)
                errx(EXIT_FAILURE, "Usage: %s CHILDREN PARALLEL", argv[0]);

        unsigned long children = parse_number(argv[1], "CHILDREN", 1, 10000000);
        unsigned long parallel = parse_number(argv[2], "PARALLEL", 1, 10000), alive = 0;
        uint64_t start = monotonic_nsec();

        for (unsigned long i = 0; i < children; i++) {
                if (alive == parallel) {
                        reap();
                        alive--;
                }

                pid_t pid = fork();
                if (pid < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pid == 0)
                        _exit(EXIT_SUCCESS);
                alive++;
        }
        while (alive-- > 0)
                reap();

        printf("{\"pid\":%d,\"children\":%lu,\"elapsed_nsec\":%" PRIu64 "}\n",
               getpid(), children, monotonic_nsec() - start);
        return EXIT_SUCCESS;
}
