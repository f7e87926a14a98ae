/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h> /* commands and attribute types only, never its struct taskstats */
#include <stdbool.h>
#include <string.h>

#include <delayd/limits.h>

#include "kernel/taskstats-decode.h"

#define VERSION_OLDEST 8
#define VERSION_TGID 12            /* ac_tgid and AGROUP */
#define VERSION_LAYOUT_B 15
#define VERSION_EXTREMES 16        /* in layout A */
#define SIZE_A_V14 432
#define SIZE_WITH_EXTREMES 560     /* of v15 and v16 */
#define SIZE_NEWEST 688            /* of v17 */

#define OFFSET_FLAG 8              /* ac_flag, in both layouts */
#define OFFSET_PID_A 128           /* ac_pid */
#define OFFSET_PID_B 176
#define FLAG_AGROUP 0x20           /* include/uapi/linux/acct.h, Linux 5.19 */

/*
 * Where struct taskstats has what a sample needs. Each kind's count and total are adjacent in both
 * layouts, as are its max and min, and struct delay_counters keeps that order: one row is one pair.
 */
struct field {
        uint16_t sample;    /* offset in struct task_sample */
        uint16_t offset[2]; /* in layout A and B */
        uint8_t size;
        uint8_t first;      /* version of layout A that brought the field; layout B has them all */
        uint8_t carries;    /* kinds that are in the record if this row is */
};

#define SAMPLE(member) offsetof(struct task_sample, member)
#define WAITS(kind, a, b, first) { SAMPLE(delays[kind].count), { a, b }, 16, first, DELAY_KIND_BIT(kind) }
#define EXTREMES(kind, a, b) { SAMPLE(delays[kind].max_nsec), { a, b }, 16, VERSION_EXTREMES, 0 }

_Static_assert(offsetof(struct delay_counters, total_nsec) == offsetof(struct delay_counters, count) + 8, "pair");
_Static_assert(offsetof(struct delay_counters, min_nsec) == offsetof(struct delay_counters, max_nsec) + 8, "pair");
_Static_assert(DELAY_KIND_COUNT <= 8, "field.carries is too narrow");

enum { FIELD_COMM = 0 };

static const struct field fields[] = {
        [FIELD_COMM] = { SAMPLE(comm), { 80, 128 }, TASK_COMM_SIZE, 2, 0 },
        { SAMPLE(run_nsec),       {  72, 120 },  8,  1, 0 }, /* cpu_run_virtual_total */
        { SAMPLE(uid),            { 120, 168 },  4,  2, 0 },
        { SAMPLE(ppid),           { 132, 180 },  4,  2, 0 },
        { SAMPLE(lifetime_nsec),  { 144, 192 },  8,  2, 0 }, /* ac_etime, in microseconds */
        { SAMPLE(minor_faults),   { 168, 216 },  8,  2, 0 },
        { SAMPLE(major_faults),   { 176, 224 },  8,  2, 0 },
        { SAMPLE(read_bytes),     { 248, 296 },  8,  3, 0 },
        { SAMPLE(write_bytes),    { 256, 304 },  8,  3, 0 },
        { SAMPLE(tgid),           { 368, 464 },  4, VERSION_TGID, 0 },
        WAITS(DELAY_CPU,             16,  16,        1),
        WAITS(DELAY_BLKIO,           32,  48,        1),
        WAITS(DELAY_SWAPIN,          48,  80,        1),
        WAITS(DELAY_FREEPAGES,      312, 360,        7),
        WAITS(DELAY_THRASHING,      328, 392,        9),
        WAITS(DELAY_COMPACT,        352, 432,       11),
        WAITS(DELAY_WPCOPY,         400, 496,       13),
        WAITS(DELAY_IRQ,            416, 528,       14),
        EXTREMES(DELAY_CPU,         432,  32),
        EXTREMES(DELAY_BLKIO,       448,  64),
        EXTREMES(DELAY_SWAPIN,      464,  96),
        EXTREMES(DELAY_FREEPAGES,   480, 376),
        EXTREMES(DELAY_THRASHING,   496, 408),
        EXTREMES(DELAY_COMPACT,     512, 448),
        EXTREMES(DELAY_WPCOPY,      528, 512),
        EXTREMES(DELAY_IRQ,         544, 544),
};

/* With the table's rows as constants of straight code a record takes a third of the time. */
#ifdef __clang__
#define UNROLL _Pragma("unroll 32")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

_Static_assert(sizeof(fields) / sizeof(fields[0]) <= 32, "raise UNROLL");

static uint16_t load16(const uint8_t *p) {
        uint16_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static uint32_t load32(const uint8_t *p) {
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

/* memcpy() of a size that the compiler knows is one or two moves; this is the hot path. */
static inline void copy_field(uint8_t *to, const uint8_t *from, uint8_t size) {
        switch (size) {
        case 4:
                memcpy(to, from, 4);
                break;
        case 8:
                memcpy(to, from, 8);
                break;
        case 16:
                memcpy(to, from, 16);
                break;
        default:
                memcpy(to, from, size);
        }
}

static int choose_layout(enum taskstats_layout proven, uint16_t version, size_t size) {
        if (proven != TASKSTATS_LAYOUT_BY_VERSION)
                return (int) proven;
        if (version == VERSION_LAYOUT_B)
                return TASKSTATS_LAYOUT_B;
        if (version == 14 && size > SIZE_A_V14) /* 6.14-rc1 to rc3 forgot to raise the version */
                return size == SIZE_WITH_EXTREMES ? TASKSTATS_LAYOUT_B : -EBADMSG;
        return TASKSTATS_LAYOUT_A;
}

int taskstats_decode(
                const void *payload,
                size_t size,
                uint32_t tid,
                enum taskstats_layout layout,
                struct task_sample *ret) {

        const uint8_t *p = payload;

        if (size < TASKSTATS_SIZE_MIN)
                return -EBADMSG;

        uint16_t version = load16(p);
        if (version < VERSION_OLDEST)
                return -EBADMSG;

        int chosen = choose_layout(layout, version, size);
        if (chosen < 0)
                return chosen;

        /* Of a version from the future only the prefix is known, and only if it still is where it was. */
        if (version > TASKSTATS_VERSION_NEWEST && load32(p + (chosen == TASKSTATS_LAYOUT_B ? OFFSET_PID_B : OFFSET_PID_A)) != tid)
                return -EBADMSG;

        bool b = chosen == TASKSTATS_LAYOUT_B;
        unsigned gate = b ? UINT8_MAX : version;

        memset(ret, 0, sizeof(*ret));
        UNROLL
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                const struct field *f = &fields[i];

                if (f->first > gate || (size_t) f->offset[b] + f->size > size)
                        continue;

                copy_field((uint8_t *) ret + f->sample, p + f->offset[b], f->size);
                ret->kinds |= f->carries;
        }

        ret->tid = tid;
        ret->version = version;
        ret->has_extremes = gate >= VERSION_EXTREMES && size >= SIZE_WITH_EXTREMES;
        ret->last_of_group = gate >= VERSION_TGID && (p[OFFSET_FLAG] & FLAG_AGROUP);
        ret->comm[TASK_COMM_SIZE - 1] = '\0';
        if (__builtin_mul_overflow(ret->lifetime_nsec, NSEC_PER_USEC, &ret->lifetime_nsec))
                ret->lifetime_nsec = UINT64_MAX;

        return 0;
}

int taskstats_prove_layout(const void *payload, size_t size, uint32_t tid) {
        const uint8_t *p = payload;

        if (size < TASKSTATS_SIZE_MIN)
                return -ENODATA;

        bool a = load32(p + OFFSET_PID_A) == tid, b = load32(p + OFFSET_PID_B) == tid;
        if (a && b) { /* in layout A, B's place holds ac_majflt, which can happen to be equal */
                int chosen = choose_layout(TASKSTATS_LAYOUT_BY_VERSION, load16(p), size);

                return chosen < 0 ? -ENODATA : chosen;
        }

        return a ? TASKSTATS_LAYOUT_A : b ? TASKSTATS_LAYOUT_B : -ENODATA;
}

uint32_t taskstats_offset_of_waits(enum delay_kind kind, enum taskstats_layout layout) {
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
                if (fields[i].carries == DELAY_KIND_BIT(kind))
                        return fields[i].offset[layout == TASKSTATS_LAYOUT_B];

        return 0;
}

size_t taskstats_replace_comm(void *payload, size_t size, enum taskstats_layout layout, const char *comm) {
        uint8_t *p = payload;

        if (size < TASKSTATS_SIZE_MIN)
                return 0;

        int chosen = choose_layout(layout, load16(p), size);
        if (chosen < 0)
                return 0;

        memset(p + fields[FIELD_COMM].offset[chosen], 0, TASK_COMM_SIZE);
        memcpy(p + fields[FIELD_COMM].offset[chosen], comm, strnlen(comm, TASK_COMM_SIZE - 1));
        return size < SIZE_NEWEST ? size : SIZE_NEWEST;
}

/* What is left of a message, attribute by attribute. */
struct attributes {
        const uint8_t *p;
        size_t left;
};

struct attribute {
        uint16_t type;
        const uint8_t *data;
        size_t size;
};

/* Returns 1 and the next attribute, 0 at the end, -EBADMSG if it does not fit. */
static int next_attribute(struct attributes *from, struct attribute *ret) {
        if (from->left == 0)
                return 0;
        if (from->left < NLA_HDRLEN)
                return -EBADMSG;

        size_t length = load16(from->p);
        if (length < NLA_HDRLEN || length > from->left)
                return -EBADMSG;

        *ret = (struct attribute) {
                .type = load16(from->p + 2) & NLA_TYPE_MASK,
                .data = from->p + NLA_HDRLEN,
                .size = length - NLA_HDRLEN,
        };

        size_t step = NLA_ALIGN(length);
        if (step > from->left) /* the last one may lack its padding */
                step = from->left;
        from->p += step;
        from->left -= step;
        return 1;
}

/* The statistics inside an AGGR_PID attribute. */
static int parse_aggregate(const struct attribute *aggregate, struct taskstats_record *ret) {
        struct attributes rest = { aggregate->data, aggregate->size };
        struct attribute a;
        bool have_tid = false, have_stats = false;
        int r;

        while ((r = next_attribute(&rest, &a)) > 0)
                switch (a.type) {
                case TASKSTATS_TYPE_PID:
                        if (a.size < sizeof(uint32_t))
                                return -EBADMSG;
                        ret->tid = load32(a.data);
                        have_tid = true;
                        break;
                case TASKSTATS_TYPE_STATS:
                        ret->payload = a.data;
                        ret->size = a.size;
                        have_stats = true;
                        break;
                }
        if (r < 0)
                return r;

        return have_tid && have_stats ? 1 : -EBADMSG;
}

int taskstats_find_record(const void *message, size_t size, struct taskstats_record *ret) {
        const uint8_t *p = message;
        struct attribute a, aggregate = {};
        bool others = false;
        int r;

        if (size < GENL_HDRLEN || p[0] != TASKSTATS_CMD_NEW)
                return -EBADMSG;

        /* To the end before anything is believed: a message is a record or malformed, never both. */
        struct attributes rest = { p + GENL_HDRLEN, size - GENL_HDRLEN };
        while ((r = next_attribute(&rest, &a)) > 0) {
                if (a.type != TASKSTATS_TYPE_AGGR_PID)
                        others = true;
                else if (aggregate.data)
                        return -EBADMSG;
                else
                        aggregate = a;
        }
        if (r < 0)
                return r;
        if (!aggregate.data)
                return others ? 0 : -EBADMSG;

        return parse_aggregate(&aggregate, ret);
}

static uint64_t subtract_saturating(uint64_t a, uint64_t b) {
        return a > b ? a - b : 0;
}

/* Returns 0 or a negative errno if the message cannot be decoded. */
static int walk_record(const struct taskstats_walk *walk, uint32_t sequence, const uint8_t *message, size_t size) {
        struct taskstats_record record;
        struct task_sample sample;

        int r = taskstats_find_record(message, size, &record);
        if (r <= 0)
                return r;

        r = taskstats_decode(record.payload, record.size, record.tid, walk->layout, &sample);
        if (r < 0)
                return r;

        if (walk->made_max_nsec > 0) {
                /* ac_etime is cut to whole microseconds, so the task may have started up to one earlier. */
                sample.start_min_nsec = subtract_saturating(
                                subtract_saturating(walk->made_min_nsec, sample.lifetime_nsec), NSEC_PER_USEC);
                sample.start_max_nsec = subtract_saturating(walk->made_max_nsec, sample.lifetime_nsec);
        }
        sample.raw = record.payload;
        sample.raw_size = record.size;

        walk->record(&sample, sequence, walk->userdata);
        return 0;
}

static int walk_error(const struct taskstats_walk *walk, uint32_t sequence, const uint8_t *message, size_t size) {
        if (size < sizeof(struct nlmsgerr))
                return -EBADMSG;

        int32_t error = (int32_t) load32(message);
        if (error > 0 || error < -4095) /* MAX_ERRNO */
                return -EBADMSG;

        if (walk->error)
                walk->error(error, sequence, walk->userdata);
        return 0;
}

unsigned taskstats_walk(const struct taskstats_walk *walk, const void *datagram, size_t size) {
        const uint8_t *p = datagram;
        unsigned malformed = 0;

        while (size > 0) {
                if (size < NLMSG_HDRLEN)
                        return malformed + 1;

                size_t length = load32(p);
                if (length < NLMSG_HDRLEN || length > size)
                        return malformed + 1;

                uint16_t type = load16(p + offsetof(struct nlmsghdr, nlmsg_type));
                uint32_t sequence = load32(p + offsetof(struct nlmsghdr, nlmsg_seq));
                const uint8_t *message = p + NLMSG_HDRLEN;
                int r;

                if (type == NLMSG_ERROR)
                        r = walk_error(walk, sequence, message, length - NLMSG_HDRLEN);
                else if (type == walk->family)
                        r = walk_record(walk, sequence, message, length - NLMSG_HDRLEN);
                else /* NOOP, DONE and OVERRUN say nothing here */
                        r = type < NLMSG_MIN_TYPE ? 0 : -EBADMSG;
                malformed += r < 0;

                size_t step = NLMSG_ALIGN(length);
                if (step > size)
                        step = size;
                p += step;
                size -= step;
        }

        return malformed;
}
