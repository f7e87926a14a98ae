/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waits through io_uring for a pipe that stays empty for the given time: no I/O at all, but the kernel
 * counts a task that sleeps for a completion as waiting for I/O. With system calls of its own, for it
 * needs no more than one request. Says -errno where the kernel has no io_uring.
 */
#include <err.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "workload.h"

/* One read of the pipe into buf, put into the first place of the rings. */
static void submit_read(int ring, const struct io_uring_params *params, int fd, char *buf, size_t size) {
        size_t rings_size = params->sq_off.array + params->sq_entries * sizeof(unsigned);
        unsigned char *rings = mmap(NULL, rings_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                                    IORING_OFF_SQ_RING);
        struct io_uring_sqe *entries = mmap(NULL, params->sq_entries * sizeof(*entries), PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
        if (rings == MAP_FAILED || entries == MAP_FAILED)
                err(EXIT_FAILURE, "Cannot map the rings");

        unsigned *array = (void *) (rings + params->sq_off.array), *tail = (void *) (rings + params->sq_off.tail);

        memset(entries, 0, sizeof(*entries));
        entries->opcode = IORING_OP_READ;
        entries->fd = fd;
        entries->addr = (uint64_t) (uintptr_t) buf;
        entries->len = (uint32_t) size;
        array[0] = 0;
        __atomic_store_n(tail, 1, __ATOMIC_RELEASE);
}

int main(int argc, char *argv[]) {
        struct io_uring_params params = {};
        int fds[2];
        char buf[1];

        if (argc != 2)
                errx(EXIT_FAILURE, "Usage: %s MSEC", argv[0]);
        unsigned long msec = parse_number(argv[1], "MSEC", 1, 60000);

        int ring = (int) syscall(SYS_io_uring_setup, 1, &params);
        if (ring < 0) {
                printf("{\"pid\":%d,\"error\":%d}\n", getpid(), -errno);
                return EXIT_SUCCESS;
        }
        if (pipe(fds) < 0)
                err(EXIT_FAILURE, "pipe() failed");

        pid_t waker = fork();
        if (waker < 0)
                err(EXIT_FAILURE, "fork() failed");
        if (waker == 0) {
                usleep((useconds_t) msec * 1000);
                _exit(write(fds[1], "x", 1) == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
        }

        submit_read(ring, &params, fds[0], buf, sizeof(buf));
        uint64_t start = monotonic_nsec();
        if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
                err(EXIT_FAILURE, "io_uring_enter() failed");

        int status;
        if (waitpid(waker, &status, 0) < 0 || status != 0)
                errx(EXIT_FAILURE, "The waker failed.");
        printf("{\"pid\":%d,\"error\":0,\"elapsed_msec\":%lu}\n",
               getpid(), (unsigned long) ((monotonic_nsec() - start) / 1000000));
        return EXIT_SUCCESS;
}
