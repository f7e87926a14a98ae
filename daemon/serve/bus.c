/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/dbus.h>
#include <delayd/limits.h>

#include "cleanup.h"
#include "log.h"
#include "serve/bus-server.h"

#define PROBLEM_ID "bus-unavailable"
#define RETRY_USEC (UINT64_C(5) * 1000 * 1000)
#define TIMER_ACCURACY_USEC (UINT64_C(100) * 1000)
#define TASK_GROUP "delayd"

static void disconnect(struct bus_server *server) {
        bus_access_cancel(server);
        server->name_slot = sd_bus_slot_unref(server->name_slot);
        server->bus = sd_bus_close_unref(server->bus);
}

static void raise_problem(struct bus_server *server, const char *what, int error, const char *remedy) {
        char message[256];

        snprintf(message, sizeof(message), "%s (%s): delayctl gets no answer.", what, strerror(abs(error)));
        if (health_raise(server->view->health, PROBLEM_ID, PROBLEM_DEGRADED, message, remedy) > 0)
                log_warning("%s %s", message, remedy);
}

/* The connection is taken down by the timer, because a callback of the bus may be running. */
static void try_again(struct bus_server *server) {
        int r = sd_event_source_set_time_relative(server->retry, RETRY_USEC);
        if (r >= 0)
                r = sd_event_source_set_enabled(server->retry, SD_EVENT_ONESHOT);
        if (r < 0)
                log_error_errno(r, "Cannot set the timer that would connect to the bus again");
}

static void unreachable(struct bus_server *server, int error) {
        raise_problem(server, "The system bus cannot be reached", error,
                      "Start it with \"systemctl start dbus\"; delayd tries again every few seconds, and HTTP is served "
                      "meanwhile.");
        try_again(server);
}

static int on_disconnected(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        unreachable(userdata, -ECONNRESET);
        return 0;
}

static int on_name(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        struct bus_server *server = userdata;
        uint32_t code = 0;

        int r = sd_bus_message_is_method_error(m, NULL) ? -sd_bus_message_get_errno(m) : sd_bus_message_read(m, "u", &code);

        if (r >= 0 && (code == 1 || code == 4)) { /* DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER, _ALREADY_OWNER */
                if (health_clear(server->view->health, PROBLEM_ID))
                        log_notice("The system bus is back.");
                return 0;
        }

        if (r >= 0)
                raise_problem(server, "Another process owns the bus name " DELAYD_BUS_NAME, -EEXIST,
                              "Stop the other delayd.");
        else if (r == -EACCES || r == -EPERM)
                raise_problem(server, "The system bus refuses the name " DELAYD_BUS_NAME, r,
                              "Install the policy " DELAYD_BUS_NAME ".conf in /usr/share/dbus-1/system.d, run "
                              "\"systemctl reload dbus\", and run delayd as root or as the user delayd.");
        else {
                unreachable(server, r);
                return 0;
        }

        try_again(server);
        return 0;
}

/* Sends all that is needed without waiting for any of it; the replies come as events. */
static int connect_bus(struct bus_server *server) {
        int r = sd_bus_open_system_with_description(&server->bus, "delayd");
        if (r >= 0)
                r = sd_bus_set_exit_on_disconnect(server->bus, false);
        if (r >= 0)
                r = sd_bus_match_signal_async(
                                server->bus, NULL, "org.freedesktop.DBus.Local", "/org/freedesktop/DBus/Local",
                                "org.freedesktop.DBus.Local", "Disconnected", on_disconnected, NULL, server);
        if (r >= 0)
                r = sd_bus_add_object_vtable(server->bus, NULL, DELAYD_BUS_PATH, DELAYD_BUS_MANAGER_INTERFACE,
                                             bus_manager_vtable, server);
        if (r >= 0)
                r = sd_bus_attach_event(server->bus, server->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_bus_request_name_async(server->bus, &server->name_slot, DELAYD_BUS_NAME, 0, on_name, server);
        return r;
}

/* Asked once, at the start, because name services may block. */
static gid_t find_group(void) {
        const struct group *group = getgrnam(TASK_GROUP);

        return group ? group->gr_gid : (gid_t) -1;
}

static void start(struct bus_server *server) {
        int r = connect_bus(server);
        if (r < 0) {
                disconnect(server);
                unreachable(server, r);
        }
}

static int on_retry(sd_event_source *source, uint64_t usec, void *userdata) {
        struct bus_server *server = userdata;

        disconnect(server);
        start(server);
        return 0;
}

int bus_server_new(sd_event *event, const struct view *view, struct bus_server **ret) {
        struct bus_server *server = calloc(1, sizeof(*server));
        if (!server)
                return -ENOMEM;

        server->view = view;
        server->event = sd_event_ref(event);
        server->group = find_group();

        int r = sd_event_add_time_relative(event, &server->retry, CLOCK_MONOTONIC, RETRY_USEC, TIMER_ACCURACY_USEC, on_retry,
                                           server);
        if (r >= 0)
                r = sd_event_source_set_enabled(server->retry, SD_EVENT_OFF);
        if (r < 0) {
                bus_server_free(server);
                return r;
        }

        start(server);
        *ret = server;
        return 0;
}

struct bus_server *bus_server_free(struct bus_server *server) {
        if (!server)
                return NULL;

        disconnect(server);
        sd_event_source_disable_unref(server->retry);
        sd_event_unref(server->event);
        health_clear(server->view->health, PROBLEM_ID);
        free(server);
        return NULL;
}
