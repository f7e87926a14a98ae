/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

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
 * last ran. None of them can refuse a wait that happened.
 */
void plausibility_bounds(
                const struct task *task,
                const struct task_baseline *baseline,
                const struct task_sample *sample,
                enum delay_kind kind,
                struct delay_bounds *ret);

/*
 * How much of a counter that is only now being looked at cannot have happened: what the baseline of a
 * task that is older than the daemon has to leave out of later comparisons.
 */
uint64_t plausibility_refused_at_first(const struct task_sample *sample, enum delay_kind kind);
