/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "collect/collect.h"
#include "config.h"
#include "core/health.h"
#include "core/status.h"
#include "listeners.h"

/* What a reload changes. */
struct reload {
        struct config *in_force;
        struct health *health;
        struct view *view;
        struct listeners *listeners;
        struct collector *collector; /* NULL: a recording is shown */
};

/*
 * Puts *config in the place of the one in force: all of it that takes no restart, or nothing. Takes *config over in any
 * case. Returns 0 or a negative errno, which is logged with its remedy.
 */
int reload_apply(const struct reload *r, struct config *config);

/* Says that nothing has changed, and why. */
void reload_failed(const struct reload *r, const char *fault);
