/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bus-client.h"
#include "cgroup-tree.h"
#include "core/text.h"
#include "delay-list.h"
#include "output.h"

static const struct column delay_columns[] = {
        { "WAITS", .right = true },
        { "TOTAL", .right = true, .sacrifice = 1 },
        { "MEAN", .right = true, .sacrifice = 5 },
        { "P50", .right = true, .sacrifice = 7 },
        { "P90", .right = true, .sacrifice = 4 },
        { "P99", .right = true, .sacrifice = 3 },
        { "MAX", .right = true, .sacrifice = 2 },
        { "EXACT", .right = true, .sacrifice = 9 },
};

static const struct column kind_column = { "KIND" };

#define DELAY_COLUMN_COUNT (sizeof(delay_columns) / sizeof(*delay_columns))
#define COLUMNS_MAX 16

/* What each order looks at. */
static const char *const sort_keys[SORT_COUNT] = {
        [SORT_TOTAL] = "total_nsec",
        [SORT_WAITS] = "waits",
        [SORT_MEAN] = "mean_nsec",
        [SORT_P50] = "p50_nsec",
        [SORT_P90] = "p90_nsec",
        [SORT_P99] = "p99_nsec",
        [SORT_MAX] = "max_nsec",
};

const char *sort_key(enum sort sort) {
        return sort_keys[sort];
}

const char *sort_word(const struct list_class *class, enum sort sort) {
        static const char *const words[SORT_COUNT] = {
                [SORT_TOTAL] = "total",
                [SORT_WAITS] = "waits",
                [SORT_MEAN] = "mean",
                [SORT_P50] = "p50",
                [SORT_P90] = "p90",
                [SORT_P99] = "p99",
                [SORT_MAX] = "max",
        };

        return words[sort] ?: class->name_sort;
}

#define KINDS_TEXT_SIZE 128 /* the names of all kinds take less than half of it */

/* The first kind goes first, for the daemon sorts by it. */
static void kinds_text(delay_kind_set kinds, enum delay_kind first, char buf[static KINDS_TEXT_SIZE]) {
        char *p = buf;

        *p = 0;
        if (kinds == 0)
                return;

        p = stpcpy(p, delay_kind_name(first));
        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (kind != (int) first && delay_kind_in(kinds, (enum delay_kind) kind))
                        p = stpcpy(stpcpy(p, " "), delay_kind_name((enum delay_kind) kind));
}

int list_new_call(sd_bus *bus, const struct list_request *request, sd_bus_message **ret) {
        _cleanup_message_ sd_bus_message *message = NULL;
        char kinds[KINDS_TEXT_SIZE];
        int r;

        r = bus_new_call(bus, request->class->method, &message);
        if (r < 0)
                return r;

        kinds_text(request->kinds, request->first_kind, kinds);
        r = sd_bus_message_append(message, "tsst", request->window_nsec, kinds,
                                  sort_word(request->class, request->sort), request->limit);
        if (r >= 0 && request->recursive)
                r = sd_bus_message_append(message, "a{sv}", 1, "recursive", "b", true);
        else if (r >= 0)
                r = sd_bus_message_append(message, "a{sv}", 0);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(message);
        return 0;
}

static delay_kind_set kinds_in_rows(struct json_object *rows) {
        delay_kind_set kinds = 0;

        for (size_t i = 0; i < json_object_array_length(rows); i++)
                kinds |= fields_kinds_in(json_object_array_get_idx(rows, i));

        return kinds;
}

static int complete_rows(
                struct json_object *rows, const struct list_request *request, struct json_object **ret) {

        struct field fields[FIELDS_WITH_KINDS_MAX], subtree[FIELDS_WITH_KINDS_MAX], more[FIELDS_WITH_KINDS_MAX];
        delay_kind_set kinds = request->kinds | kinds_in_rows(rows);
        _cleanup_json_ struct json_object *complete = NULL;
        int r;

        complete = json_object_new_array();
        if (!complete)
                return -ENOMEM;

        fields_with_kinds(subtree_fields, kinds, no_fields, subtree);
        fields_with_kinds(request->class->more_fields, 0,
                          request->recursive ? (const struct field[]) { { "subtree", subtree, false }, {} } : no_fields, more);
        fields_with_kinds(request->class->fields, kinds, more, fields);
        for (size_t i = 0; i < json_object_array_length(rows); i++) {
                struct json_object *row;

                r = fields_complete(json_object_array_get_idx(rows, i), fields, &row);
                if (r < 0)
                        return r;
                if (json_object_array_add(complete, row) < 0) {
                        json_object_put(row);
                        return -ENOMEM;
                }
        }

        *ret = TAKE_PTR(complete);
        return 0;
}

int list_read_reply(sd_bus_message *reply, const struct list_request *request, struct json_object **ret) {
        _cleanup_json_ struct json_object *rows = NULL, *complete = NULL, *list = NULL, *window = NULL;
        uint64_t window_nsec;
        int r;

        r = sd_bus_message_has_signature(reply, "taa{sv}");
        if (r <= 0)
                return r < 0 ? r : -EBADMSG;
        r = sd_bus_message_read_basic(reply, SD_BUS_TYPE_UINT64, &window_nsec);
        if (r < 0)
                return r;
        r = bus_read_json(reply, &rows);
        if (r < 0)
                return r;
        r = complete_rows(rows, request, &complete);
        if (r < 0)
                return r;

        list = json_object_new_object();
        window = json_object_new_uint64(window_nsec);
        if (!list || !window || json_object_object_add(list, "window_nsec", window) < 0)
                return -ENOMEM;
        window = NULL;
        if (json_object_object_add(list, request->class->rows_key, complete) < 0)
                return -ENOMEM;
        complete = NULL;

        *ret = TAKE_PTR(list);
        return 0;
}

/* Largest first; names keep the order of the reply. */
static int compare_lines(const void *a, const void *b, void *userdata) {
        const struct delay_line *x = a, *y = b;
        const char *key = sort_keys[*(const enum sort *) userdata];
        uint64_t p = 0, q = 0;

        if (key) {
                json_get_u64(x->delays, key, &p);
                json_get_u64(y->delays, key, &q);
                if (p != q)
                        return p > q ? -1 : 1;
        }
        if (x->rank != y->rank)
                return x->rank < y->rank ? -1 : 1;

        return (int) x->kind - (int) y->kind;
}

/* Adds the lines of one row. */
static void add_row(struct delay_lines *lines, struct json_object *row, size_t rank, bool all) {
        uint64_t unaccounted;
        bool waited = false;

        if (json_get_u64(row, "unaccounted_tasks", &unaccounted))
                lines->unaccounted_tasks += unaccounted;

        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++) {
                struct json_object *delays;
                uint64_t waits = 0, rejected = 0;

                if (!delay_kind_in(lines->kinds, (enum delay_kind) kind))
                        continue;

                delays = json_get_object(row, delay_kind_name((enum delay_kind) kind));
                json_get_u64(delays, "waits", &waits);
                json_get_u64(delays, "rejected_waits", &rejected);
                lines->rejected_waits += rejected;
                waited = waited || waits > 0;
                if (waits > 0 || all)
                        lines->lines[lines->n++] = (struct delay_line) {
                                .row = row,
                                .delays = delays,
                                .kind = (enum delay_kind) kind,
                                .rank = rank,
                        };
        }

        lines->n_rows_waited += waited;
}

int list_lines(
                struct json_object *list,
                const struct list_class *class,
                delay_kind_set kinds,
                enum sort sort,
                bool all,
                struct delay_lines *ret) {

        struct json_object *rows = json_get_list(list, class->rows_key);
        struct delay_lines lines = { .kinds = kinds };

        lines.n_rows = json_object_array_length(rows);
        if (lines.kinds == 0)
                lines.kinds = kinds_in_rows(rows);
        json_get_u64(list, "window_nsec", &lines.window_nsec);

        lines.lines = calloc(lines.n_rows * DELAY_KIND_COUNT + 1, sizeof(*lines.lines));
        if (!lines.lines)
                return -ENOMEM;

        for (size_t i = 0; i < lines.n_rows; i++)
                add_row(&lines, json_object_array_get_idx(rows, i), i, all);

        qsort_r(lines.lines, lines.n, sizeof(*lines.lines), compare_lines, &sort);
        *ret = lines;
        return 0;
}

void delay_lines_free(struct delay_lines *lines) {
        free(lines->lines);
        lines->lines = NULL;
}

static void add_span(struct table *table, struct json_object *delays, const char *key) {
        uint64_t nsec = 0;
        bool known;

        known = json_get_u64(delays, key, &nsec);
        table_add_span(table, known, nsec);
}

/* Rounded down: only what is wholly exact may say 100%. */
static void add_share(struct table *table, struct json_object *delays) {
        uint64_t waits, exact;

        if (json_get_u64(delays, "waits", &waits) && waits > 0 && json_get_u64(delays, "exact_waits", &exact) &&
            exact <= waits)
                table_add_format(table, "%.0f%%", __builtin_floor((double) exact * 100 / (double) waits));
        else
                table_add(table, "-");
}

static void add_delays(struct table *table, struct json_object *delays) {
        uint64_t waits = 0;
        bool known;

        known = json_get_u64(delays, "waits", &waits);
        table_add_count(table, known, waits);
        add_span(table, delays, "total_nsec");
        add_span(table, delays, "mean_nsec");
        add_span(table, delays, "p50_nsec");
        add_span(table, delays, "p90_nsec");
        add_span(table, delays, "p99_nsec");
        add_span(table, delays, "max_nsec");
        add_share(table, delays);
}

int list_table(
                const struct delay_lines *lines,
                const struct list_class *class,
                uint64_t limit,
                bool with_kind,
                struct table **ret) {

        struct column columns[COLUMNS_MAX];
        struct table *table;
        size_t n = 0;
        int r;

        for (size_t i = 0; i < class->n_columns; i++)
                columns[n++] = class->columns[i];
        if (with_kind)
                columns[n++] = kind_column;
        for (size_t i = 0; i < DELAY_COLUMN_COUNT; i++)
                columns[n++] = delay_columns[i];

        r = table_new(columns, n, &table);
        if (r < 0)
                return r;

        for (size_t i = 0; i < lines->n && (limit == 0 || i < limit); i++) {
                class->add_cells(table, lines->lines[i].row);
                if (with_kind)
                        table_add(table, delay_kind_name(lines->lines[i].kind));
                add_delays(table, lines->lines[i].delays);
        }

        *ret = table;
        return 0;
}

static void print_kinds(delay_kind_set kinds, FILE *stream) {
        unsigned left = (unsigned) __builtin_popcount(kinds);

        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(kinds, (enum delay_kind) kind)) {
                        left--;
                        fprintf(stream, "%s%s", delay_kind_name((enum delay_kind) kind),
                                left > 1 ? ", " : left == 1 ? " or " : "");
                }
}

void list_print_nothing(const struct delay_lines *lines, FILE *stream) {
        char span[TEXT_SPAN_SIZE];

        fputs("No task waited", stream);
        if (lines->kinds != 0) {
                fputs(" for ", stream);
                print_kinds(lines->kinds, stream);
        }
        fprintf(stream, " in the last %s.\n", text_format_span(span, lines->window_nsec));
}

uint64_t list_window(struct json_object *list) {
        uint64_t window_nsec = 0;

        json_get_u64(list, "window_nsec", &window_nsec);
        return window_nsec;
}

void list_print_window(struct json_object *list, const struct options *options) {
        uint64_t window_nsec = list_window(list);
        char used[TEXT_SPAN_SIZE], wanted[TEXT_SPAN_SIZE];

        printf("Window: the last %s", text_format_span(used, window_nsec));
        if (options->window_nsec != 0 && options->window_nsec != window_nsec)
                printf(" (the nearest that is kept to %s)", text_format_span(wanted, options->window_nsec));
        fputs(".", stdout);
}

/* What makes the numbers above less than the whole truth. */
static void print_reservations(const struct delay_lines *lines, const struct list_class *class) {
        if (lines->rejected_waits > 0)
                printf("%s%" PRIu64 " %s of impossible length %s rejected and %s in no number here.%s\n",
                       style_on(STYLE_WARNING), lines->rejected_waits,
                       lines->rejected_waits == 1 ? "wait" : "waits",
                       lines->rejected_waits == 1 ? "was" : "were", lines->rejected_waits == 1 ? "is" : "are",
                       style_off(STYLE_WARNING));
        if (lines->unaccounted_tasks > 0)
                printf("%s%" PRIu64 " %s not accounted: %s began while kernel.task_delayacct was 0.%s\n",
                       style_on(STYLE_WARNING), lines->unaccounted_tasks,
                       lines->unaccounted_tasks == 1 ? "task is" : "tasks are",
                       lines->unaccounted_tasks == 1 ? "it" : "they", style_off(STYLE_WARNING));
        if (class->restriction && class->restriction())
                printf("%s\n", class->restriction());
}

static void print_footer(
                struct json_object *list,
                const struct delay_lines *lines,
                const struct list_class *class,
                const struct options *options,
                size_t n_shown) {

        size_t n_quiet = lines->n_rows - lines->n_rows_waited;

        putchar('\n');
        list_print_window(list, options);
        if (n_shown < lines->n)
                printf(" The first %zu of %zu lines.", n_shown, lines->n);
        if (!options->all && n_quiet > 0)
                printf(" %zu %s without waits %s left out (--all shows %s).", n_quiet,
                       n_quiet == 1 ? class->noun : class->plural, n_quiet == 1 ? "is" : "are",
                       n_quiet == 1 ? "it" : "them");
        putchar('\n');
        print_reservations(lines, class);
}

static int print_list(struct json_object *list, const struct list_class *class, const struct options *options) {
        _cleanup_(delay_lines_free) struct delay_lines lines = {};
        struct table *table;
        size_t n_shown;
        int r;

        r = list_lines(list, class, options->kinds, options->sort, options->all, &lines);
        if (r < 0)
                return r;

        if (lines.n == 0) {
                list_print_nothing(&lines, stdout);
                if (options->legend)
                        print_reservations(&lines, class);
                return 0;
        }

        r = list_table(&lines, class, options->limit, __builtin_popcount(lines.kinds) > 1, &table);
        if (r < 0)
                return r;

        n_shown = table_rows(table);
        r = table_print(table, stdout, terminal_columns(), options->legend);
        table_free(table);
        if (r < 0)
                return r;

        if (options->legend)
                print_footer(list, &lines, class, options, n_shown);
        return 0;
}

/* Lines of a table are sorted across kinds and its footer counts, so that all rows are needed for it. */
static uint64_t limit_for_daemon(const struct options *options) {
        return options->json == JSON_OFF ? 0 : options->limit;
}

static int print_text(struct json_object *list, const struct list_class *class, const struct options *options) {
        return options->tree ? print_cgroup_tree(list, options) : print_list(list, class, options);
}

int list_show(
                sd_bus *bus,
                const struct list_class *class,
                const struct options *options,
                void (*print_title)(void)) {

        const struct list_request request = {
                .class = class,
                .window_nsec = options->window_nsec,
                .kinds = options->kinds,
                .first_kind = options->first_kind,
                .sort = options->sort,
                .limit = limit_for_daemon(options),
                .recursive = options->tree,
        };
        _cleanup_message_ sd_bus_message *message = NULL, *reply = NULL;
        _cleanup_json_ struct json_object *list = NULL;
        char *error;
        int r;

        r = list_new_call(bus, &request, &message);
        if (r < 0)
                return fail_explained(bus_explain(NULL, r));
        r = bus_call(bus, message, &reply, &error);
        if (r < 0)
                return fail_explained(error);
        r = list_read_reply(reply, &request, &list);
        if (r < 0)
                return fail_explained(bus_explain_reply(r));

        if (options->json != JSON_OFF)
                r = print_json(list, options->json);
        else {
                if (print_title)
                        print_title();
                r = print_text(list, class, options);
        }
        return r < 0 ? fail_memory() : EXIT_SUCCESS;
}

int list_verb(const struct list_class *class, const struct options *options) {
        _cleanup_bus_ sd_bus *bus = NULL;
        char *error;
        int r;

        if (options->sort == SORT_NAME && strcmp(options->name_sort, class->name_sort) != 0)
                return fail_usage("%s are sorted by total, waits, mean, p50, p90, p99, max or %s, not by '%s'.",
                                  class->plural, class->name_sort, options->name_sort);

        r = bus_open(&bus, &error);
        if (r < 0)
                return fail_explained(error);

        return list_show(bus, class, options, NULL);
}
