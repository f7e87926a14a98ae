/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "cleanup.h"
#include "core/state-stats.h"
#include "core/state-tasks.h"
#include "core/state-windows.h"
#include "core/state.h"

/*
 * Header: magic, version (4 bytes), flags (4), boot id, saved_nsec (8), size of the windows and of the rest, which
 * follow (8 each), CRC-32 of all but itself (4); little-endian.
 */
static const uint8_t magic[8] = { 0x89, 'D', 'L', 'Y', 'S', 'T', '\n', 0x1a };

enum {
        OFFSET_VERSION = 8,
        OFFSET_FLAGS = 12,
        OFFSET_BOOT_ID = 16,
        OFFSET_SAVED = 32,
        OFFSET_WINDOWS = 40,
        OFFSET_SIZE = 48,
        OFFSET_CRC = 56,
};

enum {
        FLAG_FINAL = 1 << 0,
};

enum {
        CGROUP_EXPORTED = 1 << 0,
        CGROUP_REMOVED = 1 << 1,
};
#define CGROUP_SIZE_MIN 6U

static void store32(uint8_t *p, uint32_t value) {
        value = htole32(value);
        memcpy(p, &value, sizeof(value));
}

static void store64(uint8_t *p, uint64_t value) {
        value = htole64(value);
        memcpy(p, &value, sizeof(value));
}

static uint32_t load32(const uint8_t *p) {
        uint32_t value;

        memcpy(&value, p, sizeof(value));
        return le32toh(value);
}

static uint64_t load64(const uint8_t *p) {
        uint64_t value;

        memcpy(&value, p, sizeof(value));
        return le64toh(value);
}

static uint32_t checksum(const uint8_t *p, size_t size) {
        uLong crc = crc32_z(crc32_z(0, NULL, 0), p, OFFSET_CRC);

        return (uint32_t) crc32_z(crc, p + STATE_HEADER_SIZE, size - STATE_HEADER_SIZE);
}

static void put_evidence(struct state_writer *w, const struct delay_evidence *evidence) {
        state_put(w, evidence->n);
        for (unsigned i = 0; i < evidence->n; i++) {
                state_put(w, evidence->runs[i].first_nsec);
                state_put(w, evidence->runs[i].last_nsec);
                state_put(w, evidence->runs[i].on);
        }
}

static void get_evidence(struct state_reader *r, struct delay_evidence *evidence) {
        evidence->n = (unsigned) state_get_up_to(r, DELAY_EVIDENCE_RUNS);
        for (unsigned i = 0; i < evidence->n; i++) {
                evidence->runs[i].first_nsec = state_get(r);
                evidence->runs[i].last_nsec = state_get(r);
                evidence->runs[i].on = state_get_up_to(r, 1);
        }
}

static void put_counters(struct state_writer *w, const struct accounting *a, const struct exit_feed *feed) {
        state_put(w, a->config.kinds);
        state_put(w, a->config.started_nsec);
        put_evidence(w, &a->evidence);
        state_put(w, a->exits);
        state_put(w, a->accepted_samples);
        state_put(w, a->gone.dropped);
        state_put(w, a->cgroups.overflowed);

        state_put(w, ATTRIBUTION_SOURCE_COUNT);
        for (unsigned source = 0; source < ATTRIBUTION_SOURCE_COUNT; source++)
                state_put(w, a->attributed[source]);
        state_put(w, REJECT_REASON_COUNT);
        for (unsigned reason = 0; reason < REJECT_REASON_COUNT; reason++)
                state_put(w, a->rejected_samples[reason]);

        state_put(w, feed->received);
        state_put(w, feed->lost);
        state_put(w, feed->malformed);
        state_put(w, feed->n_sockets);
        for (unsigned i = 0; i < feed->n_sockets; i++) {
                state_put(w, feed->sockets[i].drops);
                state_put(w, feed->sockets[i].empty_nsec);
        }
}

/* A daemon that knows fewer of them than the one that saved cannot say where the rest belongs. */
static void get_array(struct state_reader *r, uint64_t *values, size_t max) {
        size_t n = state_get_up_to(r, max);

        for (size_t i = 0; i < n; i++)
                values[i] = state_get(r);
}

static void get_counters(struct state_reader *r, struct accounting *a, delay_kind_set *ret_kinds, struct exit_feed *feed) {
        *ret_kinds = (delay_kind_set) state_get_up_to(r, DELAY_KINDS_ALL);
        a->config.started_nsec = state_get(r);
        get_evidence(r, &a->evidence);
        a->exits = state_get(r);
        a->accepted_samples = state_get(r);
        a->gone.dropped = state_get(r);
        a->cgroups.overflowed = state_get(r);
        get_array(r, a->attributed, ATTRIBUTION_SOURCE_COUNT);
        get_array(r, a->rejected_samples, REJECT_REASON_COUNT);

        feed->received = state_get(r);
        feed->lost = state_get(r);
        feed->malformed = state_get(r);
        feed->n_sockets = (unsigned) state_get_up_to(r, EXIT_FEED_SOCKETS_MAX);
        for (unsigned i = 0; i < feed->n_sockets; i++) {
                feed->sockets[i].drops = (uint32_t) state_get_up_to(r, UINT32_MAX);
                feed->sockets[i].empty_nsec = state_get(r);
        }
}

static void put_cgroup(struct state_writer *w, const struct cgroup *c) {
        size_t path_size = strlen(c->path);
        delay_kind_set kinds = 0;

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (c->stats[kind])
                        kinds |= DELAY_KIND_BIT(kind);

        state_put(w, c->key);
        state_put(w, c->parent ? c->parent->key : 0);
        state_put(w, (c->exported ? CGROUP_EXPORTED : 0U) | (c->removed_nsec > 0 ? CGROUP_REMOVED : 0U));
        state_put(w, c->added_nsec);
        if (c->removed_nsec > 0)
                state_put(w, c->removed_nsec);
        state_put(w, path_size);
        state_put_bytes(w, c->path, path_size);

        state_put(w, kinds);
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (c->stats[kind])
                        state_put_stats(w, c->stats[kind], false);
}

static int get_cgroup(
                struct state_reader *r, struct cgroup_table *t, uint64_t saved_nsec, uint64_t now_nsec,
                uint64_t *ret_parent_key, struct cgroup **ret) {

        struct cgroup_saved saved = { .key = state_get(r) };
        struct cgroup *cgroup;

        *ret_parent_key = state_get(r);
        uint64_t flags = state_get_up_to(r, CGROUP_EXPORTED | CGROUP_REMOVED);
        saved.exported = flags & CGROUP_EXPORTED;
        saved.added_nsec = state_get_up_to(r, saved_nsec);
        saved.removed_nsec = flags & CGROUP_REMOVED ? state_get_up_to(r, saved_nsec) : now_nsec;

        size_t path_size = state_get_count(r, 1);
        const char *path = state_get_bytes(r, path_size);
        delay_kind_set kinds = (delay_kind_set) state_get_up_to(r, DELAY_KINDS_ALL);
        if (r->bad || memchr(path, '\0', path_size))
                return -EBADMSG;

        _cleanup_free_ char *copy = strndup(path, path_size);
        if (!copy)
                return -ENOMEM;
        saved.path = copy;

        int error = cgroup_table_restore(t, &saved, &cgroup);
        if (error < 0)
                return error == -ENOMEM ? error : -EBADMSG;

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(kinds, kind)) {
                        if (cgroup->stats[kind])
                                return -EBADMSG; /* an entry that is no cgroup, for the second time */

                        error = state_get_stats(r, false, false, saved_nsec, &cgroup->stats[kind]);
                        if (error < 0)
                                return error;
                }

        *ret = cgroup;
        return 0;
}

static void put_cgroups(struct state_writer *w, const struct cgroup_table *t) {
        state_put(w, t->by_key.n + 1);

        put_cgroup(w, t->other);
        size_t cursor = 0;
        for (const struct cgroup *c; (c = cgroup_table_next(t, &cursor));)
                put_cgroup(w, c);

        /* The table holds one value for all these keys, so the walk is over its entries. */
        state_put(w, t->beyond.n);
        for (size_t i = 0; t->beyond.n > 0 && i <= t->beyond.mask; i++)
                if (t->beyond.entries[i].value)
                        state_put(w, t->beyond.entries[i].key);
}

struct link {
        struct cgroup *cgroup;
        uint64_t parent_key;
};

static int get_cgroups(struct state_reader *r, struct cgroup_table *t, uint64_t saved_nsec, uint64_t now_nsec) {
        size_t n = state_get_count(r, CGROUP_SIZE_MIN);

        if (r->bad)
                return -EBADMSG;

        _cleanup_free_ struct link *links = calloc(n + 1, sizeof(*links));
        if (!links)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++) {
                int error = get_cgroup(r, t, saved_nsec, now_nsec, &links[i].parent_key, &links[i].cgroup);
                if (error < 0)
                        return error;
        }

        /* A path that was changed can stand in the way: then the cgroup is in the sum of no other. */
        for (size_t i = 0; i < n; i++) {
                struct cgroup *parent = links[i].parent_key > 0 ? hash_get(&t->by_key, links[i].parent_key) : NULL;

                if (parent)
                        (void) cgroup_table_restore_parent(links[i].cgroup, parent);
        }

        n = state_get_count(r, 1);
        for (size_t i = 0; i < n && !r->bad; i++) {
                int error = cgroup_table_restore_beyond(t, state_get(r));
                if (error < 0)
                        return error == -ENOMEM ? error : -EBADMSG;
        }

        return r->bad ? -EBADMSG : 0;
}

void state_begin(struct state_writer *w) {
        static const uint8_t nothing[STATE_HEADER_SIZE] = {};

        w->size = 0;
        state_put_bytes(w, nothing, sizeof(nothing)); /* until all is known */
}

int state_finish(
                struct state_writer *w, const struct accounting *a, const struct exit_feed *feed, const struct state_meta *meta) {

        size_t windows_size = w->size - STATE_HEADER_SIZE;

        put_counters(w, a, feed);
        put_cgroups(w, &a->cgroups);
        state_put_tasks(w, a);
        if (w->failed)
                return -ENOMEM;

        memcpy(w->bytes, magic, sizeof(magic));
        store32(w->bytes + OFFSET_VERSION, STATE_VERSION);
        store32(w->bytes + OFFSET_FLAGS, meta->final ? FLAG_FINAL : 0U);
        memcpy(w->bytes + OFFSET_BOOT_ID, meta->boot_id, STATE_BOOT_ID_SIZE);
        store64(w->bytes + OFFSET_SAVED, meta->saved_nsec);
        store64(w->bytes + OFFSET_WINDOWS, windows_size);
        store64(w->bytes + OFFSET_SIZE, w->size - STATE_HEADER_SIZE - windows_size);
        store32(w->bytes + OFFSET_CRC, checksum(w->bytes, w->size));
        return 0;
}

static int check_sizes(const uint8_t *header, size_t size) {
        uint64_t windows_size = load64(header + OFFSET_WINDOWS), rest_size = load64(header + OFFSET_SIZE);

        size -= STATE_HEADER_SIZE;
        if (windows_size > size || rest_size > size - windows_size)
                return -ENODATA;

        return windows_size + rest_size == size ? 0 : -EBADMSG;
}

int state_check(
                const void *bytes,
                size_t size,
                const uint8_t boot_id[static STATE_BOOT_ID_SIZE],
                uint64_t now_nsec,
                struct state_meta *ret) {

        const uint8_t *header = bytes;

        if (size < OFFSET_FLAGS)
                return -ENODATA;
        if (memcmp(header, magic, sizeof(magic)) != 0)
                return -EBADMSG;
        if (load32(header + OFFSET_VERSION) != STATE_VERSION)
                return -EPROTONOSUPPORT;
        if (size < STATE_HEADER_SIZE)
                return -ENODATA;

        int r = check_sizes(header, size);
        if (r < 0)
                return r;
        if (load32(header + OFFSET_CRC) != checksum(header, size))
                return -EBADMSG;
        if (memcmp(header + OFFSET_BOOT_ID, boot_id, STATE_BOOT_ID_SIZE) != 0)
                return -ESTALE;

        struct state_meta meta = {
                .saved_nsec = load64(header + OFFSET_SAVED),
                .final = load32(header + OFFSET_FLAGS) & FLAG_FINAL,
                .whole = load64(header + OFFSET_WINDOWS) > 0,
        };
        if (meta.saved_nsec == 0 || meta.saved_nsec > now_nsec)
                return -EBADMSG;

        memcpy(meta.boot_id, boot_id, STATE_BOOT_ID_SIZE);
        *ret = meta;
        return 0;
}

int state_decode(const void *bytes, size_t size, uint64_t now_nsec, struct accounting *a, struct exit_feed *ret_feed) {
        const uint8_t *header = bytes;

        if (size < STATE_HEADER_SIZE || check_sizes(header, size) < 0)
                return -EBADMSG;

        struct state_reader r = { .p = header + STATE_HEADER_SIZE + load64(header + OFFSET_WINDOWS), .end = header + size };
        uint64_t saved_nsec = load64(header + OFFSET_SAVED);
        struct exit_feed feed = {};
        delay_kind_set kinds;

        get_counters(&r, a, &kinds, &feed);
        if (r.bad)
                return -EBADMSG;

        int error = get_cgroups(&r, &a->cgroups, saved_nsec, now_nsec);
        if (error >= 0)
                error = state_get_tasks(&r, a, kinds, saved_nsec);
        if (error < 0)
                return error;
        if (r.p != r.end)
                return -EBADMSG;

        *ret_feed = feed;
        return 0;
}

int state_decode_windows(const void *bytes, size_t size, struct accounting *a, uint64_t saved_nsec) {
        const uint8_t *header = bytes;

        if (size < STATE_HEADER_SIZE || check_sizes(header, size) < 0)
                return -EBADMSG;

        struct state_reader r = { .p = header + STATE_HEADER_SIZE, .end = header + STATE_HEADER_SIZE + load64(header + OFFSET_WINDOWS) };

        return state_get_windows(&r, a, load64(header + OFFSET_SAVED), saved_nsec);
}
