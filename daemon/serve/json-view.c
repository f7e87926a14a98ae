/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include "cleanup.h"
#include "serve/json-build.h"
#include "serve/json-view.h"

static void add_quantiles(struct json_object *object, const struct delay_summary *s, bool *failed) {
        bool known = s->totals.waits > 0;

        json_add_u64_or_null(object, "mean_nsec", s->mean_nsec, known, failed);
        json_add_u64_or_null(object, "p50_nsec", s->p50_nsec, known, failed);
        json_add_u64_or_null(object, "p90_nsec", s->p90_nsec, known, failed);
        json_add_u64_or_null(object, "p99_nsec", s->p99_nsec, known, failed);
        json_add_u64_or_null(object, "max_nsec", s->totals.max_nsec, known, failed);
        json_add_u64(object, "rejected_waits", s->totals.rejected_waits, failed);
        json_add_u64(object, "without_io_waits", s->totals.without_io_waits, failed);
        json_add_u64(object, "exact_waits", s->totals.exact_waits, failed);
}

static void add_delays(
                struct json_object *row, const struct delay_summary delays[], delay_kind_set kinds, bool *failed) {

        for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT && !*failed; kind++) {
                if (!delay_kind_in(kinds, kind))
                        continue;

                struct json_object *object = json_add_object(row, delay_kind_name(kind), failed);
                if (!object)
                        return;

                json_add_u64(object, "waits", delays[kind].totals.waits, failed);
                json_add_u64(object, "total_nsec", delays[kind].totals.total_nsec, failed);
                add_quantiles(object, delays + kind, failed);
        }
}

/* The cgroup and all below it: apart, so that nobody adds up what is in it already. */
static void add_subtree(
                struct json_object *row, const struct cgroup_subtree *subtree, delay_kind_set kinds, bool *failed) {

        struct json_object *object = json_add_object(row, "subtree", failed);
        if (!object)
                return;

        json_add_u64(object, "tasks", subtree->tasks, failed);
        json_add_u64(object, "unaccounted_tasks", subtree->unaccounted_tasks, failed);
        add_delays(object, subtree->delays, kinds, failed);
}

static void add_cgroup_row(struct json_object *row, const struct cgroup_row *r, delay_kind_set kinds, bool *failed) {
        const struct cgroup *cgroup = r->cgroup;

        json_add_string(row, "cgroup", cgroup->display, failed);
        json_add_string(row, "unit", cgroup->name.unit, failed);
        json_add_string(row, "container_id", cgroup->name.container_id, failed);
        json_add_string(row, "slice", cgroup->name.slice, failed);
        json_add_string(row, "pod_uid", cgroup->name.pod_uid, failed);
        json_add_bool(row, "removed", cgroup->removed_nsec > 0, failed);
        json_add_u64(row, "tasks", cgroup->tasks, failed);
        json_add_u64(row, "unaccounted_tasks", cgroup->unaccounted_tasks, failed);
        add_delays(row, r->delays, kinds, failed);
        if (r->subtree)
                add_subtree(row, r->subtree, kinds, failed);
}

static delay_kind_set kinds_of(const struct view *view, const struct query *query) {
        return query->kinds ?: view->accounting->config.kinds;
}

int json_cgroups(const struct view *view, const struct query *query, struct json_object **ret) {
        _cleanup_json_ struct json_object *object = json_object_new_object();
        _cleanup_free_ struct cgroup_row *rows = NULL;
        struct json_object *array;
        uint64_t window_nsec;
        bool failed = false;
        size_t n;

        if (!object)
                return -ENOMEM;

        int r = query_cgroups(view->accounting, view->now_nsec(view->userdata), query, &window_nsec, &rows, &n);
        if (r < 0)
                return r;

        json_add_u64(object, "window_nsec", window_nsec, &failed);
        array = json_add_array(object, "cgroups", &failed);

        for (size_t i = 0; i < n && !failed; i++) {
                struct json_object *row = json_append_object(array, &failed);
                if (row)
                        add_cgroup_row(row, rows + i, kinds_of(view, query), &failed);
        }

        return json_finish(&object, failed, ret);
}

static void add_task_row(struct json_object *row, const struct task_row *r, delay_kind_set kinds, bool *failed) {
        json_add_u64(row, "tid", r->tid, failed);
        json_add_u64_or_null(row, "tgid", r->tgid, r->tgid > 0, failed);
        json_add_raw(row, "comm", r->comm, strnlen(r->comm, TASK_COMM_SIZE), failed);
        json_add_string(row, "cgroup", r->cgroup ? r->cgroup->display : NULL, failed);
        json_add_bool(row, "alive", r->alive, failed);
        add_delays(row, r->delays, kinds, failed);
        json_add_u64(row, "uid", r->uid, failed);
        json_add_string(row, "attribution", attribution_source_name(r->attribution), failed);
}

int json_tasks(const struct view *view, const struct query *query, struct json_object **ret) {
        _cleanup_json_ struct json_object *object = json_object_new_object();
        _cleanup_free_ struct task_row *rows = NULL;
        struct json_object *array;
        uint64_t window_nsec;
        bool failed = false;
        size_t n;

        if (!object)
                return -ENOMEM;

        int r = query_tasks(view->accounting, view->now_nsec(view->userdata), query, &window_nsec, &rows, &n);
        if (r < 0)
                return r;

        json_add_u64(object, "window_nsec", window_nsec, &failed);
        array = json_add_array(object, "tasks", &failed);

        for (size_t i = 0; i < n && !failed; i++) {
                struct json_object *row = json_append_object(array, &failed);
                if (row)
                        add_task_row(row, rows + i, kinds_of(view, query), &failed);
        }

        return json_finish(&object, failed, ret);
}

static void add_buckets(struct json_object *object, const struct histogram *h, bool *failed) {
        struct json_object *array = json_add_array(object, "buckets", failed);

        for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT && !*failed; i++) {
                struct json_object *bucket = json_append_object(array, failed);
                if (!bucket)
                        return;

                json_add_u64_or_null(bucket, "le_nsec", histogram_bucket_upper_nsec(i), i + 1 < HISTOGRAM_BUCKET_COUNT, failed);
                json_add_u64(bucket, "waits", histogram_get(h, i), failed);
        }
}

int json_histogram(
                const struct view *view,
                const char *cgroup,
                enum delay_kind kind,
                uint64_t window_nsec,
                bool recursive,
                struct json_object **ret) {

        _cleanup_json_ struct json_object *object = json_object_new_object();
        _cleanup_(histogram_free) struct histogram histogram = {};
        struct delay_summary summary;
        struct delay_totals totals;
        struct cgroup *found;
        bool failed = false;

        if (!object)
                return -ENOMEM;

        int r = cgroup_table_lookup(&view->accounting->cgroups, cgroup, &found);
        if (r < 0)
                return r;

        r = query_histogram(view->accounting, view->now_nsec(view->userdata), found, kind, window_nsec, recursive,
                            &window_nsec, &totals, &histogram);
        if (r < 0)
                return r;

        delay_summary_make(&totals, &histogram, &summary);

        json_add_string(object, "cgroup", found->display, &failed);
        json_add_string(object, "kind", delay_kind_name(kind), &failed);
        json_add_u64(object, "window_nsec", window_nsec, &failed);
        json_add_u64(object, "waits", totals.waits, &failed);
        json_add_u64(object, "total_nsec", totals.total_nsec, &failed);
        add_buckets(object, &histogram, &failed);
        add_quantiles(object, &summary, &failed);
        if (recursive)
                json_add_bool(object, "recursive", true, &failed);
        return json_finish(&object, failed, ret);
}
