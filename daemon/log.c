/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "core/text.h"
#include "log.h"

static bool to_journal;
static int journal_fd = -EBADF;

void log_open(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long device = 0, inode = 0;
        struct stat st;

        /* Only a standard error that is connected to it proves a journal. */
        to_journal = stream && sscanf(stream, "%lu:%lu", &device, &inode) == 2
                     && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

static const struct sockaddr_un journal_address = { .sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket" };

/*
 * In the journal's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): sd_journal_send() would wait for a journal that is
 * busy or stopped, and the daemon with it.
 */
static int send_to_journal(int priority, int error, const char *text) {
        uint64_t size = htole64(strlen(text));
        char fields[128];

        snprintf(fields, sizeof(fields), "PRIORITY=%i\nERRNO=%i\nSYSLOG_IDENTIFIER=delayd\nMESSAGE\n", priority, error);
        struct iovec parts[] = {
                { .iov_base = fields, .iov_len = strlen(fields) },
                { .iov_base = &size, .iov_len = sizeof(size) }, /* so that a line break in the text is one */
                { .iov_base = (char *) text, .iov_len = strlen(text) },
                { .iov_base = (char []) { '\n' }, .iov_len = 1 },
        };
        const struct msghdr message = {
                .msg_name = (void *) &journal_address,
                .msg_namelen = sizeof(journal_address),
                .msg_iov = parts,
                .msg_iovlen = sizeof(parts) / sizeof(parts[0]),
        };

        if (journal_fd < 0)
                journal_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (journal_fd < 0)
                return -errno;

        return sendmsg(journal_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

bool log_is_heard(void) {
        if (!to_journal)
                return true;

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return true; /* not to be told */

        /* The other end takes messages: it is there, and its queue is not full. */
        struct pollfd room = { .fd = fd, .events = POLLOUT };
        return connect(fd, (const struct sockaddr *) &journal_address, sizeof(journal_address)) == 0
               && poll(&room, 1, 0) == 1 && (room.revents & POLLOUT);
}

int log_message(int priority, int error, const char *format, ...) {
        _cleanup_free_ char *shown = NULL;
        char raw[2048];
        const char *text;
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(raw, sizeof(raw), format, ap);
        va_end(ap);

        error = error < 0 ? -error : error;
        if (error && n >= 0 && (size_t) n < sizeof(raw))
                snprintf(raw + n, sizeof(raw) - (size_t) n, ": %s", strerror(error));

        /* What files and clients hold is told, too: it must neither steer a terminal nor begin a line of its own. */
        shown = text_display(raw, strlen(raw));
        text = shown ?: "A message could not be shown: memory is short.";

        if (to_journal)
                (void) send_to_journal(priority, error, text);
        else if (getenv("INVOCATION_ID"))
                fprintf(stderr, "<%d>%s\n", priority, text);
        else if (priority < LOG_DEBUG)
                fprintf(stderr, "delayd: %s\n", text);

        return -error;
}
