/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A service with the methods of delayd and fixed answers, for tests of delayctl: "fake-delayd MODE".
 * Prints "ready" when it is on the bus, then one line for each call with its arguments.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

#include <delayd/dbus.h>
#include <delayd/limits.h>

#define CONTAINER "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"

struct delays {
        uint64_t waits, total, p50, p90, p99, max, rejected, without_io, exact;
};

struct row {
        const char *cgroup, *unit, *container_id, *pod_uid;
        bool removed;
        uint64_t tasks, unaccounted;
        struct delays blkio, swapin;
};

/* In the order of blkio totals, as the daemon would send them. */
static const struct row rows[] = {
        { "/system.slice/postgresql.service", "postgresql.service", .tasks = 12,
          .blkio = { 4321, 61234567890, 2345678, 45678901, 234567890, 2345678901, 3, 7, 4000 },
          .swapin = { 5, 1250000, 200000, 400000, 450000, 456789, 0, 0, 5 } },
        { "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb7e1.slice/"
          "cri-containerd-" CONTAINER ".scope",
          .container_id = CONTAINER, .pod_uid = "b7e1", .tasks = 3,
          .blkio = { 100, 5000000000, 40000000, 90000000, 99000000, 100000000, 0, 0, 100 },
          .swapin = { 1000, 90000000000, 80000000, 150000000, 190000000, 200000000, 0, 0, 10 } },
        { "/system.slice/日本語.service", "日本語.service", .tasks = 1,
          .blkio = { 2, 3000000000, 1500000000, 2000000000, 2000000000, 2000000000, 0, 0, 2 } },
        { "/system.slice/cafe\xcc\x81.service", "cafe\xcc\x81.service", .tasks = 1,
          .blkio = { 1, 90000000, 90000000, 90000000, 90000000, 90000000, 0, 0, 1 } },
        { "/system.slice/gone.service", "gone.service", .removed = true,
          .blkio = { 1, 812, 812, 812, 812, 812, 0, 0, 1 } },
        { "/evil\x1b[2J\x07\xc2\x9b" "31m\x7f\xe2\x80\xae" "drowssap", .tasks = 1,
          .blkio = { 1, 1, 1, 1, 1, 1, 0, 0, 0 } },
        { "/system.slice/quiet.service", "quiet.service", .tasks = 4, .unaccounted = 4 },
        { "(unattributed)" },
};

#define ROW_COUNT (sizeof(rows) / sizeof(*rows))

static const char *mode;

static bool mode_is(const char *name) {
        return strcmp(mode, name) == 0;
}

static void key_u64(sd_bus_message *m, const char *key, uint64_t value) {
        sd_bus_message_append(m, "{sv}", key, "t", value);
}

/* NULL is unknown and left out. */
static void key_text(sd_bus_message *m, const char *key, const char *value) {
        if (value)
                sd_bus_message_append(m, "{sv}", key, "s", value);
}

static void key_bool(sd_bus_message *m, const char *key, bool value) {
        sd_bus_message_append(m, "{sv}", key, "b", (int) value);
}

static void open_key(sd_bus_message *m, const char *key, const char *signature) {
        sd_bus_message_open_container(m, 'e', "sv");
        sd_bus_message_append(m, "s", key);
        sd_bus_message_open_container(m, 'v', signature);
        sd_bus_message_open_container(m, 'a', signature + 1);
}

static void close_key(sd_bus_message *m) {
        sd_bus_message_close_container(m);
        sd_bus_message_close_container(m);
        sd_bus_message_close_container(m);
}

static void key_delays(sd_bus_message *m, const char *kind, const struct delays *d) {
        open_key(m, kind, "a{sv}");
        key_u64(m, "waits", d->waits);
        key_u64(m, "total_nsec", d->total);
        if (d->waits > 0) {
                key_u64(m, "mean_nsec", d->total / d->waits);
                key_u64(m, "p50_nsec", d->p50);
                key_u64(m, "p90_nsec", d->p90);
                key_u64(m, "p99_nsec", d->p99);
                key_u64(m, "max_nsec", d->max);
        }
        key_u64(m, "rejected_waits", d->rejected);
        key_u64(m, "without_io_waits", d->without_io);
        key_u64(m, "exact_waits", d->exact);
        close_key(m);
}

/* As if a thousand waits of a millisecond were below each cgroup that waited itself. */
static struct delays with_below(const struct delays *own) {
        struct delays all = *own;

        if (all.waits > 0) {
                all.waits += 1000;
                all.total += 1000000000;
        }
        return all;
}

static void key_subtree(sd_bus_message *m, const char *kinds, const struct row *row) {
        const struct delays blkio = mode_is("empty") ? (struct delays) {} : with_below(&row->blkio);
        const struct delays swapin = mode_is("empty") ? (struct delays) {} : with_below(&row->swapin);

        open_key(m, "subtree", "a{sv}");
        key_u64(m, "tasks", row->tasks + 100);
        key_u64(m, "unaccounted_tasks", row->unaccounted);
        if (!kinds[0] || strstr(kinds, "blkio"))
                key_delays(m, "blkio", &blkio);
        if (!kinds[0] || strstr(kinds, "swapin"))
                key_delays(m, "swapin", &swapin);
        close_key(m);
}

static void key_kinds(sd_bus_message *m, const char *kinds, const struct row *row) {
        static const struct delays none = {};

        if (!kinds[0] || strstr(kinds, "blkio"))
                key_delays(m, "blkio", mode_is("empty") ? &none : &row->blkio);
        if (!kinds[0] || strstr(kinds, "swapin"))
                key_delays(m, "swapin", mode_is("empty") ? &none : &row->swapin);
}

static uint64_t nearest_window(uint64_t nsec) {
        static const uint64_t windows[] = DELAYD_WINDOWS_NSEC;
        size_t i = 0;

        if (nsec == 0)
                return DELAYD_WINDOW_DEFAULT_NSEC;
        while (i + 1 < DELAYD_WINDOW_COUNT && nsec > (windows[i] + windows[i + 1]) / 2)
                i++;

        return windows[i];
}

/* Reads the arguments of a list, logs them and begins the reply. */
static int begin_list(
                sd_bus_message *call,
                sd_bus_message **ret_reply,
                const char **ret_kinds,
                uint64_t *ret_limit,
                bool *ret_recursive) {

        const char *sort, *option;
        uint64_t window;
        int r, recursive = false;

        r = sd_bus_message_read(call, "tsst", &window, ret_kinds, &sort, ret_limit);
        if (r >= 0)
                r = sd_bus_message_enter_container(call, 'a', "{sv}");
        if (r >= 0)
                r = sd_bus_message_read(call, "{sv}", &option, "b", &recursive);
        if (r < 0)
                return r;
        *ret_recursive = recursive;

        printf("%s window=%" PRIu64 " kinds=%s sort=%s limit=%" PRIu64 "%s\n",
               sd_bus_message_get_member(call), window, *ret_kinds, sort, *ret_limit, recursive ? " recursive" : "");
        fflush(stdout);

        if (strstr(*ret_kinds, "irq"))
                return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_INVALID_ARGS, "The kind irq is not collected.");
        if (mode_is("denied"))
                return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_ACCESS_DENIED, "no such luck");
        if (mode_is("deaf"))
                return 1;

        if (mode_is("failing"))
                return -EUCLEAN;

        r = sd_bus_message_new_method_return(call, ret_reply);
        if (r < 0)
                return r;

        return sd_bus_message_append(*ret_reply, "t", nearest_window(window));
}

static int list_cgroups(sd_bus_message *call, void *userdata, sd_bus_error *error) {
        sd_bus_message *m = NULL;
        const char *kinds;
        bool recursive;
        uint64_t limit;
        int r;

        r = begin_list(call, &m, &kinds, &limit, &recursive);
        if (r < 0 || !m)
                return r;

        sd_bus_message_open_container(m, 'a', "a{sv}");
        for (size_t i = 0; i < ROW_COUNT && (limit == 0 || i < limit); i++) {
                sd_bus_message_open_container(m, 'a', "{sv}");
                if (mode_is("newer"))
                        sd_bus_message_append(m, "{sv}", "flavour", "as", 2, "a", "b");
                key_text(m, "cgroup", rows[i].cgroup);
                key_text(m, "unit", rows[i].unit);
                key_text(m, "container_id", rows[i].container_id);
                key_text(m, "pod_uid", rows[i].pod_uid);
                key_bool(m, "removed", rows[i].removed);
                key_u64(m, "tasks", rows[i].tasks);
                key_u64(m, "unaccounted_tasks", rows[i].unaccounted);
                key_kinds(m, kinds, rows + i);
                if (recursive)
                        key_subtree(m, kinds, rows + i);
                sd_bus_message_close_container(m);
        }
        sd_bus_message_close_container(m);

        r = sd_bus_send(NULL, m, NULL);
        sd_bus_message_unref(m);
        return r;
}

static int list_tasks(sd_bus_message *call, void *userdata, sd_bus_error *error) {
        static const char *const comms[] = { "postgres", "evil\x1b]0;x\x07", "日本" };
        sd_bus_message *m = NULL;
        const char *kinds;
        bool recursive;
        uint64_t limit;
        int r;

        r = begin_list(call, &m, &kinds, &limit, &recursive);
        if (r < 0 || !m)
                return r;

        sd_bus_message_open_container(m, 'a', "a{sv}");
        for (size_t i = 0; i < 3 && !mode_is("empty") && (limit == 0 || i < limit); i++) {
                sd_bus_message_open_container(m, 'a', "{sv}");
                key_u64(m, "tid", 1000 + i);
                if (i != 1)
                        key_u64(m, "tgid", 1000);
                key_text(m, "comm", comms[i]);
                key_text(m, "cgroup", rows[i].cgroup);
                key_bool(m, "alive", i != 2);
                key_kinds(m, kinds, rows + i);
                sd_bus_message_close_container(m);
        }
        sd_bus_message_close_container(m);

        r = sd_bus_send(NULL, m, NULL);
        sd_bus_message_unref(m);
        return r;
}

static void key_buckets(sd_bus_message *m, bool wide) {
        open_key(m, "buckets", "aa{sv}");
        for (unsigned i = 0; i <= 40; i++) {
                /* A quarter of an octave each from 1 us on; what matters here is only that they rise. */
                uint64_t le = UINT64_C(1000) << (i / 4);

                sd_bus_message_open_container(m, 'a', "{sv}");
                if (i < 40)
                        key_u64(m, "le_nsec", le + le * (i % 4) / 4);
                key_u64(m, "waits", wide ? i + 1 : i == 10 ? 3 : i == 12 ? 100 : i == 13 ? 1 : 0);
                sd_bus_message_close_container(m);
        }
        close_key(m);
}

static int get_histogram(sd_bus_message *call, void *userdata, sd_bus_error *error) {
        const char *cgroup, *kind;
        sd_bus_message *m;
        uint64_t window;
        int r;

        r = sd_bus_message_read(call, "sst", &cgroup, &kind, &window);
        if (r < 0)
                return r;
        printf("GetHistogram cgroup=%s kind=%s window=%" PRIu64 "\n", cgroup, kind, window);
        fflush(stdout);

        if (strcmp(cgroup, "nosuch.service") == 0)
                return sd_bus_reply_method_errorf(call, DELAYD_BUS_ERROR_NO_SUCH_CGROUP,
                                                  "No cgroup or unit '%s\x1b[2J' is known.", cgroup);
        if (strcmp(cgroup, "leave") == 0)
                exit(0);

        r = sd_bus_message_new_method_return(call, &m);
        if (r < 0)
                return r;

        sd_bus_message_open_container(m, 'a', "{sv}");
        key_text(m, "cgroup", cgroup);
        key_text(m, "kind", kind[0] ? kind : "blkio");
        key_u64(m, "window_nsec", nearest_window(window));
        key_u64(m, "waits", mode_is("empty") ? 0 : strcmp(cgroup, "wide") == 0 ? 861 : 104);
        key_u64(m, "total_nsec", mode_is("empty") ? 0 : 832000);
        if (!mode_is("empty"))
                key_buckets(m, strcmp(cgroup, "wide") == 0);
        sd_bus_message_close_container(m);

        r = sd_bus_send(NULL, m, NULL);
        sd_bus_message_unref(m);
        return r;
}

static void key_problems(sd_bus_message *m) {
        open_key(m, "problems", "aa{sv}");
        sd_bus_message_append(m, "a{sv}", 3, "id", "s", "delay-accounting-off",
                              "message", "s", "The kernel does not count waits.",
                              "remedy", "s", "sysctl kernel.task_delayacct=1");
        sd_bus_message_append(m, "a{sv}", 2, "id", "s", "bus-slow", "message", "s", "Evil \x1b[2J message.");
        close_key(m);
}

static int get_status(sd_bus_message *call, void *userdata, sd_bus_error *error) {
        sd_bus_message *m;
        int r;

        r = sd_bus_message_new_method_return(call, &m);
        if (r < 0)
                return r;

        sd_bus_message_open_container(m, 'a', "{sv}");
        key_text(m, "version", "9.8.7");
        key_u64(m, "uptime_nsec", 7380 * NSEC_PER_SEC);
        key_text(m, "health", mode_is("empty") ? "ok" : "degraded");
        if (!mode_is("empty")) {
                key_problems(m);
                open_key(m, "kernel", "a{sv}");
                key_text(m, "release", "6.18.44");
                key_u64(m, "taskstats_version", 16);
                key_bool(m, "task_delayacct", false);
                key_text(m, "delayed_dequeue", "on");
                close_key(m);
                open_key(m, "exits", "a{sv}");
                key_u64(m, "received", 123456);
                key_u64(m, "lost", 7);
                key_text(m, "filter", "on");
                open_key(m, "attributed", "a{sv}");
                key_u64(m, "cache", 123000);
                close_key(m);
                close_key(m);
                key_u64(m, "cpu_nsec", 7380 * NSEC_PER_MSEC);
                key_u64(m, "rss_bytes", UINT64_C(7) << 20);
        }
        sd_bus_message_close_container(m);

        r = sd_bus_send(NULL, m, NULL);
        sd_bus_message_unref(m);
        return r;
}

static void key_check(
                sd_bus_message *m, const char *id, const char *title, const char *result, const char *message, const char *remedy) {

        sd_bus_message_open_container(m, 'a', "{sv}");
        key_text(m, "id", id);
        key_text(m, "title", title);
        key_text(m, "result", result);
        key_text(m, "message", message);
        key_text(m, "remedy", remedy);
        sd_bus_message_close_container(m);
}

static int diagnose(sd_bus_message *call, void *userdata, sd_bus_error *error) {
        sd_bus_message *m;
        int r;

        if (mode_is("replay"))
                return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_NOT_SUPPORTED, "A recording is shown.");

        r = sd_bus_message_new_method_return(call, &m);
        if (r < 0)
                return r;

        sd_bus_message_open_container(m, 'a', "a{sv}");
        key_check(m, "taskstats", "Taskstats", "ok", "Version 16 of the records.", NULL);
        if (!mode_is("empty")) {
                key_check(m, "delay-accounting", "Delay accounting", "warn", "kernel.task_delayacct is off.",
                          "Run 'sysctl kernel.task_delayacct=1'.");
                key_check(m, "evil", "Evil \x1b[2J", "strange", "Evil \x1b[2J message in /a/\xe2\x80\xae.", "\x07");
        }
        if (mode_is("failing"))
                key_check(m, "polling", "Problem", "fail", "Live tasks can no longer be asked for their delays.", "Restart delayd.");
        sd_bus_message_close_container(m);

        r = sd_bus_send(NULL, m, NULL);
        sd_bus_message_unref(m);
        return r;
}

static int reply_garbled(sd_bus_message *call, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(call, "su", "hello", 7);
}

static const sd_bus_vtable garbled_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("ListCgroups", "tssta{sv}", "su", reply_garbled, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("GetHistogram", "ssta{sv}", "su", reply_garbled, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("GetStatus", "", "su", reply_garbled, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Diagnose", "", "su", reply_garbled, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END,
};

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("ListCgroups", "tssta{sv}", "taa{sv}", list_cgroups, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("ListTasks", "tssta{sv}", "taa{sv}", list_tasks, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("GetHistogram", "ssta{sv}", "a{sv}", get_histogram, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("GetStatus", "", "a{sv}", get_status, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Diagnose", "", "aa{sv}", diagnose, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END,
};

int main(int argc, char *argv[]) {
        sd_bus *bus;
        int r;

        mode = argc > 1 ? argv[1] : "normal";

        r = sd_bus_open_system(&bus);
        if (r >= 0 && !mode_is("old"))
                r = sd_bus_add_object_vtable(bus, NULL, DELAYD_BUS_PATH, DELAYD_BUS_MANAGER_INTERFACE,
                                             mode_is("garbled") ? garbled_vtable : vtable, NULL);
        if (r >= 0)
                r = sd_bus_request_name(bus, DELAYD_BUS_NAME, 0);
        if (r < 0) {
                fprintf(stderr, "fake-delayd: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }

        puts("ready");
        fflush(stdout);

        while (r >= 0) {
                r = sd_bus_process(bus, NULL);
                if (r == 0)
                        r = sd_bus_wait(bus, UINT64_MAX);
        }

        return EXIT_SUCCESS;
}
