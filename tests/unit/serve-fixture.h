/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "core/status.h"

/*
 * An accounting made by hand, with a view on it: "/", "/system.slice/db.service" (waits of both kinds), a
 * cgroup with a nasty name, one that was removed and made again under the same path, and waits that
 * belong to no cgroup. Three tasks waited, one of them is gone.
 */
#define FIXTURE_NOW (1000 * NSEC_PER_SEC)
#define FIXTURE_NASTY_PATH "/we\"ird\\x2d\n\xff\xc3\xa9"

struct fixture {
        struct accounting accounting;
        struct health health;
        struct view view;
        struct status_facts facts;
        uint64_t now_nsec;
        double bounds[HISTOGRAM_BUCKET_COUNT];
        unsigned indices[HISTOGRAM_BUCKET_COUNT];
        struct task *tasks[2];
        struct task_history *gone[1];
};

void fixture_init(struct fixture *f);
void fixture_done(struct fixture *f);

/* n waits of nsec each, exact, in this cgroup now. */
void fixture_wait(struct fixture *f, struct cgroup *cgroup, enum delay_kind kind, uint64_t n, uint64_t nsec);
struct cgroup *fixture_add(struct fixture *f, uint64_t key, uint64_t parent, const char *path);
