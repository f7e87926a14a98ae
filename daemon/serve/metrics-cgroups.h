/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "core/status.h"
#include "serve/buffer.h"

/* The families that have a series for each cgroup. Returns 0 or -ENOMEM; b may also have failed. */
int metrics_render_cgroups(const struct view *view, struct buffer *b);
