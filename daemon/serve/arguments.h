/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Values that HTTP and D-Bus take alike. NULL or "" is the default (0, false). Return 0, or -EINVAL
 * with a text for the user.
 */
int arguments_parse_window(const char *s, uint64_t *ret_nsec, const char **ret_error);
int arguments_parse_limit(const char *s, size_t *ret, const char **ret_error);
int arguments_parse_recursive(const char *s, bool *ret, const char **ret_error);

/* Whether a window can be asked for; 0 is the default window. */
int arguments_check_window(uint64_t window_nsec, const char **ret_error);
