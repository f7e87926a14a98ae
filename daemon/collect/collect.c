/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include <delayd/limits.h>

#include "collect/collect.h"
#include "collect/collector.h"
#include "kernel/kernel-info.h"
#include "kernel/monotonic.h"
#include "log.h"
#include "record/recorder.h"

/*
 * After a first record, which is read at once, further ones are gathered for this long: a wake-up for each
 * would cost more than the record. Execs are read sooner, while the task can still be looked at.
 */
#define GATHER_NSEC (10 * NSEC_PER_MSEC)
#define EXEC_GATHER_NSEC (1 * NSEC_PER_MSEC)
#define EXECS_NSEC (20 * NSEC_PER_MSEC) /* after one there will be others */

/* The same while tasks are hard to follow: they cannot be looked at once they are reaped. */
#define EXIT_GATHER_BUSY_NSEC (1 * NSEC_PER_MSEC)
#define FORK_GATHER_BUSY_NSEC (200 * NSEC_PER_USEC)

#define DRAIN_INTERVAL_NSEC (1 * NSEC_PER_MSEC)
#define BUDGET_INTERVAL_NSEC (250 * NSEC_PER_MSEC)

/* Sweeps find what events did not tell; where the kernel tells of forks they are only a safety net. */
#define SWEEP_INTERVAL_NSEC (10 * NSEC_PER_SEC)

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

        /* Who was moved is to be known before what it has waited for; but not for each sample of a burst. */
        if (now - c->drained_nsec >= DRAIN_INTERVAL_NSEC) {
                collector_drain(c);
                collector_check_young(c);
        }

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

static uint64_t gather_for(const struct collector *c, const struct collector_feed *feed, uint64_t now) {
        if (now < c->busy_until_nsec)
                return feed->busy_gather_nsec;
        if (feed == &c->fork_feed && now - c->last_exec_nsec < EXECS_NSEC)
                return EXEC_GATHER_NSEC;

        return feed->gather_nsec;
}

/* Leaves the feed alone for a while. */
static void gather(struct collector_feed *feed, uint64_t nsec) {
        feed->counted = feed->count ? *feed->count : 0;
        if (!feed->gathering)
                (void) sd_event_source_set_enabled(feed->source, SD_EVENT_OFF);
        feed->gathering = true;
        (void) sd_event_source_set_time_relative(feed->timer, nsec / NSEC_PER_USEC);
        (void) sd_event_source_set_enabled(feed->timer, SD_EVENT_ONESHOT);
}

static int stop_gathering(struct collector_feed *feed) {
        feed->gathering = false;
        return sd_event_source_set_enabled(feed->source, SD_EVENT_ON);
}

/*
 * However many events there are, they do not get more than a quarter of a CPU, for each round takes them all.
 * While there are some each time, only the timer wakes us: half as often as if the socket did too.
 */
static int read_feed(struct collector_feed *feed) {
        struct collector *c = feed->collector;
        struct collector_feed *const all[] = { &c->exit_feed, &c->fork_feed };
        uint64_t cpu = process_cpu_now();

        collector_drain(c);
        collector_check_young(c);

        uint64_t used = process_cpu_now() - cpu, rest = used * 3, now = collector_now(), wait = gather_for(c, feed, now);

        c->events_cpu_nsec += used;

        /* What the other feed had was read as well: its timer need not wake us too, before it has to. */
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
                if (all[i] != feed && all[i]->gathering && *all[i]->count != all[i]->counted) {
                        uint64_t others = gather_for(c, all[i], now);

                        gather(all[i], rest > others ? rest : others);
                }

        if (feed->count && *feed->count == feed->counted)
                return stop_gathering(feed);

        gather(feed, rest > wait ? rest : wait);
        return 0;
}

static int on_gathered(sd_event_source *source, uint64_t usec, void *userdata) {
        struct collector_feed *feed = userdata;

        return feed->count ? read_feed(feed) : stop_gathering(feed);
}

static int on_events(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        return read_feed(userdata);
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

static int attach_feed(
                struct collector *c,
                struct collector_feed *feed,
                int fd,
                const uint64_t *count,
                uint64_t gather_nsec,
                uint64_t busy_gather_nsec) {

        *feed = (struct collector_feed) {
                .collector = c,
                .count = count,
                .gather_nsec = gather_nsec,
                .busy_gather_nsec = busy_gather_nsec,
        };

        int r = sd_event_add_io(c->event, &feed->source, fd, EPOLLIN, on_events, feed);
        if (r >= 0)
                r = sd_event_add_time_relative(c->event, &feed->timer, CLOCK_MONOTONIC, 1, 1, on_gathered, feed);

        /* Whoever ends within a millisecond has to be looked at before anybody else is served. */
        if (r >= 0)
                r = sd_event_source_set_priority(feed->source, SD_EVENT_PRIORITY_IMPORTANT);
        if (r >= 0)
                r = sd_event_source_set_priority(feed->timer, SD_EVENT_PRIORITY_IMPORTANT);
        return r;
}

int collector_attach_connector(struct collector *c) {
        return attach_feed(c, &c->fork_feed, proc_connector_fd(c->connector), &c->n_fork_events,
                           GATHER_NSEC, FORK_GATHER_BUSY_NSEC);
}

int collector_attach_tree(struct collector *c) {
        if (c->tree_feed.source || cgroup_tree_fd(c->tree) < 0)
                return 0;

        return attach_feed(c, &c->tree_feed, cgroup_tree_fd(c->tree), NULL, 0, 0);
}

int collector_attach(struct collector *c) {
        static const uint64_t soon = 1, second = 1000000;
        int r;

        r = attach_feed(c, &c->exit_feed, exit_listener_fd(c->exits), &c->n_exit_records, GATHER_NSEC, EXIT_GATHER_BUSY_NSEC);
        if (r >= 0 && c->connector)
                r = collector_attach_connector(c);
        if (r >= 0)
                r = collector_attach_tree(c);
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

static void detach_feed(struct collector_feed *feed) {
        feed->source = sd_event_source_disable_unref(feed->source);
        feed->timer = sd_event_source_disable_unref(feed->timer);
}

void collector_detach_connector(struct collector *c) {
        detach_feed(&c->fork_feed);
}

void collector_detach(struct collector *c) {
        sd_event_source **timers[] = { &c->poll_timer, &c->sweep_timer, &c->second_timer };

        detach_feed(&c->exit_feed);
        detach_feed(&c->fork_feed);
        detach_feed(&c->tree_feed);
        for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
                *timers[i] = sd_event_source_disable_unref(*timers[i]);
}
