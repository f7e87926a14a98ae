/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A forker in each cgroup that is named, which makes CHILDREN children that live for 1 ms, PARALLEL at a
 * time. Says who they are: the exit records of the children name their parent.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void enter(const char *cgroup) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
                err(EXIT_FAILURE, "Cannot enter %s", cgroup);
        close(fd);
}

__attribute__((noreturn))
static void forker(unsigned long children, unsigned long parallel) {
        static const struct timespec life = { .tv_nsec = 1000000 };
        unsigned long alive = 0;

        for (unsigned long i = 0; i < children; i++) {
                if (alive == parallel && wait(NULL) > 0)
                        alive--;

                pid_t pid = fork();
                if (pid < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pid == 0) {
                        nanosleep(&life, NULL);
                        _exit(EXIT_SUCCESS);
                }
                alive++;
        }
        while (wait(NULL) > 0)
                ;
        exit(EXIT_SUCCESS);
}

int main(int argc, char *argv[]) {
        char c;
        int go[2];

        if (argc < 4 || pipe(go) < 0)
                errx(EXIT_FAILURE, "Usage: %s CHILDREN PARALLEL CGROUP...", argv[0]);

        unsigned long children = strtoul(argv[1], NULL, 10), parallel = strtoul(argv[2], NULL, 10);

        printf("{\"pids\":[");
        for (int i = 3; i < argc; i++) {
                fflush(stdout);
                pid_t pid = fork();
                if (pid < 0)
                        err(EXIT_FAILURE, "fork() failed");
                if (pid == 0) {
                        close(go[1]);
                        enter(argv[i]);
                        if (read(go[0], &c, 1) < 0) /* until all are there */
                                _exit(EXIT_FAILURE);
                        forker(children, parallel);
                }
                printf("%s%d", i > 3 ? "," : "", pid);
        }
        puts("]}");
        fflush(stdout);

        if (read(STDIN_FILENO, &c, 1) < 0) /* until the tester is */
                err(EXIT_FAILURE, "read() failed");
        close(go[0]);
        close(go[1]);
        for (int i = 3; i < argc; i++) {
                int status;

                if (wait(&status) < 0 || status != 0)
                        errx(EXIT_FAILURE, "A forker failed");
        }
        puts("{\"done\":true}");
        return EXIT_SUCCESS;
}
