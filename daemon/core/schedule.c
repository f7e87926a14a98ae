/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>

#include "core/schedule.h"
#include "core/task-table.h"

void schedule_init(struct schedule *s, uint64_t base_interval_nsec) {
        *s = (struct schedule) {};

        /* Each level is twice as fast as the next; the base is the slowest. */
        while (s->base < SCHEDULE_LEVELS - 1 && base_interval_nsec >> (s->base + 1) >= SCHEDULE_FASTEST_NSEC)
                s->base++;
        for (unsigned i = 0; i <= s->base; i++)
                s->levels[i].interval_nsec = base_interval_nsec >> (s->base - i);
}

void schedule_done(struct schedule *s) {
        for (unsigned i = 0; i < SCHEDULE_LEVELS; i++)
                free(s->levels[i].tasks);
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

int schedule_add(struct schedule *s, struct task *task) {
        if (task->scheduled)
                return 0;

        int r = level_add(s, s->base, task);
        if (r < 0)
                return r;

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

void schedule_remove(struct schedule *s, struct task *task) {
        if (!task->scheduled)
                return;

        level_remove(s, task);
        s->n--;
}

void schedule_adapt(struct schedule *s, struct task *task, uint64_t waits) {
        unsigned level = task->level;

        if (!task->scheduled)
                return;

        /* Aim at one wait in each delta: every halving of the interval halves the number. */
        if (waits > 1)
                for (; waits > 1 && level > s->fastest; waits /= 2)
                        level--;
        else if (waits == 0 && level < s->base)
                level++;

        if (level == task->level)
                return;

        unsigned before = task->level;
        level_remove(s, task);
        if (level_add(s, level, task) < 0)
                (void) level_add(s, before, task); /* has room: it was just there */

        /* A level that was empty starts to run now. */
        if (s->levels[level].n == 1)
                s->levels[level].due_nsec = 0;
}

uint64_t schedule_next(const struct schedule *s) {
        uint64_t next = UINT64_MAX;

        for (unsigned i = 0; i <= s->base; i++)
                if (s->levels[i].n > 0 && s->levels[i].due_nsec < next)
                        next = s->levels[i].due_nsec;

        return next;
}

ssize_t schedule_due(struct schedule *s, uint64_t now_nsec, uint32_t **tids, size_t *allocated) {
        size_t n = 0;

        for (unsigned i = 0; i <= s->base; i++) {
                struct schedule_level *level = &s->levels[i];

                if (level->n == 0 || level->due_nsec > now_nsec)
                        continue;

                if (n + level->n > *allocated) {
                        uint32_t *more = realloc(*tids, (n + level->n) * sizeof(*more));

                        if (!more)
                                return -ENOMEM;
                        *tids = more;
                        *allocated = n + level->n;
                }

                for (size_t k = 0; k < level->n; k++)
                        (*tids)[n++] = level->tasks[k]->tid;
                level->due_nsec = now_nsec + level->interval_nsec;
        }

        return (ssize_t) n;
}
