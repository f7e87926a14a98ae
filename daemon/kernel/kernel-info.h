/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

/* What the running kernel and our surroundings are. All are cheap enough to ask once a second. */

/* 1 on, 0 off, -ENOENT: the kernel has no kernel.task_delayacct (then it is on by default: < 5.14, or not built in). */
int kernel_task_delayacct(void);

const char *kernel_release(void); /* uname -r; static storage */

/* Whether the fault of delayed dequeue can occur: Linux 6.12 and later, unless debugfs shows NO_DELAY_DEQUEUE. */
enum tristate kernel_delayed_dequeue(void);

/* True if the scheduler's clock, by which delays are taken, can only be right to a tick: the TSC is not trusted. */
bool kernel_clock_is_rough(void);

/* Whether our namespace of a type ("user", "pid", "net", "time") is the initial one. */
enum tristate kernel_in_initial_namespace(const char *type);

/* Which of our namespaces is not the initial one: "network", "pid", "user", or NULL if all three are (or it cannot be told). */
const char *kernel_foreign_namespace(void);

/* Whether we have CAP_NET_ADMIN in our effective set. */
bool kernel_have_net_admin(void);

/* The daemon's own costs: fills cpu_nsec, rss_bytes, virtual_bytes, open_fds, max_fds, threads, start_time_unix_nsec. */
void kernel_self_usage(struct status_facts *ret);

/* False when hardly any file descriptor is left; sets the limit. fd: any that is open. */
bool kernel_have_spare_fds(int fd, uint64_t *ret_limit);

/* tgid and uid of a task from /proc/TID/status. Returns 0 or a negative errno. */
int kernel_task_ids(uint32_t tid, uint32_t *ret_tgid, uint32_t *ret_uid);

/* Whether there is a task or zombie with that TID. */
bool kernel_task_exists(uint32_t tid);
