/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/accounting.h"
#include "core/health.h"
#include "core/status.h"
#include "kernel/taskstats-decode.h"
#include "record/recording.h"

/*
 * Writes all that goes into an accounting to a file (recording.h). What cannot be written ends the
 * recording with the problem "recording-stopped", and nothing else; the file then ends with the last block
 * that is whole.
 */
struct recorder;

/* Makes the file, for its owner alone. Errors are logged. anonymous: names are replaced by hashes. */
int recorder_new(const char *path, bool anonymous, struct health *health, struct recorder **ret);

/* Begins to observe the accounting, which must be new. meta->anonymous is ignored. */
void recorder_begin(
                struct recorder *r,
                struct accounting *a,
                uint64_t now_nsec,
                const struct recording_meta *meta);

/* What the accounting is not told. */
void recorder_facts(struct recorder *r, uint64_t now_nsec, const struct status_facts *facts);
void recorder_problem(
                struct recorder *r,
                uint64_t now_nsec,
                const char *id,
                enum problem_severity severity,
                const char *message,
                const char *remedy);
void recorder_problem_gone(struct recorder *r, uint64_t now_nsec, const char *id);

/* While a recording is replayed into another: its clocks instead of the real ones. */
void recorder_set_clocks(struct recorder *r, uint64_t boottime_nsec, uint64_t monotonic_nsec);

/* Ends the recording at this time; 0: it is not complete. Observes no more. */
void recorder_end(struct recorder *r, uint64_t now_nsec);

struct recorder *recorder_free(struct recorder *r); /* returns NULL */
