/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>

/*
 * Text that is safe to show and whose width on a terminal is known. Names of cgroups and commands
 * are chosen by anybody, and the other side of the bus need not be the real daemon.
 */

/*
 * A new text with control characters, bidi controls and what is not valid in the locale as \xNN, or
 * NULL when memory is short.
 */
char *printable_text(const char *s);

/* Terminal columns that a printable text takes. */
size_t printable_width(const char *s);

enum cut {
        CUT_END,  /* keeps the beginning */
        CUT_PATH, /* keeps the last components, for the first ones say least */
};

/* A new text cut to this many columns, with an ellipsis in the place of what was cut off, or NULL. */
char *printable_cut(const char *s, size_t width, enum cut how);
