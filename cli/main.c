/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <delayd/limits.h>

#include "core/text.h"
#include "delayctl.h"
#include "output.h"

#define WINDOW_MAX_NSEC (3600 * NSEC_PER_SEC)
#define DELAY_MIN_NSEC (100 * NSEC_PER_MSEC)
#define DELAY_MAX_NSEC (24 * 3600 * NSEC_PER_SEC)

static const struct {
        const char *name;
        int n_arguments;
        const char *argument;
        int (*run)(const struct options *options, int argc, char *argv[]);
} verbs[] = {
        { "top", 0, NULL, verb_top },
        { "cgroups", 0, NULL, verb_cgroups },
        { "tasks", 0, NULL, verb_tasks },
        { "histogram", 1, "CGROUP|UNIT", verb_histogram },
        { "status", 0, NULL, verb_status },
        { "doctor", 0, NULL, verb_doctor },
};

#define VERB_NAMES "top, cgroups, tasks, histogram, status, doctor"

static int help(void) {
        fputs("delayctl [OPTION...] VERB\n\n"
              "Shows who waits for disk and swap, as delayd has counted it.\n\n"
              "Verbs:\n"
              "  top                    Follow the cgroups (or tasks) that wait most\n"
              "  cgroups                List cgroups and their waits\n"
              "  tasks                  List tasks that waited, those that have ended too\n"
              "  histogram CGROUP|UNIT  Show how the waits of a cgroup are distributed\n"
              "  status                 Show how delayd is doing and what it costs\n"
              "  doctor                 Check all that delayd needs, and name the remedies\n\n"
              "Options:\n"
              "     --window=SPAN       Look at the last SPAN: of 1m, 5m (default), 15m and 1h\n"
              "                         the nearest is used\n"
              "     --kind=KIND[,...]   Only these kinds of delay: cpu, blkio, swapin,\n"
              "                         freepages, thrashing, compact, wpcopy, irq\n"
              "     --sort=KEY          total (default), waits, mean, p50, p90, p99, max, or\n"
              "                         cgroup (comm for tasks)\n"
              "     --limit=N           Show at most N lines\n"
              "  -a --all               Show cgroups without waits too\n"
              "     --tree              Show cgroups as a tree, with the sums of what is below\n"
              "     --json=MODE         Print JSON: short, pretty, off\n"
              "  -j                     Same as --json=short\n"
              "     --no-legend         Print neither headers nor footers\n"
              "     --color=WHEN        auto, always, never\n"
              "  -h --help              Show this help\n"
              "     --version           Show the version\n\n"
              "Options of top:\n"
              "  -b --batch             Print one table after the other\n"
              "  -n --iterations=N      Stop after N tables; 0: go on\n"
              "  -d --delay=SPAN        Time between two tables (default: 2s)\n\n"
              "See delayctl(1).\n",
              stdout);

        return EXIT_SUCCESS;
}

/* Looks a word up in a list that ends with NULL; returns its place or -EINVAL. */
static int word_index(const char *word, const char *const *words) {
        for (int i = 0; words[i]; i++)
                if (strcmp(word, words[i]) == 0)
                        return i;

        return -EINVAL;
}

static int parse_json(const char *s, struct options *options) {
        static const char *const words[] = { "off", "short", "pretty", NULL };
        int i = word_index(s, words);

        if (i < 0)
                return fail_usage("Bad --json=%s: it takes short, pretty or off.", s);

        options->json = (enum json_mode) i;
        return 0;
}

static int parse_color(const char *s, struct options *options) {
        static const char *const words[] = { "auto", "always", "never", NULL };
        int i = word_index(s, words);

        if (i < 0)
                return fail_usage("Bad --color=%s: it takes auto, always or never.", s);

        options->color = (enum color_mode) i;
        return 0;
}

static int parse_sort(const char *s, struct options *options) {
        static const char *const words[] = { "total", "waits", "mean", "p50", "p90", "p99", "max",
                                             "cgroup", "comm", NULL };
        int i = word_index(s, words);

        if (i < 0)
                return fail_usage("Bad --sort=%s: it takes total, waits, mean, p50, p90, p99, max, cgroup or "
                                  "comm.", s);

        options->sort = i < SORT_NAME ? (enum sort) i : SORT_NAME;
        options->name_sort = i < SORT_NAME ? NULL : words[i];
        return 0;
}

static int bad_kind(const char *name) {
        return fail_usage("Bad --kind=%s: kinds of delay are cpu, blkio, swapin, freepages, thrashing, compact, "
                          "wpcopy and irq.", name);
}

static int parse_kinds(const char *s, struct options *options) {
        char *names, *save = NULL;
        delay_kind_set kinds = 0;

        names = strdupa(s);
        for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
                int kind = delay_kind_from_name(name);

                if (kind < 0)
                        return bad_kind(name);
                if (kinds == 0)
                        options->first_kind = (enum delay_kind) kind;
                kinds |= DELAY_KIND_BIT(kind);
        }

        if (kinds == 0)
                return bad_kind("");

        options->kinds = kinds;
        return 0;
}

static int parse_window(const char *s, struct options *options) {
        uint64_t nsec;

        if (text_parse_span(s, &nsec) < 0 || nsec == 0 || nsec > WINDOW_MAX_NSEC)
                return fail_usage("Bad --window=%s: it takes a span up to 1h, such as 1m, 5m, 15m or 1h.", s);

        options->window_nsec = nsec;
        return 0;
}

static int parse_delay(const char *s, struct options *options) {
        uint64_t nsec;

        if (text_parse_span(s, &nsec) < 0 || nsec < DELAY_MIN_NSEC || nsec > DELAY_MAX_NSEC)
                return fail_usage("Bad --delay=%s: it takes a span of 100ms up to 1d, such as 500ms, 2s or "
                                  "1m.", s);

        options->delay_nsec = nsec;
        return 0;
}

static int parse_count(const char *option, const char *s, uint64_t *ret) {
        unsigned long long n;
        char *end;

        errno = 0;
        n = strtoull(s, &end, 10);
        if (s[0] < '0' || s[0] > '9' || *end || errno != 0)
                return fail_usage("Bad --%s=%s: it takes a whole number; 0 means no limit.", option, s);

        *ret = n;
        return 0;
}

static int parse_iterations(const char *s, struct options *options) {
        options->iterations_given = true;
        return parse_count("iterations", s, &options->iterations);
}

enum {
        ARG_VERSION = 0x100,
        ARG_JSON,
        ARG_NO_LEGEND,
        ARG_COLOR,
        ARG_WINDOW,
        ARG_KIND,
        ARG_SORT,
        ARG_LIMIT,
        ARG_TREE,
};

/* Returns 0, or EXIT_FAILURE after a message. */
static int parse_option(int c, struct options *options) {
        switch (c) {
        case 'j':
                options->json = JSON_SHORT;
                return 0;
        case ARG_JSON:
                return parse_json(optarg, options);
        case ARG_NO_LEGEND:
                options->legend = false;
                return 0;
        case ARG_COLOR:
                return parse_color(optarg, options);
        case ARG_WINDOW:
                return parse_window(optarg, options);
        case ARG_KIND:
                return parse_kinds(optarg, options);
        case ARG_SORT:
                return parse_sort(optarg, options);
        case ARG_LIMIT:
                return parse_count("limit", optarg, &options->limit);
        case 'a':
                options->all = true;
                return 0;
        case ARG_TREE:
                options->tree = true;
                return 0;
        case 'b':
                options->batch = true;
                return 0;
        case 'n':
                return parse_iterations(optarg, options);
        case 'd':
                return parse_delay(optarg, options);
        default: /* getopt_long() has said what is wrong */
                fputs("Try 'delayctl --help'.\n", stderr);
                return EXIT_FAILURE;
        }
}

/* Returns 0 to go on; else 1 and the exit status in *ret_status. */
static int parse_arguments(int argc, char *argv[], struct options *options, int *ret_status) {
        static const struct option long_options[] = {
                { "help", no_argument, NULL, 'h' },
                { "version", no_argument, NULL, ARG_VERSION },
                { "json", required_argument, NULL, ARG_JSON },
                { "no-legend", no_argument, NULL, ARG_NO_LEGEND },
                { "color", required_argument, NULL, ARG_COLOR },
                { "window", required_argument, NULL, ARG_WINDOW },
                { "kind", required_argument, NULL, ARG_KIND },
                { "sort", required_argument, NULL, ARG_SORT },
                { "limit", required_argument, NULL, ARG_LIMIT },
                { "all", no_argument, NULL, 'a' },
                { "tree", no_argument, NULL, ARG_TREE },
                { "batch", no_argument, NULL, 'b' },
                { "iterations", required_argument, NULL, 'n' },
                { "delay", required_argument, NULL, 'd' },
                {},
        };
        int c;

        while ((c = getopt_long(argc, argv, "hjabn:d:", long_options, NULL)) >= 0) {
                if (c == 'h') {
                        *ret_status = help();
                        return 1;
                }
                if (c == ARG_VERSION) {
                        puts("delayctl " DELAYD_VERSION);
                        *ret_status = EXIT_SUCCESS;
                        return 1;
                }

                *ret_status = parse_option(c, options);
                if (*ret_status != 0)
                        return 1;
        }

        return 0;
}

static int run_verb(const struct options *options, int argc, char *argv[]) {
        if (argc == 0)
                return fail_usage("No verb given. Verbs are " VERB_NAMES ".");

        for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
                if (strcmp(argv[0], verbs[i].name) != 0)
                        continue;

                if (argc - 1 < verbs[i].n_arguments)
                        return fail_usage("'%s' needs an argument: %s.", verbs[i].name, verbs[i].argument);
                if (argc - 1 > verbs[i].n_arguments)
                        return fail_usage("'%s' does not take the argument '%s'.", verbs[i].name,
                                          argv[1 + verbs[i].n_arguments]);

                if (options->tree && verbs[i].run != verb_cgroups)
                        return fail_usage("--tree is for cgroups alone.");

                return verbs[i].run(options, argc, argv);
        }

        return fail_usage("Unknown verb '%s'. Verbs are " VERB_NAMES ".", argv[0]);
}

int main(int argc, char *argv[]) {
        struct options options = {
                .legend = true,
                .delay_nsec = 2 * NSEC_PER_SEC,
        };
        int status;

        terminal_setup(COLOR_AUTO); /* error messages need the locale */
        if (parse_arguments(argc, argv, &options, &status) == 0) {
                terminal_setup(options.color);
                status = run_verb(&options, argc - optind, argv + optind);
        }

        return finish_output(status);
}
