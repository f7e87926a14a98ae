/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/diagnosis.h"

const char *check_result_name(enum check_result result) {
        static const char *const names[CHECK_RESULT_COUNT] = {
                [CHECK_OK] = "ok",
                [CHECK_WARN] = "warn",
                [CHECK_FAIL] = "fail",
                [CHECK_UNKNOWN] = "unknown",
        };

        return names[result];
}

static void check_done(struct check *check) {
        free(check->message);
        free(check->remedy);
        *check = (struct check) {};
}

void diagnosis_add(
                struct diagnosis *d, const char *id, const char *title, enum check_result result, const char *remedy,
                const char *format, ...) {

        struct check check = { .id = id, .title = title, .result = result };
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&check.message, format, ap) < 0)
                check.message = NULL;
        va_end(ap);

        if (remedy)
                check.remedy = strdup(remedy);

        if (d->n == DIAGNOSIS_CHECKS_MAX || !check.message || (remedy && !check.remedy)) {
                d->failed = true;
                check_done(&check);
                return;
        }

        d->checks[d->n++] = check;
}

void diagnosis_replace(
                struct diagnosis *d, const struct check *check, enum check_result result, const char *message, const char *remedy) {

        struct check *own = &d->checks[check - d->checks];
        char *new_message = strdup(message), *new_remedy = strdup(remedy);

        if (!new_message || !new_remedy) {
                free(new_message);
                free(new_remedy);
                d->failed = true;
                return;
        }

        free(own->message);
        free(own->remedy);
        own->message = new_message;
        own->remedy = new_remedy;
        own->result = result;
}

const struct check *diagnosis_find(const struct diagnosis *d, const char *id) {
        for (size_t i = 0; i < d->n; i++)
                if (strcmp(d->checks[i].id, id) == 0)
                        return &d->checks[i];

        return NULL;
}

const char *diagnosis_word(const struct diagnosis *d) {
        const char *word = "ok";

        for (size_t i = 0; i < d->n; i++) {
                if (d->checks[i].result == CHECK_FAIL)
                        return "failing";
                if (d->checks[i].result == CHECK_WARN)
                        word = "degraded";
        }

        return word;
}

void diagnosis_done(struct diagnosis *d) {
        for (size_t i = 0; i < d->n; i++)
                check_done(&d->checks[i]);
        *d = (struct diagnosis) {};
}

void diagnose(
                struct diagnosis *d, const struct host_facts *host, const struct feed_facts *feed,
                const struct daemon_facts *daemon) {

        if (feed)
                diagnose_feed(d, host, feed);
        diagnose_host(d, host);
        diagnose_daemon(d, host, daemon);
}
