/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Children that read a few cold blocks and end, some at a time, and are not reaped before standard input
 * is closed: the kernel keeps their counters that long. Says so when all have ended.
 */
#include <err.h>
#include <sys/wait.h>

#include "cold.h"

/* Until it has ended, without reaping it. */
static void wait_end(pid_t pid) {
        siginfo_t info;

        if (waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT) < 0)
                err(EXIT_FAILURE, "waitid() failed");
        if (info.si_code != CLD_EXITED || info.si_status != 0)
                errx(EXIT_FAILURE, "A child failed.");
}

int main(int argc, char *argv[]) {
        if (argc != 5)
                errx(EXIT_FAILURE, "Usage: %s CHILDREN PARALLEL BLOCKS FILE", argv[0]);

        unsigned long children = parse_number(argv[1], "CHILDREN", 1, 20000);
        unsigned long parallel = parse_number(argv[2], "PARALLEL", 1, 1000);
        unsigned long blocks = parse_number(argv[3], "BLOCKS", 1, 1000);
        struct cold_file file = open_cold(argv[4]);

        pid_t *pids = calloc(children, sizeof(*pids));
        if (!pids)
                err(EXIT_FAILURE, "calloc() failed");

        for (unsigned long i = 0; i < children; i++) {
                if (i >= parallel)
                        wait_end(pids[i - parallel]);

                pids[i] = fork();
                if (pids[i] < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pids[i] == 0) {
                        read_cold(&file, i * blocks, blocks);
                        _exit(EXIT_SUCCESS);
                }
        }
        for (unsigned long i = 0; i < children; i++)
                wait_end(pids[i]);

        printf("{\"pid\":%d,\"children\":%lu}\n", getpid(), children);
        fflush(stdout);
        hold();

        for (unsigned long i = 0; i < children; i++)
                if (waitpid(pids[i], NULL, 0) < 0)
                        err(EXIT_FAILURE, "waitpid() failed");

        free(pids);
        return EXIT_SUCCESS;
}
