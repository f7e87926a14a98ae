/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <sys/mman.h>
#include <unistd.h>

#include <delayd/limits.h>

#include "config.h"
#include "core/histogram.h"
#include "fuzz.h"

/* A configuration file; its first line is also given to --set. */

static void check_config(const struct config *c) {
        CHECK(c->poll_interval_nsec >= 10 * NSEC_PER_MSEC && c->poll_interval_nsec <= 3600 * NSEC_PER_SEC);
        CHECK(c->cpu_budget > 0 && c->cpu_budget <= 1);
        CHECK(c->kinds != 0 && !(c->kinds & ~DELAY_KINDS_ALL));
        CHECK(c->max_cgroups > 0 && c->retention_nsec > 0);
        CHECK(c->n_listen <= CONFIG_LISTEN_MAX && c->n_buckets <= CONFIG_BUCKETS_MAX);
        CHECK(!c->cgroup_root || c->cgroup_root[0] == '/');
        for (unsigned i = 0; i < c->n_buckets; i++) {
                CHECK(c->bucket_indices[i] < HISTOGRAM_BUCKET_COUNT - 1);
                CHECK(i == 0 || c->bucket_indices[i] > c->bucket_indices[i - 1]);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const uint8_t *newline = size > 0 ? memchr(data, '\n', size) : NULL;
        char path[64], *setting = fuzz_string(data, newline ? (size_t) (newline - data) : size);
        struct config config;

        int fd = memfd_create("config", MFD_CLOEXEC);
        CHECK(fd >= 0 && write(fd, data, size) == (ssize_t) size);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);

        if (config_load(path, true, NULL, 0, &config) >= 0) {
                check_config(&config);
                config_done(&config);
        }
        if (config_load("/nonexistent/delayd.conf", false, &setting, 1, &config) >= 0) {
                check_config(&config);
                config_done(&config);
        }

        close(fd);
        free(setting);
        return 0;
}
