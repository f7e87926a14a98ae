/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collect/collector.h"

static void on_added(uint64_t id, uint64_t parent_id, const char *path, void *userdata) {
        struct collector *c = userdata;

        collector_out_of_memory(c, accounting_cgroup_added(c->accounting, collector_now(), id, parent_id, path));
}

/* Only noted: exit records of its tasks may still wait. */
static void on_removed(uint64_t id, void *userdata) {
        struct collector *c = userdata;

        if (c->n_removed == c->allocated_removed) {
                size_t allocated = c->allocated_removed ? c->allocated_removed * 2 : 32;
                uint64_t *removed = realloc(c->removed, allocated * sizeof(*removed));

                if (!removed) {
                        accounting_cgroup_removed(c->accounting, collector_now(), id);
                        return;
                }
                c->removed = removed;
                c->allocated_removed = allocated;
        }
        c->removed[c->n_removed++] = id;
}

void collector_tell_removed(struct collector *c, size_t n) {
        if (n == 0)
                return; /* memmove() takes no NULL, not even to move nothing */

        for (size_t i = 0; i < n; i++)
                if (!cgroup_tree_exists(c->tree, c->removed[i]))
                        accounting_cgroup_removed(c->accounting, collector_now(), c->removed[i]);

        c->n_removed -= n;
        if (c->n_removed > 0)
                memmove(c->removed, c->removed + n, c->n_removed * sizeof(*c->removed));
}

/* Only noted as well: the tasks are read once all events that wait have been told. */
static void on_joined(uint64_t id, bool written, void *userdata) {
        struct collector *c = userdata;

        if (c->n_joined == c->allocated_joined) {
                size_t allocated = c->allocated_joined ? c->allocated_joined * 2 : 32;
                struct collector_join *joined = realloc(c->joined, allocated * sizeof(*joined));

                if (!joined) {
                        c->dirty = c->events_missed = true; /* a sweep finds them as well */
                        return;
                }
                c->joined = joined;
                c->allocated_joined = allocated;
        }
        c->joined[c->n_joined++] = (struct collector_join) { id, written };
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

void collector_read_members(struct collector *c, uint64_t id) {
        on_cgroup(id, c);
}

void collector_sweep(struct collector *c) {
        c->dirty = false;
        if (cgroup_tree_rescan(c->tree) < 0)
                collector_problem(c, "cgroup-tree", PROBLEM_DEGRADED, "The cgroup hierarchy could not be read.",
                                  "Check that Collect.CgroupRoot= names a mounted cgroup hierarchy which delayd may read.");
        else
                collector_no_problem(c, "cgroup-tree");
        (void) collector_attach_tree(c); /* else sweeps are left, as before */
        c->n_joined = 0; /* all are read below */

        accounting_sweep_begin(c->accounting);
        c->sweep_incomplete = false;
        int r = cgroup_tree_each(c->tree, on_cgroup, c);
        if (r >= 0 && !c->sweep_incomplete)
                accounting_sweep_end(c->accounting, collector_now());
        collector_out_of_memory(c, r);
}
