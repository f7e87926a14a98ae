/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>

#include "delayctl.h"

/* Prints a recursive list of cgroups as a tree. Returns 0 or -ENOMEM. */
int print_cgroup_tree(struct json_object *list, const struct options *options);
