/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "log.h"
#include "record/anonymize.h"
#include "record/recorder.h"

/* A block is written when it is full or this old: so much is lost when the daemon is killed. */
#define BLOCK_AGE_NSEC NSEC_PER_SEC

struct recorder {
        char *path;
        int fd;             /* negative: stopped */
        bool regular;       /* a file that can be cut */
        uint64_t file_size; /* of whole blocks */
        struct health *health;
        struct accounting *accounting;

        bool anonymous;
        struct anonymizer anonymizer;
        enum taskstats_layout layout;

        struct recording_block block;
        uint8_t *events;    /* of the block that is being filled */
        size_t size;
        uint64_t now_nsec;  /* of the last event */
        uint64_t set_boottime_nsec, set_monotonic_nsec; /* 0: read the clocks */

        struct recording_facts facts;
        struct recording_settings settings;
};

static uint64_t read_clock(clockid_t id) {
        struct timespec ts;

        clock_gettime(id, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

static void stop(struct recorder *r, int error) {
        static const char remedy[] = "Make room or choose another file, and restart delayd to record again.";
        char message[256];

        if (r->fd < 0)
                return;

        snprintf(message, sizeof(message), "The recording has stopped: %s. What was written before is good.",
                 strerrordesc_np(-error) ?: "unknown error");
        if (health_raise(r->health, "recording-stopped", PROBLEM_DEGRADED, message, remedy) > 0)
                log_warning("%s: %s %s", r->path, message, remedy);

        if (r->accounting)
                accounting_observe(r->accounting, NULL, NULL);
        if (r->regular)
                (void) !ftruncate(r->fd, (off_t) r->file_size);
        close(TAKE_FD(r->fd));
}

static int write_all(struct recorder *r, const uint8_t *p, size_t size) {
        size_t done = 0;

        while (done < size) {
                ssize_t n = write(r->fd, p + done, size - done);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                done += (size_t) n;
        }

        r->file_size += size;
        return 0;
}

static int flush(struct recorder *r) {
        _cleanup_free_ uint8_t *packed = NULL;
        size_t size;

        if (r->fd < 0 || r->size == 0)
                return 0;

        int error = recording_pack(&r->block, r->events, r->size, &packed, &size);
        if (error >= 0)
                error = write_all(r, packed, size);
        if (error < 0) {
                stop(r, error);
                return error;
        }

        r->block.sequence++;
        r->size = 0;
        return 0;
}

static void put(struct recorder *r, struct recording_event *event) {
        if (r->fd < 0)
                return;

        if (event->now_nsec < r->now_nsec)
                event->now_nsec = r->now_nsec;
        r->now_nsec = event->now_nsec;

        for (unsigned attempt = 0; attempt < 2; attempt++) {
                if (r->size == 0) {
                        r->block.boottime_nsec = r->set_boottime_nsec ?: read_clock(CLOCK_BOOTTIME);
                        r->block.monotonic_nsec = r->set_monotonic_nsec ?: read_clock(CLOCK_MONOTONIC);
                }

                size_t size = recording_encode(event, r->events + r->size, RECORDING_BLOCK_MAX - r->size);
                r->size += size;
                if (size > 0 || flush(r) < 0)
                        return;
        }

        stop(r, -EMSGSIZE); /* not even into an empty block */
}

static void put_sample(struct recorder *r, struct recording_event *event, const struct task_sample *sample) {
        uint8_t anonymous[RECORDING_PAYLOAD_MAX];
        char comm[ANONYMIZED_COMM_SIZE];

        if (!sample->raw || sample->raw_size > RECORDING_PAYLOAD_MAX) {
                stop(r, sample->raw ? -EMSGSIZE : -ENOMEM); /* a copy that could not be made */
                return;
        }

        event->sample = (struct recording_sample) {
                .tid = sample->tid,
                .start_min_nsec = sample->start_min_nsec,
                .start_max_nsec = sample->start_max_nsec,
                .payload = sample->raw,
                .size = sample->raw_size,
        };

        if (r->anonymous) {
                anonymize_comm(&r->anonymizer, sample->comm, comm);
                memcpy(anonymous, sample->raw, sample->raw_size);
                event->sample.size = taskstats_replace_comm(anonymous, sample->raw_size, r->layout, comm);
                event->sample.payload = anonymous;
        }
        put(r, event);
}

/* Whoever changes a setting while we run need not know of recordings. */
static void put_settings(struct recorder *r, uint64_t now_nsec) {
        const struct accounting *a = r->accounting;
        struct recording_settings settings = {
                .max_cgroups = a->cgroups.max_cgroups,
                .max_exported = a->cgroups.max_exported,
                .retention_nsec = a->cgroups.retention_nsec,
                .poll_interval_nsec = a->config.poll_interval_nsec,
        };

        if (memcmp(&settings, &r->settings, sizeof(settings)) == 0)
                return;

        r->settings = settings;
        put(r, &(struct recording_event) { .type = RECORDING_SETTINGS, .now_nsec = now_nsec, .settings = settings });
}

static void on_event(const struct accounting_event *event, void *userdata) {
        struct recorder *r = userdata;
        _cleanup_free_ char *path = NULL;
        struct recording_event recorded = {
                .type = RECORDING_ACCOUNTING + event->type,
                .now_nsec = event->now_nsec,
                .accounting = *event,
        };

        put_settings(r, event->now_nsec);
        switch (event->type) {
        case ACCOUNTING_LIVE_SAMPLE:
        case ACCOUNTING_EXIT_SAMPLE:
                put_sample(r, &recorded, event->sample);
                return;

        case ACCOUNTING_CGROUP_ADDED:
                if (r->anonymous) {
                        path = anonymize_path(&r->anonymizer, event->cgroup.path);
                        if (!path) {
                                stop(r, -ENOMEM);
                                return;
                        }
                        recorded.accounting.cgroup.path = path;
                }
                break;

        case ACCOUNTING_AGE:
                put(r, &recorded);
                if (r->now_nsec - r->block.boottime_nsec >= BLOCK_AGE_NSEC)
                        (void) flush(r);
                return;

        default:
                break;
        }

        put(r, &recorded);
}

void recorder_begin(
                struct recorder *r,
                struct accounting *a,
                uint64_t now_nsec,
                const struct recording_meta *meta) {

        struct recording_event event = { .type = RECORDING_META, .now_nsec = now_nsec, .meta = *meta };

        event.meta.anonymous = r->anonymous || meta->anonymous;
        r->layout = (enum taskstats_layout) meta->layout;
        r->accounting = a;
        put(r, &event);
        put_settings(r, now_nsec);
        accounting_observe(a, on_event, r);
}

void recorder_facts(struct recorder *r, uint64_t now_nsec, const struct status_facts *facts) {
        if (!r->accounting)
                return;

        struct recording_facts recorded = {
                .exits_received = facts->exits_received,
                .exits_lost = facts->exits_lost,
                .malformed = r->accounting->rejected_samples[REJECT_MALFORMED],
                .last_poll_nsec = facts->last_poll_nsec,
                .task_delayacct = facts->task_delayacct,
                .delayed_dequeue = (uint8_t) facts->delayed_dequeue,
                .exit_filter = facts->exit_filter,
        };

        if (memcmp(&recorded, &r->facts, sizeof(recorded)) == 0)
                return;

        r->facts = recorded;
        put(r, &(struct recording_event) { .type = RECORDING_FACTS, .now_nsec = now_nsec, .facts = recorded });
}

void recorder_problem(
                struct recorder *r,
                uint64_t now_nsec,
                const char *id,
                enum problem_severity severity,
                const char *message,
                const char *remedy) {

        /* The texts are for people and may hold a name. */
        put(r, &(struct recording_event) {
                .type = RECORDING_PROBLEM,
                .now_nsec = now_nsec,
                .problem = { severity, id, r->anonymous ? "" : message, r->anonymous ? "" : remedy },
        });
}

void recorder_problem_gone(struct recorder *r, uint64_t now_nsec, const char *id) {
        put(r, &(struct recording_event) {
                .type = RECORDING_PROBLEM_GONE,
                .now_nsec = now_nsec,
                .problem.id = id,
        });
}

void recorder_set_clocks(struct recorder *r, uint64_t boottime_nsec, uint64_t monotonic_nsec) {
        r->set_boottime_nsec = boottime_nsec;
        r->set_monotonic_nsec = monotonic_nsec;
}

void recorder_end(struct recorder *r, uint64_t now_nsec) {
        if (r->accounting) {
                accounting_observe(r->accounting, NULL, NULL);
                if (now_nsec > 0)
                        put(r, &(struct recording_event) { .type = RECORDING_END, .now_nsec = now_nsec });
                (void) flush(r);
                r->accounting = NULL; /* may be gone from now on */
        }

        /* Network and quota file systems may tell only now that there was no room. */
        if (r->fd >= 0 && close(TAKE_FD(r->fd)) < 0 && errno != EINTR)
                log_error_errno(errno, "%s: The recording may not be complete", r->path);
}

static int start_file(struct recorder *r) {
        uint8_t header[RECORDING_FILE_HEADER_SIZE];
        struct stat st;

        /* Not for everyone: command names, cgroup names and user ids are in it. Never waits for the reader of a pipe. */
        r->fd = open(r->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
        if (r->fd < 0 || fstat(r->fd, &st) < 0)
                return -errno;

        r->regular = S_ISREG(st.st_mode);
        recording_file_header(header);
        return write_all(r, header, sizeof(header));
}

int recorder_new(const char *path, bool anonymous, struct health *health, struct recorder **ret) {
        struct recorder *r = calloc(1, sizeof(*r));
        int error = -ENOMEM;

        if (r) {
                *r = (struct recorder) { .fd = -EBADF, .health = health, .anonymous = anonymous };
                r->path = strdup(path);
                r->events = malloc(RECORDING_BLOCK_MAX);
                error = r->path && r->events ? anonymizer_init(&r->anonymizer) : -ENOMEM;
                if (error >= 0)
                        error = start_file(r);
        }
        if (error < 0) {
                recorder_free(r);
                return log_error_errno(error, "Cannot record to %s", path);
        }

        *ret = r;
        return 0;
}

struct recorder *recorder_free(struct recorder *r) {
        if (!r)
                return NULL;

        recorder_end(r, 0);
        free(r->events);
        free(r->path);
        free(r);
        return NULL;
}
