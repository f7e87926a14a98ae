/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Scope-bound cleanup, as in systemd: "_cleanup_free_ char *s = NULL;". */
#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void cleanup_free(void *p) {
        free(*(void **) p);
}

static inline void cleanup_close(const int *fd) {
        if (*fd >= 0)
                close(*fd);
}

static inline void cleanup_fclose(FILE **f) {
        if (*f)
                fclose(*f);
}

#define _cleanup_free_ _cleanup_(cleanup_free)
#define _cleanup_close_ _cleanup_(cleanup_close)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose)

/* Hands over ownership: returns the value and leaves the variable empty. */
#define TAKE_PTR(p)                                                                               \
        ({                                                                                        \
                __typeof__(p) _taken = (p);                                                       \
                (p) = NULL;                                                                       \
                _taken;                                                                           \
        })
#define TAKE_FD(fd)                                                                               \
        ({                                                                                        \
                int _taken = (fd);                                                                \
                (fd) = -EBADF;                                                                    \
                _taken;                                                                           \
        })
