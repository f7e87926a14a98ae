/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/text.h"
#include "serve/arguments.h"

#define WINDOW_MAX_NSEC (3600 * NSEC_PER_SEC)

static const char window_error[] = "The window is a span up to one hour, such as 1m, 5m, 15m or 1h (a bare number is "
                                   "seconds).";

int arguments_check_window(uint64_t window_nsec, const char **ret_error) {
        if (window_nsec > WINDOW_MAX_NSEC) {
                *ret_error = window_error;
                return -EINVAL;
        }

        return 0;
}

int arguments_parse_window(const char *s, uint64_t *ret_nsec, const char **ret_error) {
        uint64_t nsec = 0;

        if (s && *s && (text_parse_span(s, &nsec) < 0 || nsec == 0)) {
                *ret_error = window_error;
                return -EINVAL;
        }

        int r = arguments_check_window(nsec, ret_error);
        if (r < 0)
                return r;

        *ret_nsec = nsec;
        return 0;
}

int arguments_parse_limit(const char *s, size_t *ret, const char **ret_error) {
        size_t limit = 0;

        for (const char *p = s; p && *p; p++)
                if (*p < '0' || *p > '9' || __builtin_mul_overflow(limit, 10, &limit) ||
                    __builtin_add_overflow(limit, (size_t) (*p - '0'), &limit)) {
                        *ret_error = "The limit is a number of rows, 0 for all.";
                        return -EINVAL;
                }

        *ret = limit;
        return 0;
}

int arguments_parse_recursive(const char *s, bool *ret, const char **ret_error) {
        static const char *const yes[] = { "1", "yes", "true", "on" };
        static const char *const no[] = { "", "0", "no", "false", "off" };

        for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
                if (strcmp(s ?: "", yes[i]) == 0) {
                        *ret = true;
                        return 0;
                }

        for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
                if (strcmp(s ?: "", no[i]) == 0) {
                        *ret = false;
                        return 0;
                }

        *ret_error = "recursive is yes or no.";
        return -EINVAL;
}
