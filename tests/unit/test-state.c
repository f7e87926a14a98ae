/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "core/query.h"
#include "core/state-stats.h"
#include "core/state-windows.h"
#include "core/state.h"

#define MSEC NSEC_PER_MSEC
#define SEC NSEC_PER_SEC
#define T0 (10000 * SEC)

#define N_CGROUPS 12U
#define KEY(i) (100 + (uint64_t) (i))

static const uint8_t this_boot[STATE_BOOT_ID_SIZE] = "this boot, no ot";
static const uint8_t other_boot[STATE_BOOT_ID_SIZE] = "other boot, here";

static const struct exit_feed feed = {
        .received = 123456,
        .lost = 78,
        .malformed = 9,
        .n_sockets = 2,
        .sockets = { { 70, T0 }, { 8, T0 + 1 } },
};

static uint64_t next_random(uint64_t *seed) {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        return *seed;
}

static struct accounting *new_accounting(delay_kind_set kinds) {
        const struct accounting_config config = {
                .kinds = kinds,
                .max_cgroups = N_CGROUPS,
                .max_exported = N_CGROUPS - 3,
                .retention_nsec = 300 * SEC,
                .poll_interval_nsec = SEC,
                .started_nsec = T0,
        };
        struct accounting *a;

        assert_int_equal(accounting_new(&config, &a), 0);
        return a;
}

static void add_cgroups(struct accounting *a, uint64_t now, unsigned n) {
        for (unsigned i = 0; i < n; i++) {
                char path[64];

                snprintf(path, sizeof(path), i == 0 ? "/" : i % 2 ? "/a%u.slice" : "/a%u.slice/b\xff\n.service", i - 1 + i % 2);
                assert_int_equal(accounting_cgroup_added(a, now, KEY(i), i == 0 ? 0 : i % 2 ? KEY(0) : KEY(i - 1), path), 0);
        }
}

/* The tasks of a host, as the kernel would tell of them. */
#define N_TASKS 40U
struct host {
        uint64_t seed;
        uint64_t now;
        struct task_sample tasks[N_TASKS];
        uint32_t next_tid;
};

static void start_task(struct host *h, struct accounting *a, unsigned i) {
        uint32_t tid = h->next_tid++;
        bool is_thread = i % 5 == 1;
        uint32_t tgid = is_thread ? h->tasks[i - 1].tid : tid;

        h->tasks[i] = (struct task_sample) {
                .tid = tid,
                .tgid = tgid,
                .uid = 1000 + i % 3,
                .start_min_nsec = h->now - MSEC,
                .start_max_nsec = h->now,
                .read_bytes = i % 2 ? 4096 : 0,
                .version = 16,
                .has_extremes = true,
                .kinds = DELAY_KINDS_ALL,
        };
        snprintf(h->tasks[i].comm, sizeof(h->tasks[i].comm), "task\t%u", i);
        if (a) {
                const struct fork_event event = { tid, tgid, is_thread ? tgid : 1, is_thread ? tgid : 1, h->now };

                accounting_fork(a, h->now, &event);
                assert_int_equal(accounting_place(a, h->now, tid, tgid, KEY(next_random(&h->seed) % (N_CGROUPS + 3))), 0);
        }
}

static void wait_a_while(struct host *h, unsigned i) {
        struct task_sample *s = h->tasks + i;

        s->lifetime_nsec = h->now - s->start_max_nsec;
        for (enum delay_kind kind = DELAY_BLKIO; kind <= DELAY_SWAPIN; kind++) {
                struct delay_counters *c = &s->delays[kind];
                uint64_t nsec = s->lifetime_nsec > 0 ? 1000 + next_random(&h->seed) % (s->lifetime_nsec / 4 + 1) : 0;

                if (c->total_nsec + nsec > s->lifetime_nsec || next_random(&h->seed) % 3 == 0)
                        continue;
                c->count++;
                c->total_nsec += nsec;
                c->max_nsec = nsec > c->max_nsec ? nsec : c->max_nsec;
                c->min_nsec = c->min_nsec == 0 || nsec < c->min_nsec ? nsec : c->min_nsec;
        }
}

static struct host new_host(struct accounting *a, uint64_t seed) {
        struct host h = { .seed = seed, .now = T0 + SEC, .next_tid = 300 };

        add_cgroups(a, h.now, N_CGROUPS + 3); /* more than there is room for */
        for (unsigned i = 0; i < N_TASKS; i++)
                start_task(&h, a, i);
        return h;
}

/* Goes on with the host; all the accountings are told the same (NULL: not told, the host goes on alone). */
static void run_host(struct host *h, struct accounting *const *all, size_t n, unsigned steps, uint64_t step_nsec) {
        for (unsigned step = 0; step < steps; step++) {
                unsigned i = (unsigned) (next_random(&h->seed) % N_TASKS);

                h->now += step_nsec;
                wait_a_while(h, i);
                bool ends = i % 5 > 1 && next_random(&h->seed) % 8 == 0;
                for (size_t k = 0; k < n; k++) {
                        if (ends)
                                assert_int_equal(accounting_exit_sample(all[k], h->now, h->tasks + i), 0);
                        else
                                assert_int_equal(accounting_live_sample(all[k], h->now, h->tasks + i), 0);
                        if (step % 16 == 0)
                                accounting_age(all[k], h->now);
                }
                if (ends)
                        start_task(h, n > 0 ? all[0] : NULL, i);
                if (ends)
                        for (size_t k = 1; k < n; k++) {
                                const struct task *task = task_newest(&all[0]->tasks, h->tasks[i].tid);
                                const struct fork_event event = { task->tid, task->tgid, 1, 1, h->now };

                                accounting_fork(all[k], h->now, &event);
                                assert_int_equal(accounting_place(all[k], h->now, task->tid, task->tgid, task->cgroup->key), 0);
                        }
        }
}

/* Of a step: from one thing at a time to all at once. */
static size_t step_bytes = 1;

static struct state_writer encode(const struct accounting *a, uint64_t now, bool whole) {
        struct state_meta meta = { .saved_nsec = now };
        struct state_windows_writer *windows;
        struct state_writer w = {};
        int r;

        memcpy(meta.boot_id, this_boot, sizeof(meta.boot_id));
        state_begin(&w);
        if (whole) {
                assert_int_equal(state_windows_begin(a, &windows), 0);
                do
                        r = state_windows_step(windows, a, step_bytes, &w);
                while (r > 0);
                assert_int_equal(r, 0);
                state_windows_end(windows);
        }
        assert_int_equal(state_finish(&w, a, &feed, &meta), 0);
        return w;
}

static struct accounting *decode(const struct state_writer *w, uint64_t now, delay_kind_set kinds) {
        struct accounting *a = new_accounting(kinds);
        struct exit_feed restored;
        struct state_meta meta;

        assert_int_equal(state_check(w->bytes, w->size, this_boot, now, &meta), 0);
        assert_int_equal(state_decode(w->bytes, w->size, now, a, &restored), 0);
        assert_memory_equal(&restored, &feed, sizeof(feed));
        if (meta.whole)
                assert_int_equal(state_decode_windows(w->bytes, w->size, a, meta.saved_nsec), 0);
        return a;
}

static void same_stats(const struct delay_stats *x, const struct delay_stats *y, bool windows) {
        _cleanup_(state_writer_done) struct state_writer a = {}, b = {};

        assert_int_equal(!x, !y);
        if (!x)
                return;

        state_put_stats(&a, x, windows);
        state_put_stats(&b, y, windows);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.bytes, b.bytes, a.size);
}

static void same_histories(const struct task_history *x, const struct task_history *y) {
        assert_int_equal(!x, !y);
        if (!x)
                return;

        assert_int_equal(x->tid, y->tid);
        assert_int_equal(x->tgid, y->tgid);
        assert_int_equal(x->uid, y->uid);
        assert_string_equal(x->comm, y->comm);
        assert_int_equal(x->attribution, y->attribution);
        assert_int_equal(x->cgroup->key, y->cgroup->key);
        assert_int_equal(x->gone_nsec, y->gone_nsec);
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                same_stats(x->stats[kind], y->stats[kind], true);
}

static void same_cgroups(const struct accounting *a, const struct accounting *b, bool windows, bool added_again) {
        size_t cursor = 0;

        assert_int_equal(a->cgroups.by_key.n, b->cgroups.by_key.n);
        assert_int_equal(a->cgroups.exported, b->cgroups.exported);
        assert_int_equal(a->cgroups.overflowed, b->cgroups.overflowed);
        assert_int_equal(a->cgroups.other->exported, b->cgroups.other->exported);
        for (const struct cgroup *x; (x = cgroup_table_next(&a->cgroups, &cursor));) {
                const struct cgroup *y = cgroup_table_find(&b->cgroups, x->key);

                assert_non_null(y);
                assert_string_equal(x->path, y->path);
                assert_string_equal(x->display, y->display);
                assert_int_equal(x->added_nsec, y->added_nsec);
                assert_int_equal(x->exported, y->exported);
                assert_int_equal(x->tasks, y->tasks);
                assert_int_equal(x->unaccounted_tasks, y->unaccounted_tasks);
                assert_int_equal(x->children, y->children);
                assert_int_equal(x->parent ? x->parent->key : 0, y->parent ? y->parent->key : 0);
                if (added_again)
                        assert_int_equal(x->removed_nsec, y->removed_nsec);
                for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                        same_stats(x->stats[kind], y->stats[kind], windows);
        }
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                same_stats(a->cgroups.other->stats[kind], b->cgroups.other->stats[kind], windows);
}

static void same_tasks(const struct accounting *a, const struct accounting *b, bool histories) {
        size_t cursor = 0;

        assert_int_equal(a->tasks.n_live, b->tasks.n_live);
        assert_int_equal(a->tasks.by_tid.n, b->tasks.by_tid.n);
        for (const struct task *x; (x = hash_next(&a->tasks.by_tid, &cursor));) {
                const struct task *y = hash_get(&b->tasks.by_tid, x->tid);

                assert_non_null(y);
                assert_int_equal(x->is_leaving, y->is_leaving);
                assert_int_equal(x->leaving_nsec, y->leaving_nsec);
                assert_int_equal(x->exited, y->exited);
                assert_int_equal(x->start_min_nsec, y->start_min_nsec);
                assert_int_equal(x->start_max_nsec, y->start_max_nsec);
                if (x->exited)
                        continue;

                assert_int_equal(x->tgid, y->tgid);
                assert_int_equal(x->ppid, y->ppid);
                assert_int_equal(x->uid, y->uid);
                assert_int_equal(x->settling, y->settling);
                assert_int_equal(x->inherited, y->inherited);
                assert_int_equal(x->to_check, y->to_check);
                assert_int_equal(x->doubtful, y->doubtful);
                assert_int_equal(x->proven, y->proven);
                assert_int_equal(x->parent_tgid, y->parent_tgid);
                assert_int_equal(x->forks, y->forks);
                assert_int_equal(x->scatters, y->scatters);
                assert_int_equal(x->threads, y->threads);
                assert_int_equal(x->cgroup->key, y->cgroup->key);
                assert_int_equal(x->attribution, y->attribution);
                assert_int_equal(x->sampled, y->sampled);
                assert_int_equal(x->unaccounted, y->unaccounted);
                assert_int_equal(x->forked, y->forked);
                assert_int_equal(x->scheduled, y->scheduled);
                assert_int_equal(x->lifetime_nsec, y->lifetime_nsec);
                assert_int_equal(x->run_nsec, y->run_nsec);
                assert_int_equal(x->cpu_delay_nsec, y->cpu_delay_nsec);
                assert_int_equal(x->anchor_nsec, y->anchor_nsec);
                if (x->sampled)
                        assert_memory_equal(x->baseline, y->baseline, a->n_kinds * sizeof(x->baseline[0]));
                if (histories)
                        same_histories(x->history, y->history);
        }
}

static void same_counters(const struct accounting *a, const struct accounting *b) {
        assert_int_equal(a->config.started_nsec, b->config.started_nsec);
        assert_int_equal(a->evidence.n, b->evidence.n);
        for (unsigned i = 0; i < a->evidence.n; i++) {
                assert_int_equal(a->evidence.runs[i].first_nsec, b->evidence.runs[i].first_nsec);
                assert_int_equal(a->evidence.runs[i].last_nsec, b->evidence.runs[i].last_nsec);
                assert_int_equal(a->evidence.runs[i].on, b->evidence.runs[i].on);
        }
        assert_int_equal(a->exits, b->exits);
        assert_int_equal(a->accepted_samples, b->accepted_samples);
        assert_memory_equal(a->attributed, b->attributed, sizeof(a->attributed));
        assert_memory_equal(a->rejected_samples, b->rejected_samples, sizeof(a->rejected_samples));
}

static void same_all(const struct accounting *a, const struct accounting *b, bool added_again) {
        same_counters(a, b);
        same_cgroups(a, b, true, added_again);
        same_tasks(a, b, true);
        assert_int_equal(a->gone.n, b->gone.n);
        for (size_t i = 0; i < a->gone.n; i++)
                same_histories(a->gone.items[i], b->gone.items[i]);
}

static void same_after_a_round_trip(void **state) {
        struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT);
        struct host h = new_host(a, 1);

        run_host(&h, &a, 1, 3000, SEC / 3);
        accounting_cgroup_removed(a, h.now, KEY(3));
        assert_true(a->cgroups.overflowed == 3 && a->cgroups.other->exported && a->gone.n > 100);
        a->cgroups.other->stats[DELAY_BLKIO]->totals.total_nsec += 5; /* time without waits is kept as well */

        _cleanup_(state_writer_done) struct state_writer w = encode(a, h.now, true);
        struct accounting *b = decode(&w, h.now + SEC, DELAY_KINDS_DEFAULT);
        same_all(a, b, false);

        /* Nothing is there but what is found. */
        assert_int_equal(b->cgroups.tracked, 0);
        add_cgroups(b, h.now, N_CGROUPS + 3);
        accounting_cgroup_removed(b, a->cgroups.removed ? cgroup_table_find(&a->cgroups, KEY(3))->removed_nsec : 0, KEY(3));
        same_all(a, b, true);
        assert_int_equal(b->cgroups.tracked, a->cgroups.tracked);
        assert_int_equal(b->cgroups.removed, a->cgroups.removed);

        accounting_free(a);
        accounting_free(b);
}

static void both_go_on_alike(void **state) {
        struct accounting *all[2] = { new_accounting(DELAY_KINDS_DEFAULT) };
        struct host h = new_host(all[0], 2);

        run_host(&h, all, 1, 500, SEC / 3);
        _cleanup_(state_writer_done) struct state_writer w = encode(all[0], h.now, true);
        all[1] = decode(&w, h.now, DELAY_KINDS_DEFAULT);
        add_cgroups(all[1], h.now, N_CGROUPS + 3);

        run_host(&h, all, 2, 500, SEC / 3);
        same_cgroups(all[0], all[1], true, true);
        accounting_free(all[0]);
        accounting_free(all[1]);
}

/* What the tasks waited for while nobody looked is counted with the next sample, once. */
static void nothing_is_lost_or_counted_twice(void **state) {
        struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT), *b;
        struct host h = new_host(a, 3);
        uint64_t truth, counted = 0;
        size_t cursor = 0;

        run_host(&h, &a, 1, 300, SEC / 3);
        for (size_t round = 0; round < 5; round++) {
                _cleanup_(state_writer_done) struct state_writer w = encode(a, h.now, round % 2);

                for (unsigned i = 0; i < N_TASKS; i++) {
                        h.now += 100 * MSEC;
                        wait_a_while(&h, i);
                }
                b = decode(&w, h.now, DELAY_KINDS_DEFAULT);
                add_cgroups(b, h.now, N_CGROUPS + 3);
                accounting_free(a);
                a = b;
                for (unsigned i = 0; i < N_TASKS; i++)
                        assert_int_equal(accounting_live_sample(a, h.now, h.tasks + i), 0);
        }

        for (unsigned i = 0; i < N_TASKS; i++) {
                const struct task *task = task_newest(&a->tasks, h.tasks[i].tid);

                assert_non_null(task);
                assert_int_equal(task->baseline[0].count, h.tasks[i].delays[DELAY_BLKIO].count);
                assert_int_equal(task->baseline[0].total_nsec, h.tasks[i].delays[DELAY_BLKIO].total_nsec);
        }

        /* One task alone: its waits against those of its cgroup. */
        struct accounting *one = new_accounting(DELAY_KINDS_DEFAULT);
        struct host lonely = { .seed = 7, .now = T0 + SEC, .next_tid = 300 };
        add_cgroups(one, lonely.now, 2);
        start_task(&lonely, one, 0);
        assert_int_equal(accounting_place(one, lonely.now, 300, 300, KEY(1)), 0);
        for (unsigned round = 0; round < 20; round++) {
                _cleanup_(state_writer_done) struct state_writer w = encode(one, lonely.now, round % 2);

                lonely.now += 10 * SEC;
                wait_a_while(&lonely, 0);
                b = decode(&w, lonely.now, DELAY_KINDS_DEFAULT);
                add_cgroups(b, lonely.now, 2);
                accounting_free(one);
                one = b;
                assert_int_equal(accounting_live_sample(one, lonely.now, lonely.tasks), 0);
        }
        truth = lonely.tasks[0].delays[DELAY_BLKIO].count;
        assert_true(truth > 5);
        for (const struct cgroup *c; (c = cgroup_table_next(&one->cgroups, &cursor));)
                counted += c->stats[DELAY_BLKIO] ? c->stats[DELAY_BLKIO]->totals.waits : 0;
        assert_int_equal(counted, truth);
        assert_int_equal(cgroup_table_find(&one->cgroups, KEY(1))->stats[DELAY_BLKIO]->totals.total_nsec,
                         lonely.tasks[0].delays[DELAY_BLKIO].total_nsec);

        accounting_free(a);
        accounting_free(one);
}

static uint64_t waits_in_hour(const struct delay_stats *stats, uint64_t now, struct delay_totals *ret) {
        *ret = (struct delay_totals) {};
        if (stats)
                assert_int_equal(delay_stats_window(stats, now, 3600 * SEC, ret, NULL), 0);
        return ret->waits;
}

/* The waits of the last hour are all there; their moments may be known less well. */
static void same_hour(const struct accounting *a, const struct accounting *b, uint64_t now) {
        size_t cursor = 0;

        for (const struct cgroup *x = a->cgroups.other; x; x = cgroup_table_next(&a->cgroups, &cursor)) {
                const struct cgroup *y = x == a->cgroups.other ? b->cgroups.other : cgroup_table_find(&b->cgroups, x->key);

                for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                        struct delay_totals t, u;

                        if (x->stats[kind])
                                assert_memory_equal(&x->stats[kind]->totals, &y->stats[kind]->totals, sizeof(t));
                        assert_int_equal(waits_in_hour(x->stats[kind], now, &t), waits_in_hour(y->stats[kind], now, &u));
                        assert_int_equal(t.total_nsec, u.total_nsec);
                        assert_int_equal(t.exact_waits, u.exact_waits);
                        assert_int_equal(t.without_io_waits, u.without_io_waits);
                        assert_true(u.max_nsec >= t.max_nsec && (u.min_nsec <= t.min_nsec || t.waits == 0));
                }
        }
}

static size_t count_tasks(const struct accounting *a, uint64_t now) {
        const struct query query = {};
        struct task_row *rows;
        uint64_t window;
        size_t n;

        assert_int_equal(query_tasks(a, now, &query, &window, &rows, &n), 0);
        free(rows);
        return n;
}

static void windows_come_from_an_earlier_state(void **state) {
        struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT), *later;
        struct host h = new_host(a, 4);

        run_host(&h, &a, 1, 600, SEC / 3);
        _cleanup_(state_writer_done) struct state_writer whole = encode(a, h.now, true);
        uint64_t waits_before = a->cgroups.other->stats[DELAY_BLKIO]->totals.waits;
        size_t n_tasks = count_tasks(a, h.now);

        run_host(&h, &a, 1, 200, SEC / 10);
        _cleanup_(state_writer_done) struct state_writer small = encode(a, h.now, false);
        assert_true(small.size < whole.size / 2);
        assert_true(a->cgroups.other->stats[DELAY_BLKIO]->totals.waits > waits_before);

        later = decode(&small, h.now, DELAY_KINDS_DEFAULT);
        same_counters(a, later);
        same_cgroups(a, later, false, false);
        same_tasks(a, later, false);
        assert_int_equal(state_decode_windows(whole.bytes, whole.size, later, h.now), 0);
        same_hour(a, later, h.now);
        assert_int_equal(count_tasks(later, h.now), n_tasks); /* tasks that were shown still are */

        /* The result can be saved again. */
        _cleanup_(state_writer_done) struct state_writer again = encode(later, h.now, true);
        struct accounting *b = decode(&again, h.now, DELAY_KINDS_DEFAULT);
        same_all(later, b, false);

        accounting_free(a);
        accounting_free(b);
        accounting_free(later);
}

/* Old waits stay old: what has left the windows is not taken for new because no slot holds it. */
static void waits_of_long_ago_are_in_no_window(void **state) {
        struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT), *b;
        struct host h = new_host(a, 14);
        struct delay_totals t;

        run_host(&h, &a, 1, 600, SEC / 3);
        h.now += 5000 * SEC;
        accounting_age(a, h.now);
        _cleanup_(state_writer_done) struct state_writer w = encode(a, h.now, true);
        b = decode(&w, h.now, DELAY_KINDS_DEFAULT);
        assert_true(b->cgroups.other->stats[DELAY_BLKIO]->totals.waits > 10);
        assert_int_equal(waits_in_hour(b->cgroups.other->stats[DELAY_BLKIO], h.now, &t), 0);
        same_hour(a, b, h.now);
        accounting_free(a);
        accounting_free(b);
}

static void windows_are_written_in_steps(void **state) {
        struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT), *b;
        struct state_meta meta = {};
        _cleanup_(state_writer_done) struct state_writer w = {};
        struct state_windows_writer *windows;
        struct host h = new_host(a, 13);
        unsigned steps = 0;
        int r;

        run_host(&h, &a, 1, 600, SEC / 3);
        state_begin(&w);
        assert_int_equal(state_windows_begin(a, &windows), 0);
        accounting_cgroup_removed(a, h.now - 400 * SEC, KEY(5)); /* and dropped, once its tasks are elsewhere */
        for (; (r = state_windows_step(windows, a, 200, &w)) > 0; steps++)
                run_host(&h, &a, 1, 7, SEC / 10);
        assert_int_equal(r, 0);
        assert_true(steps > 20);
        state_windows_end(windows);
        run_host(&h, &a, 1, 7, SEC / 10);

        meta.saved_nsec = h.now;
        memcpy(meta.boot_id, this_boot, sizeof(meta.boot_id));
        assert_int_equal(state_finish(&w, a, &feed, &meta), 0);
        b = decode(&w, h.now, DELAY_KINDS_DEFAULT);
        same_counters(a, b);
        same_tasks(a, b, false);
        same_hour(a, b, h.now);
        accounting_free(a);
        accounting_free(b);
}

static void windows_of_a_stranger_are_not_taken(void **state) {
        struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT), *b = new_accounting(DELAY_KINDS_DEFAULT);
        struct host h = new_host(a, 5), k = new_host(b, 6);

        run_host(&h, &a, 1, 300, SEC / 3);
        run_host(&k, &b, 1, 100, SEC / 3);
        _cleanup_(state_writer_done) struct state_writer w = encode(b, h.now, false), v = encode(a, h.now, true);
        accounting_free(a);
        accounting_free(b);
        b = decode(&w, h.now, DELAY_KINDS_DEFAULT);
        assert_int_equal(state_decode_windows(v.bytes, v.size, b, h.now), 0);

        /* Whatever it made of it is a state that can be saved and read. */
        _cleanup_(state_writer_done) struct state_writer again = encode(b, h.now, true);
        a = decode(&again, h.now, DELAY_KINDS_DEFAULT);
        same_all(b, a, false);
        accounting_free(a);
        accounting_free(b);
}

static void kinds_may_change(void **state) {
        struct accounting *a = new_accounting(DELAY_KIND_BIT(DELAY_BLKIO)), *b;
        struct host h = { .seed = 8, .now = T0 + SEC, .next_tid = 300 };
        const struct cgroup *cgroup;

        add_cgroups(a, h.now, 2);
        start_task(&h, a, 0);
        accounting_place(a, h.now, 300, 300, KEY(1));
        h.now += 60 * SEC;
        h.tasks[0].lifetime_nsec = 60 * SEC;
        h.tasks[0].delays[DELAY_BLKIO] = (struct delay_counters) { 3, 3 * MSEC, MSEC, MSEC };
        h.tasks[0].delays[DELAY_SWAPIN] = (struct delay_counters) { 5, 5 * MSEC, MSEC, MSEC };
        assert_int_equal(accounting_live_sample(a, h.now, h.tasks), 0);
        _cleanup_(state_writer_done) struct state_writer w = encode(a, h.now, true);
        accounting_free(a);

        /* Swap-ins before it was collected are not counted, blkio goes on; and blkio stays when it is no longer collected. */
        b = decode(&w, h.now, DELAY_KINDS_DEFAULT);
        h.tasks[0].delays[DELAY_BLKIO].count = h.tasks[0].delays[DELAY_SWAPIN].count = 7;
        h.tasks[0].delays[DELAY_BLKIO].total_nsec = h.tasks[0].delays[DELAY_SWAPIN].total_nsec = 7 * MSEC;
        assert_int_equal(accounting_live_sample(b, h.now, h.tasks), 0);
        cgroup = cgroup_table_find(&b->cgroups, KEY(1));
        assert_int_equal(cgroup->stats[DELAY_BLKIO]->totals.waits, 7);
        assert_null(cgroup->stats[DELAY_SWAPIN]);
        h.tasks[0].delays[DELAY_SWAPIN].count++;
        h.tasks[0].delays[DELAY_SWAPIN].total_nsec += MSEC;
        assert_int_equal(accounting_live_sample(b, h.now, h.tasks), 0);
        assert_int_equal(cgroup->stats[DELAY_SWAPIN]->totals.waits, 1);
        accounting_free(b);

        b = decode(&w, h.now, DELAY_KIND_BIT(DELAY_SWAPIN));
        assert_int_equal(cgroup_table_find(&b->cgroups, KEY(1))->stats[DELAY_BLKIO]->totals.waits, 3);
        accounting_free(b);
}

static struct state_writer small_state(uint64_t *ret_now) {
        struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT);
        struct host h = new_host(a, 9);

        run_host(&h, &a, 1, 150, SEC / 3);
        struct state_writer w = encode(a, h.now, true);
        accounting_free(a);
        *ret_now = h.now;
        return w;
}

static void every_truncation_is_refused(void **state) {
        struct state_meta meta;
        uint64_t now;
        _cleanup_(state_writer_done) struct state_writer w = small_state(&now);

        assert_int_equal(state_check(w.bytes, w.size, this_boot, now, &meta), 0);
        for (size_t size = 0; size < w.size; size++) {
                /* In memory of its own, so that a read beyond the end is seen. */
                _cleanup_free_ uint8_t *copy = malloc(size ?: 1);

                assert_non_null(copy);
                memcpy(copy, w.bytes, size);
                assert_int_equal(state_check(copy, size, this_boot, now, &meta), -ENODATA);
        }

        assert_true(state_reserve(&w, 1));
        w.bytes[w.size] = 0;
        assert_int_equal(state_check(w.bytes, w.size + 1, this_boot, now, &meta), -EBADMSG);
}

static void every_flipped_bit_is_refused(void **state) {
        struct state_meta meta;
        uint64_t now;
        _cleanup_(state_writer_done) struct state_writer w = small_state(&now);

        for (size_t bit = 0; bit < w.size * 8; bit += bit < STATE_HEADER_SIZE * 8 ? 1 : 7) {
                w.bytes[bit / 8] ^= (uint8_t) (1U << bit % 8);
                assert_true(state_check(w.bytes, w.size, this_boot, now, &meta) < 0);
                w.bytes[bit / 8] ^= (uint8_t) (1U << bit % 8);
        }
        assert_int_equal(state_check(w.bytes, w.size, this_boot, now, &meta), 0);
}

static void foreign_states_are_refused(void **state) {
        struct state_meta meta;
        uint64_t now;
        _cleanup_(state_writer_done) struct state_writer w = small_state(&now);

        assert_int_equal(state_check(w.bytes, w.size, other_boot, now, &meta), -ESTALE);
        assert_int_equal(state_check(w.bytes, w.size, this_boot, now - 1, &meta), -EBADMSG); /* from the future */
        w.bytes[8]++;
        assert_int_equal(state_check(w.bytes, w.size, this_boot, now, &meta), -EPROTONOSUPPORT);
        assert_int_equal(state_check("PNG", 3, this_boot, now, &meta), -ENODATA);
        memset(w.bytes, 'x', w.size);
        assert_int_equal(state_check(w.bytes, w.size, this_boot, now, &meta), -EBADMSG);
}

static void seal(struct state_writer *w) {
        uLong crc = crc32_z(crc32_z(0, NULL, 0), w->bytes, 56);
        uint32_t value = htole32((uint32_t) crc32_z(crc, w->bytes + STATE_HEADER_SIZE, w->size - STATE_HEADER_SIZE));

        memcpy(w->bytes + 56, &value, sizeof(value));
}

/* Whoever can write the file can write a checksum too. What is then taken must be fit to work with. */
static void forged_states_do_no_harm(void **state) {
        uint64_t now, seed = 11;
        unsigned taken = 0, refused = 0;
        _cleanup_(state_writer_done) struct state_writer w = small_state(&now);

        for (unsigned round = 0; round < 4000; round++) {
                _cleanup_(state_writer_done) struct state_writer forged = {};
                struct exit_feed restored;
                struct state_meta meta;

                state_put_bytes(&forged, w.bytes, w.size);
                for (unsigned i = 0; i <= round % 3; i++)
                        forged.bytes[STATE_HEADER_SIZE + next_random(&seed) % (w.size - STATE_HEADER_SIZE)] =
                                        (uint8_t) next_random(&seed);
                seal(&forged);
                assert_int_equal(state_check(forged.bytes, forged.size, this_boot, now, &meta), 0);

                struct accounting *a = new_accounting(DELAY_KINDS_DEFAULT);
                int r = state_decode(forged.bytes, forged.size, now, a, &restored);
                if (r == 0)
                        r = state_decode_windows(forged.bytes, forged.size, a, now);
                assert_true(r == 0 || r == -EBADMSG);
                if (r == 0) {
                        const struct query query = { .recursive = true };
                        struct host h = { .seed = 12, .now = now + SEC, .next_tid = 100000 };
                        struct cgroup_row *rows;
                        uint64_t window;
                        size_t n;

                        taken++;
                        add_cgroups(a, now, N_CGROUPS + 3);
                        for (unsigned i = 0; i < N_TASKS; i++)
                                start_task(&h, a, i);
                        run_host(&h, &a, 1, 50, SEC);
                        accounting_age(a, h.now + 4000 * SEC);
                        assert_int_equal(query_cgroups(a, h.now, &query, &window, &rows, &n), 0);
                        free(rows);
                } else
                        refused++;
                accounting_free(a);
        }

        assert_true(taken > 100 && refused > 1000);
}

static void sums_must_fit(void **state) {
        struct delay_stats *stats, *restored = NULL;
        struct state_reader r;

        assert_int_equal(delay_stats_new(&stats), 0);
        for (unsigned i = 1; i < 10; i++)
                assert_int_equal(delay_stats_add(stats, i * SEC, &(struct delay_batch) { .waits = i, .total_nsec = i * MSEC }), 0);

        for (unsigned fault = 0; fault < 6; fault++) {
                _cleanup_(state_writer_done) struct state_writer w = {};
                struct delay_totals before = stats->totals;
                uint64_t count = stats->histogram.counts[0];

                switch (fault) {
                case 1:
                        stats->totals.waits++;
                        break;
                case 2:
                        stats->histogram.counts[0] += 2;
                        break;
                case 3:
                        stats->totals.exact_waits = stats->totals.waits + 1;
                        break;
                case 4:
                        stats->totals.total_nsec = MSEC; /* less than the windows hold */
                        break;
                case 5:
                        stats->totals.min_nsec = stats->totals.max_nsec + 1;
                        break;
                }
                state_put_stats(&w, stats, true);
                stats->totals = before;
                stats->histogram.counts[0] = count;

                r = (struct state_reader) { .p = w.bytes, .end = w.bytes + w.size };
                assert_int_equal(state_get_stats(&r, true, false, 10 * SEC, &restored), fault == 0 ? 0 : -EBADMSG);
                if (fault == 0) {
                        same_stats(stats, restored, true);
                        restored = delay_stats_free(restored);

                        /* A slot that begins after the state was saved. */
                        r = (struct state_reader) { .p = w.bytes, .end = w.bytes + w.size };
                        assert_int_equal(state_get_stats(&r, true, false, 4 * SEC, &restored), -EBADMSG);
                }
        }

        delay_stats_free(stats);
}

static void integers(void **state) {
        static const uint64_t values[] = { 0, 1, 127, 128, 16383, 16384, UINT32_MAX, INT64_MAX, UINT64_MAX };
        static const uint8_t too_large[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02 };
        static const uint8_t too_long[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00 };
        _cleanup_(state_writer_done) struct state_writer w = {};
        struct state_reader r;

        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
                state_put(&w, values[i]);
        r = (struct state_reader) { .p = w.bytes, .end = w.bytes + w.size };
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
                assert_int_equal(state_get(&r), values[i]);
        assert_true(!r.bad && r.p == r.end);
        assert_int_equal(state_get(&r), 0);
        assert_true(r.bad);

        r = (struct state_reader) { .p = too_large, .end = too_large + sizeof(too_large) };
        assert_int_equal(state_get(&r), 0);
        assert_true(r.bad);
        r = (struct state_reader) { .p = too_long, .end = too_long + sizeof(too_long) };
        assert_int_equal(state_get(&r), 0);
        assert_true(r.bad);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(integers),
                cmocka_unit_test(sums_must_fit),
                cmocka_unit_test(same_after_a_round_trip),
                cmocka_unit_test(both_go_on_alike),
                cmocka_unit_test(nothing_is_lost_or_counted_twice),
                cmocka_unit_test(windows_come_from_an_earlier_state),
                cmocka_unit_test(windows_are_written_in_steps),
                cmocka_unit_test(waits_of_long_ago_are_in_no_window),
                cmocka_unit_test(windows_of_a_stranger_are_not_taken),
                cmocka_unit_test(kinds_may_change),
                cmocka_unit_test(every_truncation_is_refused),
                cmocka_unit_test(every_flipped_bit_is_refused),
                cmocka_unit_test(foreign_states_are_refused),
                cmocka_unit_test(forged_states_do_no_harm),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
