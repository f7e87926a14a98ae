/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * When delay accounting was on, as far as tasks bear witness to it: a task with delays was forked while it was
 * on, a process that cannot but have had some and has none while it was off (delayacct_tsk_init() in
 * kernel/delayacct.c allocates the counters at the fork or never). kernel.task_delayacct may have been switched
 * more than once, as iotop does.
 */
#define DELAY_EVIDENCE_RUNS 16

struct delay_evidence {
        struct delay_evidence_run {
                uint64_t first_nsec, last_nsec; /* of the witnesses */
                bool on;
        } runs[DELAY_EVIDENCE_RUNS]; /* oldest first, and in turn on and off */
        unsigned n;
};

enum delay_evidence_verdict {
        DELAY_EVIDENCE_UNKNOWN,
        DELAY_EVIDENCE_ON,
        DELAY_EVIDENCE_OFF,       /* also for what is older than all evidence, if the oldest is that it was off */
        DELAY_EVIDENCE_AFTER_OFF, /* it was off last before, and may have been switched on since */
};

void delay_evidence_add(struct delay_evidence *evidence, uint64_t nsec, bool on);
enum delay_evidence_verdict delay_evidence_judge(const struct delay_evidence *evidence, uint64_t nsec);
