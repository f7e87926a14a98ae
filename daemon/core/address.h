/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>

#define ADDRESS_HOST_SIZE 128

/*
 * Splits "127.0.0.1:1", "[::1]:1" and ":1" (an empty host: all addresses); an IPv6 address needs its brackets.
 * *ret_port points into address. Returns 0 or -EINVAL.
 */
int address_split(const char *address, char host[static ADDRESS_HOST_SIZE], const char **ret_port);

/* Whether it can be listened on, as far as the text tells: a number, for a name would have to be asked of a resolver. */
bool address_is_valid(const char *address);
