/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "printable.h"

/* Aligned columns. The first failure of an addition sticks and is what table_print() returns. */

struct column {
        const char *title;
        bool right;         /* numbers */
        unsigned sacrifice; /* when the terminal is too narrow, the highest goes first; 0: never */
        size_t min_width;   /* may be cut down to this; 0: never */
        enum cut cut;
};

struct table;

int table_new(const struct column *columns, size_t n_columns, struct table **ret);
struct table *table_free(struct table *table); /* returns NULL */

/* Cells are added row by row; the text is copied and made printable. */
void table_add(struct table *table, const char *text);
void table_add_format(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_add_count(struct table *table, bool known, uint64_t n);
void table_add_span(struct table *table, bool known, uint64_t nsec);

size_t table_rows(const struct table *table);

/* width: columns to fit into, 0 for no limit. Returns 0 or -ENOMEM; write errors stay with the stream. */
int table_print(struct table *table, FILE *stream, size_t width, bool header);
