/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "core/hash-table.h"
#include "core/query.h"

/* A query with its defaults filled in. */
struct plan {
        struct query query;
        uint64_t now_nsec;
        uint64_t window_nsec;
        bool sort_needs_histogram;
};

static struct plan make_plan(const struct accounting *a, uint64_t now_nsec, const struct query *query) {
        struct plan plan = {
                .query = *query,
                .now_nsec = now_nsec,
                .window_nsec = delay_window_nearest(query->window_nsec),
                .sort_needs_histogram = query->sort == QUERY_SORT_P50 || query->sort == QUERY_SORT_P90 ||
                                        query->sort == QUERY_SORT_P99,
        };

        if (plan.query.kinds == 0)
                plan.query.kinds = a->config.kinds;
        if (!delay_kind_in(plan.query.kinds, plan.query.sort_kind))
                plan.query.sort_kind = query_default_sort_kind(plan.query.kinds);
        return plan;
}

/* The waits of one kind in the window, and what is made of them. */
struct sum {
        struct delay_totals totals;
        struct histogram histogram;
};

static void sum_done(struct sum *sum) {
        histogram_free(&sum->histogram);
}

static int sum_load(const struct plan *plan, const struct delay_stats *stats, bool with_histogram, struct sum *sum) {
        *sum = (struct sum) {};
        if (!stats)
                return 0;

        return delay_stats_window(stats, plan->now_nsec, plan->window_nsec, &sum->totals,
                                  with_histogram ? &sum->histogram : NULL);
}

static int summarise(
                const struct plan *plan,
                const struct delay_stats *stats,
                bool with_histogram,
                struct delay_summary *ret) {

        _cleanup_(sum_done) struct sum sum;

        int r = sum_load(plan, stats, with_histogram, &sum);
        if (r < 0)
                return r;

        delay_summary_make(&sum.totals, &sum.histogram, ret);
        return 0;
}

static uint64_t sort_value(const struct plan *plan, const struct delay_summary *s) {
        switch (plan->query.sort) {
        case QUERY_SORT_TOTAL:
                return s->totals.total_nsec;
        case QUERY_SORT_WAITS:
                return s->totals.waits;
        case QUERY_SORT_MEAN:
                return s->mean_nsec;
        case QUERY_SORT_P50:
                return s->p50_nsec;
        case QUERY_SORT_P90:
                return s->p90_nsec;
        case QUERY_SORT_P99:
                return s->p99_nsec;
        case QUERY_SORT_MAX:
                return s->totals.max_nsec;
        case QUERY_SORT_NAME:
                return 0; /* all equal: the names decide */
        }

        return 0;
}

static size_t limit_rows(const struct plan *plan, size_t n) {
        return plan->query.limit > 0 && plan->query.limit < n ? plan->query.limit : n;
}

/* A cgroup on its way to a row: cheap to sort, so that quantiles are made only for the rows that are shown. */
struct node {
        const struct cgroup *cgroup;
        uint64_t value;   /* what is sorted by */
        unsigned depth;
        uint32_t tasks;
        uint32_t unaccounted_tasks;
        struct sum *sums; /* per kind; only in a recursive query */
};

struct node_list {
        struct node *nodes;
        struct sum *sums; /* DELAY_KIND_COUNT for each node */
        size_t n;
};

static void node_list_done(struct node_list *list) {
        for (size_t i = 0; list->sums && i < list->n * DELAY_KIND_COUNT; i++)
                sum_done(list->sums + i);
        free(list->sums);
        free(list->nodes);
}

static bool is_special(const struct accounting *a, const struct cgroup *cgroup) {
        return cgroup == a->cgroups.unattributed || cgroup == a->cgroups.overflow;
}

static int has_waits(const struct plan *plan, struct delay_stats *const stats[]) {
        for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                struct sum sum;

                if (!delay_kind_in(plan->query.kinds, kind) || !stats[kind])
                        continue;

                int r = sum_load(plan, stats[kind], false, &sum);
                if (r < 0)
                        return r;
                if (sum.totals.waits > 0 || sum.totals.rejected_waits > 0)
                        return true;
        }

        return false;
}

static int collect_nodes(const struct accounting *a, const struct plan *plan, struct node_list *list) {
        const struct cgroup *cgroup;
        size_t cursor = 0, n = 0;

        while (cgroup_table_next(&a->cgroups, &cursor))
                n++;

        list->nodes = calloc(n ?: 1, sizeof(*list->nodes));
        if (!list->nodes)
                return -ENOMEM;

        for (cursor = 0; list->n < n && (cgroup = cgroup_table_next(&a->cgroups, &cursor)); ) {
                if (is_special(a, cgroup)) {
                        int r = has_waits(plan, cgroup->stats);
                        if (r < 0)
                                return r;
                        if (!r)
                                continue;
                }

                struct node *node = list->nodes + list->n++;
                node->cgroup = cgroup;
                node->tasks = cgroup->tasks;
                node->unaccounted_tasks = cgroup->unaccounted_tasks;
                for (const struct cgroup *p = cgroup->parent; p; p = p->parent)
                        node->depth++;
        }

        return 0;
}

static int compare_depth(const void *a, const void *b) {
        const struct node *x = a, *y = b;

        return x->depth > y->depth ? -1 : x->depth < y->depth;
}

static int add_to_parent(const struct plan *plan, const struct node *node, struct node *parent) {
        for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                if (!delay_kind_in(plan->query.kinds, kind))
                        continue;

                int r = histogram_merge(&parent->sums[kind].histogram, &node->sums[kind].histogram);
                if (r < 0)
                        return r;

                delay_totals_merge(&parent->sums[kind].totals, &node->sums[kind].totals);
        }

        parent->tasks += node->tasks;
        parent->unaccounted_tasks += node->unaccounted_tasks;
        return 0;
}

/* Adds every cgroup once to its parent, the deepest ones first, so that each then holds its whole subtree. */
static int sum_subtrees(const struct plan *plan, struct node_list *list) {
        _cleanup_(hash_free) struct hash_table by_key = {};
        int r;

        list->sums = calloc(list->n * DELAY_KIND_COUNT ?: 1, sizeof(*list->sums));
        if (!list->sums)
                return -ENOMEM;

        qsort(list->nodes, list->n, sizeof(*list->nodes), compare_depth);

        for (size_t i = 0; i < list->n; i++) {
                struct node *node = list->nodes + i;

                node->sums = list->sums + i * DELAY_KIND_COUNT;
                for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++)
                        if (delay_kind_in(plan->query.kinds, kind)) {
                                r = sum_load(plan, node->cgroup->stats[kind], true, node->sums + kind);
                                if (r < 0)
                                        return r;
                        }

                r = hash_put(&by_key, node->cgroup->key, node);
                if (r < 0)
                        return r;
        }

        for (size_t i = 0; i < list->n; i++) {
                const struct node *node = list->nodes + i;
                struct node *parent = node->cgroup->parent ? hash_get(&by_key, node->cgroup->parent->key) : NULL;

                if (parent) {
                        r = add_to_parent(plan, node, parent);
                        if (r < 0)
                                return r;
                }
        }

        return 0;
}

/* What a node is sorted by: the subtree where there is one. */
static int summarise_for_sort(const struct plan *plan, const struct node *node, struct delay_summary *ret) {
        enum delay_kind kind = plan->query.sort_kind;

        if (!node->sums)
                return summarise(plan, node->cgroup->stats[kind], plan->sort_needs_histogram, ret);

        delay_summary_make(&node->sums[kind].totals, &node->sums[kind].histogram, ret);
        return 0;
}

static int compare_nodes(const void *a, const void *b) {
        const struct node *x = a, *y = b;

        if (x->value != y->value)
                return x->value > y->value ? -1 : 1;

        int r = strcmp(x->cgroup->display, y->cgroup->display);
        if (r != 0)
                return r;

        /* The same path again: the one that exists, then the newest. */
        if (!x->cgroup->removed_nsec != !y->cgroup->removed_nsec)
                return x->cgroup->removed_nsec ? 1 : -1;
        if (x->cgroup->added_nsec != y->cgroup->added_nsec)
                return x->cgroup->added_nsec > y->cgroup->added_nsec ? -1 : 1;
        return x->cgroup->key > y->cgroup->key ? -1 : x->cgroup->key < y->cgroup->key;
}

static int sort_nodes(const struct plan *plan, struct node_list *list) {
        for (size_t i = 0; i < list->n && plan->query.sort != QUERY_SORT_NAME; i++) {
                struct delay_summary summary;

                int r = summarise_for_sort(plan, list->nodes + i, &summary);
                if (r < 0)
                        return r;

                list->nodes[i].value = sort_value(plan, &summary);
        }

        qsort(list->nodes, list->n, sizeof(*list->nodes), compare_nodes);
        return 0;
}

static int fill_row(
                const struct plan *plan, const struct node *node, struct cgroup_row *row, struct cgroup_subtree *subtree) {

        row->cgroup = node->cgroup;
        row->subtree = subtree;
        if (subtree) {
                subtree->tasks = node->tasks;
                subtree->unaccounted_tasks = node->unaccounted_tasks;
        }

        for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                if (!delay_kind_in(plan->query.kinds, kind))
                        continue;

                int r = summarise(plan, node->cgroup->stats[kind], true, row->delays + kind);
                if (r < 0)
                        return r;
                if (subtree)
                        delay_summary_make(&node->sums[kind].totals, &node->sums[kind].histogram, subtree->delays + kind);
        }

        return 0;
}

int query_cgroups(
                const struct accounting *a,
                uint64_t now_nsec,
                const struct query *query,
                uint64_t *ret_window_nsec,
                struct cgroup_row **ret_rows,
                size_t *ret_n) {

        struct plan plan = make_plan(a, now_nsec, query);
        _cleanup_(node_list_done) struct node_list list = {};
        _cleanup_free_ struct cgroup_row *rows = NULL;

        int r = collect_nodes(a, &plan, &list);
        if (r >= 0 && plan.query.recursive)
                r = sum_subtrees(&plan, &list);
        if (r >= 0)
                r = sort_nodes(&plan, &list);
        if (r < 0)
                return r;

        /* One block: the subtrees lie behind the rows. */
        size_t n = limit_rows(&plan, list.n);
        rows = calloc(n ?: 1, sizeof(*rows) + (plan.query.recursive ? sizeof(struct cgroup_subtree) : 0));
        if (!rows)
                return -ENOMEM;

        struct cgroup_subtree *subtrees = plan.query.recursive ? (struct cgroup_subtree *) (rows + n) : NULL;
        for (size_t i = 0; i < n; i++) {
                r = fill_row(&plan, list.nodes + i, rows + i, subtrees ? subtrees + i : NULL);
                if (r < 0)
                        return r;
        }

        *ret_window_nsec = plan.window_nsec;
        *ret_rows = TAKE_PTR(rows);
        *ret_n = n;
        return 0;
}

/* A task on its way to a row. */
struct candidate {
        const struct task_history *history;
        const struct cgroup *cgroup;
        enum attribution_source attribution;
        uint64_t value;
};

struct candidate_list {
        struct candidate *candidates;
        size_t n, allocated;
};

static void candidate_list_done(struct candidate_list *list) {
        free(list->candidates);
}

static int add_candidate(
                const struct plan *plan,
                const struct task_history *history,
                const struct cgroup *cgroup,
                enum attribution_source attribution,
                struct candidate_list *list) {

        if (plan->query.only_uid && history->uid != plan->query.uid)
                return 0;

        int r = has_waits(plan, history->stats);
        if (r <= 0)
                return r;

        if (list->n == list->allocated) {
                size_t n = list->allocated > 0 ? list->allocated * 2 : 64;
                struct candidate *p = reallocarray(list->candidates, n, sizeof(*p));
                if (!p)
                        return -ENOMEM;

                list->candidates = p;
                list->allocated = n;
        }

        list->candidates[list->n++] = (struct candidate) {
                .history = history,
                .cgroup = cgroup,
                .attribution = attribution,
        };
        return 0;
}

static int collect_candidates(const struct accounting *a, const struct plan *plan, struct candidate_list *list) {
        const struct task *newest;
        size_t cursor = 0;
        int r;

        while ((newest = hash_next(&a->tasks.by_tid, &cursor)))
                for (const struct task *task = newest; task; task = task->older) {
                        /* Once a task is gone, its history is found among the gone ones. */
                        if (!task->history || task->history->gone_nsec > 0)
                                continue;

                        r = add_candidate(plan, task->history, task->cgroup ?: task->history->cgroup,
                                          task->attribution, list);
                        if (r < 0)
                                return r;
                }

        for (size_t i = 0; i < a->gone.n; i++) {
                const struct task_history *gone = a->gone.items[i];

                r = add_candidate(plan, gone, gone->cgroup, gone->attribution, list);
                if (r < 0)
                        return r;
        }

        return 0;
}

static int compare_candidates(const void *a, const void *b, void *userdata) {
        const struct candidate *x = a, *y = b;
        const struct plan *plan = userdata;

        if (x->value != y->value)
                return x->value > y->value ? -1 : 1;

        if (plan->query.sort == QUERY_SORT_NAME) {
                int r = strncmp(x->history->comm, y->history->comm, sizeof(x->history->comm));
                if (r != 0)
                        return r;
        }

        if (x->history->tid != y->history->tid)
                return x->history->tid < y->history->tid ? -1 : 1;

        /* One TID used twice: the living one, then the one that went last. */
        uint64_t gone_x = x->history->gone_nsec ?: UINT64_MAX, gone_y = y->history->gone_nsec ?: UINT64_MAX;
        return gone_x > gone_y ? -1 : gone_x < gone_y;
}

static int sort_candidates(const struct plan *plan, struct candidate_list *list) {
        for (size_t i = 0; i < list->n && plan->query.sort != QUERY_SORT_NAME; i++) {
                const struct delay_stats *stats = list->candidates[i].history->stats[plan->query.sort_kind];
                struct delay_summary summary;

                int r = summarise(plan, stats, plan->sort_needs_histogram, &summary);
                if (r < 0)
                        return r;

                list->candidates[i].value = sort_value(plan, &summary);
        }

        if (list->n > 0)
                qsort_r(list->candidates, list->n, sizeof(*list->candidates), compare_candidates, (void *) plan);
        return 0;
}

static int fill_task_row(const struct plan *plan, const struct candidate *candidate, struct task_row *row) {
        const struct task_history *h = candidate->history;

        row->tid = h->tid;
        row->tgid = h->tgid;
        row->uid = h->uid;
        row->comm = h->comm;
        row->cgroup = candidate->cgroup;
        row->attribution = candidate->attribution;
        row->alive = h->gone_nsec == 0;

        for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(plan->query.kinds, kind)) {
                        int r = summarise(plan, h->stats[kind], true, row->delays + kind);
                        if (r < 0)
                                return r;
                }

        return 0;
}

int query_tasks(
                const struct accounting *a,
                uint64_t now_nsec,
                const struct query *query,
                uint64_t *ret_window_nsec,
                struct task_row **ret_rows,
                size_t *ret_n) {

        struct plan plan = make_plan(a, now_nsec, query);
        _cleanup_(candidate_list_done) struct candidate_list list = {};
        _cleanup_free_ struct task_row *rows = NULL;

        int r = collect_candidates(a, &plan, &list);
        if (r >= 0)
                r = sort_candidates(&plan, &list);
        if (r < 0)
                return r;

        size_t n = limit_rows(&plan, list.n);
        rows = calloc(n ?: 1, sizeof(*rows));
        if (!rows)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++) {
                r = fill_task_row(&plan, list.candidates + i, rows + i);
                if (r < 0)
                        return r;
        }

        *ret_window_nsec = plan.window_nsec;
        *ret_rows = TAKE_PTR(rows);
        *ret_n = n;
        return 0;
}

static bool is_below(const struct cgroup *cgroup, const struct cgroup *ancestor) {
        for (const struct cgroup *p = cgroup->parent; p; p = p->parent)
                if (p == ancestor)
                        return true;

        return false;
}

int query_histogram(
                const struct accounting *a,
                uint64_t now_nsec,
                const struct cgroup *cgroup,
                enum delay_kind kind,
                uint64_t window_nsec,
                bool recursive,
                uint64_t *ret_window_nsec,
                struct delay_totals *ret_totals,
                struct histogram *ret_histogram) {

        struct plan plan = make_plan(a, now_nsec, &(struct query) { .window_nsec = window_nsec });
        _cleanup_(sum_done) struct sum sum = {};
        const struct cgroup *other;
        size_t cursor = 0;

        int r = sum_load(&plan, cgroup->stats[kind], true, &sum);
        if (r < 0)
                return r;

        while (recursive && (other = cgroup_table_next(&a->cgroups, &cursor))) {
                _cleanup_(sum_done) struct sum part = {};

                if (!other->stats[kind] || !is_below(other, cgroup))
                        continue;

                r = sum_load(&plan, other->stats[kind], true, &part);
                if (r >= 0)
                        r = histogram_merge(&sum.histogram, &part.histogram);
                if (r < 0)
                        return r;

                delay_totals_merge(&sum.totals, &part.totals);
        }

        *ret_window_nsec = plan.window_nsec;
        *ret_totals = sum.totals;
        *ret_histogram = sum.histogram;
        sum.histogram = (struct histogram) {};
        return 0;
}
