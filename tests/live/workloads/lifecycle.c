/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tasks whose number and life do not go together as usual, each waiting for the disk before and after:
 *   exec-thread   threads read, then one that is not the leader replaces the program, which reads again
 *   leader-first  the first thread reads and ends, the others read on for the given time
 *   vfork         children made by vfork() replace their program at once, and read
 *   zombies       children read and end, and are left unreaped for the given time
 * Says in the end who it was.
 */
#include <err.h>
#include <pthread.h>
#include <sys/wait.h>

#include "cold.h"

#define THREADS 3
#define CHILDREN 8

static struct cold_file file;
static const char *file_path;
static unsigned long arg_blocks, arg_msec;

static _Noreturn void usage(const char *name) {
        errx(EXIT_FAILURE, "Usage: %s exec-thread|leader-first|vfork|zombies|read BLOCKS MSEC FILE", name);
}

static _Noreturn void say_and_exit(void) {
        printf("{\"pid\":%d}\n", getpid());
        exit(EXIT_SUCCESS);
}

static void read_some(unsigned long place) {
        read_cold(&file, (unsigned long) getpid() * 37 + place * arg_blocks, arg_blocks);
}

/* Reads on in small steps, for as long as the task lives. */
static void *read_for_long(void *userdata) {
        unsigned long steps = arg_msec / 100 + 1;

        for (unsigned long i = 0; i < steps; i++) {
                read_some(*(const unsigned long *) userdata);
                sleep_msec(100);
        }
        return NULL;
}

static void *read_and_stay(void *userdata) {
        read_some(*(const unsigned long *) userdata);
        for (;;)
                pause();
        return NULL;
}

static void *read_and_exec(void *userdata) {
        char blocks[24], msec[24];

        read_some(*(const unsigned long *) userdata);
        sleep_msec(arg_msec);
        snprintf(blocks, sizeof(blocks), "%lu", arg_blocks * 2);
        snprintf(msec, sizeof(msec), "%lu", arg_msec);
        execl("/proc/self/exe", "lifecycle", "read", blocks, msec, file_path, NULL);
        err(EXIT_FAILURE, "execl() failed");
}

static void start(void *(*function)(void *), unsigned long *place) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, function, place) != 0)
                errx(EXIT_FAILURE, "Cannot create a thread.");
}

static _Noreturn void exec_thread(void) {
        static unsigned long places[] = { 1, 2, 3 };

        start(read_and_stay, &places[0]);
        start(read_and_stay, &places[1]);
        read_some(0);
        start(read_and_exec, &places[2]);
        for (;;)
                pause();
}

static _Noreturn void leader_first(void) {
        static unsigned long places[THREADS] = { 1, 2, 3 };

        for (unsigned i = 0; i < THREADS; i++)
                start(read_for_long, &places[i]);
        read_some(0);
        printf("{\"pid\":%d}\n", getpid());
        fflush(stdout);
        pthread_exit(NULL);
}

static void reap_all(unsigned n) {
        int status;

        for (unsigned i = 0; i < n; i++)
                if (wait(&status) < 0 || status != 0)
                        errx(EXIT_FAILURE, "A child failed.");
}

static void vfork_readers(void) {
        char blocks[24];

        snprintf(blocks, sizeof(blocks), "%lu", arg_blocks);
        for (unsigned i = 0; i < CHILDREN; i++) {
                read_some(i);
                pid_t pid = vfork();
                if (pid < 0)
                        err(EXIT_FAILURE, "vfork() failed");
                if (pid == 0) {
                        execl("/proc/self/exe", "lifecycle", "read-silently", blocks, "0", file_path, NULL);
                        _exit(EXIT_FAILURE);
                }
        }
        reap_all(CHILDREN);
}

static void leave_zombies(void) {
        for (unsigned i = 0; i < CHILDREN; i++) {
                pid_t pid = fork();
                if (pid < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pid == 0) {
                        read_some(i);
                        _exit(EXIT_SUCCESS);
                }
        }
        sleep_msec(arg_msec);
        reap_all(CHILDREN);
}

int main(int argc, char *argv[]) {
        if (argc != 5)
                usage(argv[0]);

        arg_blocks = parse_number(argv[2], "BLOCKS", 0, 1000000);
        arg_msec = parse_number(argv[3], "MSEC", 0, 600000);
        file_path = argv[4];
        file = open_cold(file_path);

        if (strcmp(argv[1], "exec-thread") == 0)
                exec_thread();
        else if (strcmp(argv[1], "leader-first") == 0)
                leader_first();
        else if (strcmp(argv[1], "vfork") == 0)
                vfork_readers();
        else if (strcmp(argv[1], "zombies") == 0)
                leave_zombies();
        else if (strncmp(argv[1], "read", 4) == 0) {
                read_some(0);
                sleep_msec(arg_msec);
                read_some(1);
                if (strcmp(argv[1], "read") != 0)
                        return EXIT_SUCCESS;
        } else
                usage(argv[0]);

        say_and_exit();
}
