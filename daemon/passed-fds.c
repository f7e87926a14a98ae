/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "cleanup.h"
#include "passed-fds.h"

int passed_fds_load(struct passed_fds *ret) {
        struct passed_fds passed = {};

        passed.n = sd_listen_fds_with_names(true, &passed.names);
        if (passed.n < 0)
                return passed.n;

        if (passed.n > 0) {
                passed.fds = calloc((size_t) passed.n, sizeof(*passed.fds));
                if (!passed.fds) {
                        passed_fds_done(&passed);
                        return -ENOMEM;
                }
        }
        for (int i = 0; i < passed.n; i++)
                passed.fds[i] = SD_LISTEN_FDS_START + i;

        *ret = passed;
        return 0;
}

int passed_fds_take(struct passed_fds *passed, const char *name) {
        for (int i = 0; i < passed->n; i++)
                if (passed->fds[i] >= 0 && strcmp(passed->names[i], name) == 0)
                        return TAKE_FD(passed->fds[i]);

        return -ENOENT;
}

void passed_fds_done(struct passed_fds *passed) {
        for (int i = 0; i < passed->n; i++) {
                if (passed->fds && passed->fds[i] >= 0)
                        close(passed->fds[i]);
                free(passed->names[i]);
        }

        free(passed->names);
        free(passed->fds);
        *passed = (struct passed_fds) {};
}
