/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/text.h"

#define NSEC_PER_MIN (60 * NSEC_PER_SEC)
#define NSEC_PER_HOUR (60 * NSEC_PER_MIN)
#define NSEC_PER_DAY (24 * NSEC_PER_HOUR)
#define NSEC_PER_WEEK (7 * NSEC_PER_DAY)

/* The locale must not decide what an output holds, so no isdigit() and friends. */
static bool is_digit(char c) {
        return c >= '0' && c <= '9';
}

static bool is_space(char c) {
        return c == ' ' || c == '\t';
}

static int hex_value(char c) {
        if (is_digit(c))
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

/* The length of the valid UTF-8 character at p, 0 if there is none. */
static size_t utf8_length(const unsigned char *p, size_t size, uint32_t *ret_codepoint) {
        static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
        uint32_t c = p[0];
        size_t length;

        if (c < 0x80) {
                *ret_codepoint = c;
                return 1;
        }

        if ((c & 0xe0) == 0xc0) {
                length = 2;
                c &= 0x1f;
        } else if ((c & 0xf0) == 0xe0) {
                length = 3;
                c &= 0x0f;
        } else if ((c & 0xf8) == 0xf0) {
                length = 4;
                c &= 0x07;
        } else
                return 0;

        if (length > size)
                return 0;

        for (size_t i = 1; i < length; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                c = c << 6 | (p[i] & 0x3f);
        }

        if (c < smallest[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
                return 0;

        *ret_codepoint = c;
        return length;
}

static bool is_control(uint32_t codepoint) {
        return codepoint < 0x20 || (codepoint >= 0x7f && codepoint <= 0x9f);
}

char *text_display(const char *bytes, size_t size) {
        static const char digits[] = "0123456789abcdef";
        const unsigned char *p = (const unsigned char *) bytes;

        if (size > (SIZE_MAX - 1) / 4)
                return NULL;

        char *text = malloc(size * 4 + 1);
        if (!text)
                return NULL;

        char *end = text;
        for (size_t i = 0; i < size;) {
                uint32_t codepoint = 0;
                size_t length = utf8_length(p + i, size - i, &codepoint);

                if (length > 0 && !is_control(codepoint)) {
                        end = mempcpy(end, p + i, length);
                        i += length;
                        continue;
                }

                /* One byte only after an invalid one: a valid character may begin right behind it. */
                for (size_t stop = i + (length > 0 ? length : 1); i < stop; i++) {
                        *end++ = '\\';
                        *end++ = 'x';
                        *end++ = digits[p[i] >> 4];
                        *end++ = digits[p[i] & 0x0f];
                }
        }
        *end++ = 0;

        /* Names are kept for as long as their cgroup is, so the spare room goes back. */
        char *trimmed = realloc(text, (size_t) (end - text));
        return trimmed ?: text;
}

static bool unit_nsec(const char *name, size_t length, uint64_t *ret_nsec) {
        static const struct {
                const char *name;
                uint64_t nsec;
        } units[] = {
                { "ns", 1 },
                { "nsec", 1 },
                { "us", NSEC_PER_USEC },
                { "usec", NSEC_PER_USEC },
                { "\xc2\xb5s", NSEC_PER_USEC }, /* MICRO SIGN */
                { "\xce\xbcs", NSEC_PER_USEC }, /* GREEK SMALL LETTER MU */
                { "ms", NSEC_PER_MSEC },
                { "msec", NSEC_PER_MSEC },
                { "s", NSEC_PER_SEC },
                { "sec", NSEC_PER_SEC },
                { "second", NSEC_PER_SEC },
                { "seconds", NSEC_PER_SEC },
                { "m", NSEC_PER_MIN },
                { "min", NSEC_PER_MIN },
                { "minute", NSEC_PER_MIN },
                { "minutes", NSEC_PER_MIN },
                { "h", NSEC_PER_HOUR },
                { "hr", NSEC_PER_HOUR },
                { "hour", NSEC_PER_HOUR },
                { "hours", NSEC_PER_HOUR },
                { "d", NSEC_PER_DAY },
                { "day", NSEC_PER_DAY },
                { "days", NSEC_PER_DAY },
                { "w", NSEC_PER_WEEK },
                { "week", NSEC_PER_WEEK },
                { "weeks", NSEC_PER_WEEK },
        };

        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
                if (strlen(units[i].name) == length && memcmp(units[i].name, name, length) == 0) {
                        *ret_nsec = units[i].nsec;
                        return true;
                }

        return false;
}

/* Reads digits and moves *s behind them. */
static int parse_digits(const char **s, uint64_t *ret) {
        uint64_t value = 0;

        if (!is_digit(**s))
                return -EINVAL;

        for (; is_digit(**s); (*s)++)
                if (__builtin_mul_overflow(value, 10, &value) ||
                    __builtin_add_overflow(value, (uint64_t) (**s - '0'), &value))
                        return -ERANGE;

        *ret = value;
        return 0;
}

/* Reads the unit after a number and moves *s behind it; a number without one is in seconds. */
static int parse_unit(const char **s, uint64_t *ret_nsec) {
        const char *number_end = *s, *name;

        while (is_space(**s))
                (*s)++;

        name = *s;
        while ((**s >= 'a' && **s <= 'z') || (**s >= 'A' && **s <= 'Z') || (unsigned char) **s >= 0x80)
                (*s)++;

        if (*s > name)
                return unit_nsec(name, (size_t) (*s - name), ret_nsec) ? 0 : -EINVAL;
        if (*s == number_end && **s)
                return -EINVAL; /* "1.2.3" */

        *ret_nsec = NSEC_PER_SEC;
        return 0;
}

/* One number with its unit, such as "1.5h". */
static int parse_span_part(const char **s, uint64_t *ret_nsec) {
        uint64_t whole = 0, unit, nsec;
        const char *fraction = NULL, *fraction_end = NULL;
        int r;

        if (**s == '-')
                return -ERANGE;
        if (**s != '.') {
                r = parse_digits(s, &whole);
                if (r < 0)
                        return r;
        }
        if (**s == '.') {
                fraction = ++(*s);
                while (is_digit(**s))
                        (*s)++;
                fraction_end = *s;
                if (fraction == fraction_end)
                        return -EINVAL;
        }

        r = parse_unit(s, &unit);
        if (r < 0)
                return r;

        if (__builtin_mul_overflow(whole, unit, &nsec))
                return -ERANGE;

        for (uint64_t place = unit / 10; fraction < fraction_end && place > 0; fraction++, place /= 10)
                if (__builtin_add_overflow(nsec, (uint64_t) (*fraction - '0') * place, &nsec))
                        return -ERANGE;

        *ret_nsec = nsec;
        return 0;
}

int text_parse_span(const char *s, uint64_t *ret_nsec) {
        uint64_t sum = 0;
        bool any = false;

        for (;;) {
                uint64_t part;

                while (is_space(*s))
                        s++;
                if (!*s)
                        break;

                int r = parse_span_part(&s, &part);
                if (r < 0)
                        return r;
                if (__builtin_add_overflow(sum, part, &sum))
                        return -ERANGE;
                any = true;
        }

        if (!any)
                return -EINVAL;

        *ret_nsec = sum;
        return 0;
}

int text_parse_size(const char *s, uint64_t *ret_bytes) {
        uint64_t bytes;
        unsigned shift = 0;

        while (is_space(*s))
                s++;
        if (*s == '-')
                return -ERANGE;

        int r = parse_digits(&s, &bytes);
        if (r < 0)
                return r;

        if (*s) {
                const char *suffix = strchr("KMG", *s);

                if (suffix) {
                        shift = 10U * (unsigned) (1 + suffix - strchr("KMG", 'K'));
                        s++;
                }
        }
        while (is_space(*s))
                s++;
        if (*s)
                return -EINVAL;
        if (bytes > UINT64_MAX >> shift)
                return -ERANGE;

        *ret_bytes = bytes << shift;
        return 0;
}

static uint64_t divide_rounded(uint64_t value, uint64_t by) {
        return value / by + (value % by >= by - by / 2);
}

/* Four significant digits without trailing zeros; false if rounding reached the next unit. */
static bool format_decimal(char buf[static TEXT_SPAN_SIZE], uint64_t nsec, uint64_t unit, uint64_t next,
                           const char *name) {
        uint64_t step = unit / 1000 ?: 1;

        while (divide_rounded(nsec, step) > 9999)
                step *= 10;

        uint64_t rounded = divide_rounded(nsec, step) * step;
        if (rounded >= next)
                return false;

        int n = snprintf(buf, TEXT_SPAN_SIZE, "%" PRIu64, rounded / unit);
        uint64_t rest = rounded % unit;

        if (rest > 0)
                buf[n++] = '.';
        while (rest > 0) {
                unit /= 10;
                buf[n++] = (char) ('0' + rest / unit);
                rest %= unit;
        }

        (void) snprintf(buf + n, (size_t) (TEXT_SPAN_SIZE - n), "%s", name);
        return true;
}

static bool format_two_units(char buf[static TEXT_SPAN_SIZE], uint64_t nsec, uint64_t small, uint64_t per_large,
                             uint64_t limit, const char *large_name, const char *small_name) {
        uint64_t n = divide_rounded(nsec, small);

        if (n >= limit)
                return false;

        if (n % per_large == 0)
                (void) snprintf(buf, TEXT_SPAN_SIZE, "%" PRIu64 "%s", n / per_large, large_name);
        else
                (void) snprintf(buf, TEXT_SPAN_SIZE, "%" PRIu64 "%s %" PRIu64 "%s",
                                n / per_large, large_name, n % per_large, small_name);
        return true;
}

const char *text_format_span(char buf[static TEXT_SPAN_SIZE], uint64_t nsec) {
        if (nsec == 0)
                return strcpy(buf, "0s");

        (void) (format_decimal(buf, nsec, 1, NSEC_PER_USEC, "ns") ||
                format_decimal(buf, nsec, NSEC_PER_USEC, NSEC_PER_MSEC, "us") ||
                format_decimal(buf, nsec, NSEC_PER_MSEC, NSEC_PER_SEC, "ms") ||
                format_decimal(buf, nsec, NSEC_PER_SEC, NSEC_PER_MIN, "s") ||
                format_two_units(buf, nsec, NSEC_PER_SEC, 60, 60 * 60, "min", "s") ||
                format_two_units(buf, nsec, NSEC_PER_MIN, 60, 24 * 60, "h", "min") ||
                format_two_units(buf, nsec, NSEC_PER_HOUR, 24, UINT64_MAX, "d", "h"));
        return buf;
}

char *text_unescape_unit(const char *s) {
        char *text = malloc(strlen(s) + 1);

        if (!text)
                return NULL;

        char *end = text;
        while (*s) {
                if (s[0] == '\\' && s[1] == 'x' && hex_value(s[2]) >= 0 && hex_value(s[3]) >= 0) {
                        int c = hex_value(s[2]) << 4 | hex_value(s[3]);

                        /* A NUL would cut the name off. */
                        if (c != 0) {
                                *end++ = (char) c;
                                s += 4;
                                continue;
                        }
                }
                *end++ = *s++;
        }
        *end = 0;
        return text;
}
