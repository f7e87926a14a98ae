/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

#include <systemd/sd-event.h>

#include "core/status.h"

/*
 * /metrics, /, /-/healthy, /-/ready and /api/v1/ over libmicrohttpd, driven by the event loop through
 * its epoll descriptor: no thread, nothing that blocks. One server per listen address.
 */
struct http_server;

/*
 * address: "127.0.0.1:10066", "[::1]:10066" or ":10066" (all addresses). Returns -EINVAL for a bad
 * address, -EADDRINUSE, or another negative errno. The error is logged with its remedy.
 */
int http_server_new(sd_event *event, const char *address, const struct view *view, struct http_server **ret);
/* The same for an address that was not to be had before: nothing is said unless it now is. */
int http_server_try_new(sd_event *event, const char *address, const struct view *view, struct http_server **ret);
/* The same on a socket that listens already, which it takes over also when it fails. */
int http_server_new_from_fd(sd_event *event, int fd, const struct view *view, struct http_server **ret);
uint16_t http_server_port(const struct http_server *server); /* in use; tells what port 0 became */
struct http_server *http_server_free(struct http_server *server); /* returns NULL */
