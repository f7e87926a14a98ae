/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Sets of CPUs in the kernel's list format, as in "0-3,8" (Documentation/admin-guide/kernel-parameters.rst). */
struct cpu_list {
        uint32_t *cpus; /* ascending */
        size_t n;
};

#define CPU_LIST_MAX 65536 /* more than any kernel is built for */

/* Returns 0; -EINVAL for anything but a list in ascending order; -ERANGE; -ENOMEM. */
int cpu_list_parse(const char *s, struct cpu_list *ret);
void cpu_list_free(struct cpu_list *list);

/* The CPUs from first up to (not including) end, as a new string, or NULL when memory is short. */
char *cpu_list_format(const struct cpu_list *list, size_t first, size_t end);
