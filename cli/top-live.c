/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <delayd/limits.h>
#include <systemd/sd-event.h>

#include "bus-client.h"
#include "core/text.h"
#include "output.h"
#include "top.h"

#define DELAY_STEP_NSEC NSEC_PER_SEC
#define DELAY_SMALL_STEP_NSEC (250 * NSEC_PER_MSEC)
#define LINES_ABOVE_TABLE 3 /* title, message, titles of columns */
#define ALL_KINDS (-1)

struct live {
        const struct options *options;
        sd_event *event;
        sd_event_source *timer;
        sd_bus *bus;
        sd_bus_slot *call;

        /* What is asked for. */
        const struct list_class *class;
        delay_kind_set kinds;  /* that can be chosen from; 0 until a reply has told */
        int kind;              /* the one chosen, or ALL_KINDS */
        enum sort sort;
        uint64_t window_nsec;
        uint64_t delay_nsec;

        struct list_request request; /* of the call under way or the last one */
        struct json_object *list;    /* the last reply; NULL right after a change of the class */
        char *error;                 /* why there is no newer one */
        uint64_t n_replies;
        bool help;
        int signal;                  /* that ended it */
};

static delay_kind_set wanted_kinds(const struct live *live) {
        return live->kind == ALL_KINDS ? live->options->kinds : DELAY_KIND_BIT(live->kind);
}

static size_t table_lines(void) {
        size_t rows = terminal_rows();

        return rows > LINES_ABOVE_TABLE ? rows - LINES_ABOVE_TABLE : 1;
}

static void make_request(struct live *live) {
        delay_kind_set kinds = wanted_kinds(live);
        bool one_kind = __builtin_popcount(kinds) == 1;

        live->request = (struct list_request) {
                .class = live->class,
                .window_nsec = live->window_nsec,
                .kinds = kinds,
                .first_kind = live->kind == ALL_KINDS ? live->options->first_kind : (enum delay_kind) live->kind,
                .sort = live->sort,
                /* The daemon sorts by one kind and does not leave out cgroups without waits. */
                .limit = one_kind && live->sort != SORT_NAME ? table_lines() : 0,
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

static void print_kind_names(const struct live *live, FILE *stream) {
        delay_kind_set kinds = wanted_kinds(live) ?: live->kinds;
        const char *separator = "";

        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                if (delay_kind_in(kinds, (enum delay_kind) kind)) {
                        fprintf(stream, "%s%s", separator, delay_kind_name((enum delay_kind) kind));
                        separator = " ";
                }
        if (!separator[0])
                fputs("all kinds", stream);
}

/* One line, cut to the terminal. */
static void print_cut(FILE *stream, enum style style, const char *text) {
        _cleanup_free_ char *cut = NULL;

        cut = printable_cut(text, terminal_columns(), CUT_END);
        fprintf(stream, "%s%s%s\n", style_on(style), cut ?: "", style_off(style));
}

static int print_title(const struct live *live, uint64_t window_nsec, FILE *stream) {
        char span[TEXT_SPAN_SIZE], clock[16] = "";
        char *text = NULL;
        size_t size;
        FILE *title;
        struct tm tm;
        time_t now;

        title = open_memstream(&text, &size);
        if (!title)
                return -ENOMEM;

        now = time(NULL);
        if (localtime_r(&now, &tm))
                strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
        fprintf(title, "%s %s, ", clock, live->class->plural);
        print_kind_names(live, title);
        fprintf(title, ", last %s, by %s", text_format_span(span, window_nsec),
                sort_word(live->class, live->sort));
        fprintf(title, ", every %s  (q quit, h help)", text_format_span(span, live->delay_nsec));
        if (fclose(title) != 0) {
                free(text);
                return -ENOMEM;
        }

        print_cut(stream, STYLE_BOLD, text);
        free(text);
        return 0;
}

/* The second line: what the numbers below lack. */
static void print_message(const struct live *live, const struct delay_lines *lines, FILE *stream) {
        char text[160] = "";

        if (live->error) {
                _cleanup_free_ char *error = printable_text(live->error);

                print_cut(stream, STYLE_BAD, error ?: "");
                return;
        }

        if (lines->rejected_waits > 0)
                snprintf(text, sizeof(text), "%" PRIu64 " waits of impossible length rejected. ", lines->rejected_waits);
        if (lines->unaccounted_tasks > 0)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%" PRIu64 " tasks not accounted.",
                         lines->unaccounted_tasks);
        print_cut(stream, STYLE_WARNING, text);
}

static int print_table(const struct live *live, const struct delay_lines *lines, FILE *stream) {
        struct table *table;
        int r;

        if (lines->n == 0) {
                if (live->list)
                        list_print_nothing(lines, stream);
                return 0;
        }

        r = list_table(lines, live->class, table_lines(), __builtin_popcount(lines->kinds) > 1, &table);
        if (r < 0)
                return r;

        r = table_print(table, stream, terminal_columns(), true);
        table_free(table);
        return r;
}

static void print_keys(FILE *stream) {
        fputs("\n"
              "  q          quit\n"
              "  space      ask again now\n"
              "  t          cgroups or tasks\n"
              "  k          next kind of delay, or all of them\n"
              "  w          next window: 1min, 5min, 15min, 1h\n"
              "  + -        slower, faster\n"
              "  s          next order, or directly:\n"
              "             T total  W waits  M mean  X max\n"
              "             5 p50  9 p90  0 p99  N name\n"
              "  h ?        this help\n\n"
              "Any key goes back.\n", stream);
}

static int print_frame(const struct live *live, FILE *stream) {
        _cleanup_(delay_lines_free) struct delay_lines lines = {};
        uint64_t window_nsec = live->window_nsec ?: DELAYD_WINDOW_DEFAULT_NSEC;
        int r;

        if (live->list) {
                r = list_lines(live->list, live->class, wanted_kinds(live), live->sort, live->options->all, &lines);
                if (r < 0)
                        return r;
                if (live->request.window_nsec == live->window_nsec)
                        window_nsec = lines.window_nsec;
        }

        r = print_title(live, window_nsec, stream);
        if (r < 0)
                return r;
        if (live->help) {
                print_keys(stream);
                return 0;
        }

        print_message(live, &lines, stream);
        return print_table(live, &lines, stream);
}

static int draw(const struct live *live) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        FILE *stream;
        int r;

        stream = open_memstream(&text, &size);
        if (!stream)
                return -ENOMEM;

        r = print_frame(live, stream);
        if (fclose(stream) != 0)
                r = -ENOMEM;
        if (r < 0)
                return r;

        return screen_draw(text);
}

/* An error of the drawing ends the view: there is nothing left to show it on. */
static int redraw(struct live *live) {
        int r = draw(live);

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
                set_error(live, bus_explain(sd_bus_message_get_error(reply), -sd_bus_message_get_errno(reply)));
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
        do
                live->kind++;
        while (live->kind < DELAY_KIND_COUNT && !delay_kind_in(live->kinds, (enum delay_kind) live->kind));

        if (live->kind == DELAY_KIND_COUNT)
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
        r = draw(live);
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
