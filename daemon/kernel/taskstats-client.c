/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h> /* commands and attribute types only, never its struct taskstats */
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/socket.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernel/monotonic.h"
#include "kernel/netlink-socket.h"
#include "kernel/taskstats-client.h"

#define BATCH_SIZE 64
#define REPLY_SIZE 4096
#define RECEIVE_BUFFER (BATCH_SIZE * REPLY_SIZE) /* a batch of replies takes 1280 bytes each on v16, 2304 on v17 */

struct request {
        struct nlmsghdr netlink;
        struct genlmsghdr generic;
        struct nlattr attribute;
        uint32_t tid;
};

_Static_assert(sizeof(struct request) == NLMSG_HDRLEN + GENL_HDRLEN + NLA_HDRLEN + sizeof(uint32_t), "padding");

struct taskstats_client {
        struct nl_sock *socket;
        int fd;
        uint16_t version;
        uint64_t malformed;
        struct netlink_batch *batch;
        struct request requests[BATCH_SIZE];
        struct taskstats_walk walk;
        uint32_t sequence;    /* of the first request of the batch */

        /* While a query runs: */
        const uint32_t *tids; /* of the batch */
        size_t n;
        size_t answered;
        taskstats_reply_fn reply;
        void *userdata;
};

/* Replies come in the order of the requests; one that was skipped will not come any more. */
static void report_missing(struct taskstats_client *client, size_t end) {
        for (; client->answered < end; client->answered++)
                client->reply(client->tids[client->answered], -ENODATA, NULL, client->userdata);
}

static void on_reply(struct taskstats_client *client, uint32_t sequence, int error, const struct task_sample *sample) {
        size_t i = sequence - client->sequence;

        if (i >= client->n || i < client->answered)
                return; /* left over from a query that was cut short */

        if (sample && sample->tid != client->tids[i]) {
                client->malformed++;
                return;
        }

        report_missing(client, i);
        client->answered++;
        client->reply(client->tids[i], error, sample, client->userdata);
}

static void on_record(const struct task_sample *sample, uint32_t sequence, void *userdata) {
        on_reply(userdata, sequence, 0, sample);
}

static void on_error(int error, uint32_t sequence, void *userdata) {
        if (error < 0) /* 0 acknowledges, which we do not ask for */
                on_reply(userdata, sequence, error, NULL);
}

/* Sends the requests for client->tids. */
static int send_batch(struct taskstats_client *client) {
        for (size_t i = 0; i < client->n; i++) {
                client->requests[i].netlink.nlmsg_seq = client->sequence + (uint32_t) i;
                client->requests[i].tid = client->tids[i];
        }

        /* The kernel goes through all messages of a datagram, and replies to each before it returns. */
        while (send(client->fd, client->requests, client->n * sizeof(client->requests[0]), 0) < 0)
                if (errno != EINTR)
                        return -errno;

        return 0;
}

static int query_batch(struct taskstats_client *client) {
        client->answered = 0;
        client->walk.made_min_nsec = monotonic_nsec();

        int r = send_batch(client);
        if (r < 0)
                return r;

        client->walk.made_max_nsec = monotonic_nsec();
        while (client->answered < client->n) {
                int n = netlink_batch_receive(client->batch, client->fd);
                if (n < 0)
                        return n;
                if (n == 0)
                        break;

                for (unsigned i = 0; i < (unsigned) n; i++) {
                        size_t size;
                        const void *datagram = netlink_batch_datagram(client->batch, i, &size);

                        client->malformed += datagram ? taskstats_walk(&client->walk, datagram, size) : 1;
                }
        }

        report_missing(client, client->n);
        return 0;
}

int taskstats_client_query(
                struct taskstats_client *client,
                const uint32_t *tids,
                size_t n,
                taskstats_reply_fn reply,
                void *userdata) {

        client->reply = reply;
        client->userdata = userdata;

        for (size_t done = 0; done < n; done += client->n) {
                client->sequence += BATCH_SIZE; /* so that no late reply of the last batch is taken for one of this */
                client->tids = tids + done;
                client->n = n - done < BATCH_SIZE ? n - done : BATCH_SIZE;

                int r = query_batch(client);
                if (r < 0)
                        return r;
        }

        return 0;
}

/* Learns version and layout from the kernel's answer about ourselves. */
static int prove_layout(struct taskstats_client *client) {
        uint32_t self = (uint32_t) gettid();
        struct taskstats_record record;
        struct nlmsghdr header;
        size_t size;

        /* cppcheck-suppress autoVariables ; read by send_batch() alone */
        client->tids = &self;
        client->n = 1;
        int r = send_batch(client);
        if (r < 0)
                return r;

        r = netlink_batch_receive(client->batch, client->fd);
        if (r <= 0)
                return r < 0 ? r : -ENODATA;

        const uint8_t *datagram = netlink_batch_datagram(client->batch, 0, &size);
        if (!datagram || size < sizeof(header))
                return -EBADMSG;

        memcpy(&header, datagram, sizeof(header));
        if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > size)
                return -EBADMSG;

        size = header.nlmsg_len - sizeof(header);
        datagram += sizeof(header);
        if (header.nlmsg_type == NLMSG_ERROR) {
                int32_t error = 0;

                if (size >= sizeof(error))
                        memcpy(&error, datagram, sizeof(error));
                return error < 0 ? error : -EBADMSG;
        }

        if (header.nlmsg_type != client->walk.family || taskstats_find_record(datagram, size, &record) <= 0)
                return -EBADMSG;

        r = taskstats_prove_layout(record.payload, record.size, self);
        if (r < 0)
                return -EBADMSG;

        client->walk.layout = (enum taskstats_layout) r;
        memcpy(&client->version, record.payload, sizeof(client->version));
        return 0;
}

static int connect_socket(struct taskstats_client *client) {
        client->socket = nl_socket_alloc();
        if (!client->socket)
                return -ENOMEM;

        int r = genl_connect(client->socket);
        if (r < 0)
                return netlink_errno(r);

        int family = genl_ctrl_resolve(client->socket, TASKSTATS_GENL_NAME);
        if (family < 0)
                return netlink_errno(family);

        client->walk.family = (uint16_t) family;
        client->fd = nl_socket_get_fd(client->socket);
        r = netlink_set_no_enobufs(client->fd);
        if (r < 0)
                return r;

        return netlink_set_receive_buffer(client->fd, RECEIVE_BUFFER);
}

int taskstats_client_open(struct taskstats_client **ret) {
        struct taskstats_client *client = calloc(1, sizeof(*client));
        if (!client)
                return -ENOMEM;

        client->walk = (struct taskstats_walk) {
                .layout = TASKSTATS_LAYOUT_BY_VERSION,
                .record = on_record,
                .error = on_error,
                .userdata = client,
        };
        client->batch = netlink_batch_new(BATCH_SIZE, REPLY_SIZE);

        int r = client->batch ? connect_socket(client) : -ENOMEM;
        if (r >= 0) {
                for (size_t i = 0; i < BATCH_SIZE; i++)
                        client->requests[i] = (struct request) {
                                .netlink = {
                                        .nlmsg_len = sizeof(struct request),
                                        .nlmsg_type = client->walk.family,
                                        .nlmsg_flags = NLM_F_REQUEST, /* an acknowledgement would be a second message */
                                },
                                .generic = { .cmd = TASKSTATS_CMD_GET, .version = TASKSTATS_GENL_VERSION },
                                .attribute = { .nla_len = NLA_HDRLEN + sizeof(uint32_t), .nla_type = TASKSTATS_CMD_ATTR_PID },
                        };
                r = prove_layout(client);
        }
        if (r < 0) {
                taskstats_client_close(client);
                return r;
        }

        *ret = client;
        return 0;
}

struct taskstats_client *taskstats_client_close(struct taskstats_client *client) {
        if (!client)
                return NULL;

        nl_socket_free(client->socket); /* closes */
        netlink_batch_free(client->batch);
        free(client);
        return NULL;
}

uint16_t taskstats_client_family(const struct taskstats_client *client) {
        return client->walk.family;
}

uint16_t taskstats_client_version(const struct taskstats_client *client) {
        return client->version;
}

enum taskstats_layout taskstats_client_layout(const struct taskstats_client *client) {
        return client->walk.layout;
}

uint64_t taskstats_client_malformed(const struct taskstats_client *client) {
        return client->malformed;
}
