/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netlink/errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "kernel/monotonic.h"
#include "kernel/netlink-socket.h"

struct netlink_batch {
        unsigned n;
        struct mmsghdr *headers;
        struct iovec *buffers;
        struct sockaddr_nl *senders;
        uint8_t *bytes;
};

int netlink_errno(int nl_error) {
        switch (nl_error < 0 ? -nl_error : nl_error) {
        case NLE_SUCCESS:
                return 0;
        case NLE_PERM:
                return -EPERM;
        case NLE_NOACCESS:
                return -EACCES;
        case NLE_NOMEM:
                return -ENOMEM;
        case NLE_OBJ_NOTFOUND:
        case NLE_NODEV:
                return -ENOENT;
        case NLE_INVAL:
                return -EINVAL;
        case NLE_EXIST:
                return -EEXIST;
        case NLE_BUSY:
                return -EBUSY;
        case NLE_AGAIN:
                return -EAGAIN;
        case NLE_INTR:
                return -EINTR;
        case NLE_AF_NOSUPPORT:
                return -EAFNOSUPPORT;
        case NLE_PROTO_MISMATCH:
                return -EPROTONOSUPPORT;
        case NLE_OPNOTSUPP:
                return -EOPNOTSUPP;
        case NLE_MSG_TRUNC:
        case NLE_MSG_TOOSHORT:
                return -EBADMSG;
        default:
                return -EIO;
        }
}

int netlink_set_receive_buffer(int fd, size_t bytes) {
        int value = bytes > INT_MAX / 2 ? INT_MAX / 2 : (int) bytes;

        if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &value, sizeof(value)) == 0
            || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof(value)) == 0)
                return 0;

        return -errno;
}

size_t netlink_receive_buffer(int fd) {
        int value;
        socklen_t size = sizeof(value);

        if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &size) < 0 || value < 0)
                return 0;

        return (size_t) value / 2;
}

int netlink_set_no_enobufs(int fd) {
        int on = 1;

        return setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof(on)) < 0 ? -errno : 0;
}

int netlink_attach_filter(int fd, struct sock_filter *program, size_t n) {
        struct sock_fprog fprog = { .len = (unsigned short) n, .filter = program };

        return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &fprog, sizeof(fprog)) < 0 ? -errno : 0;
}

int netlink_detach_filter(int fd) {
        int unused = 0;

        if (setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused)) < 0 && errno != ENOENT)
                return -errno;

        return 0;
}

int netlink_count_drops(int fd, struct netlink_drops *drops) {
        uint32_t info[SK_MEMINFO_VARS] = {};
        socklen_t size = sizeof(info);

        if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size) < 0)
                return -errno;

        drops->total += info[SK_MEMINFO_DROPS] - drops->last;
        drops->last = info[SK_MEMINFO_DROPS];
        return 0;
}

int netlink_wait(int fd, uint64_t timeout_nsec) {
        uint64_t now = monotonic_nsec(), end = now + timeout_nsec;

        for (;; now = monotonic_nsec()) {
                struct pollfd pfd = { .fd = fd, .events = POLLIN };
                uint64_t left = now < end ? end - now : 0;
                struct timespec ts = { .tv_sec = (time_t) (left / NSEC_PER_SEC), .tv_nsec = (long) (left % NSEC_PER_SEC) };

                int n = ppoll(&pfd, 1, &ts, NULL);
                if (n >= 0)
                        return n;
                if (errno != EINTR)
                        return -errno;
        }
}

struct netlink_batch *netlink_batch_new(unsigned n, size_t datagram_size) {
        struct netlink_batch *b = calloc(1, sizeof(*b));

        if (!b)
                return NULL;

        b->n = n;
        b->headers = calloc(n, sizeof(*b->headers));
        b->buffers = calloc(n, sizeof(*b->buffers));
        b->senders = calloc(n, sizeof(*b->senders));
        b->bytes = calloc(n, datagram_size);
        if (!b->headers || !b->buffers || !b->senders || !b->bytes)
                return netlink_batch_free(b);

        for (unsigned i = 0; i < n; i++) {
                b->buffers[i] = (struct iovec) { b->bytes + i * datagram_size, datagram_size };
                b->headers[i].msg_hdr = (struct msghdr) {
                        .msg_name = &b->senders[i],
                        .msg_namelen = sizeof(b->senders[i]),
                        .msg_iov = &b->buffers[i],
                        .msg_iovlen = 1,
                };
        }

        return b;
}

struct netlink_batch *netlink_batch_free(struct netlink_batch *b) {
        if (!b)
                return NULL;

        free(b->headers);
        free(b->buffers);
        free(b->senders);
        free(b->bytes);
        free(b);
        return NULL;
}

int netlink_batch_receive(struct netlink_batch *b, int fd) {
        for (;;) {
                int n = recvmmsg(fd, b->headers, b->n, MSG_DONTWAIT, NULL);
                if (n >= 0)
                        return n;
                if (errno == EAGAIN)
                        return 0;
                /* ENOBUFS is a message about an overrun, not a state; what did fit waits behind it. */
                if (errno != EINTR && errno != ENOBUFS)
                        return -errno;
        }
}

const void *netlink_batch_datagram(const struct netlink_batch *b, unsigned i, size_t *ret_size) {
        const struct mmsghdr *m = &b->headers[i];
        const struct sockaddr_nl *sender = &b->senders[i];

        /* Every address of netlink is a whole sockaddr_nl, so msg_namelen never shrinks and needs no reset. */
        if (m->msg_hdr.msg_flags & MSG_TRUNC || m->msg_hdr.msg_namelen != sizeof(*sender) || sender->nl_pid != 0)
                return NULL;

        *ret_size = m->msg_len;
        return b->buffers[i].iov_base;
}
