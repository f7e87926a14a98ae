/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "core/health.h"

static struct problem *problem_free(struct problem *p) {
        if (p) {
                free(p->message);
                free(p->remedy);
                free(p);
        }
        return NULL;
}

int health_raise(
                struct health *health,
                const char *id,
                enum problem_severity severity,
                const char *message,
                const char *remedy) {

        _cleanup_free_ char *new_message = strdup(message), *new_remedy = strdup(remedy);
        if (!new_message || !new_remedy)
                return -ENOMEM;

        struct problem **end = &health->problems;
        while (*end && strcmp((*end)->id, id) != 0)
                end = &(*end)->next;

        bool known = *end;
        if (!known) {
                *end = calloc(1, sizeof(**end));
                if (!*end)
                        return -ENOMEM;
                (*end)->id = id;
        }

        free((*end)->message);
        free((*end)->remedy);
        (*end)->message = TAKE_PTR(new_message);
        (*end)->remedy = TAKE_PTR(new_remedy);
        (*end)->severity = severity;
        (*end)->expires_nsec = 0;
        return !known;
}

bool health_clear(struct health *health, const char *id) {
        for (struct problem **p = &health->problems; *p; p = &(*p)->next)
                if (strcmp((*p)->id, id) == 0) {
                        struct problem *gone = *p;

                        *p = gone->next;
                        problem_free(gone);
                        return true;
                }

        return false;
}

void health_expire_at(struct health *health, const char *id, uint64_t at_nsec) {
        for (struct problem *p = health->problems; p; p = p->next)
                if (strcmp(p->id, id) == 0)
                        p->expires_nsec = at_nsec;
}

const char *health_expired(struct health *health, uint64_t now_nsec) {
        for (const struct problem *p = health->problems; p; p = p->next)
                if (p->expires_nsec > 0 && now_nsec >= p->expires_nsec) {
                        const char *id = p->id;

                        health_clear(health, id);
                        return id;
                }

        return NULL;
}

const char *health_word(const struct health *health) {
        const char *word = "ok";

        for (const struct problem *p = health->problems; p; p = p->next) {
                if (p->severity == PROBLEM_FAILING)
                        return "failing";
                word = "degraded";
        }

        return word;
}

void health_free(struct health *health) {
        while (health->problems) {
                struct problem *next = health->problems->next;

                problem_free(health->problems);
                health->problems = next;
        }
}
