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
struct saved_state;

/* A socket whose events are gathered: after it was read it is left alone until the timer. */
struct collector_feed {
        struct collector *collector;
        sd_event_source *source, *timer;
        const uint64_t *count; /* of its events so far; NULL: not counted */
        uint64_t counted;      /* when it was last read */
        bool gathering;        /* left alone until the timer */
        uint64_t gather_nsec, busy_gather_nsec; /* at least; the latter while tasks are hard to follow */
};

struct collector_join {
        uint64_t id; /* 0: of one that is gone */
        bool written;
};

/* A task was found in a cgroup where it was not known to be. */
struct collector_arrival {
        uint64_t id;
        uint64_t at_nsec; /* CLOCK_BOOTTIME */
};

#define COLLECTOR_ARRIVALS 64

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
        int connector_error; /* why, when it was last tried */
        struct cgroup_tree *tree;
        struct recorder *recorder; /* NULL: nothing is recorded */

        struct collector_feed exit_feed, fork_feed, tree_feed;
        sd_event_source *poll_timer, *sweep_timer, *second_timer;

        /* Exit records: accounted after the events that wait. */
        struct task_sample *pending;
        size_t n_pending, allocated_pending;

        struct collector_join *joined; /* cgroups into which tasks have come, perhaps */
        size_t n_joined, allocated_joined;
        struct collector_arrival arrivals[COLLECTOR_ARRIVALS]; /* a ring */
        size_t next_arrival;
        uint64_t *removed; /* cgroups that are gone: told of when the exits of their tasks are */
        size_t n_removed, allocated_removed;

        uint32_t *tids;   /* scratch for polls */
        size_t allocated_tids;
        struct task **ended; /* scratch: tasks that are to be forgotten */
        size_t allocated_ended;

        bool querying, draining; /* the client and the connector call back, and cannot be called meanwhile */

        bool sweep_incomplete; /* some cgroup could not be read in the sweep that runs */
        bool dirty;       /* events were lost: sweep as soon as possible */
        bool events_missed; /* some of them just now */
        uint64_t n_fork_events, n_exit_records;
        uint64_t read_nsec; /* CLOCK_BOOTTIME: when the connector was last read */
        uint64_t last_event_nsec, last_exec_nsec; /* CLOCK_BOOTTIME: of the connector */
        uint64_t busy_until_nsec; /* CLOCK_BOOTTIME: tasks are hard to follow until then */
        uint64_t unseen_interval_nsec; /* how long those that are gone unseen change nothing afterwards */
        uint64_t connect_tried_nsec; /* CLOCK_BOOTTIME */
        uint64_t connected_nsec;  /* CLOCK_MONOTONIC: what started later has a fork event */
        unsigned unannounced;     /* exits of tasks that had none, since the last event */
        bool lossy;       /* exit records were lost: ask all tasks that are left, zombies too, as soon as possible */
        uint64_t exits_lost_seen, events_lost_seen, events_lost_told, losses_checked_nsec;
        uint64_t aged_nsec;          /* CLOCK_MONOTONIC: when tasks that are gone were last forgotten */
        uint64_t started_since_nsec; /* of a query: samples of tasks that started before are not for the accounting; 0: all are */
        uint64_t started_nsec;  /* CLOCK_BOOTTIME */
        uint64_t drained_nsec;
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
                struct recorder *recorder,  /* NULL: nothing is recorded */
                struct saved_state *state); /* NULL: begins with nothing */
/* Takes over from another configuration what can change while it runs. Returns 0, or a negative errno: then all is as it was. */
int collector_reconfigure(struct collector *c, const struct config *config);

/* Takes in all that waits, for the last time. */
void collector_finish(struct collector *c);

void collector_done(struct collector *c);

void collector_fill_status(struct collector *c, struct status_facts *ret);

struct diagnosis;
void collector_diagnose(struct collector *c, const char *state_directory, int state_error, struct diagnosis *ret);
