/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <delayd/limits.h>

#include "collect-internal.h"
#include "collect.h"
#include "kernel/kernel-info.h"
#include "kernel/monotonic.h"
#include "log.h"
#include "recorder.h"

/*
 * After a first record, which is read at once, further ones are gathered for this long: a wake-up for each
 * would cost more than the record. Forks and execs are read sooner while tasks do not stay where their
 * parents are, so that they can still be looked at.
 */
#define GATHER_NSEC (10 * NSEC_PER_MSEC)
#define GATHER_MOVING_NSEC (1 * NSEC_PER_MSEC)
#define MOVING_NSEC (2 * NSEC_PER_SEC) /* after the last one that was found elsewhere */

/* A task that lives for so long is asked for its delays. */
#define YOUNG_NSEC (20 * NSEC_PER_MSEC)

#define BUDGET_INTERVAL_NSEC (250 * NSEC_PER_MSEC)

/* Sweeps find what events did not tell; where the kernel tells of forks they are only a safety net. */
#define SWEEP_INTERVAL_NSEC (10 * NSEC_PER_SEC)

/* So many records at once, because we were kept from reading or because of a storm, may have been too many. */
#define MANY_RECORDS 100
#define LOSS_CHECK_INTERVAL_NSEC (100 * NSEC_PER_MSEC)

static const uint64_t windows_nsec[] = DELAYD_WINDOWS_NSEC;

uint64_t collector_now(void) {
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

static uint64_t process_cpu_now(void) {
        struct timespec ts;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

void collector_out_of_memory(struct collector *c, int error) {
        if (error == -ENOMEM)
                collector_gap(c, "memory", "Memory is short: some waits could not be counted.",
                              "Give the service more memory (MemoryMax= of its unit), or lower Collect.MaxCgroups=.");
}

void collector_problem(
                struct collector *c,
                const char *id,
                enum problem_severity severity,
                const char *message,
                const char *remedy) {

        if (health_raise(c->health, id, severity, message, remedy) > 0)
                log_full(severity == PROBLEM_FAILING ? LOG_ERR : LOG_WARNING, "%s %s", message, remedy);
        if (c->recorder)
                recorder_problem(c->recorder, collector_now(), id, severity, message, remedy);
}

static void problem_gone(struct collector *c, const char *id) {
        log_info("The problem %s is gone.", id);
        if (c->recorder)
                recorder_problem_gone(c->recorder, collector_now(), id);
}

void collector_no_problem(struct collector *c, const char *id) {
        if (health_clear(c->health, id))
                problem_gone(c, id);
}

void collector_gap(struct collector *c, const char *id, const char *message, const char *remedy) {
        collector_problem(c, id, PROBLEM_DEGRADED, message, remedy);
        health_expire_at(c->health, id, collector_now() + windows_nsec[DELAYD_WINDOW_COUNT - 1]);
}

/*
 * Sampled first, so that what it has waited for so far stays in the cgroup where it happened; but not
 * when a reply has led here, for the client answers one query at a time.
 */
void collector_place(struct collector *c, uint32_t tid, uint64_t cgroup_id) {
        uint64_t now = collector_now();

        if (!c->querying && accounting_would_move(c->accounting, monotonic_nsec(), tid, cgroup_id))
                collector_query(c, &tid, 1);

        const struct task *task = task_newest(&c->accounting->tasks, tid);
        if (task && task->cgroup->key != cgroup_id)
                c->moved_nsec = now;
        collector_out_of_memory(c, accounting_place(c->accounting, now, tid, 0, cgroup_id));
}

static void on_fork(const struct fork_event *event, void *userdata) {
        struct collector *c = userdata;
        uint64_t id;

        int r = accounting_fork(c->accounting, collector_now(), event);
        if (r > 0)
                c->moved_nsec = collector_now();
        if (r > 0 && cgroup_tree_of_task(c->tree, event->tid, &id) >= 0)
                r = accounting_place(c->accounting, collector_now(), event->tid, event->tgid, id);
        collector_out_of_memory(c, r);
}

static void *memdup(const void *p, size_t size) {
        void *copy = p ? malloc(size) : NULL;

        return copy ? memcpy(copy, p, size) : NULL;
}

static void on_exit_record(const struct task_sample *sample, void *userdata) {
        struct collector *c = userdata;

        /* Its fork event may be waiting behind us. */
        if (c->connector && !task_of_exit_sample(&c->accounting->tasks, sample)) {
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
                return;
        }

        collector_out_of_memory(c, accounting_exit_sample(c->accounting, collector_now(), sample));
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

static void on_exec(uint32_t tgid, void *userdata) {
        struct collector *c = userdata;
        uint64_t id;

        /* Threads that ended in the exec have exit records, which have to be told first. */
        if (accounting_exec_ends_threads(c->accounting, tgid)) {
                drain_exits(c);
                accounting_exec(c->accounting, collector_now(), tgid);
        }

        /* A task that was cloned into another cgroup shows itself here at the latest. */
        if (cgroup_tree_of_task(c->tree, tgid, &id) >= 0)
                collector_place(c, tgid, id);
}

static void drain_connector(struct collector *c) {
        static const struct proc_connector_handler handler = { .fork = on_fork, .exec = on_exec };
        struct proc_connector_handler own = handler;

        /* An event that is being told may lead here again: the rest follows when it is done. */
        if (!c->connector || c->draining)
                return;

        own.userdata = c;
        c->draining = true;
        if (proc_connector_drain(c->connector, &own) < 0)
                c->dirty = true;
        c->draining = false;
}

/* Forks come before exits, since a task forks before it ends. */
void collector_drain(struct collector *c) {
        drain_connector(c);
        drain_exits(c);

        if (c->n_pending == 0)
                return;

        drain_connector(c);
        for (size_t i = 0; i < c->n_pending; i++) {
                collector_out_of_memory(c, accounting_exit_sample(c->accounting, collector_now(), &c->pending[i]));
                free((void *) c->pending[i].raw);
        }
        c->n_pending = 0;
}

/* Most tasks that were forked are gone soon after. Those that are not are sampled from now on. */
static void check_young(struct collector *c) {
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

        /* What they did before is to be known before they are forgotten. */
        if (n > 0)
                collector_drain(c);
        for (size_t i = 0; i < n; i++)
                accounting_ended(c->accounting, now, c->ended[i]);
}

static void on_reply(uint32_t tid, int error, const struct task_sample *sample, void *userdata) {
        struct collector *c = userdata;

        if (error == -ESRCH)
                accounting_vanished(c->accounting, collector_now(), tid);
        if (error < 0 || sample->start_min_nsec < c->started_since_nsec)
                return;

        collector_out_of_memory(c, accounting_live_sample(c->accounting, collector_now(), sample));
}

void collector_query(struct collector *c, const uint32_t *tids, size_t n) {
        c->querying = true;
        int r = taskstats_client_query(c->client, tids, n, on_reply, c);
        c->querying = false;

        if (r < 0)
                collector_problem(c, "polling", PROBLEM_FAILING, "Live tasks can no longer be asked for their delays.",
                                  "delayd needs CAP_NET_ADMIN for as long as it runs; restart it.");
        else
                collector_no_problem(c, "polling");
}

/* CpuBudget= is for sampling: what events cost, no sampling less often would save. */
static void keep_budget(struct collector *c, uint64_t now) {
        uint64_t span = now - c->budget_checked_nsec;

        if (span < BUDGET_INTERVAL_NSEC)
                return;

        uint64_t used = process_cpu_now() - c->events_cpu_nsec;
        schedule_keep_budget(&c->accounting->schedule,
                             (double) (used - c->budget_used_nsec) / (double) span, c->config->cpu_budget);
        c->budget_checked_nsec = now;
        c->budget_used_nsec = used;
}

void collector_start_budget(struct collector *c) {
        c->budget_checked_nsec = collector_now();
        c->budget_used_nsec = process_cpu_now() - c->events_cpu_nsec;
}

void collector_poll(struct collector *c) {
        uint64_t now = collector_now();

        /* Who was moved is to be known before what it has waited for. */
        collector_tree_changed(c);
        check_young(c);

        ssize_t n = schedule_due(&c->accounting->schedule, now, &c->tids, &c->allocated_tids);
        if (n < 0)
                collector_out_of_memory(c, (int) n);
        else if (n > 0)
                collector_query(c, c->tids, (size_t) n);

        c->last_poll_nsec = collector_now() - now;
        keep_budget(c, now);
        collector_arm_poll(c);
}

static int on_poll(sd_event_source *source, uint64_t usec, void *userdata) {
        collector_poll(userdata);
        return 0;
}

void collector_arm_poll(struct collector *c) {
        uint64_t next = schedule_next(&c->accounting->schedule), now = collector_now();

        /* Also without tasks, so that those that appear are asked. */
        if (next > now + c->config->poll_interval_nsec)
                next = now + c->config->poll_interval_nsec;

        (void) sd_event_source_set_time(c->poll_timer, next / NSEC_PER_USEC);
        (void) sd_event_source_set_enabled(c->poll_timer, SD_EVENT_ONESHOT);
}

static int on_exits_gathered(sd_event_source *source, uint64_t usec, void *userdata) {
        struct collector *c = userdata;

        return sd_event_source_set_enabled(c->exit_source, SD_EVENT_ON);
}

static int on_exits(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        struct collector *c = userdata;
        uint64_t cpu = process_cpu_now();

        collector_drain(c);
        c->events_cpu_nsec += process_cpu_now() - cpu;
        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_time_relative(c->exit_timer, GATHER_NSEC / NSEC_PER_USEC);
        return sd_event_source_set_enabled(c->exit_timer, SD_EVENT_ONESHOT);
}

static int on_forks_gathered(sd_event_source *source, uint64_t usec, void *userdata) {
        struct collector *c = userdata;

        return sd_event_source_set_enabled(c->connector_source, SD_EVENT_ON);
}

static int on_forks(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        struct collector *c = userdata;
        uint64_t cpu = process_cpu_now();

        drain_connector(c);
        check_young(c);
        c->events_cpu_nsec += process_cpu_now() - cpu;

        uint64_t gather = collector_now() - c->moved_nsec < MOVING_NSEC ? GATHER_MOVING_NSEC : GATHER_NSEC;
        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_time_relative(c->connector_timer, gather / NSEC_PER_USEC);
        return sd_event_source_set_enabled(c->connector_timer, SD_EVENT_ONESHOT);
}

static int on_sweep(sd_event_source *source, uint64_t usec, void *userdata) {
        struct collector *c = userdata;

        collector_sweep(c);
        if (c->lossy)
                collector_make_good(c);
        (void) sd_event_source_set_time_relative(
                        source, (c->connector ? SWEEP_INTERVAL_NSEC : c->config->poll_interval_nsec) / NSEC_PER_USEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int on_tree(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        struct collector *c = userdata;
        uint64_t cpu = process_cpu_now();

        collector_tree_changed(c);
        c->events_cpu_nsec += process_cpu_now() - cpu;
        return 0;
}

static int on_second(sd_event_source *source, uint64_t usec, void *userdata) {
        struct collector *c = userdata;

        collector_check(c);
        collector_forget(c);
        if (c->dirty)
                (void) sd_event_source_set_time_relative(c->sweep_timer, 0);

        for (const char *id; (id = health_expired(c->health, collector_now()));)
                problem_gone(c, id);

        (void) sd_event_source_set_time_relative(source, NSEC_PER_SEC / NSEC_PER_USEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int collector_attach(struct collector *c) {
        static const uint64_t soon = 1, second = 1000000, accuracy = 1000;
        int r;

        r = sd_event_add_io(c->event, &c->exit_source, exit_listener_fd(c->exits), EPOLLIN, on_exits, c);
        if (r < 0)
                return r;

        if (c->connector) {
                r = sd_event_add_io(c->event, &c->connector_source, proc_connector_fd(c->connector), EPOLLIN, on_forks, c);
                if (r < 0)
                        return r;
                r = sd_event_add_time_relative(c->event, &c->connector_timer, CLOCK_MONOTONIC, soon, 1, on_forks_gathered, c);
                if (r < 0)
                        return r;
        }

        if (cgroup_tree_fd(c->tree) >= 0) {
                r = sd_event_add_io(c->event, &c->tree_source, cgroup_tree_fd(c->tree), EPOLLIN, on_tree, c);
                if (r < 0)
                        return r;
        }

        r = sd_event_add_time_relative(c->event, &c->exit_timer, CLOCK_MONOTONIC, soon, accuracy, on_exits_gathered, c);
        if (r < 0)
                return r;
        /* Bursts need every sample at its time. */
        r = sd_event_add_time(c->event, &c->poll_timer, CLOCK_BOOTTIME, soon, 1, on_poll, c);
        if (r < 0)
                return r;
        r = sd_event_add_time_relative(c->event, &c->sweep_timer, CLOCK_MONOTONIC,
                                       SWEEP_INTERVAL_NSEC / NSEC_PER_USEC, 0, on_sweep, c);
        if (r < 0)
                return r;
        return sd_event_add_time_relative(c->event, &c->second_timer, CLOCK_MONOTONIC, second, 0, on_second, c);
}
