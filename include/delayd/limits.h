/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

#define NSEC_PER_USEC UINT64_C(1000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC UINT64_C(1000000000)

/* The windows that the daemon keeps; a request for any other span is answered with the nearest. */
#define DELAYD_WINDOWS_NSEC                                                                       \
        { 60 * NSEC_PER_SEC, 300 * NSEC_PER_SEC, 900 * NSEC_PER_SEC, 3600 * NSEC_PER_SEC }
#define DELAYD_WINDOW_COUNT 4
#define DELAYD_WINDOW_DEFAULT_NSEC (300 * NSEC_PER_SEC)

/* Names that stand in the place of a cgroup path; a path always begins with a slash. */
#define DELAYD_CGROUP_UNATTRIBUTED "(unattributed)" /* waits whose task's cgroup is not known */
#define DELAYD_CGROUP_OVERFLOW "(overflow)"         /* cgroups beyond Collect.MaxCgroups= */
#define DELAYD_CGROUP_OTHER "(other)"               /* /metrics: cgroups beyond Metrics.MaxCgroups= */

#define DELAYD_DEFAULT_PORT 10066
