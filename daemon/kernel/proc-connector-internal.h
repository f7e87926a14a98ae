/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/proc-connector.h"

/* What proc-connector.c does with bytes, apart from its socket; nobody else includes this but tests. */

/* What the kernel sends, free of the headers of the build host: struct proc_event up to the fields that we read. */
struct proc_connector_event {
        uint32_t what;
        uint32_t cpu;
        uint64_t timestamp_nsec; /* CLOCK_MONOTONIC */
        uint32_t data[4];
};

enum {
        EVENT_NONE = 0, /* acknowledges a request: data[0] is an errno */
        EVENT_FORK = 1, /* parent_pid, parent_tgid, child_pid, child_tgid */
        EVENT_EXEC = 2, /* process_pid, process_tgid */
};

/* Returns true and the event if the datagram is one of cn_proc. */
bool proc_event_parse(const void *datagram, size_t size, struct proc_connector_event *ret_event, uint32_t *ret_ack);

/* Returns 1 if the handler was called, else 0. */
int proc_event_dispatch(const struct proc_connector_event *event, const struct proc_connector_handler *handler);
