/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <systemd/sd-event.h>

#include "config.h"
#include "core/health.h"
#include "core/status.h"
#include "passed-fds.h"
#include "serve/http.h"

/* The HTTP servers: one for each socket that systemd passed, or else for each address of Metrics.Listen=. */
struct listeners {
        sd_event *event;
        const struct view *view;
        struct health *health;
        bool passed;
        struct listener {
                char *address;              /* NULL: passed */
                struct http_server *server; /* NULL: the address is not to be had at present */
        } all[CONFIG_LISTEN_MAX];
        unsigned n;
        sd_event_source *retry;
};

/* The addresses of a host without IPv6, or without the interface as yet, are tried again. *view and *health outlive all. */
int listeners_open(
                struct listeners *l, sd_event *event, const struct view *view, struct health *health,
                const struct config *config, struct passed_fds *passed);
void listeners_close(struct listeners *l);

/*
 * Other addresses: opens those that are new before it closes those that are no more, and changes nothing when one cannot
 * be opened. Connections on an address that stays are kept. The error is logged with its remedy.
 */
int listeners_change(struct listeners *l, const struct config *config);
