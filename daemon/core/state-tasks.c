/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "core/state-tasks.h"

enum {
        TASK_LEAVING = 1 << 0,
        TASK_EXITED = 1 << 1,
        TASK_SAMPLED = 1 << 2,
        TASK_UNACCOUNTED = 1 << 3,
        TASK_FORKED = 1 << 4,
        TASK_INHERITED = 1 << 5,
        TASK_TO_CHECK = 1 << 6,
        TASK_DOUBTFUL = 1 << 7,
        TASK_PROVEN = 1 << 8,
        TASK_ALL_FLAGS = (1 << 9) - 1,
};
#define TASK_SIZE_MIN 5U

enum {
        BASELINE_WENT_DOWN = 1 << 0,
        BASELINE_UNKNOWN = 1 << 1,
};

static void put_baselines(struct state_writer *w, const struct accounting *a, const struct task *task) {
        for (unsigned slot = 0; slot < a->n_kinds; slot++) {
                const struct task_baseline *b = &task->baseline[slot];

                state_put(w, b->total_nsec);
                state_put(w, b->max_nsec);
                state_put(w, b->min_nsec);
                state_put(w, b->refused_nsec);
                state_put(w, b->count);
                state_put(w, (b->went_down ? BASELINE_WENT_DOWN : 0U) | (b->unknown ? BASELINE_UNKNOWN : 0U));
        }
}

static void get_baselines(struct state_reader *r, const struct accounting *a, delay_kind_set saved_kinds, struct task *task) {
        for (unsigned slot = 0; slot < a->n_kinds; slot++)
                task->baseline[slot].unknown = true;

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                if (!delay_kind_in(saved_kinds, kind))
                        continue;

                struct task_baseline b = {};

                b.total_nsec = state_get(r);
                b.max_nsec = state_get(r);
                b.min_nsec = state_get(r);
                b.refused_nsec = state_get(r);
                b.count = (uint32_t) state_get_up_to(r, UINT32_MAX);
                uint64_t flags = state_get_up_to(r, BASELINE_WENT_DOWN | BASELINE_UNKNOWN);
                b.went_down = flags & BASELINE_WENT_DOWN;
                b.unknown = flags & BASELINE_UNKNOWN;
                if (delay_kind_in(a->config.kinds, kind))
                        task->baseline[a->kind_slot[kind]] = b;
        }
}

static uint64_t flags_of(const struct task *task) {
        return (task->is_leaving ? TASK_LEAVING : 0U) | (task->exited ? TASK_EXITED : 0U)
                | (task->sampled ? TASK_SAMPLED : 0U) | (task->unaccounted ? TASK_UNACCOUNTED : 0U)
                | (task->forked ? TASK_FORKED : 0U) | (task->inherited ? TASK_INHERITED : 0U)
                | (task->to_check ? TASK_TO_CHECK : 0U) | (task->doubtful ? TASK_DOUBTFUL : 0U)
                | (task->proven ? TASK_PROVEN : 0U);
}

static void put_task(struct state_writer *w, const struct accounting *a, const struct task *task) {
        state_put(w, flags_of(task));
        state_put(w, task->tid);
        state_put(w, task->tgid);
        state_put(w, task->start_min_nsec);
        state_put(w, task->start_max_nsec);
        if (task->is_leaving)
                state_put(w, task->leaving_nsec);
        if (task->exited)
                return; /* that it did is all there is to know */

        state_put(w, task->ppid);
        state_put(w, task->parent_tgid);
        state_put(w, task->forks);
        state_put(w, task->scatters);
        state_put(w, task->uid);
        state_put(w, task->attribution);
        state_put(w, task->cgroup->key);
        if (task->sampled) {
                state_put(w, task->lifetime_nsec);
                state_put(w, task->run_nsec);
                state_put(w, task->cpu_delay_nsec);
                state_put(w, task->anchor_nsec);
                state_put(w, task->settling);
                put_baselines(w, a, task);
        }
}

static int add_task(
                struct accounting *a, uint64_t flags, uint32_t tid, uint32_t tgid, uint64_t start_min_nsec,
                uint64_t start_max_nsec, struct task **ret) {

        bool leaving = flags & TASK_LEAVING;
        struct task *task;

        if (flags & TASK_EXITED && !leaving)
                return -EBADMSG;

        int r = task_restore(&a->tasks, tid, tgid, start_min_nsec, start_max_nsec, leaving, &task);
        if (r < 0)
                return r == -EEXIST ? -EBADMSG : r;

        task->exited = flags & TASK_EXITED;
        task->sampled = flags & TASK_SAMPLED;
        task->unaccounted = flags & TASK_UNACCOUNTED;
        task->forked = flags & TASK_FORKED;
        task->inherited = flags & TASK_INHERITED;
        task->to_check = flags & TASK_TO_CHECK;
        task->doubtful = flags & TASK_DOUBTFUL;
        task->proven = flags & TASK_PROVEN;
        task_set_cgroup(task, a->cgroups.unattributed, ATTRIBUTION_NONE);

        *ret = task;
        return 0;
}

static int get_details(struct state_reader *r, struct accounting *a, delay_kind_set saved_kinds, struct task *task) {

        task->ppid = (uint32_t) state_get_up_to(r, UINT32_MAX);
        task->parent_tgid = (uint32_t) state_get_up_to(r, UINT32_MAX);
        task->forks = (uint8_t) state_get_up_to(r, UINT8_MAX);
        task->scatters = (uint8_t) state_get_up_to(r, UINT8_MAX);
        task->uid = (uint32_t) state_get_up_to(r, UINT32_MAX);

        uint64_t attribution = state_get_up_to(r, ATTRIBUTION_SOURCE_COUNT - 1);
        struct cgroup *cgroup = cgroup_table_find(&a->cgroups, state_get(r));
        if (!cgroup)
                r->bad = true;
        else
                task_set_cgroup(task, cgroup, (uint8_t) attribution);

        if (task->sampled) {
                task->lifetime_nsec = state_get(r);
                task->run_nsec = state_get(r);
                task->cpu_delay_nsec = state_get(r);
                task->anchor_nsec = state_get(r);
                task->settling = state_get_up_to(r, 2);
                get_baselines(r, a, saved_kinds, task);
        }

        return r->bad ? -EBADMSG : 0;
}

static int get_task(struct state_reader *r, struct accounting *a, delay_kind_set saved_kinds, uint64_t saved_nsec) {

        struct task *task;
        int error;

        uint64_t flags = state_get_up_to(r, TASK_ALL_FLAGS);
        uint32_t tid = (uint32_t) state_get_up_to(r, UINT32_MAX), tgid = (uint32_t) state_get_up_to(r, UINT32_MAX);
        uint64_t start_min_nsec = state_get(r), start_max_nsec = state_get(r);
        uint64_t leaving_nsec = flags & TASK_LEAVING ? state_get_up_to(r, saved_nsec) : 0;

        if (r->bad)
                return -EBADMSG;

        error = add_task(a, flags, tid, tgid, start_min_nsec, start_max_nsec, &task);
        if (error < 0)
                return error;

        if (!task->exited) {
                error = get_details(r, a, saved_kinds, task);
                if (error < 0)
                        return error;
        }

        if (flags & TASK_LEAVING)
                task_leave(&a->tasks, leaving_nsec, task);
        else
                return schedule_add(&a->schedule, task, saved_nsec);

        return 0;
}

/* Leaders go before their threads, which are counted with them. Only counts without a writer. */
static size_t each_live(const struct accounting *a, bool leaders, struct state_writer *w) {
        size_t cursor = 0, n = 0;

        for (const struct task *task; (task = task_next(&a->tasks, &cursor));)
                if ((task->tid == task->tgid) == leaders) {
                        n++;
                        if (w)
                                put_task(w, a, task);
                }

        return n;
}

void state_put_tasks(struct state_writer *w, const struct accounting *a) {
        size_t n = each_live(a, true, NULL) + each_live(a, false, NULL);

        for (const struct task *task = a->tasks.leaving_first; task; task = task->leaving)
                n++;
        state_put(w, n);

        each_live(a, true, w);
        each_live(a, false, w);
        for (const struct task *task = a->tasks.leaving_first; task; task = task->leaving)
                put_task(w, a, task);
}

int state_get_tasks(struct state_reader *r, struct accounting *a, delay_kind_set saved_kinds, uint64_t saved_nsec) {
        size_t n = state_get_count(r, TASK_SIZE_MIN);

        for (size_t i = 0; i < n && !r->bad; i++) {
                int error = get_task(r, a, saved_kinds, saved_nsec);
                if (error < 0)
                        return error;
        }

        return r->bad ? -EBADMSG : 0;
}
