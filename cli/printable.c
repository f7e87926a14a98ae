/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "printable.h"
#include "terminal.h"

/* Characters that reorder the text around them: a name with one could pose as another name. */
static bool is_bidi_control(wchar_t c) {
        return c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
               (c >= 0x2066 && c <= 0x2069);
}

/* Length in bytes and columns of the next character; width is -1 for what must not be shown raw. */
static size_t next_character(const char *s, int *ret_width) {
        mbstate_t state = {};
        wchar_t c;
        size_t n;

        n = mbrtowc(&c, s, strlen(s), &state);
        if (n == 0 || n == (size_t) -1 || n == (size_t) -2) {
                *ret_width = -1;
                return 1;
        }

        *ret_width = is_bidi_control(c) ? -1 : wcwidth(c);
        return n;
}

char *printable_text(const char *s) {
        char *text, *p;

        text = p = malloc(strlen(s) * strlen("\\xNN") + 1);
        if (!text)
                return NULL;

        while (*s) {
                size_t n;
                int width;

                n = next_character(s, &width);
                if (width >= 0)
                        p = mempcpy(p, s, n);
                else
                        for (size_t i = 0; i < n; i++)
                                p += sprintf(p, "\\x%02x", (unsigned char) s[i]);
                s += n;
        }

        *p = 0;
        return text;
}

size_t printable_width(const char *s) {
        size_t columns = 0;

        while (*s) {
                int width;

                s += next_character(s, &width);
                columns += width > 0 ? (size_t) width : 0;
        }

        return columns;
}

/* Bytes of s that fit into this many columns, combining characters with their base. */
static size_t fitting_bytes(const char *s, size_t columns) {
        const char *p = s;

        while (*p) {
                size_t n;
                int width;

                n = next_character(p, &width);
                if (width > 0 && (size_t) width > columns)
                        break;
                columns -= width > 0 ? (size_t) width : 0;
                p += n;
        }

        return (size_t) (p - s);
}

/* The longest tail of whole path components that fits, or the last component if none does. */
static const char *path_tail(const char *s, size_t columns) {
        const char *tail = strrchr(s, '/');

        for (const char *p = s; (p = strchr(p, '/')); p++)
                if (printable_width(p) <= columns)
                        return p;

        return tail ?: s;
}

char *printable_cut(const char *s, size_t width, enum cut how) {
        const char *ellipsis = terminal_is_utf8() ? "…" : "...";
        size_t ellipsis_width = terminal_is_utf8() ? 1 : 3, n;
        const char *before = "", *after = "";
        char *text;

        if (printable_width(s) <= width)
                return strdup(s);
        if (width <= 2 * ellipsis_width + 1)
                return strndup(s, fitting_bytes(s, width));

        if (how == CUT_PATH) {
                const char *tail = path_tail(s, width - ellipsis_width);

                if (tail != s) {
                        s = tail;
                        before = ellipsis;
                        width -= ellipsis_width;
                }
        }

        if (printable_width(s) > width) {
                after = ellipsis;
                width -= ellipsis_width;
        }

        n = fitting_bytes(s, width);
        if (asprintf(&text, "%s%.*s%s", before, (int) n, s, after) < 0)
                return NULL;

        return text;
}
