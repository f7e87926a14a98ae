/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "collect/collector.h"
#include "kernel/monotonic.h"
#include "kernel/processes.h"
#include "log.h"

/* Tasks end that no fork event announced, and this long there was none at all: the feed is dead. */
#define SILENCE_NSEC NSEC_PER_SEC

/* Opening it can take a fifth of a second. */
#define CONNECT_INTERVAL_NSEC (10 * NSEC_PER_SEC)

void collector_check_losses(struct collector *c) {
        struct exit_listener_counts counts;

        c->losses_checked_nsec = collector_now();
        exit_listener_counts(c->exits, &counts);
        if (counts.lost > c->exits_lost_seen) {
                char message[160];

                snprintf(message, sizeof(message), "%llu exit records were lost: their receive buffer was full.",
                         (unsigned long long) counts.lost);
                collector_gap(c, "exits-lost", message,
                              "Raise Collect.ReceiveBuffer=; the numbers since then lack these tasks' last waits.");
                c->exits_lost_seen = counts.lost;
                c->dirty = c->lossy = true;

                /* At once, but not in the middle of what led here. */
                (void) sd_event_source_set_time_relative(c->sweep_timer, 0);
        }
        c->accounting->rejected_samples[REJECT_MALFORMED] =
                        counts.malformed + taskstats_client_malformed(c->client);

        /* No waits are lost with these, only who was where: what is not certain is counted as that. */
        if (c->events_lost_seen > c->events_lost_told) {
                char message[160];

                snprintf(message, sizeof(message), "%llu fork and exec events were lost: delayd was kept from reading them.",
                         (unsigned long long) c->events_lost_seen);
                collector_gap(c, "events-lost", message,
                              "Short-lived tasks of that moment may be unattributed. Give delayd more CPU time (Nice= of its unit).");
                c->events_lost_told = c->events_lost_seen;
        }
}

int collector_connect(struct collector *c) {
        c->connect_tried_nsec = collector_now();

        int r = c->connector_error = proc_connector_open(&c->connector);
        if (r < 0) {
                log_warning_errno(r, "No fork and exec events (proc connector)");
                collector_problem(c, "proc-connector", PROBLEM_DEGRADED,
                                  "The kernel tells of no forks: short-lived tasks may end up as unattributed.",
                                  "The kernel needs CONFIG_PROC_EVENTS=y, and delayd the initial namespaces.");
                return r;
        }

        c->connected_nsec = monotonic_nsec();
        c->events_lost_seen = c->events_lost_told = 0;
        c->unannounced = 0;
        return 0;
}

static void reconnect(struct collector *c) {
        if (c->connector) {
                collector_detach_connector(c);
                c->connector = proc_connector_close(c->connector);
        }
        if (collector_connect(c) < 0)
                return;

        int r = collector_attach_connector(c);
        if (r < 0) {
                log_error_errno(r, "Cannot watch the proc connector");
                collector_detach_connector(c);
                c->connector = proc_connector_close(c->connector);
                return;
        }

        /* What was forked in the meantime is found by a sweep. */
        c->dirty = true;
}

void collector_check_connector(struct collector *c) {
        uint64_t now = collector_now();

        if (c->connector && c->unannounced == 0) {
                if (c->last_event_nsec > c->connect_tried_nsec)
                        collector_no_problem(c, "proc-connector");
                return;
        }

        if (c->connector && now < c->last_event_nsec + SILENCE_NSEC)
                return;
        if (now < c->connect_tried_nsec + CONNECT_INTERVAL_NSEC)
                return;

        if (c->connector)
                collector_problem(c, "proc-connector", PROBLEM_DEGRADED,
                                  "The kernel stopped telling of forks: short-lived tasks may have ended up as unattributed.",
                                  "It was asked again and tasks were searched for; if this stays, restart delayd.");
        reconnect(c);
}

/*
 * Processes that no sweep shows are zombies, or moved while it ran. The kernel answers for a zombie as for
 * any task until it is reaped, so that its waits are not lost with its record. Zombies whose record had
 * arrived must not count twice: the accounting knows them for TASK_LEAVING_NSEC, and what started before
 * that and is not known was either accounted, or known from its fork or a sweep until it was asked.
 */
static void query_unknown_processes(struct collector *c) {
        _cleanup_free_ uint32_t *pids = NULL;
        size_t n, n_unknown = 0;

        int r = processes_list(&pids, &n);
        if (r < 0) {
                collector_out_of_memory(c, r);
                return;
        }

        for (size_t i = 0; i < n; i++)
                if (!task_newest(&c->accounting->tasks, pids[i]))
                        pids[n_unknown++] = pids[i];

        if (n_unknown == 0)
                return;

        c->started_since_nsec = c->aged_nsec > TASK_LEAVING_NSEC ? c->aged_nsec - TASK_LEAVING_NSEC : 1;
        collector_query(c, pids, n_unknown);
        c->started_since_nsec = 0;
}

void collector_make_good(struct collector *c) {
        c->lossy = false;
        query_unknown_processes(c);

        /* Those that are gone show that in their reply. */
        schedule_make_due(&c->accounting->schedule);
        collector_poll(c);
}

void collector_forget(struct collector *c) {
        /* See query_unknown_processes(): first what was lost, as far as it can still be read. */
        if (c->lossy) {
                collector_sweep(c);
                collector_make_good(c);
        }

        c->aged_nsec = monotonic_nsec();
        accounting_age(c->accounting, collector_now());
}
