/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waits for the disk when it is told to, line by line on its standard input:
 *   read N             reads N cold blocks
 *   fork PID N MSEC    a child with this PID (0: any) reads N cold blocks, sleeps, ends, and is reaped
 * and answers each line with one of JSON. Ends with its input.
 */
#include <err.h>
#include <inttypes.h>
#include <sys/wait.h>

#include "cold.h"

#define TRIES_MAX 20

static unsigned long next_block;

static void set_last_pid(long pid) {
        FILE *file = fopen("/proc/sys/kernel/ns_last_pid", "we");

        if (!file || fprintf(file, "%ld", pid) < 0 || fclose(file) != 0)
                err(EXIT_FAILURE, "Cannot write ns_last_pid");
}

static void reap(pid_t pid) {
        int status;

        if (waitpid(pid, &status, 0) < 0)
                err(EXIT_FAILURE, "waitpid() failed");
        if (status != 0)
                errx(EXIT_FAILURE, "A child ended with status %d.", status);
}

static void fork_reader(const struct cold_file *file, pid_t wanted, unsigned long blocks, unsigned long msec) {
        /* Others fork as well, and may have taken the number. */
        for (unsigned attempt = 1; attempt <= TRIES_MAX; attempt++) {
                if (wanted > 0)
                        set_last_pid(wanted - 1);

                uint64_t forked = monotonic_nsec();
                pid_t pid = fork();
                if (pid < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pid == 0) {
                        if (wanted == 0 || getpid() == wanted) {
                                read_cold(file, next_block, blocks);
                                sleep_msec(msec);
                        }
                        _exit(EXIT_SUCCESS);
                }

                reap(pid);
                if (wanted == 0 || pid == wanted) {
                        printf("{\"pid\":%d,\"attempts\":%u,\"forked_nsec\":%" PRIu64 ",\"reaped_nsec\":%" PRIu64 "}\n",
                               pid, attempt, forked, monotonic_nsec());
                        return;
                }
        }

        printf("{\"pid\":0}\n"); /* somebody else has it */
}

int main(int argc, char *argv[]) {
        char line[128];

        if (argc != 2)
                errx(EXIT_FAILURE, "Usage: %s FILE", argv[0]);

        struct cold_file file = open_cold(argv[1]);
        next_block = (unsigned long) getpid() * 37;

        while (fgets(line, sizeof(line), stdin)) {
                unsigned long blocks, msec;
                int pid;

                if (sscanf(line, "read %lu", &blocks) == 1) {
                        read_cold(&file, next_block, blocks);
                        printf("{\"reads\":%lu}\n", blocks);
                } else if (sscanf(line, "fork %d %lu %lu", &pid, &blocks, &msec) == 3)
                        fork_reader(&file, pid, blocks, msec);
                else
                        errx(EXIT_FAILURE, "What is \"%s\"?", line);

                next_block += blocks;
                fflush(stdout);
        }

        return EXIT_SUCCESS;
}
