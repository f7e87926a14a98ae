/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <json-c/json.h>

#include "fuzz.h"
#include "serve-fixture.h"
#include "serve/http-body.h"
#include "serve/http-reply.h"

/*
 * A request, as MHD hands it over after its own parsing: the first line is the path, the next one the
 * Accept-Encoding header, and each further one an argument, "name=value".
 */

static void check_json(const struct http_reply *reply) {
        struct json_tokener *tokener = json_tokener_new();

        CHECK(tokener);
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        struct json_object *object = json_tokener_parse_ex(tokener, reply->body, (int) reply->body_size);
        CHECK(object && json_tokener_get_error(tokener) == json_tokener_success);
        json_object_put(object);
        json_tokener_free(tokener);
}

static char *next_line(char **rest) {
        return strsep(rest, "\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static struct fixture fixture;
        static bool made = false;
        char *text = fuzz_string(data, size), *rest = text;
        struct http_request request = {};
        struct http_reply reply;

        if (!made) {
                fixture_init(&fixture);
                made = true;
        }

        request.path = next_line(&rest);
        (void) http_accepts_gzip(next_line(&rest));
        for (char *line; request.n_arguments < HTTP_ARGUMENTS_MAX && (line = next_line(&rest));) {
                char *name = strsep(&line, "=");

                request.arguments[request.n_arguments++] = (struct http_argument) { name, line ?: "" };
        }

        CHECK(http_route(&fixture.view, &request, &reply) == 0);
        CHECK(reply.status >= 200 && reply.status < 600 && reply.body && reply.body[reply.body_size] == '\0');
        CHECK(strlen(reply.body) == reply.body_size);
        if (strcmp(reply.content_type, HTTP_JSON) == 0)
                check_json(&reply);
        free(reply.body);
        free(text);
        return 0;
}
