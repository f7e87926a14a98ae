/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "serve/buffer.h"

/* Prometheus' text format 0.0.4, as far as values, labels and heads of families go. */

/* HELP and TYPE. help must not hold a backslash or newline. */
void exposition_family(struct buffer *b, const char *name, const char *type, const char *help);

/* A label's value with backslash, quote and newline escaped; the text must be valid UTF-8. */
void exposition_label_value(struct buffer *b, const char *value);

/* One sample without labels. */
void exposition_u64(struct buffer *b, const char *name, uint64_t value);
void exposition_seconds(struct buffer *b, const char *name, uint64_t nsec);

/* One sample with one label, whose value needs no escaping. */
void exposition_labelled(struct buffer *b, const char *name, const char *label, const char *value, uint64_t sample);

/*
 * Writes a bucket's bound as Prometheus compares it: the shortest decimal that reads back as the same
 * number, with ".0" for whole ones ("0.0009765625", "1.0", "+Inf").
 */
#define EXPOSITION_BOUND_SIZE 32
const char *exposition_bound(char buf[static EXPOSITION_BOUND_SIZE], double bound);
