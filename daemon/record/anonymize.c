/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "record/anonymize.h"

#define HASH_DIGITS 16U

int anonymizer_init(struct anonymizer *a) {
        ssize_t n = getrandom(a->key, sizeof(a->key), 0);

        return n == (ssize_t) sizeof(a->key) ? 0 : n < 0 ? -errno : -EIO;
}

static uint64_t rotate(uint64_t x, unsigned bits) {
        return x << bits | x >> (64 - bits);
}

static void sip_rounds(uint64_t v[static 4], unsigned n) {
        while (n-- > 0) {
                v[0] += v[1];
                v[2] += v[3];
                v[1] = rotate(v[1], 13) ^ v[0];
                v[3] = rotate(v[3], 16) ^ v[2];
                v[0] = rotate(v[0], 32);
                v[2] += v[1];
                v[0] += v[3];
                v[1] = rotate(v[1], 17) ^ v[2];
                v[3] = rotate(v[3], 21) ^ v[0];
                v[2] = rotate(v[2], 32);
        }
}

uint64_t siphash(const uint64_t key[static 2], const void *data, size_t size) {
        const uint8_t *p = data;
        uint64_t last = (uint64_t) size << 56;
        uint64_t v[4] = {
                key[0] ^ UINT64_C(0x736f6d6570736575),
                key[1] ^ UINT64_C(0x646f72616e646f6d),
                key[0] ^ UINT64_C(0x6c7967656e657261),
                key[1] ^ UINT64_C(0x7465646279746573),
        };

        for (; size >= 8; p += 8, size -= 8) {
                uint64_t word;

                memcpy(&word, p, sizeof(word));
                word = le64toh(word);
                v[3] ^= word;
                sip_rounds(v, 2);
                v[0] ^= word;
        }
        for (size_t i = 0; i < size; i++)
                last |= (uint64_t) p[i] << (8 * i);

        v[3] ^= last;
        sip_rounds(v, 2);
        v[0] ^= last;
        v[2] ^= 0xff;
        sip_rounds(v, 4);
        return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Writes that many hexadecimal digits of the name's hash. */
static void put_hash(const struct anonymizer *a, const char *name, size_t size, char *to, size_t digits) {
        uint64_t hash = siphash(a->key, name, size), chain[2] = { hash, 0 };

        for (size_t i = 0; i < digits; i++) {
                if (i > 0 && i % HASH_DIGITS == 0) {
                        chain[1]++;
                        hash = siphash(a->key, chain, sizeof(chain));
                }
                to[i] = "0123456789abcdef"[hash & 15];
                hash >>= 4;
        }
}

void anonymize_comm(const struct anonymizer *a, const char *comm, char ret[static ANONYMIZED_COMM_SIZE]) {
        size_t size = strlen(comm);

        memset(ret, 0, ANONYMIZED_COMM_SIZE);
        if (size > 0)
                put_hash(a, comm, size, ret, 12);
}

static bool is_one_of(const char *const *names, const char *name, size_t size) {
        for (; *names; names++)
                if (strlen(*names) == size && memcmp(*names, name, size) == 0)
                        return true;

        return false;
}

/* The length of the one that the name begins (or ends) with and does not consist of; 0 if there is none. */
static size_t length_of_affix(const char *const *affixes, const char *name, size_t size, bool at_end) {
        for (; *affixes; affixes++) {
                size_t n = strlen(*affixes);

                if (n < size && memcmp(*affixes, at_end ? name + size - n : name, n) == 0)
                        return n;
        }

        return 0;
}

static bool is_number(const char *s, size_t size) {
        for (size_t i = 0; i < size; i++)
                if (s[i] < '0' || s[i] > '9')
                        return false;

        return size > 0 && size <= 10;
}

/* The id of a pod is told by where its dashes are. */
static bool is_uuid(const char *s, size_t size) {
        if (size != 36)
                return false;

        for (size_t i = 0; i < size; i++)
                if ((i == 8 || i == 13 || i == 18 || i == 23) != (s[i] == '-' || s[i] == '_'))
                        return false;

        return true;
}

/* Writes what stands for a component, or for a part of it between colons. Returns its length; to may be NULL. */
static size_t put_part(const struct anonymizer *a, const char *part, size_t size, char *to) {
        static const char *const kept[] = {
                "system.slice", "user.slice", "machine.slice", "init.scope", "kubepods", "kubepods.slice", "burstable",
                "besteffort", "kubepods-burstable.slice", "kubepods-besteffort.slice", "docker", "lxc", "cri-containerd",
                "crio", "libpod", "payload", "supervisor", NULL,
        };
        static const char *const prefixes[] = {
                "docker-", "libpod-conmon-", "libpod-", "crio-conmon-", "crio-", "cri-containerd-",
                "kubepods-burstable-pod", "kubepods-besteffort-pod", "kubepods-pod", "pod", "machine-", "lxc.payload.",
                "systemd-nspawn@", "user-", "user@", "session-", NULL,
        };
        static const char *const suffixes[] = { ".service", ".scope", ".slice", ".socket", ".mount", ".swap", NULL };
        static const char *const numbered[] = { "user-", "user@", "session-", NULL };

        size_t before = length_of_affix(prefixes, part, size, false);
        size_t after = length_of_affix(suffixes, part + before, size - before, true);
        const char *stem = part + before;
        size_t n = size - before - after;

        if (size == 0 || is_one_of(kept, part, size) || (is_one_of(numbered, part, before) && is_number(stem, n))) {
                if (to)
                        memcpy(to, part, size);
                return size;
        }

        size_t digits = n > HASH_DIGITS ? n : HASH_DIGITS;
        if (to) {
                memcpy(to, part, before);
                put_hash(a, stem, n, to + before, digits);
                if (is_uuid(stem, n))
                        for (size_t i = 8; i <= 23; i += 5)
                                to[before + i] = stem[i];
                memcpy(to + before + digits, stem + n, after);
        }
        return before + digits + after;
}

static size_t put_path(const struct anonymizer *a, const char *path, char *to) {
        size_t size = 0;

        while (*path) {
                size_t n = strcspn(path, "/:");

                size += put_part(a, path, n, to ? to + size : NULL);
                path += n;
                if (!*path)
                        break;
                if (to)
                        to[size] = *path;
                size++;
                path++;
        }

        return size;
}

char *anonymize_path(const struct anonymizer *a, const char *path) {
        size_t size = put_path(a, path, NULL);

        char *anonymous = malloc(size + 1);
        if (!anonymous)
                return NULL;

        put_path(a, path, anonymous);
        anonymous[size] = '\0';
        return anonymous;
}
