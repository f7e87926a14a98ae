/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/accounting.h"

const char *attribution_source_name(enum attribution_source source) {
        static const char *const names[ATTRIBUTION_SOURCE_COUNT] = {
                [ATTRIBUTION_CACHE] = "cache",
                [ATTRIBUTION_PIDFD] = "pidfd",
                [ATTRIBUTION_PROCFS] = "procfs",
                [ATTRIBUTION_PARENT] = "parent",
                [ATTRIBUTION_NONE] = "none",
        };

        return names[source];
}

const char *reject_reason_name(enum reject_reason reason) {
        static const char *const names[REJECT_REASON_COUNT] = {
                [REJECT_IMPOSSIBLE] = "impossible",
                [REJECT_OVERFLOW] = "overflow",
                [REJECT_BACKWARDS] = "backwards",
                [REJECT_NO_BASELINE] = "no_baseline",
                [REJECT_MALFORMED] = "malformed",
        };

        return names[reason];
}
