/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What standard output is and can do. */

enum color_mode {
        COLOR_AUTO,
        COLOR_ALWAYS,
        COLOR_NEVER,
};

enum style {
        STYLE_PLAIN,
        STYLE_HEADER,
        STYLE_BOLD,
        STYLE_GOOD,
        STYLE_WARNING,
        STYLE_BAD,
};

/* Sets the locale and decides on colours; once, before anything is printed. */
void terminal_setup(enum color_mode mode);

bool terminal_is_utf8(void);
bool terminal_is_tty(void);
bool terminal_is_dumb(void);

/* Columns of the terminal, or 0 (no limit) when standard output is none. */
size_t terminal_columns(void);
size_t terminal_rows(void);

/* Escape sequences, or "" without colours. */
const char *style_on(enum style style);
const char *style_off(enum style style);

/*
 * The whole terminal for a live view: alternate screen, no cursor, keys one by one without echo.
 * Entering again after the terminal has been used by others is fine. Returns 0 or a negative errno.
 */
int screen_enter(void);
void screen_leave(void);

/* Replaces what the screen shows by these lines, as many as fit. Returns 0 or a negative errno. */
int screen_draw(const char *text);
