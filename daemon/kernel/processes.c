/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "cleanup.h"
#include "kernel/processes.h"

/* 0 for what is no PID. */
static uint32_t parse_pid(const char *name) {
        uint64_t pid = 0;

        for (; *name; name++) {
                if (*name < '0' || *name > '9' || pid > INT_MAX)
                        return 0;
                pid = pid * 10 + (uint64_t) (*name - '0');
        }

        return pid <= INT_MAX ? (uint32_t) pid : 0;
}

int processes_list(uint32_t **ret, size_t *ret_n) {
        _cleanup_free_ uint32_t *pids = NULL;
        size_t n = 0, allocated = 0;

        DIR *dir = opendir("/proc");
        if (!dir)
                return -errno;

        for (const struct dirent *entry; (entry = readdir(dir));) {
                uint32_t pid = parse_pid(entry->d_name);

                if (pid == 0)
                        continue;

                if (n == allocated) {
                        uint32_t *more = realloc(pids, (allocated * 2 + 256) * sizeof(*pids));

                        if (!more) {
                                closedir(dir);
                                return -ENOMEM;
                        }
                        pids = more;
                        allocated = allocated * 2 + 256;
                }
                pids[n++] = pid;
        }

        closedir(dir);
        *ret = TAKE_PTR(pids);
        *ret_n = n;
        return 0;
}
