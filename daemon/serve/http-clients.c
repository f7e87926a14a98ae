/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <sys/socket.h>

#include "serve/http-clients.h"

#define LONG_REPLY_USEC (UINT64_C(5) * 1000 * 1000)

struct http_client {
        struct http_client *before, *after;
        int fd; /* the library's */
        bool replying;
        bool dropped;
        uint64_t reply_usec; /* when the reply began */
};

static void unlink_client(struct http_clients *clients, struct http_client *client) {
        *(client->before ? &client->before->after : &clients->oldest) = client->after;
        *(client->after ? &client->after->before : &clients->newest) = client->before;
        client->before = client->after = NULL;
}

static void append(struct http_clients *clients, struct http_client *client) {
        client->before = clients->newest;
        *(clients->newest ? &clients->newest->after : &clients->oldest) = client;
        clients->newest = client;
}

static struct http_client *client_of(struct MHD_Connection *connection) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

        return info ? info->socket_context : NULL;
}

void http_clients_on_connection(
                void *userdata, struct MHD_Connection *connection, void **socket_context, enum MHD_ConnectionNotificationCode code) {

        struct http_clients *clients = userdata;
        struct http_client *client = *socket_context;

        if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
                if (client)
                        unlink_client(clients, client);
                free(client);
                *socket_context = NULL;
                return;
        }

        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        client = info ? calloc(1, sizeof(*client)) : NULL;
        if (!client)
                return; /* it just cannot be dropped before its time */

        client->fd = info->connect_fd;
        append(clients, client);
        *socket_context = client;
}

void http_clients_on_completed(
                void *userdata, struct MHD_Connection *connection, void **request_context, enum MHD_RequestTerminationCode code) {

        struct http_clients *clients = userdata;
        struct http_client *client = client_of(connection);

        if (!client)
                return;

        client->replying = false;
        unlink_client(clients, client);
        append(clients, client);
}

void http_clients_begin_reply(struct http_clients *clients, struct MHD_Connection *connection, uint64_t now_usec) {
        struct http_client *client = client_of(connection);

        if (!client)
                return;

        client->replying = true;
        client->reply_usec = now_usec;
        unlink_client(clients, client);
        append(clients, client);
}

bool http_clients_drop_one(struct http_clients *clients, uint64_t now_usec) {
        struct http_client *found = NULL;

        for (struct http_client *client = clients->oldest; client; client = client->after)
                if (!client->dropped && !client->replying) {
                        found = client;
                        break;
                } else if (!client->dropped && !found && now_usec - client->reply_usec >= LONG_REPLY_USEC)
                        found = client;

        if (!found)
                return false;

        found->dropped = true;
        (void) shutdown(found->fd, SHUT_RDWR);
        return true;
}
