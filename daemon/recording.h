/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/accounting.h"
#include "core/health.h"
#include "core/status.h"

/*
 * The format of recordings (docs/recording.md), apart from any file: events to bytes, bytes to blocks, and
 * back. What is read is untrusted. It belongs to none of the rooms: it holds what goes from kernel to core.
 *
 * A file is a header and blocks; a block is a header and events, compressed. All integers are little-endian.
 */
#define RECORDING_VERSION 1U
#define RECORDING_FILE_HEADER_SIZE 16U
#define RECORDING_BLOCK_HEADER_SIZE 40U
#define RECORDING_BLOCK_MAX (256U * 1024U) /* bytes of events in a block */
#define RECORDING_PAYLOAD_MAX 8192U        /* of a taskstats record */

/* What each event is on the wire; numbers are never used again for something else. */
enum recording_type {
        RECORDING_ACCOUNTING = 1, /* 1 to 14: an accounting_event without a sample, RECORDING_ACCOUNTING + its type */
        RECORDING_META = 64,      /* the first event, once */
        RECORDING_SETTINGS,
        RECORDING_FACTS,
        RECORDING_PROBLEM,
        RECORDING_PROBLEM_GONE,
        RECORDING_END,            /* the last event of a recording that is complete */
};

/* Where and by whom the recording was made. */
struct recording_meta {
        uint64_t started_nsec;           /* CLOCK_BOOTTIME: start of the daemon */
        uint64_t started_monotonic_nsec; /* the same in CLOCK_MONOTONIC: accounting_config.started_nsec */
        uint64_t realtime_nsec;          /* CLOCK_REALTIME when the recording began */
        delay_kind_set kinds;
        uint16_t taskstats_version;
        uint8_t layout;                  /* enum taskstats_layout, as proven on the kernel */
        bool anonymous;
        bool rough_clock;                /* accounting_config.rough_clock */
        const char *daemon_version;
        const char *kernel_release;
        const char *cgroup_hierarchy;
};

/* What the accounting was told to keep; written again when it changes. */
struct recording_settings {
        uint64_t max_cgroups;
        uint64_t max_exported;
        uint64_t retention_nsec;
        uint64_t poll_interval_nsec;
};

/* What status shows and no other event says; written again when it changes. */
struct recording_facts {
        uint64_t exits_received;
        uint64_t exits_lost;
        uint64_t malformed;
        uint64_t last_poll_nsec;
        uint8_t task_delayacct;
        uint8_t delayed_dequeue; /* enum tristate */
        uint8_t exit_filter;
        uint8_t unused[5];       /* so that two can be compared byte by byte */
};

struct recording_problem {
        enum problem_severity severity;
        const char *id, *message, *remedy;
};

/* A record of a task as the kernel sent it, and the span in which the task started (CLOCK_MONOTONIC). */
struct recording_sample {
        uint32_t tid;
        uint64_t start_min_nsec, start_max_nsec;
        const void *payload;
        size_t size;
};

struct recording_event {
        uint32_t type;                     /* enum recording_type, or one that is not known */
        uint64_t now_nsec;                 /* CLOCK_BOOTTIME */
        struct accounting_event accounting; /* of the types for it; its sample is NULL, and instead: */
        struct recording_sample sample;
        union {
                struct recording_meta meta;
                struct recording_settings settings;
                struct recording_facts facts;
                struct recording_problem problem;
        };
};

static inline bool recording_is_accounting(uint32_t type) {
        return type >= RECORDING_ACCOUNTING && type < RECORDING_ACCOUNTING + ACCOUNTING_EVENT_COUNT;
}

/* Writes the event. Returns its size, or 0 if it does not fit into the room. */
size_t recording_encode(const struct recording_event *event, uint8_t *p, size_t room);

/*
 * Reads one event. Texts and payloads point into p. Returns its size, 0 at the end (size 0), -EBADMSG. An
 * event of a type that is not known has nothing but its type and time.
 */
ssize_t recording_decode(const uint8_t *p, size_t size, struct recording_event *ret);

void recording_file_header(uint8_t ret[static RECORDING_FILE_HEADER_SIZE]);

/* Returns 0; -ENOMSG if this is no recording, -EBADMSG if it is damaged, -EPROTONOSUPPORT for another version (then *ret_version). */
int recording_check_file_header(const uint8_t header[static RECORDING_FILE_HEADER_SIZE], uint32_t *ret_version);

struct recording_block {
        uint32_t sequence;       /* 0, 1, 2... within the file */
        uint32_t stored_size;    /* bytes that follow the header */
        uint32_t events_size;    /* bytes when unpacked */
        uint64_t boottime_nsec;  /* both clocks at the same moment, before the block's first event */
        uint64_t monotonic_nsec;
};

/*
 * Packs events into a block, header and all, in a new buffer. sequence and times come from *block, whose
 * sizes are set. Returns 0 or -ENOMEM.
 */
int recording_pack(struct recording_block *block, const uint8_t *events, size_t size, uint8_t **ret, size_t *ret_size);

/* Reads a block's header, whose checksum is looked at by recording_unpack() with the rest. Returns 0 or -EBADMSG. */
int recording_block_header(const uint8_t header[static RECORDING_BLOCK_HEADER_SIZE], struct recording_block *ret);

/* Unpacks block->stored_size bytes into block->events_size bytes. Returns 0, -EBADMSG, -ENOMEM. */
int recording_unpack(
                const struct recording_block *block,
                const uint8_t header[static RECORDING_BLOCK_HEADER_SIZE],
                const uint8_t *stored,
                uint8_t *events);
