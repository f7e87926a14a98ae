/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

/*
 * Questions and answers as plain data, so that what is answered is apart from the HTTP library.
 * Arguments are decoded; their values hold no NUL but may hold any other byte.
 */
struct http_argument {
        const char *name;
        const char *value;
};

#define HTTP_ARGUMENTS_MAX 16

struct http_request {
        const char *path;
        struct http_argument arguments[HTTP_ARGUMENTS_MAX];
        size_t n_arguments;
};

struct http_reply {
        unsigned status;
        const char *content_type;
        char *body; /* the caller's to free() */
        size_t body_size;
        bool page;  /* for people: gets a content security policy */
};

#define HTTP_TEXT "text/plain; charset=utf-8"
#define HTTP_JSON "application/json"
#define HTTP_HTML "text/html; charset=utf-8"

/* All return 0 or -ENOMEM; what went wrong for the user is a reply. */
int http_route(const struct view *view, const struct http_request *request, struct http_reply *ret);
int http_api(const struct view *view, const struct http_request *request, struct http_reply *ret);
int http_page(const struct view *view, struct http_reply *ret);

/* Answers in the form that suits the path: a JSON object below /api/, plain text elsewhere. */
int http_error(const char *path, unsigned status, const char *message, struct http_reply *ret);
int http_errorf(const char *path, unsigned status, struct http_reply *ret, const char *format, ...)
                __attribute__((format(printf, 4, 5)));
