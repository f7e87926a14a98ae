/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>
#include <systemd/sd-event.h>

#include "config.h"
#include "core/accounting.h"
#include "core/exit-feed.h"
#include "core/health.h"
#include "kernel/exit-listener.h"
#include "passed-fds.h"

/*
 * What outlives the daemon. Three places, for three ways to end:
 *
 *   DIRECTORY/state     all of it, every State.SaveInterval= and at the end, synced
 *   descriptor store    all of it at the end, and the exit sockets, for a restart by systemd
 *   RUNTIME/counters    the counters as they were last shown
 *
 * DIRECTORY is State.Directory=, RUNTIME is $RUNTIME_DIRECTORY; where there is only one of them, it is both.
 *
 * The last one is written before each answer that shows counters, so that a crash takes back nothing that somebody has
 * seen; its directory should be on a tmpfs, for the answer waits for the write. At the start the newest counters
 * are taken, with the newest windows.
 *
 * What cannot be read is set aside, and what cannot be written is the problem "state-unwritable"; neither ends the
 * daemon.
 */
struct saved_state;

/* Finds the directories and what is in them. Takes the descriptors "state" and "exits-N" out of those that were passed. */
int saved_state_new(
                const struct config *config, struct health *health, struct passed_fds *passed, struct saved_state **ret);
struct saved_state *saved_state_free(struct saved_state *s); /* returns NULL */

/* Makes the accounting: with what was saved, or a new one. */
int saved_state_restore(struct saved_state *s, const struct accounting_config *config, struct accounting **ret);

/* For exit_listener_open(). NULL: there was nothing. */
const struct exit_feed *saved_state_feed(const struct saved_state *s);
int *saved_state_sockets(struct saved_state *s);

/* Gives the sockets to the descriptor store, once they are open. renewed: what is there is not to be used again. */
void saved_state_keep_sockets(struct saved_state *s, struct exit_listener *exits, bool renewed);

/* From now on saves. */
int saved_state_start(struct saved_state *s, sd_event *event, struct accounting *a, struct exit_listener *exits);

/* State.SaveInterval= may have changed. */
void saved_state_reconfigure(struct saved_state *s);

/* Counters are about to be shown. */
void saved_state_shown(struct saved_state *s);

/* Where, and how the last try to write there ended: 0 or a negative errno. NULL: nowhere. */
const char *saved_state_directory(const struct saved_state *s, int *ret_error);

/* Saves all for the last time, if it was started. */
void saved_state_end(struct saved_state *s);
