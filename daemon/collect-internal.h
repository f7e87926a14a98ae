/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "collect.h"

/*
 * Shared by the files of the collector: collect.c (events), collect-sweep.c (cgroups), collect-loss.c (what
 * did not arrive), collect-start.c (start, checks, status).
 */

void collector_problem(
                struct collector *c, const char *id, enum problem_severity severity, const char *message, const char *remedy);
/* The same for what is over but left a gap in the numbers: it is shown until no window reaches back to it. */
void collector_gap(struct collector *c, const char *id, const char *message, const char *remedy);
void collector_no_problem(struct collector *c, const char *id);
void collector_out_of_memory(struct collector *c, int error); /* anything but -ENOMEM is ignored */

int collector_attach(struct collector *c);
void collector_arm_poll(struct collector *c);
void collector_start_budget(struct collector *c);

void collector_drain(struct collector *c);
void collector_query(struct collector *c, const uint32_t *tids, size_t n);
void collector_place(struct collector *c, uint32_t tid, uint64_t cgroup_id);

extern const struct cgroup_tree_handler collector_tree_handler; /* without userdata */
void collector_sweep(struct collector *c);
void collector_tree_changed(struct collector *c);

void collector_poll(struct collector *c); /* all that is due */

void collector_check_losses(struct collector *c);
void collector_make_good(struct collector *c); /* after a loss: asks all tasks that are left for their counters */
void collector_forget(struct collector *c);    /* what is over, once a second */

void collector_check(struct collector *c); /* once a second */
