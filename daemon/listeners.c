/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "listeners.h"
#include "log.h"

#define PROBLEM_ID "listen"
#define RETRY_USEC (UINT64_C(5) * 1000 * 1000)
#define ACCURACY_USEC (UINT64_C(1000) * 1000)

static void close_listener(struct listener *listener) {
        listener->server = http_server_free(listener->server);
        free(listener->address);
        *listener = (struct listener) {};
}

static bool is_away(int error) {
        return error == -EAFNOSUPPORT || error == -EADDRNOTAVAIL;
}

/* Serves on the sockets of delayd-http.socket, if there are any. */
static int take_passed(struct listeners *l, struct passed_fds *passed) {
        for (int fd; (fd = passed_fds_take(passed, "http")) >= 0;) {
                if (l->n == CONFIG_LISTEN_MAX) {
                        close(fd);
                        log_error("More than %d sockets were passed.", CONFIG_LISTEN_MAX);
                        return -E2BIG;
                }

                int r = http_server_new_from_fd(l->event, fd, l->view, &l->all[l->n].server);
                if (r < 0)
                        return r;
                l->n++;
                l->passed = true;
        }

        return 0;
}

static void say_not_used(void) {
        log_warning("Metrics.Listen= is not used, for systemd passes the sockets: change ListenStream= with "
                    "'systemctl edit delayd-http.socket'.");
}

static struct listener *find(struct listener *all, unsigned n, const char *address) {
        for (unsigned i = 0; i < n; i++)
                if (all[i].address && strcmp(all[i].address, address) == 0)
                        return &all[i];

        return NULL;
}

/* A problem for as long as an address that somebody chose is not served; of the defaults, one is enough. */
static void check(struct listeners *l, bool chosen) {
        const struct listener *away = NULL;

        for (unsigned i = 0; i < l->n; i++)
                if (!l->all[i].server)
                        away = &l->all[i];

        if (away && chosen) {
                char message[256];

                snprintf(message, sizeof(message), "HTTP is not served on %s: the host has no such address.",
                         away->address);
                (void) health_raise(l->health, PROBLEM_ID, PROBLEM_DEGRADED, message,
                                    "Give the host the address, which is tried again every few seconds, or correct "
                                    "Metrics.Listen=.");
        } else if (health_clear(l->health, PROBLEM_ID))
                log_info("The problem " PROBLEM_ID " is gone.");

        if (away && chosen)
                (void) sd_event_source_set_time_relative(l->retry, RETRY_USEC);
        (void) sd_event_source_set_enabled(l->retry, away && chosen ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static int on_retry(sd_event_source *source, uint64_t usec, void *userdata) {
        struct listeners *l = userdata;

        for (unsigned i = 0; i < l->n; i++)
                if (!l->all[i].server)
                        (void) http_server_try_new(l->event, l->all[i].address, l->view, &l->all[i].server);

        check(l, true);
        return 0;
}

/* Opens what the configuration names and kept does not hold; what it holds moves to *ret. */
static int open_addresses(
                struct listeners *l, const struct config *config, struct listener *kept, unsigned n_kept, struct listener *ret) {

        for (unsigned i = 0; i < config->n_listen; i++) {
                struct listener *known = find(kept, n_kept, config->listen[i]);

                if (known && known->server)
                        continue;

                int r = http_server_new(l->event, config->listen[i], l->view, &ret[i].server);
                if (r < 0 && !is_away(r))
                        return r;

                ret[i].address = strdup(config->listen[i]);
                if (!ret[i].address)
                        return -ENOMEM;
        }

        for (unsigned i = 0; i < config->n_listen; i++) {
                struct listener *known = find(kept, n_kept, config->listen[i]);

                if (known && !ret[i].address) {
                        ret[i] = *known;
                        *known = (struct listener) {};
                }
        }

        return 0;
}

int listeners_change(struct listeners *l, const struct config *config) {
        struct listener all[CONFIG_LISTEN_MAX] = {};

        if (l->passed) {
                if (config->listen_chosen)
                        say_not_used();
                return 0;
        }

        int r = open_addresses(l, config, l->all, l->n, all);
        if (r < 0) {
                for (unsigned i = 0; i < CONFIG_LISTEN_MAX; i++)
                        close_listener(&all[i]);
                return r;
        }

        for (unsigned i = 0; i < l->n; i++)
                close_listener(&l->all[i]);
        memcpy(l->all, all, sizeof(all));
        l->n = config->n_listen;
        check(l, config->listen_chosen);
        return 0;
}

int listeners_open(
                struct listeners *l, sd_event *event, const struct view *view, struct health *health,
                const struct config *config, struct passed_fds *passed) {

        *l = (struct listeners) { .event = event, .view = view, .health = health };

        int r = sd_event_add_time_relative(event, &l->retry, CLOCK_MONOTONIC, RETRY_USEC, ACCURACY_USEC, on_retry, l);
        if (r >= 0)
                r = sd_event_source_set_enabled(l->retry, SD_EVENT_OFF);
        if (r < 0)
                return log_error_errno(r, "Cannot set up the event loop");

        r = take_passed(l, passed);
        return r < 0 ? r : listeners_change(l, config);
}

void listeners_close(struct listeners *l) {
        for (unsigned i = 0; i < CONFIG_LISTEN_MAX; i++)
                close_listener(&l->all[i]);
        l->retry = sd_event_source_disable_unref(l->retry);
        l->n = 0;
}
