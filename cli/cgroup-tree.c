/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup-tree.h"
#include "cleanup.h"
#include "delay-list.h"
#include "fields.h"
#include "table.h"

#define INDENT "  "

struct node {
        struct json_object *row;
        const char *path;
        struct node *parent, *first_child, *last_child, *next;
        unsigned depth;
        uint64_t value; /* what siblings are sorted by */
        bool waited;    /* somebody in the subtree did */
};

struct tree {
        struct node *nodes;
        struct node **sorted; /* parents before their children */
        size_t n;
        delay_kind_set kinds;
};

static void tree_done(struct tree *tree) {
        free(tree->nodes);
        free(tree->sorted);
}

/* The slash comes before all other characters, so that what is below a path follows it at once. */
static int compare_paths(const void *a, const void *b) {
        const struct node *const *x = a, *const *y = b;
        const unsigned char *p = (const unsigned char *) (*x)->path, *q = (const unsigned char *) (*y)->path;

        for (; *p && *p == *q; p++, q++)
                ;
        if (*p == *q)
                return *x < *y ? -1 : 1; /* one path twice: in the order of the reply */
        if (!*p || !*q)
                return *p ? 1 : -1;
        if (*p == '/' || *q == '/')
                return *p == '/' ? -1 : 1;
        return *p < *q ? -1 : 1;
}

static bool is_below(const char *path, const char *ancestor) {
        size_t n = strlen(ancestor);

        if (path[0] != '/' || ancestor[0] != '/')
                return false; /* "(unattributed)" and its like */
        if (n == 1)
                return path[1] != 0;
        return strncmp(path, ancestor, n) == 0 && path[n] == '/';
}

static void add_child(struct node *parent, struct node *child) {
        child->parent = parent;
        child->depth = parent->depth + 1;
        if (parent->last_child)
                parent->last_child->next = child;
        else
                parent->first_child = child;
        parent->last_child = child;
}

static struct json_object *subtree_delays(const struct node *node, enum delay_kind kind) {
        return json_get_object(json_get_object(node->row, "subtree"), delay_kind_name(kind));
}

static bool kind_waited(const struct node *node, enum delay_kind kind) {
        uint64_t waits = 0;

        json_get_u64(subtree_delays(node, kind), "waits", &waits);
        return waits > 0;
}

static void judge(struct tree *tree, struct node *node, const char *sort_key, enum delay_kind first) {
        if (sort_key)
                json_get_u64(subtree_delays(node, first), sort_key, &node->value);

        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(tree->kinds, (enum delay_kind) kind) && kind_waited(node, (enum delay_kind) kind))
                        node->waited = true;
}

static delay_kind_set kinds_in(struct json_object *rows) {
        delay_kind_set kinds = 0;

        for (size_t i = 0; i < json_object_array_length(rows); i++)
                kinds |= fields_kinds_in(json_object_array_get_idx(rows, i));
        return kinds;
}

static int tree_make(struct json_object *list, const struct options *options, struct tree *ret) {
        struct json_object *rows = json_get_list(list, cgroup_list_class.rows_key);
        _cleanup_(tree_done) struct tree tree = { .kinds = options->kinds };
        size_t n = json_object_array_length(rows);
        struct node *last = NULL;

        tree.nodes = calloc(n ?: 1, sizeof(*tree.nodes));
        tree.sorted = calloc(n ?: 1, sizeof(*tree.sorted));
        if (!tree.nodes || !tree.sorted)
                return -ENOMEM;

        if (tree.kinds == 0)
                tree.kinds = kinds_in(rows);
        enum delay_kind first = options->kinds ? options->first_kind
                : delay_kind_in(tree.kinds, DELAY_BLKIO) || tree.kinds == 0 ? DELAY_BLKIO
                : (enum delay_kind) __builtin_ctz(tree.kinds);

        for (size_t i = 0; i < n; i++) {
                struct node *node = tree.nodes + tree.n;

                node->row = json_object_array_get_idx(rows, i);
                node->path = json_get_text(node->row, "cgroup");
                if (node->path)
                        tree.sorted[tree.n++] = node;
        }

        for (size_t i = 0; i < tree.n; i++)
                judge(&tree, tree.nodes + i, sort_key(options->sort), first);
        qsort(tree.sorted, tree.n, sizeof(*tree.sorted), compare_paths);

        for (size_t i = 0; i < tree.n; i++) {
                struct node *node = tree.sorted[i];

                while (last && !is_below(node->path, last->path))
                        last = last->parent;
                if (last)
                        add_child(last, node);
                last = node;
        }

        *ret = tree;
        tree = (struct tree) {};
        return 0;
}

/* The largest first; equal ones in the order of their names, which they are in already. */
static struct node *sort_siblings(struct node *first) {
        struct node *sorted = NULL;

        while (first) {
                struct node *node = first, **p = &sorted;

                first = first->next;
                while (*p && (*p)->value >= node->value)
                        p = &(*p)->next;
                node->next = *p;
                *p = node;
        }

        return sorted;
}

static const char *name_of(const struct node *node) {
        return node->parent ? node->path + strlen(node->parent->path) + (node->parent->path[1] != 0) : node->path;
}

static void add_name(struct table *table, const struct node *node) {
        table_add_format(table, "%*s%s", (int) (node->depth * strlen(INDENT)), "", name_of(node));
}

static void add_numbers(struct table *table, struct json_object *delays, bool with_quantiles) {
        static const char *const keys[] = { "total_nsec", "p50_nsec", "p99_nsec", "max_nsec" };
        uint64_t n = 0;
        bool known;

        known = json_get_u64(delays, "waits", &n);
        table_add_count(table, known, n);
        for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
                if (!with_quantiles && i > 0)
                        return;
                known = json_get_u64(delays, keys[i], &n);
                table_add_span(table, known, n);
        }
}

static void add_line(struct table *table, const struct node *node, enum delay_kind kind, bool with_kind) {
        bool removed = false, known;
        uint64_t tasks = 0;

        add_name(table, node);
        json_get_bool(node->row, "removed", &removed);
        known = json_get_u64(json_get_object(node->row, "subtree"), "tasks", &tasks);
        if (removed)
                table_add(table, "removed");
        else
                table_add_count(table, known, tasks);
        if (with_kind)
                table_add(table, delay_kind_name(kind));
        add_numbers(table, json_get_object(node->row, delay_kind_name(kind)), false);
        add_numbers(table, subtree_delays(node, kind), true);
}

/* Returns the number of cgroups that were left out. */
static size_t add_nodes(struct table *table, const struct tree *tree, struct node *first, const struct options *options) {
        bool with_kind = __builtin_popcount(tree->kinds) > 1;
        size_t left_out = 0;

        for (struct node *node = sort_siblings(first); node; node = node->next) {
                bool shown = node->waited || options->all;

                left_out += !shown;
                for (int kind = 0; kind < DELAY_KIND_COUNT && shown; kind++)
                        if (delay_kind_in(tree->kinds, (enum delay_kind) kind)
                            && (options->all || kind_waited(node, (enum delay_kind) kind))
                            && (options->limit == 0 || table_rows(table) < options->limit))
                                add_line(table, node, (enum delay_kind) kind, with_kind);
                left_out += add_nodes(table, tree, node->first_child, options);
        }

        return left_out;
}

static int make_table(bool with_kind, struct table **ret) {
        static const struct column all[] = {
                { "CGROUP", .min_width = 20 },
                { "TASKS", .right = true, .sacrifice = 8 },
                { "KIND" },
                { "OWN WAITS", .right = true },
                { "OWN TOTAL", .right = true, .sacrifice = 2 },
                { "WAITS", .right = true },
                { "TOTAL", .right = true, .sacrifice = 1 },
                { "P50", .right = true, .sacrifice = 7 },
                { "P99", .right = true, .sacrifice = 4 },
                { "MAX", .right = true, .sacrifice = 3 },
        };
        struct column columns[sizeof(all) / sizeof(*all)];
        size_t n = 0;

        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
                if (with_kind || i != 2)
                        columns[n++] = all[i];
        return table_new(columns, n, ret);
}

int print_cgroup_tree(struct json_object *list, const struct options *options) {
        _cleanup_(tree_done) struct tree tree = {};
        struct node *roots = NULL, **end = &roots;
        struct table *table;
        size_t left_out;

        int r = tree_make(list, options, &tree);
        if (r < 0)
                return r;

        for (size_t i = 0; i < tree.n; i++)
                if (!tree.sorted[i]->parent) {
                        *end = tree.sorted[i];
                        end = &tree.sorted[i]->next;
                }

        r = make_table(__builtin_popcount(tree.kinds) > 1, &table);
        if (r < 0)
                return r;

        left_out = add_nodes(table, &tree, roots, options);
        if (table_rows(table) == 0)
                list_print_nothing(&(struct delay_lines) { .kinds = tree.kinds, .window_nsec = list_window(list) }, stdout);
        else {
                r = table_print(table, stdout, terminal_columns(), options->legend);
                if (r >= 0 && options->legend) {
                        putchar('\n');
                        list_print_window(list, options);
                        printf(" \"OWN\" is the cgroup alone, everything else it and all below it.");
                        if (left_out > 0)
                                printf(" %zu %s without waits %s left out (--all shows %s).", left_out,
                                       left_out == 1 ? "cgroup" : "cgroups", left_out == 1 ? "is" : "are",
                                       left_out == 1 ? "it" : "them");
                        putchar('\n');
                }
        }

        table_free(table);
        return r;
}
