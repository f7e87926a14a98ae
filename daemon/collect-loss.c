/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cleanup.h"
#include "collect-internal.h"
#include "kernel/monotonic.h"
#include "kernel/processes.h"

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

        if (c->connector) {
                uint64_t lost = proc_connector_lost(c->connector);

                /* Sweeps find what these events would have told: no waits are lost, only who is where, for a moment. */
                if (lost > c->events_lost_seen)
                        c->dirty = true;
                c->events_lost_seen = lost;
        }
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
