/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <linux/netlink.h>
#include <linux/taskstats.h> /* commands and attribute types */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Makes taskstats records and messages the way the kernel does, from its declarations in order and not
 * from offsets, so that a wrong offset in the decoder cannot hide here as well.
 */

struct wire_pair {
        uint64_t count, total;
};

struct wire_extremes {
        uint64_t max, min;
};

struct wire_delay_b {
        struct wire_pair waits;
        struct wire_extremes extremes;
};

/* What v2 to v8 have between the delays and the end. */
struct wire_basic {
        uint64_t cpu_run_real_total, cpu_run_virtual_total;
        char comm[32];
        uint8_t sched, pad[3];
        uint32_t uid __attribute__((aligned(8)));
        uint32_t gid, pid, ppid, btime;
        uint64_t etime __attribute__((aligned(8)));
        uint64_t utime, stime, minflt, majflt, coremem, virtmem, hiwater_rss, hiwater_vm;
        uint64_t read_char, write_char, read_syscalls, write_syscalls;
        uint64_t read_bytes, write_bytes, cancelled_write_bytes, nvcsw, nivcsw;
        uint64_t utimescaled, stimescaled, cpu_scaled_run_real_total;
};

struct wire_head {
        uint16_t version;
        uint32_t exitcode;
        uint8_t flag, nice;
};

struct wire_identity {
        uint32_t tgid;
        uint64_t tgetime __attribute__((aligned(8)));
        uint64_t exe_dev, exe_inode;
};

/* v8 to v14, v16, v17: each version ends where the next one's first member begins. */
struct wire_a {
        struct wire_head head;
        struct wire_pair cpu __attribute__((aligned(8)));
        struct wire_pair blkio, swapin;
        struct wire_basic basic;
        struct wire_pair freepages;
        struct wire_pair thrashing;                 /* v9 */
        uint64_t btime64;                           /* v10 */
        struct wire_pair compact;                   /* v11 */
        struct wire_identity identity;              /* v12 */
        struct wire_pair wpcopy;                    /* v13 */
        struct wire_pair irq;                       /* v14 */
        struct wire_extremes extremes[8];           /* v16 */
        struct wire_extremes times[8];              /* v17: of the same size */
        uint8_t end;
};

/* v15. */
struct wire_b {
        struct wire_head head;
        struct wire_delay_b cpu __attribute__((aligned(8)));
        struct wire_delay_b blkio, swapin;
        struct wire_basic basic;
        struct wire_delay_b freepages, thrashing;
        uint64_t btime64;
        struct wire_delay_b compact;
        struct wire_identity identity;
        struct wire_delay_b wpcopy, irq;
};

/* The size of a record of this version. */
static inline size_t wire_size(uint16_t version) {
        switch (version) {
        case 8:
                return offsetof(struct wire_a, thrashing);
        case 9:
                return offsetof(struct wire_a, btime64);
        case 10:
                return offsetof(struct wire_a, compact);
        case 11:
                return offsetof(struct wire_a, identity);
        case 12:
                return offsetof(struct wire_a, wpcopy);
        case 13:
                return offsetof(struct wire_a, irq);
        case 14:
                return offsetof(struct wire_a, extremes);
        case 15:
                return sizeof(struct wire_b);
        case 16:
                return offsetof(struct wire_a, times);
        default:
                return offsetof(struct wire_a, end);
        }
}

struct message {
        uint8_t bytes[4096];
        size_t size;
};

static inline void message_append(struct message *m, const void *bytes, size_t size) {
        if (size > 0)
                memcpy(m->bytes + m->size, bytes, size);
        m->size += size;
        while (m->size % 4)
                m->bytes[m->size++] = 0;
}

static inline size_t attribute_begin(struct message *m, uint16_t type) {
        size_t at = m->size;

        message_append(m, &(struct nlattr) { .nla_type = type }, sizeof(struct nlattr));
        return at;
}

static inline void attribute_end(struct message *m, size_t at) {
        uint16_t length = (uint16_t) (m->size - at);

        memcpy(m->bytes + at, &length, sizeof(length));
}

static inline void attribute_put(struct message *m, uint16_t type, const void *data, size_t size) {
        size_t at = attribute_begin(m, type);

        message_append(m, data, size);
        attribute_end(m, at);
}

static inline void message_begin(struct message *m, uint16_t family, uint32_t sequence) {
        struct nlmsghdr header = { .nlmsg_type = family, .nlmsg_seq = sequence };
        uint8_t generic[4] = { TASKSTATS_CMD_NEW, 1 };

        m->size = 0;
        message_append(m, &header, sizeof(header));
        message_append(m, generic, sizeof(generic));
}

static inline void message_end(struct message *m) {
        uint32_t length = (uint32_t) m->size;

        memcpy(m->bytes, &length, sizeof(length));
}

/* aggregate: TASKSTATS_TYPE_AGGR_PID or TASKSTATS_TYPE_AGGR_TGID. */
static inline void message_put_record(struct message *m, uint16_t aggregate, uint32_t id, const void *stats, size_t size) {
        uint16_t type = aggregate == TASKSTATS_TYPE_AGGR_PID ? TASKSTATS_TYPE_PID : TASKSTATS_TYPE_TGID;
        size_t at = attribute_begin(m, aggregate);

        attribute_put(m, type, &id, sizeof(id));
        attribute_put(m, TASKSTATS_TYPE_STATS, stats, size);
        attribute_end(m, at);
}
