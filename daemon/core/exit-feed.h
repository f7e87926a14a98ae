/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

/* What the next daemon has to know of the sockets for exit records, to go on counting where this one ended. */
#define EXIT_FEED_SOCKETS_MAX 64

struct exit_feed {
        uint64_t received;
        uint64_t lost;
        uint64_t malformed;
        unsigned n_sockets;
        struct {
                uint32_t drops;      /* of the kernel's own counter, those that are in lost */
                uint64_t empty_nsec; /* CLOCK_MONOTONIC: nothing was queued then */
        } sockets[EXIT_FEED_SOCKETS_MAX];
};
