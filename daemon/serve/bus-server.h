/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include <systemd/sd-bus.h>

#include "core/query.h"
#include "serve/bus.h"

/* Inside of the D-Bus server: bus.c keeps the connection, bus-manager.c answers, bus-access.c asks who asks. */
struct access_request;

struct bus_server {
        const struct view *view;
        sd_event *event;
        sd_event_source *retry;
        sd_bus *bus; /* NULL while there is none */
        sd_bus_slot *name_slot;

        /* Requests that wait for the credentials of their senders. */
        struct access_request *requests;
        size_t n_requests;
        gid_t group; /* members see the tasks of all users; (gid_t) -1: there is no such group */
};

extern const sd_bus_vtable bus_manager_vtable[];

int bus_method_list_cgroups(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);
int bus_method_get_histogram(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);
int bus_method_list_tasks(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);
int bus_method_get_status(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);
int bus_method_diagnose(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);
int bus_property_version(
                sd_bus *bus,
                const char *path,
                const char *interface,
                const char *property,
                sd_bus_message *reply,
                void *userdata,
                sd_bus_error *ret_error);

/*
 * Asks the bus who sent the message and then calls answer() with the query limited to what the sender may
 * see. Returns 1 (the reply comes later) or a negative errno with ret_error set.
 */
typedef int (*access_answer_fn)(
                struct bus_server *server, sd_bus_message *m, const struct query *query, sd_bus_error *ret_error);

int bus_access_ask(
                struct bus_server *server,
                sd_bus_message *m,
                const struct query *query,
                access_answer_fn answer,
                sd_bus_error *ret_error);

/* Drops all requests that still wait, without a reply. */
void bus_access_cancel(struct bus_server *server);
