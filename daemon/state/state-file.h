/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A directory of saved states. One daemon at a time uses it: it is locked for as long as it is open.
 * Functions return 0 or a negative errno.
 */
struct state_directory {
        const char *path;
        bool make;    /* it, but not what it is in */
        int fd;       /* negative: could not be opened */
};

/* -EBUSY: another daemon has it. Tries for up to patience_nsec, for that one may just be ending. */
int state_directory_open(struct state_directory *d, uint64_t patience_nsec);
void state_directory_close(struct state_directory *d);

/*
 * Replaces a file, so that at each moment it is either the old or the new one, whole; with sync also if the power
 * fails. On an error the old one is left.
 */
int state_file_write(int directory_fd, const char *name, const void *bytes, size_t size, bool sync);

/* Reads all of a regular file. -EFBIG: no state is that large. */
int state_file_read(int directory_fd, const char *name, uint8_t **ret, size_t *ret_size);
int state_file_read_fd(int fd, uint8_t **ret, size_t *ret_size);

/* Renames NAME to NAME.old. */
int state_file_set_aside(int directory_fd, const char *name);

/* A file in memory with these contents, sealed. Returns a descriptor. */
int state_file_in_memory(const void *bytes, size_t size);

/*
 * Writes with sync beside the loop: a disk that is busy, and then there is most to see, lets its writers wait. Takes the
 * bytes over, and reports with its descriptor, which becomes readable.
 */
struct state_write;

int state_write_start(int directory_fd, const char *name, uint8_t *bytes, size_t size, struct state_write **ret);
int state_write_fd(const struct state_write *w);
int state_write_end(struct state_write *w); /* waits for the end if need be; returns what state_file_write() did */
