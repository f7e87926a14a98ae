/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cleanup.h"
#include "serve/exposition.h"
#include "serve/metrics-cgroups.h"
#include "serve/metrics.h"

static void render_exits(const struct accounting *a, const struct status_facts *facts, struct buffer *b) {
        exposition_family(b, "delayd_exits_received_total", "counter",
                          "Exit records received from the kernel. With Collect.ExitFilter=yes the kernel drops "
                          "records without delays before that.");
        exposition_u64(b, "delayd_exits_received_total", facts->exits_received);

        exposition_family(b, "delayd_exits_lost_total", "counter",
                          "Exit records that the kernel could not deliver because a receive buffer was full.");
        exposition_u64(b, "delayd_exits_lost_total", facts->exits_lost);

        exposition_family(b, "delayd_exits_attributed_total", "counter",
                          "Exit records by the way in which the cgroup of the task became known.");
        for (enum attribution_source source = 0; source < ATTRIBUTION_SOURCE_COUNT; source++)
                exposition_labelled(b, "delayd_exits_attributed_total", "source", attribution_source_name(source),
                                    a->attributed[source]);
}

static void render_samples(const struct accounting *a, struct buffer *b) {
        exposition_family(b, "delayd_samples_accepted_total", "counter",
                          "Samples of tasks that were accounted.");
        exposition_u64(b, "delayd_samples_accepted_total", a->accepted_samples);

        exposition_family(b, "delayd_samples_rejected_total", "counter",
                          "Samples of tasks of which waits were refused, by reason.");
        for (enum reject_reason reason = 0; reason < REJECT_REASON_COUNT; reason++)
                exposition_labelled(b, "delayd_samples_rejected_total", "reason", reject_reason_name(reason),
                                    a->rejected_samples[reason]);
}

static void render_own_health(const struct view *view, const struct status_facts *facts, struct buffer *b) {
        const struct accounting *a = view->accounting;

        render_exits(a, facts, b);
        render_samples(a, b);

        exposition_family(b, "delayd_polled_tasks", "gauge", "Live tasks that are known and sampled.");
        exposition_u64(b, "delayd_polled_tasks", a->tasks.n_live);

        exposition_family(b, "delayd_poll_duration_seconds", "gauge", "How long the last round of sampling took.");
        exposition_seconds(b, "delayd_poll_duration_seconds", facts->last_poll_nsec);

        exposition_family(b, "delayd_cgroups_overflowed_total", "counter",
                          "Cgroups beyond Collect.MaxCgroups=, whose waits are in the cgroup (overflow).");
        exposition_u64(b, "delayd_cgroups_overflowed_total", a->cgroups.overflowed);

        exposition_family(b, "delayd_task_delayacct_enabled", "gauge",
                          "1 if the kernel measures delays of new tasks (sysctl kernel.task_delayacct).");
        exposition_u64(b, "delayd_task_delayacct_enabled", facts->task_delayacct);

        exposition_family(b, "delayd_build_info", "gauge", "1, with the version of delayd.");
        exposition_labelled(b, "delayd_build_info", "version", DELAYD_VERSION, 1);
}

static void render_process(const struct status_facts *facts, struct buffer *b) {
        exposition_family(b, "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.");
        exposition_seconds(b, "process_cpu_seconds_total", facts->cpu_nsec);

        exposition_family(b, "process_open_fds", "gauge", "Number of open file descriptors.");
        exposition_u64(b, "process_open_fds", facts->open_fds);

        exposition_family(b, "process_max_fds", "gauge", "Maximum number of open file descriptors.");
        exposition_u64(b, "process_max_fds", facts->max_fds);

        exposition_family(b, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.");
        exposition_u64(b, "process_virtual_memory_bytes", facts->virtual_bytes);

        exposition_family(b, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
        exposition_u64(b, "process_resident_memory_bytes", facts->rss_bytes);

        exposition_family(b, "process_start_time_seconds", "gauge",
                          "Start time of the process since the Unix epoch in seconds.");
        exposition_seconds(b, "process_start_time_seconds", facts->start_time_unix_nsec);

        exposition_family(b, "process_threads", "gauge", "Number of OS threads in the process.");
        exposition_u64(b, "process_threads", facts->threads);
}

int metrics_render(const struct view *view, char **ret, size_t *ret_size) {
        _cleanup_(buffer_free) struct buffer b = {};
        struct status_facts facts = {};

        view->fill_status(&facts, view->userdata);

        int r = metrics_render_cgroups(view, &b);
        if (r < 0)
                return r;

        render_own_health(view, &facts, &b);
        render_process(&facts, &b);
        if (view->shown)
                view->shown(view->userdata);
        return buffer_take(&b, ret, ret_size);
}
