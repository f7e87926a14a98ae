/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include <cmocka.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "log.h"
#include "serve-fixture.h"
#include "serve/bus.h"
#include "serve/http.h"

/*
 * Serves the accounting that is made by hand, for tests from outside: on the addresses given as arguments
 * ("bus" is D-Bus). Writes "port N" for each address, "ready", and then whatever is logged. SIGTERM ends it.
 */
static void free_event(sd_event **event) {
        sd_event_unref(*event);
}

int log_message(int priority, int error, const char *format, ...) {
        va_list ap;

        if (priority == LOG_DEBUG)
                return -abs(error);

        printf("log %d ", priority);
        va_start(ap, format);
        vprintf(format, ap);
        va_end(ap);
        printf("%s%s\n", error != 0 ? ": " : "", error != 0 ? strerror(abs(error)) : "");
        fflush(stdout);
        return -abs(error);
}

/* Enough more cgroups that a scrape takes many pieces to send. */
static void add_many(struct fixture *f, unsigned n) {
        for (unsigned i = 0; i < n; i++) {
                char path[64];

                snprintf(path, sizeof(path), "/many/cgroup-%05u", i);
                fixture_wait(f, fixture_add(f, 1000 + i, 1, path), DELAY_BLKIO, 1 + i % 7, NSEC_PER_MSEC);
        }
}

/* No two scrapes are equal, so that a stale one is seen. */
static void count_scrapes(struct status_facts *ret, void *userdata) {
        static uint64_t n = 0;

        *ret = ((struct fixture *) userdata)->facts;
        ret->exits_received = ++n;
}

static int serve(struct fixture *f, int argc, char *argv[]) {
        _cleanup_(free_event) sd_event *event = NULL;
        struct http_server *http[8] = {};
        struct bus_server *bus = NULL;
        unsigned n_http = 0;

        int r = sd_event_default(&event);
        if (r >= 0)
                r = sd_event_add_signal(event, NULL, SIGTERM | SD_EVENT_SIGNAL_PROCMASK, NULL, NULL);

        for (int i = 2; i < argc && r >= 0; i++)
                if (strcmp(argv[i], "bus") == 0)
                        r = bus_server_new(event, &f->view, &bus);
                else {
                        r = http_server_new(event, argv[i], &f->view, http + n_http);
                        if (r >= 0)
                                printf("port %u\n", (unsigned) http_server_port(http[n_http++]));
                }

        if (r >= 0) {
                printf("ready\n");
                fflush(stdout);
                r = sd_event_loop(event);
        }

        while (n_http > 0)
                http_server_free(http[--n_http]);
        bus_server_free(bus);
        return r;
}

int main(int argc, char *argv[]) {
        struct fixture f;

        fixture_init(&f);
        f.view.fill_status = count_scrapes;
        add_many(&f, argc > 1 ? (unsigned) atoi(argv[1]) : 0);
        int r = serve(&f, argc, argv);
        fixture_done(&f);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
