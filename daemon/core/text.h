/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Names from the kernel (cgroup paths, comm) are arbitrary bytes. text_display() makes what every
 * output shows: valid UTF-8 passes, every other byte and the bytes of control characters (C0, DEL,
 * C1) never reach a terminal or a scrape raw: they become \xNN.
 * An original backslash passes unchanged, so that systemd's own "\x2d" stays readable.
 * Returns a new string (free()), or NULL when memory is short.
 */
char *text_display(const char *bytes, size_t size);

/* Parses a span such as "1s", "1m", "5min", "1h 30min", "100ms", "250us", "0.5s" (a bare number is seconds), as systemd.time(7) does. Returns 0, -EINVAL, -ERANGE. */
int text_parse_span(const char *s, uint64_t *ret_nsec);

/* Parses a size with an optional suffix K, M, G (powers of 1024). Returns 0, -EINVAL, -ERANGE. */
int text_parse_size(const char *s, uint64_t *ret_bytes);

/* Writes a span for people with three to four significant digits: "812ns", "5.31us", "1.234ms", "2.5s", "2min 3s". */
#define TEXT_SPAN_SIZE 32
const char *text_format_span(char buf[static TEXT_SPAN_SIZE], uint64_t nsec);

/* Undoes systemd's unit-name escaping ("\x2d" to "-"); returns a new string, any bytes but NUL, or NULL. */
char *text_unescape_unit(const char *s);
