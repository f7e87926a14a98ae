/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/diagnosis.h"

#define WORST_CGROUPS 3

/* What the daemon knows from its work. */

static const char remedy_dequeue[] =
                "echo NO_DELAY_DEQUEUE > /sys/kernel/debug/sched/features, then systemctl reload delayd; at each boot.";

static uint64_t count_refused_waits(const struct accounting *a) {
        const struct cgroup *cgroup;
        uint64_t refused = 0;
        size_t cursor = 0;

        while ((cgroup = cgroup_table_next(&a->cgroups, &cursor)))
                if (cgroup->stats[DELAY_BLKIO])
                        refused += cgroup->stats[DELAY_BLKIO]->totals.rejected_waits;

        return refused;
}

static void check_delayed_dequeue(struct diagnosis *d, const struct host_facts *host, const struct accounting *a) {
        static const char *const id = "delayed-dequeue", *const title = "Delayed dequeue";
        uint64_t refused = a ? count_refused_waits(a) : 0;
        char so_far[64] = "";

        if (a)
                snprintf(so_far, sizeof(so_far), ": %" PRIu64 " so far", refused);

        if (host->delayed_dequeue == TRISTATE_OFF)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "The kernel's fault in blkio delays (Linux 6.12 and later) cannot "
                              "occur here.");
        else if (host->delayed_dequeue == TRISTATE_UNKNOWN)
                diagnosis_add(d, id, title, CHECK_UNKNOWN, NULL, "It cannot be told whether this kernel has the fault in blkio "
                              "delays of Linux 6.12 and later.");
        else
                diagnosis_add(d, id, title, refused > 0 ? CHECK_WARN : CHECK_OK, remedy_dequeue,
                              "This kernel has a fault: when a sleep is finished late (DELAY_DEQUEUE, Linux 6.12 and later), the "
                              "wrong task is stamped, and a blkio wait can be credited with up to the host's uptime. delayd "
                              "refuses such waits and counts them%s.", so_far);
}

/* The cgroups with the most of them, as text. */
static void name_worst(const struct accounting *a, char *text, size_t size) {
        const struct cgroup *worst[WORST_CGROUPS] = {}, *cgroup;
        size_t cursor = 0, used = 0;

        while ((cgroup = cgroup_table_next(&a->cgroups, &cursor))) {
                unsigned place = WORST_CGROUPS;

                while (place > 0 && (!worst[place - 1] || worst[place - 1]->unaccounted_tasks < cgroup->unaccounted_tasks))
                        place--;
                if (cgroup->unaccounted_tasks == 0 || place == WORST_CGROUPS)
                        continue;

                memmove(worst + place + 1, worst + place, (WORST_CGROUPS - 1 - place) * sizeof(worst[0]));
                worst[place] = cgroup;
        }

        text[0] = '\0';
        for (unsigned i = 0; i < WORST_CGROUPS && worst[i]; i++) {
                int n = snprintf(text + used, size - used, "%s%" PRIu32 " in %s", i > 0 ? ", " : "",
                                 worst[i]->unaccounted_tasks, worst[i]->display);

                if (n < 0 || (size_t) n >= size - used) {
                        text[used] = '\0'; /* rather none than half a name */
                        return;
                }
                used += (size_t) n;
        }
}

static void check_unaccounted(struct diagnosis *d, const struct accounting *a) {
        const struct cgroup *cgroup;
        uint64_t n = 0;
        size_t cursor = 0;
        char worst[1024];

        while ((cgroup = cgroup_table_next(&a->cgroups, &cursor)))
                n += cgroup->unaccounted_tasks;

        if (n == 0) {
                diagnosis_add(d, "unaccounted-tasks", "Unaccounted tasks", CHECK_OK, NULL,
                              "No task is known to have been started before delay accounting was on.");
                return;
        }

        name_worst(a, worst, sizeof(worst));
        diagnosis_add(d, "unaccounted-tasks", "Unaccounted tasks", CHECK_WARN,
                      "Restart these services. What the boot itself has started takes \"delayacct\" on the kernel's command "
                      "line and a reboot.",
                      "%" PRIu64 " of %zu tasks were started while delay accounting was off and have no delays for life%s%s.",
                      n, a->tasks.n_live, worst[0] ? ": " : "", worst);
}

/* While a loss matters to some window, its problem is there. */
static void check_losses(struct diagnosis *d, const struct daemon_facts *daemon) {
        if (daemon->status->exits_lost == 0)
                diagnosis_add(d, "exits-lost", "Lost records", CHECK_OK, NULL, "None of the exit records for delayd was lost (%"
                              PRIu64 " received).", daemon->status->exits_received);
        else
                diagnosis_add(d, "exits-lost", "Lost records", CHECK_OK,
                              "Raise Collect.ReceiveBuffer= if that happens again.",
                              "%" PRIu64 " exit records found no room in the receive buffer, none of late (%" PRIu64 " received).",
                              daemon->status->exits_lost, daemon->status->exits_received);

        if (daemon->events_lost > 0)
                diagnosis_add(d, "events-lost", "Lost fork events", CHECK_OK, NULL,
                              "%" PRIu64 " found no room; a sweep over all cgroups made good for each loss.", daemon->events_lost);
}

static void check_sampling(struct diagnosis *d, const struct daemon_facts *daemon) {
        if (schedule_is_bound(&daemon->accounting->schedule))
                diagnosis_add(d, "sampling", "Sampling", CHECK_OK, "Raise Collect.CpuBudget= for more exact waits.",
                              "The CPU budget of %g%% keeps delayd from looking as often as tasks wait: more waits are known "
                              "as the mean of a few.", daemon->cpu_budget * 100);
        else
                diagnosis_add(d, "sampling", "Sampling", CHECK_OK, NULL,
                              "%zu tasks are sampled as often as they wait, within %g%% of a CPU.",
                              daemon->accounting->tasks.n_live, daemon->cpu_budget * 100);
}

static void check_state(struct diagnosis *d, const struct daemon_facts *daemon) {
        static const char *const id = "state-directory", *const title = "State directory";

        if (!daemon->state_directory)
                diagnosis_add(d, id, title, CHECK_OK, "Set StateDirectory=delayd in the unit, as the unit of the package has it.",
                              "None: counters begin anew at each start.");
        else if (daemon->state_error < 0)
                diagnosis_add(d, id, title, CHECK_WARN,
                              "Make room, and let the user of delayd write there (StateDirectory= in the unit sees to that).",
                              "%s cannot be written to (%s): a crash or a reboot takes the counters along.",
                              daemon->state_directory, strerror(-daemon->state_error));
        else
                diagnosis_add(d, id, title, CHECK_OK, NULL, "%s can be written to.", daemon->state_directory);
}

/* A problem has the last word: the check of the same thing becomes what it says, and any other is one of its own. */
static void check_problems(struct diagnosis *d, const struct health *health) {
        for (const struct problem *p = health->problems; p; p = p->next) {
                enum check_result result = p->severity == PROBLEM_FAILING ? CHECK_FAIL : CHECK_WARN;
                bool is_accounting = strcmp(p->id, "delay-accounting-off") == 0;
                const struct check *check = diagnosis_find(d, is_accounting ? "delay-accounting" : p->id);

                /* Who is answered has a bus. */
                if (strcmp(p->id, "bus-unavailable") == 0)
                        continue;

                if (!check)
                        diagnosis_add(d, p->id, "Problem", result, p->remedy, "%s", p->message);
                else if (check->result == CHECK_OK)
                        diagnosis_replace(d, check, result, p->message, p->remedy);
        }
}

void diagnose_daemon(struct diagnosis *d, const struct host_facts *host, const struct daemon_facts *daemon) {
        check_delayed_dequeue(d, host, daemon ? daemon->accounting : NULL);
        if (!daemon)
                return;

        check_unaccounted(d, daemon->accounting);
        check_losses(d, daemon);
        check_sampling(d, daemon);
        check_state(d, daemon);
        check_problems(d, daemon->health);
}
