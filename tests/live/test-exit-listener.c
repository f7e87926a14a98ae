/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The file itself, so that its steps can be taken one by one. */
#include "kernel/exit-listener.c"

#include <sched.h>

#include "kernel/taskstats-client.h"
#include "live.h"

#define STORM 4000
#define TIDS_MAX (1U << 22) /* more than pid_max can be */

static uint16_t family;
static enum taskstats_layout layout;

static int learn_family(void **state) {
        struct taskstats_client *client;

        int r = taskstats_client_open(&client);
        if (r < 0)
                return r;

        family = taskstats_client_family(client);
        layout = taskstats_client_layout(client);
        taskstats_client_close(client);
        return 0;
}

/* Records of our children, told from those of others by the parent. */
struct tally {
        unsigned ours, others;
        uint8_t *seen; /* by TID */
        struct task_sample last;
};

static void tally_record(const struct task_sample *sample, void *userdata) {
        struct tally *t = userdata;

        if (sample->ppid != (uint32_t) getpid()) {
                t->others++;
                return;
        }

        t->ours++;
        t->last = *sample;
        if (t->seen)
                t->seen[sample->tid]++;
}

static struct exit_listener *open_listener(size_t receive_buffer, delay_kind_set filter) {
        struct exit_listener_config config = {
                .family = family,
                .layout = layout,
                .receive_buffer = receive_buffer,
                .filter = filter,
        };
        struct exit_listener *l;

        assert_int_equal(exit_listener_open(&config, &l), 0);
        return l;
}

static void drain(struct exit_listener *l, struct tally *t) {
        do
                assert_true(exit_listener_drain(l, tally_record, t) >= 0);
        while (exit_listener_has_more(l));
}

static void every_child_has_its_record(void **state) {
        struct exit_listener *l = open_listener(8U << 20, 0);
        struct tally t = { .seen = calloc(TIDS_MAX, 1) };
        struct exit_listener_counts counts;
        pid_t children[STORM];

        assert_true(exit_listener_receive_buffer(l) >= 8U << 20);
        assert_false(exit_listener_filtering(l));
        for (int fd = 0; (fd = live_netlink_socket(NETLINK_GENERIC, fd)) >= 0; fd++)
                assert_true(live_no_enobufs(fd));
        drain(l, &t);

        for (unsigned i = 0; i < STORM; i++) {
                children[i] = live_short_child();
                if (i % 100 == 99)
                        drain(l, &t);
        }

        drain(l, &t);
        assert_int_equal(t.ours, STORM);
        /* On a busy host the numbers may wrap around, and two children have the same one. */
        for (unsigned i = 0; i < STORM; i++)
                t.seen[children[i]]--;
        for (unsigned i = 0; i < TIDS_MAX; i++)
                assert_int_equal(t.seen[i], 0);

        exit_listener_counts(l, &counts);
        assert_int_equal(counts.lost, 0);
        assert_int_equal(counts.gaps, 0);
        assert_int_equal(counts.malformed, 0);
        assert_int_equal(counts.received, t.ours + t.others);

        exit_listener_close(l);
        free(t.seen);
}

static void a_record_says_what_the_child_was(void **state) {
        struct exit_listener *l = open_listener(8U << 20, 0);
        struct tally t = {};

        for (unsigned i = 0; i < 50; i++) {
                drain(l, &t);

                uint64_t before = monotonic_nsec();
                pid_t child = fork();
                if (child == 0) {
                        usleep(500);
                        _exit(EXIT_SUCCESS);
                }
                uint64_t after = monotonic_nsec();
                live_reap(child);
                uint64_t end = monotonic_nsec();
                drain(l, &t);

                assert_int_equal(t.ours, i + 1);
                assert_int_equal(t.last.tid, child);
                assert_int_equal(t.last.tgid, child);
                assert_int_equal(t.last.uid, getuid());
                assert_true(t.last.last_of_group);
                assert_true(t.last.lifetime_nsec >= 500 * NSEC_PER_USEC && t.last.lifetime_nsec <= end - before);
                assert_true(t.last.start_min_nsec <= after);
                assert_true(t.last.start_max_nsec >= before);
                assert_true(t.last.start_max_nsec - t.last.start_min_nsec <= NSEC_PER_SEC);
        }

        exit_listener_close(l);
}

/* Returns how many children that were. */
static unsigned child_on_each_cpu(void) {
        cpu_set_t all, one;
        unsigned n = 0;

        assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                if (!CPU_ISSET(cpu, &all))
                        continue;
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
                live_short_child();
                n++;
        }
        assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
        return n;
}

/* What the drop counters say, what the sequence numbers say, and what was forked agree to the record. */
static void an_overrun_is_counted_exactly(void **state) {
        struct exit_listener *witness = open_listener(32U << 20, 0), *l = open_listener(16U << 10, 0);
        struct exit_listener_counts before, earlier, counts, witnessed;
        struct tally t = {}, w = {};

        child_on_each_cpu();
        drain(l, &t);
        drain(witness, &w);
        exit_listener_counts(l, &before);
        t = w = (struct tally) {};

        for (unsigned i = 0; i < STORM; i++)
                live_short_child();

        drain(l, &t);
        unsigned ours = t.ours;

        /* The next record of each CPU shows the gap at the end; others on the host may make a new one meanwhile. */
        unsigned tries = 0;
        do {
                exit_listener_counts(l, &earlier);
                child_on_each_cpu();
                drain(l, &t);
                exit_listener_counts(l, &counts);
                assert_true(counts.gaps >= earlier.lost && counts.gaps <= counts.lost);
                assert_true(tries++ < 100);
        } while (earlier.lost != counts.lost);
        drain(witness, &w);

        exit_listener_counts(witness, &witnessed);
        assert_int_equal(witnessed.lost, 0);
        assert_int_equal(witnessed.gaps, 0);
        assert_true(w.ours >= STORM);

        assert_true(ours < STORM / 4);
        assert_true(counts.lost - before.lost >= STORM - ours);                 /* ours that are missing, */
        assert_true(counts.lost - before.lost <= w.ours - t.ours + w.others);   /* and at most all of the others' */
        assert_int_equal(counts.gaps, counts.lost);
        assert_int_equal(counts.malformed, 0);

        /* The feed goes on; a storm of others may fill so small a buffer once more. */
        t = (struct tally) {};
        for (tries = 0; t.ours == 0; tries++) {
                assert_true(tries < 100);
                drain(l, &t);
                live_short_child();
                drain(l, &t);
        }

        exit_listener_close(l);
        exit_listener_close(witness);
}

static void records_before_the_acknowledgement_are_kept(void **state) {
        struct exit_listener *l = open_listener(8U << 20, 0);
        struct exit_listener_counts counts;
        struct tally t = {};
        unsigned children = 0;

        /* Registering once more changes nothing, and is acknowledged; here records wait beside the acknowledgement. */
        for (size_t i = 0; i < l->n; i++) {
                struct exit_socket *s = &l->sockets[i];
                uint32_t sequence;

                children += child_on_each_cpu();
                assert_int_equal(send_cpu_command(s, family, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, true, &sequence), 0);
                assert_int_equal(wait_for_ack(l, s, sequence), 0);
        }

        drain(l, &t);
        assert_int_equal(t.ours, children);
        drain(l, &t);
        assert_int_equal(t.ours, children); /* once */
        exit_listener_counts(l, &counts);
        assert_int_equal(counts.gaps, 0);
        assert_int_equal(counts.malformed, 0);
        exit_listener_close(l);
}

static void nothing_is_missing_at_the_start(void **state) {
        pid_t storm = live_start_storm();

        for (unsigned i = 0; i < 40; i++) {
                struct exit_listener *l = open_listener(8U << 20, 0);
                struct exit_listener_counts counts;
                struct tally t = {};
                unsigned tries = 0;

                while (exit_listener_drain(l, tally_record, &t) == 0) {
                        assert_true(tries++ < 1000);
                        usleep(1000);
                }
                usleep(1000);
                drain(l, &t);
                exit_listener_counts(l, &counts);
                assert_int_equal(counts.gaps, 0);
                assert_int_equal(counts.malformed, 0);
                exit_listener_close(l);
        }

        kill(storm, SIGKILL);
        live_reap(storm);
}

/* Whoever gets the port id next does not get our records. */
static void closing_deregisters(void **state) {
        struct exit_listener *l = open_listener(8U << 20, 0);
        struct sockaddr_nl address = {
                .nl_family = AF_NETLINK,
                .nl_pid = nl_socket_get_local_port(l->sockets[0].netlink),
        };
        uint8_t buf[64];

        exit_listener_close(l);
        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        child_on_each_cpu();
        assert_int_equal(recv(fd, buf, sizeof(buf), MSG_DONTWAIT), -1);
        assert_int_equal(errno, EAGAIN);
        close(fd);
}

#define FILE_SIZE (256U << 10)
#define BLOCK_SIZE 4096U

static int delayacct_before;

static int delayacct_on(void **state) {
        delayacct_before = kernel_task_delayacct();
        live_set_delayacct(true);
        return 0;
}

static int delayacct_back(void **state) {
        if (delayacct_before == 0)
                live_set_delayacct(false);
        return 0;
}

/* Forks a child that waits for the disk: reads past the page cache. Returns the number of its reads. */
static unsigned waiting_child(int fd) {
        int status;

        pid_t child = fork();
        if (child == 0) {
                void *block;
                unsigned n = 0;

                if (posix_memalign(&block, BLOCK_SIZE, BLOCK_SIZE) != 0)
                        _exit(0);
                while (n < 32 && pread(fd, block, BLOCK_SIZE, n * BLOCK_SIZE) == BLOCK_SIZE)
                        n++;
                _exit((int) n);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        return (unsigned) WEXITSTATUS(status);
}

/* A file of real blocks, opened for reads past the page cache; skips where the file system cannot. */
static int open_direct(const char *path) {
        static char block[BLOCK_SIZE];

        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        memset(block, 'x', sizeof(block));
        for (unsigned i = 0; i < FILE_SIZE / BLOCK_SIZE; i++)
                assert_int_equal(write(fd, block, BLOCK_SIZE), BLOCK_SIZE);
        assert_int_equal(fsync(fd), 0);
        close(fd);

        fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        unlink(path);
        if (fd < 0) {
                print_message("# no O_DIRECT in %s\n", path);
                skip();
        }

        return fd;
}

static void the_filter_drops_what_never_waited(void **state) {
        struct exit_listener *l = open_listener(8U << 20, DELAY_KINDS_DEFAULT);
        struct exit_listener_counts counts;
        struct tally t = {};
        int fd = open_direct(SCRATCH "/direct-read");

        assert_true(exit_listener_filtering(l));
        for (unsigned i = 0; i < 500; i++)
                live_short_child();
        drain(l, &t);
        assert_int_equal(t.ours, 0);

        for (unsigned i = 0; i < 20; i++) {
                assert_int_equal(waiting_child(fd), 32);
                drain(l, &t);
                assert_int_equal(t.ours, i + 1);
                assert_true(t.last.delays[DELAY_BLKIO].count > 0);
                assert_true(t.last.delays[DELAY_BLKIO].total_nsec > 0);
                assert_int_equal(t.last.read_bytes, 32 * BLOCK_SIZE);
        }

        exit_listener_counts(l, &counts);
        assert_int_equal(counts.lost, 0); /* dropped on purpose is not lost */
        assert_int_equal(counts.gaps, 0);
        exit_listener_close(l);
        close(fd);
}

static void the_self_test_sees_through_the_filter(void **state) {
        struct exit_listener *l = open_listener(8U << 20, DELAY_KINDS_DEFAULT);
        struct tally t = {};

        assert_int_equal(exit_listener_self_test(l, NSEC_PER_SEC, tally_record, &t), 0);
        assert_int_equal(t.ours, 0); /* the test's own child is not passed on */
        assert_true(exit_listener_filtering(l));
        live_short_child();
        drain(l, &t);
        assert_int_equal(t.ours, 0);
        exit_listener_close(l);

        l = open_listener(8U << 20, 0);
        live_short_child();
        assert_int_equal(exit_listener_self_test(l, NSEC_PER_SEC, tally_record, &t), 0);
        assert_int_equal(t.ours, 1);
        exit_listener_close(l);
}

static int self_test_in_own_network(void) {
        struct exit_listener_config config = { .family = family, .layout = layout, .receive_buffer = 1U << 20 };
        struct exit_listener *l;
        struct tally t = {};

        if (unshare(CLONE_NEWNET) < 0)
                return -EXDEV;

        /* Registration succeeds there, but nothing is ever sent. */
        int r = exit_listener_open(&config, &l);
        if (r < 0)
                return r;
        r = exit_listener_self_test(l, 100 * NSEC_PER_MSEC, tally_record, &t);
        exit_listener_close(l);
        return r;
}

static int open_without_capability(void) {
        struct exit_listener_config config = { .family = family, .layout = layout, .receive_buffer = 1U << 20 };
        struct exit_listener *l;

        if (setresuid(65534, 65534, 65534) < 0)
                return -EXDEV;
        return exit_listener_open(&config, &l);
}

static int open_in_own_pids(void) {
        struct exit_listener_config config = { .family = family, .layout = layout, .receive_buffer = 1U << 20 };
        struct exit_listener *l;
        int status;

        if (unshare(CLONE_NEWPID) < 0)
                return -EXDEV;
        pid_t child = fork();
        if (child == 0)
                _exit(-exit_listener_open(&config, &l));
        return waitpid(child, &status, 0) == child && WIFEXITED(status) ? -WEXITSTATUS(status) : -EXDEV;
}

static void failures_have_their_errno(void **state) {
        assert_int_equal(live_run_in_child(self_test_in_own_network), -ETIMEDOUT);
        assert_int_equal(live_run_in_child(open_without_capability), -EPERM);
        assert_int_equal(live_run_in_child(open_in_own_pids), -EINVAL);
}

/* Leaves the sockets behind, as a daemon does that keeps them in the descriptor store. */
static void leave(struct exit_listener *l, struct exit_feed *ret_feed, int sockets[static EXIT_FEED_SOCKETS_MAX]) {
        bool adopted;

        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++) {
                int fd = exit_listener_socket(l, i, &adopted);

                sockets[i] = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -EBADF;
        }
        exit_listener_feed(l, ret_feed);
        exit_listener_keep(l);
        exit_listener_close(l);
}

static struct exit_listener *take_over(const struct exit_feed *feed, int *sockets, size_t receive_buffer) {
        struct exit_listener_config config = {
                .family = family,
                .layout = layout,
                .receive_buffer = receive_buffer,
                .feed = feed,
                .sockets = sockets,
        };
        struct exit_listener *l;

        assert_int_equal(exit_listener_open(&config, &l), 0);
        return l;
}

static void nothing_is_lost_between_two_listeners(void **state) {
        struct exit_listener *l = open_listener(8U << 20, 0);
        struct exit_listener_counts counts;
        struct exit_feed feed;
        struct tally t = {};
        int sockets[EXIT_FEED_SOCKETS_MAX];
        bool adopted;

        for (unsigned round = 0; round < 4; round++) {
                for (unsigned i = 0; i < 100; i++)
                        live_short_child();
                drain(l, &t);
                for (unsigned i = 0; i < 100; i++)
                        live_short_child();
                leave(l, &feed, sockets);
                for (unsigned i = 0; i < 100; i++)
                        live_short_child();

                l = take_over(&feed, sockets, 8U << 20);
                for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++) {
                        assert_int_equal(sockets[i], -EBADF);
                        assert_true(exit_listener_socket(l, i, &adopted) < 0 || adopted);
                }
                drain(l, &t);
                assert_int_equal(t.ours, 300 * (round + 1));
        }

        exit_listener_counts(l, &counts);
        assert_int_equal(counts.received, t.ours + t.others);
        assert_int_equal(counts.lost, 0);
        exit_listener_close(l);
}

static void losses_between_two_listeners_are_counted_once(void **state) {
        struct exit_listener *witness = open_listener(32U << 20, 0), *l = open_listener(16U << 10, 0);
        struct exit_listener_counts counts;
        struct exit_feed feed;
        struct tally t = {}, w = {};
        int sockets[EXIT_FEED_SOCKETS_MAX];

        for (unsigned round = 0; round < 4; round++) {
                for (unsigned i = 0; i < 500; i++)
                        live_short_child();
                leave(l, &feed, sockets);
                for (unsigned i = 0; i < 500; i++)
                        live_short_child();
                l = take_over(&feed, sockets, 16U << 10);
                drain(l, &t);
        }
        exit_listener_counts(l, &counts);
        drain(witness, &w);

        assert_true(w.ours == 4000 && t.ours < 2000);
        assert_int_equal(counts.received, t.ours + t.others);
        assert_true(counts.lost >= w.ours - t.ours);            /* ours that are missing, */
        assert_true(counts.lost <= w.ours - t.ours + w.others); /* and at most all of the others' */
        exit_listener_close(l);
        exit_listener_close(witness);
}

static void sockets_of_another_kind_are_not_taken(void **state) {
        struct exit_feed feed = { .received = 5, .n_sockets = 1000 };
        struct tally t = {};
        int sockets[EXIT_FEED_SOCKETS_MAX];
        bool adopted;

        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++)
                sockets[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        struct exit_listener *l = take_over(NULL, sockets, 8U << 20);
        assert_true(exit_listener_socket(l, 0, &adopted) >= 0 && !adopted);
        live_short_child();
        drain(l, &t);
        assert_int_equal(t.ours, 1);
        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++) {
                assert_true(sockets[i] >= 0);
                close(sockets[i]);
        }

        /* Registered for other CPUs, who knows which. */
        leave(l, &(struct exit_feed) {}, sockets);
        l = take_over(&feed, sockets, 8U << 20);
        assert_true(exit_listener_socket(l, 0, &adopted) >= 0 && !adopted);
        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++)
                if (sockets[i] >= 0)
                        close(sockets[i]);
        live_short_child();
        drain(l, &t);
        assert_int_equal(t.ours, 2);
        exit_listener_close(l);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_child_has_its_record),
                cmocka_unit_test(a_record_says_what_the_child_was),
                cmocka_unit_test(an_overrun_is_counted_exactly),
                cmocka_unit_test(records_before_the_acknowledgement_are_kept),
                cmocka_unit_test(nothing_is_missing_at_the_start),
                cmocka_unit_test(closing_deregisters),
                cmocka_unit_test(nothing_is_lost_between_two_listeners),
                cmocka_unit_test(losses_between_two_listeners_are_counted_once),
                cmocka_unit_test(sockets_of_another_kind_are_not_taken),
                cmocka_unit_test_setup_teardown(the_filter_drops_what_never_waited, delayacct_on, delayacct_back),
                cmocka_unit_test(the_self_test_sees_through_the_filter),
                cmocka_unit_test(failures_have_their_errno),
        };

        LIVE_SKIP_IF_IMPOSSIBLE();
        return cmocka_run_group_tests(tests, learn_family, NULL);
}
