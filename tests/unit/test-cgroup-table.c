/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <delayd/limits.h>

#include "core/cgroup-table.h"

#define SEC NSEC_PER_SEC
#define RETENTION (300 * SEC)
#define ID "4f2b0a6c1e9d8375a1b2c3d4e5f60718293a4b5c6d7e8f901122334455667789"
#define ID2 "4f2b0a6c1e9dffffa1b2c3d4e5f60718293a4b5c6d7e8f901122334455667789"

static struct cgroup *add(struct cgroup_table *t, uint64_t now, uint64_t key, uint64_t parent, const char *path) {
        struct cgroup *c = NULL;

        assert_int_equal(cgroup_table_add(t, now, key, parent, path, &c), 0);
        assert_non_null(c);
        return c;
}

static size_t count(const struct cgroup_table *t) {
        size_t cursor = 0, n = 0;

        while (cgroup_table_next(t, &cursor))
                n++;
        return n;
}

static struct cgroup *lookup(const struct cgroup_table *t, const char *name) {
        struct cgroup *c = NULL;

        assert_int_equal(cgroup_table_lookup(t, name, &c), 0);
        return c;
}

static void special_entries_always_exist(void **state) {
        struct cgroup_table t;
        struct cgroup *c = NULL;

        assert_int_equal(cgroup_table_init(&t, 0, 0, RETENTION), 0);
        assert_int_equal(count(&t), 2);
        assert_ptr_equal(cgroup_table_get(&t, CGROUP_KEY_UNATTRIBUTED), t.unattributed);
        assert_ptr_equal(cgroup_table_get(&t, CGROUP_KEY_OVERFLOW), t.overflow);
        assert_ptr_equal(cgroup_table_get(&t, 4711), t.unattributed);
        assert_null(cgroup_table_find(&t, 4711));

        assert_ptr_equal(lookup(&t, DELAYD_CGROUP_UNATTRIBUTED), t.unattributed);
        assert_ptr_equal(lookup(&t, "(overflow)"), t.overflow);
        assert_string_equal(t.overflow->display, "(overflow)");
        assert_true(t.unattributed->exported && t.overflow->exported);
        assert_int_equal(t.exported, 0);
        assert_int_equal(t.tracked, 0);

        /* Nothing that happens to a key can take them away. */
        cgroup_table_remove(&t, SEC, CGROUP_KEY_UNATTRIBUTED);
        cgroup_table_remove(&t, SEC, CGROUP_KEY_OVERFLOW);
        cgroup_table_age(&t, 10 * RETENTION);
        assert_int_equal(count(&t), 2);
        assert_int_equal(cgroup_table_add(&t, SEC, CGROUP_KEY_UNATTRIBUTED, 0, "/x", &c), 0);
        assert_ptr_equal(c, t.unattributed);
        assert_string_equal(c->path, DELAYD_CGROUP_UNATTRIBUTED);

        cgroup_table_done(&t);
}

static void cgroups_know_their_parents_and_names(void **state) {
        struct cgroup_table t;

        assert_int_equal(cgroup_table_init(&t, 10, 10, RETENTION), 0);

        struct cgroup *root = add(&t, SEC, 1, 0, "/");
        struct cgroup *slice = add(&t, SEC, 2, 1, "/system.slice");
        struct cgroup *unit = add(&t, 2 * SEC, 3, 2, "/system.slice/a\\x2db.service");
        struct cgroup *odd = add(&t, 2 * SEC, 4, 3, "/system.slice/a\\x2db.service/\xff\x1b");
        struct cgroup *machine = add(&t, 2 * SEC, 5, 1, "/machine-\\x80\\x0a.scope");

        assert_null(root->parent);
        assert_ptr_equal(slice->parent, root);
        assert_ptr_equal(unit->parent, slice);
        assert_ptr_equal(odd->parent, unit);
        assert_int_equal(unit->added_nsec, 2 * SEC);
        assert_string_equal(root->display, "/");
        assert_string_equal(unit->name.unit, "a-b.service");
        assert_string_equal(unit->name.slice, "system.slice");
        assert_string_equal(odd->path, "/system.slice/a\\x2db.service/\xff\x1b");
        assert_string_equal(odd->display, "/system.slice/a\\x2db.service/\\xff\\x1b");

        /* What the decoding of escapes brings forth must not reach an output raw. */
        assert_string_equal(machine->name.container_id, "\\x80\\x0a");

        assert_ptr_equal(cgroup_table_get(&t, 3), unit);
        assert_int_equal(t.tracked, 5);

        /* Added again: nothing changes but the path. */
        assert_ptr_equal(add(&t, 9 * SEC, 3, 2, "/system.slice/c.service"), unit);
        assert_int_equal(unit->added_nsec, 2 * SEC);
        assert_string_equal(unit->display, "/system.slice/c.service");
        assert_string_equal(unit->name.unit, "c.service");
        assert_int_equal(t.tracked, 5);

        /* Nobody needs to ask for the entry. */
        assert_int_equal(cgroup_table_add(&t, SEC, 6, 1, "/x", NULL), 0);
        assert_non_null(cgroup_table_find(&t, 6));

        cgroup_table_done(&t);
}

static void removed_cgroups_stay_for_the_retention(void **state) {
        struct cgroup_table t;

        assert_int_equal(cgroup_table_init(&t, 10, 1, RETENTION), 0);
        struct cgroup *root = add(&t, SEC, 1, 0, "/");
        struct cgroup *a = add(&t, SEC, 2, 1, "/a");
        add(&t, SEC, 3, 2, "/a/b");
        assert_true(root->exported);
        assert_false(a->exported);

        cgroup_table_remove(&t, 10 * SEC, 3);
        cgroup_table_remove(&t, 20 * SEC, 3); /* a second notice does not make it stay longer */
        cgroup_table_remove(&t, 10 * SEC, 2);
        cgroup_table_remove(&t, 10 * SEC, 99);
        assert_int_equal(t.tracked, 1);
        assert_int_equal(t.removed, 2);
        assert_int_equal(a->removed_nsec, 10 * SEC);

        cgroup_table_age(&t, 10 * SEC + RETENTION - 1);
        assert_int_equal(count(&t), 5);
        cgroup_table_age(&t, 10 * SEC + RETENTION);
        assert_int_equal(count(&t), 3);
        assert_int_equal(t.removed, 0);
        assert_ptr_equal(cgroup_table_get(&t, 2), t.unattributed);
        assert_int_equal(root->children, 0);

        /* The place of an exported one becomes free for new ones. */
        struct cgroup *c = add(&t, RETENTION, 4, 1, "/c");
        assert_false(c->exported);
        cgroup_table_remove(&t, RETENTION, 4);
        cgroup_table_remove(&t, RETENTION, 1);
        cgroup_table_age(&t, 3 * RETENTION);
        assert_int_equal(t.exported, 0);
        assert_true(add(&t, 3 * RETENTION, 5, 0, "/")->exported);
        assert_int_equal(t.exported, 1);

        cgroup_table_done(&t);
}

static void nothing_is_freed_that_is_pointed_to(void **state) {
        struct cgroup_table t;

        assert_int_equal(cgroup_table_init(&t, 10, 10, RETENTION), 0);
        add(&t, SEC, 1, 0, "/");
        add(&t, SEC, 2, 1, "/a");
        struct cgroup *b = add(&t, SEC, 3, 2, "/a/b");

        /* A task entry keeps the cgroup, which keeps its ancestors. */
        b->entries = 1;
        cgroup_table_remove(&t, SEC, 3);
        cgroup_table_remove(&t, SEC, 2);
        cgroup_table_age(&t, 2 * RETENTION);
        assert_int_equal(count(&t), 5);
        assert_string_equal(b->parent->path, "/a");

        b->entries = 0;
        cgroup_table_age(&t, 2 * RETENTION);
        assert_int_equal(count(&t), 3);

        cgroup_table_done(&t);
}

static void a_path_made_again_is_a_new_cgroup(void **state) {
        struct cgroup_table t;

        assert_int_equal(cgroup_table_init(&t, 10, 10, RETENTION), 0);
        struct cgroup *first = add(&t, SEC, 2, 0, "/job.service");
        struct delay_stats *stats = cgroup_stats(first, DELAY_BLKIO);

        assert_non_null(stats);
        assert_ptr_equal(cgroup_stats(first, DELAY_BLKIO), stats);
        assert_int_equal(
                        delay_stats_add(stats, SEC, &(struct delay_batch) { .waits = 3, .total_nsec = 3000, .exact = true }), 0);

        cgroup_table_remove(&t, 2 * SEC, 2);
        struct cgroup *second = add(&t, 3 * SEC, 7, 0, "/job.service");
        assert_ptr_not_equal(first, second);
        assert_null(second->stats[DELAY_BLKIO]);
        assert_int_equal(first->stats[DELAY_BLKIO]->totals.waits, 3);
        assert_ptr_equal(lookup(&t, "/job.service"), second);
        assert_ptr_equal(lookup(&t, "job.service"), second);

        /* Both gone: the one that went last is meant. */
        cgroup_table_remove(&t, 4 * SEC, 7);
        assert_ptr_equal(lookup(&t, "/job.service"), second);
        assert_ptr_equal(lookup(&t, "job.service"), second);

        /* A removal that was a mistake is taken back, with all numbers. */
        assert_ptr_equal(add(&t, 5 * SEC, 2, 0, "/job.service"), first);
        assert_int_equal(first->removed_nsec, 0);
        assert_int_equal(first->stats[DELAY_BLKIO]->totals.waits, 3);
        assert_int_equal(t.tracked, 1);
        assert_int_equal(t.removed, 1);
        assert_ptr_equal(lookup(&t, "/job.service"), first);

        /* Two at one path that both seem to exist: the later one is there. */
        struct cgroup *third = add(&t, 6 * SEC, 8, 0, "/job.service");
        assert_ptr_equal(lookup(&t, "/job.service"), third);

        cgroup_table_done(&t);
}

static void a_full_table_overflows(void **state) {
        struct cgroup_table t;

        assert_int_equal(cgroup_table_init(&t, 2, 10, RETENTION), 0);
        struct cgroup *root = add(&t, SEC, 1, 0, "/");
        add(&t, SEC, 2, 1, "/a");

        assert_ptr_equal(add(&t, SEC, 3, 2, "/a/b"), t.overflow);
        assert_ptr_equal(add(&t, SEC, 3, 2, "/a/b"), t.overflow);
        assert_ptr_equal(add(&t, SEC, 4, 1, "/ab"), t.overflow);
        assert_int_equal(t.overflowed, 2);
        assert_int_equal(t.tracked, 2);
        assert_int_equal(count(&t), 4);
        assert_string_equal(t.overflow->path, DELAYD_CGROUP_OVERFLOW);

        /* Its waits belong there and not to the tasks whose cgroup is not known. */
        assert_ptr_equal(cgroup_table_get(&t, 3), t.overflow);
        assert_ptr_equal(cgroup_table_get(&t, 5), t.unattributed);

        /* A removed cgroup holds its place until it is dropped. */
        cgroup_table_remove(&t, SEC, 2);
        assert_ptr_equal(add(&t, SEC, 5, 1, "/c"), t.overflow);
        cgroup_table_age(&t, SEC + RETENTION);

        /* Under a parent without a place the nearest ancestor that has one stands in. */
        struct cgroup *deep = add(&t, SEC + RETENTION, 6, 3, "/a/b/c");
        assert_ptr_equal(deep->parent, root);
        assert_ptr_equal(cgroup_table_get(&t, 3), t.overflow);

        cgroup_table_remove(&t, SEC, 3);
        assert_ptr_equal(cgroup_table_get(&t, 3), t.unattributed);
        assert_int_equal(t.overflowed, 3);

        cgroup_table_done(&t);
}

static void people_find_cgroups(void **state) {
        struct cgroup_table t;
        struct cgroup *c = NULL;

        assert_int_equal(cgroup_table_init(&t, 100, 100, RETENTION), 0);
        add(&t, SEC, 1, 0, "/");
        struct cgroup *init = add(&t, SEC, 2, 1, "/init.scope");
        struct cgroup *slice = add(&t, SEC, 3, 1, "/system.slice");
        struct cgroup *web = add(&t, SEC, 4, 3, "/system.slice/web@a\\x2db.service");
        struct cgroup *below = add(&t, SEC, 5, 4, "/system.slice/web@a\\x2db.service/worker");
        struct cgroup *docker = add(&t, SEC, 6, 3, "/system.slice/docker-" ID ".scope");
        add(&t, SEC, 7, 6, "/system.slice/docker-" ID ".scope/init");
        struct cgroup *odd = add(&t, SEC, 8, 1, "/\xff");

        assert_ptr_equal(lookup(&t, "/init.scope"), init);
        assert_ptr_equal(lookup(&t, "init.scope"), init);
        assert_ptr_equal(lookup(&t, "system.slice"), slice);
        assert_ptr_equal(lookup(&t, "/\xff"), odd);
        assert_ptr_equal(lookup(&t, "/\\xff"), odd);

        /* A unit's own cgroup, whether people copy the escaped or the decoded name. */
        assert_ptr_equal(lookup(&t, "web@a-b.service"), web);
        assert_ptr_equal(lookup(&t, "web@a\\x2db.service"), web);
        assert_ptr_equal(lookup(&t, "/system.slice/web@a\\x2db.service/worker"), below);

        assert_ptr_equal(lookup(&t, ID), docker);
        assert_ptr_equal(lookup(&t, "4f2b0a6c1e9d"), docker);
        assert_int_equal(cgroup_table_lookup(&t, "4f2b0a6c1e9", &c), -ENOENT); /* eleven */
        assert_int_equal(cgroup_table_lookup(&t, "", &c), -ENOENT);
        assert_int_equal(cgroup_table_lookup(&t, "web", &c), -ENOENT);
        assert_int_equal(cgroup_table_lookup(&t, "/system.slice/", &c), -ENOENT);

        /* Several fit. */
        struct cgroup *other = add(&t, SEC, 9, 1, "/docker/" ID2);
        assert_int_equal(cgroup_table_lookup(&t, "4f2b0a6c1e9d", &c), -ENOTUNIQ);
        assert_ptr_equal(lookup(&t, ID), docker);
        assert_ptr_equal(lookup(&t, "4f2b0a6c1e9df"), other);

        add(&t, SEC, 10, 1, "/user.slice/user-1.slice/user@1.service/init.scope");
        assert_int_equal(cgroup_table_lookup(&t, "init.scope", &c), -ENOTUNIQ);
        assert_ptr_equal(lookup(&t, "/init.scope"), init);
        assert_null(c);

        /* A removed one does not count against one that exists, and is found when none does. */
        cgroup_table_remove(&t, 2 * SEC, 10);
        assert_ptr_equal(lookup(&t, "init.scope"), init);
        cgroup_table_remove(&t, 3 * SEC, 2);
        assert_ptr_equal(lookup(&t, "init.scope"), init);

        cgroup_table_done(&t);
}

/* A parent that is gone from the table before its child must not be looked at. */
static void memory_stays_flat(void **state) {
        struct cgroup_table t;
        uint64_t now = SEC;
        char path[64];

        assert_int_equal(cgroup_table_init(&t, 1000, 100, SEC), 0);
        add(&t, now, 1, 0, "/");

        for (uint64_t key = 2; key < 20002; key++) {
                snprintf(path, sizeof(path), "/job-%llu.service", (unsigned long long) key);
                struct cgroup *c = add(&t, now, key, key % 3 == 0 ? key - 1 : 1, path);

                assert_non_null(cgroup_stats(c, DELAY_SWAPIN));
                if (key > 3)
                        cgroup_table_remove(&t, now, key - 2);
                if (key % 100 == 0) {
                        now += SEC;
                        cgroup_table_age(&t, now);
                        assert_in_range(count(&t), 3, 300);
                }
        }

        assert_int_equal(t.overflowed, 0);
        assert_in_range(hash_memory(&t.by_key), 1, 32 * 1024);
        assert_int_equal(t.beyond.n, 0);
        cgroup_table_done(&t);
}

/* Windows that nobody adds to any more give their slots back. */
static void windows_age(void **state) {
        struct cgroup_table t;

        assert_int_equal(cgroup_table_init(&t, 10, 10, RETENTION), 0);
        struct delay_stats *stats = cgroup_stats(add(&t, SEC, 1, 0, "/"), DELAY_BLKIO);

        assert_non_null(stats);
        assert_int_equal(delay_stats_add(stats, SEC, &(struct delay_batch) { .waits = 1, .total_nsec = 1000 }), 0);
        assert_int_equal(stats->tiers[0].n, 1);
        cgroup_table_age(&t, 2 * 3600 * SEC);
        for (size_t i = 0; i < DELAY_TIER_COUNT; i++)
                assert_int_equal(stats->tiers[i].n, 0);
        assert_int_equal(stats->totals.waits, 1);

        cgroup_table_done(&t);
}

static bool is_service(const char *path, void *userdata) {
        assert_ptr_equal(userdata, &is_service);
        return strstr(path, ".service");
}

static void only_some_are_exported(void **state) {
        struct cgroup_table t;
        struct cgroup *c;

        assert_int_equal(cgroup_table_init(&t, 10, 2, 0), 0);
        t.may_export = is_service;
        t.may_export_userdata = &is_service;

        assert_int_equal(cgroup_table_add(&t, 1, 1, 0, "/", &c), 0);
        assert_false(c->exported);
        assert_true(t.other->exported);
        assert_int_equal(cgroup_table_add(&t, 1, 2, 1, "/a.service", &c), 0);
        assert_true(c->exported);
        assert_int_equal(cgroup_table_add(&t, 1, 3, 1, "/b.service", &c), 0);
        assert_true(c->exported);
        assert_int_equal(cgroup_table_add(&t, 1, 4, 1, "/c.service", &c), 0);
        assert_false(c->exported); /* one too many */
        assert_int_equal(t.exported, 2);
        cgroup_table_done(&t);
}

static void begin_waiting(struct cgroup_table *t, struct cgroup *c) {
        cgroup_table_begin_waiting(t, c);
        assert_non_null(cgroup_stats(c, DELAY_SWAPIN));
}

static void those_that_wait_are_exported_first(void **state) {
        struct cgroup *c[8];
        struct cgroup_table t;
        char path[16];

        assert_int_equal(cgroup_table_init(&t, 20, 2, 0), 0);
        t.may_export = is_service;
        t.may_export_userdata = &is_service;
        for (unsigned i = 0; i < 6; i++) {
                snprintf(path, sizeof(path), "/%u.%s", i, i == 5 ? "scope" : "service");
                c[i] = add(&t, SEC, 10 + i, 0, path);
                assert_int_equal(c[i]->exported, i < 2);
        }

        /* It has series and keeps them. */
        begin_waiting(&t, c[1]);
        assert_true(c[0]->exported && c[1]->exported);

        /* It takes the place of the one that never waited; which one may have none takes no place. */
        begin_waiting(&t, c[5]);
        assert_false(c[5]->exported);
        assert_true(c[0]->exported);
        begin_waiting(&t, c[2]);
        assert_false(c[0]->exported);
        assert_true(c[1]->exported && c[2]->exported);
        assert_int_equal(t.exported, 2);

        /* Now all that have series have waited. */
        begin_waiting(&t, c[3]);
        assert_false(c[3]->exported);
        assert_true(c[1]->exported && c[2]->exported);

        /* A place that becomes free is for those that did not wait without series before, a new one or not. */
        cgroup_table_remove(&t, SEC, 11);
        cgroup_table_remove(&t, SEC, 12);
        cgroup_table_age(&t, 2 * SEC);
        assert_int_equal(t.exported, 0);
        cgroup_table_begin_waiting(&t, c[3]);
        assert_false(c[3]->exported);
        begin_waiting(&t, c[4]);
        assert_true(c[4]->exported);
        c[6] = add(&t, SEC, 20, 0, "/6.service");
        assert_true(c[6]->exported);
        begin_waiting(&t, c[0]);
        assert_true(c[0]->exported && c[4]->exported);
        assert_false(c[6]->exported);
        assert_int_equal(t.exported, 2);
        cgroup_table_done(&t);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(only_some_are_exported),
                cmocka_unit_test(those_that_wait_are_exported_first),
                cmocka_unit_test(special_entries_always_exist),
                cmocka_unit_test(cgroups_know_their_parents_and_names),
                cmocka_unit_test(removed_cgroups_stay_for_the_retention),
                cmocka_unit_test(nothing_is_freed_that_is_pointed_to),
                cmocka_unit_test(a_path_made_again_is_a_new_cgroup),
                cmocka_unit_test(a_full_table_overflows),
                cmocka_unit_test(people_find_cgroups),
                cmocka_unit_test(memory_stays_flat),
                cmocka_unit_test(windows_age),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
