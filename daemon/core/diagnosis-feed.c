/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/diagnosis.h"

#define NEWEST_VERSION 17U

/* What the kernel gives us: records of tasks, fork events, cgroups. */

static void check_taskstats(struct diagnosis *d, const struct host_facts *host, const struct feed_facts *feed) {
        static const char *const id = "taskstats", *const title = "Taskstats";

        if (feed->taskstats == -ENOENT)
                diagnosis_add(d, id, title, CHECK_FAIL,
                              "Use a kernel with CONFIG_TASKSTATS=y and CONFIG_TASK_DELAY_ACCT=y, as distributions build it.",
                              "Linux %s offers no taskstats.", host->release);
        else if (!feed->tried || feed->taskstats == -EPERM)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "Linux %s offers taskstats.", host->release);
        else if (feed->taskstats == -EBADMSG)
                diagnosis_add(d, id, title, CHECK_FAIL, "Please report this, with the version of the kernel.",
                              "The records of Linux %s could not be understood.", host->release);
        else if (feed->taskstats < 0)
                diagnosis_add(d, id, title, CHECK_FAIL, NULL, "The kernel gives no counters of tasks: %s.",
                              strerror(-feed->taskstats));
        else if (feed->version > NEWEST_VERSION)
                diagnosis_add(d, id, title, CHECK_WARN, "Look for a newer version of delayd.",
                              "Version %u of the records is newer than delayd: what it has in common with version %u is used.",
                              feed->version, NEWEST_VERSION);
        else
                diagnosis_add(d, id, title, CHECK_OK, NULL, "Version %u of the records, in the layout of %s, as proven on "
                              "a task of our own.", feed->version,
                              feed->exotic_layout ? "Linux 6.14 alone" : "every kernel but 6.14");
}

static void check_capability(struct diagnosis *d, const struct feed_facts *feed) {
        static const char *const id = "capability", *const title = "Capability";

        if (feed->net_admin)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "CAP_NET_ADMIN is there.");
        else if (!feed->tried)
                diagnosis_add(d, id, title, CHECK_UNKNOWN, "Run 'delayctl doctor' as root.",
                              "Without privileges of its own, delayctl cannot try what delayd needs.");
        else
                diagnosis_add(d, id, title, CHECK_FAIL,
                              "Run delayd as root, or with AmbientCapabilities=CAP_NET_ADMIN in its unit.",
                              "CAP_NET_ADMIN is missing, without which the kernel tells nobody of delays.");
}

static void check_namespace(
                struct diagnosis *d, const char *id, const char *title, enum tristate initial, enum check_result otherwise,
                const char *effect, const char *remedy) {

        if (initial == TRISTATE_UNKNOWN)
                diagnosis_add(d, id, title, CHECK_UNKNOWN, NULL, "It cannot be told whether this is the initial one.");
        else if (initial == TRISTATE_ON)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "The initial one.");
        else
                diagnosis_add(d, id, title, otherwise, remedy, "Not the initial one: %s.", effect);
}

static void check_namespaces(struct diagnosis *d, const struct host_facts *host, const struct feed_facts *feed) {
        check_namespace(d, "user-namespace", "User namespace", host->user_ns, CHECK_FAIL,
                        "capabilities count in the initial one alone",
                        "No PrivateUsers= in the unit; in a container, the host's user namespace (docker: --userns=host).");
        check_namespace(d, "pid-namespace", "PID namespace", host->pid_ns, CHECK_FAIL,
                        "the kernel refuses to send exit records there",
                        "No PrivatePIDs= in the unit; in a container, the host's PIDs (docker: --pid=host).");

        /* A record that has arrived proves more than numbers of namespaces, which may not be readable. */
        enum tristate net_ns = host->net_ns;
        if (feed->tried && net_ns == TRISTATE_UNKNOWN && feed->exits == -ETIMEDOUT)
                net_ns = TRISTATE_OFF;

        if (feed->tried && feed->exits == 0 && net_ns != TRISTATE_ON)
                diagnosis_add(d, "network-namespace", "Network namespace", CHECK_OK, NULL,
                              "The initial one, for exit records arrive.");
        else
                check_namespace(d, "network-namespace", "Network namespace", net_ns, CHECK_FAIL,
                                "the kernel accepts the registration there, and never sends an exit record",
                                "No PrivateNetwork= in the unit; in a container, the host's network (docker: --network=host).");

        check_namespace(d, "time-namespace", "Time namespace", host->time_ns, CHECK_WARN,
                        "the kernel's times of forks and ours do not fit together", "Run delayd in the initial one.");
}

static void check_exits(struct diagnosis *d, const struct feed_facts *feed) {
        static const char *const id = "exit-records", *const title = "Exit records";

        if (!feed->tried || feed->taskstats < 0)
                diagnosis_add(d, id, title, CHECK_UNKNOWN, NULL, "Not tried.");
        else if (feed->exits == 0)
                diagnosis_add(d, id, title, CHECK_OK, NULL,
                              "The exit record of a child of our own arrived; %u sockets listen on all possible CPUs.", feed->sockets);
        else if (feed->exits == -ETIMEDOUT)
                diagnosis_add(d, id, title, CHECK_FAIL, "Run delayd in the initial network namespace.",
                              "The exit record of a child of our own did not arrive.");
        else
                diagnosis_add(d, id, title, CHECK_FAIL, "Run delayd in the initial namespaces, with CAP_NET_ADMIN.",
                              "The kernel refuses to send exit records: %s.", strerror(-feed->exits));
}

static void check_buffer(struct diagnosis *d, const struct feed_facts *feed) {
        if (feed->buffer_asked == 0)
                return;

        if (feed->buffer_granted >= feed->buffer_asked)
                diagnosis_add(d, "receive-buffer", "Receive buffer", CHECK_OK, NULL,
                              "%zu KiB for each of %u sockets, as asked for.", feed->buffer_granted / 1024, feed->sockets);
        else
                diagnosis_add(d, "receive-buffer", "Receive buffer", CHECK_WARN,
                              "Give delayd CAP_NET_ADMIN in the initial user namespace, or raise the sysctl net.core.rmem_max.",
                              "The kernel granted %zu KiB of the %zu KiB of Collect.ReceiveBuffer=: records are lost sooner.",
                              feed->buffer_granted / 1024, feed->buffer_asked / 1024);
}

static void check_connector(struct diagnosis *d, const struct feed_facts *feed) {
        static const char *const id = "proc-connector", *const title = "Fork events";

        if (!feed->tried)
                diagnosis_add(d, id, title, CHECK_UNKNOWN, NULL, "Not tried.");
        else if (feed->connector < 0)
                diagnosis_add(d, id, title, CHECK_WARN,
                              "Use a kernel with CONFIG_PROC_EVENTS=y, and run delayd in the initial namespaces.",
                              "The kernel tells of no forks (%s): short-lived tasks may end up as unattributed.",
                              strerror(-feed->connector));
        else
                diagnosis_add(d, id, title, CHECK_OK, NULL, "The proc connector tells of forks and execs.");
}

static void check_cgroups(struct diagnosis *d, const struct feed_facts *feed) {
        static const char *const id = "cgroups", *const title = "Cgroups";

        if (!feed->cgroups)
                diagnosis_add(d, id, title, CHECK_FAIL,
                              "Mount one (mount -t cgroup2 none /sys/fs/cgroup), and check Collect.CgroupRoot=.",
                              "No cgroup hierarchy could be opened: %s.", strerror(-feed->cgroup_error));
        else if (strncmp(feed->cgroups, "v1", 2) == 0)
                diagnosis_add(d, id, title, CHECK_OK, "Boot with systemd.unified_cgroup_hierarchy=1 if you can.",
                              "The hierarchy in use is %s. Of a task that is ending v1 does not tell the cgroup: what is not "
                              "known while a task lives is unattributed.", feed->cgroups);
        else
                diagnosis_add(d, id, title, CHECK_OK, NULL, "The hierarchy in use is %s.", feed->cgroups);
}

void diagnose_feed(struct diagnosis *d, const struct host_facts *host, const struct feed_facts *feed) {
        check_taskstats(d, host, feed);
        check_capability(d, feed);
        check_namespaces(d, host, feed);
        check_exits(d, feed);
        check_buffer(d, feed);
        check_connector(d, feed);
        check_cgroups(d, feed);
}
