/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "serve/exposition.h"
#include "serve/metrics-cgroups.h"

#define FAMILY_NAME_SIZE 64

/* A cgroup with its label, escaped once for all of its series. */
struct series {
        const struct cgroup *cgroup;
        size_t label_at;
        size_t label_size;
};

/* What one scrape prepares once: the cgroups in a stable order, and all texts that repeat. */
struct scrape {
        const struct view *view;
        struct series *series;
        size_t n_series;
        struct buffer labels;
        struct buffer bounds;  /* each `0.5"} `, with where it ends in bound_ends */
        size_t *bound_ends;
        uint64_t other_tasks, other_unaccounted_tasks; /* in cgroups without series of their own */
};

static void scrape_done(struct scrape *s) {
        free(s->series);
        free(s->bound_ends);
        buffer_free(&s->labels);
        buffer_free(&s->bounds);
}

static int compare_series(const void *a, const void *b) {
        const struct cgroup *x = ((const struct series *) a)->cgroup, *y = ((const struct series *) b)->cgroup;

        int r = strcmp(x->display, y->display);
        if (r != 0)
                return r;

        /* Equal labels: the cgroup that exists comes first, then the one removed last. */
        uint64_t removed_x = x->removed_nsec ?: UINT64_MAX, removed_y = y->removed_nsec ?: UINT64_MAX;
        if (removed_x != removed_y)
                return removed_x > removed_y ? -1 : 1;
        if (x->added_nsec != y->added_nsec)
                return x->added_nsec > y->added_nsec ? -1 : 1;
        return x->key > y->key ? -1 : x->key < y->key;
}

static bool is_special(const struct cgroup_table *t, const struct cgroup *cgroup) {
        return cgroup == t->unattributed || cgroup == t->overflow || cgroup == t->other;
}

static int collect_series(struct scrape *s) {
        const struct cgroup_table *t = &s->view->accounting->cgroups;
        const struct cgroup *cgroup;
        size_t cursor = 0, n = 0, allocated = t->exported + 3;

        s->series = calloc(allocated, sizeof(*s->series));
        if (!s->series)
                return -ENOMEM;

        while ((cgroup = cgroup_table_next(t, &cursor))) {
                if (!cgroup->exported && !is_special(t, cgroup)) {
                        s->other_tasks += cgroup->tasks;
                        s->other_unaccounted_tasks += cgroup->unaccounted_tasks;
                        continue;
                }

                if (n + 1 == allocated) {
                        struct series *p = reallocarray(s->series, allocated * 2, sizeof(*p));
                        if (!p)
                                return -ENOMEM;
                        s->series = p;
                        allocated *= 2;
                }
                s->series[n++] = (struct series) { .cgroup = cgroup };
        }

        /* From the first cgroup on that has no series of its own. Its numbers never go down, whoever comes and goes. */
        if (t->other->exported && n < allocated)
                s->series[n++] = (struct series) { .cgroup = t->other };

        qsort(s->series, n, sizeof(*s->series), compare_series);

        /* A path that was used twice must not give two series with equal labels: Prometheus would refuse them. */
        for (size_t i = 0; i < n; i++)
                if (s->n_series == 0 ||
                    strcmp(s->series[s->n_series - 1].cgroup->display, s->series[i].cgroup->display) != 0)
                        s->series[s->n_series++] = s->series[i];

        for (size_t i = 0; i < s->n_series; i++) {
                s->series[i].label_at = s->labels.size;
                exposition_label_value(&s->labels, s->series[i].cgroup->display);
                s->series[i].label_size = s->labels.size - s->series[i].label_at;
        }

        return s->labels.failed ? -ENOMEM : 0;
}

static int prepare_bounds(struct scrape *s) {
        s->bound_ends = calloc(s->view->n_buckets + 1, sizeof(*s->bound_ends));
        if (!s->bound_ends)
                return -ENOMEM;

        for (unsigned i = 0; i < s->view->n_buckets; i++) {
                char bound[EXPOSITION_BOUND_SIZE];

                buffer_add_string(&s->bounds, exposition_bound(bound, s->view->bucket_bounds_sec[i]));
                buffer_add_string(&s->bounds, "\"} ");
                s->bound_ends[i] = s->bounds.size;
        }

        return s->bounds.failed ? -ENOMEM : 0;
}

/* Everything up to and with the value of the label "cgroup". */
static void add_name_and_cgroup(
                const struct scrape *s, const struct series *series, const char *name, const char *suffix, struct buffer *b) {

        buffer_add_string(b, name);
        buffer_add_string(b, suffix);
        buffer_add_string(b, "{cgroup=\"");
        buffer_add(b, s->labels.data + series->label_at, series->label_size);
}

static void render_buckets(
                const struct scrape *s,
                const struct series *series,
                const char *name,
                const struct histogram *h,
                uint64_t waits,
                struct buffer *b) {

        size_t line = b->size;
        add_name_and_cgroup(s, series, name, "_bucket", b);
        buffer_add_string(b, "\",le=\"");
        size_t head_size = b->size - line;

        /* The first line's beginning is there; each next line copies it. One reservation covers them all. */
        size_t most = (head_size + EXPOSITION_BOUND_SIZE + 32) * (s->view->n_buckets + 1);
        if (!buffer_reserve(b, most))
                return;

        uint64_t sum = 0;
        unsigned bucket = h ? h->first : 0, end = h ? (unsigned) h->first + h->n : 0;

        for (unsigned i = 0; i < s->view->n_buckets; i++) {
                size_t bound_at = i > 0 ? s->bound_ends[i - 1] : 0;

                for (; bucket < end && bucket <= s->view->bucket_indices[i]; bucket++)
                        sum += h->counts[bucket - h->first];

                buffer_add(b, s->bounds.data + bound_at, s->bound_ends[i] - bound_at);
                buffer_u64(b, sum);
                buffer_add_char(b, '\n');
                buffer_add(b, b->data + line, head_size);
        }

        buffer_add_string(b, "+Inf\"} ");
        buffer_u64(b, waits);
        buffer_add_char(b, '\n');
}

static void render_histograms(const struct scrape *s, enum delay_kind kind, struct buffer *b) {
        static const char *const help[DELAY_KIND_COUNT] = {
                [DELAY_CPU] = "Waits of tasks for a CPU while runnable.",
                [DELAY_BLKIO] = "Waits of tasks for block I/O.",
                [DELAY_SWAPIN] = "Waits of tasks for pages to be swapped in.",
                [DELAY_FREEPAGES] = "Waits of tasks for memory in direct reclaim.",
                [DELAY_THRASHING] = "Waits of tasks for pages that were evicted a moment before.",
                [DELAY_COMPACT] = "Waits of tasks for memory in direct compaction.",
                [DELAY_WPCOPY] = "Waits of tasks for copies of write-protected pages.",
                [DELAY_IRQ] = "Time that interrupts took from tasks.",
        };
        char name[FAMILY_NAME_SIZE];

        snprintf(name, sizeof(name), "delayd_cgroup_%s_delay_seconds", delay_kind_name(kind));
        exposition_family(b, name, "histogram", help[kind]);

        for (size_t i = 0; i < s->n_series; i++) {
                const struct delay_stats *stats = s->series[i].cgroup->stats[kind];
                uint64_t waits = stats ? stats->totals.waits : 0;

                render_buckets(s, s->series + i, name, stats ? &stats->histogram : NULL, waits, b);

                add_name_and_cgroup(s, s->series + i, name, "_sum", b);
                buffer_add_string(b, "\"} ");
                buffer_seconds(b, stats ? stats->totals.total_nsec : 0);
                buffer_add_char(b, '\n');

                add_name_and_cgroup(s, s->series + i, name, "_count", b);
                buffer_add_string(b, "\"} ");
                buffer_u64(b, waits);
                buffer_add_char(b, '\n');
        }
}

static void render_rejected(const struct scrape *s, struct buffer *b) {
        static const char name[] = "delayd_cgroup_rejected_waits_total";

        exposition_family(b, name, "counter",
                          "Waits with impossible lengths that were refused and are in no other number of the cgroup.");

        for (size_t i = 0; i < s->n_series; i++)
                for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                        const struct delay_stats *stats = s->series[i].cgroup->stats[kind];

                        if (!delay_kind_in(s->view->accounting->config.kinds, kind))
                                continue;

                        add_name_and_cgroup(s, s->series + i, name, "", b);
                        buffer_add_string(b, "\",kind=\"");
                        buffer_add_string(b, delay_kind_name(kind));
                        buffer_add_string(b, "\"} ");
                        buffer_u64(b, stats ? stats->totals.rejected_waits : 0);
                        buffer_add_char(b, '\n');
                }
}

static void render_tasks(const struct scrape *s, struct buffer *b) {
        const struct cgroup *other = s->view->accounting->cgroups.other;

        exposition_family(b, "delayd_cgroup_tasks", "gauge", "Live tasks in the cgroup itself, without its descendants.");
        for (size_t i = 0; i < s->n_series; i++) {
                add_name_and_cgroup(s, s->series + i, "delayd_cgroup_tasks", "", b);
                buffer_add_string(b, "\"} ");
                buffer_u64(b, s->series[i].cgroup == other ? s->other_tasks : s->series[i].cgroup->tasks);
                buffer_add_char(b, '\n');
        }

        exposition_family(b, "delayd_cgroup_unaccounted_tasks", "gauge",
                          "Of these, tasks whose delays the kernel does not measure because "
                          "kernel.task_delayacct was 0 when they were forked.");
        for (size_t i = 0; i < s->n_series; i++) {
                add_name_and_cgroup(s, s->series + i, "delayd_cgroup_unaccounted_tasks", "", b);
                buffer_add_string(b, "\"} ");
                buffer_u64(b, s->series[i].cgroup == other ? s->other_unaccounted_tasks
                                                           : s->series[i].cgroup->unaccounted_tasks);
                buffer_add_char(b, '\n');
        }
}

static void add_info_label(struct buffer *b, const char *label, const char *value) {
        if (!value || !*value)
                return; /* an empty label and none are the same to Prometheus */

        buffer_add_string(b, "\",");
        buffer_add_string(b, label);
        buffer_add_string(b, "=\"");
        exposition_label_value(b, value);
}

static void render_info(const struct scrape *s, struct buffer *b) {
        exposition_family(b, "delayd_cgroup_info", "gauge", "1, with what the path of the cgroup says about it.");

        for (size_t i = 0; i < s->n_series; i++) {
                const struct cgroup *cgroup = s->series[i].cgroup;

                if (is_special(&s->view->accounting->cgroups, cgroup))
                        continue;

                add_name_and_cgroup(s, s->series + i, "delayd_cgroup_info", "", b);
                add_info_label(b, "unit", cgroup->name.unit);
                add_info_label(b, "slice", cgroup->name.slice);
                add_info_label(b, "container_id", cgroup->name.container_id);
                add_info_label(b, "pod_uid", cgroup->name.pod_uid);
                buffer_add_string(b, "\"} 1\n");
        }
}

int metrics_render_cgroups(const struct view *view, struct buffer *b) {
        _cleanup_(scrape_done) struct scrape s = { .view = view };

        int r = collect_series(&s);
        if (r >= 0)
                r = prepare_bounds(&s);
        if (r < 0)
                return r;

        for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(view->accounting->config.kinds, kind))
                        render_histograms(&s, kind, b);

        render_rejected(&s, b);
        render_tasks(&s, b);
        render_info(&s, b);
        return 0;
}
