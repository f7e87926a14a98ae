/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bus-client.h"
#include "core/text.h"
#include "delayctl.h"
#include "fields.h"
#include "output.h"
#include "printable.h"

#define KEY_WIDTH 16

/* A number as text, or "-" when it is unknown. */
struct number {
        char text[TEXT_SPAN_SIZE];
};

static struct number count_of(struct json_object *object, const char *key) {
        struct number number = { "-" };
        uint64_t n;

        if (json_get_u64(object, key, &n))
                snprintf(number.text, sizeof(number.text), "%" PRIu64, n);

        return number;
}

static struct number span_of(struct json_object *object, const char *key) {
        struct number number = { "-" };
        uint64_t nsec;

        if (json_get_u64(object, key, &nsec))
                text_format_span(number.text, nsec);

        return number;
}

static void print_key(const char *key) {
        printf("%*s%c ", KEY_WIDTH, key, key[0] ? ':' : ' ');
}

/* Prints foreign text. */
static void print_text(const char *text, enum style style) {
        _cleanup_free_ char *printable = NULL;

        printable = printable_text(text ?: "-");
        printf("%s%s%s", style_on(style), printable ?: "-", style_off(style));
}

static enum style health_style(const char *health) {
        if (strcmp(health, "ok") == 0)
                return STYLE_GOOD;

        return strcmp(health, "degraded") == 0 ? STYLE_WARNING : STYLE_BAD;
}

static void print_problems(struct json_object *problems, enum style style) {
        size_t n = problems ? json_object_array_length(problems) : 0;

        for (size_t i = 0; i < n; i++) {
                struct json_object *problem = json_object_array_get_idx(problems, i);
                const char *remedy = json_get_text(problem, "remedy");
                const char *severity = json_get_text(problem, "severity");

                print_key(i == 0 ? "Problems" : "");
                print_text(json_get_text(problem, "id"), severity ? health_style(severity) : style);
                fputs(": ", stdout);
                print_text(json_get_text(problem, "message"), STYLE_PLAIN);
                putchar('\n');
                if (remedy && remedy[0]) {
                        print_key("");
                        fputs("  remedy: ", stdout);
                        print_text(remedy, STYLE_BOLD);
                        putchar('\n');
                }
        }
}

static const char *yes_no(struct json_object *object, const char *key, const char *yes, const char *no) {
        bool value;

        if (!json_get_bool(object, key, &value))
                return "unknown";

        return value ? yes : no;
}

static void print_kernel(struct json_object *kernel) {
        const char *off = yes_no(kernel, "task_delayacct", "", "off");

        print_key("Kernel");
        print_text(json_get_text(kernel, "release"), STYLE_PLAIN);
        printf(", taskstats version %s\n", count_of(kernel, "taskstats_version").text);

        print_key("Delay accounting");
        print_text(off[0] ? off : "on", off[0] ? STYLE_WARNING : STYLE_PLAIN);
        putchar('\n');

        print_key("Delayed dequeue");
        print_text(json_get_text(kernel, "delayed_dequeue"), STYLE_PLAIN);
        putchar('\n');
}

static void print_exits(struct json_object *exits) {
        struct json_object *attributed = json_get_object(exits, "attributed");
        uint64_t lost = 0;

        json_get_u64(exits, "lost", &lost);
        print_key("Exit records");
        printf("%s received, %s%s lost%s, filter ", count_of(exits, "received").text,
               style_on(lost > 0 ? STYLE_BAD : STYLE_PLAIN), count_of(exits, "lost").text,
               style_off(lost > 0 ? STYLE_BAD : STYLE_PLAIN));
        print_text(json_get_text(exits, "filter"), STYLE_PLAIN);
        putchar('\n');

        print_key("Attributed by");
        printf("cache %s, pidfd %s, procfs %s, parent %s, none %s\n", count_of(attributed, "cache").text,
               count_of(attributed, "pidfd").text, count_of(attributed, "procfs").text,
               count_of(attributed, "parent").text, count_of(attributed, "none").text);
}

static void print_cost(struct json_object *status) {
        uint64_t cpu_nsec, uptime_nsec, rss_bytes;

        print_key("Own cost");
        fputs(span_of(status, "cpu_nsec").text, stdout);
        fputs(" of CPU", stdout);
        if (json_get_u64(status, "cpu_nsec", &cpu_nsec) && json_get_u64(status, "uptime_nsec", &uptime_nsec) &&
            uptime_nsec > 0)
                printf(" (%.2f%% of one)", (double) cpu_nsec * 100 / (double) uptime_nsec);
        if (json_get_u64(status, "rss_bytes", &rss_bytes))
                printf(", %.1f MiB of memory", (double) rss_bytes / (1024 * 1024));
        putchar('\n');
}

static void print_status(struct json_object *status) {
        struct json_object *samples = json_get_object(status, "samples");
        struct json_object *polling = json_get_object(status, "polling");
        struct json_object *cgroups = json_get_object(status, "cgroups");
        const char *health = json_get_text(status, "health") ?: "unknown";

        print_key("Health");
        print_text(health, health_style(health));
        putchar('\n');
        print_problems(json_get_list(status, "problems"), health_style(health));

        print_key("delayd");
        print_text(json_get_text(status, "version"), STYLE_PLAIN);
        printf(", running for %s\n", span_of(status, "uptime_nsec").text);

        if (json_get_text(status, "replay")) {
                print_key("Replay");
                print_text(json_get_text(status, "replay"), STYLE_PLAIN);
                puts("; all times and facts below are the recording's");
        }

        print_kernel(json_get_object(status, "kernel"));
        print_exits(json_get_object(status, "exits"));

        print_key("Samples");
        printf("%s accepted, %s rejected\n", count_of(samples, "accepted").text,
               count_of(samples, "rejected").text);
        print_key("Polling");
        printf("%s tasks every %s, the last round took %s\n", count_of(polling, "tasks").text,
               span_of(polling, "interval_nsec").text, span_of(polling, "last_duration_nsec").text);
        print_key("Cgroups");
        printf("%s tracked, %s removed, %s overflowed; hierarchy ", count_of(cgroups, "tracked").text,
               count_of(cgroups, "removed").text, count_of(cgroups, "overflowed").text);
        print_text(json_get_text(json_get_object(status, "kernel"), "cgroup_hierarchy"), STYLE_PLAIN);
        putchar('\n');
        print_cost(status);
}

static int read_status(sd_bus_message *reply, struct json_object **ret) {
        _cleanup_json_ struct json_object *status = NULL;
        int r;

        r = sd_bus_message_has_signature(reply, "a{sv}");
        if (r <= 0)
                return r < 0 ? r : -EBADMSG;
        r = bus_read_json(reply, &status);
        if (r < 0)
                return r;

        return fields_complete(status, status_fields, ret);
}

int verb_status(const struct options *options, int argc, char *argv[]) {
        _cleanup_bus_ sd_bus *bus = NULL;
        _cleanup_message_ sd_bus_message *message = NULL, *reply = NULL;
        _cleanup_json_ struct json_object *status = NULL;
        char *error;
        int r;

        r = bus_open(&bus, &error);
        if (r < 0)
                return fail_explained(error);
        r = bus_new_call(bus, "GetStatus", &message);
        if (r < 0)
                return fail_explained(bus_explain(NULL, r));
        r = bus_call(bus, message, &reply, &error);
        if (r < 0)
                return fail_explained(error);
        r = read_status(reply, &status);
        if (r < 0)
                return fail_explained(bus_explain_reply(r));

        if (options->json == JSON_OFF) {
                print_status(status);
                return EXIT_SUCCESS;
        }

        r = print_json(status, options->json);
        return r < 0 ? fail_memory() : EXIT_SUCCESS;
}
