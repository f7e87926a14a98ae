/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The PIDs of all processes in /proc, zombies among them; the caller frees. Returns 0 or a negative errno. */
int processes_list(uint32_t **ret, size_t *ret_n);
