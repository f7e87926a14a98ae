/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <delayd/limits.h>

#include "core/accounting.h"
#include "fuzz.h"
#include "kernel/proc-connector-internal.h"

/* Datagrams of the proc connector: two bytes of length each, then the datagram, into an accounting. */

#define NOW (1000 * NSEC_PER_SEC)

static void on_fork(const struct fork_event *event, void *userdata) {
        struct accounting *a = userdata;

        CHECK(event->tid == event->tgid || event->parent_tid == event->tgid);
        if (accounting_fork(a, NOW, event) > 0)
                (void) accounting_place(a, NOW, event->tid, event->tgid, 1 + event->tid % 2);
}

static void on_exec(uint32_t tgid, void *userdata) {
        struct accounting *a = userdata;

        if (accounting_exec_ends_threads(a, tgid))
                accounting_exec(a, NOW, tgid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = 4,
                .max_exported = 1,
                .poll_interval_nsec = NSEC_PER_SEC,
        };
        struct accounting *a;

        CHECK(accounting_new(&config, &a) == 0);
        CHECK(accounting_cgroup_added(a, NOW, 1, 0, "/") == 0);
        CHECK(accounting_cgroup_added(a, NOW, 2, 1, "/two") == 0);
        const struct proc_connector_handler handler = { .fork = on_fork, .exec = on_exec, .userdata = a };

        while (size >= 2) {
                size_t length = (size_t) data[0] | (size_t) data[1] << 8;
                struct proc_connector_event event;
                uint32_t ack;

                data += 2;
                size -= 2;
                if (length > size)
                        length = size;

                void *datagram = fuzz_copy(data, length);
                if (proc_event_parse(datagram, length, &event, &ack))
                        (void) proc_event_dispatch(&event, &handler);
                free(datagram);
                data += length;
                size -= length;
        }

        size_t cursor = 0, tasks = 0;
        for (const struct cgroup *c; (c = cgroup_table_next(&a->cgroups, &cursor));)
                tasks += c->tasks;
        CHECK(tasks == a->tasks.n_live);

        accounting_age(a, NOW + 10 * NSEC_PER_SEC);
        accounting_free(a);
        return 0;
}
