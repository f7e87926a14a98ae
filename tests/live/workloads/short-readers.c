/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Children that read a few cold blocks and end, some at a time: what makes the fault of Linux 6.12 show
 * when they are of the usual scheduling class and have to share their CPU.
 */
#include <err.h>
#include <sys/wait.h>

#include "cold.h"

static void reap(void) {
        int status;

        if (wait(&status) < 0 || status != 0)
                errx(EXIT_FAILURE, "A child failed.");
}

int main(int argc, char *argv[]) {
        if (argc != 5)
                errx(EXIT_FAILURE, "Usage: %s CHILDREN PARALLEL BLOCKS FILE", argv[0]);

        unsigned long children = parse_number(argv[1], "CHILDREN", 1, 1000000);
        unsigned long parallel = parse_number(argv[2], "PARALLEL", 1, 1000), alive = 0;
        unsigned long blocks = parse_number(argv[3], "BLOCKS", 1, 1000);
        struct cold_file file = open_cold(argv[4]);

        for (unsigned long i = 0; i < children; i++) {
                if (alive == parallel) {
                        reap();
                        alive--;
                }

                pid_t pid = fork();
                if (pid < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pid == 0) {
                        read_cold(&file, i * blocks, blocks);
                        _exit(EXIT_SUCCESS);
                }
                alive++;
        }
        while (alive-- > 0)
                reap();

        printf("{\"pid\":%d,\"children\":%lu}\n", getpid(), children);
        return EXIT_SUCCESS;
}
