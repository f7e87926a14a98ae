/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/accounting.h"
#include "core/exit-feed.h"
#include "core/state-bytes.h"

/*
 * An accounting as bytes, to go on with after a restart in the same boot: cgroup ids, task ids and both
 * clocks mean nothing in another one. What is read is not trusted: it is taken whole or refused.
 *
 * A state has two parts. The counters are all of one moment, baselines of tasks together with what has been
 * counted up to them, so that nothing is counted twice, and nothing is lost that the kernel still knows.
 * They are small, and are saved each time they are shown to somebody: what was shown is never taken back.
 *
 * The windows (and the histories of tasks) are large, and may be of several earlier moments; each tells how far
 * the counters had come then, and what was counted since is put into the newest slot. So they are saved in steps,
 * now and then, and those of one state go with the counters of a later one.
 */
#define STATE_VERSION 1U
#define STATE_BOOT_ID_SIZE 16U
#define STATE_HEADER_SIZE 60U
#define STATE_SIZE_MAX ((size_t) 512 * 1024 * 1024)

struct state_meta {
        uint8_t boot_id[STATE_BOOT_ID_SIZE];
        uint64_t saved_nsec;   /* CLOCK_BOOTTIME: the moment of the counters */
        bool final;            /* saved by a daemon that has then ended: it accounted nothing afterwards */
        bool whole;            /* has windows; set by state_check() */
};

/* Makes a state of counters: begin, then finish. With windows, those are put in between (core/state-windows.h). */
void state_begin(struct state_writer *w);
int state_finish( /* returns 0 or -ENOMEM */
                struct state_writer *w, const struct accounting *a, const struct exit_feed *feed, const struct state_meta *meta);

/*
 * Looks at header and checksum. Returns -ENODATA (truncated), -EBADMSG (no state, or damaged), -EPROTONOSUPPORT
 * (another version), -ESTALE (another boot), or 0 and *ret.
 */
int state_check(
                const void *bytes,
                size_t size,
                const uint8_t boot_id[static STATE_BOOT_ID_SIZE],
                uint64_t now_nsec,
                struct state_meta *ret);

/*
 * Puts the counters of a state that state_check() has passed into an accounting, which is new. On an error
 * (-EBADMSG, -ENOMEM) the accounting is good for nothing but to be freed. Cgroups count as removed now until they are
 * added again, and kinds that were not collected before begin with the next sample of each task.
 */
int state_decode(const void *bytes, size_t size, uint64_t now_nsec, struct accounting *a, struct exit_feed *ret_feed);

/*
 * Then adds windows and histories: of the same state, or of one that was saved before. saved_nsec is the moment of
 * the counters. On an error (-EBADMSG, -ENOMEM) the counters stay good, but the windows may be incomplete.
 */
int state_decode_windows(const void *bytes, size_t size, struct accounting *a, uint64_t saved_nsec);
