/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "core/delay-evidence.h"

/* Makes room for n runs before this place; the oldest go for it, by twos so that the turns stay. NULL: there is none. */
static struct delay_evidence_run *insert(struct delay_evidence *e, unsigned place, unsigned n) {
        while (e->n + n > DELAY_EVIDENCE_RUNS && place > 2) {
                memmove(e->runs, e->runs + 2, (e->n - 2) * sizeof(e->runs[0]));
                e->n -= 2;
                place -= 2;
        }
        if (e->n + n > DELAY_EVIDENCE_RUNS)
                return NULL; /* too old to matter */

        memmove(e->runs + place + n, e->runs + place, (e->n - place) * sizeof(e->runs[0]));
        e->n += n;
        return e->runs + place;
}

void delay_evidence_add(struct delay_evidence *e, uint64_t nsec, bool on) {
        struct delay_evidence_run *run;
        unsigned place = 0;

        /* The runs before this place began earlier. */
        while (place < e->n && e->runs[place].first_nsec <= nsec)
                place++;

        struct delay_evidence_run *before = place > 0 ? e->runs + place - 1 : NULL;
        struct delay_evidence_run *after = place < e->n ? e->runs + place : NULL;

        if (before && before->on == on) {
                if (nsec > before->last_nsec)
                        before->last_nsec = nsec;
                return;
        }

        if (before && nsec < before->last_nsec) {
                /* In the midst of the opposite. */
                const struct delay_evidence_run whole = *before;

                run = insert(e, place, 2);
                if (run) {
                        run[-1].last_nsec = whole.first_nsec;
                        run[0] = (struct delay_evidence_run) { nsec, nsec, on };
                        run[1] = (struct delay_evidence_run) { whole.last_nsec, whole.last_nsec, whole.on };
                }
                return;
        }

        if (after && after->on == on) {
                after->first_nsec = nsec;
                return;
        }

        run = insert(e, place, 1);
        if (run)
                *run = (struct delay_evidence_run) { nsec, nsec, on };
}

enum delay_evidence_verdict delay_evidence_judge(const struct delay_evidence *e, uint64_t nsec) {
        unsigned place = 0;

        while (place < e->n && e->runs[place].first_nsec <= nsec)
                place++;

        if (place == 0)
                return e->n > 0 && !e->runs[0].on ? DELAY_EVIDENCE_OFF : DELAY_EVIDENCE_UNKNOWN;

        const struct delay_evidence_run *run = e->runs + place - 1;
        if (nsec <= run->last_nsec)
                return run->on ? DELAY_EVIDENCE_ON : DELAY_EVIDENCE_OFF;
        return run->on ? DELAY_EVIDENCE_UNKNOWN : DELAY_EVIDENCE_AFTER_OFF;
}
