/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t monotonic_nsec(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t) t.tv_sec * UINT64_C(1000000000) + (uint64_t) t.tv_nsec;
}

static inline unsigned long parse_number(const char *s, const char *what, unsigned long least, unsigned long most) {
        char *end;

        unsigned long n = strtoul(s, &end, 10);
        if (*s < '0' || *s > '9' || *end || n < least || n > most)
                errx(EXIT_FAILURE, "%s must be a number from %lu to %lu, not \"%s\".", what, least, most, s);
        return n;
}

/* Lives on, doing nothing, until the tester closes our standard input: a task that waited and did not exit. */
static inline void hold(void) {
        char c;

        while (read(STDIN_FILENO, &c, 1) > 0)
                ;
}

/* Major faults of the whole process, as the kernel counted them. */
static inline long major_faults(void) {
        struct rusage usage;

        if (getrusage(RUSAGE_SELF, &usage) < 0)
                err(EXIT_FAILURE, "getrusage() failed");
        return usage.ru_majflt;
}
