/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "collect/collector.h"
#include "core/diagnosis.h"
#include "kernel/host-facts.h"
#include "kernel/kernel-info.h"

void collector_diagnose(struct collector *c, const char *state_directory, int state_error, struct diagnosis *ret) {
        struct host_texts texts;
        struct host_facts host;
        struct status_facts status;

        host_facts_read(&host, &texts);
        collector_fill_status(c, &status);

        /* It runs: all that it asked for it got, but for what it can do without. */
        const struct feed_facts feed = {
                .tried = true,
                .net_admin = kernel_have_net_admin(),
                .connector = c->connector_error,
                .version = taskstats_client_version(c->client),
                .exotic_layout = taskstats_client_layout(c->client) == TASKSTATS_LAYOUT_B,
                .sockets = exit_listener_sockets(c->exits),
                .buffer_asked = c->config->receive_buffer,
                .buffer_granted = exit_listener_receive_buffer(c->exits),
                .cgroups = cgroup_tree_description(c->tree),
        };
        const struct daemon_facts daemon = {
                .status = &status,
                .accounting = c->accounting,
                .health = c->health,
                .events_lost = c->connector ? proc_connector_lost(c->connector) : 0,
                .cpu_budget = c->config->cpu_budget,
                .state_directory = state_directory,
                .state_error = state_error,
        };

        diagnose(ret, &host, &feed, &daemon);
}
