/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#define TASK_COMM_SIZE 32 /* TS_COMM_LEN, include/uapi/linux/taskstats.h; the kernel's own comm has 16 */

/* What one kind has accumulated over a task's life. */
struct delay_counters {
        uint64_t count;      /* waits that ended; the kernel keeps 32 bits and wraps */
        uint64_t total_nsec;
        uint64_t max_nsec;   /* longest and shortest single wait; 0 where the kernel does not say (< v15) */
        uint64_t min_nsec;
};

/*
 * One decoded taskstats record of one task (TID), free of the kernel's layout: what the kernel room
 * hands to core. Times of the record are the kernel's; start_* are CLOCK_MONOTONIC, because
 * ac_etime is computed from that clock (bacct_add_tsk() in kernel/tsacct.c).
 */
struct task_sample {
        uint32_t tid;
        uint32_t tgid;  /* 0 where the record does not say (< v12) */
        uint32_t ppid;
        uint32_t uid;

        uint64_t lifetime_nsec;  /* ac_etime */

        /* The task started somewhere in this span: when the record was made, less its lifetime. */
        uint64_t start_min_nsec;
        uint64_t start_max_nsec;

        uint64_t run_nsec;       /* cpu_run_virtual_total */
        uint64_t read_bytes;     /* multiples of 1024, as the kernel reports them */
        uint64_t write_bytes;
        uint64_t minor_faults;
        uint64_t major_faults;

        uint16_t version;        /* of the record: TASKSTATS_VERSION of the kernel that made it */
        bool has_extremes;       /* max_nsec and min_nsec are filled (v15 and later) */
        bool last_of_group;      /* AGROUP: this exit ended the process (v12 and later) */
        delay_kind_set kinds;    /* what the record's version can carry */

        char comm[TASK_COMM_SIZE]; /* any bytes; always ends with NUL */
        struct delay_counters delays[DELAY_KIND_COUNT];

        /*
         * The record as the kernel sent it, for observers of the accounting; NULL where it is not at hand. Only
         * valid while the sample is handed over: whoever keeps a sample for later copies it or sets it to NULL.
         */
        const void *raw;
        size_t raw_size;
};
