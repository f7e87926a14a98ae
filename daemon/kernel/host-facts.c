/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "kernel/cgroup-tree.h"
#include "kernel/exit-listener.h"
#include "kernel/host-facts.h"
#include "kernel/kernel-info.h"
#include "kernel/pressure.h"
#include "kernel/proc-connector.h"
#include "kernel/taskstats-client.h"

#define SELF_TEST_TIMEOUT_NSEC NSEC_PER_SEC

/* Reads the start of a small file without its last newline; "" on any error. */
static void read_text(const char *path, char *buf, size_t size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

        ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);
        buf[n > 0 ? n : 0] = '\0';
        if (n > 0 && buf[n - 1] == '\n')
                buf[n - 1] = '\0';
}

static enum tristate boot_parameter(void) {
        enum tristate value = TRISTATE_UNKNOWN;
        char line[4096], *rest = line, *word;

        read_text("/proc/cmdline", line, sizeof(line));

        /* The last one counts. */
        while ((word = strsep(&rest, " ")))
                if (strcmp(word, "delayacct") == 0)
                        value = TRISTATE_ON;
                else if (strcmp(word, "nodelayacct") == 0)
                        value = TRISTATE_OFF;

        return value;
}

/* The option hidepid= of the mount on /proc, of which the last one is seen. */
static void read_hidepid(char *ret, size_t size) {
        _cleanup_fclose_ FILE *file = fopen("/proc/self/mounts", "re");
        _cleanup_free_ char *line = NULL;
        size_t allocated = 0;

        ret[0] = '\0';
        while (file && getline(&line, &allocated, file) >= 0) {
                char *rest = line;
                const char *point = (strsep(&rest, " "), strsep(&rest, " ")), *type = strsep(&rest, " ");
                char *options = strsep(&rest, " "), *option;

                if (!options || strcmp(point, "/proc") != 0 || strcmp(type, "proc") != 0)
                        continue;

                ret[0] = '\0';
                while ((option = strsep(&options, ",")))
                        if (strncmp(option, "hidepid=", strlen("hidepid=")) == 0
                            && strcmp(option, "hidepid=off") != 0 && strcmp(option, "hidepid=0") != 0)
                                snprintf(ret, size, "%s", option + strlen("hidepid="));
        }
}

/* PID 1 is another user's, unless we are root, who sees all. */
static bool can_read_others(void) {
        _cleanup_close_ int fd = open("/proc/1/cgroup", O_RDONLY | O_CLOEXEC);

        return fd >= 0;
}

void host_facts_read(struct host_facts *ret, struct host_texts *texts) {
        uint64_t stall_nsec;

        read_hidepid(texts->hidepid, sizeof(texts->hidepid));
        read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  texts->clocksource, sizeof(texts->clocksource));

        *ret = (struct host_facts) {
                .release = kernel_release(),
                .task_delayacct = kernel_task_delayacct(),
                .boot_parameter = boot_parameter(),
                .user_ns = kernel_in_initial_namespace("user"),
                .pid_ns = kernel_in_initial_namespace("pid"),
                .net_ns = kernel_in_initial_namespace("net"),
                .time_ns = kernel_in_initial_namespace("time"),
                .delayed_dequeue = kernel_delayed_dequeue(),
                .pressure = pressure_read_host_io(&stall_nsec),
                .hidepid = texts->hidepid,
                .sees_others = can_read_others(),
                .clocksource = texts->clocksource,
        };

        if (sscanf(ret->release, "%u.%u", &ret->major, &ret->minor) != 2)
                ret->major = ret->minor = 0;
}

static void ignore_record(const struct task_sample *sample, void *userdata) {
}

static int try_exits(struct feed_facts *ret, const struct taskstats_client *client, size_t receive_buffer) {
        const struct exit_listener_config config = {
                .family = taskstats_client_family(client),
                .layout = taskstats_client_layout(client),
                .receive_buffer = receive_buffer,
        };
        struct exit_listener *exits;

        int r = exit_listener_open(&config, &exits);
        if (r < 0)
                return r;

        ret->sockets = exit_listener_sockets(exits);
        ret->buffer_asked = receive_buffer;
        ret->buffer_granted = exit_listener_receive_buffer(exits);
        r = exit_listener_self_test(exits, SELF_TEST_TIMEOUT_NSEC, ignore_record, NULL);
        exit_listener_close(exits);
        return r;
}

static void try_cgroups(struct feed_facts *ret, struct host_texts *texts) {
        static const struct cgroup_tree_handler handler = {};
        struct cgroup_tree *tree;

        ret->cgroup_error = cgroup_tree_open(NULL, &handler, &tree);
        if (ret->cgroup_error < 0)
                return;

        snprintf(texts->cgroups, sizeof(texts->cgroups), "%s", cgroup_tree_description(tree));
        ret->cgroups = texts->cgroups;
        cgroup_tree_close(tree);
}

void feed_facts_try(struct feed_facts *ret, struct host_texts *texts, size_t receive_buffer) {
        struct proc_connector *connector;
        struct taskstats_client *client;

        *ret = (struct feed_facts) { .net_admin = kernel_have_net_admin() };
        ret->tried = ret->net_admin;

        try_cgroups(ret, texts);

        /* Whether the kernel has the family is for everyone to know. */
        ret->taskstats = taskstats_client_open(&client);
        if (ret->taskstats < 0) {
                ret->exits = ret->taskstats;
                return;
        }

        ret->version = taskstats_client_version(client);
        ret->exotic_layout = taskstats_client_layout(client) == TASKSTATS_LAYOUT_B;
        ret->exits = try_exits(ret, client, receive_buffer);
        taskstats_client_close(client);

        ret->connector = proc_connector_open(&connector);
        if (ret->connector >= 0)
                proc_connector_close(connector);
}
