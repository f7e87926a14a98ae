/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/sample.h"
#include "kernel/taskstats-decode.h"

/*
 * Asks for the counters of live tasks (and zombies), by TID. Requests go 64 to a datagram, which the
 * kernel answers before sendto() returns; so a query never waits for anything but the kernel.
 */
struct taskstats_client;

/*
 * Resolves the family, opens the socket and proves the layout on the caller's own TID.
 * Returns -ENOENT (kernel without CONFIG_TASKSTATS), -EPERM (no CAP_NET_ADMIN in the initial user
 * namespace), -EBADMSG (layout not understood), or another negative errno.
 */
int taskstats_client_open(struct taskstats_client **ret);
struct taskstats_client *taskstats_client_close(struct taskstats_client *client); /* returns NULL */

uint16_t taskstats_client_family(const struct taskstats_client *client);
uint16_t taskstats_client_version(const struct taskstats_client *client);
enum taskstats_layout taskstats_client_layout(const struct taskstats_client *client);
uint64_t taskstats_client_malformed(const struct taskstats_client *client); /* replies that could not be decoded */

/*
 * Queries all TIDs. For each, in order, reply() is called with error 0 and the sample (start_min_nsec
 * and start_max_nsec set from CLOCK_MONOTONIC around the request), or with a negative errno (-ESRCH:
 * no such task) and NULL. Returns 0, or a negative errno when the socket itself failed.
 */
typedef void (*taskstats_reply_fn)(uint32_t tid, int error, const struct task_sample *sample, void *userdata);
int taskstats_client_query(
                struct taskstats_client *client,
                const uint32_t *tids,
                size_t n,
                taskstats_reply_fn reply,
                void *userdata);
