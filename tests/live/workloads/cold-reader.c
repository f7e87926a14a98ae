/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads blocks of a file that is not in the page cache, so that each read waits for the disk, and
 * says what it did. Readahead is off and the blocks lie apart, so n reads are about n waits; the
 * true number is the kernel's, in the task's exit record.
 */
#include <err.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "workload.h"

#define BLOCK_SIZE 4096
#define BLOCK_DISTANCE (64 * 1024)
#define MAX_THREADS 64

static int arg_fd = -1;
static unsigned long arg_blocks = 16, arg_threads = 1, arg_pause_msec = 0;

static void *read_share(void *userdata) {
        unsigned long first = *(const unsigned long *) userdata;
        char buf[BLOCK_SIZE];

        for (unsigned long i = first; i < arg_blocks; i += arg_threads) {
                ssize_t n = pread(arg_fd, buf, sizeof(buf), (off_t) (i * BLOCK_DISTANCE));
                if (n < 0)
                        err(EXIT_FAILURE, "Cannot read block %lu", i);
                if (n != sizeof(buf))
                        errx(EXIT_FAILURE, "The file ends before block %lu.", i);

                if (arg_pause_msec > 0)
                        usleep((useconds_t) arg_pause_msec * 1000);
        }

        return NULL;
}

static void read_all(void) {
        pthread_t threads[MAX_THREADS];
        unsigned long first[MAX_THREADS];

        for (unsigned long i = 0; i < arg_threads; i++) {
                first[i] = i;
                if (i > 0 && pthread_create(&threads[i], NULL, read_share, &first[i]) != 0)
                        errx(EXIT_FAILURE, "Cannot create thread %lu.", i);
        }

        read_share(&first[0]);
        for (unsigned long i = 1; i < arg_threads; i++)
                pthread_join(threads[i], NULL);
}

int main(int argc, char *argv[]) {
        static const struct option options[] = {
                { "blocks", required_argument, NULL, 'b' }, { "threads", required_argument, NULL, 't' },
                { "pause", required_argument, NULL, 'p' },  { "hold", no_argument, NULL, 'h' },
                {},
        };
        int c, holding = 0;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 'b':
                        arg_blocks = parse_number(optarg, "--blocks", 1, 1000000);
                        break;
                case 't':
                        arg_threads = parse_number(optarg, "--threads", 1, MAX_THREADS);
                        break;
                case 'p':
                        arg_pause_msec = parse_number(optarg, "--pause", 0, 1000);
                        break;
                case 'h':
                        holding = 1;
                        break;
                default:
                        return EXIT_FAILURE;
                }
        if (optind + 1 != argc)
                errx(EXIT_FAILURE, "Usage: %s [--blocks=N] [--threads=N] [--pause=MSEC] [--hold] FILE", argv[0]);

        arg_fd = open(argv[optind], O_RDONLY | O_CLOEXEC);
        if (arg_fd < 0)
                err(EXIT_FAILURE, "Cannot open \"%s\"", argv[optind]);

        int r = posix_fadvise(arg_fd, 0, 0, POSIX_FADV_RANDOM);
        if (r == 0)
                r = posix_fadvise(arg_fd, 0, 0, POSIX_FADV_DONTNEED);
        if (r != 0)
                errx(EXIT_FAILURE, "posix_fadvise() failed: %s", strerror(r));

        uint64_t start = monotonic_nsec();
        read_all();
        printf("{\"pid\":%d,\"reads\":%lu,\"elapsed_nsec\":%" PRIu64 ",\"major_faults\":%ld}\n",
               getpid(), arg_blocks, monotonic_nsec() - start, major_faults());
        fflush(stdout);

        if (holding)
                hold();
        return EXIT_SUCCESS;
}
