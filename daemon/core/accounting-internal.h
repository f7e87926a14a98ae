/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "core/accounting.h"

/* What the files behind accounting.h share. */

/* Nobody watches as a rule: one test then, and the event is not even made. */
#define OBSERVE(a, ...)                                                                            \
        do {                                                                                      \
                if (__builtin_expect((a)->observe != NULL, 0))                                    \
                        (a)->observe(&(const struct accounting_event) { __VA_ARGS__ }, (a)->observe_userdata); \
        } while (0)

/*
 * Where a task is (attribution.c). A child is taken to be where its parent is. That is wrong if it was
 * made or moved elsewhere, so what is inherited is looked at again before waits are put there: of live
 * tasks always, at exit for a sample of each parent's children and wherever there is a reason to doubt.
 */

/* The child has the parent's cgroup from now on; the parent has one. */
void attribution_inherit(struct accounting *a, struct task *child, const struct fork_event *event);

/* The task is known to be there, and lives. */
void attribution_place(struct accounting *a, struct task *task, struct cgroup *cgroup);

/* Makes sure of the task's cgroup before the waits of the sample are put into it. */
void attribution_settle_live(struct accounting *a, struct task *task, const struct task_sample *sample);
void attribution_settle_exit(struct accounting *a, struct task *task, const struct task_sample *sample);
