/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/task-history.h"
#include "core/task-table.h"

/* Spans of the same start, seen through different clocks' reads, may miss each other by this much. */
#define START_SLACK_NSEC (2 * NSEC_PER_MSEC)

static bool start_matches(const struct task *task, const struct task_sample *sample) {
        return task->start_min_nsec <= sample->start_max_nsec + START_SLACK_NSEC
                && sample->start_min_nsec <= task->start_max_nsec + START_SLACK_NSEC;
}

struct task *task_newest(const struct task_table *t, uint32_t tid) {
        struct task *task = hash_get(&t->by_tid, tid);

        return task && !task->is_leaving ? task : NULL;
}

struct task *task_of_live_sample(const struct task_table *t, const struct task_sample *sample) {
        struct task *task = hash_get(&t->by_tid, sample->tid);

        return task && !task->is_leaving && start_matches(task, sample) ? task : NULL;
}

/* Of the same process and the same parent. Only a hint, since a parent that ended is replaced. */
static bool has_relatives_of(const struct task *task, const struct task_sample *sample) {
        return task->tgid == sample->tgid && task->ppid == sample->ppid;
}

struct task *task_of_exit_sample(const struct task_table *t, const struct task_sample *sample) {
        struct task *best = NULL;

        /* Records of different CPUs come out of order, and some start times are known to 10 ms only. */
        for (struct task *task = hash_get(&t->by_tid, sample->tid); task; task = task->older)
                if (!task->exited && start_matches(task, sample)
                    && (!best || has_relatives_of(task, sample) || !has_relatives_of(best, sample)))
                        best = task;

        return best;
}

bool task_is_ghost(const struct task_table *t, const struct task_sample *sample) {
        const struct task *task = hash_get(&t->by_tid, sample->tid);

        return task && task->is_leaving && start_matches(task, sample);
}

/* Counts the task in its process, or out of it. Only as a hint that a process has other threads. */
static void count_thread(struct task_table *t, const struct task *task, int step) {
        struct task *leader;

        if (task->tgid == 0 || task->tgid == task->tid)
                return;

        leader = hash_get(&t->by_tid, task->tgid);
        if (leader && (step > 0 || leader->threads > 0))
                leader->threads += (uint32_t) step;
}

void task_set_cgroup(struct task *task, struct cgroup *cgroup, uint8_t attribution) {
        if (task->cgroup) {
                task->cgroup->entries--;
                if (!task->is_leaving) {
                        task->cgroup->tasks--;
                        task->cgroup->unaccounted_tasks -= task->unaccounted;
                }
        }

        task->cgroup = cgroup;
        task->attribution = attribution;
        if (!cgroup)
                return;

        cgroup->entries++;
        if (!task->is_leaving) {
                cgroup->tasks++;
                cgroup->unaccounted_tasks += task->unaccounted;
        }
}

#define SPARE_MAX 256U

static struct task *allocate(struct task_table *t) {
        size_t size = sizeof(struct task) + t->n_kinds * sizeof(struct task_baseline);
        struct task *task = t->spare;

        if (!task)
                return calloc(1, size);

        t->spare = task->older;
        t->n_spare--;
        memset(task->baseline, 0, size - sizeof(struct task));
        return task;
}

struct task *task_add(
                struct task_table *t,
                uint64_t now_nsec,
                uint32_t tid,
                uint32_t tgid,
                uint64_t start_min_nsec,
                uint64_t start_max_nsec) {

        struct task *before = hash_get(&t->by_tid, tid);
        struct task *task = allocate(t);

        if (!task)
                return NULL;

        *task = (struct task) {
                .older = before,
                .tid = tid,
                .tgid = tgid,
                .start_min_nsec = start_min_nsec,
                .start_max_nsec = start_max_nsec,
        };

        if (before && before->start_min_nsec > start_max_nsec) {
                task->older = before->older;
                before->older = task;
        } else {
                if (hash_replace(&t->by_tid, tid, task) < 0) {
                        free(task);
                        return NULL;
                }

                if (before && !before->is_leaving)
                        task_leave(t, now_nsec, before);
        }

        t->n_live++;
        count_thread(t, task, 1);
        return task;
}

int task_restore(
                struct task_table *t,
                uint32_t tid,
                uint32_t tgid,
                uint64_t start_min_nsec,
                uint64_t start_max_nsec,
                bool leaving,
                struct task **ret) {

        struct task *first = hash_get(&t->by_tid, tid);

        if (first && !leaving)
                return -EEXIST;

        struct task *task = calloc(1, sizeof(*task) + t->n_kinds * sizeof(task->baseline[0]));
        if (!task)
                return -ENOMEM;

        *task = (struct task) {
                .tid = tid,
                .tgid = tgid,
                .start_min_nsec = start_min_nsec,
                .start_max_nsec = start_max_nsec,
        };

        /* The one that lives stays the newest. */
        if (first && !first->is_leaving) {
                task->older = first->older;
                first->older = task;
        } else {
                task->older = first;
                if (hash_replace(&t->by_tid, tid, task) < 0) {
                        free(task);
                        return -ENOMEM;
                }
        }

        t->n_live++;
        count_thread(t, task, 1);
        *ret = task;
        return 0;
}

void task_narrow_start(struct task *task, uint64_t start_min_nsec, uint64_t start_max_nsec) {
        uint64_t min = start_min_nsec > task->start_min_nsec ? start_min_nsec : task->start_min_nsec;
        uint64_t max = start_max_nsec < task->start_max_nsec ? start_max_nsec : task->start_max_nsec;

        if (min <= max) {
                task->start_min_nsec = min;
                task->start_max_nsec = max;
        }
}

void task_set_tgid(struct task_table *t, struct task *task, uint32_t tgid) {
        if (task->tgid == tgid)
                return;

        count_thread(t, task, -1);
        task->tgid = tgid;
        count_thread(t, task, 1);
}

/* Takes the entry out of its TID's chain. */
static void unlink_tid(struct task_table *t, struct task *task) {
        struct task *newest = hash_get(&t->by_tid, task->tid);

        if (newest == task) {
                if (task->older)
                        (void) hash_replace(&t->by_tid, task->tid, task->older); /* cannot fail: the key exists */
                else
                        hash_remove(&t->by_tid, task->tid);
                return;
        }

        for (; newest; newest = newest->older)
                if (newest->older == task) {
                        newest->older = task->older;
                        return;
                }
}

int task_rename(struct task_table *t, uint64_t now_nsec, struct task *task, uint32_t tid) {
        struct task *before = hash_get(&t->by_tid, tid);

        if (before == task)
                return 0;

        /* Make sure of the new key before the old one is given up. */
        int r = hash_replace(&t->by_tid, tid, task);
        if (r < 0)
                return r;

        unlink_tid(t, task);
        task->tid = tid;
        task->tgid = tid;
        task->older = before;
        task->threads = 0;

        /* The start time was copied from the leader. */
        if (before) {
                task->start_min_nsec = before->start_min_nsec;
                task->start_max_nsec = before->start_max_nsec;
                if (!before->is_leaving)
                        task_leave(t, now_nsec, before);
        } else {
                task->start_min_nsec = 0;
                task->start_max_nsec = UINT64_MAX / 2;
        }

        return 0;
}

/* Counts the task nowhere any more. */
static void count_out(struct task_table *t, const struct task *task) {
        count_thread(t, task, -1);
        if (task->cgroup) {
                task->cgroup->tasks--;
                task->cgroup->unaccounted_tasks -= task->unaccounted;
        }
        t->n_live--;
}

void task_leave(struct task_table *t, uint64_t now_nsec, struct task *task) {
        if (task->is_leaving)
                return;

        count_out(t, task);

        task->is_leaving = true;
        task->leaving_nsec = now_nsec;
        task->leaving = NULL;
        if (t->leaving_last)
                t->leaving_last->leaving = task;
        else
                t->leaving_first = task;
        t->leaving_last = task;
}

static void task_free(struct task_table *t, struct task *task) {
        if (task->cgroup)
                task->cgroup->entries--;
        task_history_free(task->history);

        if (t->n_spare == SPARE_MAX) {
                free(task);
                return;
        }
        task->older = t->spare;
        t->spare = task;
        t->n_spare++;
}

void task_forget(struct task_table *t, struct task *task) {
        count_out(t, task);
        unlink_tid(t, task);
        task_free(t, task);
}

void task_expire(struct task_table *t, uint64_t before_nsec) {
        while (t->leaving_first && t->leaving_first->leaving_nsec < before_nsec) {
                struct task *task = t->leaving_first;

                t->leaving_first = task->leaving;
                if (!t->leaving_first)
                        t->leaving_last = NULL;
                unlink_tid(t, task);
                task_free(t, task);
        }
}

struct task *task_next(const struct task_table *t, size_t *cursor) {
        struct task *task;

        do
                task = hash_next(&t->by_tid, cursor);
        while (task && task->is_leaving);

        return task;
}

void task_table_done(struct task_table *t) {
        size_t cursor = 0;

        for (struct task *task; (task = hash_next(&t->by_tid, &cursor));)
                while (task) {
                        struct task *older = task->older;

                        task_free(t, task);
                        task = older;
                }

        for (struct task *spare; (spare = t->spare);) {
                t->spare = spare->older;
                free(spare);
        }

        hash_free(&t->by_tid);
        *t = (struct task_table) {};
}
