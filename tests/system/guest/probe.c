/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Runs in the place of delayd, in a unit with the same settings, and tries what a taken-over delayd would
 * try; then what delayd needs. Prints a line "ok - " or "not ok - " for each.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define SO_RCVBUFFORCE_ 33

static int failures;

static void report(bool good, const char *what, const char *name, int error) {
        printf("%sok - %s: %s", good ? "" : "not ", what, name);
        if (!good)
                printf(" (%s)", error ? strerror(error) : "it works");
        putchar('\n');
        failures += !good;
}

/* r is what a system call returned. */
static void refused(const char *name, long r) {
        int error = r < 0 ? errno : 0;

        report(error == EPERM || error == EACCES || error == EROFS || error == EAFNOSUPPORT || error == ENOENT ||
               error == ENXIO, "refused to a delayd gone bad", name, error);
}

static void allowed(const char *name, long r) {
        report(r >= 0, "left to delayd", name, r < 0 ? errno : 0);
}

static int open_and_close(const char *path, int flags) {
        int fd = open(path, flags | O_CLOEXEC, 0600);

        if (fd >= 0)
                close(fd);
        return fd;
}

static int open_directory(const char *path) {
        DIR *dir = opendir(path);
        int n = 0;

        if (!dir)
                return -1;

        for (struct dirent *entry; (entry = readdir(dir));)
                n += entry->d_name[0] != '.';
        closedir(dir);

        /* An empty one in its place is as good as a closed one. */
        errno = ENOENT;
        return n > 0 ? 0 : -1;
}

static void try_network(void) {
        refused("an IPv4 socket", socket(AF_INET, SOCK_STREAM, 0));
        refused("an IPv6 socket", socket(AF_INET6, SOCK_DGRAM, 0));
        refused("a packet socket", socket(AF_PACKET, SOCK_RAW, 0));
        refused("a vsock socket", socket(AF_VSOCK, SOCK_STREAM, 0));
}

static void try_files(const char *state) {
        char path[256];

        refused("writing the configuration", open_and_close("/etc/delayd/delayd.conf", O_WRONLY));
        refused("a file in /etc", open_and_close("/etc/delayd-probe", O_WRONLY | O_CREAT));
        refused("a file in /usr", open_and_close("/usr/delayd-probe", O_WRONLY | O_CREAT));
        refused("a file in /var/lib", open_and_close("/var/lib/delayd-probe-file", O_WRONLY | O_CREAT));
        refused("a file in /run", open_and_close("/run/delayd-probe-file", O_WRONLY | O_CREAT));
        refused("reading /etc/shadow", open_and_close("/etc/shadow", O_RDONLY));
        refused("reading /root", open_directory("/root"));
        refused("reading /home", open_directory("/home"));
        refused("the environment of others", open_and_close("/proc/1/environ", O_RDONLY));
        refused("the memory of others", open_and_close("/proc/1/mem", O_RDWR));
        refused("writing a sysctl", open_and_close("/proc/sys/kernel/task_delayacct", O_WRONLY));
        refused("moving tasks between cgroups", open_and_close("/sys/fs/cgroup/cgroup.procs", O_WRONLY));
        refused("a disk", open_and_close("/dev/vda", O_RDONLY));
        refused("the kernel's memory", open_and_close("/dev/mem", O_RDONLY));
        refused("the kernel's log", open_and_close("/dev/kmsg", O_RDONLY));

        snprintf(path, sizeof(path), "%s/node", state);
        refused("a device node", mknod(path, S_IFBLK | 0600, makedev(254, 0)));
        snprintf(path, sizeof(path), "%s/suid", state);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
        refused("a set-user-id program", fd < 0 ? -1 : fchmod(fd, 04755));
}

static void try_kernel(void) {
        union bpf_attr bpf = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };
        struct perf_event_attr perf = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(perf) };
        struct timespec now;
        struct timex timex = { .modes = ADJ_TICK, .tick = 10000 };
        char buf[64];

        clock_gettime(CLOCK_REALTIME, &now);
        refused("a mount", mount("tmpfs", "/mnt", "tmpfs", 0, NULL));
        refused("an unmount", umount2("/proc", MNT_DETACH));
        refused("chroot()", chroot("/"));
        refused("loading a module", syscall(SYS_init_module, "", 0, ""));
        refused("bpf()", syscall(SYS_bpf, BPF_MAP_CREATE, &bpf, sizeof(bpf)));
        refused("perf_event_open()", syscall(SYS_perf_event_open, &perf, 0, -1, -1, 0));
        refused("reading the kernel's log", klogctl(3, buf, sizeof(buf)));
        refused("setting the clock", clock_settime(CLOCK_REALTIME, &now));
        refused("adjusting the clock", adjtimex(&timex));
        refused("the host's name", sethostname("probe", 5));
        refused("swapping", swapoff("/dev/zram0"));
        refused("a user namespace", unshare(CLONE_NEWUSER));
        refused("a network namespace", unshare(CLONE_NEWNET));
        refused("a mount namespace", unshare(CLONE_NEWNS));
}

static void try_processes(void) {
        struct sched_param realtime = { .sched_priority = 1 };

        refused("becoming root", setuid(0));
        refused("another group", setgid(0));
        refused("ptrace()", ptrace(PTRACE_ATTACH, 1, NULL, NULL));
        refused("signals to others", kill(1, SIGCONT));
        refused("real-time priority", sched_setscheduler(0, SCHED_FIFO, &realtime));
        refused("a better nice value", setpriority(PRIO_PROCESS, 0, -20));
        refused("another personality", personality(ADDR_NO_RANDOMIZE));

        void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        refused("memory to write and execute", memory == MAP_FAILED ? -1 : 0);
        memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        refused("memory written, then executed", mprotect(memory, 4096, PROT_READ | PROT_EXEC));
}

static void use_what_is_needed(const char *state, const char *runtime) {
        char path[256];
        int size = 8 * 1024 * 1024;

        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
        allowed("generic netlink", fd);
        allowed("a receive buffer of any size", setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE_, &size, sizeof(size)));
        allowed("the proc connector", socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_CONNECTOR));
        allowed("a local socket", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        allowed("the cgroups of others", open_and_close("/proc/1/cgroup", O_RDONLY));
        allowed("the cgroup tree", open_and_close("/sys/fs/cgroup/system.slice/cgroup.procs", O_RDONLY));
        allowed("kernel.task_delayacct", open_and_close("/proc/sys/kernel/task_delayacct", O_RDONLY));
        allowed("pressure stall information", open_and_close("/proc/pressure/io", O_RDONLY));
        snprintf(path, sizeof(path), "%s/file", state);
        allowed("a file in the state directory", open_and_close(path, O_WRONLY | O_CREAT));
        snprintf(path, sizeof(path), "%s/file", runtime);
        allowed("a file in the runtime directory", open_and_close(path, O_WRONLY | O_CREAT));
}

int main(void) {
        const char *state = getenv("STATE_DIRECTORY"), *runtime = getenv("RUNTIME_DIRECTORY");

        if (!state || !runtime) {
                puts("not ok - the probe has a state and a runtime directory");
                return EXIT_FAILURE;
        }

        try_network();
        try_files(state);
        try_kernel();
        try_processes();
        use_what_is_needed(state, runtime);
        return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
