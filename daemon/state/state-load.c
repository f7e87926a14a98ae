/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-id128.h>

#include "core/text.h"
#include "kernel/monotonic.h"
#include "log.h"
#include "state/state-load.h"

_Static_assert(sizeof(sd_id128_t) == STATE_BOOT_ID_SIZE, "a boot id is that long");

int state_loader_begin(struct state_loader *l) {
        sd_id128_t id;

        *l = (struct state_loader) {};
        int r = sd_id128_get_boot(&id);
        if (r < 0)
                return r;

        memcpy(l->boot_id, &id, sizeof(l->boot_id));
        return 0;
}

void state_loader_end(struct state_loader *l) {
        while (l->n > 0)
                free(l->candidates[--l->n].bytes);
}

/* Not to be used, for the reason that is said. */
static void refuse(struct state_candidate *c, int error) {
        const char *why = error == -ENODATA    ? "is truncated"
                : error == -EPROTONOSUPPORT    ? "is of another version of delayd"
                : error == -ESTALE             ? "is of an earlier boot"
                                               : "is damaged";
        int priority = error == -ESTALE ? LOG_INFO : LOG_WARNING;

        c->usable = false;
        if (!c->directory)
                log_full(priority, "The state that was kept for the restart %s, and is not used.", why);
        else if (state_file_set_aside(c->directory->fd, c->name) >= 0)
                log_full(priority, "The saved state %s/%s %s: set aside as %s.old.", c->directory->path, c->name, why, c->name);
        else
                log_full(priority, "The saved state %s/%s %s, and is not used.", c->directory->path, c->name, why);
}

static void check(struct state_loader *l, struct state_candidate *c) {
        int r = state_check(c->bytes, c->size, l->boot_id, boottime_nsec(), &c->meta);

        c->usable = r >= 0;
        if (r < 0)
                refuse(c, r);
}

static struct state_candidate *add(struct state_loader *l) {
        if (l->n == STATE_CANDIDATES_MAX)
                return NULL;

        l->candidates[l->n] = (struct state_candidate) {};
        return &l->candidates[l->n];
}

void state_loader_add_fd(struct state_loader *l, int fd) {
        struct state_candidate *c = add(l);

        if (!c)
                return;

        int r = state_file_read_fd(fd, &c->bytes, &c->size);
        if (r < 0) {
                log_warning_errno(r, "Cannot read the state that was kept for the restart");
                return;
        }

        l->n++;
        check(l, c);
}

void state_loader_add_file(struct state_loader *l, const struct state_directory *directory, const char *name) {
        struct state_candidate *c = add(l);

        if (!c)
                return;

        int r = state_file_read(directory->fd, name, &c->bytes, &c->size);
        if (r < 0) {
                if (r != -ENOENT)
                        log_warning_errno(r, "Cannot read the saved state %s/%s", directory->path, name);
                return;
        }

        c->directory = directory;
        c->name = name;
        l->n++;
        check(l, c);
}

/* The newest of its kind that was saved up to this time; NULL: there is none. */
static struct state_candidate *newest(struct state_loader *l, bool whole, uint64_t until_nsec) {
        struct state_candidate *best = NULL;

        for (unsigned i = 0; i < l->n; i++) {
                struct state_candidate *c = &l->candidates[i];

                if (!c->usable || (whole && !c->meta.whole) || c->meta.saved_nsec > until_nsec)
                        continue;

                /* Of equals the one that is complete. */
                if (!best || c->meta.saved_nsec > best->meta.saved_nsec
                    || (c->meta.saved_nsec == best->meta.saved_nsec && c->meta.whole && !best->meta.whole))
                        best = c;
        }

        return best;
}

static void say_how_it_ended(const struct state_candidate *counters, const struct accounting *a) {
        char ago[TEXT_SPAN_SIZE];

        text_format_span(ago, boottime_nsec() - counters->meta.saved_nsec);
        log_info("Going on from the state of %s ago: %zu cgroups, %zu tasks.", ago, a->cgroups.removed, a->tasks.n_live);
        if (!counters->meta.final)
                log_warning("delayd had ended without saving: what it read of exits after that state, %s ago, is missing.", ago);
}

static int load_windows(struct state_loader *l, const struct state_candidate *counters, struct accounting *a) {
        uint64_t saved_nsec = counters->meta.saved_nsec;

        for (struct state_candidate *c; (c = newest(l, true, saved_nsec));) {
                int r = state_decode_windows(c->bytes, c->size, a, saved_nsec);

                if (r != -EBADMSG)
                        return r;
                refuse(c, r);
        }

        return 0;
}

int state_loader_load(
                struct state_loader *l,
                const struct accounting_config *config,
                struct accounting **ret,
                struct exit_feed *ret_feed) {

        struct accounting *a;
        int r;

        for (;;) {
                struct state_candidate *c = newest(l, false, UINT64_MAX);

                r = accounting_new(config, &a);
                if (r < 0)
                        return r;
                if (!c) {
                        *ret = a;
                        return 0;
                }

                r = state_decode(c->bytes, c->size, boottime_nsec(), a, ret_feed);
                if (r >= 0)
                        r = load_windows(l, c, a);
                if (r >= 0) {
                        say_how_it_ended(c, a);
                        *ret = a;
                        return 1;
                }

                accounting_free(a);
                if (r == -ENOMEM)
                        return r;
                refuse(c, r);
        }
}
