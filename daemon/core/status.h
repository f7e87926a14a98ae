/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/accounting.h"
#include "core/health.h"

struct diagnosis;

enum tristate { TRISTATE_OFF, TRISTATE_ON, TRISTATE_UNKNOWN };

/* What status shows and the accounting does not know: filled by the wiring each time it is shown. */
struct status_facts {
        const char *replay;            /* the file that is replayed; NULL: the kernel is watched */
        uint64_t uptime_nsec;
        const char *kernel_release;
        uint16_t taskstats_version;
        bool task_delayacct;
        enum tristate delayed_dequeue; /* on: the kernel fault of 6.12 can occur */
        const char *cgroup_hierarchy;  /* "unified", "hybrid", "v1 (memory)"... */

        uint64_t exits_received;
        uint64_t exits_lost;
        bool exit_filter;

        uint64_t poll_interval_nsec;
        uint64_t last_poll_nsec;       /* duration of the last round */

        uint64_t cpu_nsec;             /* of the daemon itself, user and system */
        uint64_t rss_bytes;
        uint64_t virtual_bytes;
        uint64_t start_time_unix_nsec; /* for process_start_time_seconds */
        uint32_t open_fds;
        uint32_t max_fds;
        uint32_t threads;
};

/* What the serve room needs to show anything; the wiring owns it and outlives all servers. */
struct view {
        struct accounting *accounting;
        struct health *health;
        uint64_t (*now_nsec)(void *userdata); /* CLOCK_BOOTTIME, or the time of the recording in a replay */
        void (*fill_status)(struct status_facts *ret, void *userdata);
        void (*shown)(void *userdata); /* counters have been read, and are about to be shown; NULL: nobody wants to know */
        void (*diagnose)(struct diagnosis *ret, void *userdata); /* NULL: not to be had */
        void *userdata;
        bool ready;                           /* for /-/ready */
        const double *bucket_bounds_sec;      /* Metrics.Buckets=: bounds of kept buckets, ascending, without +Inf */
        const unsigned *bucket_indices;       /* the same as indices of histogram buckets */
        unsigned n_buckets;
};
