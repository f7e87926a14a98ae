/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#define DELAYD_BUS_NAME "org.delayd1"
#define DELAYD_BUS_PATH "/org/delayd1"
#define DELAYD_BUS_MANAGER_INTERFACE "org.delayd1.Manager"
#define DELAYD_BUS_CGROUP_INTERFACE "org.delayd1.Cgroup"

/* Errors that the methods of org.delayd1.Manager return. */
#define DELAYD_BUS_ERROR_NO_SUCH_CGROUP "org.delayd1.Error.NoSuchCgroup"
#define DELAYD_BUS_ERROR_AMBIGUOUS_NAME "org.delayd1.Error.AmbiguousName"

/*
 * Methods (all read-only). Every integer is a "t"; a key that is absent means "unknown", where the
 * JSON forms show null. Keys are those of the JSON forms, in the same order. window_nsec = 0 asks
 * for the default window; the reply names the window that was used. options is for later extension.
 *
 *   ListCgroups(t window_nsec, s kinds, s sort, t limit, a{sv} options) -> (t window_nsec, aa{sv} cgroups)
 *           kinds: space-separated names, "" for all that are collected; the first one is sorted by.
 *           sort: "total" (also ""), "waits", "mean", "p50", "p90", "p99", "max" or "cgroup".
 *           limit: 0 for all. Each kind is a nested a{sv} under its name.
 *           options: "recursive" b: each cgroup has a nested a{sv} "subtree" as well, with tasks,
 *           unaccounted_tasks and the kinds of the cgroup and all below it, and is sorted by that. What
 *           stands beside "subtree" is always the cgroup's alone.
 *   GetHistogram(s cgroup, s kind, t window_nsec, a{sv} options) -> (a{sv} histogram)
 *           options: "recursive" b: of the cgroup and all below it; the reply then says so, "recursive" b.
 *           cgroup: a path or a unit name; "buckets" is an aa{sv} of le_nsec (absent in the last) and waits.
 *   ListTasks(t window_nsec, s kinds, s sort, t limit, a{sv} options) -> (t window_nsec, aa{sv} tasks)
 *           Root and the group delayd see every task, others their own.
 *   GetStatus() -> (a{sv} status)
 *   Diagnose() -> (aa{sv} checks)
 *           What delayd needs and how it is here: id, title, result ("ok", "warn", "fail" or "unknown"), message, and
 *           remedy where there is one.
 */
