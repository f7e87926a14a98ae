/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>

#include "core/query.h"
#include "core/status.h"

/*
 * The JSON forms of design's contract: what HTTP sends and, converted, D-Bus. New objects are the
 * caller's (json_object_put()). Return 0, -ENOMEM; json_histogram() also -ENOENT, -ENOTUNIQ.
 */
int json_cgroups(const struct view *view, const struct query *query, struct json_object **ret);
int json_tasks(const struct view *view, const struct query *query, struct json_object **ret);
int json_histogram(
                const struct view *view,
                const char *cgroup,
                enum delay_kind kind,
                uint64_t window_nsec,
                bool recursive,
                struct json_object **ret);
int json_status(const struct view *view, struct json_object **ret);

/* {"checks":[…]}, of core/diagnosis.h. -EOPNOTSUPP: there is nobody to diagnose. */
int json_diagnosis(const struct view *view, struct json_object **ret);
