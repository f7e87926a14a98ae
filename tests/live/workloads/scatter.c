/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Short-lived tasks in many cgroups, each of which waits for the disk at least once, in the ways in which
 * tasks come into cgroups. Knows of each where it waited:
 *   fork, exec, threads, double-fork   by inheritance: a maker in each cgroup, whose children read, replace
 *                                      their program first, have threads that read, or leave that to a child
 *   move, move-exec                    children of one maker move themselves, then read (after an exec)
 *   moved, moved-exec                  the maker moves them
 *   moved-thread                       a thread moves itself (tasks of v1)
 *   into, into-exec                    CLONE_INTO_CGROUP: they begin there
 * Prints {"tasks":[[TID,PLACE],...]}, PLACE being the number of the directory.
 */
#include <err.h>
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "cold.h"

#define PLACES_MAX 256
#define THREADS 2

static struct {
        atomic_uint n;
        unsigned allocated;
        struct {
                pid_t tid;
                unsigned place;
        } tasks[];
} *truth;

static struct {
        char *directory;
        int fd;       /* of the directory */
        int procs_fd; /* to move processes with */
} places[PLACES_MAX];

static unsigned n_places;
static const char *file_path;
static int file_fd;
static unsigned long file_blocks, msec;

static void note(unsigned place) {
        unsigned i = atomic_fetch_add(&truth->n, 1);

        if (i >= truth->allocated)
                errx(EXIT_FAILURE, "More tasks than expected.");
        truth->tasks[i].tid = gettid();
        truth->tasks[i].place = place;
}

/* At least one read that waits, and more until the task is as old as it should be. */
static void read_for_a_while(void) {
        static _Thread_local _Alignas(BLOCK_SIZE) char buf[BLOCK_SIZE];
        uint64_t end = monotonic_nsec() + msec * 1000000;
        unsigned long block = (unsigned long) gettid() * 37;

        do {
                if (pread(file_fd, buf, sizeof(buf), (off_t) (block++ % file_blocks) * BLOCK_DISTANCE) != sizeof(buf))
                        err(EXIT_FAILURE, "Cannot read \"%s\"", file_path);
        } while (monotonic_nsec() < end);
}

static void open_file(const char *path) {
        struct stat st;

        file_path = path;
        file_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (file_fd < 0 || fstat(file_fd, &st) < 0)
                err(EXIT_FAILURE, "Cannot open \"%s\"", path);
        file_blocks = (unsigned long) st.st_size / BLOCK_DISTANCE;
        if (file_blocks == 0)
                errx(EXIT_FAILURE, "\"%s\" is too short.", path);
}

static _Noreturn void exec_reader(void) {
        char span[24];

        snprintf(span, sizeof(span), "%lu", msec);
        execl("/proc/self/exe", "scatter", "--read", span, file_path, NULL);
        err(EXIT_FAILURE, "execl() failed");
}

static void write_zero(int fd) {
        if (write(fd, "0", 1) != 1)
                err(EXIT_FAILURE, "Cannot move");
}

static void reap(void) {
        int status;

        while (wait(&status) < 0)
                if (errno != EINTR)
                        err(EXIT_FAILURE, "wait() failed");
        if (status != 0)
                errx(EXIT_FAILURE, "A child ended with status %d.", status);
}

static pid_t checked_fork(void) {
        pid_t pid = fork();

        if (pid < 0)
                err(EXIT_FAILURE, "fork() failed");
        return pid;
}

static void *read_in_thread(void *place) {
        note((unsigned) (uintptr_t) place);
        read_for_a_while();
        return NULL;
}

static void *move_and_read_in_thread(void *place) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/tasks", places[(uintptr_t) place].directory);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                err(EXIT_FAILURE, "Cannot open \"%s\"", path);
        write_zero(fd);
        return read_in_thread(place);
}

static void run_threads(void *(*function)(void *), unsigned n, unsigned place) {
        pthread_t threads[THREADS];

        for (unsigned i = 0; i < n; i++)
                if (pthread_create(&threads[i], NULL, function, (void *) (uintptr_t) place) != 0)
                        errx(EXIT_FAILURE, "Cannot create a thread.");
        for (unsigned i = 0; i < n; i++)
                pthread_join(threads[i], NULL);
}

static bool is(const char *class, const char *name) {
        return strcmp(class, name) == 0;
}

static bool ends_in_exec(const char *class) {
        size_t n = strlen(class);

        return n >= 4 && is(class + n - 4, "exec");
}

/* What a child does once it is where it should be; for "moved", when the maker lets it. */
static _Noreturn void be_child(const char *class, unsigned place) {
        if (is(class, "double-fork")) {
                if (checked_fork() > 0)
                        _exit(EXIT_SUCCESS);
        } else if (is(class, "move") || is(class, "move-exec"))
                write_zero(places[place].procs_fd);
        else if (is(class, "moved-thread")) {
                run_threads(move_and_read_in_thread, 1, place);
                _exit(EXIT_SUCCESS);
        }

        note(place);
        if (ends_in_exec(class))
                exec_reader();
        if (is(class, "threads"))
                run_threads(read_in_thread, THREADS, place);
        read_for_a_while();
        _exit(EXIT_SUCCESS);
}

static void make_moved(const char *class, unsigned place) {
        int pipe_fds[2];
        char pid_text[16], c;

        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                err(EXIT_FAILURE, "pipe2() failed");

        pid_t pid = checked_fork();
        if (pid == 0) {
                close(pipe_fds[1]);
                while (read(pipe_fds[0], &c, 1) < 0 && errno == EINTR)
                        ;
                be_child(class, place);
        }

        int n = snprintf(pid_text, sizeof(pid_text), "%d", pid);
        if (write(places[place].procs_fd, pid_text, (size_t) n) != n)
                err(EXIT_FAILURE, "Cannot move %d", pid);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
}

static void make_into(const char *class, unsigned place) {
        struct clone_args args = {
                .flags = CLONE_INTO_CGROUP,
                .exit_signal = SIGCHLD,
                .cgroup = (uint64_t) places[place].fd,
        };

        long pid = syscall(SYS_clone3, &args, sizeof(args));
        if (pid < 0)
                err(EXIT_FAILURE, "clone3() failed");
        if (pid == 0)
                be_child(class, place);
}

static void make(const char *class, unsigned place) {
        if (strncmp(class, "moved", 5) == 0 && !is(class, "moved-thread"))
                make_moved(class, place);
        else if (strncmp(class, "into", 4) == 0)
                make_into(class, place);
        else if (checked_fork() == 0)
                be_child(class, place);
}

/* One maker: tasks of all places in turn. */
static void scatter(const char *class, unsigned long children, unsigned long parallel) {
        unsigned long alive = 0;

        for (unsigned long i = 0; i < children; i++) {
                if (alive == parallel) {
                        reap();
                        alive--;
                }
                make(class, (unsigned) (i % n_places));
                alive++;
        }
        while (alive-- > 0)
                reap();
}

static void take_token(int fd) {
        char c;

        if (read(fd, &c, 1) != 1)
                err(EXIT_FAILURE, "No token");
}

static void give_token(int fd) {
        if (write(fd, "", 1) != 1)
                err(EXIT_FAILURE, "Cannot give a token back");
}

/* A maker for each place; parallel tokens go round among them. */
static void inherit(const char *class, unsigned long children, unsigned long parallel) {
        int tokens[2];

        if (pipe2(tokens, O_CLOEXEC) < 0)
                err(EXIT_FAILURE, "pipe2() failed");

        for (unsigned place = 0; place < n_places; place++)
                if (checked_fork() == 0) {
                        write_zero(places[place].procs_fd);
                        for (unsigned long i = place; i < children; i += n_places) {
                                take_token(tokens[0]);
                                make(class, place);
                                reap();
                                give_token(tokens[1]);
                        }
                        _exit(EXIT_SUCCESS);
                }

        /* Whoever looks has a moment to see where the makers are. */
        sleep_msec(300);
        for (unsigned long i = 0; i < parallel; i++)
                give_token(tokens[1]);
        for (unsigned place = 0; place < n_places; place++)
                reap();
}

static bool is_inherited(const char *class) {
        return is(class, "fork") || is(class, "exec") || is(class, "threads") || is(class, "double-fork");
}

static void open_places(int n, char *directories[]) {
        if (n > PLACES_MAX)
                errx(EXIT_FAILURE, "At most %d directories.", PLACES_MAX);

        n_places = (unsigned) n;
        for (int i = 0; i < n; i++) {
                places[i].directory = directories[i];
                places[i].fd = open(directories[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                places[i].procs_fd = places[i].fd < 0 ? -1 : openat(places[i].fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
                if (places[i].procs_fd < 0)
                        err(EXIT_FAILURE, "Cannot open \"%s\"", directories[i]);
        }
}

/* Children of children that have ended outlive the last reap(). */
static void wait_for_all(void) {
        for (unsigned i = 0; i < truth->n; i++)
                while (kill(truth->tasks[i].tid, 0) == 0)
                        sleep_msec(1);
}

int main(int argc, char *argv[]) {
        if (argc == 4 && is(argv[1], "--read")) {
                msec = parse_number(argv[2], "MSEC", 0, 60000);
                open_file(argv[3]);
                read_for_a_while();
                return EXIT_SUCCESS;
        }
        if (argc < 7)
                errx(EXIT_FAILURE, "Usage: %s CLASS CHILDREN PARALLEL MSEC FILE DIRECTORY...", argv[0]);

        const char *class = argv[1];
        unsigned long children = parse_number(argv[2], "CHILDREN", 1, 1000000);
        unsigned long parallel = parse_number(argv[3], "PARALLEL", 1, 1000);
        msec = parse_number(argv[4], "MSEC", 0, 60000);
        open_file(argv[5]);
        open_places(argc - 6, argv + 6);

        unsigned allocated = (unsigned) children * (1 + THREADS);
        truth = mmap(NULL, sizeof(*truth) + allocated * sizeof(truth->tasks[0]), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (truth == MAP_FAILED)
                err(EXIT_FAILURE, "No memory");
        truth->allocated = allocated;

        if (is_inherited(class))
                inherit(class, children, parallel);
        else
                scatter(class, children, parallel);
        wait_for_all();

        printf("{\"pid\":%d,\"tasks\":[", getpid());
        for (unsigned i = 0; i < truth->n; i++)
                printf("%s[%d,%u]", i ? "," : "", truth->tasks[i].tid, truth->tasks[i].place);
        printf("]}\n");
        return EXIT_SUCCESS;
}
