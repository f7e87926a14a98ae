/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#define CONFIG_FILE "/etc/delayd/delayd.conf"
#define CONFIG_LISTEN_MAX 16
#define CONFIG_BUCKETS_MAX 64

struct config_globs {
        char **patterns;
        size_t n;
};

/* All keys of delayd.conf(5), with defaults filled in. */
struct config {
        /* [Collect] */
        uint64_t poll_interval_nsec;
        double cpu_budget;        /* share of one core, 0.01 for 1% */
        delay_kind_set kinds;
        bool exit_filter;
        uint64_t receive_buffer;  /* bytes per socket */
        char *cgroup_root;        /* NULL: auto */
        uint64_t max_cgroups;
        uint64_t retention_nsec;

        /* [Metrics] */
        char *listen[CONFIG_LISTEN_MAX];
        unsigned n_listen;
        bool listen_chosen;       /* by a file or on the command line */
        unsigned bucket_indices[CONFIG_BUCKETS_MAX]; /* of core/histogram.h, ascending */
        double bucket_bounds_sec[CONFIG_BUCKETS_MAX];
        unsigned n_buckets;
        uint64_t max_exported;
        struct config_globs include, exclude; /* of cgroup paths */

        /* [State] */
        char *state_directory;    /* NULL: none; "": auto */
        uint64_t save_interval_nsec;
};

/*
 * Reads the file and its drop-ins (PATH.d, files ending in .conf, in the order of their names). A missing
 * default file is no error; a missing file that was named (required) is. Then applies settings
 * ("Section.Key=VALUE"). Unknown keys and sections are warned of, as are those of later versions; every bad value
 * is logged with its file and line and refused: -EINVAL, and *ret is not touched.
 */
int config_load(const char *path, bool required, char *const *settings, size_t n_settings, struct config *ret);

/* The first fault of the last load, with file and line; NULL: it had none. */
const char *config_fault(void);

/*
 * Whether Metrics.Include= and Exclude= let a cgroup have series of its own; userdata is the configuration. A "*"
 * stands for slashes, too.
 */
bool config_may_export(const char *path, void *userdata);

void config_done(struct config *config);
