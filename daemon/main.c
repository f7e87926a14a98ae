/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "collect/collect.h"
#include "config.h"
#include "kernel/monotonic.h"
#include "listeners.h"
#include "log.h"
#include "passed-fds.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "reload.h"
#include "serve/bus.h"
#include "state/saved-state.h"

/* The shortest that the kernel takes. */
#define SLICE_NSEC 100000U

/* struct sched_attr of include/uapi/linux/sched/types.h, which does not go with sched.h. */
struct scheduling {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
};

static const char *arg_config = CONFIG_FILE;
static bool arg_config_required = false;
static bool arg_check_config = false;
static bool arg_bus = true;
static const char *arg_record = NULL;
static bool arg_record_anonymous = false;
static const char *arg_replay = NULL;
static char **arg_settings = NULL;
static size_t arg_n_settings = 0;

struct daemon {
        struct config config;
        struct health health;
        struct collector collector;
        struct recorder *recorder; /* NULL: nothing is recorded */
        struct saved_state *state; /* NULL: nothing is saved */
        struct replay *replay;     /* in the place of the collector; NULL: the kernel is watched */
        struct view view;
        sd_event *event;
        struct passed_fds passed;
        struct listeners listeners;
        struct bus_server *bus;
};

static void help(void) {
        printf("delayd [OPTIONS...]\n\n"
               "Shows who waits for disk and swap: rolling histograms of block-I/O and swap-in\n"
               "delay per cgroup, over D-Bus and a Prometheus endpoint.\n\n"
               "  -c, --config=FILE            Read this file instead of " CONFIG_FILE "\n"
               "      --set=SECTION.KEY=VALUE  Override a key of the configuration\n"
               "      --bus=auto|none          Serve on the system bus (auto), or not\n"
               "      --record=FILE            Write all that the kernel tells to a file as well\n"
               "      --record-anonymous=FILE  The same, with names of cgroups and commands replaced by hashes\n"
               "      --replay=FILE            Show what is in a recording, without asking the kernel (needs no root)\n"
               "      --check-config           Check the configuration and exit\n"
               "      --version                Show the version\n"
               "  -h, --help                   Show this help\n\n"
               "See delayd(8) and delayd.conf(5); ask the daemon with delayctl(1).\n");
}

/* Returns 1 to go on, 0 when all is done, or a negative errno. */
static int parse_arguments(int argc, char *argv[]) {
        enum { ARG_SET = 256, ARG_BUS, ARG_RECORD, ARG_RECORD_ANONYMOUS, ARG_REPLAY, ARG_CHECK_CONFIG, ARG_VERSION };
        static const struct option options[] = {
                { "config", required_argument, NULL, 'c' },
                { "set", required_argument, NULL, ARG_SET },
                { "bus", required_argument, NULL, ARG_BUS },
                { "record", required_argument, NULL, ARG_RECORD },
                { "record-anonymous", required_argument, NULL, ARG_RECORD_ANONYMOUS },
                { "replay", required_argument, NULL, ARG_REPLAY },
                { "check-config", no_argument, NULL, ARG_CHECK_CONFIG },
                { "version", no_argument, NULL, ARG_VERSION },
                { "help", no_argument, NULL, 'h' },
                {},
        };

        arg_settings = calloc((size_t) argc, sizeof(*arg_settings));
        if (!arg_settings)
                return -ENOMEM;

        for (int o; (o = getopt_long(argc, argv, "c:h", options, NULL)) >= 0;)
                switch (o) {
                case 'c':
                        arg_config = optarg;
                        arg_config_required = true;
                        break;
                case ARG_SET:
                        arg_settings[arg_n_settings++] = optarg;
                        break;
                case ARG_BUS:
                        if (strcmp(optarg, "auto") != 0 && strcmp(optarg, "none") != 0) {
                                log_error("--bus=%s: expected auto or none.", optarg);
                                return -EINVAL;
                        }
                        arg_bus = strcmp(optarg, "auto") == 0;
                        break;
                case ARG_RECORD:
                case ARG_RECORD_ANONYMOUS:
                        if (arg_record) {
                                log_error("Only one recording can be made at a time: --record= or --record-anonymous=.");
                                return -EINVAL;
                        }
                        arg_record = optarg;
                        arg_record_anonymous = o == ARG_RECORD_ANONYMOUS;
                        break;
                case ARG_REPLAY:
                        arg_replay = optarg;
                        break;
                case ARG_CHECK_CONFIG:
                        arg_check_config = true;
                        break;
                case ARG_VERSION:
                        puts("delayd " DELAYD_VERSION);
                        return 0;
                case 'h':
                        help();
                        return 0;
                default:
                        log_error("Try 'delayd --help'.");
                        return -EINVAL;
                }

        if (optind < argc) {
                log_error("delayd takes no arguments: %s. Try 'delayd --help'.", argv[optind]);
                return -EINVAL;
        }

        return 1;
}

static uint64_t view_now(void *userdata) {
        struct daemon *d = userdata;

        return d->replay ? replay_now(d->replay) : collector_now();
}

static void view_fill_status(struct status_facts *ret, void *userdata) {
        struct daemon *d = userdata;

        if (d->replay)
                replay_fill_status(d->replay, ret);
        else
                collector_fill_status(&d->collector, ret);
}

static void view_shown(void *userdata) {
        struct daemon *d = userdata;

        if (d->state)
                saved_state_shown(d->state);
}

static void view_diagnose(struct diagnosis *ret, void *userdata) {
        struct daemon *d = userdata;
        const char *directory = NULL;
        int error = 0;

        if (d->state)
                directory = saved_state_directory(d->state, &error);
        collector_diagnose(&d->collector, directory, error, ret);
}

static int start_serving(struct daemon *d) {
        int r;

        d->view = (struct view) {
                .accounting = d->replay ? replay_accounting(d->replay) : d->collector.accounting,
                .health = &d->health,
                .now_nsec = view_now,
                .fill_status = view_fill_status,
                .shown = view_shown,
                .diagnose = d->replay ? NULL : view_diagnose,
                .userdata = d,
                .bucket_bounds_sec = d->config.bucket_bounds_sec,
                .bucket_indices = d->config.bucket_indices,
                .n_buckets = d->config.n_buckets,
        };

        r = listeners_open(&d->listeners, d->event, &d->view, &d->health, &d->config, &d->passed);
        if (r < 0)
                return r;

        if (arg_bus) {
                r = bus_server_new(d->event, &d->view, &d->bus);
                if (r < 0)
                        return log_error_errno(r, "Cannot set up the bus connection");
        }

        d->view.ready = true;
        return 0;
}

/* All of the recording, before anybody can ask; signals end it early. */
static int run_replay(struct daemon *d) {
        int r = replay_new(arg_replay, &d->config, &d->health, d->recorder, &d->replay);

        if (r < 0)
                return r;

        /* What /metrics shows is the choice of whoever serves, not of the recording. */
        struct cgroup_table *cgroups = &replay_accounting(d->replay)->cgroups;
        cgroups->may_export = config_may_export;
        cgroups->may_export_userdata = &d->config;

        do {
                r = replay_step(d->replay);
                if (r < 0)
                        return log_error_errno(r, "Cannot replay %s", arg_replay);

                int event = sd_event_run(d->event, 0);
                if (event < 0)
                        return log_error_errno(event, "The event loop failed");
        } while (r > 0 && sd_event_get_state(d->event) == SD_EVENT_INITIAL);

        return 0;
}

static int start_source(struct daemon *d) {
        int r = 0;

        if (arg_record) {
                r = recorder_new(arg_record, arg_record_anonymous, &d->health, &d->recorder);
                if (r < 0)
                        return r;
        }

        if (arg_replay)
                return run_replay(d);

        /* A recording begins with nothing, or it could not be replayed. */
        if (!d->recorder) {
                r = saved_state_new(&d->config, &d->health, &d->passed, &d->state);
                if (r < 0)
                        return log_error_errno(r, "Cannot look for a saved state");
        }

        r = collector_start(&d->collector, d->event, &d->config, &d->health, d->recorder, d->state);
        if (r >= 0 && d->state)
                r = saved_state_start(d->state, d->event, d->collector.accounting, d->collector.exits);
        return r;
}

static void say_ready(const struct daemon *d) {
        (void) sd_notify(0, d->replay ? "READY=1\nSTATUS=Showing a recording." : "READY=1\nSTATUS=Watching.");
}

static int on_reload(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata) {
        struct daemon *d = userdata;
        const struct reload reload = {
                .in_force = &d->config,
                .health = &d->health,
                .view = &d->view,
                .listeners = &d->listeners,
                .collector = d->replay ? NULL : &d->collector,
        };
        struct config config;

        if (!d->view.ready)
                return 0; /* it has just been read */

        (void) sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=Reloading the configuration.",
                          (unsigned long long) (monotonic_nsec() / NSEC_PER_USEC));

        int r = config_load(arg_config, arg_config_required, arg_settings, arg_n_settings, &config);
        if (r < 0)
                reload_failed(&reload, config_fault());
        else if (reload_apply(&reload, &config) < 0)
                reload_failed(&reload, NULL);
        else if (d->state)
                saved_state_reconfigure(d->state);

        say_ready(d);
        return 0;
}

static int run(struct daemon *d) {
        int r;

        r = sd_event_default(&d->event);
        if (r < 0)
                return log_error_errno(r, "Cannot set up the event loop");

        (void) sd_event_set_watchdog(d->event, true);
        static const int signals[] = { SIGTERM, SIGINT };
        for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
                r = sd_event_add_signal(d->event, NULL, signals[i] | SD_EVENT_SIGNAL_PROCMASK, NULL, NULL);
                if (r < 0)
                        return log_error_errno(r, "Cannot handle signals");
        }

        r = sd_event_add_signal(d->event, NULL, SIGHUP | SD_EVENT_SIGNAL_PROCMASK, on_reload, d);
        if (r < 0)
                return log_error_errno(r, "Cannot handle signals");

        /* Writing to a pipe without a reader or past a limit is an error to us, and none to die of. */
        (void) signal(SIGPIPE, SIG_IGN);
        (void) signal(SIGXFSZ, SIG_IGN);

        r = passed_fds_load(&d->passed);
        if (r < 0)
                return log_error_errno(r, "Cannot take the descriptors that the service manager passed");

        r = start_source(d);
        if (r < 0 || sd_event_get_state(d->event) == SD_EVENT_FINISHED)
                return r;

        r = start_serving(d);
        if (r < 0)
                return r;
        passed_fds_done(&d->passed);

        say_ready(d);
        r = sd_event_loop(d->event);
        (void) sd_notify(0, "STOPPING=1");

        /* Said when it was found; whoever runs us in a script is to know as well. */
        if (r >= 0 && d->replay && replay_is_damaged(d->replay))
                r = -EBADMSG;
        return r;
}

static void stop(struct daemon *d) {
        bus_server_free(d->bus);
        listeners_close(&d->listeners);
        if (d->state) {
                collector_finish(&d->collector);
                saved_state_end(d->state);
                d->state = saved_state_free(d->state);
        }
        collector_done(&d->collector);
        d->recorder = recorder_free(d->recorder);
        d->replay = replay_free(d->replay);
        passed_fds_done(&d->passed);
        sd_event_unref(d->event);
        health_free(&d->health);
        config_done(&d->config);
}

/*
 * Whoever ends within a millisecond has to be looked at before. Since Linux 6.12 a task that asks for short
 * slices is let in at once, rather than when another one has used up its own.
 */
static void ask_for_short_slices(void) {
        struct scheduling attr = {};

        if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0 || attr.policy != SCHED_OTHER)
                return;

        attr.size = sizeof(attr);
        attr.runtime = SLICE_NSEC;
        (void) syscall(SYS_sched_setattr, 0, &attr, 0); /* refused or ignored where the kernel cannot do that */
}

int main(int argc, char *argv[]) {
        struct daemon d = {};
        int r;

        log_open();
        ask_for_short_slices();

        r = parse_arguments(argc, argv);
        if (r > 0) {
                r = config_load(arg_config, arg_config_required, arg_settings, arg_n_settings, &d.config);
                if (r >= 0 && !arg_check_config)
                        r = run(&d);
                stop(&d);
        }

        free(arg_settings);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
