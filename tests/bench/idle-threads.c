/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A host with many tasks that do nothing: PROCESSES processes of THREADS threads each, taking turns in
 * the cgroups that are named. Says {"ready":true} when all are there, and ends with its standard input.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_SIZE 16384

static void *idle(void *unused) {
        for (;;)
                pause();
        return NULL;
}

static void enter(const char *cgroup) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
                err(EXIT_FAILURE, "Cannot enter %s", cgroup);
        close(fd);
}

static void child(unsigned long threads, const char *cgroup, int ready) {
        pthread_attr_t attributes;
        pthread_t thread;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (cgroup)
                enter(cgroup);
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, STACK_SIZE);
        for (unsigned long i = 1; i < threads; i++)
                if (pthread_create(&thread, &attributes, idle, NULL) != 0)
                        errx(EXIT_FAILURE, "No more threads");
        if (write(ready, "r", 1) != 1)
                _exit(EXIT_FAILURE);
        close(ready);
        idle(NULL);
}

int main(int argc, char *argv[]) {
        int ready[2];
        char c;

        if (argc < 3)
                errx(EXIT_FAILURE, "Usage: %s PROCESSES THREADS [CGROUP...]", argv[0]);

        unsigned long processes = strtoul(argv[1], NULL, 10), threads = strtoul(argv[2], NULL, 10);
        pid_t *pids = calloc(processes, sizeof(*pids));
        if (!pids || pipe(ready) < 0)
                err(EXIT_FAILURE, "Cannot start");

        for (unsigned long i = 0; i < processes; i++) {
                pids[i] = fork();
                if (pids[i] < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pids[i] == 0)
                        child(threads, argc > 3 ? argv[3 + i % (unsigned long) (argc - 3)] : NULL, ready[1]);
        }
        close(ready[1]);
        for (unsigned long i = 0; i < processes; i++)
                if (read(ready[0], &c, 1) != 1)
                        errx(EXIT_FAILURE, "Not all processes came up");

        puts("{\"ready\":true}");
        fflush(stdout);
        while (read(STDIN_FILENO, &c, 1) > 0)
                ;

        for (unsigned long i = 0; i < processes; i++)
                kill(pids[i], SIGKILL);
        while (wait(NULL) > 0)
                ;
        free(pids);
        return EXIT_SUCCESS;
}
