/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "collect/collect.h"

/*
 * Shared by the files of the collector: collect.c (polls and timers), events.c (events, in order),
 * sweep.c (cgroups), loss.c (what did not arrive), start.c (start, checks, status).
 */

void collector_problem(
                struct collector *c, const char *id, enum problem_severity severity, const char *message, const char *remedy);
/* The same for what is over but left a gap in the numbers: it is shown until no window reaches back to it. */
void collector_gap(struct collector *c, const char *id, const char *message, const char *remedy);
void collector_no_problem(struct collector *c, const char *id);
void collector_out_of_memory(struct collector *c, int error); /* anything but -ENOMEM is ignored */

int collector_attach(struct collector *c);
void collector_detach(struct collector *c);
int collector_attach_connector(struct collector *c);
int collector_attach_tree(struct collector *c); /* if it can be watched, and is not yet */
void collector_detach_connector(struct collector *c);
void collector_arm_poll(struct collector *c);
void collector_start_budget(struct collector *c);

bool collector_drain(struct collector *c); /* takes in all events that wait; false: there may be more */
void collector_check_young(struct collector *c); /* looks what has become of tasks that were forked a moment ago */
void collector_drain_forks(struct collector *c); /* only forks and execs */
int collector_lookup(
                uint32_t tid,
                uint32_t tgid,
                bool ended,
                uint64_t *ret_key,
                enum attribution_source *ret_source,
                void *userdata); /* accounting_lookup_fn */
void collector_query(struct collector *c, const uint32_t *tids, size_t n);
void collector_place(struct collector *c, uint32_t tid, uint64_t cgroup_id);

extern const struct cgroup_tree_handler collector_tree_handler; /* without userdata */
void collector_sweep(struct collector *c);
void collector_read_members(struct collector *c, uint64_t id);
void collector_tell_removed(struct collector *c, size_t n); /* the first n of those that were noted */

void collector_poll(struct collector *c); /* all that is due */

void collector_check_losses(struct collector *c);
int collector_connect(struct collector *c);          /* to the feed of fork and exec events */
void collector_check_connector(struct collector *c); /* opens it again if it went silent */
void collector_make_good(struct collector *c); /* after a loss: asks all tasks that are left for their counters */
void collector_forget(struct collector *c);    /* what is over, once a second */

void collector_check(struct collector *c); /* once a second */
