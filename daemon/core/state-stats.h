/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "core/delay-stats.h"
#include "core/state-bytes.h"

/* The part of core/state.c that saves one delay_stats. windows: with its rolling windows. */
void state_put_stats(struct state_writer *w, const struct delay_stats *stats, bool windows);

/*
 * Returns -EBADMSG for what no delay_stats can have been (then the reader is bad), or -ENOMEM. saved_nsec:
 * nothing in it is later. windows_only: there need be no cumulative histogram, and one that there is is not kept.
 */
int state_get_stats(
                struct state_reader *r, bool windows, bool windows_only, uint64_t saved_nsec, struct delay_stats **ret);

/*
 * Takes the windows out of an earlier state of the same stats (NULL: there were no waits then) and puts what has
 * been counted since then into the slot of now_nsec: as many waits in as many buckets, only their moments are lost.
 */
int state_take_windows_of_stats(struct delay_stats *stats, struct delay_stats *earlier, uint64_t now_nsec);
