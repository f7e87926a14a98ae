/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/hash-table.h"

#define CAPACITY_MIN 16U

static size_t capacity(const struct hash_table *t) {
        return t->entries ? t->mask + 1 : 0;
}

/* Every input bit reaches every output bit: TIDs and inode numbers differ in few, low bits only. */
static uint64_t mix(uint64_t x) {
        x ^= x >> 33;
        x *= UINT64_C(0xff51afd7ed558ccd);
        x ^= x >> 33;
        x *= UINT64_C(0xc4ceb9fe1a85ec53);
        return x ^ x >> 33;
}

/* The entry of the key, or the free one where it belongs. There always is a free one. */
static struct hash_entry *find(const struct hash_table *t, uint64_t key) {
        size_t i = mix(key) & t->mask;

        while (t->entries[i].value && t->entries[i].key != key)
                i = (i + 1) & t->mask;

        return &t->entries[i];
}

static int resize(struct hash_table *t, size_t new_capacity) {
        struct hash_table resized = {
                .entries = calloc(new_capacity, sizeof(struct hash_entry)),
                .n = t->n,
                .mask = new_capacity - 1,
        };

        if (!resized.entries)
                return -ENOMEM;

        for (size_t i = 0; i < capacity(t); i++)
                if (t->entries[i].value)
                        *find(&resized, t->entries[i].key) = t->entries[i];

        free(t->entries);
        *t = resized;
        return 0;
}

/* Keeps at least three entries in ten free, so that probes stay short. */
static int make_room(struct hash_table *t) {
        size_t have = capacity(t);

        if (have == 0)
                return resize(t, CAPACITY_MIN);
        if (t->n + 1 <= have - have * 3 / 10)
                return 0;
        if (have > SIZE_MAX / sizeof(struct hash_entry) / 2)
                return -ENOMEM;

        return resize(t, have * 2);
}

void *hash_get(const struct hash_table *t, uint64_t key) {
        return t->n > 0 ? find(t, key)->value : NULL;
}

static int put_new(struct hash_table *t, uint64_t key, void *value) {
        int r = make_room(t);

        if (r < 0)
                return r;

        *find(t, key) = (struct hash_entry) { .key = key, .value = value };
        t->n++;
        return 0;
}

int hash_put(struct hash_table *t, uint64_t key, void *value) {
        if (hash_get(t, key))
                return -EEXIST;

        return put_new(t, key, value);
}

int hash_replace(struct hash_table *t, uint64_t key, void *value) {
        struct hash_entry *entry = t->n > 0 ? find(t, key) : NULL;

        if (!entry || !entry->value)
                return put_new(t, key, value);

        entry->value = value;
        return 0;
}

/* Moves later entries of the same run up, so that no probe stops at the hole and no marker is needed. */
static void close_hole(struct hash_table *t, size_t hole) {
        for (size_t i = (hole + 1) & t->mask; t->entries[i].value; i = (i + 1) & t->mask) {
                size_t home = mix(t->entries[i].key) & t->mask;
                bool movable = ((i - home) & t->mask) >= ((i - hole) & t->mask);

                if (movable) {
                        t->entries[hole] = t->entries[i];
                        hole = i;
                }
        }

        t->entries[hole] = (struct hash_entry) {};
}

void *hash_remove(struct hash_table *t, uint64_t key) {
        if (t->n == 0)
                return NULL;

        struct hash_entry *entry = find(t, key);
        void *value = entry->value;
        if (!value)
                return NULL;

        close_hole(t, (size_t) (entry - t->entries));
        t->n--;

        /* Far below the filling at which it grows, so that it does not swing. Too large a table is no error. */
        if (capacity(t) > CAPACITY_MIN && t->n < capacity(t) / 8)
                (void) resize(t, capacity(t) / 4 > CAPACITY_MIN ? capacity(t) / 4 : CAPACITY_MIN);

        return value;
}

void *hash_next(const struct hash_table *t, size_t *cursor) {
        while (*cursor < capacity(t)) {
                void *value = t->entries[(*cursor)++].value;

                if (value)
                        return value;
        }

        return NULL;
}

size_t hash_memory(const struct hash_table *t) {
        return capacity(t) * sizeof(struct hash_entry);
}

void hash_free(struct hash_table *t) {
        free(t->entries);
        *t = (struct hash_table) {};
}

uint64_t hash_bytes(const void *bytes, size_t size) {
        const unsigned char *p = bytes;
        uint64_t hash = UINT64_C(0xcbf29ce484222325);

        for (size_t i = 0; i < size; i++)
                hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);

        return mix(hash);
}
