/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/plausibility.h"

/*
 * Delays are taken with local_clock(), lifetimes with CLOCK_MONOTONIC, which NTP may slew by 500 ppm;
 * and the run time of a task that runs on another CPU is behind by up to a tick (10 ms at HZ=100).
 */
#define SLEW_NSEC(span) ((span) / 1024)
#define TICK_SLACK_NSEC (10 * NSEC_PER_MSEC)

static uint64_t less(uint64_t a, uint64_t b) {
        return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

static uint64_t plus(uint64_t a, uint64_t b) {
        return a + b < a ? UINT64_MAX : a + b;
}

void plausibility_bounds(
                const struct task *task,
                const struct task_baseline *baseline,
                const struct task_sample *sample,
                enum delay_kind kind,
                uint64_t clock_error_nsec,
                struct delay_bounds *ret) {

        uint64_t accounted = less(baseline->total_nsec, baseline->refused_nsec);
        uint64_t life = plus(sample->lifetime_nsec, SLEW_NSEC(sample->lifetime_nsec) + clock_error_nsec);

        ret->single_nsec = life;
        ret->sum_nsec = less(life, accounted);

        if (kind != DELAY_BLKIO)
                return;

        /* Over the whole life: what was neither run nor spent waiting for a CPU nor in earlier waits. */
        uint64_t busy = plus(sample->run_nsec, sample->delays[DELAY_CPU].total_nsec);
        ret->single_nsec = less(life, busy);
        ret->sum_nsec = less(less(life, accounted), busy);

        if (!task->sampled)
                return;

        /* Since the last sample before the task last ran: no wait that ended now began before. */
        uint64_t span = less(sample->lifetime_nsec, task->anchor_nsec);
        uint64_t ran = plus(less(sample->run_nsec, task->run_nsec),
                            less(sample->delays[DELAY_CPU].total_nsec, task->cpu_delay_nsec));
        uint64_t recent = less(plus(span, SLEW_NSEC(span) + clock_error_nsec + TICK_SLACK_NSEC), ran);

        ret->single_nsec = smaller(ret->single_nsec, recent);
        ret->sum_nsec = smaller(ret->sum_nsec, recent);
}

uint64_t plausibility_refused_at_first(const struct task_sample *sample, enum delay_kind kind, uint64_t clock_error_nsec) {
        uint64_t total = sample->delays[kind].total_nsec, possible = sample->lifetime_nsec;

        if (kind == DELAY_BLKIO)
                possible = less(possible, plus(sample->run_nsec, sample->delays[DELAY_CPU].total_nsec));

        return total > plus(possible, SLEW_NSEC(possible) + clock_error_nsec) ? total : 0;
}
