/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include <delayd/kinds.h>

/* The keys of the JSON forms, in their order. D-Bus leaves out what is unknown; JSON says null. */

struct field {
        const char *name;
        const struct field *fields; /* of an object, or of the objects of a list */
        bool list;
};

extern const struct field cgroup_fields[];
extern const struct field cgroup_more_fields[];
extern const struct field subtree_fields[]; /* before the kinds */
extern const struct field no_fields[];
extern const struct field task_fields[];
extern const struct field task_more_fields[];
extern const struct field histogram_fields[];
extern const struct field status_fields[];
extern const struct field check_fields[];

#define FIELDS_WITH_KINDS_MAX (12 + DELAY_KIND_COUNT)

/* The fields of a row, one for each kind, and those behind them. */
void fields_with_kinds(
                const struct field *fields,
                delay_kind_set kinds,
                const struct field *more,
                struct field ret[static FIELDS_WITH_KINDS_MAX]);

/* The kinds that stand in an object. */
delay_kind_set fields_kinds_in(struct json_object *row);

/*
 * A new object with all fields in their order, null where the old one has none, then everything
 * else that the old one has, in its order. object may be NULL. Returns 0 or -ENOMEM.
 */
int fields_complete(struct json_object *object, const struct field *fields, struct json_object **ret);

/* Return false for what is absent, null or of another type. */
bool json_get_u64(struct json_object *object, const char *key, uint64_t *ret);
bool json_get_bool(struct json_object *object, const char *key, bool *ret);

/* Return NULL for the same. */
const char *json_get_text(struct json_object *object, const char *key);
struct json_object *json_get_object(struct json_object *object, const char *key);
struct json_object *json_get_list(struct json_object *object, const char *key);
