/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <delayd/limits.h>

#include "core/delta.h"
#include "core/sample.h"
#include "core/task-table.h"

/*
 * What a task can have waited at most. On Linux 6.12 and later a delayed dequeue starts the blkio
 * clock of the wrong task (__block_task() in kernel/sched/sched.h calls delayacct_blkio_start(), which
 * stamps current), so that a wait can be credited with the time since the task's previous wait, or
 * since boot.
 *
 * The bounds rest on three facts: a task cannot wait longer than it lives; being asleep in blkio,
 * running and waiting for a CPU exclude each other; and a blkio wait cannot have begun before the task
 * last ran. None of them can refuse a wait that happened: clock_error_nsec is what the clock of the delays
 * may be off by, one of the two below.
 */
#define CLOCK_ERROR_NSEC NSEC_PER_MSEC

/* local_clock() without a trusted TSC: at both ends right to a tick, which is 10 ms at HZ=100. */
#define CLOCK_ERROR_ROUGH_NSEC (20 * NSEC_PER_MSEC)

void plausibility_bounds(
                const struct task *task,
                const struct task_baseline *baseline,
                const struct task_sample *sample,
                enum delay_kind kind,
                uint64_t clock_error_nsec,
                struct delay_bounds *ret);

/*
 * How much of a counter that is only now being looked at cannot have happened: what the baseline of a
 * task that is older than the daemon has to leave out of later comparisons.
 */
uint64_t plausibility_refused_at_first(const struct task_sample *sample, enum delay_kind kind, uint64_t clock_error_nsec);
