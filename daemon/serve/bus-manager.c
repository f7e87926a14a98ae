/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include <delayd/dbus.h>

#include "cleanup.h"
#include "serve/arguments.h"
#include "serve/bus-server.h"
#include "serve/json-build.h"
#include "serve/json-bus.h"
#include "serve/json-view.h"

static void unref_message(sd_bus_message **m) {
        sd_bus_message_unref(*m);
}

#define _cleanup_message_ _cleanup_(unref_message)

/* recursive is NULL for methods that have no options yet. Options that are not known are refused, not ignored. */
static int read_options(sd_bus_message *m, bool *recursive, sd_bus_error *ret_error) {
        const char *name;
        int r, value;

        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;

        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = sd_bus_message_read(m, "s", &name);
                if (r < 0)
                        return r;

                if (!recursive || strcmp(name, "recursive") != 0)
                        return sd_bus_error_setf(ret_error, SD_BUS_ERROR_INVALID_ARGS, "Unknown option \"%s\".%s", name,
                                                 recursive ? " The only one is \"recursive\"." : " There are none.");

                if (sd_bus_message_read(m, "v", "b", &value) < 0)
                        return sd_bus_error_set(ret_error, SD_BUS_ERROR_INVALID_ARGS,
                                                "The option \"recursive\" is a boolean.");
                *recursive = value;

                r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;

        return sd_bus_message_exit_container(m);
}

static int invalid_args(sd_bus_error *ret_error, const char *text) {
        return sd_bus_error_set(ret_error, SD_BUS_ERROR_INVALID_ARGS, text);
}

/* Reads what ListCgroups and ListTasks have in common. */
static int read_list_query(
                struct bus_server *server, sd_bus_message *m, bool with_recursive, struct query *ret, sd_bus_error *ret_error) {

        const char *kinds, *sort, *error;
        struct query query = {};
        uint64_t limit;

        int r = sd_bus_message_read(m, "tsst", &query.window_nsec, &kinds, &sort, &limit);
        if (r < 0)
                return r;

        if (query_parse_kinds(kinds, server->view->accounting->config.kinds, &query, &error) < 0 ||
            query_parse_sort(sort, &query, &error) < 0 ||
            arguments_check_window(query.window_nsec, &error) < 0)
                return invalid_args(ret_error, error);

        query.limit = limit > SIZE_MAX ? SIZE_MAX : (size_t) limit;

        r = read_options(m, with_recursive ? &query.recursive : NULL, ret_error);
        if (r < 0)
                return r;

        *ret = query;
        return 0;
}

/* Replies with the window and the rows of a list. */
static int reply_list(sd_bus_message *m, struct json_object *object, const char *rows) {
        _cleanup_message_ sd_bus_message *reply = NULL;

        int r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "t", json_object_get_uint64(json_object_object_get(object, "window_nsec")));
        if (r >= 0)
                r = json_append_dicts(reply, json_object_object_get(object, rows));
        if (r >= 0)
                r = sd_bus_message_send(reply);
        return r;
}

static int reply_dict(sd_bus_message *m, struct json_object *object) {
        _cleanup_message_ sd_bus_message *reply = NULL;

        int r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = json_append_dict(reply, object);
        if (r >= 0)
                r = sd_bus_message_send(reply);
        return r;
}

int bus_method_list_cgroups(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        _cleanup_json_ struct json_object *object = NULL;
        struct bus_server *server = userdata;
        struct query query;

        int r = read_list_query(server, m, true, &query, ret_error);
        if (r >= 0)
                r = json_cgroups(server->view, &query, &object);
        if (r < 0)
                return r;

        return reply_list(m, object, "cgroups");
}

int bus_method_get_histogram(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        _cleanup_json_ struct json_object *object = NULL;
        struct bus_server *server = userdata;
        const char *cgroup, *kind, *error;
        struct query query = {};

        int r = sd_bus_message_read(m, "sst", &cgroup, &kind, &query.window_nsec);
        if (r >= 0)
                r = read_options(m, &query.recursive, ret_error);
        if (r < 0)
                return r;

        if (query_parse_kinds(kind, server->view->accounting->config.kinds, &query, &error) < 0 ||
            arguments_check_window(query.window_nsec, &error) < 0)
                return invalid_args(ret_error, error);
        if (*kind && __builtin_popcount(query.kinds) != 1)
                return invalid_args(ret_error, "A histogram is of one kind of delay: give one name.");

        r = json_histogram(server->view, cgroup, query.sort_kind, query.window_nsec, query.recursive, &object);
        if (r == -ENOENT)
                return sd_bus_error_setf(ret_error, DELAYD_BUS_ERROR_NO_SUCH_CGROUP,
                                         "No cgroup \"%s\" is tracked. ListCgroups names those that are.", cgroup);
        if (r == -ENOTUNIQ)
                return sd_bus_error_setf(ret_error, DELAYD_BUS_ERROR_AMBIGUOUS_NAME,
                                         "\"%s\" fits several cgroups: give the path of one.", cgroup);
        if (r < 0)
                return r;

        return reply_dict(m, object);
}

static int answer_list_tasks(
                struct bus_server *server, sd_bus_message *m, const struct query *query, sd_bus_error *ret_error) {

        _cleanup_json_ struct json_object *object = NULL;

        int r = json_tasks(server->view, query, &object);
        if (r < 0)
                return r;

        return reply_list(m, object, "tasks");
}

int bus_method_list_tasks(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        struct bus_server *server = userdata;
        struct query query;

        int r = read_list_query(server, m, false, &query, ret_error);
        if (r < 0)
                return r;

        return bus_access_ask(server, m, &query, answer_list_tasks, ret_error);
}

int bus_method_get_status(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        _cleanup_json_ struct json_object *object = NULL;
        struct bus_server *server = userdata;

        int r = json_status(server->view, &object);
        if (r < 0)
                return r;

        return reply_dict(m, object);
}

int bus_method_diagnose(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        _cleanup_json_ struct json_object *object = NULL;
        _cleanup_message_ sd_bus_message *reply = NULL;
        struct bus_server *server = userdata;

        int r = json_diagnosis(server->view, &object);
        if (r == -EOPNOTSUPP)
                return sd_bus_error_set(ret_error, SD_BUS_ERROR_NOT_SUPPORTED,
                                        "A recording is shown: there is nothing to diagnose.");
        if (r >= 0)
                r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = json_append_dicts(reply, json_object_object_get(object, "checks"));
        if (r >= 0)
                r = sd_bus_message_send(reply);
        return r;
}

int bus_property_version(
                sd_bus *bus,
                const char *path,
                const char *interface,
                const char *property,
                sd_bus_message *reply,
                void *userdata,
                sd_bus_error *ret_error) {

        return sd_bus_message_append(reply, "s", DELAYD_VERSION);
}
