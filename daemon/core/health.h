/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is wrong at the moment, for status, doctor, /-/healthy and the journal. */
enum problem_severity {
        PROBLEM_DEGRADED, /* some numbers are missing or less exact */
        PROBLEM_FAILING,  /* the main job is not being done */
};

struct problem {
        const char *id; /* stable, lower case with dashes: "delay-accounting-off"; static storage */
        enum problem_severity severity;
        char *message;
        char *remedy;
        uint64_t expires_nsec; /* 0: stays until it is cleared */
        struct problem *next;
};

struct health {
        struct problem *problems; /* in the order in which they arose */
};

/* Adds the problem or renews its texts; it then does not expire. Returns 1 if it is new, 0 if it was known, -ENOMEM. */
int health_raise(
                struct health *health,
                const char *id,
                enum problem_severity severity,
                const char *message,
                const char *remedy);

/* Returns true if the problem had been there. */
bool health_clear(struct health *health, const char *id);

/*
 * A problem that left a gap in the numbers rather than goes on: it is over at this time, unless it is
 * raised again. health_expired() takes out one that is over and returns its id; NULL: there is none.
 */
void health_expire_at(struct health *health, const char *id, uint64_t at_nsec);
const char *health_expired(struct health *health, uint64_t now_nsec);

const char *health_word(const struct health *health); /* "ok", "degraded" or "failing" */
void health_free(struct health *health);
