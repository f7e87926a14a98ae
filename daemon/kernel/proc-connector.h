/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

#include "core/accounting.h"

/*
 * Fork and exec events of the whole host (drivers/connector/cn_proc.c), so that the cgroup of a task
 * is known before it exits. Threads are forks too; for them the kernel names the process's parent, so
 * the thread group is reported as the parent instead.
 */
struct proc_connector;

/*
 * Subscribes: first with an event mask (Linux 6.6 and later), without one where the kernel does not
 * acknowledge that. Events during the call are dropped: subscribe first, then scan. Returns -EPERM, -ENOENT (no CONFIG_PROC_EVENTS), -EPROTONOSUPPORT, -ECONNREFUSED
 * (network namespace), -ETIMEDOUT (never acknowledged: user or pid namespace), or another errno.
 */
int proc_connector_open(struct proc_connector **ret);
struct proc_connector *proc_connector_close(struct proc_connector *c); /* unsubscribes; returns NULL */

int proc_connector_fd(const struct proc_connector *c);

struct proc_connector_handler {
        void (*fork)(const struct fork_event *event, void *userdata);
        void (*exec)(uint32_t tgid, void *userdata);
        void *userdata;
};

/* Reads all that waits. Returns the number of events, or a negative errno. */
int proc_connector_drain(struct proc_connector *c, const struct proc_connector_handler *handler);

/* Events dropped because the receive buffer was full, since the start. */
uint64_t proc_connector_lost(struct proc_connector *c);
