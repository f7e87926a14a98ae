/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <sys/socket.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-id128.h>

#include <delayd/dbus.h>

#include "bus-client.h"
#include "fuzz.h"
#include "serve-fixture.h"
#include "serve/bus-server.h"
#include "serve/json-bus.h"

/*
 * What D-Bus brings and takes. The first byte says which: JSON to a message and back as delayctl reads
 * it, or a call of a method with arguments from the input.
 */

static sd_bus *client, *server;
static struct bus_server manager = { .group = (gid_t) -1 };
static struct fixture fixture;

static void process_both(void) {
        while (sd_bus_process(server, NULL) > 0 || sd_bus_process(client, NULL) > 0)
                ;
}

static void connect_both(void) {
        sd_id128_t id = SD_ID128_MAKE(de, 1a, 1d, 00, 00, 00, 40, 00, 80, 00, 00, 00, 00, 00, 00, 01);
        int fds[2];

        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        CHECK(sd_bus_new(&server) >= 0 && sd_bus_set_fd(server, fds[0], fds[0]) >= 0);
        CHECK(sd_bus_set_server(server, true, id) >= 0 && sd_bus_start(server) >= 0);
        CHECK(sd_bus_new(&client) >= 0 && sd_bus_set_fd(client, fds[1], fds[1]) >= 0 && sd_bus_start(client) >= 0);

        fixture_init(&fixture);
        manager.view = &fixture.view;
        manager.bus = server;
        CHECK(sd_bus_add_object_vtable(server, NULL, DELAYD_BUS_PATH, DELAYD_BUS_MANAGER_INTERFACE, bus_manager_vtable,
                                       &manager) >= 0);
        while (sd_bus_is_ready(client) == 0 || sd_bus_is_ready(server) == 0)
                process_both();
}

/* Whether both say the same, given what D-Bus has no form for: null members, negative numbers. */
static bool is_same(struct json_object *before, struct json_object *after) {
        if (json_object_get_type(before) != json_object_get_type(after))
                return false;

        switch (json_object_get_type(before)) {
        case json_type_object: {
                int n = 0;

                json_object_object_foreach(before, name, value) {
                        n += value != NULL;
                        if (value && !is_same(value, json_object_object_get(after, name)))
                                return false;
                }
                return json_object_object_length(after) == n;
        }
        case json_type_array:
                if (json_object_array_length(before) != json_object_array_length(after))
                        return false;
                for (size_t i = 0; i < json_object_array_length(before); i++)
                        if (!is_same(json_object_array_get_idx(before, i), json_object_array_get_idx(after, i)))
                                return false;
                return true;
        case json_type_int:
                return json_object_get_uint64(before) == json_object_get_uint64(after);
        default: /* text ends at a NUL */
                return strcmp(json_object_get_string(before), json_object_get_string(after)) == 0;
        }
}

static void convert(const uint8_t *data, size_t size) {
        _cleanup_message_ sd_bus_message *m = NULL;
        _cleanup_json_ struct json_object *after = NULL;
        char *text = fuzz_string(data, size);
        _cleanup_json_ struct json_object *before = json_tokener_parse(text);

        free(text);
        CHECK(sd_bus_message_new_signal(client, &m, "/", "a.b", "C") >= 0);
        if (json_append_dict(m, before) >= 0 && sd_bus_message_seal(m, 1, 0) >= 0) {
                CHECK(bus_read_json(m, &after) >= 0);
                CHECK(is_same(before, after));
        }
}

static int on_reply(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        bool *answered = userdata;

        while (sd_bus_message_at_end(reply, true) == 0) {
                _cleanup_json_ struct json_object *value = NULL;

                CHECK(bus_read_json(reply, &value) >= 0);
        }
        *answered = true;
        return 1;
}

/* Lines: texts for the arguments in turn, the numbers in decimal; the last one is the name of an option. */
static void call(bool histogram, bool tasks, char *text) {
        _cleanup_message_ sd_bus_message *m = NULL;
        sd_bus_slot *slot = NULL;
        bool answered = false;
        const char *fields[5];

        for (size_t i = 0; i < 5; i++)
                fields[i] = strsep(&text, "\n") ?: "";

        uint64_t window = strtoull(fields[0], NULL, 10), limit = strtoull(fields[1], NULL, 10);
        int r = sd_bus_message_new_method_call(client, &m, NULL, DELAYD_BUS_PATH, DELAYD_BUS_MANAGER_INTERFACE,
                                               histogram ? "GetHistogram" : tasks ? "ListTasks" : "ListCgroups");
        CHECK(r >= 0);
        r = histogram ? sd_bus_message_append(m, "sst", fields[2], fields[3], window)
                      : sd_bus_message_append(m, "tsst", window, fields[2], fields[3], limit);
        if (r >= 0)
                r = *fields[4] ? sd_bus_message_append(m, "a{sv}", 1, fields[4], limit % 2 ? "b" : "t", (uint64_t) 1)
                               : sd_bus_message_append(m, "a{sv}", 0);
        if (r < 0)
                return; /* not UTF-8, which the bus does not let through */

        CHECK(sd_bus_call_async(client, &slot, m, on_reply, &answered, 0) >= 0);
        for (unsigned i = 0; i < 100 && !answered; i++)
                process_both();
        CHECK(answered);
        sd_bus_slot_unref(slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (!client)
                connect_both();
        if (size == 0)
                return 0;

        if (data[0] % 4 == 0)
                convert(data + 1, size - 1);
        else {
                char *text = fuzz_string(data + 1, size - 1);

                call(data[0] % 4 == 1, data[0] % 4 == 2, text);
                free(text);
        }
        return 0;
}
