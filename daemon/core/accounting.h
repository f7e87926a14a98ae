/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "core/cgroup-table.h"
#include "core/delay-evidence.h"
#include "core/sample.h"
#include "core/schedule.h"
#include "core/witness.h"
#include "core/task-history.h"
#include "core/task-table.h"

/*
 * The engine: events of tasks and cgroups go in, in the order in which they happened as far as that
 * is known; waits come out, each in its cgroup's stats. Pure: no I/O and no clock; the same events
 * at the same times give the same numbers.
 *
 * now_nsec is CLOCK_BOOTTIME throughout (a window that spans a suspend covers it); start times of
 * tasks are CLOCK_MONOTONIC, as the kernel's.
 */

/* How the cgroup of a task became known; the order is that of trust. */
enum attribution_source {
        ATTRIBUTION_CACHE,  /* known while the task lived: sweep, fork or exec event, migration notice */
        ATTRIBUTION_PIDFD,  /* asked at exit through a pidfd, and not what was known */
        ATTRIBUTION_PROCFS, /* the same, asked in /proc */
        ATTRIBUTION_PARENT, /* taken from the thread group or the parent, and in doubt */
        ATTRIBUTION_NONE,   /* unattributed */
        ATTRIBUTION_SOURCE_COUNT,
};
const char *attribution_source_name(enum attribution_source source);

/* Why waits were refused, or a sample was. */
enum reject_reason {
        REJECT_IMPOSSIBLE,   /* longer than the task lived or can have waited: the kernel's fault of 6.12 */
        REJECT_OVERFLOW,     /* the kernel's mark: total 0 with a count */
        REJECT_BACKWARDS,    /* counters went down without a reason */
        REJECT_NO_BASELINE,  /* exit of a task that is older than the daemon and was never sampled */
        REJECT_MALFORMED,    /* records that could not be decoded (counted by the caller) */
        REJECT_REASON_COUNT,
};
const char *reject_reason_name(enum reject_reason reason);

/*
 * Asks the kernel for the cgroup of a task, one that lives or one whose exit record has come. Returns 0
 * and sets *ret_key and *ret_source, or a negative errno.
 */
typedef int (*accounting_lookup_fn)(
                uint32_t tid,
                uint32_t tgid,
                bool ended,
                uint64_t *ret_key,
                enum attribution_source *ret_source,
                void *userdata);

/* How far to trust what is known of where tasks are. */
enum accounting_doubt {
        DOUBT_NONE,
        DOUBT_INHERITED, /* some tasks were moved: it may have been one of those that inherited their cgroup */
        DOUBT_ALL,       /* some task was moved, and it is not known which */
        DOUBT_LOST,      /* events were lost: as DOUBT_ALL, and what is inherited now stays in doubt until it is seen */
};

/* A task was forked; see accounting_fork(). */
struct fork_event {
        uint32_t tid, tgid;
        uint32_t parent_tid, parent_tgid;
        uint64_t time_nsec; /* CLOCK_MONOTONIC */
};

/*
 * All that goes into the accounting, one event for each call below that changes it. Fed to another
 * accounting in the same order, with the same configuration, they give the same numbers. Recordings
 * hold the types as numbers: new ones go to the end.
 */
enum accounting_event_type {
        ACCOUNTING_CGROUP_ADDED,
        ACCOUNTING_CGROUP_REMOVED,
        ACCOUNTING_FORK,
        ACCOUNTING_EXEC,
        ACCOUNTING_PLACE,
        ACCOUNTING_SWEEP_BEGIN, /* now_nsec is 0 */
        ACCOUNTING_SWEEP_END,
        ACCOUNTING_LIVE_SAMPLE,
        ACCOUNTING_EXIT_SAMPLE,
        ACCOUNTING_VANISHED,
        ACCOUNTING_AGE,
        ACCOUNTING_LOOKED_UP,   /* the answer of accounting_lookup_fn: follows the event that asked, as do events that came up while it was asked */
        ACCOUNTING_PRESSURE,    /* the answer of accounting_pressure_fn, in the same way */
        ACCOUNTING_DOUBT,       /* now_nsec is 0; tid 0: of all tasks */
        ACCOUNTING_EVENT_COUNT,
};

struct accounting_event {
        enum accounting_event_type type;
        uint64_t now_nsec;
        union {
                struct {
                        uint64_t key, parent_key;
                        const char *path;
                } cgroup;
                struct fork_event fork;
                struct {
                        uint32_t tid, tgid;
                        uint64_t cgroup_key;
                } place;
                struct {
                        uint32_t tid;
                        int result;
                        uint64_t cgroup_key;
                        enum attribution_source source;
                } lookup;
                struct {
                        uint64_t key;
                        int result;
                        uint32_t n_cpus;
                        uint64_t stall_nsec;
                } pressure;
                struct {
                        uint32_t tid;
                        enum accounting_doubt doubt;
                } doubt;
                const struct task_sample *sample;
                uint32_t tid; /* EXEC, VANISHED */
        };
};

/* Is told of each event before it takes effect; must not call into the accounting. */
typedef void (*accounting_observe_fn)(const struct accounting_event *event, void *userdata);

/*
 * Reads the "some" total of io.pressure of a cgroup, or of the host (key CGROUP_KEY_UNATTRIBUTED). Returns 0
 * or a negative errno.
 */
typedef int (*accounting_pressure_fn)(uint64_t key, uint64_t *ret_stall_nsec, void *userdata);

struct accounting_config {
        delay_kind_set kinds;
        size_t max_cgroups;
        size_t max_exported;
        uint64_t retention_nsec;
        bool (*may_export)(const char *path, void *userdata); /* see struct cgroup_table */
        void *may_export_userdata;
        uint64_t poll_interval_nsec;
        uint64_t started_nsec;   /* CLOCK_MONOTONIC: tasks that started before have waits that are not counted */
        accounting_lookup_fn lookup; /* may be NULL */
        accounting_pressure_fn pressure; /* a witness for long blkio waits; NULL where the kernel can be believed */
        unsigned n_cpus;
        bool rough_clock; /* the kernel's delays are only right to a tick or two: see plausibility.h */
        void *userdata; /* of lookup and pressure */
};

struct accounting {
        struct accounting_config config;
        unsigned n_kinds;
        uint8_t kind_slot[DELAY_KIND_COUNT]; /* place of a kind in task.baseline */

        struct cgroup_table cgroups;
        struct task_table tasks;
        struct schedule schedule;
        uint16_t generation;
        enum accounting_doubt doubt;

        struct witness witness;
        struct history_list gone; /* histories of tasks that are gone */

        struct delay_evidence evidence; /* of when delay accounting was on, CLOCK_MONOTONIC */

        uint64_t exits;                                 /* exit records accounted */
        uint64_t attributed[ATTRIBUTION_SOURCE_COUNT];  /* of these exits */
        uint64_t accepted_samples;
        uint64_t rejected_samples[REJECT_REASON_COUNT];

        accounting_observe_fn observe; /* NULL: nobody */
        void *observe_userdata;
};

/* Asks accounting_pressure_fn. Returns 0 or a negative errno. */
int accounting_ask_pressure(struct accounting *a, uint64_t now_nsec, uint64_t key, uint64_t *ret_stall_nsec);

int accounting_new(const struct accounting_config *config, struct accounting **ret);
struct accounting *accounting_free(struct accounting *a);

/*
 * Takes over from another configuration what can change while it runs: max_cgroups, max_exported, retention_nsec and
 * poll_interval_nsec. Cgroups that there are stay what they are. Returns 0, or -ENOMEM: then nothing has changed.
 */
int accounting_reconfigure(struct accounting *a, uint64_t now_nsec, const struct accounting_config *config);

/* From now on observe() is told of each event; NULL ends that. */
void accounting_observe(struct accounting *a, accounting_observe_fn observe, void *userdata);

/* A cgroup exists, or is gone: cgroup_table_add() and cgroup_table_remove(). */
int accounting_cgroup_added(
                struct accounting *a, uint64_t now_nsec, uint64_t key, uint64_t parent_key, const char *path);
void accounting_cgroup_removed(struct accounting *a, uint64_t now_nsec, uint64_t key);

/*
 * A task was forked. The child starts in its parent's cgroup; for a thread the parent is its own group.
 * Returns 0; 1 if the parent's cgroup is not known, so that the child's should be looked up; 2 if
 * the child will be asked for at its exit, to know the parent's habits; -ENOMEM.
 */
int accounting_fork(struct accounting *a, uint64_t now_nsec, const struct fork_event *event);

/*
 * A process replaced its image. If a thread other than the leader did, it has taken the leader's TID and
 * start time, but kept its own counters (de_thread() in fs/exec.c). All exit records that the kernel sent
 * before the event must have been handed over.
 */
void accounting_exec(struct accounting *a, uint64_t now_nsec, uint32_t tgid);

/* False if the process is known to have one thread only, so that its exec changes nothing here. */
bool accounting_exec_ends_threads(const struct accounting *a, uint32_t tgid);

/*
 * True if accounting_place() would move the task to another cgroup: it should be sampled first, so that
 * its waits so far stay where they happened.
 */
bool accounting_would_move(const struct accounting *a, uint64_t monotonic_nsec, uint32_t tid, uint64_t cgroup_key);

/* True if the task is known to be in this cgroup already. */
bool accounting_is_in(const struct accounting *a, uint32_t tid, uint64_t cgroup_key);

/* A task is (now) in this cgroup. Adds it if it is not known. tgid 0: not known. */
int accounting_place(struct accounting *a, uint64_t now_nsec, uint32_t tid, uint32_t tgid, uint64_t cgroup_key);

/*
 * Something may have been missed: what is known is looked at again at the exits that follow, and is from
 * the weaker source ATTRIBUTION_PARENT if the kernel cannot answer any more. Until the next call.
 */
void accounting_doubt(struct accounting *a, enum accounting_doubt doubt);

/* The same for one task, until it is placed. */
void accounting_doubt_task(struct accounting *a, uint32_t tid);

/*
 * Sweeps: between begin and end, accounting_place() is called for every task that exists. The end
 * forgets those that two sweeps in a row did not see.
 */
void accounting_sweep_begin(struct accounting *a);
void accounting_sweep_end(struct accounting *a, uint64_t now_nsec);

/* A record of a live task, and the last one of a task that ended. */
int accounting_live_sample(struct accounting *a, uint64_t now_nsec, const struct task_sample *sample);
int accounting_exit_sample(struct accounting *a, uint64_t now_nsec, const struct task_sample *sample);

/* The kernel does not know the TID (any more). */
void accounting_vanished(struct accounting *a, uint64_t now_nsec, uint32_t tid);

/*
 * Tasks are not sampled right after their fork. The next one that was forked before is handed out once, as
 * long as there is one, and the caller says what has become of it: it lives and is to be sampled (0 or
 * -ENOMEM), or it has ended, and all events and records that the kernel sent until then have been told.
 */
struct task *accounting_next_young(struct accounting *a, uint64_t before_nsec);
int accounting_grown_up(struct accounting *a, uint64_t now_nsec, struct task *task);
void accounting_ended(struct accounting *a, uint64_t now_nsec, struct task *task); /* frees the task */

/* Housekeeping, once a second or so: retention, windows, histories of tasks that are gone. */
void accounting_age(struct accounting *a, uint64_t now_nsec);
