/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/accounting-internal.h"

/* Of each process the first children are looked at, and then one in so many. */
#define CHECKED_FIRST 8
#define CHECKED_EVERY 32

/* A process whose child was found elsewhere is taken for one that scatters its children, until so many in a row were not. */
#define SCATTERS_FOR 64

/* Until cgroup_post_fork() in kernel/fork.c a new task shows itself in the root cgroup, whatever it will be in. */
#define UNPLACED_NSEC (2 * NSEC_PER_MSEC)

/* Also one that ended a moment ago. */
static struct task *parent_of(const struct accounting *a, const struct task *task) {
        return task->parent_tgid ? hash_get(&a->tasks.by_tid, task->parent_tgid) : NULL;
}

static void learn(const struct accounting *a, const struct task *task, bool elsewhere) {
        struct task *parent = parent_of(a, task);

        if (!parent || !task->inherited)
                return;

        if (elsewhere) {
                parent->scatters = SCATTERS_FOR;
                parent->proven = false;
                return;
        }

        if (parent->scatters > 0)
                parent->scatters--;
        parent->proven = true;
}

void attribution_inherit(struct accounting *a, struct task *child, const struct fork_event *event) {
        struct task *parent = hash_get(&a->tasks.by_tid, event->parent_tgid);

        /* A thread begins where its process is, and is as certain. */
        if (parent && event->tid != event->tgid && parent->tid == event->tgid) {
                child->parent_tgid = parent->parent_tgid;
                child->inherited = parent->inherited || parent->doubtful;
                child->to_check = child->inherited && parent->to_check;
                return;
        }

        child->parent_tgid = event->parent_tgid;
        child->inherited = true;
        child->to_check = !parent || parent->scatters > 0 || parent->forks < CHECKED_FIRST || parent->forks % CHECKED_EVERY == 0;
        if (parent)
                parent->forks++;
}

void attribution_place(struct accounting *a, struct task *task, struct cgroup *cgroup) {
        bool known = cgroup != a->cgroups.unattributed, elsewhere = cgroup != task->cgroup;
        const struct task *parent = parent_of(a, task);

        /* Children of one that scatters them may only be on their way. */
        if (known && !elsewhere && task->inherited && parent && parent->scatters > 0)
                return;

        if (known)
                learn(a, task, elsewhere);
        if (elsewhere || task->attribution != ATTRIBUTION_CACHE)
                task_set_cgroup(task, cgroup, known ? ATTRIBUTION_CACHE : ATTRIBUTION_NONE);
        task->inherited = task->doubtful = task->to_check = false;
}

/*
 * Asks the kernel. Returns 1 and the cgroup; 0 if it is one that nobody has told of, which is an answer
 * too; or a negative errno without one.
 */
static int look_up(
                struct accounting *a,
                const struct task *task,
                bool ended,
                struct cgroup **ret_cgroup,
                enum attribution_source *ret_source) {

        enum attribution_source source = ATTRIBUTION_NONE;
        uint64_t key = CGROUP_KEY_UNATTRIBUTED;

        if (!a->config.lookup)
                return -EOPNOTSUPP;

        /* The number has another owner by now, of whom the kernel would tell. */
        if (hash_get(&a->tasks.by_tid, task->tid) != task)
                return -ESRCH;

        int r = a->config.lookup(task->tid, task->tgid, ended, &key, &source, a->config.userdata);
        OBSERVE(a, .type = ACCOUNTING_LOOKED_UP, .lookup = { task->tid, r, key, source });
        if (r < 0)
                return r;

        *ret_cgroup = cgroup_table_find(&a->cgroups, key);
        *ret_source = source;
        return *ret_cgroup ? 1 : 0;
}

/* The process of a thread, or the parent of a process. */
static struct cgroup *relatives_cgroup(const struct accounting *a, const struct task *task, uint32_t ppid) {
        const struct task *relative = NULL;

        if (task->tgid && task->tgid != task->tid)
                relative = hash_get(&a->tasks.by_tid, task->tgid);

        /* What ends as a child of init was most often left to it, and never was where init is. */
        if (!relative && ppid > 1)
                relative = hash_get(&a->tasks.by_tid, ppid);

        return relative && relative->attribution != ATTRIBUTION_NONE ? relative->cgroup : NULL;
}

/* Nobody has told of the task: asks the kernel, then the process and the parent. */
static void find(struct accounting *a, struct task *task, const struct task_sample *sample, bool ended) {
        enum attribution_source source;
        struct cgroup *cgroup;

        int r = look_up(a, task, ended, &cgroup, &source);
        if (r < 0) {
                cgroup = relatives_cgroup(a, task, sample->ppid);
                source = ATTRIBUTION_PARENT;
        }
        if (cgroup)
                task_set_cgroup(task, cgroup, r > 0 && !ended ? ATTRIBUTION_CACHE : source);
}

static bool waited(const struct accounting *a, const struct task_sample *sample) {
        for (unsigned kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(a->config.kinds, kind) && sample->delays[kind].count > 0)
                        return true;

        return false;
}

/* The kernel removes no cgroup in which a task lives. */
static bool is_outdated(const struct task *task) {
        return task->cgroup->removed_nsec > 0;
}

static bool is_root(const struct cgroup *cgroup) {
        return strcmp(cgroup->path, "/") == 0;
}

void attribution_settle_live(struct accounting *a, struct task *task, const struct task_sample *sample) {
        enum attribution_source source;
        struct cgroup *cgroup;

        if (task->attribution == ATTRIBUTION_NONE) {
                find(a, task, sample, false);
                return;
        }

        /* A guess from when it was asked for in vain is tried again, like what was inherited. */
        if (!task->inherited && task->attribution != ATTRIBUTION_PARENT && !is_outdated(task))
                return;
        if (!waited(a, sample))
                return;

        int r = look_up(a, task, false, &cgroup, &source);
        if (r < 0 || (r > 0 && is_root(cgroup) && sample->lifetime_nsec < UNPLACED_NSEC))
                return;

        attribution_place(a, task, r > 0 ? cgroup : a->cgroups.unattributed);
}

static bool is_doubtful(const struct accounting *a, const struct task *task) {
        const struct task *parent;

        if (task->doubtful || task->attribution == ATTRIBUTION_PARENT || is_outdated(task) || a->doubt == DOUBT_ALL)
                return true;
        if (!task->inherited)
                return false;
        if (a->doubt != DOUBT_NONE)
                return true;

        parent = parent_of(a, task);
        return parent && parent->scatters > 0;
}

/* Some child has been found where it should be. */
static bool has_proven_parent(const struct accounting *a, const struct task *task) {
        const struct task *parent = parent_of(a, task);

        return parent && parent->proven;
}

void attribution_settle_exit(struct accounting *a, struct task *task, const struct task_sample *sample) {
        enum attribution_source source;
        struct cgroup *cgroup;

        if (task->attribution == ATTRIBUTION_NONE) {
                find(a, task, sample, true);
                return;
        }

        bool doubtful = is_doubtful(a, task);
        if (!doubtful && !(task->inherited && task->to_check && waited(a, sample)))
                return;

        int r = look_up(a, task, true, &cgroup, &source);
        if (r == 0)
                task_set_cgroup(task, a->cgroups.unattributed, ATTRIBUTION_NONE);
        else if (r > 0) {
                learn(a, task, cgroup != task->cgroup);
                if (cgroup != task->cgroup || task->attribution == ATTRIBUTION_PARENT)
                        task_set_cgroup(task, cgroup, source);
        } else if (doubtful || (r != -EOPNOTSUPP && !has_proven_parent(a, task)))
                task_set_cgroup(task, task->cgroup, ATTRIBUTION_PARENT);
}

void accounting_doubt(struct accounting *a, enum accounting_doubt doubt) {
        size_t cursor = 0;

        if (doubt == DOUBT_NONE && a->doubt == DOUBT_NONE)
                return;

        OBSERVE(a, .type = ACCOUNTING_DOUBT, .doubt = { 0, doubt });
        a->doubt = doubt == DOUBT_LOST ? DOUBT_ALL : doubt;

        if (doubt == DOUBT_LOST)
                for (struct task *task; (task = task_next(&a->tasks, &cursor));)
                        task->doubtful = task->doubtful || task->inherited;
}

void accounting_doubt_task(struct accounting *a, uint32_t tid) {
        struct task *task = task_newest(&a->tasks, tid);

        OBSERVE(a, .type = ACCOUNTING_DOUBT, .doubt = { .tid = tid });
        if (task)
                task->doubtful = true;
}
