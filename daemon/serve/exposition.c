/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/exposition.h"

void exposition_family(struct buffer *b, const char *name, const char *type, const char *help) {
        buffer_add_string(b, "# HELP ");
        buffer_add_string(b, name);
        buffer_add_char(b, ' ');
        buffer_add_string(b, help);
        buffer_add_string(b, "\n# TYPE ");
        buffer_add_string(b, name);
        buffer_add_char(b, ' ');
        buffer_add_string(b, type);
        buffer_add_char(b, '\n');
}

void exposition_label_value(struct buffer *b, const char *value) {
        while (*value) {
                size_t plain = strcspn(value, "\\\"\n");

                buffer_add(b, value, plain);
                value += plain;

                if (*value) {
                        buffer_add_char(b, '\\');
                        buffer_add_char(b, (char) (*value == '\n' ? 'n' : *value));
                        value++;
                }
        }
}

void exposition_u64(struct buffer *b, const char *name, uint64_t value) {
        buffer_add_string(b, name);
        buffer_add_char(b, ' ');
        buffer_u64(b, value);
        buffer_add_char(b, '\n');
}

void exposition_seconds(struct buffer *b, const char *name, uint64_t nsec) {
        buffer_add_string(b, name);
        buffer_add_char(b, ' ');
        buffer_seconds(b, nsec);
        buffer_add_char(b, '\n');
}

void exposition_labelled(struct buffer *b, const char *name, const char *label, const char *value, uint64_t sample) {
        buffer_add_string(b, name);
        buffer_add_char(b, '{');
        buffer_add_string(b, label);
        buffer_add_string(b, "=\"");
        buffer_add_string(b, value);
        buffer_add_string(b, "\"} ");
        buffer_u64(b, sample);
        buffer_add_char(b, '\n');
}

const char *exposition_bound(char buf[static EXPOSITION_BOUND_SIZE], double bound) {
        if (isinf(bound))
                return bound > 0 ? "+Inf" : "-Inf";

        /* 17 digits identify every double. The daemon never calls setlocale(), so the point is a point. */
        for (int digits = 1; digits <= 17; digits++) {
                snprintf(buf, EXPOSITION_BOUND_SIZE, "%.*g", digits, bound);
                if (strtod(buf, NULL) == bound) /* NOLINT: equality is the question */
                        break;
        }

        if (!strpbrk(buf, ".e"))
                strcat(buf, ".0");
        return buf;
}
