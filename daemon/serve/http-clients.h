/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <microhttpd.h>

/*
 * The connections of one HTTP server, the one that was silent longest first: it goes when there are too many, so
 * that whoever holds connections open shuts nobody else out.
 */
struct http_client;

struct http_clients {
        struct http_client *oldest, *newest;
};

/* For MHD_OPTION_NOTIFY_CONNECTION and MHD_OPTION_NOTIFY_COMPLETED, with struct http_clients as userdata. */
void http_clients_on_connection(
                void *userdata, struct MHD_Connection *connection, void **socket_context, enum MHD_ConnectionNotificationCode code);
void http_clients_on_completed(
                void *userdata, struct MHD_Connection *connection, void **request_context, enum MHD_RequestTerminationCode code);

/* The connection is being sent a reply from now on, until it is completed. */
void http_clients_begin_reply(struct http_clients *clients, struct MHD_Connection *connection, uint64_t now_usec);

/*
 * Shuts down the connection that was silent longest, be it between two requests or in the middle of one; one that
 * reads its reply only if it has done so for long. The library closes it when it runs next. Returns false if all
 * of them are reading.
 */
bool http_clients_drop_one(struct http_clients *clients, uint64_t now_usec);
