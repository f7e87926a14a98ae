/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collect/collector.h"
#include "kernel/kernel-info.h"
#include "kernel/monotonic.h"
#include "record/recorder.h"

/*
 * Forks, execs, exits and moves come through sockets of their own, so that their order has to be made again.
 * What led to an event was sent before it: read what ended first, then what may explain it.
 */
#define ROUNDS_MAX 16

/* After a task that was seen late, or not at all, events are read sooner for this long: others may follow. */
#define BUSY_NSEC (200 * NSEC_PER_MSEC)

/* But in a storm of tasks that are gone at once that would not help: it is tried less and less, while none is found elsewhere. */
#define UNSEEN_INTERVAL_MIN_NSEC (2 * NSEC_PER_SEC)
#define UNSEEN_INTERVAL_MAX_NSEC (16 * NSEC_PER_SEC)

/* An exec that follows a move may be read before the notice of the move. */
#define ARRIVAL_NSEC (100 * NSEC_PER_MSEC)

/* A task that lives for so long is asked for its delays. */
#define YOUNG_NSEC (20 * NSEC_PER_MSEC)

/* So many records at once, because we were kept from reading or because of a storm, may have been too many. */
#define MANY_RECORDS 100
#define LOSS_CHECK_INTERVAL_NSEC (100 * NSEC_PER_MSEC)

int collector_lookup(
                uint32_t tid,
                uint32_t tgid,
                bool ended,
                uint64_t *ret_key,
                enum attribution_source *ret_source,
                void *userdata) {

        struct collector *c = userdata;
        bool by_pidfd = true;
        int r;

        if (ended) {
                r = cgroup_tree_of_ended_task(c->tree, tid, ret_key, &by_pidfd);
                cgroup_tree_let_go(c->tree, tid);
        } else {
                r = cgroup_tree_of_task_by_pidfd(c->tree, tid, ret_key);
                if (r < 0) {
                        by_pidfd = false;
                        r = cgroup_tree_of_task(c->tree, tid, ret_key);
                }
        }
        if (r < 0)
                return r;

        *ret_source = by_pidfd ? ATTRIBUTION_PIDFD : ATTRIBUTION_PROCFS;
        return 0;
}

/* The cgroup has a task that was not known to be there: what somebody wrote is explained, also if that is read a moment later. */
static void note_arrival(struct collector *c, uint64_t id) {
        c->arrivals[c->next_arrival] = (struct collector_arrival) { id, collector_now() };
        c->next_arrival = (c->next_arrival + 1) % COLLECTOR_ARRIVALS;
}

static bool has_arrival(const struct collector *c, uint64_t id) {
        uint64_t now = collector_now();

        for (size_t i = 0; i < COLLECTOR_ARRIVALS; i++)
                if (c->arrivals[i].id == id && now - c->arrivals[i].at_nsec < ARRIVAL_NSEC)
                        return true;

        return false;
}

/*
 * Sampled first, so that what it has waited for so far stays in the cgroup where it happened; but not
 * when a reply has led here, for the client answers one query at a time.
 */
void collector_place(struct collector *c, uint32_t tid, uint64_t cgroup_id) {
        if (!accounting_is_in(c->accounting, tid, cgroup_id))
                note_arrival(c, cgroup_id);
        if (!c->querying && accounting_would_move(c->accounting, monotonic_nsec(), tid, cgroup_id))
                collector_query(c, &tid, 1);

        collector_out_of_memory(c, accounting_place(c->accounting, collector_now(), tid, 0, cgroup_id));
}

/* A task that was just forked was looked at. In the root it may only not have come to its place yet. */
static void place_child(struct collector *c, const struct fork_event *event, uint64_t id) {
        const struct cgroup *cgroup = cgroup_table_find(&c->accounting->cgroups, id);

        if (!cgroup || strcmp(cgroup->path, "/") == 0)
                return;

        if (!accounting_is_in(c->accounting, event->tid, id)) {
                c->busy_until_nsec = c->last_event_nsec + BUSY_NSEC;
                c->unseen_interval_nsec = 0;
        }
        collector_out_of_memory(c, accounting_place(c->accounting, c->last_event_nsec, event->tid, event->tgid, id));
}

static void note_event(struct collector *c) {
        c->n_fork_events++;
        c->last_event_nsec = c->read_nsec;
        c->unannounced = 0;
}

/* A child was gone before it could be looked at: be sooner for a while. */
static void note_unseen(struct collector *c) {
        if (c->last_event_nsec <= c->busy_until_nsec + c->unseen_interval_nsec)
                return;

        c->busy_until_nsec = c->last_event_nsec + BUSY_NSEC;
        c->unseen_interval_nsec *= 2;
        if (c->unseen_interval_nsec < UNSEEN_INTERVAL_MIN_NSEC)
                c->unseen_interval_nsec = UNSEEN_INTERVAL_MIN_NSEC;
        if (c->unseen_interval_nsec > UNSEEN_INTERVAL_MAX_NSEC)
                c->unseen_interval_nsec = UNSEEN_INTERVAL_MAX_NSEC;
}

static void on_fork(const struct fork_event *event, void *userdata) {
        enum attribution_source source;
        struct collector *c = userdata;
        uint64_t id;

        note_event(c);
        cgroup_tree_let_go(c->tree, event->tid); /* an earlier owner of the number */

        int r = accounting_fork(c->accounting, c->last_event_nsec, event);
        if (r <= 0) {
                collector_out_of_memory(c, r);
                return;
        }

        bool only_habits = r > 1;
        uint32_t ppid = event->tid == event->tgid ? event->parent_tgid : 0;
        r = only_habits ? cgroup_tree_hold(c->tree, event->tid, event->tgid, ppid, &id) : -EOPNOTSUPP;
        if (r == -EOPNOTSUPP && !(only_habits && cgroup_tree_mode(c->tree) == CGROUP_V1)) /* where no task begins elsewhere */
                r = collector_lookup(event->tid, event->tgid, false, &id, &source, c);
        if (r >= 0)
                place_child(c, event, id);
        else if (r == -ESRCH)
                note_unseen(c);
}

static void *memdup(const void *p, size_t size) {
        void *copy = p ? malloc(size) : NULL;

        return copy ? memcpy(copy, p, size) : NULL;
}

/* Kept until what may have happened to the task before is known. */
static void on_exit_record(const struct task_sample *sample, void *userdata) {
        struct collector *c = userdata;

        c->n_exit_records++;
        if (c->n_pending == c->allocated_pending) {
                size_t allocated = c->allocated_pending ? c->allocated_pending * 2 : 64;
                struct task_sample *pending = realloc(c->pending, allocated * sizeof(*pending));

                if (!pending) {
                        collector_out_of_memory(c, -ENOMEM);
                        return;
                }
                c->pending = pending;
                c->allocated_pending = allocated;
        }

        c->pending[c->n_pending] = *sample;
        c->pending[c->n_pending++].raw = c->recorder ? memdup(sample->raw, sample->raw_size) : NULL;
}

static void drain_exits(struct collector *c) {
        int r = exit_listener_drain(c->exits, on_exit_record, c);

        if (r < 0)
                collector_problem(c, "exit-feed", PROBLEM_FAILING, "Exit records can no longer be received.",
                                  "Restart delayd; if that does not help, see delayctl doctor.");
        else
                collector_no_problem(c, "exit-feed");

        /* The sooner the better: zombies that can tell what got lost are reaped soon. */
        if (r >= MANY_RECORDS && collector_now() - c->losses_checked_nsec >= LOSS_CHECK_INTERVAL_NSEC)
                collector_check_losses(c);
}

static void account_exit(struct collector *c, const struct task_sample *sample) {
        const struct task *task = c->connector ? task_of_exit_sample(&c->accounting->tasks, sample) : NULL;

        if (c->connector && !task && sample->start_min_nsec > c->connected_nsec)
                c->unannounced++;
        collector_out_of_memory(c, accounting_exit_sample(c->accounting, collector_now(), sample));
        if (!task_newest(&c->accounting->tasks, sample->tid))
                cgroup_tree_let_go(c->tree, sample->tid);
        free((void *) sample->raw);
}

static void account_exits(struct collector *c) {
        for (size_t i = 0; i < c->n_pending; i++)
                account_exit(c, &c->pending[i]);
        c->n_pending = 0;
}

/* Older kernels do not say whose thread it was (before v12). */
static bool is_of_group(const struct collector *c, const struct task_sample *sample, uint32_t tgid) {
        const struct task *task;

        if (sample->tgid != 0)
                return sample->tgid == tgid;

        task = task_of_exit_sample(&c->accounting->tasks, sample);
        return task && task->tgid == tgid;
}

static void account_exits_of_group(struct collector *c, uint32_t tgid) {
        size_t kept = 0;

        for (size_t i = 0; i < c->n_pending; i++)
                if (is_of_group(c, &c->pending[i], tgid))
                        account_exit(c, &c->pending[i]);
                else
                        c->pending[kept++] = c->pending[i];
        c->n_pending = kept;
}

static void on_exec(uint32_t tgid, void *userdata) {
        enum attribution_source source;
        struct collector *c = userdata;
        uint64_t id;

        note_event(c);
        c->last_exec_nsec = c->last_event_nsec;

        /* Threads that ended in the exec have exit records, which have to be told first. */
        if (accounting_exec_ends_threads(c->accounting, tgid)) {
                drain_exits(c);
                account_exits_of_group(c, tgid);
                accounting_exec(c->accounting, c->last_event_nsec, tgid);
        }

        /* A task that was cloned into another cgroup shows itself here at the latest, unless it is gone already. */
        if (collector_lookup(tgid, tgid, false, &id, &source, c) >= 0)
                collector_place(c, tgid, id);
        else
                accounting_doubt_task(c->accounting, tgid);
}

void collector_drain_forks(struct collector *c) {
        static const struct proc_connector_handler handler = { .fork = on_fork, .exec = on_exec };
        struct proc_connector_handler own = handler;

        /* An event that is being told may lead here again: the rest follows when it is done. */
        if (!c->connector || c->draining)
                return;

        own.userdata = c;
        c->read_nsec = collector_now(); /* for all of them: more than a few milliseconds apart they are not */
        c->draining = true;
        if (proc_connector_drain(c->connector, &own) < 0)
                c->dirty = true;
        c->draining = false;
}

/* Reads the members of cgroups that tasks were moved into. What this does not explain is to be doubted. */
static enum accounting_doubt place_joined(struct collector *c) {
        enum accounting_doubt doubt = DOUBT_NONE;

        for (size_t i = 0; i < c->n_joined; i++) {
                const struct collector_join *join = c->joined + i;

                if (join->id != 0)
                        collector_read_members(c, join->id);

                if (join->written && !has_arrival(c, join->id))
                        doubt = DOUBT_ALL;
                else if (join->written && doubt == DOUBT_NONE)
                        doubt = DOUBT_INHERITED; /* others may have come with it, and be gone */
        }

        if (doubt == DOUBT_ALL)
                c->busy_until_nsec = collector_now() + BUSY_NSEC;
        c->n_joined = 0;
        return doubt;
}

static enum accounting_doubt what_is_missed(struct collector *c) {
        uint64_t lost = c->connector ? proc_connector_lost(c->connector) : 0;
        bool some = c->events_missed || lost > c->events_lost_seen;

        /* The sweep that this leads to makes sure of everything that lives. */
        c->events_lost_seen = lost;
        c->events_missed = false;
        if (some) {
                c->dirty = true;
                return DOUBT_LOST;
        }

        return cgroup_tree_blind(c->tree) ? DOUBT_INHERITED : DOUBT_NONE;
}

/* Returns true if there may be more to do. */
static bool run_round(struct collector *c) {
        enum accounting_doubt doubt, missed;
        size_t n_removed = c->n_removed; /* those whose tasks have all ended by now, and left their records */

        drain_exits(c);
        if (cgroup_tree_process(c->tree) != 0)
                c->dirty = c->events_missed = true;
        collector_drain_forks(c);

        doubt = place_joined(c);
        missed = what_is_missed(c);
        accounting_doubt(c->accounting, doubt > missed ? doubt : missed);
        account_exits(c);
        accounting_doubt(c->accounting, DOUBT_NONE);

        bool more = exit_listener_has_more(c->exits);
        if (!more)
                collector_tell_removed(c, n_removed);
        return more || c->n_removed > 0;
}

bool collector_drain(struct collector *c) {
        c->drained_nsec = collector_now();
        for (unsigned i = 0; i < ROUNDS_MAX; i++)
                if (!run_round(c))
                        return true;

        return false;
}

/* Most tasks that were forked are gone soon after. Those that are not are sampled from now on. */
void collector_check_young(struct collector *c) {
        uint64_t now = collector_now();
        struct task *task;
        size_t n = 0;

        while ((task = accounting_next_young(c->accounting, now - YOUNG_NSEC))) {
                if (n == c->allocated_ended) {
                        size_t allocated = n ? n * 2 : 64;
                        struct task **ended = realloc(c->ended, allocated * sizeof(*ended));

                        if (!ended) {
                                collector_out_of_memory(c, accounting_grown_up(c->accounting, now, task));
                                break;
                        }
                        c->ended = ended;
                        c->allocated_ended = allocated;
                }

                if (kernel_task_exists(task->tid))
                        collector_out_of_memory(c, accounting_grown_up(c->accounting, now, task));
                else
                        c->ended[n++] = task;
        }

        /* What they did before is to be known before they are forgotten. If that is too much for now, the next poll finds them gone. */
        bool all = n == 0 || collector_drain(c);
        for (size_t i = 0; i < n; i++)
                if (all)
                        accounting_ended(c->accounting, now, c->ended[i]);
                else
                        collector_out_of_memory(c, accounting_grown_up(c->accounting, now, c->ended[i]));
}
