/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The file itself, so that the path of older kernels can be taken on a new one. */
#include "kernel/proc-connector.c"

#include <pthread.h>
#include <sched.h>
#include <spawn.h>

#include "live.h"

#define STORM 3000

struct tally {
        unsigned forks, execs;
        pid_t parent;
        pid_t exec_tgid;
        struct fork_event last;
};

static void on_fork(const struct fork_event *event, void *userdata) {
        struct tally *t = userdata;

        if (event->parent_tgid != (uint32_t) t->parent)
                return;
        t->forks++;
        t->last = *event;
}

static void on_exec(uint32_t tgid, void *userdata) {
        struct tally *t = userdata;

        t->execs += tgid == (uint32_t) t->exec_tgid;
}

static void drain(struct proc_connector *c, struct tally *t) {
        struct proc_connector_handler handler = { on_fork, on_exec, t };

        t->parent = getpid();
        assert_true(proc_connector_drain(c, &handler) >= 0);
}

/* As proc_connector_open() on a kernel before 6.6, which does not answer the longer request. */
static struct proc_connector *open_without_mask(void) {
        struct proc_connector *c = calloc(1, sizeof(*c));

        assert_non_null(c);
        c->batch = netlink_batch_new(BATCH_SIZE, DATAGRAM_SIZE);
        assert_non_null(c->batch);
        assert_int_equal(connect_socket(c), 0);
        assert_int_equal(subscribe_without_mask(c), 0);
        return c;
}

static struct proc_connector *open_with_mask(void) {
        struct proc_connector *c;

        assert_int_equal(proc_connector_open(&c), 0);
        return c;
}

static void see_forks(struct proc_connector *c) {
        struct tally t = {};

        for (unsigned i = 0; i < 500; i++) {
                uint64_t before = monotonic_nsec();
                pid_t child = live_short_child();

                drain(c, &t);
                assert_int_equal(t.forks, i + 1);
                assert_int_equal(t.last.tid, child);
                assert_int_equal(t.last.tgid, child);
                assert_int_equal(t.last.parent_tid, getpid());
                assert_true(t.last.time_nsec >= before && t.last.time_nsec <= monotonic_nsec());
        }

        assert_int_equal(proc_connector_lost(c), 0);
        proc_connector_close(c);
}

static void forks_are_reported(void **state) {
        see_forks(open_with_mask());
        see_forks(open_without_mask());
}

static void *note_tid(void *ret) {
        *(pid_t *) ret = gettid();
        return NULL;
}

static void see_thread_and_exec(struct proc_connector *c) {
        struct tally t = {};
        pthread_t thread;
        pid_t tid, child;
        char name[] = "true", *argv[] = { name, NULL };

        /* A thread belongs to its group, whoever started the process. */
        assert_int_equal(pthread_create(&thread, NULL, note_tid, &tid), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        drain(c, &t);
        assert_int_equal(t.forks, 1);
        assert_int_equal(t.last.tid, tid);
        assert_int_equal(t.last.tgid, getpid());
        assert_int_equal(t.last.parent_tid, getpid());
        assert_int_equal(t.last.parent_tgid, getpid());

        assert_int_equal(posix_spawn(&child, "/bin/true", NULL, NULL, argv, NULL), 0);
        live_reap(child);
        t.exec_tgid = child;
        drain(c, &t);
        assert_int_equal(t.forks, 2);
        assert_int_equal(t.execs, 1);
        proc_connector_close(c);
}

static void threads_and_execs_are_reported(void **state) {
        see_thread_and_exec(open_with_mask());
        see_thread_and_exec(open_without_mask());
}

/* Exits and all else are kept out by the kernel, whichever way it was asked. */
static void see_nothing_else(struct proc_connector *c) {
        unsigned seen = 0;
        int n;

        for (unsigned i = 0; i < 50; i++)
                live_short_child();

        while ((n = netlink_batch_receive(c->batch, c->fd)) > 0)
                for (unsigned i = 0; i < (unsigned) n; i++) {
                        size_t size;
                        const void *datagram = netlink_batch_datagram(c->batch, i, &size);
                        struct proc_connector_event event;
                        uint32_t ack;

                        assert_non_null(datagram);
                        assert_true(proc_event_parse(datagram, size, &event, &ack));
                        if (event.what == EVENT_NONE) /* somebody else subscribed */
                                continue;
                        assert_true(event.what == EVENT_FORK || event.what == EVENT_EXEC);
                        seen++;
                }

        assert_true(seen >= 50);
        proc_connector_close(c);
}

static void nothing_else_is_received(void **state) {
        struct proc_connector *c = open_with_mask();
        struct tally t = {};

        drain(c, &t); /* what came between the first request, for everything, and the second */
        see_nothing_else(c);
        see_nothing_else(open_without_mask());
}

static void an_overrun_is_counted(void **state) {
        struct proc_connector *c = open_with_mask();
        struct tally t = {};
        int small = 16 << 10;

        assert_true(live_no_enobufs(proc_connector_fd(c)));
        assert_int_equal(setsockopt(proc_connector_fd(c), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
        for (unsigned i = 0; i < STORM; i++)
                live_short_child();
        drain(c, &t);
        assert_true(t.forks < STORM / 4);
        assert_true(proc_connector_lost(c) >= STORM - t.forks);

        /* The feed goes on. */
        t = (struct tally) {};
        for (unsigned tries = 0; t.forks == 0; tries++) {
                assert_true(tries < 100);
                live_short_child();
                drain(c, &t);
        }
        proc_connector_close(c);
}

static int open_in_own_network(void) {
        struct proc_connector *c;

        if (unshare(CLONE_NEWNET) < 0)
                return -EXDEV;
        int r = proc_connector_open(&c);
        if (r == 0)
                proc_connector_close(c);
        return r;
}

static int open_in_own_pids(void) {
        int status;

        if (unshare(CLONE_NEWPID) < 0)
                return -EXDEV;
        pid_t child = fork();
        if (child == 0) {
                struct proc_connector *c;

                _exit(-proc_connector_open(&c));
        }
        return waitpid(child, &status, 0) == child && WIFEXITED(status) ? -WEXITSTATUS(status) : -EXDEV;
}

static void failures_have_their_errno(void **state) {
        assert_int_equal(live_run_in_child(open_in_own_network), -ECONNREFUSED);
        assert_int_equal(live_run_in_child(open_in_own_pids), -ETIMEDOUT);
}

/* Datagrams made by hand */

struct parts {
        struct nlmsghdr header;
        struct cb_id id;
        uint16_t length; /* of the event, as the connector says */
};

static bool parse_parts(const struct parts *parts, size_t size, struct proc_connector_event *ret) {
        uint8_t datagram[OFFSET_EVENT + sizeof(struct proc_connector_event)];
        struct cn_msg message = { .id = parts->id, .ack = 5, .len = parts->length };
        struct proc_connector_event event = { .what = EVENT_FORK, .data = { 1, 1, 2, 3 } };
        uint32_t ack = 0;

        memcpy(datagram, &parts->header, sizeof(parts->header));
        memcpy(datagram + NLMSG_HDRLEN, &message, sizeof(message));
        memcpy(datagram + OFFSET_EVENT, &event, sizeof(event));

        uint8_t *exact = malloc(size); /* so that a sanitizer sees one byte too many */
        assert_non_null(exact);
        memcpy(exact, datagram, size);
        bool parsed = proc_event_parse(exact, size, ret, &ack);
        free(exact);
        if (parsed)
                assert_int_equal(ack, 5);
        return parsed;
}

static void hostile_datagrams_are_ignored(void **state) {
        const size_t size = OFFSET_EVENT + sizeof(struct proc_connector_event);
        const struct parts good = {
                .header = { .nlmsg_len = (uint32_t) size, .nlmsg_type = NLMSG_DONE },
                .id = { CN_IDX_PROC, CN_VAL_PROC },
                .length = sizeof(struct proc_connector_event),
        };
        struct parts bad;
        struct proc_connector_event event;

        assert_true(parse_parts(&good, size, &event));
        assert_int_equal(event.data[3], 3);
        for (size_t cut = 1; cut < size; cut++)
                assert_false(parse_parts(&good, cut, &event));

        bad = good, bad.header.nlmsg_len++;
        assert_false(parse_parts(&bad, size, &event));
        bad = good, bad.header.nlmsg_len = 40;
        assert_false(parse_parts(&bad, size, &event));
        bad = good, bad.id.idx++;
        assert_false(parse_parts(&bad, size, &event));
        bad = good, bad.id.val++;
        assert_false(parse_parts(&bad, size, &event));
        bad = good, bad.length = 8;
        assert_false(parse_parts(&bad, size, &event));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(hostile_datagrams_are_ignored),
                cmocka_unit_test(forks_are_reported),
                cmocka_unit_test(threads_and_execs_are_reported),
                cmocka_unit_test(nothing_else_is_received),
                cmocka_unit_test(an_overrun_is_counted),
                cmocka_unit_test(failures_have_their_errno),
        };

        LIVE_SKIP_IF_IMPOSSIBLE();
        return cmocka_run_group_tests(tests, NULL, NULL);
}
