/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <arpa/inet.h>
#include <endian.h>
#include <linux/netlink.h>
#include <linux/taskstats.h> /* commands and attribute types only, never its struct taskstats */

#include "kernel/exit-filter.h"

/*
 * Where things are in a message that starts with an AGGR_PID record. On machines without cheap
 * unaligned loads the kernel may insert padding; then the types are not where they are looked for, and
 * the message passes.
 */
#define OFFSET_TYPE 4            /* nlmsghdr */
#define OFFSET_COMMAND 16        /* genlmsghdr */
#define OFFSET_AGGR_PID_TYPE 22
#define OFFSET_PID_TYPE 26
#define OFFSET_STATS_LENGTH 32
#define OFFSET_STATS_TYPE 34
#define OFFSET_STATS 36

#define PASS 0xFF /* a jump offset, replaced when the place of the last instruction is known */

struct builder {
        struct sock_filter *program;
        size_t n;
};

static void emit(struct builder *b, unsigned code, uint32_t k, uint8_t if_true, uint8_t if_false) {
        b->program[b->n++] = (struct sock_filter) { .code = (uint16_t) code, .jt = if_true, .jf = if_false, .k = k };
}

/* Passes the message unless the 16 bits at offset, in host byte order, are value. */
static void require_half(struct builder *b, uint32_t offset, uint16_t value) {
        emit(b, BPF_LD | BPF_H | BPF_ABS, offset, 0, 0); /* loads convert from network byte order */
        emit(b, BPF_JMP | BPF_JEQ | BPF_K, htons(value), 0, PASS);
}

/* Leaves the length of the STATS attribute in M[0]. */
static void load_stats_length(struct builder *b) {
#if __BYTE_ORDER == __LITTLE_ENDIAN
        emit(b, BPF_LD | BPF_B | BPF_ABS, OFFSET_STATS_LENGTH + 1, 0, 0);
        emit(b, BPF_ALU | BPF_LSH | BPF_K, 8, 0, 0);
        emit(b, BPF_MISC | BPF_TAX, 0, 0, 0);
        emit(b, BPF_LD | BPF_B | BPF_ABS, OFFSET_STATS_LENGTH, 0, 0);
        emit(b, BPF_ALU | BPF_OR | BPF_X, 0, 0, 0);
#else
        emit(b, BPF_LD | BPF_H | BPF_ABS, OFFSET_STATS_LENGTH, 0, 0);
#endif
        emit(b, BPF_ST, 0, 0, 0);
}

/* A load beyond the end would drop the message, so what does not hold all that it claims passes. */
static void require_whole_stats(struct builder *b) {
        emit(b, BPF_MISC | BPF_TAX, 0, 0, 0);
        emit(b, BPF_LD | BPF_W | BPF_LEN, 0, 0, 0);
        emit(b, BPF_ALU | BPF_SUB | BPF_K, OFFSET_STATS_LENGTH, 0, 0);
        emit(b, BPF_JMP | BPF_JGE | BPF_X, 0, 0, PASS);
}

/*
 * Passes the message if the kind's count or total is not zero (a count that wrapped is zero, and so is
 * the total that the kernel marks an overflow with). A record too short for the kind has no such waits.
 */
static void require_no_wait(struct builder *b, uint32_t offset) {
        emit(b, BPF_LD | BPF_MEM, 0, 0, 0);
        emit(b, BPF_JMP | BPF_JGE | BPF_K, NLA_HDRLEN + offset + 16, 0, 8);
        for (uint32_t word = 0; word < 16; word += 4) {
                emit(b, BPF_LD | BPF_W | BPF_ABS, OFFSET_STATS + offset + word, 0, 0);
                emit(b, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, PASS); /* zero has no byte order */
        }
}

static void finish(struct builder *b) {
        emit(b, BPF_RET | BPF_K, 0, 0, 0);
        emit(b, BPF_RET | BPF_K, UINT32_MAX, 0, 0);

        for (size_t i = 0; i < b->n; i++)
                if (BPF_CLASS(b->program[i].code) == BPF_JMP && b->program[i].jf == PASS)
                        b->program[i].jf = (uint8_t) (b->n - 1 - (i + 1));
}

size_t exit_filter_build(
                struct sock_filter program[static EXIT_FILTER_MAX],
                uint16_t family,
                enum taskstats_layout layout,
                delay_kind_set kinds) {

        struct builder b = { .program = program };

        if (kinds == 0 || delay_kind_in(kinds, DELAY_CPU) || layout == TASKSTATS_LAYOUT_BY_VERSION)
                return 0;

        emit(&b, BPF_LD | BPF_W | BPF_LEN, 0, 0, 0);
        emit(&b, BPF_JMP | BPF_JGE | BPF_K, OFFSET_STATS, 0, PASS);
        require_half(&b, OFFSET_TYPE, family);
        emit(&b, BPF_LD | BPF_B | BPF_ABS, OFFSET_COMMAND, 0, 0);
        emit(&b, BPF_JMP | BPF_JEQ | BPF_K, TASKSTATS_CMD_NEW, 0, PASS);
        require_half(&b, OFFSET_AGGR_PID_TYPE, TASKSTATS_TYPE_AGGR_PID);
        require_half(&b, OFFSET_PID_TYPE, TASKSTATS_TYPE_PID);
        require_half(&b, OFFSET_STATS_TYPE, TASKSTATS_TYPE_STATS);
        load_stats_length(&b);
        require_whole_stats(&b);

        for (int kind = DELAY_BLKIO; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(kinds, (enum delay_kind) kind))
                        require_no_wait(&b, taskstats_offset_of_waits((enum delay_kind) kind, layout));

        finish(&b);
        return b.n;
}
