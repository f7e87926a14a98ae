/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

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
