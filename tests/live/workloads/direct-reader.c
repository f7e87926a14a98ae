/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Synchronous direct reads, so many a second: says its PID, reads from the first line on its standard input to
 * the second, says how many, and stays until its input ends.
 */
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "workload.h"

#define BLOCK_SIZE 4096
#define NSEC_PER_SEC UINT64_C(1000000000)

static void read_line(void) {
        char c;

        do
                if (read(STDIN_FILENO, &c, 1) <= 0)
                        errx(EXIT_FAILURE, "The input ended.");
        while (c != '\n');
}

static int has_line(void) {
        struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

        return poll(&input, 1, 0) != 0;
}

static void sleep_until(uint64_t nsec) {
        struct timespec t = { .tv_sec = (time_t) (nsec / NSEC_PER_SEC), .tv_nsec = (long) (nsec % NSEC_PER_SEC) };

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
                ;
}

int main(int argc, char *argv[]) {
        static char buf[BLOCK_SIZE] __attribute__((aligned(BLOCK_SIZE)));
        unsigned long reads = 0;
        struct stat st;

        if (argc != 3)
                errx(EXIT_FAILURE, "Usage: %s RATE FILE", argv[0]);

        unsigned long rate = parse_number(argv[1], "RATE", 1, 100000);
        int fd = open(argv[2], O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < BLOCK_SIZE)
                err(EXIT_FAILURE, "Cannot use \"%s\"", argv[2]);

        printf("{\"pid\":%d}\n", getpid());
        fflush(stdout);
        read_line();

        for (uint64_t next = monotonic_nsec(); !has_line(); next += NSEC_PER_SEC / rate, reads++) {
                sleep_until(next);
                if (pread(fd, buf, sizeof(buf), random() % (st.st_size / BLOCK_SIZE) * BLOCK_SIZE) != sizeof(buf))
                        err(EXIT_FAILURE, "Cannot read");
        }

        read_line();
        printf("{\"reads\":%lu}\n", reads);
        fflush(stdout);
        hold();
        return EXIT_SUCCESS;
}
