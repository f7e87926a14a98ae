/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleanup.h"
#include "serve-fixture.h"
#include "serve/http-body.h"
#include "serve/http-reply.h"

static int setup(void **state) {
        struct fixture *f = malloc(sizeof(*f));

        fixture_init(f);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        fixture_done(*state);
        free(*state);
        return 0;
}

/* Sends "path?name=value&…" (nothing decoded) and checks the status and a part of the body. */
static void expect(const struct fixture *f, const char *url, unsigned status, const char *content_type, const char *part) {
        _cleanup_free_ char *copy = strdup(url);
        struct http_request request = { .path = copy };
        struct http_reply reply = {};
        char *save = NULL, *arguments = strchr(copy, '?');

        if (arguments) {
                *arguments++ = '\0';
                for (char *p = strtok_r(arguments, "&", &save); p; p = strtok_r(NULL, "&", &save)) {
                        char *value = strchr(p, '=');

                        if (value)
                                *value++ = '\0';
                        request.arguments[request.n_arguments++] = (struct http_argument) { p, value ? value : "" };
                }
        }

        assert_int_equal(http_route(&f->view, &request, &reply), 0);
        assert_int_equal(strlen(reply.body), reply.body_size);
        if (reply.status != status || strcmp(reply.content_type, content_type) != 0 || !strstr(reply.body, part))
                fail_msg("%s: %u %s %s", url, reply.status, reply.content_type, reply.body);
        free(reply.body);
}

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

static void everything_has_its_place(void **state) {
        struct fixture *f = *state;

        expect(f, "/metrics", 200, METRICS_TYPE, "delayd_build_info");
        expect(f, "/metrics?collect=all", 200, METRICS_TYPE, "delayd_build_info");
        expect(f, "/api/v1/status", 200, HTTP_JSON, "\"health\":\"ok\"");
        expect(f, "/api/v1/cgroups", 200, HTTP_JSON, "{\"window_nsec\":300000000000,\"cgroups\":[{\"cgroup\":\"/job\",");
        expect(f, "/api/v1/cgroups?window=1h&kind=swapin&sort=max&limit=1&recursive=yes", 200, HTTP_JSON,
               "{\"window_nsec\":3600000000000,\"cgroups\":[{\"cgroup\":\"/\",");
        expect(f, "/api/v1/cgroups?window=60&kind=swapin,blkio&limit=1&recursive", 200, HTTP_JSON,
               "{\"window_nsec\":60000000000,\"cgroups\":[{\"cgroup\":\"/system.slice/db.service\",");
        expect(f, "/api/v1/histogram?cgroup=db.service", 200, HTTP_JSON, "\"kind\":\"blkio\"");
        expect(f, "/api/v1/cgroups?recursive=1", 200, HTTP_JSON, "\"subtree\":{\"tasks\":2,\"unaccounted_tasks\":1,\"blkio\":{");
        expect(f, "/api/v1/histogram?cgroup=/&recursive=true&kind=swapin&window=15m", 200, HTTP_JSON,
               "\"kind\":\"swapin\",\"window_nsec\":900000000000,\"waits\":1,");
        expect(f, "/", 200, HTTP_HTML, "<td>/system.slice/db.service</td><td>4</td><td>2.003s</td>");
        expect(f, "/", 200, HTTP_HTML, "<td>/we&quot;ird\\x2d\\x0a\\xff\xc3\xa9</td>");
        expect(f, "/nothing", 404, HTTP_TEXT, "/metrics");
        expect(f, "/metrics/", 404, HTTP_TEXT, "/metrics");
        expect(f, "/api/v1/tasks", 404, HTTP_JSON, "{\"error\":\"Tasks are not shown over HTTP");
        expect(f, "/api/v2/status", 404, HTTP_JSON, "{\"error\":\"No such resource.");
}

static void bad_arguments_name_the_good_ones(void **state) {
        struct fixture *f = *state;

        expect(f, "/api/v1/status?window=1m", 400, HTTP_JSON, "Unknown argument \\\"window\\\".");
        expect(f, "/api/v1/cgroups?cgroup=/", 400, HTTP_JSON, "Arguments are window, kind");
        expect(f, "/api/v1/cgroups?window=2h", 400, HTTP_JSON, "up to one hour");
        expect(f, "/api/v1/cgroups?window=0", 400, HTTP_JSON, "up to one hour");
        expect(f, "/api/v1/cgroups?window=-1", 400, HTTP_JSON, "up to one hour");
        expect(f, "/api/v1/cgroups?window=1m&window=5m", 400, HTTP_JSON, "given twice");
        expect(f, "/api/v1/cgroups?kind=disk", 400, HTTP_JSON, "blkio, swapin");
        expect(f, "/api/v1/cgroups?kind=cpu", 400, HTTP_JSON, "Collect.Kinds=");
        expect(f, "/api/v1/cgroups?sort=size", 400, HTTP_JSON, "p50, p90");
        expect(f, "/api/v1/cgroups?limit=-1", 400, HTTP_JSON, "number of rows");
        expect(f, "/api/v1/cgroups?limit=99999999999999999999", 400, HTTP_JSON, "number of rows");
        expect(f, "/api/v1/cgroups?recursive=maybe", 400, HTTP_JSON, "yes or no");
        expect(f, "/api/v1/histogram", 400, HTTP_JSON, "cgroup=PATH");
        expect(f, "/api/v1/histogram?cgroup=/&kind=blkio,swapin", 400, HTTP_JSON, "one kind");
        expect(f, "/api/v1/histogram?cgroup=/none\n\xff", 404, HTTP_JSON, "No cgroup \\\"/none\\\\x0a\\\\xff\\\" is tracked.");
}

static void health_decides_the_status(void **state) {
        struct fixture *f = *state;

        expect(f, "/-/healthy", 200, HTTP_TEXT, "ok\n");
        expect(f, "/-/ready", 200, HTTP_TEXT, "ready\n");

        f->view.ready = false;
        health_raise(&f->health, "a", PROBLEM_DEGRADED, "A <problem>", "A & remedy");
        expect(f, "/-/healthy", 200, HTTP_TEXT, "degraded\n");
        expect(f, "/-/ready", 503, HTTP_TEXT, "starting\n");
        expect(f, "/", 200, HTTP_HTML, "<li>A &lt;problem&gt;<br><span class=\"note\">A &amp; remedy</span></li>");

        health_raise(&f->health, "b", PROBLEM_FAILING, "B", "b");
        expect(f, "/-/healthy", 503, HTTP_TEXT, "failing\n");
}

static void encodings_are_negotiated(void **state) {
        assert_false(http_accepts_gzip(NULL));
        assert_false(http_accepts_gzip(""));
        assert_true(http_accepts_gzip("gzip"));
        assert_true(http_accepts_gzip("deflate, GZIP;q=0.5"));
        assert_true(http_accepts_gzip("x-gzip"));
        assert_true(http_accepts_gzip("*"));
        assert_true(http_accepts_gzip("gzip;q=1.0, identity; q=0.5"));
        assert_true(http_accepts_gzip("br;q=0,gzip;q=0.001"));
        assert_false(http_accepts_gzip("identity"));
        assert_false(http_accepts_gzip("gzip;q=0"));
        assert_false(http_accepts_gzip("gzip;q=0.000, *"));
        assert_false(http_accepts_gzip("gzip;q=0.2, identity;q=0.8"));
        assert_false(http_accepts_gzip("gzipped"));
        assert_false(http_accepts_gzip("gzip;q=x"));
        assert_false(http_accepts_gzip(",,;;=,"));
}

static void budget_is_kept(void **state) {
        struct http_budget budget = { .limit = 100000 };
        struct http_body *a = NULL, *b = NULL;

        assert_int_equal(http_body_new(&budget, malloc(200000), 200000, &a), 0); /* alone, it may be of any size */
        http_body_unref(a);

        assert_int_equal(http_body_new(&budget, malloc(60000), 60000, &a), 0);
        assert_int_equal(http_body_new(&budget, malloc(60000), 60000, &b), -ENOBUFS);
        assert_int_equal(http_body_new(&budget, malloc(100), 100, &b), 0);
        http_body_ref(a);
        http_body_unref(a);
        assert_int_equal(budget.used, 60100);
        http_body_unref(a);
        http_body_unref(b);
        assert_int_equal(budget.used, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(everything_has_its_place, setup, teardown),
                cmocka_unit_test_setup_teardown(bad_arguments_name_the_good_ones, setup, teardown),
                cmocka_unit_test_setup_teardown(health_decides_the_status, setup, teardown),
                cmocka_unit_test(encodings_are_negotiated),
                cmocka_unit_test(budget_is_kept),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
