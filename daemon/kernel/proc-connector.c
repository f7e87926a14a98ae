/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "kernel/monotonic.h"
#include "kernel/netlink-socket.h"
#include "kernel/proc-connector-internal.h"

#define BATCH_SIZE 64
#define DATAGRAM_SIZE 512 /* a message has 76 bytes */
#define BATCHES_PER_DRAIN 1024
#define RECEIVE_BUFFER (4U << 20)
#define ACK_TIMEOUT_NSEC (200 * NSEC_PER_MSEC)

#define OFFSET_EVENT (NLMSG_HDRLEN + sizeof(struct cn_msg))

/* A request since Linux 6.6; older kernels know its first half alone, and take no notice of another length. */
struct request {
        uint32_t operation;
        uint32_t event_mask;
};

#define REQUEST_SIZE_OLD sizeof(uint32_t)
#define EVENT_MASK_ALL UINT32_MAX

struct proc_connector {
        int fd;
        bool listening;
        struct netlink_batch *batch;
        struct netlink_drops drops;
        uint32_t sequence;
};

bool proc_event_parse(const void *datagram, size_t size, struct proc_connector_event *ret_event, uint32_t *ret_ack) {
        struct nlmsghdr header;
        struct cn_msg message;

        if (size < OFFSET_EVENT + sizeof(*ret_event))
                return false;

        /* The event begins at offset 36, so its 64-bit field is not aligned. */
        memcpy(&header, datagram, sizeof(header));
        memcpy(&message, (const uint8_t *) datagram + NLMSG_HDRLEN, sizeof(message));
        if (header.nlmsg_len < OFFSET_EVENT + sizeof(*ret_event) || header.nlmsg_len > size
            || message.id.idx != CN_IDX_PROC || message.id.val != CN_VAL_PROC
            || message.len < sizeof(*ret_event))
                return false;

        memcpy(ret_event, (const uint8_t *) datagram + OFFSET_EVENT, sizeof(*ret_event));
        *ret_ack = message.ack;
        return true;
}

static int send_request(struct proc_connector *c, enum proc_cn_mcast_op operation, uint32_t event_mask, size_t size) {
        struct request request = { operation, event_mask };
        uint8_t datagram[NLMSG_SPACE(sizeof(struct cn_msg) + sizeof(request))] = {};
        struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

        struct nlmsghdr header = {
                .nlmsg_len = (uint32_t) NLMSG_LENGTH(sizeof(struct cn_msg) + size),
                .nlmsg_type = NLMSG_DONE,
        };
        struct cn_msg message = {
                .id = { CN_IDX_PROC, CN_VAL_PROC },
                .seq = ++c->sequence,
                .ack = c->sequence,
                .len = (uint16_t) size,
        };

        memcpy(datagram, &header, sizeof(header));
        memcpy(datagram + NLMSG_HDRLEN, &message, sizeof(message));
        memcpy(datagram + OFFSET_EVENT, &request, size);

        while (sendto(c->fd, datagram, header.nlmsg_len, 0, (struct sockaddr *) &kernel, sizeof(kernel)) < 0)
                if (errno != EINTR)
                        return -errno;

        return 0;
}

/* The answer to the last request: 0, the error that it carries, or -ETIMEDOUT. Events are dropped meanwhile. */
static int wait_for_ack(struct proc_connector *c) {
        uint64_t now = monotonic_nsec(), end = now + ACK_TIMEOUT_NSEC;

        for (; now < end; now = monotonic_nsec()) {
                int n = netlink_wait(c->fd, end - now);
                if (n > 0)
                        n = netlink_batch_receive(c->batch, c->fd);
                if (n < 0)
                        return n;

                for (unsigned i = 0; i < (unsigned) n; i++) {
                        size_t size;
                        const void *datagram = netlink_batch_datagram(c->batch, i, &size);
                        struct proc_connector_event event;
                        uint32_t ack;

                        if (datagram && proc_event_parse(datagram, size, &event, &ack)
                            && event.what == EVENT_NONE && ack == c->sequence + 1)
                                return event.data[0] > 0 && event.data[0] < 4096 ? -(int) event.data[0] : 0;
                }
        }

        return -ETIMEDOUT;
}

/* Lets only forks, execs and acknowledgements through, as the event mask of later kernels does. */
static int attach_event_filter(int fd) {
        struct sock_filter program[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, OFFSET_EVENT), /* what; converts from network byte order */
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(EVENT_FORK), 3, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(EVENT_EXEC), 2, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(EVENT_NONE), 1, 0),
                BPF_STMT(BPF_RET | BPF_K, 0),
                BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        };

        return netlink_attach_filter(fd, program, sizeof(program) / sizeof(program[0]));
}

/* A kernel without CONFIG_PROC_EVENTS takes requests all the same; its list of users of the connector tells. */
static bool have_proc_events(void) {
        char line[128];

        _cleanup_fclose_ FILE *f = fopen("/proc/net/connector", "re");
        if (!f)
                return true; /* not to be told from here */

        while (fgets(line, sizeof(line), f))
                if (strncmp(line, "cn_proc", strlen("cn_proc")) == 0)
                        return true;

        return false;
}

/* Linux 6.6 and later: events are chosen in the kernel. Returns -ETIMEDOUT on older ones. */
static int subscribe_with_mask(struct proc_connector *c) {
        /* A mask hides acknowledgements too, so the first request is for everything. */
        int r = send_request(c, PROC_CN_MCAST_LISTEN, EVENT_MASK_ALL, sizeof(struct request));
        if (r < 0)
                return r;

        c->listening = true;
        r = wait_for_ack(c);
        if (r < 0)
                return r;

        return send_request(c, PROC_CN_MCAST_LISTEN, EVENT_FORK | EVENT_EXEC, sizeof(struct request));
}

static int subscribe_without_mask(struct proc_connector *c) {
        int r = attach_event_filter(c->fd);
        if (r < 0)
                return r;

        r = send_request(c, PROC_CN_MCAST_LISTEN, 0, REQUEST_SIZE_OLD);
        if (r < 0)
                return r;

        c->listening = true;
        return wait_for_ack(c);
}

static int connect_socket(struct proc_connector *c) {
        struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC };

        c->fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);
        if (c->fd < 0)
                return -errno;

        int r = netlink_set_receive_buffer(c->fd, RECEIVE_BUFFER);
        if (r < 0)
                return r;
        r = netlink_set_no_enobufs(c->fd);
        if (r < 0)
                return r;

        return bind(c->fd, (struct sockaddr *) &address, sizeof(address)) < 0 ? -errno : 0;
}

int proc_connector_open(struct proc_connector **ret) {
        struct proc_connector *c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;

        c->fd = -EBADF;
        c->sequence = (uint32_t) getpid() << 8; /* acknowledgements reach all listeners */
        c->batch = netlink_batch_new(BATCH_SIZE, DATAGRAM_SIZE);

        int r = c->batch ? connect_socket(c) : -ENOMEM;
        if (r >= 0) {
                r = subscribe_with_mask(c);
                if (r == -ETIMEDOUT)
                        r = subscribe_without_mask(c);
                if (r == -ETIMEDOUT && !have_proc_events())
                        r = -ENOENT;
        }
        if (r < 0) {
                proc_connector_close(c);
                return r;
        }

        *ret = c;
        return 0;
}

struct proc_connector *proc_connector_close(struct proc_connector *c) {
        if (!c)
                return NULL;

        /* Before Linux 6.6 the kernel would go on making events for a listener that is gone. */
        if (c->listening)
                (void) send_request(c, PROC_CN_MCAST_IGNORE, 0, REQUEST_SIZE_OLD);
        if (c->fd >= 0)
                close(c->fd);
        netlink_batch_free(c->batch);
        free(c);
        return NULL;
}

int proc_connector_fd(const struct proc_connector *c) {
        return c->fd;
}

int proc_event_dispatch(const struct proc_connector_event *event, const struct proc_connector_handler *handler) {
        struct fork_event fork;

        switch (event->what) {
        case EVENT_FORK:
                fork = (struct fork_event) {
                        .parent_tid = event->data[0],
                        .parent_tgid = event->data[1],
                        .tid = event->data[2],
                        .tgid = event->data[3],
                        .time_nsec = event->timestamp_nsec,
                };
                if (fork.tid != fork.tgid) /* a thread: the kernel names the parent of its process */
                        fork.parent_tid = fork.parent_tgid = fork.tgid;
                handler->fork(&fork, handler->userdata);
                return 1;

        case EVENT_EXEC:
                handler->exec(event->data[1], handler->userdata);
                return 1;

        default:
                return 0;
        }
}

int proc_connector_drain(struct proc_connector *c, const struct proc_connector_handler *handler) {
        int dispatched = 0;

        for (unsigned batches = 0; batches < BATCHES_PER_DRAIN; batches++) {
                int n = netlink_batch_receive(c->batch, c->fd);
                if (n < 0)
                        return n;

                for (unsigned i = 0; i < (unsigned) n; i++) {
                        size_t size;
                        const void *datagram = netlink_batch_datagram(c->batch, i, &size);
                        struct proc_connector_event event;
                        uint32_t ack;

                        if (datagram && proc_event_parse(datagram, size, &event, &ack))
                                dispatched += proc_event_dispatch(&event, handler);
                }

                if (n < BATCH_SIZE)
                        break;
        }

        return dispatched;
}

uint64_t proc_connector_lost(struct proc_connector *c) {
        (void) netlink_count_drops(c->fd, &c->drops);
        return c->drops.total;
}
