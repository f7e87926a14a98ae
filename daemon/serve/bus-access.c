/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "serve/bus-server.h"

/* More than a bus lets a few clients keep open, and little memory. */
#define REQUESTS_MAX 256

struct access_request {
        struct bus_server *server;
        struct access_request *previous, *next;
        sd_bus_message *message;
        sd_bus_slot *slot;
        struct query query;
        access_answer_fn answer;
};

/* What the bus says about a sender. */
struct credentials {
        uint32_t uid;
        bool has_uid;
        bool in_group;
};

static void request_free(struct access_request *request) {
        struct bus_server *server = request->server;

        if (request->previous)
                request->previous->next = request->next;
        else
                server->requests = request->next;
        if (request->next)
                request->next->previous = request->previous;
        server->n_requests--;

        sd_bus_slot_unref(request->slot);
        sd_bus_message_unref(request->message);
        free(request);
}

static int read_groups(sd_bus_message *m, gid_t group, bool *ret) {
        uint32_t gid;
        bool found = false;
        int r;

        r = sd_bus_message_enter_container(m, 'v', "au");
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "u");
        if (r < 0)
                return r;

        while ((r = sd_bus_message_read(m, "u", &gid)) > 0)
                found = found || (group != (gid_t) -1 && gid == group);
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r < 0)
                return r;

        *ret = found;
        return 0;
}

/* The reply of GetConnectionCredentials(). */
static int read_credentials(sd_bus_message *m, gid_t group, struct credentials *ret) {
        struct credentials c = {};
        const char *name;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;

        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = sd_bus_message_read(m, "s", &name);
                if (r < 0)
                        return r;

                if (strcmp(name, "UnixUserID") == 0) {
                        r = sd_bus_message_read(m, "v", "u", &c.uid);
                        c.has_uid = r > 0;
                } else if (strcmp(name, "UnixGroupIDs") == 0)
                        r = read_groups(m, group, &c.in_group);
                else
                        r = sd_bus_message_skip(m, "v");
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }

        if (r >= 0)
                *ret = c;
        return r;
}

static int limit_query(struct query *query, const struct credentials *c, sd_bus_error *ret_error) {
        if (!c->has_uid)
                return sd_bus_error_set(ret_error, SD_BUS_ERROR_ACCESS_DENIED,
                                        "The bus does not say which user asks, and delays of tasks are not for everyone.");

        if (c->uid != 0 && c->uid != geteuid() && !c->in_group) {
                query->only_uid = true;
                query->uid = c->uid;
        }

        return 0;
}

static int on_credentials(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        struct access_request *request = userdata;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct credentials c = {};
        int r;

        if (sd_bus_message_is_method_error(reply, NULL))
                r = sd_bus_error_set(&error, SD_BUS_ERROR_ACCESS_DENIED,
                                     "The bus did not tell who asks, and delays of tasks are not for everyone.");
        else
                r = read_credentials(reply, request->server->group, &c);

        if (r >= 0)
                r = limit_query(&request->query, &c, &error);
        if (r >= 0)
                r = request->answer(request->server, request->message, &request->query, &error);
        if (r < 0)
                sd_bus_reply_method_errno(request->message, r, &error);

        request_free(request);
        return 1;
}

int bus_access_ask(
                struct bus_server *server,
                sd_bus_message *m,
                const struct query *query,
                access_answer_fn answer,
                sd_bus_error *ret_error) {

        const char *sender = sd_bus_message_get_sender(m);
        if (!sender)
                return sd_bus_error_set(ret_error, SD_BUS_ERROR_ACCESS_DENIED, "The message has no sender.");
        if (server->n_requests >= REQUESTS_MAX)
                return sd_bus_error_set(ret_error, SD_BUS_ERROR_LIMITS_EXCEEDED, "Too many requests at once. Try again.");

        struct access_request *request = calloc(1, sizeof(*request));
        if (!request)
                return -ENOMEM;

        request->server = server;
        request->message = sd_bus_message_ref(m);
        request->query = *query;
        request->answer = answer;
        request->next = server->requests;
        if (request->next)
                request->next->previous = request;
        server->requests = request;
        server->n_requests++;

        int r = sd_bus_call_method_async(
                        server->bus, &request->slot, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
                        "GetConnectionCredentials", on_credentials, request, "s", sender);
        if (r < 0) {
                request_free(request);
                return r;
        }

        return 1;
}

void bus_access_cancel(struct bus_server *server) {
        while (server->requests)
                request_free(server->requests);
}
