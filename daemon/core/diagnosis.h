/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/accounting.h"
#include "core/health.h"
#include "core/status.h"

/*
 * What a doctor looks at: each thing that delayd needs, how it is here, and what to do about it. The daemon
 * and, where there is none, delayctl find the facts; the judgement is the same.
 */
enum check_result {
        CHECK_OK,
        CHECK_WARN,    /* some numbers are missing or less exact */
        CHECK_FAIL,    /* delayd cannot do its job */
        CHECK_UNKNOWN, /* could not be found out */
        CHECK_RESULT_COUNT,
};
const char *check_result_name(enum check_result result);

struct check {
        const char *id;    /* stable, lower case with dashes; static storage, as is the title */
        const char *title;
        enum check_result result;
        char *message;
        char *remedy;      /* NULL: there is nothing to do */
};

#define DIAGNOSIS_CHECKS_MAX 64

struct diagnosis {
        struct check checks[DIAGNOSIS_CHECKS_MAX];
        size_t n;
        bool failed; /* memory was short */
};

/* Adds a check; remedy may be NULL. What does not fit is left out, and sets failed. */
void diagnosis_add(
                struct diagnosis *d, const char *id, const char *title, enum check_result result, const char *remedy,
                const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Gives a check of the diagnosis another result and other texts. */
void diagnosis_replace(
                struct diagnosis *d, const struct check *check, enum check_result result, const char *message, const char *remedy);

const struct check *diagnosis_find(const struct diagnosis *d, const char *id);
const char *diagnosis_word(const struct diagnosis *d); /* "ok", "degraded" or "failing" */
void diagnosis_done(struct diagnosis *d);

/* What the running kernel offers to the process that asks. Texts have static storage or outlive the diagnosis. */
struct host_facts {
        const char *release;
        unsigned major, minor;        /* 0: not understood */
        int task_delayacct;           /* 1 on, 0 off, -ENOENT: no such sysctl, or another error */
        enum tristate boot_parameter; /* "delayacct" on the kernel's command line, "nodelayacct", or neither */
        enum tristate user_ns, pid_ns, net_ns, time_ns; /* on: the initial one */
        enum tristate delayed_dequeue;
        int pressure;                 /* 0, or the error of reading /proc/pressure/io */
        const char *hidepid;          /* mount option of /proc; "": none */
        bool sees_others;             /* /proc shows the tasks of other users */
        const char *clocksource;      /* "": not known */
};

/* What the kernel gave when it was asked for its records: by the daemon at its start, or by delayctl just now. */
struct feed_facts {
        bool tried;
        bool net_admin;
        int taskstats;               /* 0, or the error of asking for a task's counters */
        int exits;                   /* 0, or the error of asking for exit records, or of proving that they arrive */
        int connector;               /* 0, or the error of asking for fork and exec events */
        uint16_t version;
        bool exotic_layout;          /* that of Linux 6.14 */
        unsigned sockets;            /* for exit records */
        size_t buffer_asked, buffer_granted; /* of each; 0: not asked */
        const char *cgroups;         /* hierarchy in use; NULL: cgroup_error */
        int cgroup_error;
};

/* What the daemon has counted. */
struct daemon_facts {
        const struct status_facts *status;
        const struct accounting *accounting;
        const struct health *health;
        uint64_t events_lost;        /* of forks and execs */
        double cpu_budget;
        const char *state_directory; /* NULL: none */
        int state_error;             /* 0, or why it cannot be written to */
};

/* Adds the checks. feed and daemon may be NULL: then nothing is said of what only they know. */
void diagnose(
                struct diagnosis *d, const struct host_facts *host, const struct feed_facts *feed,
                const struct daemon_facts *daemon);

/* Parts of it, in core/diagnosis-*.c. */
void diagnose_feed(struct diagnosis *d, const struct host_facts *host, const struct feed_facts *feed);
void diagnose_host(struct diagnosis *d, const struct host_facts *host);
void diagnose_daemon(struct diagnosis *d, const struct host_facts *host, const struct daemon_facts *daemon); /* may be NULL */
