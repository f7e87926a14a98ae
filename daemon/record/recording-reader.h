/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "record/recording.h"

/*
 * Reads a recording from a stream, event by event, or a capture: taskstats messages back to back as they
 * came from netlink. All of it is untrusted.
 */
struct recording_reader;

/*
 * Takes the stream over, also when it fails. Tells by the first bytes what it is. Returns -ENOMSG (neither of
 * the two), -EBADMSG (damaged before the first block), -EPROTONOSUPPORT (another version, in *ret_version),
 * -ENOMEM, or an error of reading.
 */
int recording_reader_new(FILE *file, struct recording_reader **ret, uint32_t *ret_version);
struct recording_reader *recording_reader_free(struct recording_reader *r); /* returns NULL */

bool recording_reader_is_capture(const struct recording_reader *r);

/*
 * The next event; it is valid until the next but one is read. Returns 1; 0 at the end; -EBADMSG where the
 * recording is damaged, as recording_reader_damage() says; -ENOMEM.
 */
int recording_reader_next(struct recording_reader *r, struct recording_event *ret);

/* Puts the last event back, once: the next call gives it again. */
void recording_reader_put_back(struct recording_reader *r);

/* The clocks of the current block. */
const struct recording_block *recording_reader_block(const struct recording_reader *r);

/* The next message of a capture. Returns as recording_reader_next(); the message is valid until the next call. */
int recording_reader_message(struct recording_reader *r, const uint8_t **ret, size_t *ret_size);

const char *recording_reader_damage(const struct recording_reader *r);
