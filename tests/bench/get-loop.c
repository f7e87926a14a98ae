/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What asking for live tasks costs at the least: requests for the TIDs on standard input, 64 to a datagram,
 * replies taken with recvmmsg() and thrown away, ROUNDS times.
 */
#include <inttypes.h>

#include "taskstats-socket.h"

int main(int argc, char *argv[]) {
        static struct inbox in;
        uint32_t tid = 0, *tids = NULL;
        size_t n = 0, request_size = 0;
        uint64_t replies = 0;
        uint8_t datagram[BATCH * sizeof(struct request)];

        unsigned long rounds = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
        if (rounds == 0)
                errx(EXIT_FAILURE, "Usage: %s ROUNDS < TIDS", argv[0]);

        while (scanf("%" SCNu32, &tid) == 1) {
                tids = realloc(tids, (n + 1) * sizeof(*tids));
                if (!tids)
                        err(EXIT_FAILURE, "realloc() failed");
                tids[n++] = tid;
        }

        uint16_t family = taskstats_family();
        int fd = taskstats_socket(BATCH * MESSAGE_SIZE);
        inbox_init(&in);

        uint64_t cpu = process_cpu_nsec();
        for (unsigned long round = 0; round < rounds; round++)
                for (size_t done = 0; done < n; done += BATCH) {
                        size_t size = 0, count = n - done < BATCH ? n - done : BATCH;

                        for (size_t i = 0; i < count; i++) {
                                struct request r = make_request(family, TASKSTATS_CMD_ATTR_PID, &tids[done + i], sizeof(tid));

                                request_size = r.netlink.nlmsg_len;
                                memcpy(datagram + size, &r, request_size);
                                size += request_size;
                        }
                        if (send(fd, datagram, size, 0) < 0)
                                err(EXIT_FAILURE, "send() failed");
                        replies += inbox_receive(&in, fd);
                }
        cpu = process_cpu_nsec() - cpu;

        printf("{\"requests\":%" PRIu64 ",\"replies\":%" PRIu64 ",\"cpu_nsec\":%" PRIu64 "}\n", (uint64_t) n * rounds, replies, cpu);
        free(tids);
        return EXIT_SUCCESS;
}
