/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <grp.h>
#include <unistd.h>

#include "delay-list.h"

static const struct column columns[] = {
        { "TID", .right = true },
        { "TGID", .right = true, .sacrifice = 10 },
        { "COMM", .min_width = 15 },
        { "CGROUP", .min_width = 20, .cut = CUT_PATH },
        { "ALIVE", .sacrifice = 6 },
};

static void add_cells(struct table *table, struct json_object *row) {
        uint64_t tid = 0, tgid = 0;
        bool known, alive;

        known = json_get_u64(row, "tid", &tid);
        table_add_count(table, known, tid);
        known = json_get_u64(row, "tgid", &tgid);
        table_add_count(table, known, tgid);
        table_add(table, json_get_text(row, "comm") ?: "-");
        table_add(table, json_get_text(row, "cgroup") ?: "-");
        known = json_get_bool(row, "alive", &alive);
        table_add(table, !known ? "-" : alive ? "yes" : "no");
}

static bool in_group(const char *name) {
        const struct group *group;
        gid_t groups[1024];
        int n;

        group = getgrnam(name);
        if (!group)
                return false;
        if (getegid() == group->gr_gid)
                return true;

        n = getgroups(sizeof(groups) / sizeof(*groups), groups);
        for (int i = 0; i < n; i++)
                if (groups[i] == group->gr_gid)
                        return true;

        return false;
}

/* The daemon decides by the same rule; it does not say that it left something out. */
static const char *restriction(void) {
        if (geteuid() == 0 || in_group("delayd"))
                return NULL;

        return "Only your own tasks are shown; root and the group delayd see all.";
}

const struct list_class task_list_class = {
        .method = "ListTasks",
        .rows_key = "tasks",
        .noun = "task",
        .plural = "tasks",
        .fields = task_fields,
        .more_fields = task_more_fields,
        .name_sort = "comm",
        .columns = columns,
        .n_columns = sizeof(columns) / sizeof(*columns),
        .add_cells = add_cells,
        .restriction = restriction,
};

int verb_tasks(const struct options *options, int argc, char *argv[]) {
        return list_verb(&task_list_class, options);
}
