/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "core/state.h"
#include "kernel/monotonic.h"
#include "state/state-file.h"

#define NAME_SIZE 64
#define LOCK_RETRY_USEC 20000
#define STACK_SIZE ((size_t) 128 * 1024)

static int lock(int fd, uint64_t patience_nsec) {
        uint64_t end = monotonic_nsec() + patience_nsec;

        while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno == EINTR)
                        continue;
                if (errno != EWOULDBLOCK)
                        return -errno;
                if (monotonic_nsec() >= end)
                        return -EBUSY;
                usleep(LOCK_RETRY_USEC);
        }

        return 0;
}

int state_directory_open(struct state_directory *d, uint64_t patience_nsec) {
        state_directory_close(d);

        if (d->make && mkdir(d->path, 0750) < 0 && errno != EEXIST)
                return -errno;

        _cleanup_close_ int fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;

        int r = lock(fd, patience_nsec);
        if (r < 0)
                return r;

        d->fd = TAKE_FD(fd);
        return 0;
}

void state_directory_close(struct state_directory *d) {
        if (d->fd >= 0)
                close(d->fd);
        d->fd = -EBADF;
}

static int write_all(int fd, const uint8_t *bytes, size_t size) {
        while (size > 0) {
                ssize_t n = write(fd, bytes, size);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                bytes += n;
                size -= (size_t) n;
        }

        return 0;
}

static int write_new(int directory_fd, const char *name, const void *bytes, size_t size, bool sync) {
        _cleanup_close_ int fd = openat(directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;

        int r = write_all(fd, bytes, size);
        if (r < 0)
                return r;
        if (sync && fsync(fd) < 0)
                return -errno;

        return close(TAKE_FD(fd)) < 0 ? -errno : 0;
}

int state_file_write(int directory_fd, const char *name, const void *bytes, size_t size, bool sync) {
        char new_name[NAME_SIZE];

        snprintf(new_name, sizeof(new_name), "%s.new", name);
        int r = write_new(directory_fd, new_name, bytes, size, sync);
        if (r >= 0 && renameat(directory_fd, new_name, directory_fd, name) < 0)
                r = -errno;
        if (r < 0) {
                (void) unlinkat(directory_fd, new_name, 0); /* gives its space back */
                return r;
        }

        return sync && fsync(directory_fd) < 0 ? -errno : 0;
}

int state_file_read_fd(int fd, uint8_t **ret, size_t *ret_size) {
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EBADMSG;
        if ((uint64_t) st.st_size > STATE_SIZE_MAX)
                return -EFBIG;

        size_t size = (size_t) st.st_size, done = 0;
        _cleanup_free_ uint8_t *bytes = malloc(size + 1);
        if (!bytes)
                return -ENOMEM;

        while (done < size) {
                ssize_t n = pread(fd, bytes + done, size - done, (off_t) done);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                done += (size_t) n;
        }

        *ret = TAKE_PTR(bytes);
        *ret_size = done;
        return 0;
}

int state_file_read(int directory_fd, const char *name, uint8_t **ret, size_t *ret_size) {
        /* A pipe in its place must not keep us waiting. */
        _cleanup_close_ int fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
                return -errno;

        return state_file_read_fd(fd, ret, ret_size);
}

int state_file_set_aside(int directory_fd, const char *name) {
        char old_name[NAME_SIZE];

        snprintf(old_name, sizeof(old_name), "%s.old", name);
        return renameat(directory_fd, name, directory_fd, old_name) < 0 ? -errno : 0;
}

int state_file_in_memory(const void *bytes, size_t size) {
        _cleanup_close_ int fd = memfd_create("delayd-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;

        int r = write_all(fd, bytes, size);
        if (r < 0)
                return r;
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
                return -errno;

        return TAKE_FD(fd);
}

struct state_write {
        pthread_t thread;
        int directory_fd; /* our own, without the lock: the other may be closed meanwhile */
        int done_fd;
        char name[NAME_SIZE];
        uint8_t *bytes;
        size_t size;
        int result;
};

static void state_write_free(struct state_write *w) {
        if (w->directory_fd >= 0)
                close(w->directory_fd);
        if (w->done_fd >= 0)
                close(w->done_fd);
        free(w->bytes);
        free(w);
}

/* Shares nothing with the loop but *w, which is left alone there until this has ended. */
static void *write_beside(void *userdata) {
        struct state_write *w = userdata;

        w->result = state_file_write(w->directory_fd, w->name, w->bytes, w->size, true);
        (void) eventfd_write(w->done_fd, 1);
        return NULL;
}

static int start_thread(struct state_write *w) {
        pthread_attr_t attr;
        sigset_t all, before;

        int r = pthread_attr_init(&attr);
        if (r != 0)
                return -r;

        /* Signals are the loop's. */
        sigfillset(&all);
        (void) pthread_sigmask(SIG_SETMASK, &all, &before);
        (void) pthread_attr_setstacksize(&attr, STACK_SIZE);
        r = pthread_create(&w->thread, &attr, write_beside, w);
        (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attr);
        return -r;
}

int state_write_start(int directory_fd, const char *name, uint8_t *bytes, size_t size, struct state_write **ret) {
        struct state_write *w = malloc(sizeof(*w));

        if (!w) {
                free(bytes);
                return -ENOMEM;
        }

        *w = (struct state_write) {
                .directory_fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                .done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                .bytes = bytes,
                .size = size,
        };
        snprintf(w->name, sizeof(w->name), "%s", name);

        int r = w->directory_fd < 0 || w->done_fd < 0 ? -errno : start_thread(w);
        if (r < 0) {
                state_write_free(w);
                return r;
        }

        *ret = w;
        return 0;
}

int state_write_fd(const struct state_write *w) {
        return w->done_fd;
}

int state_write_end(struct state_write *w) {
        pthread_join(w->thread, NULL);

        int r = w->result;
        state_write_free(w);
        return r;
}
