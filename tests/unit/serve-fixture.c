/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve-fixture.h"

/* Powers of two from 2^-10 s to 2^6 s, each fourth power: few, so that expected texts stay readable. */
#define FIRST_OCTAVE (-10)
#define LAST_OCTAVE 6
#define OCTAVE_STEP 4

static uint64_t fixture_time(void *userdata) {
        return ((struct fixture *) userdata)->now_nsec;
}

static void fixture_status(struct status_facts *ret, void *userdata) {
        *ret = ((struct fixture *) userdata)->facts;
}

struct cgroup *fixture_add(struct fixture *f, uint64_t key, uint64_t parent, const char *path) {
        struct cgroup *cgroup;

        assert_int_equal(cgroup_table_add(&f->accounting.cgroups, f->now_nsec, key, parent, path, &cgroup), 0);
        return cgroup;
}

static void add_waits(struct delay_stats *stats, uint64_t now_nsec, uint64_t n, uint64_t nsec) {
        const struct delay_batch batch = { .waits = n, .total_nsec = n * nsec, .exact = true };

        assert_non_null(stats);
        assert_int_equal(delay_stats_add(stats, now_nsec, &batch), 0);
}

void fixture_wait(struct fixture *f, struct cgroup *cgroup, enum delay_kind kind, uint64_t n, uint64_t nsec) {
        add_waits(cgroup_stats(cgroup, kind), f->now_nsec, n, nsec);
}

static struct task_history *make_history(
                struct fixture *f, uint32_t tid, uint32_t uid, const char *comm, struct cgroup *cgroup, uint64_t waits) {

        struct task_history *h = calloc(1, sizeof(*h));

        assert_non_null(h);
        h->tid = tid;
        h->tgid = tid;
        h->uid = uid;
        snprintf(h->comm, sizeof(h->comm), "%s", comm);
        h->cgroup = cgroup;
        assert_int_equal(delay_stats_new(&h->stats[DELAY_BLKIO]), 0);
        add_waits(h->stats[DELAY_BLKIO], f->now_nsec, waits, NSEC_PER_MSEC);
        return h;
}

static struct task *add_task(struct fixture *f, uint32_t tid, uint32_t uid, const char *comm, struct cgroup *cgroup, uint64_t waits) {
        struct task *task = calloc(1, sizeof(*task) + 2 * sizeof(task->baseline[0]));

        assert_non_null(task);
        task->tid = task->tgid = tid;
        task->uid = uid;
        task->cgroup = cgroup;
        task->history = make_history(f, tid, uid, comm, cgroup, waits);
        assert_int_equal(hash_put(&f->accounting.tasks.by_tid, tid, task), 0);
        f->accounting.tasks.n_live++;
        return task;
}

static void fill(struct fixture *f) {
        struct accounting *a = &f->accounting;
        struct cgroup *db, *nasty, *gone, *again;

        fixture_add(f, 1, 0, "/");
        fixture_add(f, 2, 1, "/system.slice");
        db = fixture_add(f, 3, 2, "/system.slice/db.service");
        nasty = fixture_add(f, 4, 1, FIXTURE_NASTY_PATH);
        gone = fixture_add(f, 5, 1, "/job");
        fixture_wait(f, gone, DELAY_BLKIO, 5, NSEC_PER_SEC);
        cgroup_table_remove(&a->cgroups, f->now_nsec, 5);
        f->now_nsec += NSEC_PER_SEC;
        again = fixture_add(f, 6, 1, "/job");

        db->tasks = 2;
        db->unaccounted_tasks = 1;
        fixture_wait(f, db, DELAY_BLKIO, 3, NSEC_PER_MSEC);
        fixture_wait(f, db, DELAY_BLKIO, 1, 2 * NSEC_PER_SEC + 1);
        fixture_wait(f, db, DELAY_SWAPIN, 1, 250 * NSEC_PER_USEC);
        assert_int_equal(delay_stats_reject(cgroup_stats(db, DELAY_BLKIO), f->now_nsec, 7), 0);
        fixture_wait(f, nasty, DELAY_BLKIO, 1, 250 * NSEC_PER_MSEC); /* exactly a bound: it belongs below */
        fixture_wait(f, again, DELAY_BLKIO, 1, NSEC_PER_MSEC);
        fixture_wait(f, a->cgroups.unattributed, DELAY_BLKIO, 1, NSEC_PER_MSEC);

        f->tasks[0] = add_task(f, 100, 0, "postgres", db, 3);
        /* User 1 is "daemon" everywhere; a bus does not let in a user that does not exist. */
        f->tasks[1] = add_task(f, 101, 1, "we\"ird\n\xff", nasty, 1);
        f->gone[0] = make_history(f, 99, 1, "gone", again, 2);
        f->gone[0]->gone_nsec = f->now_nsec;
        a->gone = (struct history_list) { .items = f->gone, .n = 1, .allocated = 1 };

        a->exits = 3;
        a->attributed[ATTRIBUTION_CACHE] = 2;
        a->attributed[ATTRIBUTION_NONE] = 1;
        a->accepted_samples = 10;
        a->rejected_samples[REJECT_IMPOSSIBLE] = 4;
        a->rejected_samples[REJECT_MALFORMED] = 1;
}

void fixture_init(struct fixture *f) {
        *f = (struct fixture) {};
        f->now_nsec = FIXTURE_NOW - NSEC_PER_SEC;
        f->accounting.config.kinds = DELAY_KINDS_DEFAULT;
        assert_int_equal(cgroup_table_init(&f->accounting.cgroups, 100000, 100000, 300 * NSEC_PER_SEC), 0);
        fill(f);

        f->facts = (struct status_facts) {
                .uptime_nsec = 60 * NSEC_PER_SEC,
                .kernel_release = "6.18.0",
                .taskstats_version = 16,
                .task_delayacct = true,
                .delayed_dequeue = TRISTATE_ON,
                .cgroup_hierarchy = "unified",
                .exits_received = 12,
                .exits_lost = 1,
                .exit_filter = true,
                .poll_interval_nsec = NSEC_PER_SEC,
                .last_poll_nsec = 1500000,
                .cpu_nsec = 1234567890,
                .rss_bytes = 4096,
                .virtual_bytes = 8192,
                .start_time_unix_nsec = UINT64_C(1700000000123456789),
                .open_fds = 9,
                .max_fds = 1024,
                .threads = 1,
        };

        f->view = (struct view) {
                .accounting = &f->accounting,
                .health = &f->health,
                .now_nsec = fixture_time,
                .fill_status = fixture_status,
                .userdata = f,
                .ready = true,
                .bucket_bounds_sec = f->bounds,
                .bucket_indices = f->indices,
        };
        for (int octave = FIRST_OCTAVE; octave <= LAST_OCTAVE; octave += OCTAVE_STEP) {
                unsigned bucket = (unsigned) (octave - HISTOGRAM_FIRST_OCTAVE) * HISTOGRAM_BUCKETS_PER_OCTAVE;

                f->indices[f->view.n_buckets] = bucket;
                f->bounds[f->view.n_buckets++] = histogram_bucket_upper_sec(bucket);
        }
}

void fixture_done(struct fixture *f) {
        for (size_t i = 0; i < sizeof(f->tasks) / sizeof(*f->tasks); i++) {
                task_history_free(f->tasks[i]->history);
                free(f->tasks[i]);
        }
        task_history_free(f->gone[0]);
        hash_free(&f->accounting.tasks.by_tid);
        cgroup_table_done(&f->accounting.cgroups);
        health_free(&f->health);
}
