/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include "core/query.h"

#define SEPARATORS " \t,"

enum delay_kind query_default_sort_kind(delay_kind_set kinds) {
        if (kinds == 0 || delay_kind_in(kinds, DELAY_BLKIO))
                return DELAY_BLKIO;

        enum delay_kind kind = 0;
        while (kind + 1 < DELAY_KIND_COUNT && !delay_kind_in(kinds, kind))
                kind++;
        return kind;
}

static int kind_from_text(const char *s, size_t size) {
        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                const char *name = delay_kind_name((enum delay_kind) kind);

                if (strlen(name) == size && memcmp(name, s, size) == 0)
                        return kind;
        }

        return -EINVAL;
}

int query_parse_kinds(const char *s, delay_kind_set collected, struct query *query, const char **ret_error) {
        delay_kind_set kinds = 0;
        enum delay_kind first = 0;

        for (s = s ? s : ""; *(s += strspn(s, SEPARATORS)); ) {
                size_t size = strcspn(s, SEPARATORS);
                int kind = kind_from_text(s, size);

                if (kind < 0) {
                        *ret_error = "Unknown kind of delay. Kinds are cpu, blkio, swapin, freepages, thrashing, "
                                     "compact, wpcopy and irq.";
                        return -EINVAL;
                }
                if (!delay_kind_in(collected, (enum delay_kind) kind)) {
                        *ret_error = "This kind of delay is not collected. Add it to Collect.Kinds= in the "
                                     "configuration of delayd.";
                        return -EINVAL;
                }

                if (kinds == 0)
                        first = (enum delay_kind) kind;
                kinds |= DELAY_KIND_BIT(kind);
                s += size;
        }

        query->kinds = kinds ?: collected;
        query->sort_kind = kinds ? first : query_default_sort_kind(collected);
        return 0;
}

int query_parse_sort(const char *s, struct query *query, const char **ret_error) {
        static const struct {
                const char *name;
                enum query_sort sort;
        } orders[] = {
                { "", QUERY_SORT_TOTAL },
                { "total", QUERY_SORT_TOTAL },
                { "waits", QUERY_SORT_WAITS },
                { "mean", QUERY_SORT_MEAN },
                { "p50", QUERY_SORT_P50 },
                { "p90", QUERY_SORT_P90 },
                { "p99", QUERY_SORT_P99 },
                { "max", QUERY_SORT_MAX },
                { "cgroup", QUERY_SORT_NAME },
                { "comm", QUERY_SORT_NAME },
        };

        for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++)
                if (strcmp(s ?: "", orders[i].name) == 0) {
                        query->sort = orders[i].sort;
                        return 0;
                }

        *ret_error = "Unknown order. Cgroups and tasks can be sorted by total, waits, mean, p50, p90, p99 and max, "
                     "cgroups also by cgroup, tasks by comm.";
        return -EINVAL;
}
