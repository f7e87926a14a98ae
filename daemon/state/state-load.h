/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/accounting.h"
#include "core/exit-feed.h"
#include "core/state.h"
#include "state/state-file.h"

/*
 * Chooses among saved states: the newest counters, and the newest windows that are not newer than these. What
 * cannot be used is said, and set aside if it is a file.
 */
#define STATE_CANDIDATES_MAX 8

struct state_candidate {
        const struct state_directory *directory; /* NULL: from the descriptor store */
        const char *name;
        uint8_t *bytes;
        size_t size;
        bool usable;
        struct state_meta meta;
};

struct state_loader {
        uint8_t boot_id[STATE_BOOT_ID_SIZE];
        struct state_candidate candidates[STATE_CANDIDATES_MAX];
        unsigned n;
};

int state_loader_begin(struct state_loader *l);
void state_loader_add_fd(struct state_loader *l, int fd);
void state_loader_add_file(struct state_loader *l, const struct state_directory *directory, const char *name);

/* Returns 1 and what was saved, 0 and a new accounting, or -ENOMEM. */
int state_loader_load(
                struct state_loader *l,
                const struct accounting_config *config,
                struct accounting **ret,
                struct exit_feed *ret_feed);

void state_loader_end(struct state_loader *l);
