/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sock_filter;

/* What the netlink sockets of this folder have in common; a function returns 0 or a negative errno unless it says otherwise. */

/* A negative errno for an error of libnl, whose codes are its own. */
int netlink_errno(int nl_error);

/* Asks for a receive buffer past net.core.rmem_max where that is allowed, else for as much as is. */
int netlink_set_receive_buffer(int fd, size_t bytes);

/* What the kernel granted, in the unit of the request: the kernel keeps twice that for its own overhead. */
size_t netlink_receive_buffer(int fd);

/* An overrun drops what does not fit and nothing else: no ENOBUFS, and no congestion until the queue is empty. */
int netlink_set_no_enobufs(int fd);

int netlink_attach_filter(int fd, struct sock_filter *program, size_t n);
int netlink_detach_filter(int fd);

/* Messages dropped because the receive buffer was full; the kernel's own counter has 32 bits. */
struct netlink_drops {
        uint32_t last;
        uint64_t total;
};
int netlink_count_drops(int fd, struct netlink_drops *drops);

/* Waits until the socket is readable. Returns 1, 0 after timeout_nsec, or a negative errno. */
int netlink_wait(int fd, uint64_t timeout_nsec);

/* Preallocated room for many datagrams that are received with one call. */
struct netlink_batch;

struct netlink_batch *netlink_batch_new(unsigned n, size_t datagram_size);
struct netlink_batch *netlink_batch_free(struct netlink_batch *b); /* returns NULL */

/*
 * Receives what waits, without blocking. Returns the number of datagrams (fewer than there is room
 * for: the queue was found empty) or a negative errno.
 */
int netlink_batch_receive(struct netlink_batch *b, int fd);

/* A datagram that was received. NULL if it was too long or does not come from the kernel. */
const void *netlink_batch_datagram(const struct netlink_batch *b, unsigned i, size_t *ret_size);
