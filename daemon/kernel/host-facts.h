/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>

#include "core/diagnosis.h"

/* For the texts of host_facts and feed_facts. */
struct host_texts {
        char hidepid[32];
        char clocksource[64];
        char cgroups[128];
};

/* Looks at the host as this process sees it: /proc and /sys alone, nothing that waits. The facts point into *texts. */
void host_facts_read(struct host_facts *ret, struct host_texts *texts);

/*
 * Tries what delayd does at its start, and gives all of it back: counters of a task of our own, exit records with the
 * proof that they arrive, fork events, the cgroup hierarchy. Without CAP_NET_ADMIN only what needs no privilege. Takes a
 * second where records do not arrive.
 */
void feed_facts_try(struct feed_facts *ret, struct host_texts *texts, size_t receive_buffer);
