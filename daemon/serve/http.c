/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <delayd/limits.h>
#include <microhttpd.h>

#include "cleanup.h"
#include "log.h"
#include "serve/http-body.h"
#include "serve/http-clients.h"
#include "serve/http-listen.h"
#include "serve/http-reply.h"
#include "serve/http.h"
#include "serve/metrics.h"

#define CONNECTIONS_MAX 64u
#define CONNECTION_TIMEOUT_SEC 30u
#define CONNECTION_MEMORY ((size_t) 32 * 1024)
#define BODIES_MAX ((size_t) 64 * 1024 * 1024)
#define GZIP_FROM_SIZE 1024
#define TIMER_ACCURACY_USEC 1000
#define ACCEPTS_MAX 10u /* at a time */
#define ACCEPT_PAUSE_USEC (UINT64_C(500) * 1000)

struct http_server {
        const struct view *view;
        struct MHD_Daemon *mhd;
        sd_event_source *accept; /* of the listening socket */
        sd_event_source *accept_timer;
        sd_event_source *io;
        sd_event_source *timer;
        uint16_t port;

        struct http_clients clients;
        struct http_budget budget;

        /* Scrapes that arrive together are sent the same text: nothing can have changed between them. */
        struct http_body *metrics; /* only within one MHD_run() */
};

/* The arguments of a request while they are collected. */
struct collector {
        struct http_request *request;
        bool bad; /* a NUL in one, or too many of them */
};

static enum MHD_Result collect_argument(
                void *userdata,
                enum MHD_ValueKind kind,
                const char *name,
                size_t name_size,
                const char *value,
                size_t value_size) {

        struct collector *collector = userdata;
        struct http_request *request = collector->request;

        if (!name || strlen(name) != name_size || (value && strlen(value) != value_size) ||
            request->n_arguments == HTTP_ARGUMENTS_MAX) {
                collector->bad = true;
                return MHD_NO;
        }

        request->arguments[request->n_arguments++] = (struct http_argument) { name, value ? value : "" };
        return MHD_YES;
}

static void free_reply(struct http_reply *reply) {
        free(reply->body);
}

static bool add_headers(struct MHD_Response *response, const struct http_reply *reply, bool compressible) {
        static const char policy[] = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

        return MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type) == MHD_YES &&
               MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store") == MHD_YES &&
               MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES &&
               (!compressible || MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Accept-Encoding") == MHD_YES) &&
               (!reply->page || MHD_add_response_header(response, "Content-Security-Policy", policy) == MHD_YES) &&
               (reply->status != MHD_HTTP_METHOD_NOT_ALLOWED ||
                MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES) &&
               (reply->status != MHD_HTTP_SERVICE_UNAVAILABLE ||
                MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1") == MHD_YES);
}

static enum MHD_Result send_body(
                struct MHD_Connection *connection, const struct http_reply *reply, struct http_body *body) {

        const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT_ENCODING);
        bool compressible = http_body_size(body) >= GZIP_FROM_SIZE;

        struct MHD_Response *response = http_body_response(body, compressible && http_accepts_gzip(accept));
        if (!response)
                return MHD_NO; /* closes the connection: with no memory there is nothing better */

        enum MHD_Result result = add_headers(response, reply, compressible) ?
                        MHD_queue_response(connection, reply->status, response) : MHD_NO;
        MHD_destroy_response(response);
        return result;
}

static int make_body(struct http_server *server, struct http_reply *reply, struct http_body **ret) {
        return http_body_new(&server->budget, TAKE_PTR(reply->body), reply->body_size, ret);
}

static int answer(
                struct http_server *server,
                const struct http_request *request,
                struct http_reply *reply,
                struct http_body **ret) {

        bool metrics = strcmp(request->path, "/metrics") == 0;

        if (metrics && server->metrics) {
                *reply = (struct http_reply) { .status = MHD_HTTP_OK, .content_type = METRICS_CONTENT_TYPE };
                *ret = http_body_ref(server->metrics);
                return 0;
        }

        int r = http_route(server->view, request, reply);
        if (r < 0)
                return r;

        r = make_body(server, reply, ret);
        if (r >= 0 && metrics && reply->status == MHD_HTTP_OK)
                server->metrics = http_body_ref(*ret);
        return r;
}

static enum MHD_Result reply_to(
                struct http_server *server, struct MHD_Connection *connection, const struct http_request *request, int r) {

        _cleanup_(free_reply) struct http_reply reply = {};
        struct http_body *body = NULL;

        if (r == -EINVAL)
                r = http_error(request->path, MHD_HTTP_BAD_REQUEST, "An argument holds a NUL byte, or there are too many.",
                               &reply);
        else if (r == -EOPNOTSUPP)
                r = http_error(request->path, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD are allowed.", &reply);

        r = r < 0 ? r : reply.body ? make_body(server, &reply, &body) : answer(server, request, &reply, &body);
        if (r == -ENOBUFS) {
                r = http_error(request->path, MHD_HTTP_SERVICE_UNAVAILABLE,
                               "Too many replies are still being read by others. Try again.", &reply);
                if (r >= 0)
                        r = make_body(server, &reply, &body);
        }
        if (r < 0)
                return MHD_NO;

        enum MHD_Result result = send_body(connection, &reply, body);
        http_body_unref(body);
        return result;
}

static uint64_t now_usec(struct http_server *server) {
        uint64_t usec = 0;

        (void) sd_event_now(sd_event_source_get_event(server->timer), CLOCK_MONOTONIC, &usec);
        return usec;
}

static enum MHD_Result handle_request(
                void *userdata,
                struct MHD_Connection *connection,
                const char *path,
                const char *method,
                const char *version,
                const char *upload_data,
                size_t *upload_data_size,
                void **connection_data) {

        static const char seen[] = "";
        struct http_server *server = userdata;
        struct http_request request = { .path = path };
        struct collector collector = { .request = &request };

        /* Refused at once: waiting for the body of a POST would mean to read it. */
        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
                return reply_to(server, connection, &request, -EOPNOTSUPP);

        /* An answer in the first call would end the connection after it. */
        if (!*connection_data) {
                *connection_data = (void *) seen;
                return MHD_YES;
        }
        if (*upload_data_size > 0) {
                *upload_data_size = 0; /* a body means nothing here */
                return MHD_YES;
        }

        http_clients_begin_reply(&server->clients, connection, now_usec(server));
        MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, collect_argument, &collector);
        return reply_to(server, connection, &request, collector.bad ? -EINVAL : 0);
}

__attribute__((format(printf, 2, 0)))
static void log_from_mhd(void *userdata, const char *format, va_list ap) {
        char text[256];

        /* Mostly about what clients do wrong, so never louder than this. */
        vsnprintf(text, sizeof(text), format, ap);
        text[strcspn(text, "\n")] = '\0';
        log_debug("HTTP: %s", text);
}

static bool is_full(struct http_server *server) {
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

        return info && info->num_connections >= CONNECTIONS_MAX;
}

static bool make_room(struct http_server *server) {
        return http_clients_drop_one(&server->clients, now_usec(server)) && MHD_run(server->mhd) == MHD_YES &&
               !is_full(server);
}

/* Further clients wait in the socket's queue, which would wake us for ever. */
static void pause_accepting(struct http_server *server) {
        (void) sd_event_source_set_time_relative(server->accept_timer, ACCEPT_PAUSE_USEC);
        (void) sd_event_source_set_enabled(server->accept_timer, SD_EVENT_ONESHOT);
        (void) sd_event_source_set_enabled(server->accept, SD_EVENT_OFF);
}

/*
 * The epoll descriptor is edge-triggered inside: what MHD has put off to its next run raises no event,
 * so that a timer must follow every run.
 */
static int run(struct http_server *server) {
        MHD_UNSIGNED_LONG_LONG timeout_ms;

        if (MHD_run(server->mhd) != MHD_YES)
                log_debug("HTTP: a round over the connections failed.");
        server->metrics = http_body_unref(server->metrics);

        if (MHD_get_timeout(server->mhd, &timeout_ms) != MHD_YES)
                return sd_event_source_set_enabled(server->timer, SD_EVENT_OFF);

        int r = sd_event_source_set_time(server->timer, now_usec(server) + timeout_ms * (NSEC_PER_MSEC / NSEC_PER_USEC));
        if (r >= 0)
                r = sd_event_source_set_enabled(server->timer, SD_EVENT_ONESHOT);
        return r;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        return run(userdata);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        return run(userdata);
}

/* Returns false when there is nobody (left) to take. */
static bool accept_one(struct http_server *server, int fd) {
        struct sockaddr_storage address = {};
        socklen_t size = sizeof(address);

        int client = accept4(fd, (struct sockaddr *) &address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client >= 0) {
                /* Owns the descriptor, and closes it if it cannot take it. */
                (void) MHD_add_connection(server->mhd, client, (const struct sockaddr *) &address, size);
                return true;
        }

        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_accepting(server);
        return errno == ECONNABORTED || errno == EINTR;
}

static int on_accept(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        struct http_server *server = userdata;

        if (is_full(server) && !make_room(server))
                pause_accepting(server);
        else
                for (unsigned n = 0; n < ACCEPTS_MAX && !is_full(server); n++)
                        if (!accept_one(server, fd))
                                break;

        return run(server);
}

static int on_accept_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        struct http_server *server = userdata;

        return sd_event_source_set_enabled(server->accept, SD_EVENT_ON);
}

/* We accept ourselves: the library stops for good once no descriptor was left. */
static int start_mhd(struct http_server *server) {
        server->mhd = MHD_start_daemon(
                        MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, handle_request, server,
                        MHD_OPTION_EXTERNAL_LOGGER, log_from_mhd, NULL,
                        MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
                        MHD_OPTION_NOTIFY_CONNECTION, http_clients_on_connection, &server->clients,
                        MHD_OPTION_NOTIFY_COMPLETED, http_clients_on_completed, &server->clients,
                        MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_TIMEOUT_SEC,
                        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY,
                        MHD_OPTION_STRICT_FOR_CLIENT, 1,
                        MHD_OPTION_END);

        return server->mhd ? 0 : -ENOMEM;
}

/* Takes fd over, also when it fails. */
static int attach_accept(struct http_server *server, sd_event *event, int fd) {
        int r = sd_event_add_io(event, &server->accept, fd, EPOLLIN, on_accept, server);
        if (r >= 0)
                r = sd_event_source_set_io_fd_own(server->accept, true);
        if (r < 0) {
                close(fd);
                return r;
        }

        r = sd_event_add_time(event, &server->accept_timer, CLOCK_MONOTONIC, 0, TIMER_ACCURACY_USEC, on_accept_timer, server);
        if (r >= 0)
                r = sd_event_source_set_enabled(server->accept_timer, SD_EVENT_OFF);
        return r;
}

static int attach(struct http_server *server, sd_event *event) {
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_EPOLL_FD);
        if (!info || info->epoll_fd < 0)
                return -EOPNOTSUPP;

        int r = sd_event_add_io(event, &server->io, info->epoll_fd, EPOLLIN, on_io, server);
        if (r >= 0)
                r = sd_event_add_time(event, &server->timer, CLOCK_MONOTONIC, 0, TIMER_ACCURACY_USEC, on_timer, server);
        return r;
}

/* Takes fd over, also when it fails. */
static int server_new(sd_event *event, int fd, uint16_t port, const struct view *view, struct http_server **ret) {

        struct http_server *server = calloc(1, sizeof(*server));
        if (!server) {
                close(fd);
                return -ENOMEM;
        }

        server->view = view;
        server->port = port;
        server->budget.limit = BODIES_MAX;

        int r = attach_accept(server, event, fd);
        if (r >= 0)
                r = start_mhd(server);
        if (r >= 0)
                r = attach(server, event);
        if (r < 0) {
                http_server_free(server);
                return r;
        }

        *ret = server;
        return 0;
}

static int listen_and_serve(
                sd_event *event, const char *address, bool quiet, const struct view *view, struct http_server **ret) {

        int r;
        uint16_t port;

        int fd = http_listen(address, quiet, &port);
        if (fd < 0)
                return fd;

        r = server_new(event, fd, port, view, ret);
        if (r < 0)
                return log_error_errno(r, "Cannot serve HTTP on %s", address);

        log_info("Serving HTTP on %s (port %u).", address, (unsigned) port);
        return 0;
}

int http_server_new(sd_event *event, const char *address, const struct view *view, struct http_server **ret) {
        return listen_and_serve(event, address, false, view, ret);
}

int http_server_try_new(sd_event *event, const char *address, const struct view *view, struct http_server **ret) {
        return listen_and_serve(event, address, true, view, ret);
}

int http_server_new_from_fd(sd_event *event, int fd, const struct view *view, struct http_server **ret) {
        int r;
        uint16_t port;

        r = http_adopt(fd, &port);
        if (r < 0) {
                close(fd);
                return log_error_errno(r, "Cannot serve HTTP on the socket that was passed: it is no listening stream socket");
        }

        r = server_new(event, fd, port, view, ret);
        if (r < 0)
                return log_error_errno(r, "Cannot serve HTTP on the socket that was passed");

        log_info("Serving HTTP on a socket that was passed (port %u).", (unsigned) port);
        return 0;
}

uint16_t http_server_port(const struct http_server *server) {
        return server->port;
}

struct http_server *http_server_free(struct http_server *server) {
        if (!server)
                return NULL;

        sd_event_source_disable_unref(server->accept); /* nobody comes in any more */
        sd_event_source_disable_unref(server->accept_timer);
        sd_event_source_disable_unref(server->io);
        sd_event_source_disable_unref(server->timer);
        if (server->mhd)
                MHD_stop_daemon(server->mhd); /* ends all connections, which give back their bodies */
        http_body_unref(server->metrics);
        free(server);
        return NULL;
}
