/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/sample.h"

/*
 * struct taskstats as the running kernel sends it, decoded by version and length with our own
 * offsets: the headers that we were built with say nothing about the kernel that we run on.
 *
 * Layout A: v8 to v14, v16 and later; each version only appends. Layout B: v15 alone (and 6.14-rc's
 * v14 records of 560 bytes), which had max and min inserted in the middle
 * (include/uapi/linux/taskstats.h; moved to the end by commit 0bf2d838de1f).
 */
#define TASKSTATS_SIZE_MIN 328 /* v8: the shortest record that is accepted */
#define TASKSTATS_VERSION_NEWEST 17

enum taskstats_layout {
        TASKSTATS_LAYOUT_A,
        TASKSTATS_LAYOUT_B,
        TASKSTATS_LAYOUT_BY_VERSION, /* not proven yet: decide by version and length */
};

/*
 * Decodes the payload of a TASKSTATS_TYPE_STATS attribute (any alignment). tid comes from the
 * message and goes into the sample. start_min_nsec and start_max_nsec are left 0: the reader knows
 * when the record was made.
 * Returns 0; -EBADMSG if it is too short or of an impossible version.
 */
int taskstats_decode(
                const void *payload,
                size_t size,
                uint32_t tid,
                enum taskstats_layout layout,
                struct task_sample *ret);

/* The layout that puts this TID into ac_pid of a record of that very task; -ENODATA if neither does. */
int taskstats_prove_layout(const void *payload, size_t size, uint32_t tid);

/*
 * Walks one datagram that holds netlink messages of the taskstats family (untrusted; any alignment)
 * and calls back for each AGGR_PID record; AGGR_TGID records are skipped, since sums over a group go
 * backwards. Padding attributes and attribute flags are tolerated.
 */
struct taskstats_walk {
        uint16_t family;               /* message type to accept */
        enum taskstats_layout layout;
        void (*record)(const struct task_sample *sample, uint32_t sequence, void *userdata);
        void (*error)(int error, uint32_t sequence, void *userdata); /* NLMSG_ERROR, error <= 0; may be NULL */
        void *userdata;
};

/* Returns the number of messages that could not be decoded (to be counted, never fatal). */
unsigned taskstats_walk(const struct taskstats_walk *walk, const void *datagram, size_t size);
