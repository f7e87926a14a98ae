/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <systemd/sd-bus.h>

/*
 * The JSON forms as D-Bus values: objects become a{sv}, arrays of objects aa{sv}, integers t, booleans b,
 * text s. A member that is null is left out. Return 0 or a negative errno; -EINVAL for what the forms
 * do not hold, such as fractions.
 */
int json_append_dict(sd_bus_message *m, struct json_object *object);
int json_append_dicts(sd_bus_message *m, struct json_object *array);
