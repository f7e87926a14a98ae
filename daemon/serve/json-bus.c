/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "serve/json-bus.h"

static int append_container(
                sd_bus_message *m,
                const char *signature,
                int (*append)(sd_bus_message *m, struct json_object *value),
                struct json_object *value) {

        int r = sd_bus_message_open_container(m, 'v', signature);
        if (r >= 0)
                r = append(m, value);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r;
}

static int append_variant(sd_bus_message *m, struct json_object *value) {
        switch (json_object_get_type(value)) {
        case json_type_boolean:
                return sd_bus_message_append(m, "v", "b", json_object_get_boolean(value));
        case json_type_int:
                return sd_bus_message_append(m, "v", "t", json_object_get_uint64(value));
        case json_type_string:
                return sd_bus_message_append(m, "v", "s", json_object_get_string(value));
        case json_type_object:
                return append_container(m, "a{sv}", json_append_dict, value);
        case json_type_array:
                return append_container(m, "aa{sv}", json_append_dicts, value);
        default:
                return -EINVAL;
        }
}

static int append_member(sd_bus_message *m, const char *name, struct json_object *value) {
        int r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = append_variant(m, value);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r;
}

int json_append_dict(sd_bus_message *m, struct json_object *object) {
        if (!json_object_is_type(object, json_type_object))
                return -EINVAL;

        int r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r < 0)
                return r;

        struct json_object_iterator end = json_object_iter_end(object);
        for (struct json_object_iterator i = json_object_iter_begin(object); !json_object_iter_equal(&i, &end);
             json_object_iter_next(&i)) {
                struct json_object *value = json_object_iter_peek_value(&i);

                if (value) { /* null is "unknown", which D-Bus says by silence */
                        r = append_member(m, json_object_iter_peek_name(&i), value);
                        if (r < 0)
                                return r;
                }
        }

        return sd_bus_message_close_container(m);
}

int json_append_dicts(sd_bus_message *m, struct json_object *array) {
        if (!json_object_is_type(array, json_type_array))
                return -EINVAL;

        int r = sd_bus_message_open_container(m, 'a', "a{sv}");
        if (r < 0)
                return r;

        for (size_t i = 0; i < json_object_array_length(array); i++) {
                r = json_append_dict(m, json_object_array_get_idx(array, i));
                if (r < 0)
                        return r;
        }

        return sd_bus_message_close_container(m);
}
