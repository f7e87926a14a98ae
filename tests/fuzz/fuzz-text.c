/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <delayd/limits.h>

#include "core/address.h"
#include "core/query.h"
#include "core/text.h"
#include "fuzz.h"
#include "kernel/cpu-list.h"
#include "serve/arguments.h"
#include "serve/http-body.h"

/* Small texts that people, clients and the kernel write: spans, sizes, lists, arguments, a header. */

static void check_cpu_list(const char *s) {
        struct cpu_list list, again;

        if (cpu_list_parse(s, &list) < 0)
                return;

        char *text = cpu_list_format(&list, 0, list.n);
        CHECK(text);
        CHECK(cpu_list_parse(text, &again) == 0 && again.n == list.n);
        cpu_list_free(&again);
        cpu_list_free(&list);
        free(text);
}

static void check_address(const char *s) {
        char host[ADDRESS_HOST_SIZE];
        const char *port;

        if (address_split(s, host, &port) == 0) {
                CHECK(memchr(host, '\0', sizeof(host)));
                CHECK(port >= s && port <= s + strlen(s));
        } else
                CHECK(!address_is_valid(s));
}

static void check_arguments(const char *s) {
        const char *error = NULL;
        struct query query = {};
        uint64_t window;
        size_t limit;
        bool recursive;

        CHECK(arguments_parse_window(s, &window, &error) < 0 ? error != NULL : window <= 3600 * NSEC_PER_SEC);
        error = NULL;
        CHECK(arguments_parse_limit(s, &limit, &error) == 0 || error);
        error = NULL;
        CHECK(arguments_parse_recursive(s, &recursive, &error) == 0 || error);
        error = NULL;
        if (query_parse_kinds(s, DELAY_KINDS_DEFAULT, &query, &error) < 0)
                CHECK(error);
        else
                CHECK(!(query.kinds & ~DELAY_KINDS_DEFAULT));
        error = NULL;
        CHECK(query_parse_sort(s, &query, &error) == 0 || error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char *s = fuzz_string(data, size), buf[TEXT_SPAN_SIZE];
        uint64_t nsec, bytes;

        if (text_parse_span(s, &nsec) == 0)
                CHECK(strlen(text_format_span(buf, nsec)) < sizeof(buf));
        if (text_parse_size(s, &bytes) == 0)
                CHECK(strlen(text_format_span(buf, bytes)) < sizeof(buf));

        check_cpu_list(s);
        check_address(s);
        check_arguments(s);
        (void) http_accepts_gzip(s);
        free(s);
        return 0;
}
