/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdio.h>

/*
 * Opens a file that a user named, for reading, and never waits: a FIFO without a writer would hold the daemon up
 * before it listens to signals. Returns 0, -EISDIR, -ENOTSUP (a pipe or a socket), or another negative errno.
 */
int open_file(const char *path, FILE **ret);

/* What to tell of it: the text of an errno, or the remedy. Not to be freed. */
const char *open_file_error(int error);
