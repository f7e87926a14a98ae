/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"
#include "reload.h"

#define PROBLEM_FAILED "reload-failed"
#define PROBLEM_RESTART "restart-needed"

static bool same_text(const char *a, const char *b) {
        return a == b || (a && b && strcmp(a, b) == 0);
}

/* Sets what cannot change while delayd runs back to what it is, and says so. */
static void keep_what_is_fixed(const struct reload *r, struct config *config) {
        struct config *in_force = r->in_force;
        char keys[128] = "", message[256];

        if (config->kinds != in_force->kinds) {
                config->kinds = in_force->kinds;
                strcat(keys, " Collect.Kinds=");
        }
        if (!same_text(config->cgroup_root, in_force->cgroup_root)) {
                char *root = config->cgroup_root;

                /* Each is freed with its own. */
                config->cgroup_root = in_force->cgroup_root;
                in_force->cgroup_root = root;
                strcat(keys, " Collect.CgroupRoot=");
        }

        if (!same_text(config->state_directory, in_force->state_directory)) {
                char *directory = config->state_directory;

                config->state_directory = in_force->state_directory;
                in_force->state_directory = directory;
                strcat(keys, " State.Directory=");
        }

        if (!keys[0]) {
                (void) health_clear(r->health, PROBLEM_RESTART);
                return;
        }

        snprintf(message, sizeof(message), "The configuration was changed where it takes a restart:%s.", keys);
        log_warning("%s The old values stay in force until 'systemctl restart delayd'.", message);
        (void) health_raise(r->health, PROBLEM_RESTART, PROBLEM_DEGRADED, message, "Run 'systemctl restart delayd'.");
}

static bool same_globs(const struct config_globs *a, const struct config_globs *b) {
        if (a->n != b->n)
                return false;
        for (size_t i = 0; i < a->n; i++)
                if (strcmp(a->patterns[i], b->patterns[i]) != 0)
                        return false;

        return true;
}

int reload_apply(const struct reload *r, struct config *config) {
        _cleanup_(config_done) struct config fresh = *config;
        int q;

        *config = (struct config) {};

        q = listeners_change(r->listeners, &fresh);
        if (q >= 0 && r->collector) {
                q = collector_reconfigure(r->collector, &fresh);
                if (q < 0)
                        (void) listeners_change(r->listeners, r->in_force);
        }
        if (q < 0)
                return q;

        keep_what_is_fixed(r, &fresh);
        if (!same_globs(&fresh.include, &r->in_force->include) || !same_globs(&fresh.exclude, &r->in_force->exclude))
                log_info("Metrics.Include= and Metrics.Exclude= hold for cgroups that appear from now on.");

        /* In place: others point to it. */
        struct config old = *r->in_force;
        *r->in_force = fresh;
        fresh = old;
        r->view->n_buckets = r->in_force->n_buckets;

        if (health_clear(r->health, PROBLEM_FAILED))
                log_info("The problem " PROBLEM_FAILED " is gone.");
        log_info("The configuration is reloaded.");
        return 0;
}

void reload_failed(const struct reload *r, const char *fault) {
        char message[512];

        snprintf(message, sizeof(message), "The configuration could not be reloaded, and the old one stays in force%s%s",
                 fault ? ": " : ".", fault ?: "");
        (void) health_raise(r->health, PROBLEM_FAILED, PROBLEM_DEGRADED, message,
                            fault ? "Correct it ('delayd --check-config' names every fault) and run 'systemctl reload delayd' again."
                                  : "'journalctl -u delayd' tells what failed; correct it and run 'systemctl reload delayd' again.");
        log_warning("The old configuration stays in force.");
}
