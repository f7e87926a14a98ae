/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <zlib.h>

#include "cleanup.h"
#include "recording.h"

/* Like PNG's: it shows when a transfer has changed line ends or cut the eighth bit. */
static const uint8_t magic[8] = { 0x89, 'D', 'L', 'Y', 'D', '\r', '\n', 0x1a };
#define BLOCK_MARK 0x4b4c4244U /* "DBLK" */

#define EVENT_HEADER_SIZE 16U
#define STORED_MAX (RECORDING_BLOCK_MAX + RECORDING_BLOCK_MAX / 8) /* zlib makes nothing larger than that */
#define OFFSET_CRC 36U /* the last field of a block's header */

/* Bytes that are being written; what does not fit is not written, and noted. */
struct writer {
        uint8_t *p;
        size_t left;
        bool full;
};

static void put_bytes(struct writer *w, const void *bytes, size_t size) {
        if (w->full || size > w->left) {
                w->full = true;
                return;
        }

        if (size > 0)
                memcpy(w->p, bytes, size);
        w->p += size;
        w->left -= size;
}

static void put8(struct writer *w, uint8_t v) {
        put_bytes(w, &v, sizeof(v));
}

static void put16(struct writer *w, uint16_t v) {
        v = htole16(v);
        put_bytes(w, &v, sizeof(v));
}

static void put32(struct writer *w, uint32_t v) {
        v = htole32(v);
        put_bytes(w, &v, sizeof(v));
}

static void put64(struct writer *w, uint64_t v) {
        v = htole64(v);
        put_bytes(w, &v, sizeof(v));
}

static void put_string(struct writer *w, const char *s) {
        if (!s)
                s = "";
        put_bytes(w, s, strlen(s) + 1);
}

/* Bytes that are being read; what is not there reads as 0, and is noted. */
struct reader {
        const uint8_t *p;
        size_t left;
        bool bad;
};

static void get_bytes(struct reader *r, void *to, size_t size) {
        if (r->bad || size > r->left) {
                r->bad = true;
                memset(to, 0, size);
                return;
        }

        memcpy(to, r->p, size);
        r->p += size;
        r->left -= size;
}

static uint8_t get8(struct reader *r) {
        uint8_t v;

        get_bytes(r, &v, sizeof(v));
        return v;
}

static uint16_t get16(struct reader *r) {
        uint16_t v;

        get_bytes(r, &v, sizeof(v));
        return le16toh(v);
}

static uint32_t get32(struct reader *r) {
        uint32_t v;

        get_bytes(r, &v, sizeof(v));
        return le32toh(v);
}

static uint64_t get64(struct reader *r) {
        uint64_t v;

        get_bytes(r, &v, sizeof(v));
        return le64toh(v);
}

static const char *get_string(struct reader *r) {
        const uint8_t *end = r->left > 0 ? memchr(r->p, '\0', r->left) : NULL;
        const char *s = (const char *) r->p;

        if (r->bad || !end) {
                r->bad = true;
                return "";
        }

        r->left -= (size_t) (end + 1 - r->p);
        r->p = end + 1;
        return s;
}

static void encode_accounting(const struct recording_event *event, struct writer *w) {
        const struct accounting_event *a = &event->accounting;

        switch (a->type) {
        case ACCOUNTING_CGROUP_ADDED:
                put64(w, a->cgroup.key);
                put64(w, a->cgroup.parent_key);
                put_string(w, a->cgroup.path);
                break;
        case ACCOUNTING_CGROUP_REMOVED:
                put64(w, a->cgroup.key);
                break;
        case ACCOUNTING_FORK:
                put32(w, a->fork.tid);
                put32(w, a->fork.tgid);
                put32(w, a->fork.parent_tid);
                put32(w, a->fork.parent_tgid);
                put64(w, a->fork.time_nsec);
                break;
        case ACCOUNTING_PLACE:
                put32(w, a->place.tid);
                put32(w, a->place.tgid);
                put64(w, a->place.cgroup_key);
                break;
        case ACCOUNTING_LIVE_SAMPLE:
        case ACCOUNTING_EXIT_SAMPLE:
                put32(w, event->sample.tid);
                put32(w, (uint32_t) event->sample.size);
                put64(w, event->sample.start_min_nsec);
                put64(w, event->sample.start_max_nsec);
                put_bytes(w, event->sample.payload, event->sample.size);
                break;
        case ACCOUNTING_LOOKED_UP:
                put32(w, a->lookup.tid);
                put32(w, (uint32_t) -a->lookup.result);
                put64(w, a->lookup.cgroup_key);
                put8(w, (uint8_t) a->lookup.source);
                break;
        case ACCOUNTING_PRESSURE:
                put64(w, a->pressure.key);
                put32(w, (uint32_t) -a->pressure.result);
                put32(w, a->pressure.n_cpus);
                put64(w, a->pressure.stall_nsec);
                break;
        case ACCOUNTING_EXEC:
        case ACCOUNTING_VANISHED:
                put32(w, a->tid);
                break;
        case ACCOUNTING_DOUBT:
                put32(w, a->doubt.tid);
                put8(w, (uint8_t) a->doubt.doubt);
                break;
        case ACCOUNTING_SWEEP_BEGIN:
        case ACCOUNTING_SWEEP_END:
        case ACCOUNTING_AGE:
        case ACCOUNTING_EVENT_COUNT:
                break;
        }
}

static void decode_accounting(struct reader *r, struct recording_event *ret) {
        struct accounting_event *a = &ret->accounting;

        a->type = (enum accounting_event_type) (ret->type - RECORDING_ACCOUNTING);
        a->now_nsec = ret->now_nsec;

        switch (a->type) {
        case ACCOUNTING_CGROUP_ADDED:
                a->cgroup.key = get64(r);
                a->cgroup.parent_key = get64(r);
                a->cgroup.path = get_string(r);
                r->bad = r->bad || a->cgroup.path[0] != '/';
                break;
        case ACCOUNTING_CGROUP_REMOVED:
                a->cgroup.key = get64(r);
                break;
        case ACCOUNTING_FORK:
                a->fork.tid = get32(r);
                a->fork.tgid = get32(r);
                a->fork.parent_tid = get32(r);
                a->fork.parent_tgid = get32(r);
                a->fork.time_nsec = get64(r);
                break;
        case ACCOUNTING_PLACE:
                a->place.tid = get32(r);
                a->place.tgid = get32(r);
                a->place.cgroup_key = get64(r);
                break;
        case ACCOUNTING_LIVE_SAMPLE:
        case ACCOUNTING_EXIT_SAMPLE:
                ret->sample.tid = get32(r);
                ret->sample.size = get32(r);
                ret->sample.start_min_nsec = get64(r);
                ret->sample.start_max_nsec = get64(r);
                ret->sample.payload = r->p;
                r->bad = r->bad || ret->sample.size > r->left || ret->sample.size > RECORDING_PAYLOAD_MAX;
                break;
        case ACCOUNTING_LOOKED_UP:
                a->lookup.tid = get32(r);
                a->lookup.result = (int) -get32(r);
                a->lookup.cgroup_key = get64(r);
                a->lookup.source = (enum attribution_source) get8(r);
                r->bad = r->bad || a->lookup.source >= ATTRIBUTION_SOURCE_COUNT || a->lookup.result < -4095
                        || a->lookup.result > 0;
                break;
        case ACCOUNTING_PRESSURE:
                a->pressure.key = get64(r);
                a->pressure.result = (int) -get32(r);
                a->pressure.n_cpus = get32(r);
                a->pressure.stall_nsec = get64(r);
                r->bad = r->bad || a->pressure.result < -4095 || a->pressure.result > 0;
                break;
        case ACCOUNTING_EXEC:
        case ACCOUNTING_VANISHED:
                a->tid = get32(r);
                break;
        case ACCOUNTING_DOUBT:
                a->doubt.tid = get32(r);
                a->doubt.doubt = (enum accounting_doubt) get8(r);
                r->bad = r->bad || a->doubt.doubt > DOUBT_LOST;
                break;
        case ACCOUNTING_SWEEP_BEGIN:
        case ACCOUNTING_SWEEP_END:
        case ACCOUNTING_AGE:
        case ACCOUNTING_EVENT_COUNT:
                break;
        }
}

static void encode_meta(const struct recording_meta *meta, struct writer *w) {
        put64(w, meta->started_nsec);
        put64(w, meta->started_monotonic_nsec);
        put64(w, meta->realtime_nsec);
        put32(w, meta->kinds);
        put16(w, meta->taskstats_version);
        put8(w, meta->layout);
        put8(w, meta->anonymous);
        put_string(w, meta->daemon_version);
        put_string(w, meta->kernel_release);
        put_string(w, meta->cgroup_hierarchy);
        put8(w, meta->rough_clock);
}

static void decode_meta(struct reader *r, struct recording_meta *ret) {
        ret->started_nsec = get64(r);
        ret->started_monotonic_nsec = get64(r);
        ret->realtime_nsec = get64(r);
        ret->kinds = get32(r);
        ret->taskstats_version = get16(r);
        ret->layout = get8(r);
        ret->anonymous = get8(r);
        ret->daemon_version = get_string(r);
        ret->kernel_release = get_string(r);
        ret->cgroup_hierarchy = get_string(r);
        ret->rough_clock = r->left > 0 && get8(r) != 0; /* the first recordings had none */
}

static void encode_other(const struct recording_event *event, struct writer *w) {
        switch (event->type) {
        case RECORDING_META:
                encode_meta(&event->meta, w);
                break;
        case RECORDING_SETTINGS:
                put64(w, event->settings.max_cgroups);
                put64(w, event->settings.max_exported);
                put64(w, event->settings.retention_nsec);
                put64(w, event->settings.poll_interval_nsec);
                break;
        case RECORDING_FACTS:
                put64(w, event->facts.exits_received);
                put64(w, event->facts.exits_lost);
                put64(w, event->facts.malformed);
                put64(w, event->facts.last_poll_nsec);
                put8(w, event->facts.task_delayacct);
                put8(w, event->facts.delayed_dequeue);
                put8(w, event->facts.exit_filter);
                break;
        case RECORDING_PROBLEM:
                put8(w, (uint8_t) event->problem.severity);
                put_string(w, event->problem.id);
                put_string(w, event->problem.message);
                put_string(w, event->problem.remedy);
                break;
        case RECORDING_PROBLEM_GONE:
                put_string(w, event->problem.id);
                break;
        }
}

static void decode_other(struct reader *r, struct recording_event *ret) {
        switch (ret->type) {
        case RECORDING_META:
                decode_meta(r, &ret->meta);
                break;
        case RECORDING_SETTINGS:
                ret->settings.max_cgroups = get64(r);
                ret->settings.max_exported = get64(r);
                ret->settings.retention_nsec = get64(r);
                ret->settings.poll_interval_nsec = get64(r);
                break;
        case RECORDING_FACTS:
                ret->facts.exits_received = get64(r);
                ret->facts.exits_lost = get64(r);
                ret->facts.malformed = get64(r);
                ret->facts.last_poll_nsec = get64(r);
                ret->facts.task_delayacct = get8(r);
                ret->facts.delayed_dequeue = get8(r);
                ret->facts.exit_filter = get8(r);
                r->bad = r->bad || ret->facts.delayed_dequeue > TRISTATE_UNKNOWN;
                break;
        case RECORDING_PROBLEM:
                ret->problem.severity = (enum problem_severity) get8(r);
                ret->problem.id = get_string(r);
                ret->problem.message = get_string(r);
                ret->problem.remedy = get_string(r);
                r->bad = r->bad || ret->problem.severity > PROBLEM_FAILING;
                break;
        case RECORDING_PROBLEM_GONE:
                ret->problem.id = get_string(r);
                break;
        }
}

size_t recording_encode(const struct recording_event *event, uint8_t *p, size_t room) {
        if (room < EVENT_HEADER_SIZE)
                return 0;

        struct writer body = { p + EVENT_HEADER_SIZE, room - EVENT_HEADER_SIZE, false };
        if (recording_is_accounting(event->type))
                encode_accounting(event, &body);
        else
                encode_other(event, &body);
        if (body.full)
                return 0;

        size_t size = (size_t) (body.p - p);
        struct writer header = { p, EVENT_HEADER_SIZE, false };
        put32(&header, event->type);
        put32(&header, (uint32_t) (size - EVENT_HEADER_SIZE));
        put64(&header, event->now_nsec);
        return size;
}

ssize_t recording_decode(const uint8_t *p, size_t size, struct recording_event *ret) {
        struct reader r = { p, size, false };

        if (size == 0)
                return 0;

        *ret = (struct recording_event) { .type = get32(&r) };
        size_t body = get32(&r);
        ret->now_nsec = get64(&r);
        if (r.bad || body > r.left)
                return -EBADMSG;

        /* More than we know of at the end of an event is from a later delayd, and left alone. */
        r.left = body;
        if (recording_is_accounting(ret->type))
                decode_accounting(&r, ret);
        else
                decode_other(&r, ret);

        return r.bad ? -EBADMSG : (ssize_t) (EVENT_HEADER_SIZE + body);
}

static uint32_t checksum(const uint8_t *p, size_t size, const uint8_t *more, size_t more_size) {
        uLong crc = crc32(0, p, (uInt) size);

        return (uint32_t) (more_size > 0 ? crc32(crc, more, (uInt) more_size) : crc);
}

void recording_file_header(uint8_t ret[static RECORDING_FILE_HEADER_SIZE]) {
        struct writer w = { ret, RECORDING_FILE_HEADER_SIZE, false };

        put_bytes(&w, magic, sizeof(magic));
        put32(&w, RECORDING_VERSION);
        put32(&w, checksum(ret, RECORDING_FILE_HEADER_SIZE - 4, NULL, 0));
}

int recording_check_file_header(const uint8_t header[static RECORDING_FILE_HEADER_SIZE], uint32_t *ret_version) {
        struct reader r = { header + sizeof(magic), RECORDING_FILE_HEADER_SIZE - sizeof(magic), false };

        if (memcmp(header, magic, sizeof(magic)) != 0)
                return -ENOMSG;

        *ret_version = get32(&r);
        if (get32(&r) != checksum(header, RECORDING_FILE_HEADER_SIZE - 4, NULL, 0))
                return -EBADMSG;

        return *ret_version == RECORDING_VERSION ? 0 : -EPROTONOSUPPORT;
}

int recording_pack(struct recording_block *block, const uint8_t *events, size_t size, uint8_t **ret, size_t *ret_size) {
        uLongf packed = compressBound((uLong) size);

        uint8_t *p = malloc(RECORDING_BLOCK_HEADER_SIZE + packed);
        if (!p)
                return -ENOMEM;

        /* The fastest level: records of the kernel are mostly zeros, and shrink to a tenth with any. */
        if (compress2(p + RECORDING_BLOCK_HEADER_SIZE, &packed, events, (uLong) size, Z_BEST_SPEED) != Z_OK) {
                free(p);
                return -ENOMEM;
        }

        block->stored_size = (uint32_t) packed;
        block->events_size = (uint32_t) size;

        struct writer w = { p, RECORDING_BLOCK_HEADER_SIZE, false };
        put32(&w, BLOCK_MARK);
        put32(&w, block->sequence);
        put32(&w, block->stored_size);
        put32(&w, block->events_size);
        put64(&w, block->boottime_nsec);
        put64(&w, block->monotonic_nsec);
        put32(&w, 0);
        put32(&w, checksum(p, OFFSET_CRC, p + RECORDING_BLOCK_HEADER_SIZE, packed));

        *ret = p;
        *ret_size = RECORDING_BLOCK_HEADER_SIZE + packed;
        return 0;
}

int recording_block_header(const uint8_t header[static RECORDING_BLOCK_HEADER_SIZE], struct recording_block *ret) {
        struct reader r = { header, RECORDING_BLOCK_HEADER_SIZE, false };

        if (get32(&r) != BLOCK_MARK)
                return -EBADMSG;

        ret->sequence = get32(&r);
        ret->stored_size = get32(&r);
        ret->events_size = get32(&r);
        ret->boottime_nsec = get64(&r);
        ret->monotonic_nsec = get64(&r);
        if (ret->events_size > RECORDING_BLOCK_MAX || ret->stored_size == 0 || ret->stored_size > STORED_MAX)
                return -EBADMSG; /* a stream of zlib has at least its ends */

        return 0;
}

int recording_unpack(
                const struct recording_block *block,
                const uint8_t header[static RECORDING_BLOCK_HEADER_SIZE],
                const uint8_t *stored,
                uint8_t *events) {

        struct reader crc = { header + OFFSET_CRC, 4, false };
        uLongf size = block->events_size;

        if (get32(&crc) != checksum(header, OFFSET_CRC, stored, block->stored_size))
                return -EBADMSG;

        int z = uncompress(events, &size, stored, block->stored_size);
        if (z == Z_MEM_ERROR)
                return -ENOMEM;

        return z == Z_OK && size == block->events_size ? 0 : -EBADMSG;
}
