/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "output.h"
#include "printable.h"

static int output_error;

__attribute__((format(printf, 1, 0)))
static void complain(const char *format, va_list arguments) {
        _cleanup_free_ char *text = NULL, *printable = NULL;

        if (vasprintf(&text, format, arguments) < 0) {
                text = NULL;
                fputs("delayctl: Out of memory.\n", stderr);
                return;
        }

        printable = printable_text(text);
        fprintf(stderr, "delayctl: %s\n", printable ?: "Out of memory.");
}

int fail(const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        complain(format, arguments);
        va_end(arguments);

        return EXIT_FAILURE;
}

int fail_memory(void) {
        return fail("Out of memory.");
}

int fail_explained(char *text) {
        _cleanup_free_ char *owned = text;

        return fail("%s", owned ?: "Out of memory.");
}

int fail_usage(const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        complain(format, arguments);
        va_end(arguments);

        fputs("Try 'delayctl --help'.\n", stderr);
        return EXIT_FAILURE;
}

/*
 * JSON escapes what is below a blank, but terminals also obey DEL and C1 controls. Such bytes can
 * stand only inside of strings, so they are escaped in the finished text.
 */
static void put_json(const char *s) {
        for (; *s; s++) {
                unsigned char c = (unsigned char) s[0], next = (unsigned char) s[1];

                if (c == 0x7f)
                        fputs("\\u007f", stdout);
                else if (c == 0xc2 && next >= 0x80 && next <= 0x9f) {
                        printf("\\u00%02x", next);
                        s++;
                } else
                        putchar(c);
        }
}

int print_json(struct json_object *object, enum json_mode mode) {
        const char *text;

        text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_NOSLASHESCAPE |
                        (mode == JSON_PRETTY ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED : 0));
        if (!text)
                return -ENOMEM;

        put_json(text);
        putchar('\n');
        return 0;
}

int flush_output(void) {
        if (fflush(stdout) != 0 && output_error == 0)
                output_error = errno;
        if (output_error == 0 && ferror(stdout))
                output_error = EIO; /* of an earlier write whose errno is gone */

        return -output_error;
}

int finish_output(int status) {
        (void) flush_output();
        if (fclose(stdout) != 0 && output_error == 0)
                output_error = errno;
        if (output_error != 0)
                return fail("Cannot write to standard output: %s.", strerror(output_error));

        return status;
}
