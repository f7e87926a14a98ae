/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "kernel/pressure.h"

/* Reads a number of microseconds that follows the mark in the first line, which begins in the given way. */
static int read_first_line(int fd, const char *begin, const char *mark, uint64_t *ret_nsec) {
        char buf[256];

        ssize_t n = pread(fd, buf, sizeof(buf) - 1, 0);
        if (n < 0)
                return -errno;
        buf[n] = '\0';

        const char *number = strncmp(buf, begin, strlen(begin)) == 0 ? strstr(buf, mark) : NULL;
        if (!number)
                return -EBADMSG;

        *ret_nsec = strtoull(number + strlen(mark), NULL, 10) * NSEC_PER_USEC;
        return 0;
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull ..." */
static int read_some_total(int fd, uint64_t *ret_nsec) {
        return read_first_line(fd, "some ", " total=", ret_nsec);
}

int pressure_read_host_io(uint64_t *ret_stall_nsec) {
        _cleanup_close_ int fd = open("/proc/pressure/io", O_RDONLY | O_CLOEXEC);

        return fd < 0 ? -errno : read_some_total(fd, ret_stall_nsec);
}

int pressure_read_cgroup_io(struct cgroup_tree *t, uint64_t id, uint64_t *ret_stall_nsec) {
        _cleanup_close_ int fd = cgroup_tree_open_file(t, id, "io.pressure");

        return fd < 0 ? fd : read_some_total(fd, ret_stall_nsec);
}

int pressure_read_cgroup_memory(struct cgroup_tree *t, uint64_t id, uint64_t *ret_stall_nsec) {
        _cleanup_close_ int fd = cgroup_tree_open_file(t, id, "memory.pressure");

        return fd < 0 ? fd : read_some_total(fd, ret_stall_nsec);
}

/* "usage_usec 123\n..."; the file of that name on v1 has other lines. */
int pressure_read_cgroup_cpu(struct cgroup_tree *t, uint64_t id, uint64_t *ret_usage_nsec) {
        _cleanup_close_ int fd = cgroup_tree_open_file(t, id, "cpu.stat");

        return fd < 0 ? fd : read_first_line(fd, "usage_usec ", "usage_usec ", ret_usage_nsec);
}
