/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "delay-list.h"

static const struct column columns[] = {
        { "CGROUP", .min_width = 20, .cut = CUT_PATH },
        { "TASKS", .right = true, .sacrifice = 8 },
};

static void add_cells(struct table *table, struct json_object *row) {
        uint64_t tasks = 0;
        bool known, removed = false;

        table_add(table, json_get_text(row, "cgroup") ?: "-");
        json_get_bool(row, "removed", &removed);
        known = json_get_u64(row, "tasks", &tasks);
        if (removed)
                table_add(table, "removed");
        else
                table_add_count(table, known, tasks);
}

const struct list_class cgroup_list_class = {
        .method = "ListCgroups",
        .rows_key = "cgroups",
        .noun = "cgroup",
        .plural = "cgroups",
        .fields = cgroup_fields,
        .more_fields = cgroup_more_fields,
        .name_sort = "cgroup",
        .columns = columns,
        .n_columns = sizeof(columns) / sizeof(*columns),
        .add_cells = add_cells,
};

int verb_cgroups(const struct options *options, int argc, char *argv[]) {
        return list_verb(&cgroup_list_class, options);
}
