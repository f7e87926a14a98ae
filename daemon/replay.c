/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "kernel/kernel-info.h"
#include "kernel/taskstats-decode.h"
#include "log.h"
#include "open-file.h"
#include "recording-reader.h"
#include "replay.h"

#define EVENTS_PER_STEP 4096U

/* Sums of times in the accounting must not overflow, whatever a recording claims. */
#define TIME_MAX_NSEC (UINT64_MAX / 4)
#define CGROUPS_MAX 1000000U

/* Captures have no clock: all is at one moment, before which any task can have lived for years. */
#define CAPTURE_NOW_NSEC (UINT64_C(10) * 365 * 86400 * NSEC_PER_SEC)

#define PROBLEM_IDS_MAX 64U

struct replay {
        char *path;
        struct recording_reader *reader;
        struct health *health;
        struct recorder *recorder;
        struct accounting *accounting;

        enum taskstats_layout layout;
        struct recording_meta meta;
        struct recording_facts facts;
        struct recording_settings settings;
        char *daemon_version, *kernel_release, *cgroup_hierarchy;
        uint64_t now_nsec;
        uint64_t undecoded, unknown_events;
        bool damaged;

        char *problem_ids[PROBLEM_IDS_MAX]; /* struct problem does not copy them */
        size_t n_problem_ids;
};

static void set_damage(struct replay *r, const char *what) {
        static const char remedy[] = "Copy the recording again if it is whole elsewhere: the numbers lack what follows.";
        char message[256];

        if (r->damaged)
                return;

        r->damaged = true;
        snprintf(message, sizeof(message), "The recording is damaged and used up to there: %s.", what);
        log_error("%s: %s %s", r->path, message, remedy);
        (void) health_raise(r->health, "recording-damaged", PROBLEM_DEGRADED, message, remedy);
}

static const char *keep_problem_id(struct replay *r, const char *id) {
        for (size_t i = 0; i < r->n_problem_ids; i++)
                if (strcmp(r->problem_ids[i], id) == 0)
                        return r->problem_ids[i];

        char *copy = r->n_problem_ids < PROBLEM_IDS_MAX ? strdup(id) : NULL;
        if (copy)
                r->problem_ids[r->n_problem_ids++] = copy;
        return copy;
}

static void raise_problem(struct replay *r, const struct recording_problem *problem) {
        const char *id = keep_problem_id(r, problem->id);

        if (!id)
                return;

        (void) health_raise(r->health, id, problem->severity,
                            problem->message[0] ? problem->message : "(Anonymous recordings leave this text out.)",
                            problem->remedy);
        if (r->recorder)
                recorder_problem(r->recorder, r->now_nsec, id, problem->severity, problem->message, problem->remedy);
}

static void clear_problem(struct replay *r, const struct recording_problem *problem) {
        (void) health_clear(r->health, problem->id);
        if (r->recorder)
                recorder_problem_gone(r->recorder, r->now_nsec, problem->id);
}

static void update_malformed(struct replay *r) {
        r->accounting->rejected_samples[REJECT_MALFORMED] = r->facts.malformed + r->undecoded;
}

static void note_error(struct replay *r, int error) {
        if (error < 0)
                (void) health_raise(r->health, "memory", PROBLEM_DEGRADED, "Memory is short: some waits could not be counted.",
                                    "Replay where there is more memory.");
}

static int apply_sample(struct replay *r, const struct recording_event *event) {
        const struct recording_sample *recorded = &event->sample;
        struct task_sample sample;

        if (recorded->start_min_nsec > recorded->start_max_nsec
            || taskstats_decode(recorded->payload, recorded->size, recorded->tid, r->layout, &sample) < 0) {
                r->undecoded++;
                update_malformed(r);
                return 0;
        }

        sample.start_min_nsec = recorded->start_min_nsec;
        sample.start_max_nsec = recorded->start_max_nsec;
        sample.raw = recorded->payload;
        sample.raw_size = recorded->size;
        if (event->accounting.type == ACCOUNTING_EXIT_SAMPLE)
                return accounting_exit_sample(r->accounting, r->now_nsec, &sample);

        return accounting_live_sample(r->accounting, r->now_nsec, &sample);
}

static int apply_accounting(struct replay *r, const struct recording_event *event) {
        const struct accounting_event *e = &event->accounting;
        struct accounting *a = r->accounting;

        switch (e->type) {
        case ACCOUNTING_CGROUP_ADDED:
                return accounting_cgroup_added(a, r->now_nsec, e->cgroup.key, e->cgroup.parent_key, e->cgroup.path);
        case ACCOUNTING_CGROUP_REMOVED:
                accounting_cgroup_removed(a, r->now_nsec, e->cgroup.key);
                return 0;
        case ACCOUNTING_FORK:
                return accounting_fork(a, r->now_nsec, &e->fork);
        case ACCOUNTING_EXEC:
                accounting_exec(a, r->now_nsec, e->tid);
                return 0;
        case ACCOUNTING_PLACE:
                return accounting_place(a, r->now_nsec, e->place.tid, e->place.tgid, e->place.cgroup_key);
        case ACCOUNTING_SWEEP_BEGIN:
                accounting_sweep_begin(a);
                return 0;
        case ACCOUNTING_SWEEP_END:
                accounting_sweep_end(a, r->now_nsec);
                return 0;
        case ACCOUNTING_LIVE_SAMPLE:
        case ACCOUNTING_EXIT_SAMPLE:
                return apply_sample(r, event);
        case ACCOUNTING_VANISHED:
                accounting_vanished(a, r->now_nsec, e->tid);
                return 0;
        case ACCOUNTING_AGE:
                accounting_age(a, r->now_nsec);
                return 0;
        case ACCOUNTING_DOUBT:
                if (e->doubt.tid)
                        accounting_doubt_task(a, e->doubt.tid);
                else
                        accounting_doubt(a, e->doubt.doubt);
                return 0;
        case ACCOUNTING_PRESSURE:
        case ACCOUNTING_LOOKED_UP: /* this accounting has not asked: nothing to do with it */
        case ACCOUNTING_EVENT_COUNT:
                break;
        }

        return 0;
}

static int apply_settings(struct replay *r, const struct recording_settings *settings) {
        struct accounting_config config = r->accounting->config;

        r->settings = *settings;
        config.max_cgroups = settings->max_cgroups;
        config.max_exported = settings->max_exported;
        config.retention_nsec = settings->retention_nsec;
        config.poll_interval_nsec = settings->poll_interval_nsec;
        return accounting_reconfigure(r->accounting, r->now_nsec, &config);
}

static void record_facts(struct replay *r) {
        struct status_facts facts;

        if (!r->recorder)
                return;

        replay_fill_status(r, &facts);
        recorder_facts(r->recorder, r->now_nsec, &facts);
}

static void apply_facts(struct replay *r, const struct recording_facts *recorded) {
        r->facts = *recorded;
        update_malformed(r);
        record_facts(r);
}

static bool are_possible(const struct recording_settings *settings) {
        return settings->max_cgroups > 0 && settings->max_cgroups <= CGROUPS_MAX
                && settings->poll_interval_nsec > 0 && settings->poll_interval_nsec <= TIME_MAX_NSEC
                && settings->retention_nsec <= TIME_MAX_NSEC;
}

/* Returns 0, -EBADMSG for an event that cannot be here, -ENOMEM. */
static int apply(struct replay *r, const struct recording_event *event) {
        if (event->now_nsec > TIME_MAX_NSEC)
                return -EBADMSG;
        if (event->now_nsec > r->now_nsec)
                r->now_nsec = event->now_nsec;
        if (r->recorder)
                recorder_set_clocks(r->recorder, recording_reader_block(r->reader)->boottime_nsec,
                                    recording_reader_block(r->reader)->monotonic_nsec);

        if (recording_is_accounting(event->type)) {
                note_error(r, apply_accounting(r, event));
                return 0;
        }

        switch (event->type) {
        case RECORDING_META: /* only as the first */
                return -EBADMSG;
        case RECORDING_SETTINGS:
                if (!are_possible(&event->settings))
                        return -EBADMSG;
                note_error(r, apply_settings(r, &event->settings));
                break;
        case RECORDING_FACTS:
                apply_facts(r, &event->facts);
                break;
        case RECORDING_PROBLEM:
                raise_problem(r, &event->problem);
                break;
        case RECORDING_PROBLEM_GONE:
                clear_problem(r, &event->problem);
                break;
        case RECORDING_END:
                break;
        default:
                r->unknown_events++;
        }

        return 0;
}

/* What the kernel answered then follows in the recording, after cgroups that were found on the way. */
static int lookup(
                uint32_t tid,
                uint32_t tgid,
                bool ended,
                uint64_t *ret_key,
                enum attribution_source *ret_source,
                void *userdata) {

        struct replay *r = userdata;
        struct recording_event event;

        while (recording_reader_next(r->reader, &event) > 0) {
                uint32_t type = event.type - RECORDING_ACCOUNTING;

                if (type == ACCOUNTING_LOOKED_UP && event.accounting.lookup.tid == tid) {
                        *ret_key = event.accounting.lookup.cgroup_key;
                        *ret_source = event.accounting.lookup.source;
                        return event.accounting.lookup.result;
                }

                /* The daemon that recorded did not ask about this task. */
                if (type != ACCOUNTING_CGROUP_ADDED && type != ACCOUNTING_CGROUP_REMOVED) {
                        recording_reader_put_back(r->reader);
                        break;
                }
                (void) apply(r, &event);
        }

        return -ENODATA;
}

static int pressure(uint64_t key, uint64_t *ret_stall_nsec, void *userdata) {
        struct replay *r = userdata;
        struct recording_event event;

        if (recording_reader_next(r->reader, &event) <= 0)
                return -ENODATA;

        /* The daemon that recorded did not ask. */
        if (event.type - RECORDING_ACCOUNTING != ACCOUNTING_PRESSURE || event.accounting.pressure.key != key) {
                recording_reader_put_back(r->reader);
                return -ENODATA;
        }

        r->accounting->config.n_cpus = event.accounting.pressure.n_cpus;
        *ret_stall_nsec = event.accounting.pressure.stall_nsec;
        return event.accounting.pressure.result;
}

static int keep_text(char **to, const char *text) {
        *to = text[0] ? strdup(text) : NULL;
        return *to || !text[0] ? 0 : -ENOMEM;
}

/* The first two events say how the accounting was set up. */
static int begin(struct replay *r) {
        struct recording_event event, settings;

        int error = recording_reader_next(r->reader, &event);
        if (error > 0)
                error = recording_reader_next(r->reader, &settings);
        if (error < 0)
                return error;
        if (error == 0 || event.type != RECORDING_META || settings.type != RECORDING_SETTINGS
            || event.meta.layout > TASKSTATS_LAYOUT_BY_VERSION || (event.meta.kinds & ~DELAY_KINDS_ALL)
            || event.meta.kinds == 0 || event.meta.started_nsec > TIME_MAX_NSEC || !are_possible(&settings.settings))
                return -EBADMSG;

        r->meta = event.meta;
        r->settings = settings.settings;
        r->layout = (enum taskstats_layout) event.meta.layout;
        r->now_nsec = event.now_nsec <= TIME_MAX_NSEC ? event.now_nsec : 0;
        error = keep_text(&r->daemon_version, event.meta.daemon_version);
        if (error >= 0)
                error = keep_text(&r->kernel_release, event.meta.kernel_release);
        if (error >= 0)
                error = keep_text(&r->cgroup_hierarchy, event.meta.cgroup_hierarchy);

        r->meta.daemon_version = r->daemon_version;
        r->meta.kernel_release = r->kernel_release;
        r->meta.cgroup_hierarchy = r->cgroup_hierarchy;
        return error;
}

static void begin_capture(struct replay *r, const struct config *config) {
        r->now_nsec = CAPTURE_NOW_NSEC;
        r->layout = TASKSTATS_LAYOUT_BY_VERSION;
        r->meta = (struct recording_meta) {
                .started_nsec = CAPTURE_NOW_NSEC,
                .kinds = config->kinds,
                .layout = (uint8_t) r->layout,
        };
        r->settings = (struct recording_settings) {
                .max_cgroups = config->max_cgroups,
                .max_exported = config->max_exported,
                .retention_nsec = config->retention_nsec,
                .poll_interval_nsec = config->poll_interval_nsec,
        };
        r->facts = (struct recording_facts) { .task_delayacct = true, .delayed_dequeue = TRISTATE_UNKNOWN };
}

static int make_accounting(struct replay *r) {
        const struct accounting_config config = {
                .kinds = r->meta.kinds,
                .max_cgroups = r->settings.max_cgroups,
                .max_exported = r->settings.max_exported,
                .retention_nsec = r->settings.retention_nsec,
                .poll_interval_nsec = r->settings.poll_interval_nsec,
                .started_nsec = r->meta.started_monotonic_nsec,
                .rough_clock = r->meta.rough_clock,
                .lookup = recording_reader_is_capture(r->reader) ? NULL : lookup,
                .pressure = recording_reader_is_capture(r->reader) ? NULL : pressure,
                .userdata = r,
        };

        int error = accounting_new(&config, &r->accounting);
        if (error < 0)
                return error;

        if (r->recorder) {
                recorder_set_clocks(r->recorder, r->now_nsec, r->now_nsec);
                recorder_begin(r->recorder, r->accounting, r->now_nsec, &r->meta);
        }
        return 0;
}

static int refuse(const char *path, int error, uint32_t version, const char *damage) {
        switch (error) {
        case -ENOMSG:
                log_error("%s is neither a recording made with --record nor a capture of taskstats messages.", path);
                return error;
        case -EPROTONOSUPPORT:
                log_error("%s is a recording of format version %u; this delayd reads version %u. Use the delayd that "
                          "recorded it, or a newer one.", path, version, RECORDING_VERSION);
                return error;
        case -EBADMSG:
                log_error("%s is damaged at its very beginning (%s), so that nothing of it can be used. Copy it again.",
                          path, damage ?: "its header");
                return error;
        default:
                return log_error_errno(error, "Cannot replay %s", path);
        }
}

int replay_new_from(
                FILE *file,
                const char *path,
                const struct config *config,
                struct health *health,
                struct recorder *recorder,
                struct replay **ret) {

        uint32_t version = 0;

        struct replay *r = calloc(1, sizeof(*r));
        if (!r) {
                fclose(file);
                return -ENOMEM;
        }

        r->health = health;
        r->recorder = recorder;
        int error = recording_reader_new(file, &r->reader, &version);
        if (error >= 0) {
                r->path = strdup(path);
                if (!r->path)
                        error = -ENOMEM;
                else if (recording_reader_is_capture(r->reader))
                        begin_capture(r, config);
                else
                        error = begin(r);
        }
        if (error >= 0)
                error = make_accounting(r);
        if (error < 0) {
                (void) refuse(path, error, version, r->reader ? recording_reader_damage(r->reader) : NULL);
                replay_free(r);
                return error;
        }

        *ret = r;
        return 0;
}

int replay_new(
                const char *path,
                const struct config *config,
                struct health *health,
                struct recorder *recorder,
                struct replay **ret) {

        FILE *file;

        int r = open_file(path, &file);
        if (r < 0) {
                log_error("Cannot replay %s: %s", path, open_file_error(r));
                return r;
        }

        return replay_new_from(file, path, config, health, recorder, ret);
}

static void on_record(const struct task_sample *sample, uint32_t sequence, void *userdata) {
        struct replay *r = userdata;

        r->facts.exits_received++;
        r->meta.taskstats_version = sample->version;
        note_error(r, accounting_exit_sample(r->accounting, r->now_nsec, sample));
}

static int replay_message(struct replay *r) {
        struct nlmsghdr header;
        const uint8_t *message;
        size_t size;

        int error = recording_reader_message(r->reader, &message, &size);
        if (error <= 0)
                return error;

        /* The number of the family is another one on each boot; nothing but taskstats is in a capture. */
        memcpy(&header, message, sizeof(header));
        const struct taskstats_walk walk = {
                .family = header.nlmsg_type,
                .layout = r->layout,
                .made_min_nsec = r->now_nsec,
                .made_max_nsec = r->now_nsec,
                .record = on_record,
                .userdata = r,
        };
        r->undecoded += taskstats_walk(&walk, message, size);
        update_malformed(r);
        return 1;
}

static int replay_event(struct replay *r) {
        struct recording_event event;

        int error = recording_reader_next(r->reader, &event);
        if (error <= 0)
                return error;

        error = apply(r, &event);
        if (error == -EBADMSG)
                set_damage(r, "an event makes no sense where it is");
        return error < 0 ? error : 1;
}

static uint64_t uptime(const struct replay *r) {
        return r->now_nsec > r->meta.started_nsec ? r->now_nsec - r->meta.started_nsec : 0;
}

static void finish(struct replay *r) {
        static const char later[] = "A later version of delayd made the recording; replay it with that one.";

        if (r->unknown_events > 0) {
                log_warning("%s: %llu events are of unknown types. %s", r->path, (unsigned long long) r->unknown_events, later);
                (void) health_raise(r->health, "recording-unknown-events", PROBLEM_DEGRADED,
                                    "Some events of the recording are of unknown types and were left out.", later);
        }

        record_facts(r);
        if (r->recorder)
                recorder_end(r->recorder, r->damaged ? 0 : r->now_nsec);

        log_info("%s: replayed %.1f s, %zu cgroups, %llu exits.", r->path, (double) uptime(r) / (double) NSEC_PER_SEC,
                 r->accounting->cgroups.tracked + r->accounting->cgroups.removed, (unsigned long long) r->accounting->exits);
}

int replay_step(struct replay *r) {
        bool capture = recording_reader_is_capture(r->reader);
        int error = 1;

        for (unsigned i = 0; i < EVENTS_PER_STEP && error > 0; i++)
                error = capture ? replay_message(r) : replay_event(r);

        if (error == -EBADMSG && recording_reader_damage(r->reader))
                set_damage(r, recording_reader_damage(r->reader));
        if (error == 0 || error == -EBADMSG) {
                finish(r);
                error = 0;
        }

        return error;
}

bool replay_is_damaged(const struct replay *r) {
        return r->damaged;
}

struct accounting *replay_accounting(const struct replay *r) {
        return r->accounting;
}

uint64_t replay_now(const struct replay *r) {
        return r->now_nsec;
}

void replay_fill_status(const struct replay *r, struct status_facts *ret) {
        *ret = (struct status_facts) {
                .replay = r->path,
                .uptime_nsec = uptime(r),
                .kernel_release = r->kernel_release,
                .taskstats_version = r->meta.taskstats_version,
                .task_delayacct = r->facts.task_delayacct,
                .delayed_dequeue = (enum tristate) r->facts.delayed_dequeue,
                .cgroup_hierarchy = r->cgroup_hierarchy,
                .exits_received = r->facts.exits_received,
                .exits_lost = r->facts.exits_lost,
                .exit_filter = r->facts.exit_filter,
                .poll_interval_nsec = r->settings.poll_interval_nsec,
                .last_poll_nsec = r->facts.last_poll_nsec,
        };
        kernel_self_usage(ret);
}

struct replay *replay_free(struct replay *r) {
        if (!r)
                return NULL;

        accounting_free(r->accounting);
        recording_reader_free(r->reader);
        for (size_t i = 0; i < r->n_problem_ids; i++)
                free(r->problem_ids[i]);
        free(r->daemon_version);
        free(r->kernel_release);
        free(r->cgroup_hierarchy);
        free(r->path);
        free(r);
        return NULL;
}
