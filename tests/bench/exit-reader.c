/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The reader that the daemon is compared with: takes the exit records of all CPUs every 10 ms and throws
 * them away. Says {"ready":true}, and at the end of its standard input what it received and what that cost.
 *
 * With --by-parent it is a witness instead, and says for each parent how many of its children ended, and
 * how many waits of copies on write they had (layout A alone: Linux 6.15 and later, and before 6.14).
 */
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>

#include "taskstats-socket.h"

#define SOCKETS_MAX 1024
#define PARENTS_MAX 4096
#define RECEIVE_BUFFER (8 << 20)
#define OFFSET_STATS 36 /* of struct taskstats in the message: three headers, and the TID in its own attribute */
#define OFFSET_PPID 132
#define OFFSET_WPCOPY 400

struct parent {
        uint32_t pid;
        uint64_t exits, waits, total_nsec;
};

static int sockets[SOCKETS_MAX];
static unsigned n_sockets;
static struct parent parents[PARENTS_MAX];
static unsigned n_parents;
static struct inbox in;

static unsigned possible_cpus(void) {
        unsigned first, last = 0;
        FILE *f = fopen("/sys/devices/system/cpu/possible", "re");

        if (!f || fscanf(f, "%u-%u", &first, &last) < 1 || last >= SOCKETS_MAX)
                errx(EXIT_FAILURE, "Cannot tell which CPUs are possible");
        fclose(f);
        return last + 1;
}

static void listen_on(uint16_t family, unsigned cpu) {
        char list[16];
        int fd = taskstats_socket(RECEIVE_BUFFER), n = snprintf(list, sizeof(list), "%u", cpu);
        struct request r = make_request(family, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, list, (size_t) n + 1);

        if (send(fd, &r, r.netlink.nlmsg_len, 0) < 0)
                err(EXIT_FAILURE, "The kernel gives no exit records of CPU %u", cpu);
        sockets[n_sockets++] = fd;
}

static void count_by_parent(const uint8_t *message, size_t size) {
        uint32_t ppid;
        uint64_t waits[2];
        unsigned i = 0;

        if (size < OFFSET_STATS + OFFSET_WPCOPY + sizeof(waits))
                return;
        memcpy(&ppid, message + OFFSET_STATS + OFFSET_PPID, sizeof(ppid));
        memcpy(waits, message + OFFSET_STATS + OFFSET_WPCOPY, sizeof(waits));

        while (i < n_parents && parents[i].pid != ppid)
                i++;
        if (i == PARENTS_MAX)
                return;
        if (i == n_parents)
                parents[n_parents++].pid = ppid;
        parents[i].exits++;
        parents[i].waits += waits[0];
        parents[i].total_nsec += waits[1];
}

static uint64_t drain(bool by_parent) {
        uint64_t received = 0;

        for (unsigned s = 0; s < n_sockets; s++)
                for (unsigned n = BATCH; n == BATCH; received += n) {
                        n = inbox_receive(&in, sockets[s]);
                        for (unsigned i = 0; by_parent && i < n; i++)
                                count_by_parent(in.bytes[i], in.messages[i].msg_len);
                }
        return received;
}

static uint64_t lost(void) {
        uint64_t sum = 0;

        for (unsigned s = 0; s < n_sockets; s++) {
                uint32_t info[9];
                socklen_t size = sizeof(info);

                if (getsockopt(sockets[s], SOL_SOCKET, SO_MEMINFO, info, &size) == 0 && size == sizeof(info))
                        sum += info[8];
        }
        return sum;
}

int main(int argc, char *argv[]) {
        bool by_parent = argc == 2 && strcmp(argv[1], "--by-parent") == 0;
        struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
        uint16_t family = taskstats_family();
        uint64_t received = 0;

        inbox_init(&in);
        for (unsigned cpu = 0, n = possible_cpus(); cpu < n; cpu++)
                listen_on(family, cpu);
        puts("{\"ready\":true}");
        fflush(stdout);

        uint64_t cpu = process_cpu_nsec();
        while (poll(&input, 1, 10) == 0)
                received += drain(by_parent);
        received += drain(by_parent);
        cpu = process_cpu_nsec() - cpu;

        printf("{\"received\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"cpu_nsec\":%" PRIu64 ",\"parents\":[", received, lost(), cpu);
        for (unsigned i = 0; i < n_parents; i++)
                printf("%s{\"pid\":%u,\"exits\":%" PRIu64 ",\"waits\":%" PRIu64 ",\"total_nsec\":%" PRIu64 "}",
                       i ? "," : "", parents[i].pid, parents[i].exits, parents[i].waits, parents[i].total_nsec);
        puts("]}");
        return EXIT_SUCCESS;
}
