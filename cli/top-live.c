/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <delayd/limits.h>
#include <systemd/sd-event.h>

#include "bus-client.h"
#include "output.h"
#include "top-live.h"
#include "top.h"

#define DELAY_STEP_NSEC NSEC_PER_SEC
#define DELAY_SMALL_STEP_NSEC (250 * NSEC_PER_MSEC)

static void make_request(struct live *live) {
        delay_kind_set kinds = live_kinds(live);
        bool one_kind = __builtin_popcount(kinds) == 1;

        live->request = (struct list_request) {
                .class = live->class,
                .window_nsec = live->window_nsec,
                .kinds = kinds,
                .first_kind = live->kind == ALL_KINDS ? live->options->first_kind
                                                      : (enum delay_kind) live->kind,
                .sort = live->sort,
                /* The daemon sorts by one kind and does not leave out cgroups without waits. */
                .limit = one_kind && live->sort != SORT_NAME ? live_table_lines() : 0,
        };
}

/* Takes a reply in; returns 0 or a negative errno. */
static int take_reply(struct live *live, sd_bus_message *reply) {
        struct json_object *list;
        int r;

        r = list_read_reply(reply, &live->request, &list);
        if (r < 0)
                return r;

        json_object_put(live->list);
        live->list = list;
        live->n_replies++;
        free(live->error);
        live->error = NULL;

        if (live->request.kinds == 0) {
                struct json_object *rows = json_get_list(list, live->class->rows_key);

                for (size_t i = 0; i < json_object_array_length(rows); i++)
                        live->kinds |= fields_kinds_in(json_object_array_get_idx(rows, i));
        }

        return 0;
}

/* An error of the drawing ends the view: there is nothing left to show it on. */
static int redraw(struct live *live) {
        int r = live_draw(live);

        return r < 0 ? sd_event_exit(live->event, r) : 0;
}

static void set_error(struct live *live, char *text) {
        free(live->error);
        live->error = text ?: strdup("Out of memory.");
}

static int on_reply(sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        struct live *live = userdata;
        int r;

        live->call = sd_bus_slot_unref(live->call);

        if (sd_bus_message_is_method_error(reply, NULL))
                set_error(live, bus_explain(sd_bus_message_get_error(reply),
                                            -sd_bus_message_get_errno(reply)));
        else {
                r = take_reply(live, reply);
                if (r < 0)
                        set_error(live, bus_explain_reply(r));
        }

        r = redraw(live);
        if (live->options->iterations > 0 && live->n_replies >= live->options->iterations)
                return sd_event_exit(live->event, 0);

        return r;
}

/* A bus that has gone (and dbus-daemon with it) may come back. */
static int reconnect(struct live *live) {
        char *error;
        int r;

        if (live->bus && sd_bus_is_open(live->bus) > 0)
                return 0;

        live->bus = sd_bus_close_unref(live->bus);
        r = bus_open(&live->bus, &error);
        if (r < 0) {
                set_error(live, error);
                return r;
        }

        return sd_bus_attach_event(live->bus, live->event, SD_EVENT_PRIORITY_NORMAL);
}

/* Asks the daemon; a call that is under way is given up, for it asks what is not wanted any more. */
static int ask(struct live *live) {
        _cleanup_message_ sd_bus_message *message = NULL;
        int r;

        live->call = sd_bus_slot_unref(live->call);

        r = reconnect(live);
        if (r < 0)
                return redraw(live);

        make_request(live);
        r = list_new_call(live->bus, &live->request, &message);
        if (r >= 0)
                r = sd_bus_call_async(live->bus, &live->call, message, on_reply, live, BUS_CALL_TIMEOUT_USEC);
        if (r < 0) {
                set_error(live, bus_explain(NULL, r));
                return redraw(live);
        }

        return 0;
}

static int arm_timer(struct live *live) {
        int r;

        r = sd_event_source_set_time_relative(live->timer, live->delay_nsec / NSEC_PER_USEC);
        if (r < 0)
                return r;

        return sd_event_source_set_enabled(live->timer, SD_EVENT_ONESHOT);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        struct live *live = userdata;
        int r;

        r = arm_timer(live);
        if (r < 0)
                return sd_event_exit(live->event, r);

        /* A slow daemon must not be asked once more before it has answered. */
        return live->call ? 0 : ask(live);
}

static void next_kind(struct live *live) {
        for (unsigned kind = (unsigned) (live->kind + 1); kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(live->kinds, (enum delay_kind) kind)) {
                        live->kind = (int) kind;
                        return;
                }

        live->kind = ALL_KINDS;
}

static void next_window(struct live *live) {
        static const uint64_t windows[DELAYD_WINDOW_COUNT] = DELAYD_WINDOWS_NSEC;
        uint64_t used = live->window_nsec ?: DELAYD_WINDOW_DEFAULT_NSEC;

        for (size_t i = 0; i < DELAYD_WINDOW_COUNT; i++)
                if (windows[i] > used) {
                        live->window_nsec = windows[i];
                        return;
                }

        live->window_nsec = windows[0];
}

static void toggle_class(struct live *live) {
        live->class = live->class == &cgroup_list_class ? &task_list_class : &cgroup_list_class;
        json_object_put(live->list);
        live->list = NULL;
}

static void change_delay(struct live *live, bool slower) {
        uint64_t step;

        if (live->delay_nsec < DELAY_STEP_NSEC || (!slower && live->delay_nsec == DELAY_STEP_NSEC))
                step = DELAY_SMALL_STEP_NSEC;
        else
                step = DELAY_STEP_NSEC;

        if (slower)
                live->delay_nsec += step;
        else
                live->delay_nsec -= live->delay_nsec > step ? step : 0;
}

static bool sort_by_key(struct live *live, char key) {
        static const char keys[SORT_COUNT] = {
                [SORT_TOTAL] = 'T',
                [SORT_WAITS] = 'W',
                [SORT_MEAN] = 'M',
                [SORT_P50] = '5',
                [SORT_P90] = '9',
                [SORT_P99] = '0',
                [SORT_MAX] = 'X',
                [SORT_NAME] = 'N',
        };
        const char *p = memchr(keys, key, sizeof(keys));

        if (!p)
                return false;

        live->sort = (enum sort) (p - keys);
        return true;
}

/* Returns true if the daemon must be asked. */
static bool handle_key(struct live *live, char key) {
        if (key == 'q') {
                sd_event_exit(live->event, 0);
                return false;
        }
        if (live->help || key == 'h' || key == '?') {
                live->help = !live->help;
                return false;
        }

        switch (key) {
        case ' ':
                return true;
        case 's':
                live->sort = (enum sort) ((live->sort + 1) % SORT_COUNT);
                return true;
        case 'k':
                next_kind(live);
                return true;
        case 'w':
                next_window(live);
                return true;
        case 't':
                toggle_class(live);
                return true;
        case '+':
        case '-':
                change_delay(live, key == '+');
                arm_timer(live);
                return false;
        default:
                return sort_by_key(live, key);
        }
}

/* Length of the escape sequence of a cursor or function key, so that its letters are not taken for keys. */
static size_t escape_length(const char *s, size_t size) {
        size_t n = 1;

        if (n < size && (s[n] == '[' || s[n] == 'O')) {
                n++;
                while (n < size && (s[n] < '@' || s[n] > '~'))
                        n++;
                n += n < size;
        }

        return n;
}

static int on_input(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        struct live *live = userdata;
        bool must_ask = false;
        char keys[64];
        ssize_t size;

        size = read(fd, keys, sizeof(keys));
        if (size < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (size <= 0)
                return sd_event_exit(live->event, 0); /* the terminal is gone */

        for (size_t i = 0; i < (size_t) size;)
                if (keys[i] == '\033')
                        i += escape_length(keys + i, (size_t) size - i);
                else
                        must_ask = handle_key(live, keys[i++]) || must_ask;

        if (must_ask)
                ask(live);

        return redraw(live);
}

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata) {
        struct live *live = userdata;

        switch (info->ssi_signo) {
        case SIGWINCH:
                return redraw(live);
        case SIGTSTP:
                screen_leave();
                return raise(SIGSTOP); /* SIGCONT is waiting when this returns */
        case SIGCONT:
                screen_enter();
                return redraw(live);
        default:
                live->signal = (int) info->ssi_signo;
                return sd_event_exit(live->event, 0);
        }
}

static int watch(struct live *live) {
        static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT };
        sigset_t set;
        int r;

        sigemptyset(&set);
        for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
                sigaddset(&set, signals[i]);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return -errno;

        for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
                r = sd_event_add_signal(live->event, NULL, signals[i], on_signal, live);
                if (r < 0)
                        return r;
        }

        if (isatty(STDIN_FILENO)) {
                r = sd_event_add_io(live->event, NULL, STDIN_FILENO, EPOLLIN, on_input, live);
                if (r < 0)
                        return r;
        }

        r = sd_event_add_time_relative(live->event, &live->timer, CLOCK_MONOTONIC,
                                       live->delay_nsec / NSEC_PER_USEC, 0, on_timer, live);
        if (r < 0)
                return r;

        return sd_bus_attach_event(live->bus, live->event, SD_EVENT_PRIORITY_NORMAL);
}

/* The first answer comes before the screen is taken, so that an error is said in the usual way. */
static int ask_first(struct live *live) {
        _cleanup_message_ sd_bus_message *message = NULL, *reply = NULL;
        char *error;
        int r;

        make_request(live);
        r = list_new_call(live->bus, &live->request, &message);
        if (r < 0)
                return fail_explained(bus_explain(NULL, r));
        r = bus_call(live->bus, message, &reply, &error);
        if (r < 0)
                return fail_explained(error);
        r = take_reply(live, reply);
        if (r < 0)
                return fail_explained(bus_explain_reply(r));

        return EXIT_SUCCESS;
}

static int follow(struct live *live) {
        int r;

        r = sd_event_new(&live->event);
        if (r < 0)
                return r;
        r = watch(live);
        if (r < 0)
                return r;
        r = screen_enter();
        if (r < 0)
                return r;
        r = live_draw(live);
        if (r < 0 || live->options->iterations == 1)
                return r;

        return sd_event_loop(live->event);
}

static void live_done(struct live *live) {
        sd_bus_slot_unref(live->call);
        sd_event_source_unref(live->timer);
        sd_bus_close_unref(live->bus);
        sd_event_unref(live->event);
        json_object_put(live->list);
        free(live->error);
}

/* So that whoever started us sees what ended us. */
static void die_of(int signal_number) {
        sigset_t set;

        signal(signal_number, SIG_DFL);
        sigemptyset(&set);
        sigaddset(&set, signal_number);
        raise(signal_number);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int top_live(sd_bus **bus, const struct options *options) {
        struct live live = {
                .options = options,
                .bus = TAKE_PTR(*bus),
                .class = top_class(options),
                .kinds = options->kinds,
                .kind = ALL_KINDS,
                .sort = options->sort,
                .window_nsec = options->window_nsec,
                .delay_nsec = options->delay_nsec,
        };
        int status, r;

        status = ask_first(&live);
        if (status == EXIT_SUCCESS) {
                r = follow(&live);
                screen_leave();
                if (r < 0)
                        status = fail("Cannot go on: %s.", strerror(-r));
        }

        live_done(&live);
        if (live.signal)
                die_of(live.signal);

        return status;
}
