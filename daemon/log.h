/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <syslog.h>

/* Messages for the operator: to the journal when stderr is connected to it, else to stderr. Core never logs. */
void log_open(void);

/* Whether messages arrive. When they go to the journal, and only then, there may be nobody to take them. */
bool log_is_heard(void);

#define log_full(priority, ...) log_message(priority, 0, __VA_ARGS__)
#define log_error(...) log_full(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_full(LOG_WARNING, __VA_ARGS__)
#define log_notice(...) log_full(LOG_NOTICE, __VA_ARGS__)
#define log_info(...) log_full(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_full(LOG_DEBUG, __VA_ARGS__)

/* Logs with the text of an errno (either sign) and returns it negative: "return log_error_errno(r, …)". */
#define log_error_errno(error, ...) log_message(LOG_ERR, error, __VA_ARGS__)
#define log_warning_errno(error, ...) log_message(LOG_WARNING, error, __VA_ARGS__)

int log_message(int priority, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
