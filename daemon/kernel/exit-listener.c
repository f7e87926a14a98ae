/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/taskstats.h> /* commands and attribute types only, never its struct taskstats */
#include <netlink/genl/genl.h>
#include <netlink/msg.h>
#include <netlink/socket.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "kernel/cpu-list.h"
#include "kernel/exit-filter.h"
#include "kernel/exit-listener.h"
#include "kernel/monotonic.h"
#include "kernel/netlink-socket.h"

#define BATCH_SIZE 64
#define DATAGRAM_SIZE 4096 /* v17 with both records of a message has 1428 */
#define BATCHES_PER_DRAIN 16 /* of one socket, so that a storm on one CPU does not starve the others */
#define ACK_TIMEOUT_NSEC NSEC_PER_SEC

/*
 * A task can be preempted between filling its record and queueing it, so a record can be a little
 * older than the moment at which its socket was seen empty. No TID is used twice within this.
 */
#define QUEUEING_MARGIN_NSEC (100 * NSEC_PER_MSEC)

struct exit_socket {
        struct nl_sock *netlink;
        int fd;
        char *cpus;
        bool registered;
        bool adopted;
        bool one_cpu;
        bool ready;              /* for the drain that runs */

        uint64_t empty_nsec;     /* nothing was queued then */
        struct netlink_drops drops;

        uint32_t sequence;       /* of the last record */
        bool have_sequence;

        uint8_t *early;          /* datagrams that came before the acknowledgement, back to back */
        size_t early_size;
};

struct exit_listener {
        int epoll_fd;
        struct exit_socket *sockets;
        size_t n;
        struct netlink_batch *batch;
        struct taskstats_walk walk;

        struct sock_filter filter[EXIT_FILTER_MAX];
        size_t filter_size;
        bool filtering;
        bool has_more;           /* the last drain did not come to the end */

        bool keep;

        uint64_t received, malformed;
        uint64_t lost_before;    /* by the daemons before */
        int64_t gaps;            /* goes down again when a task changed its CPU between two steps of the kernel */

        /* While a drain runs: */
        struct exit_socket *socket;
        exit_record_fn record;
        void *userdata;
};

static void on_record(const struct task_sample *sample, uint32_t sequence, void *userdata) {
        struct exit_listener *l = userdata;
        struct exit_socket *s = l->socket;

        l->received++;
        if (s->one_cpu && !l->filtering) {
                if (s->have_sequence)
                        l->gaps += (int32_t) (sequence - s->sequence - 1);
                s->sequence = sequence;
                s->have_sequence = true;
        }

        l->record(sample, l->userdata);
}

static int read_possible_cpus(struct cpu_list *ret) {
        char buf[4096];

        _cleanup_close_ int fd = open("/sys/devices/system/cpu/possible", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;

        ssize_t n = read(fd, buf, sizeof(buf) - 1);
        if (n < 0)
                return -errno;

        buf[n] = '\0';
        return cpu_list_parse(buf, ret);
}

/* Sends a command about the socket's CPUs. Returns 0 and its sequence number. */
static int send_cpu_command(struct exit_socket *s, uint16_t family, int attribute, bool acknowledge, uint32_t *ret_sequence) {
        struct nl_msg *m = nlmsg_alloc();
        int r = -NLE_NOMEM;

        if (!m)
                return -ENOMEM;

        if (!acknowledge)
                nl_socket_disable_auto_ack(s->netlink);

        /* nla_put_string() sends the terminating NUL too, which the kernel insists on. */
        if (genlmsg_put(m, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, 0, TASKSTATS_CMD_GET, TASKSTATS_GENL_VERSION)
            && (r = nla_put_string(m, attribute, s->cpus)) >= 0
            && (r = nl_send_auto(s->netlink, m)) >= 0) {
                *ret_sequence = nlmsg_hdr(m)->nlmsg_seq;
                r = 0;
        }

        nlmsg_free(m);
        return netlink_errno(r);
}

static int keep_early(struct exit_socket *s, const void *datagram, size_t size) {
        size_t aligned = NLMSG_ALIGN(size);

        uint8_t *early = realloc(s->early, s->early_size + aligned);
        if (!early)
                return -ENOMEM;

        s->early = early;
        memset(early + s->early_size, 0, aligned);
        memcpy(early + s->early_size, datagram, size);
        s->early_size += aligned;
        return 0;
}

/* Returns 1 if the datagram is the acknowledgement with this number, or the error that it carries; else 0. */
static int parse_ack(const void *datagram, size_t size, uint32_t sequence) {
        struct nlmsghdr header;
        int32_t error;

        if (size < sizeof(header) + sizeof(error))
                return 0;

        memcpy(&header, datagram, sizeof(header));
        memcpy(&error, (const uint8_t *) datagram + sizeof(header), sizeof(error));
        if (header.nlmsg_type != NLMSG_ERROR || header.nlmsg_seq != sequence)
                return 0;

        return error < 0 ? error : 1;
}

/* Exit records may come first; they are kept for the first drain. */
static int wait_for_ack(struct exit_listener *l, struct exit_socket *s, uint32_t sequence) {
        int acknowledged = 0;

        while (acknowledged == 0) {
                int n = netlink_wait(s->fd, ACK_TIMEOUT_NSEC);
                if (n <= 0)
                        return n < 0 ? n : -ETIMEDOUT;

                n = netlink_batch_receive(l->batch, s->fd);
                if (n < 0)
                        return n;

                for (unsigned i = 0; i < (unsigned) n; i++) {
                        size_t size;
                        const void *datagram = netlink_batch_datagram(l->batch, i, &size);

                        if (!datagram) {
                                l->malformed++;
                                continue;
                        }

                        int r = acknowledged == 0 ? parse_ack(datagram, size, sequence) : 0;
                        if (r == 0)
                                r = keep_early(s, datagram, size);
                        else
                                acknowledged = r;
                        if (r < 0)
                                return r;
                }
        }

        return 0;
}

static bool is_generic_netlink(int fd) {
        int domain = 0, protocol = 0;
        socklen_t domain_size = sizeof(domain), protocol_size = sizeof(protocol);

        return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) == 0 && domain == AF_NETLINK
                && getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_size) == 0 && protocol == NETLINK_GENERIC;
}

/* Takes over the socket that the daemon before had in this place, registered as it is. False if there is none. */
static bool adopt_socket(
                struct exit_listener *l, struct exit_socket *s, size_t i, size_t n, const struct exit_listener_config *config) {

        const struct exit_feed *feed = config->feed;

        if (!config->sockets || config->sockets[i] < 0 || !is_generic_netlink(config->sockets[i]))
                return false;

        /* Another number of sockets: each was for other CPUs then. */
        if (feed && feed->n_sockets != n)
                return false;

        if (nl_socket_set_fd(s->netlink, NETLINK_GENERIC, config->sockets[i]) < 0)
                return false;

        config->sockets[i] = -EBADF;
        s->adopted = s->registered = true;
        l->keep = true; /* whoever passed it has it still, and passes it again */
        if (feed) {
                s->drops.last = feed->sockets[i].drops;
                s->empty_nsec = feed->sockets[i].empty_nsec;
        }
        return true;
}

static int open_socket(struct exit_listener *l, size_t i, size_t n, const struct exit_listener_config *config) {
        struct exit_socket *s = &l->sockets[i];
        uint32_t sequence = 0;

        s->netlink = nl_socket_alloc();
        if (!s->netlink)
                return -ENOMEM;

        int r = adopt_socket(l, s, i, n, config) ? 0 : netlink_errno(genl_connect(s->netlink));
        if (r < 0)
                return r;

        s->fd = nl_socket_get_fd(s->netlink);
        if ((r = netlink_set_receive_buffer(s->fd, config->receive_buffer)) < 0
            || (r = netlink_set_no_enobufs(s->fd)) < 0
            || (r = l->filtering ? netlink_attach_filter(s->fd, l->filter, l->filter_size) : netlink_detach_filter(s->fd)) < 0)
                return r;

        struct epoll_event event = { .events = EPOLLIN, .data.ptr = s };
        if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, s->fd, &event) < 0)
                return -errno;
        if (s->adopted)
                return 0;

        s->empty_nsec = monotonic_nsec();
        s->registered = true; /* even a request that is not acknowledged may have been granted */
        r = send_cpu_command(s, config->family, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, true, &sequence);
        if (r < 0)
                return r;

        return wait_for_ack(l, s, sequence);
}

/* Spreads the CPUs evenly over the sockets, neighbours together. */
static int open_sockets(struct exit_listener *l, const struct cpu_list *cpus, const struct exit_listener_config *config) {
        size_t n = cpus->n < EXIT_FEED_SOCKETS_MAX ? cpus->n : EXIT_FEED_SOCKETS_MAX;

        l->sockets = calloc(n, sizeof(*l->sockets));
        if (!l->sockets)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++) {
                struct exit_socket *s = &l->sockets[i];
                size_t first = i * cpus->n / n, end = (i + 1) * cpus->n / n;

                l->n = i + 1;
                s->one_cpu = end == first + 1;
                s->cpus = cpu_list_format(cpus, first, end);
                if (!s->cpus)
                        return -ENOMEM;

                int r = open_socket(l, i, n, config);
                if (r < 0)
                        return r;
        }

        return 0;
}

int exit_listener_open(const struct exit_listener_config *config, struct exit_listener **ret) {
        struct cpu_list cpus = {};

        struct exit_listener *l = calloc(1, sizeof(*l));
        if (!l)
                return -ENOMEM;

        l->walk = (struct taskstats_walk) {
                .family = config->family,
                .layout = config->layout,
                .record = on_record,
                .userdata = l,
        };
        l->filter_size = exit_filter_build(l->filter, config->family, config->layout, config->filter);
        l->filtering = l->filter_size > 0;
        if (config->feed) {
                l->received = config->feed->received;
                l->malformed = config->feed->malformed;
                l->lost_before = config->feed->lost;
        }

        int r = 0;
        l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (l->epoll_fd < 0)
                r = -errno;
        else if (!(l->batch = netlink_batch_new(BATCH_SIZE, DATAGRAM_SIZE)))
                r = -ENOMEM;
        else if ((r = read_possible_cpus(&cpus)) >= 0)
                r = open_sockets(l, &cpus, config);

        cpu_list_free(&cpus);
        if (r < 0) {
                exit_listener_close(l);
                return r;
        }

        *ret = l;
        return 0;
}

struct exit_listener *exit_listener_close(struct exit_listener *l) {
        if (!l)
                return NULL;

        for (size_t i = 0; i < l->n; i++) {
                struct exit_socket *s = &l->sockets[i];
                uint32_t sequence;

                if (s->registered && !l->keep)
                        (void) send_cpu_command(
                                        s, l->walk.family, TASKSTATS_CMD_ATTR_DEREGISTER_CPUMASK, false, &sequence);
                nl_socket_free(s->netlink); /* closes */
                free(s->cpus);
                free(s->early);
        }

        if (l->epoll_fd >= 0)
                close(l->epoll_fd);
        netlink_batch_free(l->batch);
        free(l->sockets);
        free(l);
        return NULL;
}

int exit_listener_fd(const struct exit_listener *l) {
        return l->epoll_fd;
}

/* The records that follow were made after the socket was last empty, and before now. */
static void set_made_span(struct exit_listener *l, const struct exit_socket *s, uint64_t now_nsec) {
        l->walk.made_min_nsec = s->empty_nsec > QUEUEING_MARGIN_NSEC ? s->empty_nsec - QUEUEING_MARGIN_NSEC : 0;
        l->walk.made_max_nsec = now_nsec;
}

static void deliver_early(struct exit_listener *l, struct exit_socket *s, uint64_t now_nsec) {
        if (!s->early)
                return;

        set_made_span(l, s, now_nsec);
        l->malformed += taskstats_walk(&l->walk, s->early, s->early_size);
        free(s->early);
        s->early = NULL;
        s->early_size = 0;
}

/* now_nsec: the last reading of the clock, which is renewed here. */
static int drain_socket(struct exit_listener *l, struct exit_socket *s, uint64_t *now_nsec) {
        for (unsigned batches = 0; batches < BATCHES_PER_DRAIN; batches++) {
                uint64_t before = *now_nsec;

                int n = netlink_batch_receive(l->batch, s->fd);
                if (n < 0)
                        return n;

                *now_nsec = monotonic_nsec();
                set_made_span(l, s, *now_nsec);
                for (unsigned i = 0; i < (unsigned) n; i++) {
                        size_t size;
                        const void *datagram = netlink_batch_datagram(l->batch, i, &size);

                        l->malformed += datagram ? taskstats_walk(&l->walk, datagram, size) : 1;
                }

                if (n < BATCH_SIZE) {
                        s->empty_nsec = before;
                        return 0;
                }
        }

        l->has_more = true;
        return 0;
}

int exit_listener_drain(struct exit_listener *l, exit_record_fn record, void *userdata) {
        struct epoll_event events[EXIT_FEED_SOCKETS_MAX];
        uint64_t received = l->received, start = monotonic_nsec(), now = start;
        int failed = 0;

        int n = epoll_wait(l->epoll_fd, events, EXIT_FEED_SOCKETS_MAX, 0);
        if (n < 0)
                return errno == EINTR ? 0 : -errno;
        for (int i = 0; i < n; i++)
                ((struct exit_socket *) events[i].data.ptr)->ready = true;

        l->record = record;
        l->userdata = userdata;
        l->has_more = false;
        for (struct exit_socket *s = l->sockets; s < l->sockets + l->n; s++) {
                l->socket = s;
                deliver_early(l, s, now);

                if (!s->ready) {
                        s->empty_nsec = start;
                        continue;
                }
                s->ready = false;

                int r = drain_socket(l, s, &now);
                if (r < 0)
                        failed = r; /* the other sockets still have their records */
        }

        if (failed < 0)
                return failed;

        received = l->received - received;
        return received > INT_MAX ? INT_MAX : (int) received;
}

bool exit_listener_has_more(const struct exit_listener *l) {
        return l->has_more;
}

void exit_listener_counts(struct exit_listener *l, struct exit_listener_counts *ret) {
        *ret = (struct exit_listener_counts) {
                .received = l->received,
                .malformed = l->malformed,
                .lost = l->lost_before,
                .gaps = l->gaps > 0 ? (uint64_t) l->gaps : 0,
        };

        for (size_t i = 0; i < l->n; i++) {
                (void) netlink_count_drops(l->sockets[i].fd, &l->sockets[i].drops);
                ret->lost += l->sockets[i].drops.total;
        }
}

void exit_listener_feed(struct exit_listener *l, struct exit_feed *ret) {
        struct exit_listener_counts counts;

        exit_listener_counts(l, &counts);
        *ret = (struct exit_feed) {
                .received = counts.received,
                .lost = counts.lost,
                .malformed = counts.malformed,
                .n_sockets = (unsigned) l->n,
        };

        for (size_t i = 0; i < l->n; i++) {
                ret->sockets[i].drops = l->sockets[i].drops.last;
                ret->sockets[i].empty_nsec = l->sockets[i].empty_nsec;
        }
}

int exit_listener_socket(const struct exit_listener *l, unsigned i, bool *ret_adopted) {
        if (i >= l->n)
                return -EBADF;

        *ret_adopted = l->sockets[i].adopted;
        return l->sockets[i].fd;
}

void exit_listener_keep(struct exit_listener *l) {
        l->keep = true;
}

bool exit_listener_filtering(const struct exit_listener *l) {
        return l->filtering;
}

unsigned exit_listener_sockets(const struct exit_listener *l) {
        return (unsigned) l->n;
}

size_t exit_listener_receive_buffer(const struct exit_listener *l) {
        return netlink_receive_buffer(l->sockets[0].fd);
}

static int set_filtering(struct exit_listener *l, bool on) {
        for (size_t i = 0; i < l->n; i++) {
                struct exit_socket *s = &l->sockets[i];

                int r = on ? netlink_attach_filter(s->fd, l->filter, l->filter_size) : netlink_detach_filter(s->fd);
                if (r < 0)
                        return r;

                s->have_sequence = false; /* gaps that the filter made are no losses */
        }

        l->filtering = on;
        return 0;
}

int exit_listener_set_filter(struct exit_listener *l, delay_kind_set filter) {
        struct sock_filter program[EXIT_FILTER_MAX];
        size_t size = exit_filter_build(program, l->walk.family, l->walk.layout, filter);

        if (size == 0)
                return l->filtering ? set_filtering(l, false) : 0;

        memcpy(l->filter, program, sizeof(program));
        l->filter_size = size;
        return set_filtering(l, true);
}

int exit_listener_set_receive_buffer(struct exit_listener *l, size_t bytes) {
        for (size_t i = 0; i < l->n; i++) {
                int r = netlink_set_receive_buffer(l->sockets[i].fd, bytes);
                if (r < 0)
                        return r;
        }

        return 0;
}

struct self_test {
        uint32_t child;
        bool seen;
        exit_record_fn record;
        void *userdata;
};

static void on_test_record(const struct task_sample *sample, void *userdata) {
        struct self_test *t = userdata;

        if (sample->tid == t->child)
                t->seen = true;
        else
                t->record(sample, t->userdata);
}

static int wait_for_child(struct exit_listener *l, struct self_test *t, uint64_t timeout_nsec) {
        uint64_t now = monotonic_nsec(), end = now + timeout_nsec;

        for (; now < end; now = monotonic_nsec()) {
                int r = netlink_wait(l->epoll_fd, end - now);
                if (r > 0)
                        r = exit_listener_drain(l, on_test_record, t);
                if (r < 0)
                        return r;
                if (t->seen)
                        return 0;
        }

        return -ETIMEDOUT;
}

int exit_listener_self_test(
                struct exit_listener *l, uint64_t timeout_nsec, exit_record_fn record, void *userdata) {

        struct self_test t = { .record = record, .userdata = userdata };
        bool filtered = l->filtering;
        int r;

        if (filtered && (r = set_filtering(l, false)) < 0)
                return r;

        pid_t child = fork();
        if (child == 0)
                _exit(EXIT_SUCCESS);
        if (child < 0)
                r = -errno;
        else {
                t.child = (uint32_t) child;
                r = wait_for_child(l, &t, timeout_nsec);
                while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
                        ;
        }

        if (filtered) {
                int q = set_filtering(l, true);

                if (r >= 0)
                        r = q;
        }

        return r;
}
