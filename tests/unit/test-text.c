/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/text.h"

#define DISPLAY_CASE(in, out) { in, sizeof(in) - 1, out }

static void display(void **state) {
        static const struct {
                const char *bytes;
                size_t size;
                const char *text;
        } cases[] = {
                DISPLAY_CASE("", ""),
                DISPLAY_CASE("/system.slice/a b.service", "/system.slice/a b.service"),
                DISPLAY_CASE("a\\x2db\\", "a\\x2db\\"),
                DISPLAY_CASE("gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", "gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"),
                DISPLAY_CASE("\xe2\x80\xa8", "\xe2\x80\xa8"),
                DISPLAY_CASE("\x1b[2J\n\t\r", "\\x1b[2J\\x0a\\x09\\x0d"),
                DISPLAY_CASE("a\0b\x1f \x7f", "a\\x00b\\x1f \\x7f"),
                DISPLAY_CASE("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f\xc2\xa0"),
                DISPLAY_CASE("\x80\xbf\xfe\xff", "\\x80\\xbf\\xfe\\xff"),
                /* overlong forms of NUL, slash, U+07FF and U+FFFF, and the shortest forms beside them */
                DISPLAY_CASE("\xc0\x80\xc1\xaf", "\\xc0\\x80\\xc1\\xaf"),
                DISPLAY_CASE("\xe0\x9f\xbf\xe0\xa0\x80", "\\xe0\\x9f\\xbf\xe0\xa0\x80"),
                DISPLAY_CASE("\xf0\x8f\xbf\xbf\xf0\x90\x80\x80", "\\xf0\\x8f\\xbf\\xbf\xf0\x90\x80\x80"),
                /* surrogates and their neighbours */
                DISPLAY_CASE("\xed\xa0\x80\xed\xbf\xbf", "\\xed\\xa0\\x80\\xed\\xbf\\xbf"),
                DISPLAY_CASE("\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"),
                /* U+10FFFF and what would be U+110000; five bytes */
                DISPLAY_CASE("\xf4\x8f\xbf\xbf\xf4\x90\x80\x80", "\xf4\x8f\xbf\xbf\\xf4\\x90\\x80\\x80"),
                DISPLAY_CASE("\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"),
                /* cut off at the end, and by a character that is fine itself */
                DISPLAY_CASE("x\xe2\x82", "x\\xe2\\x82"),
                DISPLAY_CASE("\xe2\x82y", "\\xe2\\x82y"),
                DISPLAY_CASE("\xf0\x9f\xc3\xa4", "\\xf0\\x9f\xc3\xa4"),
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                /* An exact copy, so that a read past the end is one. */
                char *bytes = test_malloc(cases[i].size + !cases[i].size);

                memcpy(bytes, cases[i].bytes, cases[i].size);
                char *text = text_display(bytes, cases[i].size);
                assert_non_null(text);
                assert_string_equal(text, cases[i].text);
                free(text);
                test_free(bytes);
        }

        /* What lies behind the end must not complete a character. */
        char *text = text_display("\xe2\x82\xac", 2);
        assert_string_equal(text, "\\xe2\\x82");
        free(text);
}

/* Whatever comes in, the result is printable and showing it once more does not change it. */
static void display_is_stable(void **state) {
        uint64_t random = 42;

        for (unsigned i = 0; i < 20000; i++) {
                char bytes[16];

                for (size_t k = 0; k < sizeof(bytes); k++) {
                        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                        bytes[k] = (char) (random >> 56);
                }

                char *once = text_display(bytes, sizeof(bytes));
                char *twice = text_display(once, strlen(once));
                assert_string_equal(once, twice);
                for (const char *p = once; *p; p++)
                        assert_true((unsigned char) *p >= 0x20 && *p != 0x7f);
                free(once);
                free(twice);
        }
}

static void parse_span(void **state) {
        static const struct {
                const char *s;
                int r;
                uint64_t nsec;
        } cases[] = {
                { "0", 0, 0 },
                { "1", 0, UINT64_C(1000000000) },
                { "1s", 0, UINT64_C(1000000000) },
                { "1m", 0, UINT64_C(60000000000) },
                { "5min", 0, UINT64_C(300000000000) },
                { "1h 30min", 0, UINT64_C(5400000000000) },
                { "1h30min", 0, UINT64_C(5400000000000) },
                { " 2 h\t3 ", 0, UINT64_C(7203000000000) },
                { "100ms", 0, 100000000 },
                { "250us", 0, 250000 },
                { "250\xc2\xb5s", 0, 250000 },
                { "250\xce\xbcs", 0, 250000 },
                { "7ns", 0, 7 },
                { "0.5s", 0, 500000000 },
                { ".5", 0, 500000000 },
                { "1.5s", 0, 1500000000 },
                { "1.000000001", 0, 1000000001 },
                { "0.0000000019", 0, 1 },
                { "1.5ns", 0, 1 },
                { "1.5w", 0, UINT64_C(907200000000000) },
                { "1d 1hr", 0, UINT64_C(90000000000000) },
                { "18446744073709551615ns", 0, UINT64_MAX },
                { "18446744073709551616ns", -ERANGE, 0 },
                { "18446744073.709551615s", 0, UINT64_MAX },
                { "18446744073.709551616s", -ERANGE, 0 },
                { "18446744073709551615ns 1ns", -ERANGE, 0 },
                { "18446744074", -ERANGE, 0 },
                { "-1s", -ERANGE, 0 },
                { "", -EINVAL, 0 },
                { "  ", -EINVAL, 0 },
                { "s", -EINVAL, 0 },
                { ".", -EINVAL, 0 },
                { ".s", -EINVAL, 0 },
                { "1.s", -EINVAL, 0 },
                { "1.2.3", -EINVAL, 0 },
                { "1,5s", -EINVAL, 0 },
                { "+1s", -EINVAL, 0 },
                { "0x10", -EINVAL, 0 },
                { "1M", -EINVAL, 0 },
                { "1 month", -EINVAL, 0 },
                { "5mins", -EINVAL, 0 },
                { "1s;", -EINVAL, 0 },
                { "1s\n", -EINVAL, 0 },
                { "infinity", -EINVAL, 0 },
                { "1\xff", -EINVAL, 0 },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                uint64_t nsec = 12345;

                int r = text_parse_span(cases[i].s, &nsec);
                if (r != cases[i].r || nsec != (r < 0 ? 12345 : cases[i].nsec))
                        fail_msg("\"%s\": %d, %llu", cases[i].s, r, (unsigned long long) nsec);
        }
}

static void parse_size(void **state) {
        static const struct {
                const char *s;
                int r;
                uint64_t bytes;
        } cases[] = {
                { "0", 0, 0 },
                { "212992", 0, 212992 },
                { "1K", 0, 1024 },
                { "8M", 0, 8 << 20 },
                { " 2G ", 0, UINT64_C(2) << 30 },
                { "17179869183G", 0, UINT64_C(17179869183) << 30 },
                { "17179869184G", -ERANGE, 0 },
                { "18446744073709551615", 0, UINT64_MAX },
                { "18446744073709551616", -ERANGE, 0 },
                { "-1", -ERANGE, 0 },
                { "", -EINVAL, 0 },
                { "M", -EINVAL, 0 },
                { "8m", -EINVAL, 0 },
                { "8MM", -EINVAL, 0 },
                { "8MB", -EINVAL, 0 },
                { "1.5M", -EINVAL, 0 },
                { "8 M", -EINVAL, 0 },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                uint64_t bytes = 12345;

                int r = text_parse_size(cases[i].s, &bytes);
                if (r != cases[i].r || bytes != (r < 0 ? 12345 : cases[i].bytes))
                        fail_msg("\"%s\": %d, %llu", cases[i].s, r, (unsigned long long) bytes);
        }
}

static void format_span(void **state) {
        static const struct {
                uint64_t nsec;
                const char *text;
        } cases[] = {
                { 0, "0s" },
                { 1, "1ns" },
                { 812, "812ns" },
                { 999, "999ns" },
                { 1000, "1us" },
                { 5310, "5.31us" },
                { 5312, "5.312us" },
                { 12345, "12.35us" },
                { 999949, "999.9us" },
                { 999950, "1ms" },
                { 1234000, "1.234ms" },
                { 1234567, "1.235ms" },
                { 100050000, "100.1ms" },
                { 2500000000, "2.5s" },
                { 2000000000, "2s" },
                { UINT64_C(59994999999), "59.99s" },
                { UINT64_C(59995000000), "1min" },
                { UINT64_C(123000000000), "2min 3s" },
                { UINT64_C(120000000000), "2min" },
                { UINT64_C(3599499999999), "59min 59s" },
                { UINT64_C(3599500000000), "1h" },
                { UINT64_C(5400000000000), "1h 30min" },
                { UINT64_C(86399000000000), "1d" },
                { UINT64_C(90000000000000), "1d 1h" },
                { UINT64_C(18446700000000000000), "213503d 11h" },
                { UINT64_MAX, "213504d" },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                char buf[TEXT_SPAN_SIZE];

                assert_string_equal(text_format_span(buf, cases[i].nsec), cases[i].text);
        }
}

/* Formatted and parsed again, a span is the same within what three digits can say. */
static void span_round_trip(void **state) {
        uint64_t random = 7;

        for (unsigned i = 0; i < 20000; i++) {
                char buf[TEXT_SPAN_SIZE];
                uint64_t nsec, parsed;

                random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                nsec = random >> (1 + i % 62);
                assert_int_equal(text_parse_span(text_format_span(buf, nsec), &parsed), 0);

                uint64_t difference = nsec > parsed ? nsec - parsed : parsed - nsec;
                if (difference > nsec / 48)
                        fail_msg("%llu became \"%s\"", (unsigned long long) nsec, buf);
                if (nsec < UINT64_C(60000000000) && difference > nsec / 1999)
                        fail_msg("%llu became \"%s\"", (unsigned long long) nsec, buf);
        }
}

static void unescape_unit(void **state) {
        static const struct {
                const char *s, *text;
        } cases[] = {
                { "", "" },
                { "ssh.service", "ssh.service" },
                { "dev-disk-by\\x2dlabel-a\\x2Fb.swap", "dev-disk-by-label-a/b.swap" },
                { "\\x2d\\x2d", "--" },
                { "\\x5cx2d", "\\x2d" },
                { "a\\x2", "a\\x2" },
                { "a\\x", "a\\x" },
                { "a\\", "a\\" },
                { "\\xg0\\x0g", "\\xg0\\x0g" },
                { "\\X2d", "\\X2d" },
                { "\\\\x2d", "\\-" },
                { "a\\x00b", "a\\x00b" },
                { "\\xc3\\xa4", "\xc3\xa4" },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                char *text = text_unescape_unit(cases[i].s);

                assert_non_null(text);
                assert_string_equal(text, cases[i].text);
                free(text);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(display),
                cmocka_unit_test(display_is_stable),
                cmocka_unit_test(parse_span),
                cmocka_unit_test(parse_size),
                cmocka_unit_test(format_span),
                cmocka_unit_test(span_round_trip),
                cmocka_unit_test(unescape_unit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
