/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "core/state-windows.h"
#include "core/state.h"
#include "kernel/monotonic.h"
#include "log.h"
#include "state/saved-state.h"
#include "state/state-file.h"
#include "state/state-load.h"

#define NAME_STATE "state"
#define NAME_COUNTERS "counters"
#define DEFAULT_DIRECTORY "/var/lib/delayd"
#define PROBLEM "state-unwritable"

/* What is saved beside the loop's work is made in steps of so many bytes, which take a millisecond or two. */
#define STEP_BYTES ((size_t) 256 * 1024)
#define STEP_INTERVAL_NSEC (5 * NSEC_PER_MSEC)

#define RETRY_NSEC (10 * NSEC_PER_SEC)
#define PATIENCE_NSEC NSEC_PER_SEC
#define BARRIER_USEC 1000000

/* A place that is written to, and what became of the last try. */
struct place {
        struct state_directory directory;
        int error;
};

struct saved_state {
        const struct config *config;
        struct health *health;
        char *directory_path, *runtime_path;
        struct place whole, shown;
        struct place *shown_place; /* NULL: counters that were shown are kept nowhere */

        struct state_loader loader;
        bool restored;
        struct exit_feed feed;
        int sockets[EXIT_FEED_SOCKETS_MAX]; /* of the daemon before */
        bool store;        /* somebody keeps descriptors for us */
        bool state_stored; /* one with an earlier state */

        struct accounting *accounting; /* NULL: not started */
        struct exit_listener *exits;
        sd_event_source *save_timer, *step_timer, *written;
        struct state_windows_writer *windows; /* while they are being made */
        struct state_writer next, counters;
        struct state_write *write;             /* while it is being written */
};

/* The first of a list, as systemd passes them. */
static char *directory_from_environment(const char *variable) {
        const char *value = getenv(variable);

        return value && value[0] == '/' ? strndup(value, strcspn(value, ":")) : NULL;
}

static void find_directories(struct saved_state *s) {
        const char *configured = s->config->state_directory;

        s->runtime_path = directory_from_environment("RUNTIME_DIRECTORY");
        if (configured && configured[0])
                s->directory_path = strdup(configured);
        else if (configured) {
                s->directory_path = directory_from_environment("STATE_DIRECTORY");
                if (!s->directory_path) {
                        s->directory_path = strdup(DEFAULT_DIRECTORY);
                        s->whole.directory.make = true;
                }
        }

        /* One of the two does for both. */
        s->whole.directory.path = s->directory_path ?: s->runtime_path;
        s->shown_place = s->whole.directory.path ? &s->whole : NULL;
        if (s->directory_path && s->runtime_path && strcmp(s->directory_path, s->runtime_path) != 0) {
                s->shown.directory.path = s->runtime_path;
                s->shown_place = &s->shown;
        }
}

static void update_problem(struct saved_state *s) {
        const struct place *failed = s->whole.error < 0 ? &s->whole : s->shown.error < 0 ? &s->shown : NULL;
        _cleanup_free_ char *message = NULL;

        if (!failed) {
                if (health_clear(s->health, PROBLEM))
                        log_info("The problem " PROBLEM " is gone.");
                return;
        }

        if (asprintf(&message, failed->error == -EBUSY ? "The state cannot be saved in %s: another delayd uses it."
                                                       : "The state cannot be saved in %s: %s.",
                     failed->directory.path, strerror(-failed->error)) < 0) {
                message = NULL;
                return;
        }

        static const char remedy[] =
                        "Make room there, or let delayd write to it (StateDirectory= in its unit, State.Directory= in "
                        "delayd.conf). Until then counters go back to what was last saved if delayd ends.";
        if (health_raise(s->health, PROBLEM, PROBLEM_DEGRADED, message, remedy) > 0)
                log_warning("%s %s", message, remedy);
}

const char *saved_state_directory(const struct saved_state *s, int *ret_error) {
        *ret_error = s->whole.error;
        return s->directory_path;
}

static void note_result(struct saved_state *s, struct place *place, int r) {
        /* Whatever it was, the next try looks at the path anew: the directory may have been replaced. */
        if (r < 0)
                state_directory_close(&place->directory);
        place->error = r < 0 ? r : 0;
        update_problem(s);
}

static bool place_ready(struct saved_state *s, struct place *place) {
        if (!place->directory.path)
                return false;
        if (place->directory.fd >= 0)
                return true;

        int r = state_directory_open(&place->directory, 0);
        if (r < 0)
                note_result(s, place, r);
        return r >= 0;
}

static void open_place(struct saved_state *s, struct place *place) {
        if (!place->directory.path)
                return;

        int r = state_directory_open(&place->directory, PATIENCE_NSEC);
        if (r < 0)
                note_result(s, place, r);
}

static void take_passed(struct saved_state *s, struct passed_fds *passed) {
        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++) {
                char name[32];

                snprintf(name, sizeof(name), "exits-%u", i);
                s->sockets[i] = passed_fds_take(passed, name);
        }

        for (int fd; (fd = passed_fds_take(passed, NAME_STATE)) >= 0; close(fd)) {
                s->state_stored = true;
                state_loader_add_fd(&s->loader, fd);
        }
}

int saved_state_new(
                const struct config *config, struct health *health, struct passed_fds *passed, struct saved_state **ret) {

        struct saved_state *s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;

        *s = (struct saved_state) {
                .config = config,
                .health = health,
                .whole.directory.fd = -EBADF,
                .shown.directory.fd = -EBADF,
        };
        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++)
                s->sockets[i] = -EBADF;
        find_directories(s);
        int r = state_loader_begin(&s->loader);
        if (r < 0) {
                saved_state_free(s);
                return log_error_errno(r, "Cannot read the boot id");
        }
        take_passed(s, passed);

        open_place(s, &s->whole);
        open_place(s, &s->shown);
        if (s->whole.directory.fd >= 0)
                state_loader_add_file(&s->loader, &s->whole.directory, NAME_STATE);
        if (s->shown_place && s->shown_place->directory.fd >= 0)
                state_loader_add_file(&s->loader, &s->shown_place->directory, NAME_COUNTERS);

        *ret = s;
        return 0;
}

struct saved_state *saved_state_free(struct saved_state *s) {
        if (!s)
                return NULL;

        sd_event_source_disable_unref(s->save_timer);
        sd_event_source_disable_unref(s->step_timer);
        sd_event_source_disable_unref(s->written);
        if (s->write)
                (void) state_write_end(s->write);
        state_windows_end(s->windows);
        state_writer_done(&s->next);
        state_writer_done(&s->counters);
        state_loader_end(&s->loader);
        state_directory_close(&s->whole.directory);
        state_directory_close(&s->shown.directory);
        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++)
                if (s->sockets[i] >= 0)
                        close(s->sockets[i]);
        free(s->directory_path);
        free(s->runtime_path);
        free(s);
        return NULL;
}

int saved_state_restore(struct saved_state *s, const struct accounting_config *config, struct accounting **ret) {
        int r = state_loader_load(&s->loader, config, ret, &s->feed);

        state_loader_end(&s->loader);
        if (r < 0)
                return r;

        s->restored = r > 0;
        return 0;
}

const struct exit_feed *saved_state_feed(const struct saved_state *s) {
        return s->restored ? &s->feed : NULL;
}

int *saved_state_sockets(struct saved_state *s) {
        return s->sockets;
}

/* Returns true if there is somebody who takes it. */
static bool store(const char *name, int fd) {
        char message[96];

        /* A socket that has an error to tell would be dropped if it was watched. */
        snprintf(message, sizeof(message), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
        return sd_pid_notify_with_fds(0, 0, message, &fd, 1) > 0;
}

void saved_state_keep_sockets(struct saved_state *s, struct exit_listener *exits, bool renewed) {
        char name[32];
        bool adopted;

        /* What was not taken over is of no use to anybody. */
        for (unsigned i = 0; i < EXIT_FEED_SOCKETS_MAX; i++) {
                snprintf(name, sizeof(name), "exits-%u", i);
                if (s->sockets[i] >= 0 || renewed)
                        (void) sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
                if (s->sockets[i] >= 0)
                        close(TAKE_FD(s->sockets[i]));
        }

        for (unsigned i = 0; exit_listener_socket(exits, i, &adopted) >= 0; i++) {
                snprintf(name, sizeof(name), "exits-%u", i);
                if (!adopted && store(name, exit_listener_socket(exits, i, &adopted)))
                        s->store = true;
                s->store = s->store || adopted;
        }

        if (s->store)
                exit_listener_keep(exits);
}

static int finish(struct saved_state *s, struct state_writer *w, bool final) {
        struct state_meta meta = { .saved_nsec = boottime_nsec(), .final = final };
        struct exit_feed feed;

        memcpy(meta.boot_id, s->loader.boot_id, sizeof(meta.boot_id));
        exit_listener_feed(s->exits, &feed);
        return state_finish(w, s->accounting, &feed, &meta);
}

static void arm_save(struct saved_state *s) {
        uint64_t interval = s->config->save_interval_nsec;

        if (s->whole.error < 0 && interval > RETRY_NSEC)
                interval = RETRY_NSEC;
        (void) sd_event_source_set_time_relative(s->save_timer, interval / NSEC_PER_USEC);
        (void) sd_event_source_set_enabled(s->save_timer, SD_EVENT_ONESHOT);
}

static void give_up(struct saved_state *s, int r) {
        s->windows = state_windows_end(s->windows);
        state_writer_done(&s->next);
        note_result(s, &s->whole, r);
        arm_save(s);
}

/* An older one is of no use from now on. */
static void drop_stored_state(struct saved_state *s) {
        if (s->state_stored)
                (void) sd_notify(0, "FDSTOREREMOVE=1\nFDNAME=" NAME_STATE);
        s->state_stored = false;
}

static int on_written(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        struct saved_state *s = userdata;

        s->written = sd_event_source_disable_unref(s->written);
        int r = state_write_end(TAKE_PTR(s->write));
        note_result(s, &s->whole, r);
        if (r >= 0)
                drop_stored_state(s);
        arm_save(s);
        return 0;
}

static int write_next(struct saved_state *s, sd_event *event) {
        int r = finish(s, &s->next, false);
        if (r < 0)
                return r;

        uint8_t *bytes = TAKE_PTR(s->next.bytes);
        size_t size = s->next.size;
        state_writer_done(&s->next);
        r = state_write_start(s->whole.directory.fd, NAME_STATE, bytes, size, &s->write);
        if (r < 0)
                return r;

        return sd_event_add_io(event, &s->written, state_write_fd(s->write), EPOLLIN, on_written, s);
}

static int on_step(sd_event_source *source, uint64_t usec, void *userdata) {
        struct saved_state *s = userdata;

        if (state_windows_step(s->windows, s->accounting, STEP_BYTES, &s->next) > 0) {
                (void) sd_event_source_set_time_relative(source, STEP_INTERVAL_NSEC / NSEC_PER_USEC);
                return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        }

        s->windows = state_windows_end(s->windows);
        int r = write_next(s, sd_event_source_get_event(source));
        if (r < 0)
                give_up(s, r);
        return 0;
}

static int on_save(sd_event_source *source, uint64_t usec, void *userdata) {
        struct saved_state *s = userdata;

        if (!place_ready(s, &s->whole)) {
                arm_save(s);
                return 0;
        }

        state_begin(&s->next);
        int r = state_windows_begin(s->accounting, &s->windows);
        if (r < 0) {
                give_up(s, r);
                return 0;
        }

        return on_step(s->step_timer, usec, s);
}

int saved_state_start(struct saved_state *s, sd_event *event, struct accounting *a, struct exit_listener *exits) {
        int r;

        s->accounting = a;
        s->exits = exits;
        if (!s->whole.directory.path)
                return 0;

        /* The first time at once, so that there are windows for the counters that will be shown. */
        r = sd_event_add_time_relative(event, &s->save_timer, CLOCK_MONOTONIC, 0, 1000, on_save, s);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &s->step_timer, CLOCK_MONOTONIC, 0, 1000, on_step, s);
        if (r >= 0)
                r = sd_event_source_set_enabled(s->step_timer, SD_EVENT_OFF);
        return r;
}

void saved_state_reconfigure(struct saved_state *s) {
        if (s->save_timer && !s->windows && !s->write) /* or it follows anyway */
                arm_save(s);
}

void saved_state_shown(struct saved_state *s) {
        if (!s->accounting || !s->shown_place || !place_ready(s, s->shown_place))
                return;

        state_begin(&s->counters);
        int r = finish(s, &s->counters, false);
        if (r < 0)
                state_writer_done(&s->counters);
        else
                r = state_file_write(s->shown_place->directory.fd, NAME_COUNTERS, s->counters.bytes, s->counters.size, false);
        if (r < 0 || s->shown_place->error < 0)
                note_result(s, s->shown_place, r);
}

/* Whoever keeps it has it when this returns: the next daemon may be started at once. */
static void store_state(struct saved_state *s) {
        _cleanup_close_ int fd = state_file_in_memory(s->next.bytes, s->next.size);
        if (fd < 0) {
                log_warning_errno(fd, "Cannot keep the state for a restart");
                return;
        }

        s->state_stored = true;
        drop_stored_state(s);
        (void) store(NAME_STATE, fd);
        (void) sd_notify_barrier(0, BARRIER_USEC);
}

void saved_state_end(struct saved_state *s) {
        struct state_windows_writer *windows;

        if (!s->accounting)
                return;

        if (s->write) {
                s->written = sd_event_source_disable_unref(s->written);
                (void) state_write_end(TAKE_PTR(s->write));
        }

        state_begin(&s->next);
        int r = state_windows_begin(s->accounting, &windows);
        if (r >= 0) {
                r = state_windows_step(windows, s->accounting, SIZE_MAX, &s->next);
                state_windows_end(windows);
        }
        if (r >= 0)
                r = finish(s, &s->next, true);
        if (r < 0) {
                log_warning_errno(r, "Cannot save the state");
                return;
        }

        if (s->store)
                store_state(s);
        if (place_ready(s, &s->whole)) {
                r = state_file_write(s->whole.directory.fd, NAME_STATE, s->next.bytes, s->next.size, true);
                note_result(s, &s->whole, r);
        }
}
