/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Opens the listening socket of an address as Metrics.Listen= has it. Returns a descriptor, -EINVAL
 * for a bad address or another negative errno; unless quiet, the error is logged with its remedy. *ret_port is the
 * port in use (port 0 takes any free one).
 */
int http_listen(const char *address, bool quiet, uint16_t *ret_port);

/*
 * Makes a socket ready that listens already: any kind of stream, *ret_port is 0 where there are none.
 * Returns -ENOTSOCK for anything else, or another negative errno; fd stays the caller's.
 */
int http_adopt(int fd, uint16_t *ret_port);
