/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "config.h"

/* Each key of delayd.conf(5), apart from how files are read. */

/* Says what is wrong with a value and what would be right. */
struct config_error {
        char text[256];
};

/* An empty value stands for the default. Returns 0; -ENOENT: there is no such key; -EINVAL: *error says why; -ENOMEM. */
int config_set(struct config *c, const char *section, const char *name, const char *value, struct config_error *error);

/* Sets all keys. Returns 0 or -ENOMEM. */
int config_set_defaults(struct config *c);

/* Keys that are settled, but for a later version. */
bool config_is_later_key(const char *section, const char *name);
