/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>

#include "collect-internal.h"

static void on_added(uint64_t id, uint64_t parent_id, const char *path, void *userdata) {
        struct collector *c = userdata;

        collector_out_of_memory(c, accounting_cgroup_added(c->accounting, collector_now(), id, parent_id, path));
}

static void on_removed(uint64_t id, void *userdata) {
        struct collector *c = userdata;

        accounting_cgroup_removed(c->accounting, collector_now(), id);
}

/* Only noted: the tasks are read once all events that wait have been told. */
static void on_joined(uint64_t id, void *userdata) {
        struct collector *c = userdata;

        for (size_t i = 0; i < c->n_joined; i++)
                if (c->joined[i] == id)
                        return;

        if (c->n_joined == c->allocated_joined) {
                size_t allocated = c->allocated_joined ? c->allocated_joined * 2 : 32;
                uint64_t *joined = realloc(c->joined, allocated * sizeof(*joined));

                if (!joined) {
                        c->dirty = true; /* a sweep finds them as well */
                        return;
                }
                c->joined = joined;
                c->allocated_joined = allocated;
        }
        c->joined[c->n_joined++] = id;
}

const struct cgroup_tree_handler collector_tree_handler = {
        .added = on_added,
        .removed = on_removed,
        .joined = on_joined,
};

static void on_member(uint64_t id, uint32_t tid, void *userdata) {
        collector_place(userdata, tid, id);
}

static void on_cgroup(uint64_t id, void *userdata) {
        struct collector *c = userdata;

        /* A cgroup that is gone by now has no tasks to find; of any other error (descriptors, memory) the tasks know nothing. */
        int r = cgroup_tree_tasks(c->tree, id, on_member, c);
        if (r < 0 && r != -ENOENT)
                c->sweep_incomplete = true;
}

static void place_joined(struct collector *c) {
        for (size_t i = 0; i < c->n_joined; i++)
                on_cgroup(c->joined[i], c);
        c->n_joined = 0;
}

void collector_sweep(struct collector *c) {
        c->dirty = false;
        if (cgroup_tree_rescan(c->tree) < 0)
                collector_problem(c, "cgroup-tree", PROBLEM_DEGRADED, "The cgroup hierarchy could not be read.",
                                  "Check that Collect.CgroupRoot= names a mounted cgroup hierarchy which delayd may read.");
        else
                collector_no_problem(c, "cgroup-tree");
        c->n_joined = 0; /* all are read now */

        accounting_sweep_begin(c->accounting);
        c->sweep_incomplete = false;
        int r = cgroup_tree_each(c->tree, on_cgroup, c);
        if (r >= 0 && !c->sweep_incomplete)
                accounting_sweep_end(c->accounting, collector_now());
        collector_out_of_memory(c, r);
}

void collector_tree_changed(struct collector *c) {
        int r = cgroup_tree_process(c->tree);

        if (r != 0)
                c->dirty = true;
        if (c->n_joined == 0)
                return;

        /* What was forked before the move is to be known before it. */
        collector_drain(c);
        place_joined(c);
}
