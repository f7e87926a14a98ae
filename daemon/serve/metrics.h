/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>

#include "core/status.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Renders the whole scrape in Prometheus' text format 0.0.4 into a new buffer (free()). Returns 0 or -ENOMEM. */
int metrics_render(const struct view *view, char **ret, size_t *ret_size);
