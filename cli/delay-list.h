/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <systemd/sd-bus.h>

#include "delayctl.h"
#include "fields.h"
#include "table.h"

/* What the lists of cgroups and of tasks have in common: a row with numbers for each kind. */

struct list_class {
        const char *method;
        const char *rows_key;         /* of the JSON form */
        const char *noun, *plural;
        const struct field *fields, *more_fields; /* before and behind those of the kinds */
        const char *name_sort;        /* the word for SORT_NAME */
        const struct column *columns; /* those before the numbers */
        size_t n_columns;
        void (*add_cells)(struct table *table, struct json_object *row);
        const char *(*restriction)(void); /* says why not everything is shown, or NULL; may be NULL itself */
};

extern const struct list_class cgroup_list_class;
extern const struct list_class task_list_class;

struct list_request {
        const struct list_class *class;
        uint64_t window_nsec;
        delay_kind_set kinds;
        enum delay_kind first_kind;
        enum sort sort;
        uint64_t limit;
        bool recursive; /* of cgroups: with their subtrees */
};

/* The number that a sort looks at; NULL for names. */
const char *sort_key(enum sort sort);
const char *sort_word(const struct list_class *class, enum sort sort);

/* Returns 0 or a negative errno. */
int list_new_call(sd_bus *bus, const struct list_request *request, sd_bus_message **ret);

/* The JSON form of a reply, complete. */
int list_read_reply(sd_bus_message *reply, const struct list_request *request, struct json_object **ret);

/* One line of the table: the waits of one kind of one row. */
struct delay_line {
        struct json_object *row;
        struct json_object *delays;
        enum delay_kind kind;
        size_t rank; /* its place in the reply */
};

struct delay_lines {
        struct delay_line *lines;
        size_t n;
        delay_kind_set kinds;
        uint64_t window_nsec;
        size_t n_rows;           /* in the reply */
        size_t n_rows_waited;
        uint64_t rejected_waits;
        uint64_t unaccounted_tasks;
};

/*
 * Lines of the wanted kinds (0: of all in the reply) that waited, or all of them, in the wanted order.
 * Returns 0 or -ENOMEM.
 */
int list_lines(
                struct json_object *list,
                const struct list_class *class,
                delay_kind_set kinds,
                enum sort sort,
                bool all,
                struct delay_lines *ret);
void delay_lines_free(struct delay_lines *lines);

/* A table of the first lines (limit 0: of all). with_kind: a column says which kind a line is of. */
int list_table(
                const struct delay_lines *lines,
                const struct list_class *class,
                uint64_t limit,
                bool with_kind,
                struct table **ret);

uint64_t list_window(struct json_object *list);

/* "Window: the last 5min." */
void list_print_window(struct json_object *list, const struct options *options);

/* "No task waited for blkio or swapin in the last 5min." */
void list_print_nothing(const struct delay_lines *lines, FILE *stream);

/* The whole of the verbs cgroups and tasks. */
int list_verb(const struct list_class *class, const struct options *options);

/* Asks and prints once. print_title is called before a table, but not before an error; NULL for none. */
int list_show(
                sd_bus *bus,
                const struct list_class *class,
                const struct options *options,
                void (*print_title)(void));
