/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/schedule.h"
#include "core/task-table.h"

#define SHARE_START 0.1
#define SHARE_MIN 0.01 /* less is no burst at all */

static void set_intervals(struct schedule *s, uint64_t base_interval_nsec) {
        s->base = 0;
        while (s->base < SCHEDULE_LEVELS - SCHEDULE_IDLE_LEVELS - 1
               && base_interval_nsec >> (s->base + 1) >= SCHEDULE_FASTEST_NSEC)
                s->base++;

        s->slowest = s->base + SCHEDULE_IDLE_LEVELS;
        for (unsigned i = 0; i <= s->slowest; i++)
                s->levels[i].interval_nsec = i <= s->base ? base_interval_nsec >> (s->base - i)
                                                          : base_interval_nsec << (i - s->base);
}

void schedule_init(struct schedule *s, uint64_t base_interval_nsec) {
        *s = (struct schedule) { .burst.share = SHARE_START };
        set_intervals(s, base_interval_nsec);
}

void schedule_spare_quiet(struct schedule *s, schedule_read_fn read, void *userdata, delay_kind_set kinds) {
        s->read = read;
        s->read_userdata = userdata;

        /* Copies on write, interrupts and waits for a CPU are no stalls of I/O or memory. */
        s->stalls_tell = !(kinds & ~(DELAY_KIND_BIT(DELAY_BLKIO) | DELAY_KIND_BIT(DELAY_SWAPIN)));
}

void schedule_done(struct schedule *s) {
        for (unsigned i = 0; i < SCHEDULE_LEVELS; i++)
                free(s->levels[i].tasks);
        free(s->young.tasks);
        *s = (struct schedule) {};
}

static int level_add(struct schedule *s, unsigned number, struct task *task) {
        struct schedule_level *level = &s->levels[number];

        if (level->n == level->allocated) {
                size_t allocated = level->allocated ? level->allocated * 2 : 16;
                struct task **tasks = realloc(level->tasks, allocated * sizeof(*tasks));

                if (!tasks)
                        return -ENOMEM;
                level->tasks = tasks;
                level->allocated = allocated;
        }

        task->level = (uint8_t) number;
        task->index = (uint32_t) level->n;
        task->scheduled = true;
        level->tasks[level->n++] = task;
        return 0;
}

int schedule_set_interval(struct schedule *s, uint64_t base_interval_nsec, uint64_t now_nsec) {
        size_t n = 0, moved = 0;

        for (unsigned i = 0; i < SCHEDULE_LEVELS; i++)
                n += s->levels[i].n;

        struct task **tasks = calloc(n + 1, sizeof(*tasks));
        if (!tasks)
                return -ENOMEM;

        for (unsigned i = 0; i < SCHEDULE_LEVELS; i++) {
                for (size_t k = 0; k < s->levels[i].n; k++)
                        tasks[moved++] = s->levels[i].tasks[k];
                free(s->levels[i].tasks);
                s->levels[i] = (struct schedule_level) {};
        }
        s->burst.n = 0;

        /* Young tasks are in no level yet, and stay where they are. */
        set_intervals(s, base_interval_nsec);
        s->fastest = s->fastest < s->base ? s->fastest : s->base;
        s->levels[s->base].tasks = tasks;
        s->levels[s->base].allocated = n + 1;
        s->levels[s->base].n = n;
        for (size_t k = 0; k < n; k++) {
                tasks[k]->in_burst = false;
                tasks[k]->level = (uint8_t) s->base;
                tasks[k]->index = (uint32_t) k;
                tasks[k]->recent_waits = 0;
                tasks[k]->level_nsec = now_nsec;
        }

        return 0;
}

int schedule_add(struct schedule *s, struct task *task, uint64_t now_nsec) {
        if (task->scheduled)
                return 0;

        int r = level_add(s, s->base, task);
        if (r < 0)
                return r;

        /* An interval has to pass before the level is judged. */
        task->recent_waits = 0;
        task->level_nsec = now_nsec;
        s->n++;
        return 0;
}

static void level_remove(struct schedule *s, struct task *task) {
        struct schedule_level *level = &s->levels[task->level];
        struct task *last = level->tasks[--level->n];

        level->tasks[task->index] = last;
        last->index = task->index;
        task->scheduled = false;
}

static void burst_remove(struct schedule_burst *b, const struct task *task) {
        for (unsigned i = 0; i < b->n; i++)
                if (b->tasks[i].task == task) {
                        b->tasks[i] = b->tasks[--b->n];
                        return;
                }
}

/* Adds the task, or renews its interval. One too many stays with its level. */
static void burst_put(struct schedule_burst *b, struct task *task, uint64_t interval_nsec) {
        unsigned i = 0;

        while (i < b->n && b->tasks[i].task != task)
                i++;
        if (i == SCHEDULE_BURST_MAX)
                return;

        if (interval_nsec < SCHEDULE_BURST_INTERVAL_MIN_NSEC)
                interval_nsec = SCHEDULE_BURST_INTERVAL_MIN_NSEC;
        b->tasks[i].task = task;
        b->tasks[i].interval_nsec = interval_nsec;
        if (i == b->n)
                b->n++;
        task->in_burst = true;
}

static void leave_burst(struct schedule *s, struct task *task) {
        if (task->in_burst)
                burst_remove(&s->burst, task);
        task->in_burst = false;
}

static struct task **young_slot(const struct schedule_young *y, uint32_t number) {
        return &y->tasks[number & (y->allocated - 1)];
}

static void young_remove(struct schedule_young *y, struct task *task) {
        *young_slot(y, task->index) = NULL;
        while (y->first != y->end && !*young_slot(y, y->first))
                y->first++;
        task->scheduled = task->young = false;
}

void schedule_remove(struct schedule *s, struct task *task) {
        if (!task->scheduled)
                return;

        leave_burst(s, task);
        if (task->young)
                young_remove(&s->young, task);
        else
                level_remove(s, task);
        s->n--;
}

static int young_grow(struct schedule_young *y) {
        struct schedule_young grown = { .first = y->first, .end = y->end, .allocated = y->allocated ? y->allocated * 2 : 64 };

        if (grown.allocated == 0)
                return -ENOMEM;
        grown.tasks = calloc(grown.allocated, sizeof(*grown.tasks));
        if (!grown.tasks)
                return -ENOMEM;

        for (uint32_t i = y->first; i != y->end; i++)
                *young_slot(&grown, i) = *young_slot(y, i);
        free(y->tasks);
        *y = grown;
        return 0;
}

int schedule_add_young(struct schedule *s, struct task *task, uint64_t now_nsec) {
        struct schedule_young *y = &s->young;

        if (task->scheduled)
                return 0;
        if (y->end - y->first == y->allocated) {
                int r = young_grow(y);
                if (r < 0)
                        return r;
        }

        task->index = y->end++;
        task->scheduled = task->young = true;
        task->level_nsec = now_nsec;
        *young_slot(y, task->index) = task;
        s->n++;
        return 0;
}

struct task *schedule_take_young(struct schedule *s, uint64_t before_nsec) {
        struct task *task = s->young.first != s->young.end ? *young_slot(&s->young, s->young.first) : NULL;

        if (!task || task->level_nsec >= before_nsec)
                return NULL;

        young_remove(&s->young, task);
        s->n--;
        return task;
}

static void move_to(struct schedule *s, struct task *task, unsigned level) {
        unsigned before = task->level;

        if (level == before)
                return;

        level_remove(s, task);
        if (level_add(s, level, task) < 0)
                (void) level_add(s, before, task); /* has room: it was just there */

        /* A level that was empty starts to run now. */
        if (s->levels[task->level].n == 1)
                s->levels[task->level].due_nsec = 0;
}

void schedule_adapt(struct schedule *s, struct task *task, uint64_t now_nsec, uint64_t waits) {
        unsigned level = task->level;

        if (!task->scheduled || task->young)
                return;

        waits += task->recent_waits;
        task->recent_waits = waits < UINT32_MAX ? (uint32_t) waits : UINT32_MAX;

        /* Several waits are reason enough at once; that there were none shows only after an interval. */
        uint64_t span = now_nsec > task->level_nsec ? now_nsec - task->level_nsec : 0;
        if (span < s->levels[level].interval_nsec / 2 && !(waits > 1 && level > s->fastest))
                return;

        task->recent_waits = 0;
        task->level_nsec = now_nsec;

        /* Aim at one wait in each sample: every halving of the interval halves the number. */
        if (waits > 1) {
                uint64_t left = waits;

                if (level > s->base)
                        level = s->base;
                for (; left > 1 && level > s->fastest; left /= 2)
                        level--;
                if (left > 1 && level == 0 && span > 0)
                        burst_put(&s->burst, task, span / waits / 2);
                else
                        leave_burst(s, task);
        } else if (waits == 0) {
                leave_burst(s, task);
                if (level < s->slowest)
                        level++;
        } else if (level > s->base)
                level = s->base;

        move_to(s, task, level);
}

void schedule_keep_budget(struct schedule *s, double share, double budget) {
        struct schedule_burst *b = &s->burst;

        if (share > budget) {
                /* In proportion, so that one step is enough. */
                b->share *= budget / share > 0.5 ? budget / share * 0.9 : 0.5;
                if (b->share < SHARE_MIN) {
                        b->share = SHARE_MIN;
                        if (s->fastest < s->base)
                                s->fastest++;
                }

                /* What is sampled too fast now moves to the fastest level that is left. */
                for (unsigned i = 0; i < s->fastest; i++)
                        while (s->levels[i].n > 0) {
                                struct task *task = s->levels[i].tasks[0];

                                leave_burst(s, task);
                                move_to(s, task, s->fastest);
                                if (task->level != s->fastest)
                                        break; /* no memory: next time */
                        }
        } else if (share < budget * 0.8) {
                if (s->fastest > 0 && share < budget / 2)
                        s->fastest--;
                else if (s->fastest == 0 && b->n > 0) {
                        b->share *= share > 0 && budget / share < 1.25 ? 1.1 : 1.25;
                        if (b->share > 1)
                                b->share = 1;
                }
        }
}

bool schedule_is_bound(const struct schedule *s) {
        return s->fastest > 0 || (s->burst.n > 0 && s->burst.share < 1);
}

void schedule_make_due(struct schedule *s) {
        /* Also those that are too young to be asked as yet. Without memory one is left to the next sweep. */
        for (struct task *task; (task = schedule_take_young(s, UINT64_MAX));)
                (void) schedule_add(s, task, task->level_nsec);

        for (unsigned i = 0; i <= s->slowest; i++)
                s->levels[i].due_nsec = 0;
        s->burst.due_nsec = 0;
}

uint64_t schedule_next(const struct schedule *s) {
        uint64_t next = UINT64_MAX;

        for (unsigned i = 0; i <= s->slowest; i++)
                if (s->levels[i].n > 0 && s->levels[i].due_nsec < next)
                        next = s->levels[i].due_nsec;

        if (s->burst.n > 0 && s->burst.due_nsec < next)
                next = s->burst.due_nsec;

        return next;
}

/* Sets when the burst goes on: within its part of the period at the tasks' shortest interval, else with the next period. */
static void burst_plan(struct schedule_burst *b, uint64_t now_nsec) {
        uint64_t interval = SCHEDULE_FASTEST_NSEC;

        for (unsigned i = 0; i < b->n; i++)
                if (b->tasks[i].interval_nsec < interval)
                        interval = b->tasks[i].interval_nsec;

        if (now_nsec - b->period_started_nsec >= SCHEDULE_BURST_PERIOD_NSEC)
                b->period_started_nsec = now_nsec;

        b->due_nsec = now_nsec + interval;
        if (b->due_nsec - b->period_started_nsec > (uint64_t) (b->share * (double) SCHEDULE_BURST_PERIOD_NSEC))
                b->due_nsec = b->period_started_nsec + SCHEDULE_BURST_PERIOD_NSEC;
}

/* Whether anything can have changed in the cgroup since its tasks were last asked; if so, this is the time. */
static bool has_stirred(const struct schedule *s, uint64_t key, struct schedule_quiet *q) {
        uint64_t now[SCHEDULE_READING_COUNT] = {};

        if (s->read(key, SCHEDULE_CPU_USAGE, &now[SCHEDULE_CPU_USAGE], s->read_userdata) < 0) {
                q->known = false;
                return true;
        }
        if (q->known && now[SCHEDULE_CPU_USAGE] == q->readings[SCHEDULE_CPU_USAGE])
                return false;

        bool stalls_known = s->stalls_tell
                        && s->read(key, SCHEDULE_IO_STALL, &now[SCHEDULE_IO_STALL], s->read_userdata) >= 0
                        && s->read(key, SCHEDULE_MEMORY_STALL, &now[SCHEDULE_MEMORY_STALL], s->read_userdata) >= 0;
        if (q->known && q->stalls_known && stalls_known && q->skipped + 1U < SCHEDULE_QUIET_ROUNDS
            && now[SCHEDULE_IO_STALL] == q->readings[SCHEDULE_IO_STALL]
            && now[SCHEDULE_MEMORY_STALL] == q->readings[SCHEDULE_MEMORY_STALL]) {
                q->skipped++;
                return false;
        }

        /* Read before the tasks are asked: what happens meanwhile shows the next time. */
        memcpy(q->readings, now, sizeof(now));
        q->known = true;
        q->stalls_known = stalls_known;
        q->skipped = 0;
        return true;
}

static bool is_worth_asking(const struct schedule *s, const struct task *task) {
        struct cgroup *cgroup = task->cgroup;

        if (!s->read || !cgroup || cgroup->tasks < SCHEDULE_QUIET_TASKS_MIN)
                return true;

        if (!cgroup->quiet)
                cgroup->quiet = calloc(1, sizeof(*cgroup->quiet));
        struct schedule_quiet *q = cgroup->quiet;
        if (!q)
                return true;

        if (q->round != s->round) {
                q->round = s->round;
                q->ask = has_stirred(s, cgroup->key, q);
        }
        return q->ask;
}

static int reserve(uint32_t **tids, size_t *allocated, size_t n) {
        if (n <= *allocated)
                return 0;

        uint32_t *more = realloc(*tids, n * sizeof(*more));
        if (!more)
                return -ENOMEM;

        *tids = more;
        *allocated = n;
        return 0;
}

ssize_t schedule_due(struct schedule *s, uint64_t now_nsec, uint32_t **tids, size_t *allocated) {
        bool burst = s->burst.n > 0 && s->burst.due_nsec <= now_nsec;
        size_t n = 0;

        for (unsigned i = 0; i <= s->slowest; i++) {
                struct schedule_level *level = &s->levels[i];

                if (level->n == 0 || level->due_nsec > now_nsec)
                        continue;

                int r = reserve(tids, allocated, n + level->n);
                if (r < 0)
                        return r;

                s->round += i == s->slowest;
                for (size_t k = 0; k < level->n; k++) {
                        if (burst && level->tasks[k]->in_burst)
                                continue;
                        if (i < s->slowest || is_worth_asking(s, level->tasks[k]))
                                (*tids)[n++] = level->tasks[k]->tid;
                }
                level->due_nsec = now_nsec + level->interval_nsec;
        }

        if (burst) {
                int r = reserve(tids, allocated, n + s->burst.n);
                if (r < 0)
                        return r;

                for (unsigned i = 0; i < s->burst.n; i++)
                        (*tids)[n++] = s->burst.tasks[i].task->tid;
                burst_plan(&s->burst, now_nsec);
        }

        return (ssize_t) n;
}
