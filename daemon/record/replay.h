/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config.h"
#include "core/accounting.h"
#include "core/health.h"
#include "core/status.h"
#include "record/recorder.h"

/*
 * Feeds an accounting from a recording, or from a capture of taskstats messages, in place of the kernel.
 * Its clock is the recording's, and stands still at the end.
 */
struct replay;

/*
 * Opens the recording and makes the accounting as it was set up then; for a capture, as config has it.
 * recorder: records what is replayed, or NULL. Errors are logged. On success, config and health are
 * borrowed until replay_free().
 */
int replay_new(
                const char *path,
                const struct config *config,
                struct health *health,
                struct recorder *recorder,
                struct replay **ret);

/* The same from a stream, which is taken over also when it fails. */
int replay_new_from(
                FILE *file,
                const char *path,
                const struct config *config,
                struct health *health,
                struct recorder *recorder,
                struct replay **ret);

/*
 * Replays some more. Returns 1; 0 at the end, or where the recording is damaged: all before that counts, and
 * the rest is a problem; -ENOMEM.
 */
int replay_step(struct replay *r);

bool replay_is_damaged(const struct replay *r);
struct accounting *replay_accounting(const struct replay *r);
uint64_t replay_now(const struct replay *r); /* CLOCK_BOOTTIME of the recording */
void replay_fill_status(const struct replay *r, struct status_facts *ret);

struct replay *replay_free(struct replay *r); /* returns NULL */
