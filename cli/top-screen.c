/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "core/text.h"
#include "top-live.h"

#define LINES_ABOVE_TABLE 3 /* title, message, titles of columns */

delay_kind_set live_kinds(const struct live *live) {
        return live->kind == ALL_KINDS ? live->options->kinds : DELAY_KIND_BIT(live->kind);
}

size_t live_table_lines(void) {
        size_t rows = terminal_rows();

        return rows > LINES_ABOVE_TABLE ? rows - LINES_ABOVE_TABLE : 1;
}

static void print_kind_names(const struct live *live, FILE *stream) {
        delay_kind_set kinds = live_kinds(live) ?: live->kinds;
        const char *separator = "";

        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(kinds, (enum delay_kind) kind)) {
                        fprintf(stream, "%s%s", separator, delay_kind_name((enum delay_kind) kind));
                        separator = " ";
                }
        if (!separator[0])
                fputs("all kinds", stream);
}

/* One line, cut to the terminal. */
static void print_cut(FILE *stream, enum style style, const char *text) {
        _cleanup_free_ char *cut = NULL;

        cut = printable_cut(text, terminal_columns(), CUT_END);
        fprintf(stream, "%s%s%s\n", style_on(style), cut ?: "", style_off(style));
}

static int print_title(const struct live *live, uint64_t window_nsec, FILE *stream) {
        char span[TEXT_SPAN_SIZE], clock[16] = "";
        char *text = NULL;
        size_t size;
        FILE *title;
        struct tm tm;
        time_t now;

        title = open_memstream(&text, &size);
        if (!title)
                return -ENOMEM;

        now = time(NULL);
        if (localtime_r(&now, &tm))
                strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
        fprintf(title, "%s %s, ", clock, live->class->plural);
        print_kind_names(live, title);
        fprintf(title, ", last %s, by %s", text_format_span(span, window_nsec),
                sort_word(live->class, live->sort));
        fprintf(title, ", every %s  (q quit, h help)", text_format_span(span, live->delay_nsec));
        if (fclose(title) != 0) {
                free(text);
                return -ENOMEM;
        }

        print_cut(stream, STYLE_BOLD, text);
        free(text);
        return 0;
}

/* The second line: what the numbers below lack. */
static void print_message(const struct live *live, const struct delay_lines *lines, FILE *stream) {
        char text[160] = "";

        if (live->error) {
                _cleanup_free_ char *error = printable_text(live->error);

                print_cut(stream, STYLE_BAD, error ?: "");
                return;
        }

        if (lines->rejected_waits > 0)
                snprintf(text, sizeof(text), "%" PRIu64 " waits of impossible length rejected. ",
                         lines->rejected_waits);
        if (lines->unaccounted_tasks > 0)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%" PRIu64 " tasks not accounted.",
                         lines->unaccounted_tasks);
        print_cut(stream, STYLE_WARNING, text);
}

static int print_table(const struct live *live, const struct delay_lines *lines, FILE *stream) {
        struct table *table;
        int r;

        if (lines->n == 0) {
                /* While an answer is due, the last one may be about other kinds. */
                if (live->list && !live->call)
                        list_print_nothing(lines, stream);
                return 0;
        }

        r = list_table(lines, live->class, live_table_lines(), __builtin_popcount(lines->kinds) > 1, &table);
        if (r < 0)
                return r;

        r = table_print(table, stream, terminal_columns(), true);
        table_free(table);
        return r;
}

static void print_keys(FILE *stream) {
        fputs("\n"
              "  q          quit\n"
              "  space      ask again now\n"
              "  t          cgroups or tasks\n"
              "  k          next kind of delay, or all of them\n"
              "  w          next window: 1min, 5min, 15min, 1h\n"
              "  + -        slower, faster\n"
              "  s          next order, or directly:\n"
              "             T total  W waits  M mean  X max\n"
              "             5 p50  9 p90  0 p99  N name\n"
              "  h ?        this help\n\n"
              "Any key goes back.\n", stream);
}

static int print_frame(const struct live *live, FILE *stream) {
        _cleanup_(delay_lines_free) struct delay_lines lines = {};
        uint64_t window_nsec = live->window_nsec ?: DELAYD_WINDOW_DEFAULT_NSEC;
        int r;

        if (live->list) {
                r = list_lines(live->list, live->class, live_kinds(live), live->sort, live->options->all,
                               &lines);
                if (r < 0)
                        return r;
                if (live->request.window_nsec == live->window_nsec)
                        window_nsec = lines.window_nsec;
        }

        r = print_title(live, window_nsec, stream);
        if (r < 0)
                return r;
        if (live->help) {
                print_keys(stream);
                return 0;
        }

        print_message(live, &lines, stream);
        return print_table(live, &lines, stream);
}

int live_draw(const struct live *live) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        FILE *stream;
        int r;

        stream = open_memstream(&text, &size);
        if (!stream)
                return -ENOMEM;

        r = print_frame(live, stream);
        if (fclose(stream) != 0)
                r = -ENOMEM;
        if (r < 0)
                return r;

        return screen_draw(text);
}
