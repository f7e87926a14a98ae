/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include "cleanup.h"
#include "serve/arguments.h"
#include "serve/buffer.h"
#include "serve/http-reply.h"
#include "serve/json-build.h"
#include "serve/json-view.h"

/* The arguments of all resources together; each resource names those that it takes. */
enum api_argument { ARG_CGROUP, ARG_WINDOW, ARG_KIND, ARG_SORT, ARG_LIMIT, ARG_RECURSIVE, ARG_COUNT };

static const char *const argument_names[ARG_COUNT] = { "cgroup", "window", "kind", "sort", "limit", "recursive" };

struct api_call {
        const struct view *view;
        const char *path;
        const char *values[ARG_COUNT]; /* NULL: not given */
};

struct resource {
        const char *path;
        unsigned arguments; /* bits of enum api_argument */
        const char *arguments_text;
        int (*answer)(const struct api_call *call, struct http_reply *ret);
};

static int reply_json(struct json_object *object, struct http_reply *ret) {
        _cleanup_(buffer_free) struct buffer b = {};
        struct http_reply reply = { .status = 200, .content_type = HTTP_JSON };
        size_t size;

        const char *text = json_object_to_json_string_length(
                        object, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &size);
        if (!text)
                return -ENOMEM;

        buffer_add(&b, text, size);
        buffer_add_char(&b, '\n');

        int r = buffer_take(&b, &reply.body, &reply.body_size);
        if (r < 0)
                return r;

        *ret = reply;
        return 0;
}

static int answer_status(const struct api_call *call, struct http_reply *ret) {
        _cleanup_json_ struct json_object *object = NULL;

        int r = json_status(call->view, &object);
        if (r < 0)
                return r;

        return reply_json(object, ret);
}

/* Fills in what cgroups and histogram have in common. Returns -EINVAL with *ret_error. */
static int parse_query(const struct api_call *call, struct query *ret, const char **ret_error) {
        struct query query = {};

        int r = query_parse_kinds(call->values[ARG_KIND], call->view->accounting->config.kinds, &query, ret_error);
        if (r >= 0)
                r = query_parse_sort(call->values[ARG_SORT], &query, ret_error);
        if (r >= 0)
                r = arguments_parse_window(call->values[ARG_WINDOW], &query.window_nsec, ret_error);
        if (r >= 0)
                r = arguments_parse_limit(call->values[ARG_LIMIT], &query.limit, ret_error);
        if (r >= 0)
                r = arguments_parse_recursive(call->values[ARG_RECURSIVE], &query.recursive, ret_error);
        if (r < 0)
                return r;

        *ret = query;
        return 0;
}

static int answer_cgroups(const struct api_call *call, struct http_reply *ret) {
        _cleanup_json_ struct json_object *object = NULL;
        const char *error;
        struct query query;

        if (parse_query(call, &query, &error) < 0)
                return http_error(call->path, 400, error, ret);

        int r = json_cgroups(call->view, &query, &object);
        if (r < 0)
                return r;

        return reply_json(object, ret);
}

static int answer_histogram(const struct api_call *call, struct http_reply *ret) {
        _cleanup_json_ struct json_object *object = NULL;
        const char *error, *cgroup = call->values[ARG_CGROUP];
        struct query query;

        if (!cgroup || !*cgroup)
                return http_error(call->path, 400, "Say which cgroup: cgroup=PATH, UNIT or container id. "
                                                   "/api/v1/cgroups lists them.", ret);
        if (parse_query(call, &query, &error) < 0)
                return http_error(call->path, 400, error, ret);
        if (call->values[ARG_KIND] && __builtin_popcount(query.kinds) != 1 && *call->values[ARG_KIND])
                return http_error(call->path, 400, "A histogram is of one kind of delay: give one name in kind=.", ret);

        int r = json_histogram(call->view, cgroup, query.sort_kind, query.window_nsec, query.recursive, &object);
        if (r == -ENOENT)
                return http_errorf(call->path, 404, ret, "No cgroup \"%s\" is tracked. /api/v1/cgroups lists those that are.",
                                   cgroup);
        if (r == -ENOTUNIQ)
                return http_errorf(call->path, 400, ret, "\"%s\" fits several cgroups: give the path of one. "
                                                         "/api/v1/cgroups lists them.", cgroup);
        if (r < 0)
                return r;

        return reply_json(object, ret);
}

static const struct resource resources[] = {
        { "/api/v1/status", 0, "It takes none.", answer_status },
        { "/api/v1/cgroups",
          1U << ARG_WINDOW | 1U << ARG_KIND | 1U << ARG_SORT | 1U << ARG_LIMIT | 1U << ARG_RECURSIVE,
          "Arguments are window, kind, sort, limit and recursive.", answer_cgroups },
        { "/api/v1/histogram",
          1U << ARG_CGROUP | 1U << ARG_WINDOW | 1U << ARG_KIND | 1U << ARG_RECURSIVE,
          "Arguments are cgroup, kind, window and recursive.", answer_histogram },
};

static int find_argument(const struct resource *resource, const char *name) {
        for (int i = 0; i < ARG_COUNT; i++)
                if ((resource->arguments & 1U << i) && strcmp(argument_names[i], name) == 0)
                        return i;

        return -EINVAL;
}

static int answer(
                const struct view *view,
                const struct http_request *request,
                const struct resource *resource,
                struct http_reply *ret) {

        struct api_call call = { .view = view, .path = request->path };

        for (size_t i = 0; i < request->n_arguments; i++) {
                const struct http_argument *argument = request->arguments + i;
                int id = find_argument(resource, argument->name);

                if (id < 0)
                        return http_errorf(request->path, 400, ret, "Unknown argument \"%s\". %s", argument->name,
                                           resource->arguments_text);
                if (call.values[id])
                        return http_errorf(request->path, 400, ret, "Argument \"%s\" is given twice.", argument->name);

                call.values[id] = argument->value;
        }

        return resource->answer(&call, ret);
}

int http_api(const struct view *view, const struct http_request *request, struct http_reply *ret) {
        for (size_t i = 0; i < sizeof(resources) / sizeof(*resources); i++)
                if (strcmp(request->path, resources[i].path) == 0)
                        return answer(view, request, resources + i, ret);

        if (strcmp(request->path, "/api/v1/tasks") == 0)
                return http_error(request->path, 404, "Tasks are not shown over HTTP, because their delays are not for "
                                                      "everyone. Use \"delayctl tasks\".", ret);

        return http_error(request->path, 404, "No such resource. There are /api/v1/status, /api/v1/cgroups and "
                                              "/api/v1/histogram.", ret);
}
