/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernel/kernel-info.h"

/* What the tests on the running kernel have in common. */

/* NULL if the test can run here, else why not. */
static inline const char *live_obstacle(void) {
        static char reason[64];
        const char *foreign = kernel_foreign_namespace();

        if (!kernel_have_net_admin())
                return "needs CAP_NET_ADMIN";
        if (foreign) {
                snprintf(reason, sizeof(reason), "needs the initial %s namespace", foreign);
                return reason;
        }

        return NULL;
}

/* The whole run in TAP if it cannot be had. */
#define LIVE_SKIP_IF_IMPOSSIBLE()                                                                 \
        do {                                                                                      \
                const char *obstacle = live_obstacle();                                           \
                if (obstacle) {                                                                   \
                        printf("1..0 # SKIP %s\n", obstacle);                                     \
                        return 0;                                                                 \
                }                                                                                 \
        } while (0)

static inline void live_reap(pid_t child) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
                ;
}

/* Forks a child that exits at once, and reaps it. */
static inline pid_t live_short_child(void) {
        pid_t child = fork();

        if (child == 0)
                _exit(EXIT_SUCCESS);
        assert_true(child > 0);
        live_reap(child);
        return child;
}

/* A child that forks such children until it is killed; it dies with the test. */
static inline pid_t live_start_storm(void) {
        pid_t child = fork();

        if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                        live_short_child();
        }
        assert_true(child > 0);
        return child;
}

/* Runs a function in a child; its result, which must be 0 to -127. */
static inline int live_run_in_child(int (*function)(void)) {
        int status;

        pid_t child = fork();
        if (child == 0)
                _exit(-function());
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        return -WEXITSTATUS(status);
}

/* Our netlink sockets of a protocol, which their owners do not show: the first from fd on, or -1. */
static inline int live_netlink_socket(int protocol, int fd) {
        for (; fd < 1024; fd++) {
                int value;
                socklen_t size = sizeof(value);

                if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &size) == 0 && value == AF_NETLINK
                    && getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &size) == 0 && value == protocol)
                        return fd;
        }

        return -1;
}

/* Whether an overrun leaves the socket usable, instead of dropping everything until it has been read empty. */
static inline bool live_no_enobufs(int fd) {
        int value = 0;
        socklen_t size = sizeof(value);

        assert_int_equal(getsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &value, &size), 0);
        return value;
}

/* Writes kernel.task_delayacct; tests put back what they found. */
static inline void live_set_delayacct(bool on) {
        int fd = open("/proc/sys/kernel/task_delayacct", O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return; /* Linux < 5.14: always on */
        assert_int_equal(write(fd, on ? "1" : "0", 1), 1);
        close(fd);
}
