/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <endian.h>
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h> /* commands and attribute types only, never its struct taskstats */
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "cleanup.h"
#include "record/recording-reader.h"

#define MESSAGE_MAX 65536U

struct recording_reader {
        FILE *file;
        bool capture;
        uint8_t start[RECORDING_FILE_HEADER_SIZE];
        size_t start_left;  /* bytes of it that are still to be given to the reader of messages */

        struct recording_block block;
        uint32_t n_blocks;
        uint8_t *stored;    /* a packed block, or a message */
        size_t stored_allocated;
        uint8_t *events[2]; /* of this block and of the one before, into which the last event may point */
        unsigned current;
        size_t offset, last_offset, size;
        bool put_back, ended;

        const char *damage;
        char text[96];
};

static int damaged(struct recording_reader *r, const char *what) {
        if (!r->damage) {
                snprintf(r->text, sizeof(r->text), "%s %u %s", r->capture ? "message" : "block", r->n_blocks + 1, what);
                r->damage = r->text;
        }

        return -EBADMSG;
}

/* Returns 1, 0 if the file ends before the first byte, or -EBADMSG if it ends within. */
static int read_exactly(struct recording_reader *r, void *to, size_t size) {
        size_t n = r->start_left < size ? r->start_left : size;

        memcpy(to, r->start + sizeof(r->start) - r->start_left, n);
        r->start_left -= n;
        if (n < size)
                n += fread((uint8_t *) to + n, 1, size - n, r->file);
        if (n == size)
                return 1;
        if (ferror(r->file))
                return damaged(r, "cannot be read");

        return n == 0 ? 0 : damaged(r, "is cut short");
}

static int reserve_stored(struct recording_reader *r, size_t size) {
        if (size <= r->stored_allocated)
                return 0;

        uint8_t *stored = realloc(r->stored, size);
        if (!stored)
                return -ENOMEM;

        r->stored = stored;
        r->stored_allocated = size;
        return 0;
}

/* A message of taskstats with a record of one task or of a process, going by its headers. */
static bool begins_with_message(const uint8_t start[static RECORDING_FILE_HEADER_SIZE]) {
        struct nlmsghdr header;

        _Static_assert(sizeof(header) <= RECORDING_FILE_HEADER_SIZE, "too little is read to recognise a message");
        memcpy(&header, start, sizeof(header));
        return header.nlmsg_len >= NLMSG_HDRLEN + GENL_HDRLEN + NLA_HDRLEN && header.nlmsg_len <= MESSAGE_MAX
                && header.nlmsg_type >= NLMSG_MIN_TYPE && header.nlmsg_type < 1024;
}

int recording_reader_new(FILE *file, struct recording_reader **ret, uint32_t *ret_version) {
        struct recording_reader *r = calloc(1, sizeof(*r));
        int error = -ENOMEM;
        size_t n = 0;

        if (!r) {
                fclose(file);
                return -ENOMEM;
        }

        r->file = file;
        r->events[0] = malloc(RECORDING_BLOCK_MAX);
        r->events[1] = malloc(RECORDING_BLOCK_MAX);
        if (r->events[0] && r->events[1]) {
                errno = 0;
                n = fread(r->start, 1, sizeof(r->start), file);
                error = ferror(file) && errno > 0 ? -errno : recording_check_file_header(r->start, ret_version);
        }
        if (error == -ENOMSG && n == sizeof(r->start) && begins_with_message(r->start)) {
                r->capture = true;
                r->start_left = sizeof(r->start);
                error = 0;
        }
        if (error < 0) {
                recording_reader_free(r);
                return error;
        }

        *ret = r;
        return 0;
}

struct recording_reader *recording_reader_free(struct recording_reader *r) {
        if (!r)
                return NULL;

        fclose(r->file);
        free(r->stored);
        free(r->events[0]);
        free(r->events[1]);
        free(r);
        return NULL;
}

bool recording_reader_is_capture(const struct recording_reader *r) {
        return r->capture;
}

/* Returns 1, or -EBADMSG: the end of the file is none of the recording. */
static int next_block(struct recording_reader *r) {
        uint8_t header[RECORDING_BLOCK_HEADER_SIZE];

        int error = read_exactly(r, header, sizeof(header));
        if (error < 0)
                return error;
        if (error == 0)
                return damaged(r, "is missing, and so is the end");

        if (recording_block_header(header, &r->block) < 0)
                return damaged(r, "has a header that makes no sense");
        if (r->block.sequence != r->n_blocks)
                return damaged(r, "is missing, others follow");

        error = reserve_stored(r, r->block.stored_size);
        if (error < 0)
                return error;
        error = read_exactly(r, r->stored, r->block.stored_size);
        if (error <= 0)
                return error < 0 ? error : damaged(r, "is cut short");

        r->current ^= 1;
        error = recording_unpack(&r->block, header, r->stored, r->events[r->current]);
        if (error < 0)
                return error == -EBADMSG ? damaged(r, "is damaged: its checksum is wrong") : error;

        r->n_blocks++;
        r->offset = 0;
        r->size = r->block.events_size;
        return 1;
}

int recording_reader_next(struct recording_reader *r, struct recording_event *ret) {
        if (r->damage)
                return -EBADMSG;
        if (r->put_back) {
                r->put_back = false;
                r->offset = r->last_offset;
        } else if (r->ended)
                return fgetc(r->file) == EOF ? 0 : damaged(r, "follows the end");

        while (r->offset >= r->size) {
                int error = next_block(r);
                if (error < 0)
                        return error;
        }

        ssize_t n = recording_decode(r->events[r->current] + r->offset, r->size - r->offset, ret);
        if (n <= 0) {
                r->n_blocks--; /* it is this one */
                return damaged(r, "holds an event that makes no sense");
        }

        r->last_offset = r->offset;
        r->offset += (size_t) n;
        r->ended = ret->type == RECORDING_END;
        if (r->ended && r->offset < r->size)
                return damaged(r, "holds more than the end");
        return 1;
}

void recording_reader_put_back(struct recording_reader *r) {
        r->put_back = true;
}

const struct recording_block *recording_reader_block(const struct recording_reader *r) {
        return &r->block;
}

int recording_reader_message(struct recording_reader *r, const uint8_t **ret, size_t *ret_size) {
        struct nlmsghdr header;

        if (r->damage)
                return -EBADMSG;

        int error = read_exactly(r, &header, sizeof(header));
        if (error <= 0)
                return error;
        if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > MESSAGE_MAX)
                return damaged(r, "has an impossible length");

        size_t size = NLMSG_ALIGN(header.nlmsg_len);
        error = reserve_stored(r, size);
        if (error < 0)
                return error;

        memcpy(r->stored, &header, sizeof(header));
        if (size > sizeof(header)) {
                error = read_exactly(r, r->stored + sizeof(header), size - sizeof(header));
                if (error <= 0)
                        return error < 0 ? error : damaged(r, "is cut short");
        }

        r->n_blocks++;
        *ret = r->stored;
        *ret_size = size;
        return 1;
}

const char *recording_reader_damage(const struct recording_reader *r) {
        return r->damage;
}
