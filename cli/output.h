/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <stdio.h>

#include "delayctl.h"

/* Prints "delayctl: TEXT" on standard error and returns EXIT_FAILURE. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int fail_memory(void);

/* The same for a text of bus_explain() and others like it, which it frees. NULL means that memory was short. */
int fail_explained(char *text);

/* The same and "Try 'delayctl --help'." */
int fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints the object and a newline. Returns 0 or -ENOMEM. */
int print_json(struct json_object *object, enum json_mode mode);

/* Writes out what has been printed. Returns 0 or a negative errno, which finish_output() will report. */
int flush_output(void);

/* Makes sure that everything has been written; the exit status of a verb is passed through this. */
int finish_output(int status);
