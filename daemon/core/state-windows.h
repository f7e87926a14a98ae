/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "core/accounting.h"
#include "core/state-bytes.h"

/*
 * Saves the windows of all cgroups and the histories of tasks (up to HISTORY_LIST_MAX each of tasks that live and of
 * those that are gone), as much at a time as the caller likes. The accounting may change between the steps.
 */
struct state_windows_writer;

int state_windows_begin(const struct accounting *a, struct state_windows_writer **ret); /* -ENOMEM */

/* Writes at least so many bytes. Returns 1 if there is more to write, 0 if that was all. */
int state_windows_step(struct state_windows_writer *s, const struct accounting *a, size_t bytes, struct state_writer *w);

struct state_windows_writer *state_windows_end(struct state_windows_writer *s); /* at any time; returns NULL */

/* For core/state.c. written_nsec: nothing that is read is later. */
int state_get_windows(struct state_reader *r, struct accounting *a, uint64_t written_nsec, uint64_t saved_nsec);
