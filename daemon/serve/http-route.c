/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "serve/buffer.h"
#include "serve/http-reply.h"
#include "serve/json-build.h"
#include "serve/metrics.h"

static bool is_api(const char *path) {
        return strncmp(path, "/api/", strlen("/api/")) == 0;
}

static int error_json(const char *message, struct buffer *b) {
        _cleanup_json_ struct json_object *object = json_object_new_object();
        bool failed = false;

        if (!object)
                return -ENOMEM;

        json_add_raw(object, "error", message, strlen(message), &failed);
        if (failed)
                return -ENOMEM;

        const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
        if (!text)
                return -ENOMEM;

        buffer_add_string(b, text);
        return 0;
}

int http_error(const char *path, unsigned status, const char *message, struct http_reply *ret) {
        _cleanup_(buffer_free) struct buffer b = {};
        struct http_reply reply = { .status = status };
        int r = 0;

        if (is_api(path)) {
                reply.content_type = HTTP_JSON;
                r = error_json(message, &b);
        } else {
                reply.content_type = HTTP_TEXT;
                buffer_add_string(&b, message);
        }

        buffer_add_char(&b, '\n');
        if (r >= 0)
                r = buffer_take(&b, &reply.body, &reply.body_size);
        if (r < 0)
                return r;

        *ret = reply;
        return 0;
}

int http_errorf(const char *path, unsigned status, struct http_reply *ret, const char *format, ...) {
        _cleanup_free_ char *message = NULL;
        va_list ap;

        va_start(ap, format);
        int n = vasprintf(&message, format, ap);
        va_end(ap);

        if (n < 0) {
                message = NULL;
                return -ENOMEM;
        }

        return http_error(path, status, message, ret);
}

static int reply_text(unsigned status, const char *text, struct http_reply *ret) {
        return http_error("/", status, text, ret);
}

static int reply_metrics(const struct view *view, struct http_reply *ret) {
        struct http_reply reply = { .status = 200, .content_type = METRICS_CONTENT_TYPE };

        int r = metrics_render(view, &reply.body, &reply.body_size);
        if (r < 0)
                return r;

        *ret = reply;
        return 0;
}

static int reply_healthy(const struct view *view, struct http_reply *ret) {
        const char *word = health_word(view->health);

        return reply_text(strcmp(word, "failing") == 0 ? 503 : 200, word, ret);
}

int http_route(const struct view *view, const struct http_request *request, struct http_reply *ret) {
        const char *path = request->path;

        if (strcmp(path, "/metrics") == 0)
                return reply_metrics(view, ret);
        if (is_api(path))
                return http_api(view, request, ret);
        if (strcmp(path, "/") == 0)
                return http_page(view, ret);
        if (strcmp(path, "/-/healthy") == 0)
                return reply_healthy(view, ret);
        if (strcmp(path, "/-/ready") == 0)
                return reply_text(view->ready ? 200 : 503, view->ready ? "ready" : "starting", ret);

        return http_error(path, 404, "There is nothing here. Try /, /metrics, /-/healthy, /-/ready or /api/v1/status.", ret);
}
