/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/accounting-internal.h"
#include "core/delta.h"
#include "core/plausibility.h"
#include "core/witness.h"
#include "core/task-history.h"

#define START_UNKNOWN_MAX_NSEC (UINT64_MAX / 2)

/* The fork event follows the moment that becomes the start time within this span, preemption included. */
#define FORK_EVENT_LATENESS_NSEC (20 * NSEC_PER_MSEC)

/* A task that is found in another cgroup this soon after its fork was put there before it began its work. */
#define LAUNCH_NSEC (50 * NSEC_PER_MSEC)

/* So many minor faults without a single copy on write: no process gets that far with delay accounting on. */
#define UNACCOUNTED_MINOR_FAULTS 100

int accounting_new(const struct accounting_config *config, struct accounting **ret) {
        struct accounting *a = calloc(1, sizeof(*a));

        if (!a)
                return -ENOMEM;

        a->config = *config;
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(config->kinds, kind))
                        a->kind_slot[kind] = (uint8_t) a->n_kinds++;
        a->tasks.n_kinds = a->n_kinds;
        schedule_init(&a->schedule, config->poll_interval_nsec);

        int r = cgroup_table_init(&a->cgroups, config->max_cgroups, config->max_exported, config->retention_nsec);
        if (r < 0) {
                accounting_free(a);
                return r;
        }
        a->cgroups.may_export = config->may_export;
        a->cgroups.may_export_userdata = config->may_export_userdata;

        *ret = a;
        return 0;
}

struct accounting *accounting_free(struct accounting *a) {
        if (!a)
                return NULL;

        task_table_done(&a->tasks);
        history_list_done(&a->gone);
        schedule_done(&a->schedule);
        cgroup_table_done(&a->cgroups);
        free(a);
        return NULL;
}

int accounting_reconfigure(struct accounting *a, uint64_t now_nsec, const struct accounting_config *config) {
        if (config->poll_interval_nsec != a->config.poll_interval_nsec) {
                int r = schedule_set_interval(&a->schedule, config->poll_interval_nsec, now_nsec);
                if (r < 0)
                        return r;
        }

        a->config.poll_interval_nsec = config->poll_interval_nsec;
        a->config.max_cgroups = a->cgroups.max_cgroups = config->max_cgroups;
        a->config.max_exported = a->cgroups.max_exported = config->max_exported;
        a->config.retention_nsec = a->cgroups.retention_nsec = config->retention_nsec;
        return 0;
}

void accounting_observe(struct accounting *a, accounting_observe_fn observe, void *userdata) {
        a->observe = observe;
        a->observe_userdata = userdata;
}

int accounting_cgroup_added(
                struct accounting *a, uint64_t now_nsec, uint64_t key, uint64_t parent_key, const char *path) {

        OBSERVE(a, .type = ACCOUNTING_CGROUP_ADDED, .now_nsec = now_nsec, .cgroup = { key, parent_key, path });
        return cgroup_table_add(&a->cgroups, now_nsec, key, parent_key, path, NULL);
}

void accounting_cgroup_removed(struct accounting *a, uint64_t now_nsec, uint64_t key) {
        OBSERVE(a, .type = ACCOUNTING_CGROUP_REMOVED, .now_nsec = now_nsec, .cgroup = { .key = key });
        cgroup_table_remove(&a->cgroups, now_nsec, key);
}

/* The task is over, or its TID belongs to another now. */
static void retire(struct accounting *a, uint64_t now_nsec, struct task *task) {
        schedule_remove(&a->schedule, task);
        history_list_take(&a->gone, now_nsec, task);
        task_leave(&a->tasks, now_nsec, task);
}

enum task_age { TASK_FORKED_NOW, TASK_LIVES, TASK_IS_OVER };

/* Adds a task, in the schedule unless it is known to be over. */
static int add_task(
                struct accounting *a,
                uint64_t now_nsec,
                uint32_t tid,
                uint32_t tgid,
                uint64_t start_min_nsec,
                uint64_t start_max_nsec,
                enum task_age age,
                struct task **ret) {

        struct task *before = task_newest(&a->tasks, tid);

        if (before && before->start_min_nsec <= start_max_nsec)
                retire(a, now_nsec, before);

        struct task *task = task_add(&a->tasks, now_nsec, tid, tgid, start_min_nsec, start_max_nsec);
        if (!task)
                return -ENOMEM;

        task->generation = a->generation;
        task_set_cgroup(task, a->cgroups.unattributed, ATTRIBUTION_NONE);

        if (age != TASK_IS_OVER) {
                int r = age == TASK_FORKED_NOW ? schedule_add_young(&a->schedule, task, now_nsec)
                                               : schedule_add(&a->schedule, task, now_nsec);
                if (r < 0) {
                        task_leave(&a->tasks, now_nsec, task);
                        return r;
                }
        }

        *ret = task;
        return 0;
}

int accounting_fork(struct accounting *a, uint64_t now_nsec, const struct fork_event *event) {
        /* It may have ended since, and an answer to a poll have said so. */
        const struct task *parent = hash_get(&a->tasks.by_tid, event->parent_tid);
        struct task *child = task_newest(&a->tasks, event->tid);
        uint64_t earliest = event->time_nsec > FORK_EVENT_LATENESS_NSEC ? event->time_nsec - FORK_EVENT_LATENESS_NSEC : 0;

        OBSERVE(a, .type = ACCOUNTING_FORK, .now_nsec = now_nsec, .fork = *event);
        if (!parent)
                parent = hash_get(&a->tasks.by_tid, event->parent_tgid);

        /* The parent's own entry may be the one that the child's number replaces. */
        struct cgroup *cgroup = parent ? parent->cgroup : NULL;
        uint32_t uid = parent ? parent->uid : 0;

        /* A sweep or a reply may have told of the child before its event was read. */
        bool known = child && !child->forked && child->start_min_nsec <= event->time_nsec
                     && child->start_max_nsec >= earliest;
        if (known) {
                task_set_tgid(&a->tasks, child, event->tgid);
                task_narrow_start(child, earliest, event->time_nsec);
        } else {
                int r = add_task(a, now_nsec, event->tid, event->tgid, earliest, event->time_nsec, TASK_FORKED_NOW, &child);
                if (r < 0)
                        return r;
                child->uid = uid;
        }
        child->forked = true;
        if (event->tid == event->tgid)
                child->ppid = event->parent_tgid;

        if (known && child->attribution == ATTRIBUTION_CACHE)
                return 0;
        if (!cgroup || cgroup == a->cgroups.unattributed)
                return 1;

        task_set_cgroup(child, cgroup, ATTRIBUTION_CACHE);
        attribution_inherit(a, child, event);
        return child->to_check ? 2 : 0;
}

/* The sum of all that a task has accounted, to tell which of several threads went on. */
static uint64_t accounted_sum(const struct accounting *a, const struct task *task) {
        uint64_t sum = 0;

        for (unsigned slot = 0; slot < a->n_kinds; slot++)
                sum += task->baseline[slot].count;
        return sum;
}

bool accounting_exec_ends_threads(const struct accounting *a, uint32_t tgid) {
        const struct task *leader = task_newest(&a->tasks, tgid);

        return !leader || leader->threads > 0;
}

void accounting_exec(struct accounting *a, uint64_t now_nsec, uint32_t tgid) {
        struct task *leader = task_newest(&a->tasks, tgid), *survivor = NULL;
        size_t cursor = 0;

        OBSERVE(a, .type = ACCOUNTING_EXEC, .now_nsec = now_nsec, .tid = tgid);

        /* All other threads are gone, and those that had waited left exit records: who did not, is the one that went on. */
        for (struct task *task; (task = task_next(&a->tasks, &cursor));)
                if (task->tgid == tgid && task->tid != tgid
                    && (!survivor || accounted_sum(a, task) > accounted_sum(a, survivor)))
                        survivor = task;

        if (leader && (!survivor || accounted_sum(a, survivor) == 0))
                survivor = NULL; /* the leader itself, or a thread that has nothing to hand on */
        else if (survivor) {
                if (leader)
                        retire(a, now_nsec, leader);
                (void) task_rename(&a->tasks, now_nsec, survivor, tgid); /* fails only for want of memory */
        }

        cursor = 0;
        for (struct task *task; (task = task_next(&a->tasks, &cursor));)
                if (task->tgid == tgid && task->tid != tgid)
                        retire(a, now_nsec, task);
}

int accounting_ask_pressure(struct accounting *a, uint64_t now_nsec, uint64_t key, uint64_t *ret_stall_nsec) {
        uint64_t stall = 0;

        int r = a->config.pressure(key, &stall, a->config.userdata);
        OBSERVE(a, .type = ACCOUNTING_PRESSURE, .now_nsec = now_nsec,
                .pressure = { key, r, a->config.n_cpus, stall });
        if (r < 0)
                return r;

        *ret_stall_nsec = stall;
        return 0;
}

bool accounting_would_move(const struct accounting *a, uint64_t monotonic_nsec, uint32_t tid, uint64_t cgroup_key) {
        const struct task *task = task_newest(&a->tasks, tid);

        if (!task)
                return false;

        /* Forked, moved and executed a moment ago: it waited where it is now, not in its parent's cgroup. */
        if (task->inherited && !task->sampled && monotonic_nsec <= task->start_max_nsec + LAUNCH_NSEC)
                return false;

        return task->attribution != ATTRIBUTION_NONE
                && task->cgroup != cgroup_table_get(&a->cgroups, cgroup_key);
}

bool accounting_is_in(const struct accounting *a, uint32_t tid, uint64_t cgroup_key) {
        const struct task *task = task_newest(&a->tasks, tid);

        return task && task->attribution == ATTRIBUTION_CACHE && task->cgroup == cgroup_table_get(&a->cgroups, cgroup_key);
}

int accounting_place(struct accounting *a, uint64_t now_nsec, uint32_t tid, uint32_t tgid, uint64_t cgroup_key) {
        struct task *task = task_newest(&a->tasks, tid);
        const struct task *latest = hash_get(&a->tasks.by_tid, tid);

        OBSERVE(a, .type = ACCOUNTING_PLACE, .now_nsec = now_nsec, .place = { tid, tgid, cgroup_key });

        /* Listed a moment ago, but its exit record has come: not a new task. */
        if (!task && latest && latest->exited)
                return 0;

        if (!task) {
                int r = add_task(a, now_nsec, tid, tgid, 0, START_UNKNOWN_MAX_NSEC, TASK_LIVES, &task);
                if (r < 0)
                        return r;
        }

        if (tgid != 0)
                task_set_tgid(&a->tasks, task, tgid);
        task->generation = a->generation;

        struct cgroup *cgroup = cgroup_table_get(&a->cgroups, cgroup_key);
        if (cgroup != task->cgroup && task->sampled)
                task->settling = 2;
        attribution_place(a, task, cgroup);
        return 0;
}

void accounting_sweep_begin(struct accounting *a) {
        OBSERVE(a, .type = ACCOUNTING_SWEEP_BEGIN);
        a->generation++;
}

void accounting_sweep_end(struct accounting *a, uint64_t now_nsec) {
        size_t cursor = 0;

        OBSERVE(a, .type = ACCOUNTING_SWEEP_END, .now_nsec = now_nsec);
        for (struct task *task; (task = task_next(&a->tasks, &cursor));)
                if ((uint16_t) (a->generation - task->generation) >= 2)
                        retire(a, now_nsec, task);
}

/* What one delta comes to, once the waits whose own length is not known are spread. */
struct parts {
        struct delay_batch batches[DELTA_BATCHES_MAX + WAIT_SHAPE_SPREAD_MAX]; /* a delta has one batch at most that can be spread */
        unsigned n;
};

static void add_parts(
                struct parts *parts,
                struct wait_shape *shape,
                const struct delay_batch *batch,
                const struct delay_counters *counters,
                bool has_extremes) {

        if (!shape || batch->exact || batch->waits < 2)
                parts->batches[parts->n++] = *batch;
        else
                parts->n += wait_shape_spread(shape, batch, has_extremes ? counters->min_nsec : 0,
                                              has_extremes ? counters->max_nsec : UINT64_MAX,
                                              parts->batches + parts->n);
}

/* Samples with few waits say how the single ones are; with three the mean is still close to each. */
static void learn_shape(struct wait_shape *shape, const struct delay_delta *delta) {
        if (delta->waits == 0 || delta->waits > 3)
                return;

        for (unsigned i = 0; i < delta->n_batches; i++)
                if (delta->batches[i].waits > 0)
                        wait_shape_learn(shape, delta->batches[i].total_nsec / delta->batches[i].waits,
                                         delta->batches[i].waits);
}

/* Puts accepted and refused waits where they belong. */
static int feed(
                struct accounting *a,
                uint64_t now_nsec,
                struct task *task,
                const struct task_sample *sample,
                enum delay_kind kind,
                struct delay_delta *delta) {

        const struct delay_counters *counters = &sample->delays[kind];
        struct delay_stats *stats, *own, *other = NULL;
        struct wait_shape *shape = NULL;
        struct parts parts; /* large, and mostly unused */
        bool without_io = kind == DELAY_BLKIO && sample->read_bytes == 0 && sample->write_bytes == 0
                          && sample->major_faults == 0;

        if (delta->n_batches == 0 && delta->refused_waits == 0)
                return 0;
        parts.n = 0;

        cgroup_table_begin_waiting(&a->cgroups, task->cgroup);
        stats = cgroup_stats(task->cgroup, kind);
        own = task_history_stats(task, &a->gone, sample, kind);
        if (!task->cgroup->exported)
                other = cgroup_stats(a->cgroups.other, kind);
        if (!stats || !own || (!task->cgroup->exported && !other))
                return -ENOMEM;

        if (task->in_burst) {
                shape = task_history_shape(task, kind);
                if (shape)
                        learn_shape(shape, delta);
        }

        for (unsigned i = 0; i < delta->n_batches; i++) {
                delta->batches[i].without_io = without_io;
                add_parts(&parts, shape, &delta->batches[i], counters, sample->has_extremes);
        }

        struct delay_stats *const all[] = { stats, own, other };
        for (unsigned i = 0; i < 2 + !!other; i++) {
                int r = delay_stats_add_all(all[i], now_nsec, parts.batches, parts.n, delta->refused_waits);
                if (r < 0)
                        return r;
        }

        return 0;
}

static bool has_delays(const struct task_sample *sample) {
        for (unsigned kind = DELAY_CPU + 1; kind < DELAY_KIND_COUNT; kind++)
                if (sample->delays[kind].count > 0)
                        return true;

        return false;
}

static bool is_unaccounted(struct accounting *a, const struct task *task, const struct task_sample *sample) {
        uint64_t start = task->start_max_nsec;

        if (start == 0)
                return false; /* the record does not say */

        if (has_delays(sample)) {
                delay_evidence_add(&a->evidence, start, true);
                return false;
        }

        bool leads = sample->tid == task->tgid;
        if (delay_kind_in(sample->kinds, DELAY_WPCOPY) && leads && sample->minor_faults >= UNACCOUNTED_MINOR_FAULTS) {
                delay_evidence_add(&a->evidence, start, false);
                return true;
        }

        switch (delay_evidence_judge(&a->evidence, start)) {
        case DELAY_EVIDENCE_OFF:
                return true;
        case DELAY_EVIDENCE_AFTER_OFF: {
                const struct task *leader = leads || task->tgid == 0 ? NULL : task_newest(&a->tasks, task->tgid);

                return leader && leader->unaccounted;
        }
        default:
                return false;
        }
}

static void judge_unaccounted(struct accounting *a, struct task *task, const struct task_sample *sample) {
        bool unaccounted = is_unaccounted(a, task, sample);

        if (unaccounted == task->unaccounted)
                return;

        if (!task->is_leaving)
                task->cgroup->unaccounted_tasks += unaccounted ? 1 : -1U;
        task->unaccounted = unaccounted;
}

static uint64_t clock_error(const struct accounting *a) {
        return a->config.rough_clock ? CLOCK_ERROR_ROUGH_NSEC : CLOCK_ERROR_NSEC;
}

static void take_baseline(
                const struct accounting *a,
                struct task_baseline *baseline,
                const struct task_sample *sample,
                enum delay_kind kind) {

        *baseline = (struct task_baseline) {
                .count = (uint32_t) sample->delays[kind].count,
                .total_nsec = sample->delays[kind].total_nsec,
                .max_nsec = sample->delays[kind].max_nsec,
                .min_nsec = sample->delays[kind].min_nsec,
                .refused_nsec = plausibility_refused_at_first(sample, kind, clock_error(a)),
        };
}

static void take_baselines(struct accounting *a, struct task *task, const struct task_sample *sample) {
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(a->config.kinds, kind))
                        take_baseline(a, &task->baseline[a->kind_slot[kind]], sample, kind);
}

/* Accounts what has changed since the task's last sample. Returns the most waits of any kind, or a negative errno. */
static int64_t account_deltas(
                struct accounting *a, uint64_t now_nsec, struct task *task, const struct task_sample *sample, bool final) {

        bool backwards = false, refused = false;
        enum reject_reason reason = REJECT_IMPOSSIBLE;
        int64_t most = 0;
        int ret = 0;

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                struct task_baseline *baseline = &task->baseline[a->kind_slot[kind]];
                struct delay_bounds bounds;
                struct delay_delta delta;

                if (!delay_kind_in(a->config.kinds & sample->kinds, kind))
                        continue;

                if (baseline->unknown) {
                        take_baseline(a, baseline, sample, kind);
                        continue;
                }

                plausibility_bounds(task, baseline, sample, kind, clock_error(a), &bounds);
                if (kind == DELAY_BLKIO && sample->delays[kind].total_nsec - baseline->total_nsec >= WITNESS_FROM_NSEC)
                        witness_bounds(a, now_nsec, task, sample, &bounds);
                delta_take(baseline, &sample->delays[kind], &bounds, sample->has_extremes, final, &delta);
                if (delta.refused_waits || delta.backwards) {
                        reason = delta.reason;
                        refused = refused || delta.refused_waits;
                        backwards = backwards || delta.backwards;
                }

                int r = feed(a, now_nsec, task, sample, kind, &delta);
                if (r < 0)
                        ret = r;

                /* Waiting for a CPU and interrupts are no reason to look more often: they happen all the time. */
                if (kind != DELAY_CPU && kind != DELAY_IRQ && (int64_t) delta.waits > most)
                        most = (int64_t) delta.waits;
        }

        if (refused || backwards)
                a->rejected_samples[reason]++;
        else
                a->accepted_samples++;

        return ret < 0 ? ret : most;
}

/* Returns the number of waits in the fullest delta, or a negative errno. */
static int64_t take_sample(
                struct accounting *a, uint64_t now_nsec, struct task *task, const struct task_sample *sample, bool final) {

        int64_t waits = 0;

        task_narrow_start(task, sample->start_min_nsec, sample->start_max_nsec);
        if (sample->tgid != 0)
                task_set_tgid(&a->tasks, task, sample->tgid);
        task->ppid = sample->ppid;
        task->uid = sample->uid;
        judge_unaccounted(a, task, sample);

        /* What a task waited for before the daemon began to count happened at no known time. */
        if (task->sampled || sample->start_max_nsec >= a->config.started_nsec)
                waits = account_deltas(a, now_nsec, task, sample, final);
        else if (final && has_delays(sample))
                a->rejected_samples[REJECT_NO_BASELINE]++;
        else {
                take_baselines(a, task, sample);
                a->accepted_samples++;
        }

        if (task->sampled && sample->run_nsec != task->run_nsec) {
                task->anchor_nsec = task->lifetime_nsec;
                task->settling -= task->settling > 0;
        }
        task->lifetime_nsec = sample->lifetime_nsec;
        task->run_nsec = sample->run_nsec;
        task->cpu_delay_nsec = sample->delays[DELAY_CPU].total_nsec;
        task->sampled = true;
        return waits;
}

int accounting_live_sample(struct accounting *a, uint64_t now_nsec, const struct task_sample *sample) {
        struct task *task = task_of_live_sample(&a->tasks, sample);

        OBSERVE(a, .type = ACCOUNTING_LIVE_SAMPLE, .now_nsec = now_nsec, .sample = sample);

        if (!task) {
                if (task_is_ghost(&a->tasks, sample))
                        return 0;

                int r = add_task(a, now_nsec, sample->tid, sample->tgid,
                                 sample->start_min_nsec, sample->start_max_nsec, TASK_LIVES, &task);
                if (r < 0)
                        return r;
        }

        attribution_settle_live(a, task, sample);

        int64_t waits = take_sample(a, now_nsec, task, sample, false);
        if (waits < 0)
                return (int) waits;

        schedule_adapt(&a->schedule, task, now_nsec, (uint64_t) waits);
        return 0;
}

int accounting_exit_sample(struct accounting *a, uint64_t now_nsec, const struct task_sample *sample) {
        struct task *task = task_of_exit_sample(&a->tasks, sample);

        OBSERVE(a, .type = ACCOUNTING_EXIT_SAMPLE, .now_nsec = now_nsec, .sample = sample);

        if (!task) {
                int r = add_task(a, now_nsec, sample->tid, sample->tgid,
                                 sample->start_min_nsec, sample->start_max_nsec, TASK_IS_OVER, &task);
                if (r < 0)
                        return r;
        }

        attribution_settle_exit(a, task, sample);

        int64_t waits = take_sample(a, now_nsec, task, sample, true);

        a->exits++;
        a->attributed[task->attribution]++;
        task->exited = true;
        retire(a, now_nsec, task);

        return waits < 0 ? (int) waits : 0;
}

void accounting_vanished(struct accounting *a, uint64_t now_nsec, uint32_t tid) {
        struct task *task = task_newest(&a->tasks, tid);

        OBSERVE(a, .type = ACCOUNTING_VANISHED, .now_nsec = now_nsec, .tid = tid);
        if (task)
                retire(a, now_nsec, task);
}

struct task *accounting_next_young(struct accounting *a, uint64_t before_nsec) {
        return schedule_take_young(&a->schedule, before_nsec);
}

int accounting_grown_up(struct accounting *a, uint64_t now_nsec, struct task *task) {
        if (task->is_leaving)
                return 0; /* as below */

        return schedule_add(&a->schedule, task, now_nsec);
}

void accounting_ended(struct accounting *a, uint64_t now_nsec, struct task *task) {
        if (task->is_leaving)
                return; /* its exit record has come, or its number went to another */

        OBSERVE(a, .type = ACCOUNTING_VANISHED, .now_nsec = now_nsec, .tid = task->tid);
        schedule_remove(&a->schedule, task);
        history_list_take(&a->gone, now_nsec, task);
        task_forget(&a->tasks, task);
}

void accounting_age(struct accounting *a, uint64_t now_nsec) {
        struct task *task;

        OBSERVE(a, .type = ACCOUNTING_AGE, .now_nsec = now_nsec);

        /* Where nobody looks for them, as in a replay. Without memory one is left to its exit record. */
        while ((task = schedule_take_young(&a->schedule, now_nsec > NSEC_PER_SEC ? now_nsec - NSEC_PER_SEC : 0)))
                (void) schedule_add(&a->schedule, task, now_nsec);
        task_expire(&a->tasks, now_nsec > TASK_LEAVING_NSEC ? now_nsec - TASK_LEAVING_NSEC : 0);
        witness_tick(a, now_nsec);
        history_list_age(&a->gone, now_nsec, a->config.retention_nsec);
        cgroup_table_age(&a->cgroups, now_nsec);
}
