/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Descriptors that the service manager passed to us: those of socket units and of the descriptor store
 * come in one list and are told apart by their names.
 */
struct passed_fds {
        int n;
        int *fds;     /* a negative one has been taken */
        char **names;
};

/* Takes the list over; an empty one outside of a service manager. Returns 0 or a negative errno. */
int passed_fds_load(struct passed_fds *ret);

/* Returns the next descriptor of this name, which then is the caller's, or -ENOENT. */
int passed_fds_take(struct passed_fds *passed, const char *name);

/* Closes what nobody took. */
void passed_fds_done(struct passed_fds *passed);
