/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "core/exit-feed.h"
#include "core/sample.h"
#include "kernel/taskstats-decode.h"

/*
 * Receives the record that the kernel sends when a task exits: one socket per possible CPU (CPUs are
 * grouped beyond 64 sockets), so that hotplug needs nothing and the kernel's per-CPU sequence numbers
 * show each loss. Overruns never end the feed (NETLINK_NO_ENOBUFS); their exact number comes from
 * SO_MEMINFO.
 */
struct exit_listener;

struct exit_listener_config {
        uint16_t family;
        enum taskstats_layout layout;
        size_t receive_buffer;      /* bytes per socket, forced past net.core.rmem_max where allowed */
        delay_kind_set filter;      /* records with no wait of any of these kinds are dropped in the kernel; 0: no filter */

        /* From the daemon before, which has left its sockets open: what has been queued since then is read first. */
        const struct exit_feed *feed; /* counts go on from here; NULL: from 0 */
        int *sockets;                 /* EXIT_FEED_SOCKETS_MAX, by place; -EBADF where there is none, and for those that were taken over. NULL: none */
};

/*
 * Registers on every possible CPU with acknowledgement. Returns -EPERM, -EINVAL (pid namespace), or
 * another negative errno; nothing stays registered then.
 */
int exit_listener_open(const struct exit_listener_config *config, struct exit_listener **ret);

/* What the next daemon needs to go on from here. */
void exit_listener_feed(struct exit_listener *l, struct exit_feed *ret);

/* The sockets by place, to be kept for the next daemon; -EBADF beyond the last. ret_adopted: has been the daemon before's. */
int exit_listener_socket(const struct exit_listener *l, unsigned i, bool *ret_adopted);

/* Others hold the sockets as well: the kernel is to go on queueing when we close them. So it is after an adoption. */
void exit_listener_keep(struct exit_listener *l);

/* Deregisters first, unless the sockets are kept, so that nobody else who gets our port ids receives our records. Returns NULL. */
struct exit_listener *exit_listener_close(struct exit_listener *l);

int exit_listener_fd(const struct exit_listener *l); /* an epoll descriptor: readable when records wait */

/*
 * Reads what waits on all sockets, without blocking; of each socket up to a thousand records. The record of a sample was made after
 * its socket was last found empty (less a margin for tasks that are preempted while they exit) and
 * before now; start_min_nsec and start_max_nsec follow from that. Returns the number of records, or
 * a negative errno if a socket failed for good.
 */
typedef void (*exit_record_fn)(const struct task_sample *sample, void *userdata);
int exit_listener_drain(struct exit_listener *l, exit_record_fn record, void *userdata);

/* True if the last drain left records behind. */
bool exit_listener_has_more(const struct exit_listener *l);

struct exit_listener_counts {
        uint64_t received;  /* records that reached us */
        uint64_t lost;      /* records dropped because a receive buffer was full */
        uint64_t malformed; /* messages that could not be decoded */
        uint64_t gaps;      /* sequence numbers that are missing so far: equals lost once later records have come.
                             * Only without filter and with one CPU per socket, else 0. */
};
/* Reads the drop counters of all sockets. */
void exit_listener_counts(struct exit_listener *l, struct exit_listener_counts *ret);

/* Changes what the configuration had at the start; see there. Return 0 or a negative errno, then all is as it was or partly changed. */
int exit_listener_set_filter(struct exit_listener *l, delay_kind_set filter);
int exit_listener_set_receive_buffer(struct exit_listener *l, size_t bytes);

bool exit_listener_filtering(const struct exit_listener *l);
unsigned exit_listener_sockets(const struct exit_listener *l);
size_t exit_listener_receive_buffer(const struct exit_listener *l); /* bytes per socket that the kernel granted */

/*
 * Proves the feed: forks a child that makes sure to exit, and waits up to timeout_nsec for its record
 * (records of others are delivered to record() as usual). With a filter the child cannot be seen, so
 * the filter is lifted for the test. Returns 0, -ETIMEDOUT (network namespace, or the family lies).
 */
int exit_listener_self_test(
                struct exit_listener *l, uint64_t timeout_nsec, exit_record_fn record, void *userdata);
