/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "core/state-stats.h"
#include "core/state-windows.h"

/* What follows; an end and nothing else ends the windows. */
enum {
        RECORD_END,
        RECORD_CGROUP,
        RECORD_GONE, /* history of a task that is gone, oldest first */
        RECORD_LIVE, /* of one that lives */
};

struct state_windows_writer {
        uint64_t gone_nsec; /* of the last history of those that is written */
        bool gone_done;

        uint64_t *keys;     /* of cgroups with waits */
        size_t n_keys;

        uint32_t *tids;     /* of tasks with histories */
        size_t n_tids;
};

static delay_kind_set kinds_of(struct delay_stats *const stats[static DELAY_KIND_COUNT]) {
        delay_kind_set kinds = 0;

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (stats[kind])
                        kinds |= DELAY_KIND_BIT(kind);

        return kinds;
}

static int list_keys(struct state_windows_writer *s, const struct cgroup_table *t) {
        size_t cursor = 0;

        s->keys = calloc(t->by_key.n + 1, sizeof(*s->keys));
        if (!s->keys)
                return -ENOMEM;

        for (const struct cgroup *c; (c = cgroup_table_next(t, &cursor));)
                if (kinds_of(c->stats) != 0)
                        s->keys[s->n_keys++] = c->key;
        if (kinds_of(t->other->stats) != 0)
                s->keys[s->n_keys++] = t->other->key;

        return 0;
}

static int list_tids(struct state_windows_writer *s, const struct task_table *t) {
        size_t cursor = 0, n = t->n_live < HISTORY_LIST_MAX ? t->n_live : HISTORY_LIST_MAX;

        s->tids = calloc(n + 1, sizeof(*s->tids));
        if (!s->tids)
                return -ENOMEM;

        for (const struct task *task; s->n_tids < n && (task = task_next(t, &cursor));)
                if (task->history)
                        s->tids[s->n_tids++] = task->tid;

        return 0;
}

int state_windows_begin(const struct accounting *a, struct state_windows_writer **ret) {
        struct state_windows_writer *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;

        if (list_keys(s, &a->cgroups) < 0 || list_tids(s, &a->tasks) < 0) {
                state_windows_end(s);
                return -ENOMEM;
        }

        *ret = s;
        return 0;
}

struct state_windows_writer *state_windows_end(struct state_windows_writer *s) {
        if (s) {
                free(s->keys);
                free(s->tids);
                free(s);
        }
        return NULL;
}

static void put_all_stats(struct state_writer *w, struct delay_stats *const stats[static DELAY_KIND_COUNT]) {
        state_put(w, kinds_of(stats));
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (stats[kind])
                        state_put_stats(w, stats[kind], true);
}

static int get_all_stats(
                struct state_reader *r, bool windows_only, uint64_t written_nsec,
                struct delay_stats *stats[static DELAY_KIND_COUNT]) {

        delay_kind_set kinds = (delay_kind_set) state_get_up_to(r, DELAY_KINDS_ALL);

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(kinds, kind)) {
                        int error = state_get_stats(r, true, windows_only, written_nsec, &stats[kind]);
                        if (error < 0)
                                return error;
                }

        return r->bad ? -EBADMSG : 0;
}

static struct cgroup *find_cgroup(const struct cgroup_table *t, uint64_t key) {
        return key == CGROUP_KEY_OTHER ? t->other : hash_get(&t->by_key, key);
}

static void put_cgroup(struct state_writer *w, const struct cgroup *cgroup) {
        state_put(w, RECORD_CGROUP);
        state_put(w, cgroup->key);
        put_all_stats(w, cgroup->stats);
}

static void put_history(struct state_writer *w, const struct task_history *history) {
        size_t comm_size = strnlen(history->comm, sizeof(history->comm) - 1);

        state_put(w, history->tid);
        state_put(w, history->tgid);
        state_put(w, history->uid);
        state_put(w, comm_size);
        state_put_bytes(w, history->comm, comm_size);
        state_put(w, history->cgroup->key);
        state_put(w, history->attribution);
        state_put(w, history->gone_nsec);
        put_all_stats(w, history->stats);
}

/* Those that are gone at the same moment go together, for the moment is all by which the next step finds its place. */
static bool put_gone(struct state_windows_writer *s, const struct history_list *list, size_t until, struct state_writer *w) {
        for (size_t i = 0; i < list->n; i++) {
                const struct task_history *history = list->items[i];

                if (history->gone_nsec <= s->gone_nsec)
                        continue;
                if (w->size >= until && (i == 0 || list->items[i - 1]->gone_nsec < history->gone_nsec)) {
                        s->gone_nsec = i > 0 ? list->items[i - 1]->gone_nsec : 0;
                        return false;
                }

                state_put(w, RECORD_GONE);
                put_history(w, history);
        }

        return true;
}

int state_windows_step(struct state_windows_writer *s, const struct accounting *a, size_t bytes, struct state_writer *w) {
        size_t until = bytes < SIZE_MAX - w->size ? w->size + bytes : SIZE_MAX;

        /* Histories of those that are gone come first, so that a task which goes between two steps is not there twice. */
        if (!s->gone_done) {
                s->gone_done = put_gone(s, &a->gone, until, w);
                if (!s->gone_done)
                        return 1;
        }

        while (s->n_tids > 0 && w->size < until) {
                const struct task *task = task_newest(&a->tasks, s->tids[--s->n_tids]);

                if (task && task->history) {
                        state_put(w, RECORD_LIVE);
                        state_put(w, task->start_min_nsec);
                        state_put(w, task->start_max_nsec);
                        put_history(w, task->history);
                }
        }

        while (s->n_keys > 0 && w->size < until) {
                const struct cgroup *cgroup = find_cgroup(&a->cgroups, s->keys[--s->n_keys]);

                if (cgroup)
                        put_cgroup(w, cgroup);
        }
        if (s->n_tids > 0 || s->n_keys > 0)
                return 1;

        state_put(w, RECORD_END);
        return 0;
}

/* What reading has found so far. */
struct windows_reader {
        struct state_reader *r;
        struct accounting *a;
        struct hash_table seen; /* cgroups whose windows are done */
        uint64_t written_nsec, saved_nsec;
};

/* What was counted for a kind that had no waits when the windows were saved was counted since then. */
static int get_cgroup(struct windows_reader *wr) {
        uint64_t key = state_get(wr->r);
        struct cgroup *cgroup = find_cgroup(&wr->a->cgroups, key);
        struct delay_stats *stats[DELAY_KIND_COUNT] = {};

        int error = get_all_stats(wr->r, false, wr->written_nsec, stats);
        if (error >= 0 && cgroup) {
                error = hash_put(&wr->seen, key, cgroup);
                error = error == -EEXIST ? -EBADMSG : error;
        }

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                /* A cgroup that is gone by the time of the counters is in none of them. */
                if (error >= 0 && cgroup && cgroup->stats[kind])
                        error = state_take_windows_of_stats(cgroup->stats[kind], stats[kind], wr->saved_nsec);
                delay_stats_free(stats[kind]);
        }

        return error;
}

/* The same for those that had no waits at all. */
static int fill_rest(struct windows_reader *wr) {
        size_t cursor = 0;

        for (struct cgroup *cgroup = wr->a->cgroups.other; cgroup; cgroup = cgroup_table_next(&wr->a->cgroups, &cursor)) {
                if (hash_get(&wr->seen, cgroup->key))
                        continue;

                for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                        if (cgroup->stats[kind]) {
                                int error = state_take_windows_of_stats(cgroup->stats[kind], NULL, wr->saved_nsec);
                                if (error < 0)
                                        return error;
                        }
        }

        return 0;
}

static void free_history(struct task_history **history) {
        task_history_free(*history);
}

static int get_history(struct state_reader *r, struct accounting *a, uint64_t written_nsec, struct task_history **ret) {
        _cleanup_(free_history) struct task_history *history = calloc(1, sizeof(*history));

        if (!history)
                return -ENOMEM;

        history->tid = (uint32_t) state_get_up_to(r, UINT32_MAX);
        history->tgid = (uint32_t) state_get_up_to(r, UINT32_MAX);
        history->uid = (uint32_t) state_get_up_to(r, UINT32_MAX);

        size_t comm_size = state_get_up_to(r, sizeof(history->comm) - 1);
        const void *comm = state_get_bytes(r, comm_size);
        uint64_t key = state_get(r);
        history->attribution = (uint8_t) state_get_up_to(r, ATTRIBUTION_SOURCE_COUNT - 1);
        history->gone_nsec = state_get_up_to(r, written_nsec);
        if (r->bad)
                return -EBADMSG;

        memcpy(history->comm, comm, comm_size);
        task_history_set_cgroup(history, cgroup_table_get(&a->cgroups, key));

        int error = get_all_stats(r, true, written_nsec, history->stats);
        if (error < 0)
                return error;

        *ret = TAKE_PTR(history);
        return 0;
}

static int get_gone(struct windows_reader *wr) {
        struct accounting *a = wr->a;
        uint64_t before = a->gone.n > 0 ? a->gone.items[a->gone.n - 1]->gone_nsec : 1;
        struct task_history *history;

        int error = get_history(wr->r, a, wr->written_nsec, &history);
        if (error < 0)
                return error;

        if (history->gone_nsec < before) {
                task_history_free(history);
                return -EBADMSG;
        }

        history_list_append(&a->gone, history);
        return 0;
}

/* The task may be gone by the time of the counters, and its TID another's. */
static int get_live(struct windows_reader *wr) {
        uint64_t start_min_nsec = state_get(wr->r), start_max_nsec = state_get(wr->r);
        struct task_history *history;

        int error = get_history(wr->r, wr->a, wr->written_nsec, &history);
        if (error < 0)
                return error;

        struct task *task = task_newest(&wr->a->tasks, history->tid);
        if (task && !task->history && task->start_min_nsec <= start_max_nsec && start_min_nsec <= task->start_max_nsec) {
                history->gone_nsec = 0;
                task->history = history;
        } else {
                history->gone_nsec = wr->saved_nsec;
                history_list_append(&wr->a->gone, history);
        }
        return 0;
}

static int get_record(struct windows_reader *wr, uint64_t type) {
        switch (type) {
        case RECORD_CGROUP:
                return get_cgroup(wr);
        case RECORD_GONE:
                return get_gone(wr);
        case RECORD_LIVE:
                return get_live(wr);
        default:
                return -EBADMSG;
        }
}

int state_get_windows(struct state_reader *r, struct accounting *a, uint64_t written_nsec, uint64_t saved_nsec) {
        struct windows_reader wr = { .r = r, .a = a, .written_nsec = written_nsec, .saved_nsec = saved_nsec };
        uint64_t type;
        int error = 0;

        while (error >= 0 && (type = state_get(r)) != RECORD_END)
                error = get_record(&wr, type);
        if (error >= 0)
                error = r->bad || r->p != r->end ? -EBADMSG : fill_rest(&wr);

        hash_free(&wr.seen);
        return error;
}
