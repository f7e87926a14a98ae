/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>

#include "cleanup.h"
#include "core/query.h"
#include "core/text.h"
#include "serve/buffer.h"
#include "serve/http-reply.h"

#define PAGE_ROWS 10

static const char head[] =
        "<!DOCTYPE html>\n"
        "<html lang=\"en\">\n"
        "<head>\n"
        "<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>delayd</title>\n"
        "<style>\n"
        ":root { color-scheme: light dark; }\n"
        "body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }\n"
        "table { border-collapse: collapse; width: 100%; }\n"
        "caption { text-align: left; font-weight: 600; padding: 1rem 0 .25rem; }\n"
        "th, td { text-align: right; padding: .25rem .75rem; border-bottom: 1px solid #8884; white-space: nowrap; "
        "font-variant-numeric: tabular-nums; }\n"
        "th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; "
        "overflow-wrap: anywhere; }\n"
        ".note { opacity: .7; }\n"
        "</style>\n"
        "</head>\n"
        "<body>\n"
        "<h1>delayd <small class=\"note\">" DELAYD_VERSION "</small></h1>\n"
        "<p>Who waits for disk or swap on this host, for how long and how often, by control group.</p>\n"
        "<ul>\n"
        "<li><a href=\"/metrics\">/metrics</a>: everything, for Prometheus</li>\n"
        "<li><a href=\"/api/v1/cgroups\">/api/v1/cgroups</a>, <a href=\"/api/v1/status\">/api/v1/status</a>, "
        "/api/v1/histogram?cgroup=…: JSON</li>\n"
        "<li><a href=\"/-/healthy\">/-/healthy</a>, <a href=\"/-/ready\">/-/ready</a></li>\n"
        "<li><code>delayctl top</code>, <code>delayctl cgroups</code>, <code>delayctl doctor</code>: the same and more, "
        "in a terminal</li>\n"
        "</ul>\n";

static void add_cell(struct buffer *b, const char *text) {
        buffer_add_string(b, "<td>");
        buffer_html(b, text);
        buffer_add_string(b, "</td>");
}

static void add_span_cell(struct buffer *b, uint64_t nsec) {
        char span[TEXT_SPAN_SIZE];

        add_cell(b, text_format_span(span, nsec));
}

static void add_row(const struct cgroup_row *row, enum delay_kind kind, struct buffer *b) {
        const struct delay_summary *s = row->delays + kind;

        buffer_add_string(b, "<tr><td>");
        buffer_html(b, row->cgroup->display);
        buffer_add_string(b, row->cgroup->removed_nsec > 0 ? " <span class=\"note\">(removed)</span></td><td>" : "</td><td>");
        buffer_u64(b, s->totals.waits);
        buffer_add_string(b, "</td>");
        add_span_cell(b, s->totals.total_nsec);
        add_span_cell(b, s->p50_nsec);
        add_span_cell(b, s->p99_nsec);
        add_span_cell(b, s->totals.max_nsec);
        buffer_add_string(b, "</tr>\n");
}

static int add_table(const struct view *view, enum delay_kind kind, struct buffer *b) {
        _cleanup_free_ struct cgroup_row *rows = NULL;
        struct query query = { .kinds = DELAY_KIND_BIT(kind), .sort_kind = kind, .limit = PAGE_ROWS };
        uint64_t window_nsec;
        bool any = false;
        size_t n;

        int r = query_cgroups(view->accounting, view->now_nsec(view->userdata), &query, &window_nsec, &rows, &n);
        if (r < 0)
                return r;

        buffer_printf(b, "<table>\n<caption>%s: most delayed in the last %" PRIu64 " minutes</caption>\n",
                      delay_kind_name(kind), window_nsec / (60 * NSEC_PER_SEC));
        buffer_add_string(b, "<tr><th scope=\"col\">cgroup</th><th scope=\"col\">waits</th><th scope=\"col\">total</th>"
                             "<th scope=\"col\">p50</th><th scope=\"col\">p99</th><th scope=\"col\">longest</th></tr>\n");

        for (size_t i = 0; i < n; i++)
                if (rows[i].delays[kind].totals.waits > 0) {
                        add_row(rows + i, kind, b);
                        any = true;
                }
        if (!any)
                buffer_add_string(b, "<tr><td colspan=\"6\" class=\"note\">No waits.</td></tr>\n");

        buffer_add_string(b, "</table>\n");
        return 0;
}

static void add_health(const struct health *health, struct buffer *b) {
        buffer_printf(b, "<p>State: <strong>%s</strong></p>\n", health_word(health));
        if (!health->problems)
                return;

        buffer_add_string(b, "<ul>\n");
        for (const struct problem *p = health->problems; p; p = p->next) {
                buffer_add_string(b, "<li>");
                buffer_html(b, p->message);
                buffer_add_string(b, "<br><span class=\"note\">");
                buffer_html(b, p->remedy);
                buffer_add_string(b, "</span></li>\n");
        }
        buffer_add_string(b, "</ul>\n");
}

int http_page(const struct view *view, struct http_reply *ret) {
        _cleanup_(buffer_free) struct buffer b = {};
        struct http_reply reply = { .status = 200, .content_type = HTTP_HTML, .page = true };
        int r;

        buffer_add_string(&b, head);
        add_health(view->health, &b);

        for (enum delay_kind kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(view->accounting->config.kinds, kind)) {
                        r = add_table(view, kind, &b);
                        if (r < 0)
                                return r;
                }

        buffer_add_string(&b, "</body>\n</html>\n");

        r = buffer_take(&b, &reply.body, &reply.body_size);
        if (r < 0)
                return r;

        *ret = reply;
        return 0;
}
