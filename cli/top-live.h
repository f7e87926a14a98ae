/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "delay-list.h"
#include "delayctl.h"

/* The live view: top-live.c asks the daemon and takes keys, top-screen.c draws. */

#define ALL_KINDS (-1)

struct live {
        const struct options *options;
        sd_event *event;
        sd_event_source *timer;
        sd_bus *bus;
        sd_bus_slot *call;

        /* What is asked for. */
        const struct list_class *class;
        delay_kind_set kinds;  /* that can be chosen from; 0 until a reply has told */
        int kind;              /* the one chosen, or ALL_KINDS */
        enum sort sort;
        uint64_t window_nsec;
        uint64_t delay_nsec;

        struct list_request request; /* of the call under way or the last one */
        struct json_object *list;    /* the last reply; NULL right after a change of the class */
        char *error;                 /* why there is no newer one */
        uint64_t n_replies;
        bool help;                   /* the keys are shown instead of the table */
        int signal;                  /* that ended it */
};

/* The kinds that are looked at; 0: all that the daemon collects. */
delay_kind_set live_kinds(const struct live *live);

/* Lines that the terminal has for the table. */
size_t live_table_lines(void);

/* Returns 0 or a negative errno. */
int live_draw(const struct live *live);
