/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Replaces names by hashes with a secret key: the same name is the same hash within a recording, and
 * nobody without the key, which is never written, can try names out.
 */
struct anonymizer {
        uint64_t key[2];
};

#define ANONYMIZED_COMM_SIZE 16

/* Takes a new key from the kernel. Returns 0 or a negative errno. */
int anonymizer_init(struct anonymizer *a);

void anonymize_comm(const struct anonymizer *a, const char *comm, char ret[static ANONYMIZED_COMM_SIZE]);

/*
 * Replaces each component of a cgroup's path, but for what is the same on many hosts and tells what kind of
 * thing it is: "system.slice", "docker-….scope", ".service"... Length is kept from 16 characters up, as are
 * the places of dashes in ids of pods. Returns a new string, or NULL when memory is short.
 */
char *anonymize_path(const struct anonymizer *a, const char *path);

/* SipHash-2-4 of Aumasson and Bernstein: a keyed hash that does not betray its key. */
uint64_t siphash(const uint64_t key[static 2], const void *data, size_t size);
