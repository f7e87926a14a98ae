/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include "bus-client.h"
#include "fields.h"

static const struct field delay_fields[] = {
        { "waits" },
        { "total_nsec" },
        { "mean_nsec" },
        { "p50_nsec" },
        { "p90_nsec" },
        { "p99_nsec" },
        { "max_nsec" },
        { "rejected_waits" },
        { "without_io_waits" },
        { "exact_waits" },
        {},
};

const struct field cgroup_fields[] = {
        { "cgroup" },
        { "unit" },
        { "container_id" },
        { "removed" },
        { "tasks" },
        { "unaccounted_tasks" },
        {},
};

const struct field cgroup_more_fields[] = {
        { "slice" },
        { "pod_uid" },
        {},
};

const struct field subtree_fields[] = {
        { "tasks" },
        { "unaccounted_tasks" },
        {},
};

const struct field no_fields[] = { {} };

const struct field task_fields[] = {
        { "tid" },
        { "tgid" },
        { "comm" },
        { "cgroup" },
        { "alive" },
        {},
};

const struct field task_more_fields[] = {
        { "uid" },
        { "attribution" },
        {},
};

static const struct field bucket_fields[] = {
        { "le_nsec" },
        { "waits" },
        {},
};

const struct field histogram_fields[] = {
        { "cgroup" },
        { "kind" },
        { "window_nsec" },
        { "waits" },
        { "total_nsec" },
        { "buckets", bucket_fields, true },
        { "mean_nsec" },
        { "p50_nsec" },
        { "p90_nsec" },
        { "p99_nsec" },
        { "max_nsec" },
        { "rejected_waits" },
        { "without_io_waits" },
        { "exact_waits" },
        {},
};

static const struct field problem_fields[] = {
        { "id" },
        { "message" },
        { "remedy" },
        { "severity" },
        {},
};

const struct field check_fields[] = {
        { "id" },
        { "title" },
        { "result" },
        { "message" },
        { "remedy" },
        {},
};

static const struct field kernel_fields[] = {
        { "release" },
        { "taskstats_version" },
        { "task_delayacct" },
        { "delayed_dequeue" },
        { "cgroup_hierarchy" },
        {},
};

static const struct field attributed_fields[] = {
        { "cache" },
        { "pidfd" },
        { "procfs" },
        { "parent" },
        { "none" },
        {},
};

static const struct field exits_fields[] = {
        { "received" },
        { "lost" },
        { "filter" },
        { "attributed", attributed_fields },
        {},
};

static const struct field samples_fields[] = {
        { "accepted" },
        { "rejected" },
        { "reasons", no_fields },
        {},
};

static const struct field polling_fields[] = {
        { "interval_nsec" },
        { "tasks" },
        { "last_duration_nsec" },
        {},
};

static const struct field tracked_fields[] = {
        { "tracked" },
        { "removed" },
        { "overflowed" },
        {},
};

const struct field status_fields[] = {
        { "version" },
        { "uptime_nsec" },
        { "health" },
        { "problems", problem_fields, true },
        { "kernel", kernel_fields },
        { "exits", exits_fields },
        { "samples", samples_fields },
        { "polling", polling_fields },
        { "cgroups", tracked_fields },
        { "cpu_nsec" },
        { "rss_bytes" },
        { "replay" },
        {},
};

void fields_with_kinds(
                const struct field *fields,
                delay_kind_set kinds,
                const struct field *more,
                struct field ret[static FIELDS_WITH_KINDS_MAX]) {

        size_t n = 0;

        for (; fields->name; fields++)
                ret[n++] = *fields;
        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(kinds, (enum delay_kind) kind))
                        ret[n++] = (struct field) {
                                .name = delay_kind_name((enum delay_kind) kind),
                                .fields = delay_fields,
                        };

        for (; more->name; more++)
                ret[n++] = *more;

        ret[n] = (struct field) {};
}

delay_kind_set fields_kinds_in(struct json_object *row) {
        delay_kind_set kinds = 0;

        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (json_get_object(row, delay_kind_name((enum delay_kind) kind)))
                        kinds |= DELAY_KIND_BIT(kind);

        return kinds;
}

static int complete_list(struct json_object *list, const struct field *fields, struct json_object **ret) {
        _cleanup_json_ struct json_object *complete = NULL;
        size_t n = list ? json_object_array_length(list) : 0;
        int r;

        complete = json_object_new_array();
        if (!complete)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++) {
                struct json_object *element;

                r = fields_complete(json_object_array_get_idx(list, i), fields, &element);
                if (r < 0)
                        return r;
                if (json_object_array_add(complete, element) < 0) {
                        json_object_put(element);
                        return -ENOMEM;
                }
        }

        *ret = TAKE_PTR(complete);
        return 0;
}

/* value: what the old object has under this name, or NULL. */
static int complete_field(struct json_object *value, const struct field *field, struct json_object **ret) {
        if (field->list && (!value || json_object_is_type(value, json_type_array)))
                return complete_list(value, field->fields, ret);
        if (!field->list && field->fields && (!value || json_object_is_type(value, json_type_object)))
                return fields_complete(value, field->fields, ret);

        *ret = json_object_get(value);
        return 0;
}

static int add_unknown(struct json_object *object, struct json_object *complete) {
        if (!object)
                return 0;

        json_object_object_foreach(object, key, value) {
                if (json_object_object_get_ex(complete, key, NULL))
                        continue;
                if (json_object_object_add(complete, key, json_object_get(value)) < 0) {
                        json_object_put(value);
                        return -ENOMEM;
                }
        }

        return 0;
}

int fields_complete(struct json_object *object, const struct field *fields, struct json_object **ret) {
        _cleanup_json_ struct json_object *complete = NULL;
        int r;

        if (object && !json_object_is_type(object, json_type_object))
                object = NULL;

        complete = json_object_new_object();
        if (!complete)
                return -ENOMEM;

        for (; fields->name; fields++) {
                struct json_object *value = NULL;

                if (object)
                        json_object_object_get_ex(object, fields->name, &value);
                r = complete_field(value, fields, &value);
                if (r < 0)
                        return r;
                if (json_object_object_add(complete, fields->name, value) < 0) {
                        json_object_put(value);
                        return -ENOMEM;
                }
        }

        r = add_unknown(object, complete);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(complete);
        return 0;
}

static struct json_object *get_typed(struct json_object *object, const char *key, enum json_type type) {
        struct json_object *value;

        if (!object || !json_object_is_type(object, json_type_object))
                return NULL;
        if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, type))
                return NULL;

        return value;
}

bool json_get_u64(struct json_object *object, const char *key, uint64_t *ret) {
        struct json_object *value = get_typed(object, key, json_type_int);

        if (!value)
                return false;

        *ret = json_object_get_uint64(value);
        return true;
}

bool json_get_bool(struct json_object *object, const char *key, bool *ret) {
        struct json_object *value = get_typed(object, key, json_type_boolean);

        if (!value)
                return false;

        *ret = json_object_get_boolean(value);
        return true;
}

const char *json_get_text(struct json_object *object, const char *key) {
        struct json_object *value = get_typed(object, key, json_type_string);

        return value ? json_object_get_string(value) : NULL;
}

struct json_object *json_get_object(struct json_object *object, const char *key) {
        return get_typed(object, key, json_type_object);
}

struct json_object *json_get_list(struct json_object *object, const char *key) {
        return get_typed(object, key, json_type_array);
}
