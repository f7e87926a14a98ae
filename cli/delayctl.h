/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "terminal.h"

enum json_mode {
        JSON_OFF,
        JSON_SHORT,
        JSON_PRETTY,
};

enum sort {
        SORT_TOTAL,
        SORT_WAITS,
        SORT_MEAN,
        SORT_P50,
        SORT_P90,
        SORT_P99,
        SORT_MAX,
        SORT_NAME, /* "cgroup" or "comm" */
        SORT_COUNT,
};

struct options {
        enum json_mode json;
        enum color_mode color;
        bool legend;
        uint64_t window_nsec; /* 0: the daemon's default */
        delay_kind_set kinds; /* 0: all that the daemon collects */
        enum delay_kind first_kind; /* the one that is sorted by */
        enum sort sort;
        const char *name_sort; /* the word that was given for SORT_NAME */
        uint64_t limit;       /* 0: none */
        bool all;
        bool tree;            /* cgroups */

        /* top */
        bool batch;
        uint64_t iterations;  /* 0: no end */
        bool iterations_given;
        uint64_t delay_nsec;
};

/* What doctor ends with where delayd is not fine. */
#define EXIT_DOCTOR_DEGRADED 1
#define EXIT_DOCTOR_FAILING 2

/* The verbs; argv[0] is the verb itself. Return an exit status. */
int verb_cgroups(const struct options *options, int argc, char *argv[]);
int verb_tasks(const struct options *options, int argc, char *argv[]);
int verb_histogram(const struct options *options, int argc, char *argv[]);
int verb_status(const struct options *options, int argc, char *argv[]);
int verb_doctor(const struct options *options, int argc, char *argv[]);
int verb_top(const struct options *options, int argc, char *argv[]);
