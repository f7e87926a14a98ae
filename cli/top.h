/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-bus.h>

#include "delay-list.h"
#include "delayctl.h"

/* What top begins with. */
const struct list_class *top_class(const struct options *options);

/* top on a terminal, until the user ends it. Returns an exit status. */
int top_live(sd_bus **bus, const struct options *options);
