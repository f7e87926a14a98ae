/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "config.h"
#include "core/accounting.h"
#include "core/health.h"
#include "core/status.h"
#include "kernel/cgroup-tree.h"
#include "kernel/exit-listener.h"
#include "kernel/proc-connector.h"
#include "kernel/taskstats-client.h"

struct recorder;

/*
 * Wires the kernel room to the accounting: exit records, fork and exec events, polls of live tasks,
 * sweeps over the cgroups, each handed over in the order in which it happened.
 */
struct collector {
        const struct config *config;
        struct health *health;
        sd_event *event;
        struct accounting *accounting;

        struct taskstats_client *client;
        struct exit_listener *exits;
        struct proc_connector *connector; /* NULL where it is not to be had: then sweeps alone find new tasks */
        struct cgroup_tree *tree;
        struct recorder *recorder; /* NULL: nothing is recorded */

        sd_event_source *exit_source, *exit_timer, *connector_source, *connector_timer, *tree_source;
        sd_event_source *poll_timer, *sweep_timer, *second_timer;

        /* Exit records of tasks that no fork event has told of yet: accounted after the events that wait. */
        struct task_sample *pending;
        size_t n_pending, allocated_pending;

        uint64_t *joined; /* cgroups into which somebody moved tasks */
        size_t n_joined, allocated_joined;

        uint32_t *tids;   /* scratch for polls */
        size_t allocated_tids;
        struct task **ended; /* scratch: tasks that are to be forgotten */
        size_t allocated_ended;

        uint64_t moved_nsec; /* when a task was last found elsewhere than its parent */

        bool querying, draining; /* the client and the connector call back, and cannot be called meanwhile */

        bool sweep_incomplete; /* some cgroup could not be read in the sweep that runs */
        bool dirty;       /* events were lost: sweep as soon as possible */
        bool lossy;       /* exit records were lost: ask all tasks that are left, zombies too, as soon as possible */
        uint64_t exits_lost_seen, events_lost_seen, losses_checked_nsec;
        uint64_t aged_nsec;          /* CLOCK_MONOTONIC: when tasks that are gone were last forgotten */
        uint64_t started_since_nsec; /* of a query: samples of tasks that started before are not for the accounting; 0: all are */
        uint64_t started_nsec;  /* CLOCK_BOOTTIME */
        uint64_t last_poll_nsec;
        uint64_t budget_checked_nsec, budget_used_nsec; /* when, and the daemon's CPU time for sampling then */
        uint64_t events_cpu_nsec; /* CPU time that events took, which is not sampling's */
};

uint64_t collector_now(void); /* CLOCK_BOOTTIME */

/*
 * Opens all kernel sources and takes the first sweep and poll; ends when the feed of exit records is
 * proven. Every error is logged with its remedy. On success, *ret lives until collector_done().
 */
int collector_start(
                struct collector *c,
                sd_event *event,
                const struct config *config,
                struct health *health,
                struct recorder *recorder); /* NULL: nothing is recorded */
void collector_done(struct collector *c);

void collector_fill_status(struct collector *c, struct status_facts *ret);
