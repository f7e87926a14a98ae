/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include "serve/json-build.h"
#include "serve/json-view.h"

static void add_raw_or_null(struct json_object *object, const char *name, const char *value, bool *failed) {
        if (value)
                json_add_raw(object, name, value, strlen(value), failed);
        else
                json_add_null(object, name, failed);
}

static void add_problems(struct json_object *object, const struct health *health, bool *failed) {
        struct json_object *array = json_add_array(object, "problems", failed);

        for (const struct problem *p = health->problems; p && !*failed; p = p->next) {
                struct json_object *problem = json_append_object(array, failed);
                if (!problem)
                        return;

                json_add_string(problem, "id", p->id, failed);
                add_raw_or_null(problem, "message", p->message, failed);
                add_raw_or_null(problem, "remedy", p->remedy, failed);
                json_add_string(problem, "severity", p->severity == PROBLEM_FAILING ? "failing" : "degraded", failed);
        }
}

static void add_kernel(struct json_object *object, const struct status_facts *facts, bool *failed) {
        static const char *const words[] = {
                [TRISTATE_OFF] = "off",
                [TRISTATE_ON] = "on",
                [TRISTATE_UNKNOWN] = "unknown",
        };

        struct json_object *kernel = json_add_object(object, "kernel", failed);
        if (!kernel)
                return;

        add_raw_or_null(kernel, "release", facts->kernel_release, failed);
        json_add_u64_or_null(kernel, "taskstats_version", facts->taskstats_version, facts->taskstats_version > 0, failed);
        json_add_bool(kernel, "task_delayacct", facts->task_delayacct, failed);
        json_add_string(kernel, "delayed_dequeue", words[facts->delayed_dequeue], failed);
        add_raw_or_null(kernel, "cgroup_hierarchy", facts->cgroup_hierarchy, failed);
}

static void add_exits(
                struct json_object *object, const struct accounting *a, const struct status_facts *facts, bool *failed) {

        struct json_object *attributed, *exits = json_add_object(object, "exits", failed);
        if (!exits)
                return;

        json_add_u64(exits, "received", facts->exits_received, failed);
        json_add_u64(exits, "lost", facts->exits_lost, failed);
        json_add_string(exits, "filter", facts->exit_filter ? "on" : "off", failed);

        attributed = json_add_object(exits, "attributed", failed);
        for (enum attribution_source source = 0; source < ATTRIBUTION_SOURCE_COUNT && !*failed; source++)
                json_add_u64(attributed, attribution_source_name(source), a->attributed[source], failed);
}

static void add_samples(struct json_object *object, const struct accounting *a, bool *failed) {
        struct json_object *reasons, *samples = json_add_object(object, "samples", failed);
        uint64_t rejected = 0;

        if (!samples)
                return;

        for (enum reject_reason reason = 0; reason < REJECT_REASON_COUNT; reason++)
                rejected += a->rejected_samples[reason];

        json_add_u64(samples, "accepted", a->accepted_samples, failed);
        json_add_u64(samples, "rejected", rejected, failed);

        reasons = json_add_object(samples, "reasons", failed);
        for (enum reject_reason reason = 0; reason < REJECT_REASON_COUNT && !*failed; reason++)
                json_add_u64(reasons, reject_reason_name(reason), a->rejected_samples[reason], failed);
}

static void add_polling(
                struct json_object *object, const struct accounting *a, const struct status_facts *facts, bool *failed) {

        struct json_object *polling = json_add_object(object, "polling", failed);
        if (!polling)
                return;

        json_add_u64(polling, "interval_nsec", facts->poll_interval_nsec, failed);
        json_add_u64(polling, "tasks", a->tasks.n_live, failed);
        json_add_u64(polling, "last_duration_nsec", facts->last_poll_nsec, failed);
}

static void add_cgroups(struct json_object *object, const struct cgroup_table *t, bool *failed) {
        struct json_object *cgroups = json_add_object(object, "cgroups", failed);
        if (!cgroups)
                return;

        json_add_u64(cgroups, "tracked", t->tracked, failed);
        json_add_u64(cgroups, "removed", t->removed, failed);
        json_add_u64(cgroups, "overflowed", t->overflowed, failed);
}

int json_status(const struct view *view, struct json_object **ret) {
        _cleanup_json_ struct json_object *object = json_object_new_object();
        struct status_facts facts = {};
        bool failed = false;

        if (!object)
                return -ENOMEM;

        view->fill_status(&facts, view->userdata);

        json_add_string(object, "version", DELAYD_VERSION, &failed);
        json_add_u64(object, "uptime_nsec", facts.uptime_nsec, &failed);
        json_add_string(object, "health", health_word(view->health), &failed);
        add_problems(object, view->health, &failed);
        add_kernel(object, &facts, &failed);
        add_exits(object, view->accounting, &facts, &failed);
        add_samples(object, view->accounting, &failed);
        add_polling(object, view->accounting, &facts, &failed);
        add_cgroups(object, &view->accounting->cgroups, &failed);
        json_add_u64(object, "cpu_nsec", facts.cpu_nsec, &failed);
        json_add_u64(object, "rss_bytes", facts.rss_bytes, &failed);
        add_raw_or_null(object, "replay", facts.replay, &failed); /* a file, or null: the kernel is watched */
        if (view->shown)
                view->shown(view->userdata);
        return json_finish(&object, failed, ret);
}
