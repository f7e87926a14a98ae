/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <linux/genetlink.h>
#include <linux/taskstats.h>
#include <string.h>

#include <delayd/limits.h>

#include "kernel/monotonic.h"
#include "kernel/taskstats-client.h"
#include "live.h"

#define TID_ABSENT 0x3FFFFFFFU /* beyond what pid_max can be */

struct replies {
        unsigned n;
        uint32_t tids[256];
        int errors[256];
        struct task_sample last;
};

static void collect(uint32_t tid, int error, const struct task_sample *sample, void *userdata) {
        struct replies *r = userdata;

        assert_true(r->n < 256);
        assert_int_equal(sample == NULL, error != 0);
        r->tids[r->n] = tid;
        r->errors[r->n++] = error;
        if (sample) {
                assert_int_equal(sample->tid, tid);
                r->last = *sample;
        }
}

static struct taskstats_client *client;

static int open_client(void **state) {
        return taskstats_client_open(&client);
}

static int close_client(void **state) {
        client = taskstats_client_close(client);
        return 0;
}

static void query_one(uint32_t tid, struct replies *r) {
        *r = (struct replies) {};
        assert_int_equal(taskstats_client_query(client, &tid, 1, collect, r), 0);
        assert_int_equal(r->n, 1);
        assert_int_equal(r->tids[0], tid);
}

static void knows_kernel_and_layout(void **state) {
        assert_true(taskstats_client_family(client) >= 16);
        assert_true(taskstats_client_version(client) >= 8);
        assert_int_equal(
                        taskstats_client_layout(client),
                        taskstats_client_version(client) == 15 ? TASKSTATS_LAYOUT_B : TASKSTATS_LAYOUT_A);
}

static void answers_about_ourselves(void **state) {
        char name[16];
        struct replies r;

        assert_int_equal(prctl(PR_SET_NAME, "who\xFF waits"), 0);
        assert_int_equal(prctl(PR_GET_NAME, name), 0);
        usleep(100); /* the time on the CPU is summed up when the task leaves it */
        query_one((uint32_t) getpid(), &r);
        assert_int_equal(r.errors[0], 0);
        assert_string_equal(r.last.comm, name);
        assert_int_equal(r.last.ppid, getppid());
        assert_int_equal(r.last.uid, getuid());
        assert_int_equal(r.last.version, taskstats_client_version(client));
        assert_true(r.last.run_nsec > 0);
        assert_true(r.last.minor_faults > 0);
}

static void start_time_is_between_fork_and_its_return(void **state) {
        struct replies r;

        for (unsigned i = 0; i < 50; i++) {
                uint64_t before = monotonic_nsec();
                pid_t child = fork();
                if (child == 0) {
                        pause();
                        _exit(EXIT_SUCCESS);
                }
                uint64_t after = monotonic_nsec();

                query_one((uint32_t) child, &r);
                kill(child, SIGKILL);
                live_reap(child);
                assert_int_equal(r.errors[0], 0);
                assert_true(r.last.start_min_nsec <= after);
                assert_true(r.last.start_max_nsec >= before);
                assert_true(r.last.start_max_nsec - r.last.start_min_nsec < NSEC_PER_SEC);
        }
}

static void absent_and_dead_tasks(void **state) {
        struct replies r;

        query_one(TID_ABSENT, &r);
        assert_int_equal(r.errors[0], -ESRCH);
        query_one(0, &r);
        assert_int_equal(r.errors[0], -ESRCH);

        /* A zombie keeps its counters until it is reaped. */
        siginfo_t info;
        pid_t child = fork();
        if (child == 0)
                _exit(EXIT_SUCCESS);
        assert_int_equal(waitid(P_PID, (id_t) child, &info, WEXITED | WNOWAIT), 0);
        query_one((uint32_t) child, &r);
        assert_int_equal(r.errors[0], 0);
        live_reap(child);
        query_one((uint32_t) child, &r);
        assert_int_equal(r.errors[0], -ESRCH);
}

static void many_are_answered_in_order(void **state) {
        static const size_t sizes[] = { 0, 1, 63, 64, 65, 128, 200 };
        uint32_t tids[200];

        for (size_t i = 0; i < 200; i++)
                tids[i] = i % 3 == 1 ? TID_ABSENT - (uint32_t) i : (uint32_t) (i % 3 ? getppid() : getpid());

        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
                struct replies r = {};

                assert_int_equal(taskstats_client_query(client, tids, sizes[k], collect, &r), 0);
                assert_int_equal(r.n, sizes[k]);
                for (size_t i = 0; i < sizes[k]; i++) {
                        assert_int_equal(r.tids[i], tids[i]);
                        assert_int_equal(r.errors[i], i % 3 == 1 ? -ESRCH : 0);
                }
        }

        assert_int_equal(taskstats_client_malformed(client), 0);
}

/* What is left of a query that was cut short is not taken for an answer to the next. */
static void late_replies_are_ignored(void **state) {
        struct {
                struct nlmsghdr header;
                struct genlmsghdr generic;
                struct nlattr attribute;
                uint32_t tid;
        } request = {
                .header = {
                        .nlmsg_len = sizeof(request),
                        .nlmsg_type = taskstats_client_family(client),
                        .nlmsg_flags = NLM_F_REQUEST,
                },
                .generic = { .cmd = TASKSTATS_CMD_GET, .version = TASKSTATS_GENL_VERSION },
                .attribute = { .nla_len = 8, .nla_type = TASKSTATS_CMD_ATTR_PID },
                .tid = (uint32_t) getppid(),
        };
        struct replies r;

        query_one((uint32_t) getpid(), &r);
        for (request.header.nlmsg_seq = 0; request.header.nlmsg_seq <= 64; request.header.nlmsg_seq++) /* ours among them */
                assert_int_equal(send(live_netlink_socket(NETLINK_GENERIC, 0), &request, sizeof(request), 0), sizeof(request));

        query_one((uint32_t) getpid(), &r);
        assert_int_equal(r.errors[0], 0);
        assert_int_equal(taskstats_client_malformed(client), 0);
}

/* Replies that find no room are gone; the query neither hangs nor takes one for another. */
static void missing_replies_are_reported(void **state) {
        uint32_t tids[64];
        unsigned missing = 0;
        struct replies r = {};

        for (size_t i = 0; i < 64; i++)
                tids[i] = (uint32_t) (i % 2 ? getppid() : getpid());

        int small = 1;
        assert_int_equal(setsockopt(live_netlink_socket(NETLINK_GENERIC, 0), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);

        assert_int_equal(taskstats_client_query(client, tids, 64, collect, &r), 0);
        assert_int_equal(r.n, 64);
        for (size_t i = 0; i < 64; i++) {
                assert_int_equal(r.tids[i], tids[i]);
                missing += r.errors[i] < 0; /* -ENODATA, or the kernel's own error where that found room */
        }
        assert_true(missing > 0 && missing < 64);

        query_one((uint32_t) getpid(), &r);
        assert_int_equal(r.errors[0], 0);
}

static int open_without_capability(void) {
        struct taskstats_client *other;

        if (setresuid(65534, 65534, 65534) < 0)
                return -EXDEV;
        return taskstats_client_open(&other);
}

static int query_without_capability(void) {
        struct replies r;

        if (setresuid(65534, 65534, 65534) < 0)
                return -EXDEV;
        query_one(1, &r);
        return r.errors[0];
}

static void permission_is_needed(void **state) {
        assert_int_equal(live_run_in_child(open_without_capability), -EPERM);
        assert_int_equal(live_run_in_child(query_without_capability), -EPERM);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(knows_kernel_and_layout, open_client, close_client),
                cmocka_unit_test_setup_teardown(answers_about_ourselves, open_client, close_client),
                cmocka_unit_test_setup_teardown(start_time_is_between_fork_and_its_return, open_client, close_client),
                cmocka_unit_test_setup_teardown(absent_and_dead_tasks, open_client, close_client),
                cmocka_unit_test_setup_teardown(many_are_answered_in_order, open_client, close_client),
                cmocka_unit_test_setup_teardown(late_replies_are_ignored, open_client, close_client),
                cmocka_unit_test_setup_teardown(missing_replies_are_reported, open_client, close_client),
                cmocka_unit_test_setup_teardown(permission_is_needed, open_client, close_client),
        };

        LIVE_SKIP_IF_IMPOSSIBLE();
        return cmocka_run_group_tests(tests, NULL, NULL);
}
