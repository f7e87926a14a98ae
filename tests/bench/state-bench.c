/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "core/state-windows.h"
#include "core/state.h"

/*
 * What saving costs: the counters, which is added to each scrape, and the steps in which the windows are written beside the
 * loop's work. Cgroups that are active waited in each five seconds of the last hour, for both kinds.
 */
#define N_TASKS 5000U
#define ROUNDS 7
#define STEP_BYTES ((size_t) 256 * 1024)
#define FROM_SEC 100000U
#define NOW_NSEC ((FROM_SEC + 3600) * NSEC_PER_SEC)

static double now_ms(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}

static int add_tasks(struct accounting *a, unsigned n_cgroups) {
        unsigned seed = 2;

        for (uint32_t tid = 1000; tid < 1000 + N_TASKS; tid++) {
                int r = accounting_place(a, NOW_NSEC, tid, tid, 2 + tid % n_cgroups);
                if (r < 0)
                        return r;

                struct task *task = task_newest(&a->tasks, tid);
                task->sampled = true;
                task->lifetime_nsec = (uint64_t) rand_r(&seed) * 1000;
                task->run_nsec = task->cpu_delay_nsec = (uint64_t) rand_r(&seed);
                for (unsigned slot = 0; slot < a->n_kinds; slot++)
                        task->baseline[slot] = (struct task_baseline) {
                                .total_nsec = (uint64_t) rand_r(&seed),
                                .max_nsec = (uint64_t) rand_r(&seed) % NSEC_PER_SEC,
                                .min_nsec = (uint64_t) rand_r(&seed) % NSEC_PER_MSEC,
                                .count = (uint32_t) rand_r(&seed) % 10000,
                        };
        }

        return 0;
}

static int fill(struct accounting *a, unsigned n, unsigned active) {
        unsigned seed = 1;
        int r = accounting_cgroup_added(a, 1, 1, 0, "/");

        for (unsigned i = 0; i < n && r >= 0; i++) {
                char path[128];

                snprintf(path, sizeof(path), "/system.slice/system-worker.slice/worker@%u.service", i);
                r = accounting_cgroup_added(a, 1, 2 + i, 1, path);
        }

        for (unsigned sec = FROM_SEC; sec < FROM_SEC + 3600; sec += 5)
                for (unsigned i = 0; i < active && r >= 0; i++)
                        for (unsigned w = 0; w < 6 && r >= 0; w++) {
                                struct cgroup *cgroup = cgroup_table_find(&a->cgroups, 2 + i);
                                const struct delay_batch batch = {
                                        .waits = 1 + (unsigned) rand_r(&seed) % 3,
                                        .total_nsec = UINT64_C(1) << (12 + (unsigned) rand_r(&seed) % 14),
                                };

                                r = delay_stats_add(cgroup_stats(cgroup, w % 2 ? DELAY_BLKIO : DELAY_SWAPIN),
                                                    sec * NSEC_PER_SEC, &batch);
                        }

        return r < 0 ? r : add_tasks(a, n);
}

/* As the daemon does before a scrape is answered. Returns how long it took, or a negative number. */
static double save_counters(const struct accounting *a, struct state_writer *w, int fd) {
        static const struct exit_feed feed = {};
        const struct state_meta meta = { .saved_nsec = NOW_NSEC };
        double start = now_ms();

        state_begin(w);
        if (state_finish(w, a, &feed, &meta) < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, w->bytes, w->size, 0) != (ssize_t) w->size)
                return -1;
        return now_ms() - start;
}

/* Returns the longest step, or a negative number. */
static double save_windows(const struct accounting *a, struct state_writer *w, double *ret_sum) {
        struct state_windows_writer *windows;
        double longest = 0, sum = 0;
        int r;

        state_begin(w);
        double start = now_ms();
        if (state_windows_begin(a, &windows) < 0)
                return -1;
        do {
                r = state_windows_step(windows, a, STEP_BYTES, w);
                double ms = now_ms() - start;

                sum += ms;
                longest = ms > longest ? ms : longest;
                start = now_ms();
        } while (r > 0);
        state_windows_end(windows);

        *ret_sum = sum;
        return r < 0 ? r : longest;
}

static int measure(unsigned n, unsigned active, int fd) {
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = n + 1,
                .max_exported = n + 1,
                .retention_nsec = 300 * NSEC_PER_SEC,
                .poll_interval_nsec = NSEC_PER_SEC,
                .started_nsec = 1,
        };
        _cleanup_(state_writer_done) struct state_writer counters = {}, windows = {};
        double best = 1e9, step = 1e9, sum = 1e9;
        struct accounting *a;

        int r = accounting_new(&config, &a);
        if (r < 0)
                return r;

        r = fill(a, n, active);
        for (unsigned round = 0; round < ROUNDS && r >= 0; round++) {
                double all = 0, ms = save_counters(a, &counters, fd), longest = save_windows(a, &windows, &all);

                r = ms < 0 || longest < 0 ? -1 : 0;
                best = ms < best ? ms : best;
                step = longest < step ? longest : step;
                sum = all < sum ? all : sum;
        }

        printf("%6u cgroups, %5u active, %u tasks: counters %7.3f ms (%zu bytes), windows %8.3f ms in steps of up to %.3f ms "
               "(%zu bytes)\n", n, active, N_TASKS, best, counters.size, sum, step, windows.size);
        accounting_free(a);
        return r;
}

int main(void) {
        _cleanup_close_ int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        return fd >= 0 && measure(1000, 1000, fd) >= 0 && measure(10000, 1000, fd) >= 0 && measure(10000, 10000, fd) >= 0
                ? EXIT_SUCCESS : EXIT_FAILURE;
}
