/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "workload.h"

/* The layout of the tests' file on disk: blocks that lie apart, so that reading one does not bring in the next. */
#define BLOCK_SIZE 4096
#define BLOCK_DISTANCE (64 * 1024)

struct cold_file {
        int fd;
        unsigned long blocks;
};

static inline struct cold_file open_cold(const char *path) {
        struct cold_file file = { .fd = open(path, O_RDONLY | O_CLOEXEC) };
        struct stat st;

        if (file.fd < 0 || fstat(file.fd, &st) < 0)
                err(EXIT_FAILURE, "Cannot open \"%s\"", path);

        file.blocks = (unsigned long) st.st_size / BLOCK_DISTANCE;
        if (file.blocks == 0)
                errx(EXIT_FAILURE, "\"%s\" is too short.", path);

        /* Whole: what was written is cached in large folios, and parts of these are not dropped. */
        int r = posix_fadvise(file.fd, 0, 0, POSIX_FADV_RANDOM);
        if (r == 0)
                r = posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);
        if (r != 0)
                errx(EXIT_FAILURE, "posix_fadvise() failed: %s", strerror(r));
        return file;
}

/* Each read waits for the disk, by page cache and all: the block is dropped before. Blocks are taken in a circle. */
static inline void read_cold(const struct cold_file *file, unsigned long first, unsigned long n) {
        char buf[BLOCK_SIZE];

        for (unsigned long i = first; i < first + n; i++) {
                off_t offset = (off_t) (i % file->blocks) * BLOCK_DISTANCE;

                (void) posix_fadvise(file->fd, offset, BLOCK_DISTANCE, POSIX_FADV_DONTNEED);
                if (pread(file->fd, buf, sizeof(buf), offset) != sizeof(buf))
                        err(EXIT_FAILURE, "Cannot read block %lu", i);
        }
}

static inline void sleep_msec(unsigned long msec) {
        struct timespec t = { .tv_sec = (time_t) (msec / 1000), .tv_nsec = (long) (msec % 1000) * 1000000 };

        (void) nanosleep(&t, NULL);
}
