/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes more anonymous memory than its cgroup may hold, then reads it again: the second pass swaps
 * in what the first one pushed out. Says how many major faults that took; the true number of swap-in
 * waits is the kernel's, in the task's exit record.
 */
#include <err.h>
#include <string.h>
#include <sys/mman.h>

#include "workload.h"

/* Half of each page is noise, so that a compressing swap device has something to do. */
static void fill(unsigned char *page, size_t size, uint64_t *seed) {
        for (size_t i = 0; i < size / 2; i += sizeof(*seed)) {
                *seed ^= *seed << 13;
                *seed ^= *seed >> 7;
                *seed ^= *seed << 17;
                memcpy(page + i, seed, sizeof(*seed));
        }
        memset(page + size / 2, 0x5a, size / 2);
}

int main(int argc, char *argv[]) {
        if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--hold") != 0))
                errx(EXIT_FAILURE, "Usage: %s MEBIBYTES [--hold]", argv[0]);

        size_t page_size = (size_t) sysconf(_SC_PAGESIZE);
        size_t size = parse_number(argv[1], "MEBIBYTES", 1, 4096) * 1024 * 1024;
        uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);
        unsigned sum = 0;

        unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
                err(EXIT_FAILURE, "Cannot map %zu bytes", size);
        if (madvise(memory, size, MADV_NOHUGEPAGE) < 0 || madvise(memory, size, MADV_RANDOM) < 0)
                err(EXIT_FAILURE, "madvise() failed");

        for (size_t i = 0; i < size; i += page_size)
                fill(memory + i, page_size, &seed);

        long before = major_faults();
        for (size_t i = 0; i < size; i += page_size)
                sum += ((volatile unsigned char *) memory)[i];

        printf("{\"pid\":%d,\"pages\":%zu,\"major_faults\":%ld,\"sum\":%u}\n",
               getpid(), size / page_size, major_faults() - before, sum);
        fflush(stdout);

        if (argc == 3)
                hold();
        return EXIT_SUCCESS;
}
