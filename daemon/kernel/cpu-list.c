/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernel/cpu-list.h"

static int parse_cpu(const char **s, uint32_t *ret) {
        uint32_t value = 0;

        if (!isdigit((unsigned char) **s))
                return -EINVAL;

        for (; isdigit((unsigned char) **s); (*s)++) {
                value = value * 10 + (uint32_t) (**s - '0');
                if (value >= CPU_LIST_MAX)
                        return -ERANGE;
        }

        *ret = value;
        return 0;
}

static int append_range(struct cpu_list *list, uint32_t first, uint32_t last) {
        if (last < first || (list->n > 0 && first <= list->cpus[list->n - 1]))
                return -EINVAL;

        uint32_t *cpus = realloc(list->cpus, (list->n + last - first + 1) * sizeof(*cpus));
        if (!cpus)
                return -ENOMEM;

        list->cpus = cpus;
        for (uint32_t cpu = first; cpu <= last; cpu++)
                list->cpus[list->n++] = cpu;
        return 0;
}

int cpu_list_parse(const char *s, struct cpu_list *ret) {
        struct cpu_list list = {};

        for (;;) {
                uint32_t first = 0, last;

                int r = parse_cpu(&s, &first);
                last = first;
                if (r >= 0 && *s == '-') {
                        s++;
                        r = parse_cpu(&s, &last);
                }
                if (r >= 0)
                        r = append_range(&list, first, last);
                if (r < 0) {
                        cpu_list_free(&list);
                        return r;
                }

                if (*s != ',')
                        break;
                s++;
        }

        if (*s == '\n')
                s++;
        if (*s) {
                cpu_list_free(&list);
                return -EINVAL;
        }

        *ret = list;
        return 0;
}

void cpu_list_free(struct cpu_list *list) {
        free(list->cpus);
        *list = (struct cpu_list) {};
}

char *cpu_list_format(const struct cpu_list *list, size_t first, size_t end) {
        char *s = NULL;
        size_t size = 0;

        FILE *f = open_memstream(&s, &size);
        if (!f)
                return NULL;

        for (size_t i = first, last; i < end; i = last + 1) {
                for (last = i; last + 1 < end && list->cpus[last + 1] == list->cpus[last] + 1; last++)
                        ;

                fprintf(f, "%s%u", i > first ? "," : "", list->cpus[i]);
                if (last > i)
                        fprintf(f, "-%u", list->cpus[last]);
        }

        if (fclose(f) != 0) {
                free(s);
                return NULL;
        }

        return s;
}
