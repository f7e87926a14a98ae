/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "kernel/kernel-info.h"

/* Enough for a sweep over the cgroups and a client or two. */
#define SPARE_FDS 8

/* Reads the start of a small file and ends it with NUL. Returns the number of bytes or a negative errno. */
static ssize_t read_start(const char *path, char *buf, size_t size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;

        ssize_t n = read(fd, buf, size - 1);
        if (n < 0)
                return -errno;

        buf[n] = '\0';
        return n;
}

int kernel_task_delayacct(void) {
        char buf[16];

        ssize_t n = read_start("/proc/sys/kernel/task_delayacct", buf, sizeof(buf));
        if (n < 0)
                return (int) n;

        return atoi(buf) != 0;
}

static const struct utsname *kernel_names(void) {
        static struct utsname names;

        if (!names.release[0])
                (void) uname(&names);
        return &names;
}

const char *kernel_release(void) {
        return kernel_names()->release;
}

/* From debugfs, which is root's, or from the copy of it that delayd.service has root make at start and reload. */
static bool read_scheduler_features(char *buf, size_t size) {
        const char *directory = getenv("RUNTIME_DIRECTORY");
        char path[PATH_MAX];

        if (read_start("/sys/kernel/debug/sched/features", buf, size) > 0)
                return true;
        if (!directory || (size_t) snprintf(path, sizeof(path), "%s/sched-features", directory) >= sizeof(path))
                return false;

        return read_start(path, buf, size) > 0;
}

enum tristate kernel_delayed_dequeue(void) {
        _cleanup_free_ char *features = malloc(4096);
        unsigned major = 0, minor = 0;

        if (!features)
                return TRISTATE_UNKNOWN;

        if (read_scheduler_features(features, 4096)) {
                if (strstr(features, "NO_DELAY_DEQUEUE"))
                        return TRISTATE_OFF;
                if (strstr(features, "DELAY_DEQUEUE"))
                        return TRISTATE_ON;
                return TRISTATE_OFF;
        }

        /* Delayed dequeue came with EEVDF's completion in 6.12 (commit 152e11f6df29). */
        if (sscanf(kernel_release(), "%u.%u", &major, &minor) != 2)
                return TRISTATE_UNKNOWN;
        return major > 6 || (major == 6 && minor >= 12) ? TRISTATE_ON : TRISTATE_OFF;
}

bool kernel_clock_is_rough(void) {
        /* What x86 falls back to, and with it sched_clock(): mark_tsc_unstable() in arch/x86/kernel/tsc.c. */
        static const char *const fallbacks[] = { "hpet\n", "acpi_pm\n", "refined-jiffies\n", "jiffies\n", "pit\n" };
        char name[32];

        if (read_start("/sys/devices/system/clocksource/clocksource0/current_clocksource", name, sizeof(name)) < 0)
                return false;

        for (size_t i = 0; i < sizeof(fallbacks) / sizeof(fallbacks[0]); i++)
                if (strcmp(name, fallbacks[i]) == 0)
                        return true;
        return false;
}

enum tristate kernel_in_initial_namespace(const char *type) {
        /* Inode numbers of the initial namespaces: include/uapi/linux/nsfs.h and include/linux/proc_ns.h. */
        static const struct {
                const char *type;
                ino_t number;
        } initial[] = {
                { "user", 0xEFFFFFFDU },
                { "pid", 0xEFFFFFFCU },
                { "time", 0xEFFFFFFAU },
        };
        struct stat own, first;
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/ns/%s", type);
        if (stat(path, &own) < 0)
                return errno == ENOENT ? TRISTATE_ON : TRISTATE_UNKNOWN; /* the kernel has one only */

        for (size_t i = 0; i < sizeof(initial) / sizeof(initial[0]); i++)
                if (strcmp(initial[i].type, type) == 0)
                        return own.st_ino == initial[i].number ? TRISTATE_ON : TRISTATE_OFF;

        /* The initial network namespace has no fixed number before Linux 6.19: compare with PID 1's. */
        snprintf(path, sizeof(path), "/proc/1/ns/%s", type);
        if (stat(path, &first) < 0)
                return TRISTATE_UNKNOWN;
        return own.st_ino == first.st_ino ? TRISTATE_ON : TRISTATE_OFF;
}

const char *kernel_foreign_namespace(void) {
        static const struct {
                const char *type, *name;
        } needed[] = { { "user", "user" }, { "pid", "pid" }, { "net", "network" } };

        for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
                if (kernel_in_initial_namespace(needed[i].type) == TRISTATE_OFF)
                        return needed[i].name;

        return NULL;
}

/* The value of a "Name:\tvalue" line of a /proc status file, or NULL. */
static const char *status_field(const char *status, const char *name) {
        size_t length = strlen(name);

        for (const char *line = status; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, name, length) == 0 && line[length] == ':')
                        return line + length + 1;
        }

        return NULL;
}

bool kernel_have_net_admin(void) {
        char status[4096] = "";

        if (read_start("/proc/self/status", status, sizeof(status)) < 0)
                return false;

        const char *effective = status_field(status, "CapEff");
        return effective && (strtoull(effective, NULL, 16) >> CAP_NET_ADMIN & 1);
}

int kernel_task_ids(uint32_t tid, uint32_t *ret_tgid, uint32_t *ret_uid) {
        char path[32], status[4096];

        snprintf(path, sizeof(path), "/proc/%u/status", tid);
        ssize_t n = read_start(path, status, sizeof(status));
        if (n < 0)
                return (int) n;

        /* The name comes first and is escaped by the kernel, so it cannot fake a line. */
        const char *tgid = status_field(status, "Tgid"), *uid = status_field(status, "Uid");
        if (!tgid || !uid)
                return -EBADMSG;

        *ret_tgid = (uint32_t) strtoul(tgid, NULL, 10);
        *ret_uid = (uint32_t) strtoul(uid, NULL, 10);
        return 0;
}

bool kernel_have_spare_fds(int fd, uint64_t *ret_limit) {
        struct rlimit limit = { .rlim_cur = RLIM_INFINITY };

        /* The lowest number that is free: cheaper than to count. */
        int spare = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        bool exhausted = spare < 0 && (errno == EMFILE || errno == ENFILE);

        if (spare >= 0)
                close(spare);
        (void) getrlimit(RLIMIT_NOFILE, &limit);
        *ret_limit = limit.rlim_cur;
        return !exhausted && (spare < 0 || limit.rlim_cur == RLIM_INFINITY || (rlim_t) spare + SPARE_FDS < limit.rlim_cur);
}

static uint32_t count_open_fds(void) {
        uint32_t n = 0;

        DIR *dir = opendir("/proc/self/fd");
        if (!dir)
                return 0;

        for (struct dirent *entry; (entry = readdir(dir));)
                n += entry->d_name[0] != '.';
        closedir(dir);
        return n - 1; /* without the one that listed them */
}

static uint64_t start_time_unix_nsec(void) {
        static uint64_t start;
        struct timespec now_unix, now_boot;
        char buf[1024];

        if (start || read_start("/proc/self/stat", buf, sizeof(buf)) < 0)
                return start;

        /* Fields are counted from the last parenthesis, for the name may hold anything; starttime is the 22nd. */
        const char *p = strrchr(buf, ')');
        for (unsigned field = 2; p && field < 22; field++)
                p = strchr(p + 1, ' ');
        if (!p)
                return 0;

        uint64_t ticks = strtoull(p + 1, NULL, 10), per_sec = (uint64_t) sysconf(_SC_CLK_TCK);

        clock_gettime(CLOCK_REALTIME, &now_unix);
        clock_gettime(CLOCK_BOOTTIME, &now_boot);
        start = (uint64_t) (now_unix.tv_sec - now_boot.tv_sec) * NSEC_PER_SEC
                + (uint64_t) now_unix.tv_nsec - (uint64_t) now_boot.tv_nsec + ticks * (NSEC_PER_SEC / per_sec);
        return start;
}

void kernel_self_usage(struct status_facts *ret) {
        struct rusage usage;
        struct rlimit limit;
        unsigned long pages_virtual = 0, pages_resident = 0;
        uint64_t page_size = (uint64_t) sysconf(_SC_PAGESIZE);
        char buf[4096] = "";

        if (getrusage(RUSAGE_SELF, &usage) == 0)
                ret->cpu_nsec = (uint64_t) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NSEC_PER_SEC
                        + (uint64_t) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * NSEC_PER_USEC;

        if (read_start("/proc/self/statm", buf, sizeof(buf)) > 0
            && sscanf(buf, "%lu %lu", &pages_virtual, &pages_resident) == 2) {
                ret->virtual_bytes = pages_virtual * page_size;
                ret->rss_bytes = pages_resident * page_size;
        }

        if (read_start("/proc/self/status", buf, sizeof(buf)) > 0) {
                const char *threads = status_field(buf, "Threads");

                ret->threads = threads ? (uint32_t) strtoul(threads, NULL, 10) : 1;
        }

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
                ret->max_fds = limit.rlim_cur > UINT32_MAX ? UINT32_MAX : (uint32_t) limit.rlim_cur;
        ret->open_fds = count_open_fds();
        ret->start_time_unix_nsec = start_time_unix_nsec();
}

bool kernel_task_exists(uint32_t tid) {
        /* No signal, only the question; EPERM answers it too. Ten times cheaper than any file of /proc. */
        return kill((pid_t) tid, 0) == 0 || errno != ESRCH;
}
