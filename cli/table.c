/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "core/text.h"
#include "table.h"
#include "terminal.h"

struct layout {
        size_t width;
        bool hidden;
};

struct table {
        struct column *columns;
        struct layout *layouts;
        size_t n_columns;
        char **cells;
        size_t n_cells;
        size_t allocated;
        bool failed;
};

int table_new(const struct column *columns, size_t n_columns, struct table **ret) {
        struct table *table;

        table = calloc(1, sizeof(*table));
        if (!table)
                return -ENOMEM;

        table->columns = calloc(n_columns, sizeof(*columns));
        table->layouts = calloc(n_columns, sizeof(*table->layouts));
        if (!table->columns || !table->layouts) {
                table_free(table);
                return -ENOMEM;
        }

        memcpy(table->columns, columns, n_columns * sizeof(*columns));
        table->n_columns = n_columns;
        *ret = table;
        return 0;
}

struct table *table_free(struct table *table) {
        if (!table)
                return NULL;

        for (size_t i = 0; i < table->n_cells; i++)
                free(table->cells[i]);
        free(table->cells);
        free(table->layouts);
        free(table->columns);
        free(table);
        return NULL;
}

void table_add(struct table *table, const char *text) {
        char *cell;

        if (table->n_cells == table->allocated) {
                size_t allocated = table->allocated ? 2 * table->allocated : 64;
                char **cells;

                cells = reallocarray(table->cells, allocated, sizeof(*cells));
                if (!cells) {
                        table->failed = true;
                        return;
                }
                table->cells = cells;
                table->allocated = allocated;
        }

        cell = printable_text(text);
        if (!cell) {
                table->failed = true;
                return;
        }
        table->cells[table->n_cells++] = cell;
}

void table_add_format(struct table *table, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        va_list arguments;
        int r;

        va_start(arguments, format);
        r = vasprintf(&text, format, arguments);
        va_end(arguments);
        if (r < 0) {
                text = NULL;
                table->failed = true;
                return;
        }

        table_add(table, text);
}

void table_add_count(struct table *table, bool known, uint64_t n) {
        if (known)
                table_add_format(table, "%" PRIu64, n);
        else
                table_add(table, "-");
}

void table_add_span(struct table *table, bool known, uint64_t nsec) {
        char buf[TEXT_SPAN_SIZE];

        table_add(table, known ? text_format_span(buf, nsec) : "-");
}

size_t table_rows(const struct table *table) {
        return table->n_cells / table->n_columns;
}

static void measure(struct table *table, bool header) {
        assert(table->n_columns > 0);

        for (size_t i = 0; i < table->n_columns; i++)
                table->layouts[i] = (struct layout) {
                        .width = header ? printable_width(table->columns[i].title) : 0,
                };

        for (size_t i = 0; i < table->n_cells; i++) {
                struct layout *layout = &table->layouts[i % table->n_columns];
                size_t width = printable_width(table->cells[i]);

                if (width > layout->width)
                        layout->width = width;
        }
}

static size_t narrowest(const struct column *column, const struct layout *layout) {
        return column->min_width > 0 && column->min_width < layout->width ? column->min_width : layout->width;
}

/* Columns that the visible part takes, with one blank between two. */
static size_t total_width(const struct table *table, bool at_narrowest) {
        size_t total = 0;

        for (size_t i = 0; i < table->n_columns; i++) {
                const struct layout *layout = &table->layouts[i];

                if (layout->hidden)
                        continue;
                if (total > 0)
                        total++;
                total += at_narrowest ? narrowest(&table->columns[i], layout) : layout->width;
        }

        return total;
}

static bool hide_one(struct table *table) {
        size_t victim = table->n_columns;
        unsigned most = 0;

        for (size_t i = 0; i < table->n_columns; i++)
                if (!table->layouts[i].hidden && table->columns[i].sacrifice > most) {
                        most = table->columns[i].sacrifice;
                        victim = i;
                }

        if (most == 0)
                return false;
        table->layouts[victim].hidden = true;
        return true;
}

/* Takes one column off the widest that may be cut. */
static bool shrink_one(struct table *table, bool below_minimum) {
        struct layout *widest = NULL;

        for (size_t i = 0; i < table->n_columns; i++) {
                struct layout *layout = &table->layouts[i];
                size_t least = below_minimum ? 1 : table->columns[i].min_width;

                if (layout->hidden || table->columns[i].min_width == 0 || layout->width <= least)
                        continue;
                if (!widest || layout->width > widest->width)
                        widest = layout;
        }

        if (!widest)
                return false;
        widest->width--;
        return true;
}

static void fit(struct table *table, size_t width) {
        while (total_width(table, true) > width)
                if (!hide_one(table))
                        break;
        while (total_width(table, false) > width)
                if (!shrink_one(table, false) && !shrink_one(table, true))
                        break;
}

static bool is_last_visible(const struct table *table, size_t column) {
        while (++column < table->n_columns)
                if (!table->layouts[column].hidden)
                        return false;

        return true;
}

static int print_cell(const struct table *table, size_t i, const char *text, FILE *stream) {
        const struct column *column = &table->columns[i];
        const struct layout *layout = &table->layouts[i];
        _cleanup_free_ char *cut = NULL;
        size_t width;
        int padding;

        cut = printable_cut(text, layout->width, column->cut);
        if (!cut)
                return -ENOMEM;

        width = printable_width(cut);
        padding = width < layout->width ? (int) (layout->width - width) : 0;
        if (column->right)
                fprintf(stream, "%*s%s", padding, "", cut);
        else if (is_last_visible(table, i))
                fputs(cut, stream);
        else
                fprintf(stream, "%s%*s", cut, padding, "");

        return 0;
}

/* Prints one line; cells is NULL for the titles. */
static int print_line(const struct table *table, char **cells, FILE *stream) {
        bool first = true;
        int r;

        for (size_t i = 0; i < table->n_columns; i++) {
                const char *text = cells ? cells[i] : table->columns[i].title;

                if (table->layouts[i].hidden)
                        continue;
                if (!text[0] && is_last_visible(table, i))
                        break; /* no blanks at the end of a line */

                if (!first)
                        fputc(' ', stream);
                first = false;

                r = print_cell(table, i, text, stream);
                if (r < 0)
                        return r;
        }

        return 0;
}

int table_print(struct table *table, FILE *stream, size_t width, bool header) {
        int r;

        if (table->failed)
                return -ENOMEM;

        measure(table, header);
        if (width > 0)
                fit(table, width);

        if (header) {
                fputs(style_on(STYLE_HEADER), stream);
                r = print_line(table, NULL, stream);
                if (r < 0)
                        return r;
                fprintf(stream, "%s\n", style_off(STYLE_HEADER));
        }

        for (size_t row = 0; row < table_rows(table); row++) {
                r = print_line(table, table->cells + row * table->n_columns, stream);
                if (r < 0)
                        return r;
                fputc('\n', stream);
        }

        return 0;
}
