/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * An open-addressing hash table from 64-bit integers to non-NULL pointers. It grows and shrinks
 * with its contents, keeps no order, and does not own what it points to.
 */
struct hash_entry {
        uint64_t key;
        void *value; /* NULL: free */
};

struct hash_table {
        struct hash_entry *entries;
        size_t n;
        size_t mask; /* capacity - 1, a power of two; 0 while nothing is allocated */
};

void *hash_get(const struct hash_table *t, uint64_t key);

/* Returns 0, -EEXIST when the key is taken, -ENOMEM. */
int hash_put(struct hash_table *t, uint64_t key, void *value);

/* Points an existing or new key at value. Returns 0 or -ENOMEM (only for a new key). */
int hash_replace(struct hash_table *t, uint64_t key, void *value);

/* Takes the key out and returns its value; NULL when there is none. Never fails. */
void *hash_remove(struct hash_table *t, uint64_t key);

/*
 * Walks all entries in no order: start with *cursor = 0, ends with NULL. Entries must not be put or
 * removed during the walk.
 */
void *hash_next(const struct hash_table *t, size_t *cursor);

size_t hash_memory(const struct hash_table *t);
void hash_free(struct hash_table *t); /* the table only, not the values */

/* A 64-bit hash of bytes (FNV-1a, then mixed), for keys that are made of text. */
uint64_t hash_bytes(const void *bytes, size_t size);
