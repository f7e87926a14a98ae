/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "open-file.h"

int open_file(const char *path, FILE **ret) {
        struct stat st;

        _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode))
                return -EISDIR;
        if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) /* /dev/null is a configuration, too */
                return -ENOTSUP;

        FILE *file = fdopen(fd, "r");
        if (!file)
                return -errno;

        fd = -EBADF;
        *ret = file;
        return 0;
}

const char *open_file_error(int error) {
        return error == -ENOTSUP ? "it is a pipe or a socket; write it to a file first" : strerror(-error);
}
