/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The least that talks to taskstats, for programs that the daemon is compared with. Shares no code with it. */

#include <err.h>
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h> /* commands and attribute types */
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define MESSAGE_SIZE 4096

struct request {
        struct nlmsghdr netlink;
        struct genlmsghdr generic;
        struct nlattr attribute;
        uint8_t payload[64];
};

static inline uint64_t process_cpu_nsec(void) {
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (uint64_t) t.tv_sec * UINT64_C(1000000000) + (uint64_t) t.tv_nsec;
}

static inline uint16_t taskstats_family(void) {
        struct nl_sock *s = nl_socket_alloc();

        if (!s || genl_connect(s) < 0)
                errx(EXIT_FAILURE, "No generic netlink socket");

        int family = genl_ctrl_resolve(s, TASKSTATS_GENL_NAME);
        if (family < 0)
                errx(EXIT_FAILURE, "The kernel has no taskstats");

        nl_socket_free(s);
        return (uint16_t) family;
}

static inline int taskstats_socket(int receive_buffer) {
        struct sockaddr_nl address = { .nl_family = AF_NETLINK };
        int one = 1, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_GENERIC);

        if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0
            || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &receive_buffer, sizeof(receive_buffer)) < 0
            || setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &one, sizeof(one)) < 0)
                err(EXIT_FAILURE, "No netlink socket");
        return fd;
}

static inline struct request make_request(uint16_t family, uint16_t attribute, const void *payload, size_t size) {
        struct request r = {
                .netlink = { .nlmsg_type = family, .nlmsg_flags = NLM_F_REQUEST },
                .generic = { .cmd = TASKSTATS_CMD_GET, .version = TASKSTATS_GENL_VERSION },
                .attribute = { .nla_type = attribute, .nla_len = (uint16_t) (NLA_HDRLEN + size) },
        };

        memcpy(r.payload, payload, size);
        r.netlink.nlmsg_len = (uint32_t) (NLMSG_HDRLEN + GENL_HDRLEN + NLA_HDRLEN + NLA_ALIGN(size));
        return r;
}

/* Datagrams of one recvmmsg(). */
struct inbox {
        struct mmsghdr messages[BATCH];
        struct iovec parts[BATCH];
        uint8_t bytes[BATCH][MESSAGE_SIZE] __attribute__((aligned(8)));
};

static inline void inbox_init(struct inbox *in) {
        memset(in->messages, 0, sizeof(in->messages));
        for (unsigned i = 0; i < BATCH; i++) {
                in->parts[i] = (struct iovec) { in->bytes[i], MESSAGE_SIZE };
                in->messages[i].msg_hdr = (struct msghdr) { .msg_iov = &in->parts[i], .msg_iovlen = 1 };
        }
}

/* What is there; 0 if there is nothing. */
static inline unsigned inbox_receive(struct inbox *in, int fd) {
        int n = recvmmsg(fd, in->messages, BATCH, MSG_DONTWAIT, NULL);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
                err(EXIT_FAILURE, "recvmmsg() failed");
        return n > 0 ? (unsigned) n : 0;
}
