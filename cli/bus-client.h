/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <systemd/sd-bus.h>

#include "cleanup.h"

/* Everything that delayctl knows comes from here. */

#define BUS_CALL_TIMEOUT_USEC (10 * UINT64_C(1000000))

#define _cleanup_bus_ _cleanup_(sd_bus_close_unrefp)
#define _cleanup_message_ _cleanup_(sd_bus_message_unrefp)

static inline void cleanup_json(struct json_object **object) {
        json_object_put(*object);
}

#define _cleanup_json_ _cleanup_(cleanup_json)

/*
 * ret_error of these is a new text for people that names the remedy (free()), NULL only when memory
 * is short; it is set when the return value is negative.
 */
int bus_open(sd_bus **ret, char **ret_error);
int bus_new_call(sd_bus *bus, const char *method, sd_bus_message **ret);
int bus_call(sd_bus *bus, sd_bus_message *request, sd_bus_message **ret_reply, char **ret_error);

/* The same text for a reply that is an error, for those who call asynchronously. */
char *bus_explain(const sd_bus_error *error, int r);

/* Reads the next complete value: a{sv} becomes an object, other arrays and structures become arrays. */
int bus_read_json(sd_bus_message *message, struct json_object **ret);

/* bus_explain() for replies that cannot be read. */
char *bus_explain_reply(int r);
