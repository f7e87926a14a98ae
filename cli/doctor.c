/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bus-client.h"
#include "core/diagnosis.h"
#include "delayctl.h"
#include "fields.h"
#include "kernel/host-facts.h"
#include "kernel/processes.h"
#include "output.h"
#include "printable.h"

#define RESULT_WIDTH 7
#define TITLE_WIDTH 20
#define TEXT_COLUMNS_MIN 30U
#define RECEIVE_BUFFER (8U << 20) /* the default of Collect.ReceiveBuffer= */

static int json_of_check(const struct check *check, struct json_object **ret) {
        _cleanup_json_ struct json_object *object = json_object_new_object();
        const struct {
                const char *key, *value;
        } texts[] = {
                { "id", check->id },
                { "title", check->title },
                { "result", check_result_name(check->result) },
                { "message", check->message },
                { "remedy", check->remedy },
        };

        for (size_t i = 0; object && i < sizeof(texts) / sizeof(texts[0]); i++) {
                struct json_object *value = texts[i].value ? json_object_new_string(texts[i].value) : NULL;

                if ((texts[i].value && !value) || json_object_object_add(object, texts[i].key, value) < 0) {
                        json_object_put(value);
                        return -ENOMEM;
                }
        }
        if (!object)
                return -ENOMEM;

        *ret = TAKE_PTR(object);
        return 0;
}

/* Appends our own checks to a list. */
static int append_checks(struct json_object *list, const struct diagnosis *d) {
        for (size_t i = 0; i < d->n; i++) {
                struct json_object *object;

                int r = json_of_check(&d->checks[i], &object);
                if (r < 0)
                        return r;
                if (json_object_array_add(list, object) < 0) {
                        json_object_put(object);
                        return -ENOMEM;
                }
        }

        return d->failed ? -ENOMEM : 0;
}

/* Appends what the daemon has found, all keys in their order. */
static int append_reply(struct json_object *list, sd_bus_message *reply) {
        _cleanup_json_ struct json_object *found = NULL;

        int r = sd_bus_message_has_signature(reply, "aa{sv}");
        if (r <= 0)
                return r < 0 ? r : -EBADMSG;
        r = bus_read_json(reply, &found);
        if (r < 0)
                return r;

        for (size_t i = 0; i < json_object_array_length(found); i++) {
                struct json_object *check;

                r = fields_complete(json_object_array_get_idx(found, i), check_fields, &check);
                if (r < 0)
                        return r;
                if (json_object_array_add(list, check) < 0) {
                        json_object_put(check);
                        return -ENOMEM;
                }
        }

        return 0;
}

/* The PID of some delayd, or 0. */
static uint32_t find_process(void) {
        _cleanup_free_ uint32_t *pids = NULL;
        size_t n;

        if (processes_list(&pids, &n) < 0)
                return 0;

        for (size_t i = 0; i < n; i++) {
                char path[32], comm[32] = "";

                snprintf(path, sizeof(path), "/proc/%u/comm", pids[i]);
                _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
                if (fd >= 0 && read(fd, comm, sizeof(comm) - 1) > 0 && strcmp(comm, "delayd\n") == 0)
                        return pids[i];
        }

        return 0;
}

static void check_silent_daemon(struct diagnosis *d, bool on_bus, int error, const char *explanation) {
        static const char *const id = "daemon", *const title = "Daemon";
        uint32_t pid = on_bus ? 0 : find_process();

        if (error == -EOPNOTSUPP)
                diagnosis_add(d, id, title, CHECK_WARN, "Ask the delayd that watches this host.",
                              "The delayd on this bus shows a recording, and watches nothing.");
        else if (on_bus)
                diagnosis_add(d, id, title, CHECK_WARN, "See 'journalctl -u delayd'.",
                              "The delayd on this bus was not examined: %s", explanation);
        else if (pid > 0)
                diagnosis_add(d, id, title, CHECK_WARN, "See 'journalctl -u delayd'; HTTP may be served all the same.",
                              "A delayd runs (PID %u), but not on this bus.", pid);
        else
                diagnosis_add(d, id, title, CHECK_FAIL, "Run 'systemctl start delayd'; what keeps it from starting stands below or "
                              "in 'journalctl -u delayd'.", "delayd does not run.");
}

/* What can be found out without the daemon. */
static void check_ourselves(struct diagnosis *d) {
        struct host_texts texts = {};
        struct host_facts host;
        struct feed_facts feed;

        host_facts_read(&host, &texts);
        feed_facts_try(&feed, &texts, RECEIVE_BUFFER);
        diagnose(d, &host, &feed, NULL);
}

/* Asks the daemon. Returns 0 and the reply, or a negative errno and why in words. */
static int ask(sd_bus *bus, sd_bus_message **ret_reply, char **ret_error) {
        _cleanup_message_ sd_bus_message *message = NULL;

        int r = bus_new_call(bus, "Diagnose", &message);
        if (r >= 0)
                r = sd_bus_message_set_auto_start(message, false); /* looking is not to change what is seen */
        if (r < 0) {
                *ret_error = bus_explain(NULL, r);
                return r;
        }

        return bus_call(bus, message, ret_reply, ret_error);
}

static int collect(struct json_object *list) {
        _cleanup_(diagnosis_done) struct diagnosis d = {};
        _cleanup_message_ sd_bus_message *reply = NULL;
        _cleanup_bus_ sd_bus *bus = NULL;
        _cleanup_free_ char *error = NULL;

        int r = bus_open(&bus, &error);
        if (r < 0) {
                check_silent_daemon(&d, false, r, NULL);
                diagnosis_add(&d, "dbus", "D-Bus", CHECK_WARN, NULL, "%s", error ?: strerror(-r));
        } else {
                r = ask(bus, &reply, &error);
                if (r < 0)
                        /* Two errors say that nobody has the name. */
                        check_silent_daemon(&d, r != -EHOSTUNREACH && r != -ENXIO, r, error ?: strerror(-r));
                else
                        diagnosis_add(&d, "daemon", "Daemon", CHECK_OK, NULL, "delayd runs and answers.");
                diagnosis_add(&d, "dbus", "D-Bus", CHECK_OK, NULL, "The bus can be reached.");
        }

        if (reply) {
                int q = append_checks(list, &d);
                return q < 0 ? q : append_reply(list, reply);
        }

        check_ourselves(&d);
        return append_checks(list, &d);
}

static enum check_result result_of(struct json_object *check) {
        const char *name = json_get_text(check, "result");

        for (enum check_result result = 0; name && result < CHECK_RESULT_COUNT; result++)
                if (strcmp(check_result_name(result), name) == 0)
                        return result;

        return CHECK_UNKNOWN;
}

/* Breaks the text between words, each further line indented. */
static void print_wrapped(const char *text, size_t indent) {
        size_t columns = terminal_columns(), room = columns > indent + TEXT_COLUMNS_MIN ? columns - indent : SIZE_MAX, used = 0;

        while (*text) {
                size_t size = strcspn(text, " "), width = 0;

                for (size_t i = 0; i < size; i++)
                        width += (text[i] & 0xc0) != 0x80;

                if (used > 0 && (room == SIZE_MAX || used + 1 + width <= room)) {
                        putchar(' ');
                        used++;
                } else if (used > 0) {
                        printf("\n%*s", (int) indent, "");
                        used = 0;
                }

                fwrite(text, 1, size, stdout);
                used += width;
                text += size;
                text += strspn(text, " ");
        }
        putchar('\n');
}

static void print_text(const char *prefix, const char *text, size_t indent) {
        _cleanup_free_ char *printable = NULL, *whole = NULL;

        printable = printable_text(text);
        if (!printable || asprintf(&whole, "%s%s", prefix, printable) < 0) {
                whole = NULL;
                puts(text ? "-" : "");
                return;
        }
        print_wrapped(whole, indent);
}

static void print_check(struct json_object *check) {
        static const enum style styles[CHECK_RESULT_COUNT] = {
                [CHECK_OK] = STYLE_GOOD,
                [CHECK_WARN] = STYLE_WARNING,
                [CHECK_FAIL] = STYLE_BAD,
                [CHECK_UNKNOWN] = STYLE_BOLD,
        };
        const char *title = json_get_text(check, "title"), *message = json_get_text(check, "message");
        const char *remedy = json_get_text(check, "remedy");
        enum check_result result = result_of(check);
        size_t indent = RESULT_WIDTH + 1 + TITLE_WIDTH + 1;
        _cleanup_free_ char *printable = printable_text(title ?: "-");

        printf("%s%-*s%s %-*s ", style_on(styles[result]), RESULT_WIDTH, check_result_name(result), style_off(styles[result]),
               TITLE_WIDTH, printable ?: "-");
        print_text("", message ?: "-", indent);

        if (remedy && remedy[0]) {
                printf("%*s", (int) indent, "");
                print_text("Remedy: ", remedy, indent);
        }
}

static void print_checks(struct json_object *list, const char *health, bool legend) {
        size_t counts[CHECK_RESULT_COUNT] = {};

        for (size_t i = 0; i < json_object_array_length(list); i++) {
                print_check(json_object_array_get_idx(list, i));
                counts[result_of(json_object_array_get_idx(list, i))]++;
        }

        if (legend)
                printf("\ndelayd is %s: %zu checks are ok, %zu warn, %zu fail, %zu are unknown.\n",
                       strcmp(health, "ok") == 0 ? "fine" : strcmp(health, "degraded") == 0 ? "degraded" : "not working",
                       counts[CHECK_OK], counts[CHECK_WARN], counts[CHECK_FAIL], counts[CHECK_UNKNOWN]);
}

static int print_diagnosis(struct json_object *list, const char *health, const struct options *options) {
        _cleanup_json_ struct json_object *object = json_object_new_object();
        struct json_object *word = json_object_new_string(health);

        if (!object || !word || json_object_object_add(object, "health", word) < 0) {
                json_object_put(word);
                return -ENOMEM;
        }
        if (json_object_object_add(object, "checks", json_object_get(list)) < 0) {
                json_object_put(list);
                return -ENOMEM;
        }

        return print_json(object, options->json);
}

int verb_doctor(const struct options *options, int argc, char *argv[]) {
        _cleanup_json_ struct json_object *list = json_object_new_array();
        const char *health = "ok";
        int r, status = EXIT_SUCCESS;

        r = list ? collect(list) : -ENOMEM;
        if (r < 0)
                return r == -ENOMEM ? fail_memory() : fail_explained(bus_explain_reply(r));

        for (size_t i = 0; i < json_object_array_length(list); i++) {
                enum check_result result = result_of(json_object_array_get_idx(list, i));

                if (result == CHECK_FAIL) {
                        health = "failing";
                        status = EXIT_DOCTOR_FAILING;
                } else if (result == CHECK_WARN && status == EXIT_SUCCESS) {
                        health = "degraded";
                        status = EXIT_DOCTOR_DEGRADED;
                }
        }

        if (options->json == JSON_OFF)
                print_checks(list, health, options->legend);
        else if (print_diagnosis(list, health, options) < 0)
                return fail_memory();

        return status;
}
