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
 * Returns 0; -EBADMSG if it is too short, of an impossible version, or of an unknown newer one whose
 * ac_pid is not tid where the known prefix has it.
 */
int taskstats_decode(
                const void *payload,
                size_t size,
                uint32_t tid,
                enum taskstats_layout layout,
                struct task_sample *ret);

/* The layout that puts this TID into ac_pid of a record of that very task; -ENODATA if neither does. */
int taskstats_prove_layout(const void *payload, size_t size, uint32_t tid);

/* Where a proven layout has the count and, right after it, the total of a kind: two 64-bit integers. */
uint32_t taskstats_offset_of_waits(enum delay_kind kind, enum taskstats_layout layout);

/*
 * Puts another name (at most TASK_COMM_SIZE - 1 bytes) in the place of ac_comm of a record. Returns the
 * size of the part of the record that is known, so that the rest, which may hold anything, can be cut off.
 */
size_t taskstats_replace_comm(void *payload, size_t size, enum taskstats_layout layout, const char *comm);

/* The statistics of one task inside a message. */
struct taskstats_record {
        uint32_t tid;
        const void *payload; /* of the TASKSTATS_TYPE_STATS attribute, any alignment */
        size_t size;
};

/*
 * Finds the AGGR_PID record in one message of the family, given from its generic netlink header on.
 * Returns 1; 0 if there are only other attributes (AGGR_TGID); -EBADMSG.
 */
int taskstats_find_record(const void *message, size_t size, struct taskstats_record *ret);

/*
 * Walks one datagram that holds netlink messages of the taskstats family (untrusted; any alignment)
 * and calls back for each AGGR_PID record; AGGR_TGID records are skipped, since sums over a group go
 * backwards. Padding attributes and attribute flags are tolerated.
 */
struct taskstats_walk {
        uint16_t family;               /* message type to accept */
        enum taskstats_layout layout;

        /* CLOCK_MONOTONIC span in which the records were made; with it samples get their span of start. 0: not known. */
        uint64_t made_min_nsec;
        uint64_t made_max_nsec;

        void (*record)(const struct task_sample *sample, uint32_t sequence, void *userdata);
        void (*error)(int error, uint32_t sequence, void *userdata); /* NLMSG_ERROR, error <= 0; may be NULL */
        void *userdata;
};

/* Returns the number of messages that could not be decoded (to be counted, never fatal). */
unsigned taskstats_walk(const struct taskstats_walk *walk, const void *datagram, size_t size);
