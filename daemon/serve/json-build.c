/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "core/text.h"
#include "serve/json-build.h"

/* Names are literals and each is added once: json-c then neither copies nor looks them up. */
#define ADD_FLAGS (JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_KEY_IS_CONSTANT)

static void json_add(struct json_object *object, const char *name, struct json_object *value, bool *failed) {
        if (!value || json_object_object_add_ex(object, name, value, ADD_FLAGS) < 0) {
                json_object_put(value);
                *failed = true;
        }
}

void json_add_null(struct json_object *object, const char *name, bool *failed) {
        if (json_object_object_add_ex(object, name, NULL, ADD_FLAGS) < 0)
                *failed = true;
}

void json_add_u64(struct json_object *object, const char *name, uint64_t value, bool *failed) {
        json_add(object, name, json_object_new_uint64(value), failed);
}

void json_add_u64_or_null(struct json_object *object, const char *name, uint64_t value, bool known, bool *failed) {
        if (known)
                json_add_u64(object, name, value, failed);
        else
                json_add_null(object, name, failed);
}

void json_add_bool(struct json_object *object, const char *name, bool value, bool *failed) {
        json_add(object, name, json_object_new_boolean(value), failed);
}

void json_add_string(struct json_object *object, const char *name, const char *value, bool *failed) {
        if (value)
                json_add(object, name, json_object_new_string(value), failed);
        else
                json_add_null(object, name, failed);
}

void json_add_raw(struct json_object *object, const char *name, const char *value, size_t size, bool *failed) {
        _cleanup_free_ char *display = text_display(value, size);

        if (display)
                json_add_string(object, name, display, failed);
        else
                *failed = true;
}

struct json_object *json_add_object(struct json_object *object, const char *name, bool *failed) {
        struct json_object *child = json_object_new_object();

        json_add(object, name, child, failed);
        return *failed ? NULL : child;
}

struct json_object *json_add_array(struct json_object *object, const char *name, bool *failed) {
        struct json_object *child = json_object_new_array();

        json_add(object, name, child, failed);
        return *failed ? NULL : child;
}

struct json_object *json_append_object(struct json_object *array, bool *failed) {
        struct json_object *child = json_object_new_object();

        if (!child || json_object_array_add(array, child) < 0) {
                json_object_put(child);
                *failed = true;
                return NULL;
        }

        return child;
}

int json_finish(struct json_object **object, bool failed, struct json_object **ret) {
        if (failed)
                return -ENOMEM;

        *ret = TAKE_PTR(*object);
        return 0;
}
