/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/diagnosis.h"

/* A host on which all is well. */
static const struct host_facts good_host = {
        .release = "6.11.0", .major = 6, .minor = 11, .task_delayacct = 1, .boot_parameter = TRISTATE_ON,
        .user_ns = TRISTATE_ON, .pid_ns = TRISTATE_ON, .net_ns = TRISTATE_ON, .time_ns = TRISTATE_ON,
        .delayed_dequeue = TRISTATE_OFF, .hidepid = "", .sees_others = true, .clocksource = "tsc",
};
static const struct feed_facts good_feed = {
        .tried = true, .net_admin = true, .version = 14, .sockets = 2, .buffer_asked = 8 << 20, .buffer_granted = 8 << 20,
        .cgroups = "unified",
};

static void check_is(
                const struct diagnosis *d, const char *id, enum check_result result, const char *message, const char *remedy) {

        const struct check *check = diagnosis_find(d, id);

        assert_non_null(check);
        assert_int_equal(check->result, result);
        if (message && !strstr(check->message, message))
                fail_msg("%s: no \"%s\" in \"%s\"", id, message, check->message);
        if (remedy && (!check->remedy || !strstr(check->remedy, remedy)))
                fail_msg("%s: no \"%s\" in the remedy \"%s\"", id, remedy, check->remedy ?: "");
}

/* The diagnosis of these facts has this check, and is as a whole no better. */
static void expect(
                const struct host_facts *host, const struct feed_facts *feed, const char *id, enum check_result result,
                const char *message, const char *remedy) {

        static const char *const words[CHECK_RESULT_COUNT] = { "ok", "degraded", "failing", "ok" };
        struct diagnosis d = {};

        diagnose(&d, host, feed, NULL);
        assert_false(d.failed);
        check_is(&d, id, result, message, remedy);
        assert_string_equal(diagnosis_word(&d), words[result]);
        diagnosis_done(&d);
}

#define EXPECT_HOST(id, result, message, remedy, ...)                                              \
        do {                                                                                      \
                struct host_facts host = good_host;                                               \
                __VA_ARGS__;                                                                      \
                expect(&host, &good_feed, id, result, message, remedy);                           \
        } while (0)

#define EXPECT_FEED(id, result, message, remedy, ...)                                              \
        do {                                                                                      \
                struct feed_facts feed = good_feed;                                               \
                __VA_ARGS__;                                                                      \
                expect(&good_host, &feed, id, result, message, remedy);                           \
        } while (0)

static void all_is_well(void **state) {
        struct diagnosis d = {};

        diagnose(&d, &good_host, &good_feed, NULL);
        assert_string_equal(diagnosis_word(&d), "ok");
        for (size_t i = 0; i < d.n; i++) {
                assert_int_equal(d.checks[i].result, CHECK_OK);
                assert_null(d.checks[i].remedy); /* there is nothing to do */
        }
        diagnosis_done(&d);
}

static void host_faults(void **state) {
        EXPECT_HOST("delay-accounting", CHECK_WARN, "off", "sysctl kernel.task_delayacct=1", host.task_delayacct = 0);
        EXPECT_HOST("delay-accounting", CHECK_FAIL, "built without", "CONFIG_TASK_DELAY_ACCT", host.task_delayacct = -ENOENT);
        EXPECT_HOST("delay-accounting", CHECK_UNKNOWN, "Permission", NULL, host.task_delayacct = -EACCES);
        EXPECT_HOST("delay-accounting", CHECK_OK, "default", NULL,
                    host.task_delayacct = -ENOENT; host.major = 5; host.minor = 10; host.boot_parameter = TRISTATE_UNKNOWN);
        EXPECT_HOST("delay-accounting", CHECK_WARN, "nodelayacct", "nodelayacct",
                    host.task_delayacct = -ENOENT; host.major = 4; host.minor = 19; host.boot_parameter = TRISTATE_OFF);
        EXPECT_HOST("boot-parameter", CHECK_OK, "not on", "delayacct", host.boot_parameter = TRISTATE_UNKNOWN);
        EXPECT_HOST("user-namespace", CHECK_FAIL, "initial", "PrivateUsers=", host.user_ns = TRISTATE_OFF);
        EXPECT_HOST("pid-namespace", CHECK_FAIL, "exit records", "--pid=host", host.pid_ns = TRISTATE_OFF);
        EXPECT_HOST("time-namespace", CHECK_WARN, "forks", "initial", host.time_ns = TRISTATE_OFF);
        EXPECT_HOST("network-namespace", CHECK_OK, "exit records arrive", NULL, host.net_ns = TRISTATE_UNKNOWN);
        EXPECT_HOST("pressure", CHECK_OK, "cannot be read", "psi=1", host.pressure = -ENOENT);
        EXPECT_HOST("pressure", CHECK_WARN, "witness", "psi=1",
                    host.pressure = -EOPNOTSUPP; host.delayed_dequeue = TRISTATE_ON);
        EXPECT_HOST("hidepid", CHECK_WARN, "hidepid=invisible", "SupplementaryGroups=",
                    host.hidepid = "invisible"; host.sees_others = false);
        EXPECT_HOST("hidepid", CHECK_OK, "hidepid=2", NULL, host.hidepid = "2");
        EXPECT_HOST("swapin", CHECK_OK, "Since Linux 5.17", NULL, );
        EXPECT_HOST("swapin", CHECK_OK, "Before Linux 5.17", NULL, host.major = 5; host.minor = 16);
        EXPECT_HOST("swapin", CHECK_UNKNOWN, "odd", NULL, host.release = "odd"; host.major = 0);
        EXPECT_HOST("clock", CHECK_WARN, "hpet", "clocksource", host.clocksource = "hpet");
        EXPECT_HOST("delayed-dequeue", CHECK_OK, "fault", "NO_DELAY_DEQUEUE", host.delayed_dequeue = TRISTATE_ON);
        EXPECT_HOST("delayed-dequeue", CHECK_UNKNOWN, NULL, NULL, host.delayed_dequeue = TRISTATE_UNKNOWN);
}

static void feed_faults(void **state) {
        EXPECT_FEED("taskstats", CHECK_FAIL, "no taskstats", "CONFIG_TASKSTATS", feed.taskstats = -ENOENT);
        EXPECT_FEED("taskstats", CHECK_FAIL, "understood", "report", feed.taskstats = -EBADMSG);
        EXPECT_FEED("taskstats", CHECK_WARN, "Version 18", "newer version", feed.version = 18);
        EXPECT_FEED("taskstats", CHECK_OK, "Linux 6.14 alone", NULL, feed.exotic_layout = true);
        EXPECT_FEED("capability", CHECK_FAIL, "missing", "AmbientCapabilities=", feed.net_admin = false);
        EXPECT_FEED("capability", CHECK_UNKNOWN, "privileges", "as root", feed.net_admin = feed.tried = false);
        EXPECT_FEED("exit-records", CHECK_UNKNOWN, "Not tried", NULL, feed.net_admin = feed.tried = false);
        EXPECT_FEED("exit-records", CHECK_FAIL, "did not arrive", "network namespace", feed.exits = -ETIMEDOUT);
        EXPECT_FEED("exit-records", CHECK_FAIL, "refuses", "initial", feed.exits = -EINVAL);
        EXPECT_FEED("receive-buffer", CHECK_WARN, "208 KiB of the 8192 KiB", "net.core.rmem_max", feed.buffer_granted = 212992);
        EXPECT_FEED("proc-connector", CHECK_WARN, "no forks", "CONFIG_PROC_EVENTS", feed.connector = -ECONNREFUSED);
        EXPECT_FEED("cgroups", CHECK_FAIL, "No such file", "cgroup2", feed.cgroups = NULL; feed.cgroup_error = -ENOENT);
        EXPECT_FEED("cgroups", CHECK_OK, "v1 (memory)", "unified", feed.cgroups = "v1 (memory)");
}

static void network_namespace_is_named(void **state) {
        struct host_facts host = good_host;
        struct feed_facts feed = good_feed;
        struct diagnosis d = {};

        host.net_ns = TRISTATE_OFF;
        feed.exits = -ETIMEDOUT;
        diagnose(&d, &host, &feed, NULL);
        check_is(&d, "network-namespace", CHECK_FAIL, "never sends", "PrivateNetwork=");
        check_is(&d, "exit-records", CHECK_FAIL, NULL, NULL);
        assert_string_equal(diagnosis_word(&d), "failing");
        diagnosis_done(&d);

        /* Also where the namespaces of PID 1 may not be looked at. */
        host.net_ns = TRISTATE_UNKNOWN;
        diagnose(&d, &host, &feed, NULL);
        check_is(&d, "network-namespace", CHECK_FAIL, "never sends", "PrivateNetwork=");
        diagnosis_done(&d);
}

struct fixture {
        struct accounting *accounting;
        struct health health;
        struct status_facts status;
        struct daemon_facts daemon;
};

static int setup(void **state) {
        static struct fixture f;
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT, .max_cgroups = 100, .max_exported = 100, .poll_interval_nsec = 1000000000,
        };

        f = (struct fixture) {};
        if (accounting_new(&config, &f.accounting) < 0)
                return -1;
        f.daemon = (struct daemon_facts) {
                .status = &f.status, .accounting = f.accounting, .health = &f.health, .cpu_budget = 0.01,
        };
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        accounting_free(f->accounting);
        health_free(&f->health);
        return 0;
}

static void daemon_is_well(void **state) {
        struct fixture *f = *state;
        struct diagnosis d = {};

        f->daemon.state_directory = "/var/lib/delayd";
        diagnose(&d, &good_host, &good_feed, &f->daemon);
        assert_string_equal(diagnosis_word(&d), "ok");
        check_is(&d, "state-directory", CHECK_OK, "/var/lib/delayd", NULL);
        check_is(&d, "exits-lost", CHECK_OK, "None", NULL);
        diagnosis_done(&d);
}

static void refused_waits_are_counted(void **state) {
        struct fixture *f = *state;
        struct host_facts host = good_host;
        struct diagnosis d = {};
        struct cgroup *cgroup;

        assert_int_equal(cgroup_table_add(&f->accounting->cgroups, 1, 2, 0, "/a", &cgroup), 0);
        cgroup_stats(cgroup, DELAY_BLKIO)->totals.rejected_waits = 40;
        cgroup_stats(f->accounting->cgroups.unattributed, DELAY_BLKIO)->totals.rejected_waits = 2;
        host.delayed_dequeue = TRISTATE_ON;
        diagnose(&d, &host, &good_feed, &f->daemon);
        check_is(&d, "delayed-dequeue", CHECK_WARN, "42 so far", "NO_DELAY_DEQUEUE");
        diagnosis_done(&d);
}

static void unaccounted_tasks_are_named(void **state) {
        struct fixture *f = *state;
        struct diagnosis d = {};
        struct cgroup *cgroup;
        static const struct {
                const char *path;
                uint32_t tasks;
        } cgroups[] = { { "/a", 3 }, { "/b", 0 }, { "/c", 20 }, { "/d", 1 }, { "/e", 7 } };

        for (uint64_t i = 0; i < sizeof(cgroups) / sizeof(cgroups[0]); i++) {
                assert_int_equal(cgroup_table_add(&f->accounting->cgroups, 1, i + 2, 0, cgroups[i].path, &cgroup), 0);
                cgroup->unaccounted_tasks = cgroups[i].tasks;
        }
        diagnose(&d, &good_host, &good_feed, &f->daemon);
        check_is(&d, "unaccounted-tasks", CHECK_WARN, "31 of 0 tasks", "Restart");
        check_is(&d, "unaccounted-tasks", CHECK_WARN, ": 20 in /c, 7 in /e, 3 in /a.", NULL);
        diagnosis_done(&d);
}

static void problems_have_the_last_word(void **state) {
        struct fixture *f = *state;
        struct diagnosis d = {};

        f->status.exits_lost = 7;
        f->daemon.state_directory = "/var/lib/delayd";
        f->daemon.state_error = -ENOSPC;
        diagnose(&d, &good_host, &good_feed, &f->daemon);
        check_is(&d, "exits-lost", CHECK_OK, "7 exit records", NULL); /* long ago */
        check_is(&d, "state-directory", CHECK_WARN, "No space", "room");
        diagnosis_done(&d);

        assert_int_equal(health_raise(&f->health, "exits-lost", PROBLEM_DEGRADED, "7 were lost.", "Raise it."), 1);
        assert_int_equal(health_raise(&f->health, "delay-accounting-off", PROBLEM_DEGRADED, "It is off.", "Turn it on."), 1);
        assert_int_equal(health_raise(&f->health, "polling", PROBLEM_FAILING, "Nobody answers.", "Ask again."), 1);
        assert_int_equal(health_raise(&f->health, "bus-unavailable", PROBLEM_DEGRADED, "No bus.", "Start it."), 1);
        diagnose(&d, &good_host, &good_feed, &f->daemon);
        check_is(&d, "exits-lost", CHECK_WARN, "7 were lost.", "Raise it.");
        check_is(&d, "delay-accounting", CHECK_WARN, "It is off.", "Turn it on.");
        check_is(&d, "polling", CHECK_FAIL, "Nobody answers.", "Ask again.");
        assert_null(diagnosis_find(&d, "bus-unavailable"));
        assert_string_equal(diagnosis_word(&d), "failing");
        for (size_t i = 0; i < d.n; i++)
                for (size_t k = i + 1; k < d.n; k++)
                        assert_string_not_equal(d.checks[i].id, d.checks[k].id);
        diagnosis_done(&d);
}

static void too_many_checks(void **state) {
        struct diagnosis d = {};

        for (unsigned i = 0; i <= DIAGNOSIS_CHECKS_MAX; i++)
                diagnosis_add(&d, "id", "Title", CHECK_OK, "remedy", "message %u", i);
        assert_true(d.failed);
        assert_int_equal(d.n, DIAGNOSIS_CHECKS_MAX);
        diagnosis_done(&d);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_is_well),
                cmocka_unit_test(feed_faults),
                cmocka_unit_test(host_faults),
                cmocka_unit_test(network_namespace_is_named),
                cmocka_unit_test(too_many_checks),
                cmocka_unit_test_setup_teardown(daemon_is_well, setup, teardown),
                cmocka_unit_test_setup_teardown(problems_have_the_last_word, setup, teardown),
                cmocka_unit_test_setup_teardown(refused_waits_are_counted, setup, teardown),
                cmocka_unit_test_setup_teardown(unaccounted_tasks_are_named, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
