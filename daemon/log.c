/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"

static bool to_journal;

void log_open(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long device = 0, inode = 0;
        struct stat st;

        /* sd_journal_send() succeeds without a journal: only a stderr that is connected to it proves one. */
        to_journal = stream && sscanf(stream, "%lu:%lu", &device, &inode) == 2
                     && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

bool log_is_heard(void) {
        static const struct sockaddr_un journal = { .sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket" };

        if (!to_journal)
                return true;

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return true; /* not to be told */

        return connect(fd, (const struct sockaddr *) &journal, sizeof(journal)) == 0;
}

int log_message(int priority, int error, const char *format, ...) {
        char text[2048];
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);

        error = error < 0 ? -error : error;
        if (error && n >= 0 && (size_t) n < sizeof(text))
                snprintf(text + n, sizeof(text) - (size_t) n, ": %s", strerror(error));

        if (to_journal)
                (void) sd_journal_send("MESSAGE=%s", text, "PRIORITY=%i", priority, "ERRNO=%i", error, NULL);
        else if (getenv("INVOCATION_ID"))
                fprintf(stderr, "<%d>%s\n", priority, text);
        else if (priority < LOG_DEBUG)
                fprintf(stderr, "delayd: %s\n", text);

        return -error;
}
