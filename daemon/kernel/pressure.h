/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

#include "kernel/cgroup-tree.h"

/*
 * The "some" totals of PSI (Documentation/accounting/psi.rst), in nanoseconds. Return 0, or a negative errno:
 * -ENOENT or -EOPNOTSUPP where the kernel has no PSI, or it is off for the cgroup.
 */
int pressure_read_host_io(uint64_t *ret_stall_nsec);
int pressure_read_cgroup_io(struct cgroup_tree *t, uint64_t id, uint64_t *ret_stall_nsec); /* v2 only */
int pressure_read_cgroup_memory(struct cgroup_tree *t, uint64_t id, uint64_t *ret_stall_nsec);

/* CPU time of a cgroup with all below it; every v2 cgroup has it, whichever controllers are on. Returns as above. */
int pressure_read_cgroup_cpu(struct cgroup_tree *t, uint64_t id, uint64_t *ret_usage_nsec);
