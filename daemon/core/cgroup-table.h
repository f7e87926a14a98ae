/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "core/cgroup-name.h"
#include "core/delay-stats.h"
#include "core/hash-table.h"

/*
 * All cgroups that are tracked, keyed by the kernel's cgroup id (kernfs id: st_ino of the directory),
 * never by path: a re-created path is a new cgroup. Two entries that are no cgroups always exist,
 * "(unattributed)" and "(overflow)"; a third, "(other)", is for /metrics alone: the waits of all cgroups
 * without series of their own, counted there as well.
 */
#define CGROUP_KEY_UNATTRIBUTED UINT64_C(0)
#define CGROUP_KEY_OVERFLOW UINT64_MAX
#define CGROUP_KEY_OTHER (UINT64_MAX - 1)

struct cgroup {
        uint64_t key;
        char *path;              /* within its hierarchy, "/" for the root; raw bytes */
        char *display;           /* path made fit for every output: valid UTF-8 */
        struct cgroup_name name; /* made fit for display as well */
        struct cgroup *parent;   /* nearest ancestor that is tracked; NULL for the root and for the two special entries */

        uint64_t added_nsec;
        uint64_t removed_nsec;   /* 0 while it exists */
        uint32_t tasks;          /* live tasks known to be in it */
        uint32_t unaccounted_tasks;
        uint32_t entries;        /* task table entries that point here; it is not freed before they are gone */
        uint32_t children;       /* cgroups whose parent this is; the same goes for them */
        bool exported;           /* has its own series in /metrics; decided for life by its first wait */

        struct schedule_quiet *quiet; /* core/schedule.h; NULL while it has few tasks */
        struct delay_stats *stats[DELAY_KIND_COUNT]; /* NULL until the first wait */
        struct pressure_log *pressure;               /* NULL unless long waits ask for it (core/witness.h) */
};

struct cgroup_table {
        struct hash_table by_key;
        struct hash_table beyond; /* keys of cgroups that exist but found no place: all are the overflow entry */
        struct hash_table beyond_before; /* the same of the daemon before: these are counted already */
        struct cgroup *unattributed;
        struct cgroup *overflow;
        struct cgroup *other;
        size_t max_cgroups;      /* without the two special entries; removed ones count until they are dropped */
        size_t max_exported;
        uint64_t retention_nsec;

        /* Whether a cgroup that is new may have series of its own, by its path; NULL: all may. */
        bool (*may_export)(const char *path, void *userdata);
        void *may_export_userdata;

        size_t tracked;          /* that exist */
        size_t removed;          /* that are kept for retention_nsec */
        size_t exported;
        size_t quiet_cursor;     /* where to look for exported ones that never waited */
        bool no_quiet;           /* there are none */
        uint64_t overflowed;     /* cgroups that found no place, since start */
        uint64_t aged_nsec;      /* when the windows were last aged */
};

int cgroup_table_init(struct cgroup_table *t, size_t max_cgroups, size_t max_exported, uint64_t retention_nsec);
void cgroup_table_done(struct cgroup_table *t);

/*
 * Never NULL: an unknown key is the unattributed entry, as is CGROUP_KEY_UNATTRIBUTED. The key of a
 * cgroup that found no place is the overflow entry.
 */
struct cgroup *cgroup_table_get(const struct cgroup_table *t, uint64_t key);

/* NULL for an unknown key. */
struct cgroup *cgroup_table_find(const struct cgroup_table *t, uint64_t key);

/*
 * Adds a cgroup (parent_key 0 for the root; ret may be NULL). A key that is known is left as it is, but
 * for its path, which may change (rename on v1), and for its removal, which was a mistake then. When the
 * table is full the overflow entry is returned and counted, once for each key; such a cgroup stays there
 * for its life. Returns 0 or -ENOMEM.
 */
int cgroup_table_add(
                struct cgroup_table *t,
                uint64_t now_nsec,
                uint64_t key,
                uint64_t parent_key,
                const char *path,
                struct cgroup **ret);

/* What a saved state says of a cgroup; of the entries that are no cgroups only key and exported matter. */
struct cgroup_saved {
        uint64_t key;
        const char *path;
        uint64_t added_nsec, removed_nsec; /* removed_nsec is not 0 */
        bool exported;
};

/*
 * Makes the entry as it was, or finds the one that is no cgroup. A cgroup counts as removed until it is added
 * again: who knows what was removed meanwhile. Returns -EEXIST, -EINVAL, -ENOMEM.
 */
int cgroup_table_restore(struct cgroup_table *t, const struct cgroup_saved *saved, struct cgroup **ret);

/* Links a restored cgroup to its ancestor. Returns -EINVAL if it is none by its path. */
int cgroup_table_restore_parent(struct cgroup *cgroup, struct cgroup *parent);

/* The key of a cgroup that found no place before: it is not counted a second time. */
int cgroup_table_restore_beyond(struct cgroup_table *t, uint64_t key);

/* Marks the cgroup as removed; its numbers stay for the retention. Unknown keys are ignored. */
void cgroup_table_remove(struct cgroup_table *t, uint64_t now_nsec, uint64_t key);

/* Drops removed cgroups whose retention is over, and ages all windows (to give back memory). */
void cgroup_table_age(struct cgroup_table *t, uint64_t now_nsec);

/*
 * To be called before the first wait of a cgroup is added to its stats: when all places in /metrics are taken, one
 * that waits gets that of one that never did, whose series show nothing that could be missed.
 */
void cgroup_table_begin_waiting(struct cgroup_table *t, struct cgroup *cgroup);

bool cgroup_has_waited(const struct cgroup *cgroup);

/* The stats of one kind, made on first use. NULL when memory is short. */
struct delay_stats *cgroup_stats(struct cgroup *cgroup, enum delay_kind kind);

/*
 * Finds a cgroup by what a person types: its displayed or raw path, else the name of a unit or slice
 * (escaped or not), else a container id or a prefix of one of twelve and more characters. Where a unit
 * or container has cgroups below its own, its own is meant. A cgroup that exists goes before a removed
 * one, and the last removed one before those removed earlier. Returns 0, -ENOENT, or -ENOTUNIQ when a
 * name other than a path fits several that exist, -ENOMEM.
 */
int cgroup_table_lookup(const struct cgroup_table *t, const char *name, struct cgroup **ret);

/* Walks all entries with the special ones, in no order: *cursor = 0 at first; NULL at the end. */
struct cgroup *cgroup_table_next(const struct cgroup_table *t, size_t *cursor);
