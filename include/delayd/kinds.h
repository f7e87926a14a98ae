/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The kernel's classes of delay, by the kernel's own names and in the order in which
 * struct taskstats gained them (include/uapi/linux/taskstats.h).
 */
enum delay_kind {
        DELAY_CPU,        /* runnable, waiting for a CPU; counted even without delay accounting */
        DELAY_BLKIO,      /* asleep in io_schedule(): block I/O, and swap devices since Linux 5.17 */
        DELAY_SWAPIN,     /* swap-in; its meaning changed in Linux 5.17, see delayd-accounting(7) */
        DELAY_FREEPAGES,  /* direct reclaim */
        DELAY_THRASHING,  /* waiting for a page that was evicted a moment ago */
        DELAY_COMPACT,    /* direct compaction */
        DELAY_WPCOPY,     /* copying a write-protected page */
        DELAY_IRQ,        /* interrupts that ran on the task's time */
        DELAY_KIND_COUNT,
};

static inline const char *delay_kind_name(enum delay_kind kind) {
        static const char *const names[DELAY_KIND_COUNT] = {
                [DELAY_CPU] = "cpu",
                [DELAY_BLKIO] = "blkio",
                [DELAY_SWAPIN] = "swapin",
                [DELAY_FREEPAGES] = "freepages",
                [DELAY_THRASHING] = "thrashing",
                [DELAY_COMPACT] = "compact",
                [DELAY_WPCOPY] = "wpcopy",
                [DELAY_IRQ] = "irq",
        };

        return names[kind];
}

/* Returns the kind, or -EINVAL for a name that the kernel does not use. */
static inline int delay_kind_from_name(const char *name) {
        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (strcmp(delay_kind_name((enum delay_kind) kind), name) == 0)
                        return kind;

        return -EINVAL;
}

/* A set of kinds, one bit each. */
typedef uint32_t delay_kind_set;

#define DELAY_KIND_BIT(kind) (UINT32_C(1) << (kind))
#define DELAY_KINDS_DEFAULT (DELAY_KIND_BIT(DELAY_BLKIO) | DELAY_KIND_BIT(DELAY_SWAPIN))
#define DELAY_KINDS_ALL (DELAY_KIND_BIT(DELAY_KIND_COUNT) - 1)

static inline bool delay_kind_in(delay_kind_set kinds, enum delay_kind kind) {
        return kinds & DELAY_KIND_BIT(kind);
}
