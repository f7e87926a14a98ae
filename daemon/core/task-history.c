/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/task-history.h"

#define LONGEST_WINDOW_NSEC (3600 * NSEC_PER_SEC)
#define SPARE_MAX (HISTORY_LIST_MAX / 2) /* all that makes room at a time */

static void free_shapes(struct task_history *history) {
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                free(history->shapes[kind]);
                history->shapes[kind] = NULL;
        }
}

static void empty(struct task_history *history) {
        if (history->cgroup)
                history->cgroup->entries--;
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (history->stats[kind] == &history->first)
                        delay_stats_done(&history->first);
                else
                        delay_stats_free(history->stats[kind]);
        free_shapes(history);
}

struct task_history *task_history_free(struct task_history *history) {
        if (history) {
                empty(history);
                free(history);
        }
        return NULL;
}

static void recycle(struct history_list *list, struct task_history *history) {
        if (list->n_spare == SPARE_MAX) {
                task_history_free(history);
                return;
        }

        empty(history);
        history->next = list->spare;
        list->spare = history;
        list->n_spare++;
}

static struct task_history *allocate(struct history_list *list) {
        struct task_history *history = list->spare;

        if (!history)
                return calloc(1, sizeof(*history));

        list->spare = history->next;
        list->n_spare--;
        memset(history, 0, sizeof(*history));
        return history;
}

void task_history_set_cgroup(struct task_history *history, struct cgroup *cgroup) {
        if (history->cgroup == cgroup)
                return;

        if (history->cgroup)
                history->cgroup->entries--;
        history->cgroup = cgroup;
        if (cgroup)
                cgroup->entries++;
}

/* A task that vanished and whose exit record came afterwards. */
static struct task_history *find_gone(const struct history_list *list, const struct task *task) {
        for (size_t i = list->n; i > 0; i--) {
                struct task_history *history = list->items[i - 1];

                if (history->gone_nsec < task->leaving_nsec)
                        return NULL;
                if (history->tid == task->tid && history->gone_nsec == task->leaving_nsec)
                        return history;
        }

        return NULL;
}

static void add_stats(struct task_history *history, enum delay_kind kind) {
        for (unsigned other = 0; other < DELAY_KIND_COUNT; other++)
                if (history->stats[other] == &history->first) {
                        (void) delay_stats_new_windows(&history->stats[kind]);
                        return;
                }

        history->first.windows_only = true;
        history->stats[kind] = &history->first;
}

struct delay_stats *task_history_stats(
                struct task *task, struct history_list *gone, const struct task_sample *sample, enum delay_kind kind) {

        struct task_history *history = task->history;

        if (!history && task->is_leaving)
                history = find_gone(gone, task);

        if (!history) {
                history = allocate(gone);
                if (!history)
                        return NULL;
                task->history = history;
        }

        history->tid = task->tid;
        history->tgid = task->tgid;
        history->uid = task->uid;
        memcpy(history->comm, sample->comm, sizeof(history->comm));
        task_history_set_cgroup(history, task->cgroup);
        history->attribution = task->attribution;

        if (!history->stats[kind])
                add_stats(history, kind);
        return history->stats[kind];
}

struct wait_shape *task_history_shape(struct task *task, enum delay_kind kind) {
        struct task_history *history = task->history;

        if (!history)
                return NULL;

        if (!history->shapes[kind])
                history->shapes[kind] = calloc(1, sizeof(*history->shapes[kind]));
        return history->shapes[kind];
}

static uint64_t total_delay(const struct task_history *history) {
        uint64_t sum = 0;

        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (history->stats[kind])
                        sum += history->stats[kind]->totals.total_nsec;
        return sum;
}

/* The k-th smallest, in time linear in n. Changes the order. */
static uint64_t select_nsec(uint64_t values[], size_t n, size_t k) {
        size_t first = 0, last = n - 1;

        while (first < last) {
                uint64_t pivot = values[first + (last - first) / 2];
                size_t i = first, j = last;

                for (;; i++, j--) {
                        while (values[i] < pivot)
                                i++;
                        while (values[j] > pivot)
                                j--;
                        if (i >= j)
                                break;

                        uint64_t swapped = values[i];
                        values[i] = values[j];
                        values[j] = swapped;
                }

                /* Up to j nothing is above the pivot, and behind it nothing below. */
                if (k <= j)
                        last = j;
                else
                        first = j + 1;
        }

        return values[k];
}

/* Drops the half with the smaller delays; keeps the order of the rest. */
static void drop_half(struct history_list *list) {
        uint64_t *delays = malloc(list->n * sizeof(*delays));
        uint64_t median = UINT64_MAX;
        size_t kept = 0;

        if (delays) {
                for (size_t i = 0; i < list->n; i++)
                        delays[i] = total_delay(list->items[i]);
                median = select_nsec(delays, list->n, list->n / 2);
                free(delays);
        }

        /* Among equals the newer half goes on. */
        for (size_t i = 0; i < list->n; i++) {
                struct task_history *history = list->items[i];
                uint64_t delay = total_delay(history);

                if (delay > median || (delay == median && i >= list->n / 2))
                        list->items[kept++] = history;
                else {
                        recycle(list, history);
                        list->dropped++;
                }
        }
        list->n = kept;
}

void history_list_take(struct history_list *list, uint64_t now_nsec, struct task *task) {
        struct task_history *history = task->history;

        task->history = NULL;
        if (!history)
                return;

        history->gone_nsec = now_nsec;
        free_shapes(history);
        history_list_append(list, history);
}

void history_list_append(struct history_list *list, struct task_history *history) {
        if (list->n == HISTORY_LIST_MAX)
                drop_half(list);

        if (list->n == list->allocated) {
                size_t allocated = list->allocated ? list->allocated * 2 : 64;
                struct task_history **items = realloc(list->items, allocated * sizeof(*items));

                if (!items) {
                        task_history_free(history);
                        list->dropped++;
                        return;
                }
                list->items = items;
                list->allocated = allocated;
        }

        list->items[list->n++] = history;
}

void history_list_age(struct history_list *list, uint64_t now_nsec, uint64_t retention_nsec) {
        size_t kept = 0;

        for (size_t i = 0; i < list->n; i++) {
                struct task_history *history = list->items[i];
                const struct cgroup *cgroup = history->cgroup;

                if (now_nsec - history->gone_nsec > LONGEST_WINDOW_NSEC
                    || (cgroup->removed_nsec && now_nsec - cgroup->removed_nsec >= retention_nsec))
                        task_history_free(history);
                else
                        list->items[kept++] = history;
        }

        list->n = kept;
}

void history_list_done(struct history_list *list) {
        for (struct task_history *spare; (spare = list->spare);) {
                list->spare = spare->next;
                free(spare);
        }
        for (size_t i = 0; i < list->n; i++)
                task_history_free(list->items[i]);
        free(list->items);
        *list = (struct history_list) {};
}
