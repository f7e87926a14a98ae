/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <microhttpd.h>

/*
 * The text of a reply while it is being sent, shared by all connections that are sent the same. A
 * slow reader holds its text for as long as it likes, so that the sum of all is kept in a budget.
 * Small ones, such as errors, always fit, and so does a single large one.
 */
struct http_budget {
        size_t used;
        size_t limit;
        unsigned n_large;
};

struct http_body;

/* Takes data over (free()), also when it fails: -ENOMEM, or -ENOBUFS when the budget is spent. */
int http_body_new(struct http_budget *budget, char *data, size_t size, struct http_body **ret);
size_t http_body_size(const struct http_body *body);
struct http_body *http_body_ref(struct http_body *body);
struct http_body *http_body_unref(struct http_body *body); /* returns NULL; NULL is fine */

/*
 * Makes the response that sends the body piece by piece, compressed on the way if gzip is set: a
 * large text then never holds up the event loop. Returns NULL when memory is short.
 */
struct MHD_Response *http_body_response(struct http_body *body, bool gzip);

/* Whether an Accept-Encoding header (NULL: none) wants gzip. */
bool http_accepts_gzip(const char *header);
