/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "cleanup.h"
#include "serve/http-body.h"

#define SMALL_SIZE ((size_t) 4096)
#define BLOCK_SIZE ((size_t) 128 * 1024)
#define GZIP_BLOCK_SIZE ((size_t) 16 * 1024)
#define GZIP_WINDOW_BITS (MAX_WBITS + 16) /* with gzip's head and tail */
#define GZIP_MEMORY_LEVEL 8

struct http_body {
        struct http_budget *budget;
        char *data;
        size_t size;
        unsigned n_refs;
};

int http_body_new(struct http_budget *budget, char *data, size_t size, struct http_body **ret) {
        bool large = size > SMALL_SIZE;

        if (large && budget->n_large > 0 && budget->used + size > budget->limit) {
                free(data);
                return -ENOBUFS;
        }

        struct http_body *body = malloc(sizeof(*body));
        if (!body) {
                free(data);
                return -ENOMEM;
        }

        *body = (struct http_body) { .budget = budget, .data = data, .size = size, .n_refs = 1 };
        budget->used += size;
        budget->n_large += large;
        *ret = body;
        return 0;
}

size_t http_body_size(const struct http_body *body) {
        return body->size;
}

struct http_body *http_body_ref(struct http_body *body) {
        body->n_refs++;
        return body;
}

struct http_body *http_body_unref(struct http_body *body) {
        if (body && --body->n_refs == 0) {
                body->budget->used -= body->size;
                body->budget->n_large -= body->size > SMALL_SIZE;
                free(body->data);
                free(body);
        }
        return NULL;
}

static ssize_t read_plain(void *userdata, uint64_t offset, char *buf, size_t max) {
        const struct http_body *body = userdata;

        if (offset >= body->size)
                return MHD_CONTENT_READER_END_OF_STREAM;

        size_t n = body->size - offset < max ? body->size - offset : max;
        memcpy(buf, body->data + offset, n);
        return (ssize_t) n;
}

static void free_plain(void *userdata) {
        http_body_unref(userdata);
}

struct gzip_stream {
        struct http_body *body;
        size_t offset; /* of what zlib has not been given yet */
        z_stream z;
        bool finished;
};

static void free_gzip(void *userdata) {
        struct gzip_stream *stream = userdata;

        deflateEnd(&stream->z);
        http_body_unref(stream->body);
        free(stream);
}

static ssize_t read_gzip(void *userdata, uint64_t offset, char *buf, size_t max) {
        struct gzip_stream *stream = userdata;

        if (stream->finished)
                return MHD_CONTENT_READER_END_OF_STREAM;

        stream->z.next_out = (Bytef *) buf;
        stream->z.avail_out = max > UINT_MAX ? UINT_MAX : (uInt) max;
        uInt room = stream->z.avail_out;

        while (stream->z.avail_out > 0 && !stream->finished) {
                size_t rest = stream->body->size - stream->offset;
                uInt n = rest > UINT_MAX ? UINT_MAX : (uInt) rest;

                stream->z.next_in = (Bytef *) stream->body->data + stream->offset;
                stream->z.avail_in = n;

                int r = deflate(&stream->z, n == rest ? Z_FINISH : Z_NO_FLUSH);
                if (r != Z_OK && r != Z_STREAM_END)
                        return MHD_CONTENT_READER_END_WITH_ERROR;

                stream->offset += n - stream->z.avail_in;
                stream->finished = r == Z_STREAM_END;
        }

        return (ssize_t) (room - stream->z.avail_out);
}

static struct MHD_Response *gzip_response(struct http_body *body) {
        struct gzip_stream *stream = calloc(1, sizeof(*stream));
        if (!stream)
                return NULL;

        if (deflateInit2(&stream->z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS, GZIP_MEMORY_LEVEL,
                         Z_DEFAULT_STRATEGY) != Z_OK) {
                free(stream);
                return NULL;
        }

        stream->body = http_body_ref(body);

        struct MHD_Response *response =
                        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, GZIP_BLOCK_SIZE, read_gzip, stream, free_gzip);
        if (!response) {
                free_gzip(stream);
                return NULL;
        }

        if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip") != MHD_YES) {
                MHD_destroy_response(response);
                return NULL;
        }

        return response;
}

struct MHD_Response *http_body_response(struct http_body *body, bool gzip) {
        if (gzip)
                return gzip_response(body);

        size_t block_size = body->size < BLOCK_SIZE ? body->size : BLOCK_SIZE;
        struct MHD_Response *response = MHD_create_response_from_callback(
                        body->size, block_size > 0 ? block_size : 1, read_plain, http_body_ref(body), free_plain);
        if (!response)
                http_body_unref(body);
        return response;
}

/* The weight of a list item in thousandths, from what follows its name: ";q=0.5". 1000 where none is given. */
static unsigned parse_weight(const char *s, size_t size) {
        const char *end = s + size, *q = memchr(s, '=', size);
        unsigned weight = 0, unit = 1000;
        bool fraction = false;

        for (q = q ? q + 1 : end; q < end; q++)
                if (*q >= '0' && *q <= '9') {
                        weight += unit * (unsigned) (*q - '0');
                        if (weight >= 1000)
                                return 1000;
                        unit = fraction ? unit / 10 : unit;
                } else if (*q == '.') {
                        fraction = true;
                        unit = 100;
                } else if (*q != ' ' && *q != '\t')
                        return 0; /* not a number: better plain than wrong */

        return memchr(s, '=', size) ? weight : 1000;
}

static bool is_word(const char *s, size_t size, const char *word) {
        return strlen(word) == size && strncasecmp(s, word, size) == 0;
}

bool http_accepts_gzip(const char *header) {
        int gzip = -1, identity = -1, any = -1;

        for (const char *p = header ? header : ""; *(p += strspn(p, ", \t")); ) {
                size_t item = strcspn(p, ","), name = strcspn(p, ",; \t");
                int weight = (int) parse_weight(p + name, item - name);

                if (is_word(p, name, "gzip") || is_word(p, name, "x-gzip"))
                        gzip = weight;
                else if (is_word(p, name, "identity"))
                        identity = weight;
                else if (is_word(p, name, "*"))
                        any = weight;
                p += item;
        }

        if (gzip < 0)
                gzip = any;
        return gzip > 0 && gzip >= identity;
}
