/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <delayd/limits.h>

#include "core/query.h"
#include "fuzz.h"
#include "record/replay.h"

/* Replays a file to its end and asks for everything that a client could. */

static inline void ask_everything(const struct replay *replay) {
        const struct query query = { .kinds = replay_accounting(replay)->config.kinds,
                                     .sort_kind = query_default_sort_kind(replay_accounting(replay)->config.kinds) };
        struct status_facts facts;
        struct cgroup_row *rows;
        struct task_row *tasks;
        uint64_t window;
        size_t n;

        CHECK(query_cgroups(replay_accounting(replay), replay_now(replay), &query, &window, &rows, &n) == 0);
        for (size_t i = 0; i < n; i++)
                check_displayable(rows[i].cgroup->display);
        free(rows);
        CHECK(query_tasks(replay_accounting(replay), replay_now(replay), &query, &window, &tasks, &n) == 0);
        free(tasks);
        replay_fill_status(replay, &facts);
}

static inline void replay_input(const void *file, size_t size) {
        static const struct config config = {
                .kinds = DELAY_KINDS_ALL,
                .max_cgroups = 10,
                .max_exported = 1,
                .poll_interval_nsec = NSEC_PER_SEC,
                .retention_nsec = NSEC_PER_SEC,
        };
        struct health health = {};
        struct replay *replay;
        int r;

        FILE *f = size > 0 ? fmemopen((void *) file, size, "r") : fopen("/dev/null", "re");
        CHECK(f);
        if (replay_new_from(f, "input", &config, &health, NULL, &replay) >= 0) {
                while ((r = replay_step(replay)) > 0)
                        ;
                CHECK(r == 0);
                CHECK(!replay_is_damaged(replay) || health.problems);
                ask_everything(replay);
                replay_free(replay);
        }
        health_free(&health);
}
