/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "core/cgroup-table.h"
#include "core/text.h"

#define CONTAINER_PREFIX_MIN 12U

/* No window moves on by less than the finest slot of delay-stats.h. */
#define AGE_INTERVAL_NSEC (5 * NSEC_PER_SEC)

/* Keys dropped at a time: the hash table does not like to change under a walk. */
#define DROP_BATCH 256U

static void cgroup_free(struct cgroup *c) {
        if (!c)
                return;

        if (c->parent)
                c->parent->children--;
        for (size_t kind = 0; kind < DELAY_KIND_COUNT; kind++)
                delay_stats_free(c->stats[kind]);
        free(c->pressure);
        cgroup_name_free(&c->name);
        free(c->quiet);
        free(c->display);
        free(c->path);
        free(c);
}

static int make_displayable(char **s) {
        if (!*s)
                return 0;

        char *text = text_display(*s, strlen(*s));
        if (!text)
                return -ENOMEM;

        free(*s);
        *s = text;
        return 0;
}

/* Sets path and all that follows from it, or nothing. */
static int cgroup_set_path(struct cgroup *c, const char *path) {
        _cleanup_(cgroup_name_free) struct cgroup_name name = {};
        _cleanup_free_ char *new_path = strdup(path), *display = text_display(path, strlen(path));

        if (!new_path || !display || cgroup_name_parse(path, &name) < 0 || make_displayable(&name.unit) < 0
            || make_displayable(&name.slice) < 0 || make_displayable(&name.container_id) < 0)
                return -ENOMEM;

        free(c->path);
        free(c->display);
        cgroup_name_free(&c->name);

        c->path = TAKE_PTR(new_path);
        c->display = TAKE_PTR(display);
        c->name = name;
        name = (struct cgroup_name) {};
        return 0;
}

static int cgroup_new(uint64_t key, const char *path, struct cgroup **ret) {
        struct cgroup *c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;

        c->key = key;
        if (cgroup_set_path(c, path) < 0) {
                cgroup_free(c);
                return -ENOMEM;
        }

        *ret = c;
        return 0;
}

static int add_special(struct cgroup_table *t, uint64_t key, const char *name, struct cgroup **ret) {
        int r = cgroup_new(key, name, ret);
        if (r < 0)
                return r;

        (*ret)->exported = true;
        r = hash_put(&t->by_key, key, *ret);
        if (r < 0) {
                cgroup_free(*ret);
                *ret = NULL;
        }
        return r;
}

int cgroup_table_init(struct cgroup_table *t, size_t max_cgroups, size_t max_exported, uint64_t retention_nsec) {
        *t = (struct cgroup_table) {
                .max_cgroups = max_cgroups,
                .max_exported = max_exported,
                .retention_nsec = retention_nsec,
        };

        if (add_special(t, CGROUP_KEY_UNATTRIBUTED, DELAYD_CGROUP_UNATTRIBUTED, &t->unattributed) < 0
            || add_special(t, CGROUP_KEY_OVERFLOW, DELAYD_CGROUP_OVERFLOW, &t->overflow) < 0
            || cgroup_new(CGROUP_KEY_OTHER, DELAYD_CGROUP_OTHER, &t->other) < 0) {
                cgroup_table_done(t);
                return -ENOMEM;
        }

        return 0;
}

void cgroup_table_done(struct cgroup_table *t) {
        size_t cursor = 0;

        for (struct cgroup *c; (c = hash_next(&t->by_key, &cursor));) {
                c->parent = NULL; /* may be gone already */
                cgroup_free(c);
        }
        hash_free(&t->by_key);
        hash_free(&t->beyond);
        hash_free(&t->beyond_before);
        if (t->other)
                cgroup_free(t->other);
        *t = (struct cgroup_table) {};
}

struct cgroup *cgroup_table_find(const struct cgroup_table *t, uint64_t key) {
        return hash_get(&t->by_key, key) ?: hash_get(&t->beyond, key);
}

struct cgroup *cgroup_table_get(const struct cgroup_table *t, uint64_t key) {
        return cgroup_table_find(t, key) ?: t->unattributed;
}

static bool is_special(const struct cgroup_table *t, const struct cgroup *c) {
        return c == t->unattributed || c == t->overflow;
}

/* True if ancestor's path is path or above it. */
static bool is_above(const char *ancestor, const char *path) {
        size_t n = strlen(ancestor);

        if (strcmp(ancestor, "/") == 0)
                return true;
        return strncmp(ancestor, path, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* The parent has no place of its own: the nearest ancestor that has one. Rare, so a walk is good enough. */
static struct cgroup *find_ancestor(const struct cgroup_table *t, const char *path) {
        struct cgroup *nearest = NULL;
        size_t cursor = 0;

        for (struct cgroup *c; (c = hash_next(&t->by_key, &cursor));)
                if (!is_special(t, c) && c->removed_nsec == 0 && is_above(c->path, path) && strcmp(c->path, path) != 0
                    && (!nearest || strlen(c->path) > strlen(nearest->path)))
                        nearest = c;

        return nearest;
}

static int update_known(struct cgroup_table *t, struct cgroup *c, const char *path) {
        if (is_special(t, c))
                return 0;

        if (strcmp(c->path, path) != 0) {
                int r = cgroup_set_path(c, path);

                if (r < 0)
                        return r;
        }

        if (c->removed_nsec > 0) {
                c->removed_nsec = 0;
                t->removed--;
                t->tracked++;
        }

        return 0;
}

static bool may_export(const struct cgroup_table *t, const struct cgroup *c) {
        return !t->may_export || t->may_export(c->path, t->may_export_userdata);
}

static void set_exported(struct cgroup_table *t, struct cgroup *c, bool exported) {
        t->exported = t->exported - c->exported + exported;
        t->other->exported = t->other->exported || !exported;
        t->no_quiet = t->no_quiet && !exported;
        c->exported = exported;
}

/* An exported cgroup that never waited. */
static struct cgroup *find_quiet(struct cgroup_table *t) {
        if (t->no_quiet)
                return NULL;

        for (unsigned round = 0; round < 2; round++) {
                for (struct cgroup *c; (c = hash_next(&t->by_key, &t->quiet_cursor));)
                        if (c->exported && !is_special(t, c) && !cgroup_has_waited(c))
                                return c;
                t->quiet_cursor = 0;
        }

        t->no_quiet = true;
        return NULL;
}

bool cgroup_has_waited(const struct cgroup *cgroup) {
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (cgroup->stats[kind])
                        return true;
        return false;
}

void cgroup_table_begin_waiting(struct cgroup_table *t, struct cgroup *cgroup) {
        if (cgroup->exported || cgroup_has_waited(cgroup) || !may_export(t, cgroup))
                return;

        struct cgroup *quiet = t->exported < t->max_exported ? NULL : find_quiet(t);
        if (quiet)
                set_exported(t, quiet, false);
        if (t->exported < t->max_exported)
                set_exported(t, cgroup, true);
}

static int add_new(
                struct cgroup_table *t,
                uint64_t now_nsec,
                uint64_t key,
                uint64_t parent_key,
                const char *path,
                struct cgroup **ret) {

        struct cgroup *c;

        int r = cgroup_new(key, path, &c);
        if (r < 0)
                return r;

        if (parent_key != 0) {
                c->parent = hash_get(&t->by_key, parent_key) ?: find_ancestor(t, path);
                if (c->parent)
                        c->parent->children++;
        }

        r = hash_put(&t->by_key, key, c);
        if (r < 0) {
                cgroup_free(c);
                return r;
        }

        c->added_nsec = now_nsec;
        set_exported(t, c, t->exported < t->max_exported && may_export(t, c));
        t->tracked++;

        *ret = c;
        return 0;
}

int cgroup_table_add(
                struct cgroup_table *t,
                uint64_t now_nsec,
                uint64_t key,
                uint64_t parent_key,
                const char *path,
                struct cgroup **ret) {

        struct cgroup *c = cgroup_table_find(t, key);
        int r;

        if (c)
                r = update_known(t, c, path);
        else if (t->tracked + t->removed < t->max_cgroups)
                r = add_new(t, now_nsec, key, parent_key, path, &c);
        else {
                c = t->overflow;
                r = hash_put(&t->beyond, key, c);
                t->overflowed += r >= 0 && !hash_get(&t->beyond_before, key);
        }

        if (r < 0)
                return r;
        if (ret)
                *ret = c;
        return 0;
}

int cgroup_table_restore(struct cgroup_table *t, const struct cgroup_saved *saved, struct cgroup **ret) {
        struct cgroup *c;

        if (saved->key == CGROUP_KEY_UNATTRIBUTED || saved->key == CGROUP_KEY_OVERFLOW || saved->key == CGROUP_KEY_OTHER) {
                *ret = saved->key == CGROUP_KEY_UNATTRIBUTED ? t->unattributed
                        : saved->key == CGROUP_KEY_OVERFLOW  ? t->overflow
                                                             : t->other;
                (*ret)->exported = (*ret)->exported || saved->exported;
                return 0;
        }

        if (saved->path[0] != '/' || saved->removed_nsec == 0)
                return -EINVAL;

        int r = cgroup_new(saved->key, saved->path, &c);
        if (r < 0)
                return r;

        r = hash_put(&t->by_key, saved->key, c);
        if (r < 0) {
                cgroup_free(c);
                return r;
        }

        c->added_nsec = saved->added_nsec;
        c->removed_nsec = saved->removed_nsec;
        set_exported(t, c, saved->exported);
        t->removed++;

        *ret = c;
        return 0;
}

int cgroup_table_restore_parent(struct cgroup *cgroup, struct cgroup *parent) {
        if (cgroup->parent || strcmp(parent->path, cgroup->path) == 0 || !is_above(parent->path, cgroup->path))
                return -EINVAL;

        cgroup->parent = parent;
        parent->children++;
        return 0;
}

int cgroup_table_restore_beyond(struct cgroup_table *t, uint64_t key) {
        return hash_put(&t->beyond_before, key, t->overflow);
}

void cgroup_table_remove(struct cgroup_table *t, uint64_t now_nsec, uint64_t key) {
        (void) hash_remove(&t->beyond, key);

        struct cgroup *c = hash_get(&t->by_key, key);
        if (!c || is_special(t, c) || c->removed_nsec > 0)
                return;

        c->removed_nsec = now_nsec ?: 1; /* 0 would say that it exists */
        t->tracked--;
        t->removed++;
}

static bool is_over(const struct cgroup_table *t, const struct cgroup *c, uint64_t now_nsec) {
        return c->removed_nsec > 0 && c->entries == 0 && c->children == 0 && now_nsec >= c->removed_nsec
                && now_nsec - c->removed_nsec >= t->retention_nsec;
}

/* Returns the number dropped; a full batch means that there may be more, as does the end of a last child. */
static size_t drop_batch(struct cgroup_table *t, uint64_t now_nsec) {
        struct cgroup *over[DROP_BATCH];
        size_t cursor = 0, n = 0;

        for (struct cgroup *c; n < DROP_BATCH && (c = hash_next(&t->by_key, &cursor));)
                if (is_over(t, c, now_nsec))
                        over[n++] = c;

        for (size_t i = 0; i < n; i++) {
                t->removed--;
                t->exported -= over[i]->exported;
                hash_remove(&t->by_key, over[i]->key);
                cgroup_free(over[i]);
        }

        return n;
}

void cgroup_table_age(struct cgroup_table *t, uint64_t now_nsec) {
        if (t->removed > 0)
                while (drop_batch(t, now_nsec) > 0)
                        ;

        if (now_nsec < t->aged_nsec + AGE_INTERVAL_NSEC)
                return;
        if (t->aged_nsec > 0)
                hash_free(&t->beyond_before); /* those that still exist have been added by now */
        t->aged_nsec = now_nsec;

        size_t cursor = 0;
        for (struct cgroup *c; (c = hash_next(&t->by_key, &cursor));)
                for (size_t kind = 0; kind < DELAY_KIND_COUNT; kind++)
                        if (c->stats[kind])
                                delay_stats_age(c->stats[kind], now_nsec);
}

struct delay_stats *cgroup_stats(struct cgroup *cgroup, enum delay_kind kind) {
        if (!cgroup->stats[kind])
                (void) delay_stats_new(&cgroup->stats[kind]);

        return cgroup->stats[kind];
}

enum match { MATCH_NONE, MATCH_CONTAINER_PREFIX, MATCH_CONTAINER, MATCH_UNIT, MATCH_PATH };

static bool same(const char *a, const char *b) {
        return a && b && strcmp(a, b) == 0;
}

/*
 * How well the name fits. A unit's cgroup is the topmost one that belongs to it: below it may be
 * others of the same unit.
 */
static enum match match(const struct cgroup *c, const char *name, const char *unescaped) {
        static const struct cgroup_name nameless = {};
        const struct cgroup_name *own = &c->name, *above = c->parent ? &c->parent->name : &nameless;

        if (same(c->display, name) || same(c->path, name))
                return MATCH_PATH;

        if ((same(own->unit, name) || same(own->unit, unescaped)) && !same(own->unit, above->unit))
                return MATCH_UNIT;
        if ((same(own->slice, name) || same(own->slice, unescaped)) && !same(own->slice, above->slice))
                return MATCH_UNIT;

        if (!own->container_id || same(own->container_id, above->container_id))
                return MATCH_NONE;
        if (same(own->container_id, name) || same(own->container_id, unescaped))
                return MATCH_CONTAINER;
        if (strlen(name) >= CONTAINER_PREFIX_MIN && strncmp(own->container_id, name, strlen(name)) == 0)
                return MATCH_CONTAINER_PREFIX;

        return MATCH_NONE;
}

/* Above 0 if a is the better answer, 0 if both are equally good. */
static int compare_found(const struct cgroup *a, enum match match_a, const struct cgroup *b, enum match match_b) {
        if ((a->removed_nsec == 0) != (b->removed_nsec == 0))
                return a->removed_nsec == 0 ? 1 : -1;
        if (match_a != match_b)
                return match_a > match_b ? 1 : -1;
        if (a->removed_nsec != b->removed_nsec)
                return a->removed_nsec > b->removed_nsec ? 1 : -1;

        /* Two at one path: the removal of the earlier one has not been learnt yet. */
        if (match_a == MATCH_PATH || a->removed_nsec > 0)
                return a->added_nsec > b->added_nsec ? 1 : -1;

        return 0;
}

int cgroup_table_lookup(const struct cgroup_table *t, const char *name, struct cgroup **ret) {
        struct cgroup *best = NULL;
        enum match best_match = MATCH_NONE;
        bool ambiguous = false;
        size_t cursor = 0;

        _cleanup_free_ char *unescaped = text_unescape_unit(name);
        if (!unescaped || make_displayable(&unescaped) < 0)
                return -ENOMEM;

        for (struct cgroup *c; (c = hash_next(&t->by_key, &cursor));) {
                enum match m = match(c, name, unescaped);

                if (m == MATCH_NONE)
                        continue;

                int order = best ? compare_found(c, m, best, best_match) : 1;
                if (order > 0) {
                        best = c;
                        best_match = m;
                }
                if (order >= 0)
                        ambiguous = order == 0;
        }

        if (!best)
                return -ENOENT;
        if (ambiguous)
                return -ENOTUNIQ;

        *ret = best;
        return 0;
}

struct cgroup *cgroup_table_next(const struct cgroup_table *t, size_t *cursor) {
        return hash_next(&t->by_key, cursor);
}
