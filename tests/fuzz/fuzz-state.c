/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <endian.h>
#include <zlib.h>

#include <delayd/limits.h>

#include "core/query.h"
#include "core/state.h"
#include "fuzz.h"

/*
 * The state that an earlier daemon left. What only keeps accidents out (magic, version, boot, sizes,
 * checksum) is put right first, so that the fuzzer reaches what is behind.
 */

/* See core/state.c. */
enum { OFFSET_VERSION = 8, OFFSET_BOOT_ID = 16, OFFSET_WINDOWS = 40, OFFSET_SIZE = 48, OFFSET_CRC = 56 };

#define NOW (20000 * NSEC_PER_SEC)

static const uint8_t boot[STATE_BOOT_ID_SIZE] = "this boot, no ot";

static void put_right(uint8_t *bytes, size_t size) {
        static const uint8_t magic[8] = { 0x89, 'D', 'L', 'Y', 'S', 'T', '\n', 0x1a };
        uint64_t rest = size - STATE_HEADER_SIZE, windows;
        uint32_t version = htole32(STATE_VERSION);

        memcpy(bytes, magic, sizeof(magic));
        memcpy(bytes + OFFSET_VERSION, &version, sizeof(version));
        memcpy(bytes + OFFSET_BOOT_ID, boot, sizeof(boot));

        memcpy(&windows, bytes + OFFSET_WINDOWS, sizeof(windows));
        windows = le64toh(windows);
        if (windows > rest)
                windows %= rest + 1;
        rest = htole64(rest - windows);
        windows = htole64(windows);
        memcpy(bytes + OFFSET_WINDOWS, &windows, sizeof(windows));
        memcpy(bytes + OFFSET_SIZE, &rest, sizeof(rest));

        uLong crc = crc32_z(crc32_z(0, NULL, 0), bytes, OFFSET_CRC);
        crc = crc32_z(crc, bytes + STATE_HEADER_SIZE, size - STATE_HEADER_SIZE);
        uint32_t stored = htole32((uint32_t) crc);
        memcpy(bytes + OFFSET_CRC, &stored, sizeof(stored));
}

static struct accounting *make_accounting(void) {
        const struct accounting_config config = {
                .kinds = DELAY_KINDS_DEFAULT,
                .max_cgroups = 12,
                .max_exported = 9,
                .retention_nsec = 300 * NSEC_PER_SEC,
                .poll_interval_nsec = NSEC_PER_SEC,
                .started_nsec = NOW / 2,
        };
        struct accounting *a;

        CHECK(accounting_new(&config, &a) == 0);
        return a;
}

/* It goes on as if nothing had been. */
static void go_on(struct accounting *a, uint64_t now) {
        const struct query query = { .kinds = a->config.kinds, .sort_kind = query_default_sort_kind(a->config.kinds) };
        struct task_sample sample = {
                .tid = 1000, .tgid = 1000, .version = 16, .kinds = DELAY_KINDS_ALL, .lifetime_nsec = NSEC_PER_SEC,
                .start_min_nsec = now - NSEC_PER_SEC, .start_max_nsec = now - NSEC_PER_SEC, .comm = "task",
                .delays = { [DELAY_BLKIO] = { .count = 2, .total_nsec = NSEC_PER_MSEC } },
        };
        struct cgroup_row *rows;
        struct task_row *tasks;
        uint64_t window;
        size_t n;

        (void) accounting_cgroup_added(a, now, 100, 0, "/");
        accounting_sweep_begin(a);
        for (uint32_t tid = 1000; tid < 1020; tid++)
                (void) accounting_place(a, now, tid, 0, 100);
        accounting_sweep_end(a, now);
        (void) accounting_live_sample(a, now, &sample);
        (void) accounting_exit_sample(a, now, &sample);

        CHECK(query_cgroups(a, now, &query, &window, &rows, &n) == 0);
        for (size_t i = 0; i < n; i++)
                check_displayable(rows[i].cgroup->display);
        free(rows);
        CHECK(query_tasks(a, now, &query, &window, &tasks, &n) == 0);
        free(tasks);
        accounting_age(a, now + 3600 * NSEC_PER_SEC);
        accounting_age(a, now + 2 * 3600 * NSEC_PER_SEC);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        uint8_t *bytes = fuzz_copy(data, size);
        struct state_meta meta;

        (void) state_check(bytes, size, boot, NOW, &meta);
        if (size >= STATE_HEADER_SIZE) {
                struct accounting *a = make_accounting();
                struct exit_feed feed;

                put_right(bytes, size);
                if (state_check(bytes, size, boot, NOW, &meta) == 0 && state_decode(bytes, size, NOW, a, &feed) == 0) {
                        CHECK(feed.n_sockets <= EXIT_FEED_SOCKETS_MAX);
                        if (meta.whole)
                                (void) state_decode_windows(bytes, size, a, meta.saved_nsec);
                        go_on(a, NOW);
                }
                accounting_free(a);
        }

        free(bytes);
        return 0;
}
