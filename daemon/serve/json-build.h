/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "cleanup.h"

/*
 * Building JSON objects. In json-c NULL is the JSON null, so memory that was short must be told
 * apart: it sticks in *failed, which json_finish() looks at once at the end. Names are literals, each
 * added once to an object.
 */
static inline void json_put(struct json_object **object) {
        json_object_put(*object);
}

#define _cleanup_json_ _cleanup_(json_put)

void json_add_null(struct json_object *object, const char *name, bool *failed);
void json_add_u64(struct json_object *object, const char *name, uint64_t value, bool *failed);
void json_add_u64_or_null(struct json_object *object, const char *name, uint64_t value, bool known, bool *failed);
void json_add_bool(struct json_object *object, const char *name, bool value, bool *failed);

/* Text that is fit for display already; NULL is unknown. */
void json_add_string(struct json_object *object, const char *name, const char *value, bool *failed);

/* Text of any bytes. */
void json_add_raw(struct json_object *object, const char *name, const char *value, size_t size, bool *failed);

/* Add a new, empty object or array and return it; NULL (and *failed) when memory is short. */
struct json_object *json_add_object(struct json_object *object, const char *name, bool *failed);
struct json_object *json_add_array(struct json_object *object, const char *name, bool *failed);
struct json_object *json_append_object(struct json_object *array, bool *failed);

/* Hands over *object, or returns -ENOMEM. */
int json_finish(struct json_object **object, bool failed, struct json_object **ret);
