/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "bus-client.h"
#include "output.h"
#include "top.h"

/* Who sorts by comm wants tasks. */
const struct list_class *top_class(const struct options *options) {
        if (options->sort == SORT_NAME && strcmp(options->name_sort, task_list_class.name_sort) == 0)
                return &task_list_class;

        return &cgroup_list_class;
}

static void print_time(void) {
        char text[64];
        struct tm tm;
        time_t now;

        now = time(NULL);
        if (localtime_r(&now, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &tm) > 0)
                printf("%sdelayctl top, %s%s\n", style_on(STYLE_BOLD), text, style_off(STYLE_BOLD));
}

static void sleep_until(const struct timespec *start, uint64_t after_nsec) {
        uint64_t nsec = (uint64_t) start->tv_nsec + after_nsec % NSEC_PER_SEC;
        const struct timespec end = {
                .tv_sec = start->tv_sec + (time_t) (after_nsec / NSEC_PER_SEC + nsec / NSEC_PER_SEC),
                .tv_nsec = (long) (nsec % NSEC_PER_SEC),
        };

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
                ;
}

static int top_batch(sd_bus *bus, const struct options *options) {
        uint64_t n = options->iterations;

        /* As in systemd-cgtop: who does not look on wants one table, unless he says how many. */
        if (!options->iterations_given)
                n = terminal_is_tty() ? 0 : 1;

        for (uint64_t i = 0; n == 0 || i < n; i++) {
                struct timespec start;
                int status;

                clock_gettime(CLOCK_MONOTONIC, &start);
                if (options->json == JSON_OFF && i > 0)
                        putchar('\n');

                status = list_show(bus, top_class(options), options, options->legend ? print_time : NULL);
                if (status != EXIT_SUCCESS)
                        return status;
                if (flush_output() < 0)
                        return EXIT_FAILURE;

                if (n == 0 || i + 1 < n)
                        sleep_until(&start, options->delay_nsec);
        }

        return EXIT_SUCCESS;
}

int verb_top(const struct options *options, int argc, char *argv[]) {
        _cleanup_bus_ sd_bus *bus = NULL;
        char *error;
        int r;

        r = bus_open(&bus, &error);
        if (r < 0)
                return fail_explained(error);

        if (options->batch || options->json != JSON_OFF || !terminal_is_tty() || terminal_is_dumb())
                return top_batch(bus, options);

        return top_live(&bus, options);
}
