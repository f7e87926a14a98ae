/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many tasks of many sorts in one cgroup: processes that end at once, that read a few cold blocks, that
 * have threads, whose leader ends first, that leave an orphan behind, and some that live on until the
 * tester closes our standard input, after they have had their waits. The choice follows from the seed.
 */
#include <err.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "cold.h"

#define PARALLEL 8
#define THREADS_MAX 4
#define STAYING_MAX 100

static struct cold_file file;
static int stay_fds[2];
static uint64_t seed;

static unsigned long random_below(unsigned long n) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return (unsigned long) (seed >> 16) % n;
}

static void read_some(void) {
        read_cold(&file, random_below(file.blocks), random_below(5));
}

/* Until the other end of the pipe is closed. */
static void stay(void) {
        char c;

        while (read(stay_fds[0], &c, 1) > 0)
                ;
}

/* The choices are made before the threads run, so that they need not share the seed. */
struct share {
        unsigned long first, blocks;
        bool stays;
};

static void *read_share(void *userdata) {
        const struct share *share = userdata;

        read_cold(&file, share->first, share->blocks);
        if (share->stays)
                stay();
        return NULL;
}

static void run_threads(bool leader_first, bool stays) {
        static struct share shares[THREADS_MAX];
        pthread_t threads[THREADS_MAX];
        unsigned long n = random_below(THREADS_MAX) + 1;

        for (unsigned long i = 0; i < n; i++) {
                shares[i] = (struct share) { random_below(file.blocks), random_below(5), stays };
                if (pthread_create(&threads[i], NULL, read_share, &shares[i]) != 0)
                        errx(EXIT_FAILURE, "Cannot create a thread.");
        }

        read_some();
        if (leader_first)
                pthread_exit(NULL);
        for (unsigned long i = 0; i < n; i++)
                pthread_join(threads[i], NULL);
}

static void leave_orphan(void) {
        pid_t pid = fork();

        if (pid < 0)
                err(EXIT_FAILURE, "fork() failed");
        read_some();
}

static void child(unsigned long sort, bool stays) {
        close(stay_fds[1]);
        if (stays) {
                if (sort % 2)
                        run_threads(false, true);
                read_some();
                stay();
                return;
        }

        switch (sort) {
        case 0 ... 2:
                break;
        case 3:
                run_threads(false, false);
                break;
        case 4:
                run_threads(true, false);
                break;
        case 5:
                leave_orphan();
                break;
        default:
                read_some();
        }
}

/* Reaps one of our own children; orphans that came to us on the way do not count. */
static void reap_child(pid_t pids[], unsigned long *n) {
        for (;;) {
                int status;
                pid_t pid = waitpid(-1, &status, 0);

                if (pid < 0 || status != 0)
                        errx(EXIT_FAILURE, "A child failed.");
                for (unsigned long i = 0; i < *n; i++)
                        if (pids[i] == pid) {
                                pids[i] = pids[--*n];
                                return;
                        }
        }
}

int main(int argc, char *argv[]) {
        static pid_t pids[PARALLEL + STAYING_MAX];
        unsigned long stayed = 0, alive = 0;

        if (argc != 5)
                errx(EXIT_FAILURE, "Usage: %s SEED PROCESSES STAYING FILE", argv[0]);

        seed = parse_number(argv[1], "SEED", 1, 1000000) * UINT64_C(0x9e3779b97f4a7c15);
        unsigned long processes = parse_number(argv[2], "PROCESSES", 1, 1000000);
        unsigned long staying = parse_number(argv[3], "STAYING", 1, STAYING_MAX);
        file = open_cold(argv[4]);

        /* Orphans come to us, so that all have ended and are reaped when we end. */
        if (pipe(stay_fds) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
                err(EXIT_FAILURE, "Cannot prepare");

        for (unsigned long i = 0; i < processes; i++) {
                bool stays = stayed < staying && i % (processes / staying + 1) == 0;
                unsigned long sort = random_below(12);

                if (alive >= PARALLEL + stayed)
                        reap_child(pids, &alive);

                pid_t pid = fork();
                if (pid < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pid == 0) {
                        child(sort, stays);
                        exit(EXIT_SUCCESS);
                }
                pids[alive++] = pid;
                stayed += stays;
        }
        while (alive > stayed)
                reap_child(pids, &alive);

        /* Those that stay go to sleep soon; only the tester can see that. */
        printf("{\"pid\":%d,\"staying\":%lu}\n", getpid(), stayed);
        fflush(stdout);
        hold();

        close(stay_fds[1]);
        for (int status; wait(&status) > 0;)
                if (status != 0)
                        errx(EXIT_FAILURE, "A child failed.");
        return EXIT_SUCCESS;
}
