/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-event.h>

#include "core/status.h"

/*
 * org.delayd1 on the system bus. The bus may be away at the start or go away later: the server then
 * raises the problem "bus-unavailable" and tries again every few seconds.
 */
struct bus_server;

int bus_server_new(sd_event *event, const struct view *view, struct bus_server **ret);
struct bus_server *bus_server_free(struct bus_server *server); /* returns NULL */
