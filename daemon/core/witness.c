/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>

#include <delayd/limits.h>

#include "core/accounting.h"
#include "core/delta.h"
#include "core/witness.h"

#define FORGET_AFTER_NSEC (300 * NSEC_PER_SEC) /* cgroups without long waits */

static void narrow(
                struct accounting *a,
                const struct pressure_log *log,
                uint64_t key,
                uint64_t since_nsec,
                uint64_t now_nsec,
                struct delay_bounds *bounds) {

        uint64_t stall;

        if (accounting_ask_pressure(a, now_nsec, key, &stall) < 0)
                return;

        uint64_t longest = pressure_log_longest_wait(log, since_nsec, now_nsec, stall, a->config.n_cpus);
        if (longest < bounds->single_nsec)
                bounds->single_nsec = longest;
}

static void log_cgroup(struct accounting *a, struct cgroup *cgroup, uint64_t now_nsec) {
        struct witness *w = &a->witness;

        for (unsigned i = 0; i < w->n; i++)
                if (w->cgroups[i].key == cgroup->key) {
                        w->cgroups[i].asked_nsec = now_nsec;
                        return;
                }

        if (cgroup->pressure || w->n == WITNESS_CGROUPS_MAX)
                return;

        cgroup->pressure = calloc(1, sizeof(*cgroup->pressure));
        if (!cgroup->pressure)
                return; /* the host's log is left */

        /* A cgroup that was made under our eyes began without stalls. */
        if (cgroup->added_nsec > a->witness.started_nsec)
                pressure_log_add(cgroup->pressure, cgroup->added_nsec, 0);
        w->cgroups[w->n].key = cgroup->key;
        w->cgroups[w->n++].asked_nsec = now_nsec;
}

void witness_bounds(
                struct accounting *a,
                uint64_t now_nsec,
                const struct task *task,
                const struct task_sample *sample,
                struct delay_bounds *bounds) {

        if (!a->config.pressure)
                return;

        /* An exit record may have been waiting for a while: its wait began that much earlier. */
        uint64_t span = sample->lifetime_nsec - (task->sampled ? task->anchor_nsec : 0)
                        + (sample->start_max_nsec - sample->start_min_nsec);
        uint64_t since = now_nsec > span ? now_nsec - span : 0;

        narrow(a, &a->witness.host, CGROUP_KEY_UNATTRIBUTED, since, now_nsec, bounds);

        if (task->settling > 0 || task->cgroup == a->cgroups.unattributed || task->cgroup == a->cgroups.overflow)
                return;
        log_cgroup(a, task->cgroup, now_nsec);
        if (task->cgroup->pressure)
                narrow(a, task->cgroup->pressure, task->cgroup->key, since, now_nsec, bounds);
}

void witness_tick(struct accounting *a, uint64_t now_nsec) {
        struct witness *w = &a->witness;
        uint64_t stall;

        if (!a->config.pressure)
                return;

        if (w->started_nsec == 0)
                w->started_nsec = now_nsec;
        if (accounting_ask_pressure(a, now_nsec, CGROUP_KEY_UNATTRIBUTED, &stall) >= 0)
                pressure_log_add(&w->host, now_nsec, stall);

        for (unsigned i = 0; i < w->n;) {
                struct cgroup *cgroup = cgroup_table_find(&a->cgroups, w->cgroups[i].key);

                if (cgroup && cgroup->pressure && now_nsec - w->cgroups[i].asked_nsec < FORGET_AFTER_NSEC
                    && accounting_ask_pressure(a, now_nsec, cgroup->key, &stall) >= 0) {
                        pressure_log_add(cgroup->pressure, now_nsec, stall);
                        i++;
                        continue;
                }

                if (cgroup) {
                        free(cgroup->pressure);
                        cgroup->pressure = NULL;
                }
                w->cgroups[i] = w->cgroups[--w->n];
        }
}
