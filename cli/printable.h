/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>

/*
 * Text that is safe to show and whose width on a terminal is known. Names of cgroups and commands
 * are chosen by anybody, and the other side of the bus need not be the real daemon.
 */

/* The text with control characters, bidi controls and what is not valid in the locale as \xNN. New, or NULL. */
char *printable_text(const char *s);

/* Terminal columns that a printable text takes. */
size_t printable_width(const char *s);

enum cut {
        CUT_END,  /* keeps the beginning */
        CUT_PATH, /* keeps the last components, for the first ones say least */
};

/* The printable text cut to at most this many columns, with an ellipsis in the place of what was cut. New, or NULL. */
char *printable_cut(const char *s, size_t width, enum cut how);
