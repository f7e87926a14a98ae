/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "collect-internal.h"
#include "kernel/kernel-info.h"
#include "kernel/pressure.h"
#include "log.h"
#include "recorder.h"
#include "saved-state.h"

/* The kernel sends the record before the child can be reaped; this is for a machine that swaps. */
#define SELF_TEST_TIMEOUT_NSEC (5 * NSEC_PER_SEC)

static const char *const remedy_delayacct =
                "Turn it on with 'sysctl kernel.task_delayacct=1' (for good: in /etc/sysctl.d/, or the kernel option "
                "\"delayacct\"), then restart the services to be watched: tasks that run already stay without delays.";

static int read_pressure(uint64_t key, uint64_t *ret_stall_nsec, void *userdata) {
        struct collector *c = userdata;

        if (key == CGROUP_KEY_UNATTRIBUTED)
                return pressure_read_host_io(ret_stall_nsec);
        return pressure_read_cgroup_io(c->tree, key, ret_stall_nsec);
}

/* For core/schedule.h. */
static int read_activity(uint64_t key, enum schedule_reading reading, uint64_t *ret_nsec, void *userdata) {
        struct collector *c = userdata;

        switch (reading) {
        case SCHEDULE_CPU_USAGE:
                return pressure_read_cgroup_cpu(c->tree, key, ret_nsec);
        case SCHEDULE_IO_STALL:
                return pressure_read_cgroup_io(c->tree, key, ret_nsec);
        case SCHEDULE_MEMORY_STALL:
                return pressure_read_cgroup_memory(c->tree, key, ret_nsec);
        default:
                return -EINVAL;
        }
}

/* Says why the kernel refuses us, in the words of what can be done about it. */
static int refused(int error) {
        const char *foreign = kernel_foreign_namespace();

        if (error == -ENOENT)
                log_error("The kernel offers no taskstats: it needs CONFIG_TASKSTATS=y and CONFIG_TASK_DELAY_ACCT=y.");
        else if (foreign)
                log_error("delayd runs in a %s namespace of its own, where the kernel tells of no exits. "
                          "Run it in the initial one: no PrivateNetwork=, PrivateUsers= or PrivatePIDs= in the unit; "
                          "in a container, with the host's namespaces.", foreign);
        else if (error == -EPERM && !kernel_have_net_admin())
                log_error("delayd needs CAP_NET_ADMIN to ask for delays. Run it as root, or with "
                          "AmbientCapabilities=CAP_NET_ADMIN in its unit.");
        else if (error == -EBADMSG)
                log_error("The kernel's taskstats records (Linux %s) could not be understood. Please report this.",
                          kernel_release());
        else if (error == -ETIMEDOUT)
                log_error("The exit record of a child of ours did not arrive. The kernel sends exit records to the "
                          "initial network namespace alone: run delayd there.");
        else
                log_error_errno(error, "The kernel refused to give exit records");

        return error;
}

/* state: where the sockets of the daemon before are, and what is known of them; NULL: new ones, counting from 0. */
static int open_exits(struct collector *c, struct saved_state *state, bool adopt) {
        const struct exit_listener_config exits = {
                .family = taskstats_client_family(c->client),
                .layout = taskstats_client_layout(c->client),
                .receive_buffer = c->config->receive_buffer,
                .filter = c->config->exit_filter ? c->config->kinds : 0,
                .feed = state ? saved_state_feed(state) : NULL,
                .sockets = state && adopt ? saved_state_sockets(state) : NULL,
        };

        int r = exit_listener_open(&exits, &c->exits);
        if (r < 0)
                return refused(r);

        /* At once: from here on a record may be lost with them. */
        if (state)
                saved_state_keep_sockets(state, c->exits, !adopt);
        if (exits.feed)
                c->exits_lost_seen = exits.feed->lost;
        return 0;
}

static int open_sources(struct collector *c, struct saved_state *state) {
        int r;

        r = taskstats_client_open(&c->client);
        if (r < 0)
                return refused(r);

        r = open_exits(c, state, true);
        if (r < 0)
                return r;

        /* Subscribed before the first sweep, so that no task falls between the two. */
        (void) collector_connect(c);

        r = cgroup_tree_open(c->config->cgroup_root, &(struct cgroup_tree_handler) {
                .added = collector_tree_handler.added,
                .removed = collector_tree_handler.removed,
                .joined = collector_tree_handler.joined,
                .userdata = c,
        }, &c->tree);
        if (r < 0) {
                log_error_errno(r, "No cgroup hierarchy at %s. Collect.CgroupRoot= has to name a mounted one, such as "
                                "/sys/fs/cgroup", c->config->cgroup_root ?: "any mount point");
                return r;
        }

        return 0;
}

static void on_early_record(const struct task_sample *sample, void *userdata) {
        struct collector *c = userdata;

        collector_out_of_memory(c, accounting_exit_sample(c->accounting, collector_now(), sample));
}

static int prove_exits(struct collector *c, struct saved_state *state) {
        bool adopted = false;

        int r = exit_listener_self_test(c->exits, SELF_TEST_TIMEOUT_NSEC, on_early_record, c);
        for (unsigned i = 0; r == -ETIMEDOUT && !adopted && exit_listener_socket(c->exits, i, &adopted) >= 0; i++)
                ;
        if (r == -ETIMEDOUT && adopted) {
                log_warning("The sockets that were kept for the restart receive nothing: opening new ones.");
                c->exits = exit_listener_close(c->exits);
                r = open_exits(c, state, false);
                if (r < 0)
                        return r;
                r = exit_listener_self_test(c->exits, SELF_TEST_TIMEOUT_NSEC, on_early_record, c);
        }

        return r < 0 ? refused(r) : 0;
}

static void begin_recording(struct collector *c) {
        struct timespec ts;

        if (!c->recorder)
                return;

        clock_gettime(CLOCK_REALTIME, &ts);
        const struct recording_meta meta = {
                .started_nsec = c->started_nsec,
                .started_monotonic_nsec = c->accounting->config.started_nsec,
                .realtime_nsec = (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec,
                .kinds = c->accounting->config.kinds,
                .taskstats_version = taskstats_client_version(c->client),
                .layout = (uint8_t) taskstats_client_layout(c->client),
                .rough_clock = c->accounting->config.rough_clock,
                .daemon_version = DELAYD_VERSION,
                .kernel_release = kernel_release(),
                .cgroup_hierarchy = cgroup_tree_description(c->tree),
        };
        recorder_begin(c->recorder, c->accounting, collector_now(), &meta);
}

int collector_start(
                struct collector *c,
                sd_event *event,
                const struct config *config,
                struct health *health,
                struct recorder *recorder,
                struct saved_state *state) {

        struct timespec ts;
        int r;

        *c = (struct collector) {
                .config = config,
                .health = health,
                .event = event,
                .recorder = recorder,
                .started_nsec = collector_now(),
        };

        clock_gettime(CLOCK_MONOTONIC, &ts);
        const struct accounting_config accounting = {
                .kinds = config->kinds,
                .max_cgroups = config->max_cgroups,
                .max_exported = config->max_exported,
                .retention_nsec = config->retention_nsec,
                .may_export = config_may_export,
                .may_export_userdata = (void *) config,
                .poll_interval_nsec = config->poll_interval_nsec,
                .started_nsec = (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec,
                .lookup = collector_lookup,
                /* Where the kernel's blkio totals can be believed there is nothing to witness. */
                .pressure = kernel_delayed_dequeue() == TRISTATE_OFF ? NULL : read_pressure,
                .n_cpus = (unsigned) sysconf(_SC_NPROCESSORS_CONF),
                .rough_clock = kernel_clock_is_rough(),
                .userdata = c,
        };
        c->aged_nsec = accounting.started_nsec + TASK_LEAVING_NSEC; /* nothing that started before was accounted here */
        r = state ? saved_state_restore(state, &accounting, &c->accounting) : accounting_new(&accounting, &c->accounting);
        if (r < 0)
                return log_error_errno(r, "Cannot start the accounting");
        schedule_spare_quiet(&c->accounting->schedule, read_activity, c, config->kinds);

        r = open_sources(c, state);
        if (r < 0)
                return r;

        begin_recording(c);

        /* Who was moved while nobody looked is known when the first sweep is done. */
        if (state && saved_state_feed(state))
                accounting_doubt(c->accounting, DOUBT_LOST);
        r = prove_exits(c, state);
        if (r < 0)
                return r;

        r = collector_attach(c);
        if (r < 0)
                return log_error_errno(r, "Cannot set up the event loop");

        accounting_age(c->accounting, collector_now());
        collector_check(c);
        collector_sweep(c);
        accounting_doubt(c->accounting, DOUBT_NONE);
        ssize_t n = schedule_due(&c->accounting->schedule, collector_now(), &c->tids, &c->allocated_tids);
        if (n > 0)
                collector_query(c, c->tids, (size_t) n);
        collector_start_budget(c);
        collector_arm_poll(c);

        log_info("Linux %s, taskstats version %u, cgroups %s: %zu cgroups, %zu tasks.",
                 kernel_release(), taskstats_client_version(c->client), cgroup_tree_description(c->tree),
                 c->accounting->cgroups.tracked, c->accounting->tasks.n_live);
        return 0;
}

static void end_recording(struct collector *c) {
        struct status_facts facts;

        if (!c->recorder)
                return;

        if (c->second_timer) { /* the last that is set up: all that status asks is there */
                collector_fill_status(c, &facts);
                recorder_facts(c->recorder, collector_now(), &facts);
        }
        recorder_end(c->recorder, collector_now());
}

int collector_reconfigure(struct collector *c, const struct config *config) {
        struct accounting_config accounting = c->accounting->config;
        int r;

        /* Those kinds that are counted; others take a restart. */
        r = exit_listener_set_filter(c->exits, config->exit_filter ? c->config->kinds : 0);
        if (r >= 0)
                r = exit_listener_set_receive_buffer(c->exits, config->receive_buffer);
        if (r >= 0) {
                accounting.max_cgroups = config->max_cgroups;
                accounting.max_exported = config->max_exported;
                accounting.retention_nsec = config->retention_nsec;
                accounting.poll_interval_nsec = config->poll_interval_nsec;
                r = accounting_reconfigure(c->accounting, collector_now(), &accounting);
        }
        if (r < 0) {
                log_error_errno(r, "Cannot apply the new configuration");
                (void) exit_listener_set_filter(c->exits, c->config->exit_filter ? c->config->kinds : 0);
                (void) exit_listener_set_receive_buffer(c->exits, c->config->receive_buffer);
                return r;
        }

        (void) sd_event_source_set_time(c->poll_timer, 0);
        return 0;
}

void collector_finish(struct collector *c) {
        if (c->second_timer) /* the last that is set up */
                collector_drain(c);
}

void collector_done(struct collector *c) {
        end_recording(c);
        collector_detach(c);

        if (c->exits)
                c->exits = exit_listener_close(c->exits);
        if (c->connector)
                c->connector = proc_connector_close(c->connector);
        if (c->tree)
                c->tree = cgroup_tree_close(c->tree);
        if (c->client)
                c->client = taskstats_client_close(c->client);
        c->accounting = accounting_free(c->accounting);
        for (size_t i = 0; i < c->n_pending; i++)
                free((void *) c->pending[i].raw);
        free(c->pending);
        free(c->joined);
        free(c->removed);
        free(c->tids);
        free(c->ended);
        *c = (struct collector) {};
}

/* What is no concern of the accounting's, but of those who look at it. */
static void check_surroundings(struct collector *c) {
        uint64_t limit;

        if (log_is_heard())
                collector_no_problem(c, "journal-unavailable");
        else
                collector_problem(c, "journal-unavailable", PROBLEM_DEGRADED, "The journal cannot be reached: messages are lost.",
                                  "Start it with 'systemctl start systemd-journald.socket systemd-journald'.");

        if (kernel_have_spare_fds(exit_listener_fd(c->exits), &limit))
                collector_no_problem(c, "file-descriptors");
        else {
                char message[128];

                snprintf(message, sizeof(message), "Hardly any of %llu file descriptors is left: cgroups cannot be read, nor "
                         "clients be served.", (unsigned long long) limit);
                collector_problem(c, "file-descriptors", PROBLEM_DEGRADED, message,
                                  "Raise LimitNOFILE= of the unit, or end clients that keep connections.");
        }
}

void collector_check(struct collector *c) {
        int delayacct = kernel_task_delayacct();

        collector_check_losses(c);
        collector_check_connector(c);

        if (delayacct == 0)
                collector_problem(c, "delay-accounting-off", PROBLEM_DEGRADED,
                                  "kernel.task_delayacct is off: the kernel counts no delays of tasks that start now.",
                                  remedy_delayacct);
        else
                collector_no_problem(c, "delay-accounting-off");

        if (cgroup_tree_blind(c->tree))
                collector_problem(c, "cgroup-watch", PROBLEM_DEGRADED,
                                  "Not every cgroup can be watched: moves of tasks are noticed late.",
                                  "Raise the sysctls fs.inotify.max_user_watches and fs.inotify.max_user_instances.");
        else
                collector_no_problem(c, "cgroup-watch");

        if (c->accounting->cgroups.beyond.n > 0)
                collector_problem(c, "cgroups-overflowed", PROBLEM_DEGRADED,
                                  "There are more cgroups than Collect.MaxCgroups=: the rest is counted as (overflow).",
                                  "Raise Collect.MaxCgroups=, or lower Collect.Retention=.");
        else
                collector_no_problem(c, "cgroups-overflowed");

        check_surroundings(c);

        if (c->recorder) {
                struct status_facts facts;

                collector_fill_status(c, &facts);
                recorder_facts(c->recorder, collector_now(), &facts);
        }
}

void collector_fill_status(struct collector *c, struct status_facts *ret) {
        struct exit_listener_counts counts;
        int delayacct = kernel_task_delayacct();

        exit_listener_counts(c->exits, &counts);

        *ret = (struct status_facts) {
                .uptime_nsec = collector_now() - c->started_nsec,
                .kernel_release = kernel_release(),
                .taskstats_version = taskstats_client_version(c->client),
                .task_delayacct = delayacct > 0 || delayacct == -ENOENT, /* before 5.14 it is on without a knob */
                .delayed_dequeue = kernel_delayed_dequeue(),
                .cgroup_hierarchy = cgroup_tree_description(c->tree),
                .exits_received = counts.received,
                .exits_lost = counts.lost,
                .exit_filter = exit_listener_filtering(c->exits),
                .poll_interval_nsec = c->config->poll_interval_nsec,
                .last_poll_nsec = c->last_poll_nsec,
        };
        kernel_self_usage(ret);
}
