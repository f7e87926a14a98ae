/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "config-keys.h"
#include "core/address.h"
#include "core/histogram.h"
#include "core/text.h"

static int bad_value(struct config_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int bad_value(struct config_error *error, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        vsnprintf(error->text, sizeof(error->text), format, ap);
        va_end(ap);
        return -EINVAL;
}

/* Calls back for each word of a list that spaces or commas separate. */
static int each_word(
                const char *value,
                int (*word)(struct config *c, const char *word, struct config_error *error),
                struct config *c,
                struct config_error *error) {

        _cleanup_free_ char *copy = strdup(value);
        char *rest = copy, *token;

        if (!copy)
                return -ENOMEM;

        while ((token = strsep(&rest, " \t,")))
                if (*token) {
                        int r = word(c, token, error);
                        if (r < 0)
                                return r;
                }

        return 0;
}

static int parse_bool(const char *value, bool *ret, struct config_error *error) {
        static const char *const yes[] = { "yes", "true", "on", "1" }, *const no[] = { "no", "false", "off", "0" };

        for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
                if (strcasecmp(value, yes[i]) == 0) {
                        *ret = true;
                        return 0;
                }
                if (strcasecmp(value, no[i]) == 0) {
                        *ret = false;
                        return 0;
                }
        }

        return bad_value(error, "is neither yes nor no");
}

static int parse_number(const char *value, uint64_t min, uint64_t max, uint64_t *ret, struct config_error *error) {
        char *end;

        errno = 0;
        unsigned long long number = strtoull(value, &end, 10);
        if (errno || end == value || *end || value[0] == '-' || number < min || number > max)
                return bad_value(error, "is not a whole number from %llu to %llu",
                                 (unsigned long long) min, (unsigned long long) max);

        *ret = number;
        return 0;
}

static int parse_span(
                const char *value, uint64_t min_nsec, uint64_t max_nsec, const char *range, uint64_t *ret,
                struct config_error *error) {

        uint64_t span;

        if (text_parse_span(value, &span) < 0 || span < min_nsec || span > max_nsec)
                return bad_value(error, "is not a time span %s (such as 1s or 5min)", range);

        *ret = span;
        return 0;
}

static int set_poll_interval(struct config *c, const char *value, struct config_error *error) {
        return parse_span(value, 10 * NSEC_PER_MSEC, 3600 * NSEC_PER_SEC, "from 10ms to 1h",
                          &c->poll_interval_nsec, error);
}

static int set_retention(struct config *c, const char *value, struct config_error *error) {
        return parse_span(value, NSEC_PER_SEC, 24 * 3600 * NSEC_PER_SEC, "from 1s to 1d", &c->retention_nsec, error);
}

static int set_cpu_budget(struct config *c, const char *value, struct config_error *error) {
        char *end;

        errno = 0;
        double percent = strtod(value, &end);
        if (errno || end == value || strcmp(end, "%") != 0 || !(percent >= 0.01 && percent <= 100))
                return bad_value(error, "is not a share of one core from 0.01%% to 100%%");

        c->cpu_budget = percent / 100;
        return 0;
}

static int add_kind(struct config *c, const char *word, struct config_error *error) {
        int kind = delay_kind_from_name(word);

        if (kind < 0)
                return bad_value(error, "names no kind of delay: %s. Kinds are cpu, blkio, swapin, freepages, "
                                 "thrashing, compact, wpcopy and irq", word);

        c->kinds |= DELAY_KIND_BIT(kind);
        return 0;
}

static int set_kinds(struct config *c, const char *value, struct config_error *error) {
        c->kinds = 0;
        int r = each_word(value, add_kind, c, error);
        if (r < 0)
                return r;

        return c->kinds ? 0 : bad_value(error, "names no kind of delay");
}

static int set_exit_filter(struct config *c, const char *value, struct config_error *error) {
        return parse_bool(value, &c->exit_filter, error);
}

static int set_receive_buffer(struct config *c, const char *value, struct config_error *error) {
        uint64_t size;

        if (text_parse_size(value, &size) < 0 || size < 64 * 1024 || size > 512 * 1024 * 1024)
                return bad_value(error, "is not a size from 64K to 512M");

        c->receive_buffer = size;
        return 0;
}

static int set_cgroup_root(struct config *c, const char *value, struct config_error *error) {
        if (strcmp(value, "auto") != 0 && value[0] != '/')
                return bad_value(error, "is neither \"auto\" nor an absolute path");

        char *copy = NULL;
        if (value[0] == '/') {
                copy = strdup(value);
                if (!copy)
                        return -ENOMEM;
        }

        free(c->cgroup_root);
        c->cgroup_root = copy;
        return 0;
}

static int set_state_directory(struct config *c, const char *value, struct config_error *error) {
        bool none = strcmp(value, "none") == 0, by_default = strcmp(value, "auto") == 0;

        if (!none && !by_default && value[0] != '/')
                return bad_value(error, "is neither \"auto\" nor \"none\" nor an absolute path");

        char *copy = NULL;
        if (!none) {
                copy = strdup(by_default ? "" : value);
                if (!copy)
                        return -ENOMEM;
        }

        free(c->state_directory);
        c->state_directory = copy;
        return 0;
}

static int set_save_interval(struct config *c, const char *value, struct config_error *error) {
        return parse_span(value, 100 * NSEC_PER_MSEC, 24 * 3600 * NSEC_PER_SEC, "from 100ms to 1d",
                          &c->save_interval_nsec, error);
}

static int set_max_cgroups(struct config *c, const char *value, struct config_error *error) {
        return parse_number(value, 1, 1000000, &c->max_cgroups, error);
}

static int set_max_exported(struct config *c, const char *value, struct config_error *error) {
        return parse_number(value, 0, 1000000, &c->max_exported, error);
}

static int add_listen(struct config *c, const char *word, struct config_error *error) {
        if (!address_is_valid(word))
                return bad_value(error, "holds %s, which is no address to listen on. Write 127.0.0.1:10066, [::1]:10066 or "
                                 ":10066 (all addresses)", word);
        for (unsigned i = 0; i < c->n_listen; i++)
                if (strcmp(c->listen[i], word) == 0)
                        return bad_value(error, "names %s twice", word);
        if (c->n_listen == CONFIG_LISTEN_MAX)
                return bad_value(error, "has more than %d addresses", CONFIG_LISTEN_MAX);

        c->listen[c->n_listen] = strdup(word);
        if (!c->listen[c->n_listen])
                return -ENOMEM;

        c->n_listen++;
        return 0;
}

static int set_listen(struct config *c, const char *value, struct config_error *error) {
        while (c->n_listen > 0)
                free(c->listen[--c->n_listen]);

        c->listen_chosen = true;
        return each_word(value, add_listen, c, error);
}

static int add_bucket(struct config *c, const char *word, struct config_error *error) {
        uint64_t span;

        if (text_parse_span(word, &span) < 0 || span == 0)
                return bad_value(error, "holds %s, which is no time span (such as 1ms or 0.5s)", word);
        if (c->n_buckets == CONFIG_BUCKETS_MAX)
                return bad_value(error, "has more than %d bounds", CONFIG_BUCKETS_MAX);

        /* Only bounds that the histograms keep can be shown without loss: take the nearest on the log scale. */
        unsigned bucket = histogram_bucket_of(span);
        if (bucket == HISTOGRAM_BUCKET_COUNT - 1)
                return bad_value(error, "holds %s, which is above the histograms' 4096s", word);
        if (bucket > 0) {
                double upper = histogram_bucket_upper_sec(bucket), lower = histogram_bucket_upper_sec(bucket - 1);
                double seconds = (double) span / (double) NSEC_PER_SEC;

                if (seconds / lower < upper / seconds)
                        bucket--;
        }

        if (c->n_buckets > 0 && bucket <= c->bucket_indices[c->n_buckets - 1])
                return bad_value(error, "does not ascend by at least a fifth at %s", word);

        c->bucket_indices[c->n_buckets] = bucket;
        c->bucket_bounds_sec[c->n_buckets++] = histogram_bucket_upper_sec(bucket);
        return 0;
}

static int set_buckets(struct config *c, const char *value, struct config_error *error) {
        c->n_buckets = 0;
        return each_word(value, add_bucket, c, error);
}

static void free_globs(struct config_globs *globs) {
        while (globs->n > 0)
                free(globs->patterns[--globs->n]);
        free(globs->patterns);
        *globs = (struct config_globs) {};
}

static int add_glob(struct config_globs *globs, const char *pattern) {
        char **patterns = realloc(globs->patterns, (globs->n + 1) * sizeof(*patterns));
        if (!patterns)
                return -ENOMEM;

        globs->patterns = patterns;
        patterns[globs->n] = strdup(pattern);
        if (!patterns[globs->n])
                return -ENOMEM;

        globs->n++;
        return 0;
}

static int add_include(struct config *c, const char *word, struct config_error *error) {
        return add_glob(&c->include, word);
}

static int set_include(struct config *c, const char *value, struct config_error *error) {
        free_globs(&c->include);
        return each_word(value, add_include, c, error);
}

static int add_exclude(struct config *c, const char *word, struct config_error *error) {
        return add_glob(&c->exclude, word);
}

static int set_exclude(struct config *c, const char *value, struct config_error *error) {
        free_globs(&c->exclude);
        return each_word(value, add_exclude, c, error);
}

static bool any_glob_matches(const struct config_globs *globs, const char *path) {
        for (size_t i = 0; i < globs->n; i++)
                if (fnmatch(globs->patterns[i], path, 0) == 0)
                        return true;

        return false;
}

bool config_may_export(const char *path, void *userdata) {
        const struct config *c = userdata;

        return (c->include.n == 0 || any_glob_matches(&c->include, path)) && !any_glob_matches(&c->exclude, path);
}

/* Every key of the file, with the value that it has when nobody sets it. */
static const struct config_key {
        const char *section, *name;
        int (*set)(struct config *c, const char *value, struct config_error *error);
        const char *by_default;
} config_keys[] = {
        { "Collect", "PollInterval", set_poll_interval, "1s" },
        { "Collect", "CpuBudget", set_cpu_budget, "1%" },
        { "Collect", "Kinds", set_kinds, "blkio swapin" },
        { "Collect", "ExitFilter", set_exit_filter, "yes" },
        { "Collect", "ReceiveBuffer", set_receive_buffer, "8M" },
        { "Collect", "CgroupRoot", set_cgroup_root, "auto" },
        { "Collect", "MaxCgroups", set_max_cgroups, "10000" },
        { "Collect", "Retention", set_retention, "5min" },
        { "Metrics", "Listen", set_listen, "127.0.0.1:10066 [::1]:10066" },
        /* Every second octave from 15us to 64s: 12 series a histogram. */
        { "Metrics", "Buckets", set_buckets, "15us 61us 244us 977us 3.9ms 15.6ms 62.5ms 250ms 1s 4s 16s 64s" },
        { "Metrics", "MaxCgroups", set_max_exported, "1000" },
        { "Metrics", "Include", set_include, "" },
        { "Metrics", "Exclude", set_exclude, "" },
        { "State", "Directory", set_state_directory, "auto" },
        { "State", "SaveInterval", set_save_interval, "1min" },
};

/* Keys that are settled, but for a later version. */
static const struct {
        const char *section, *name; /* NULL: the whole section */
} later_keys[] = {
        { "Metrics", "TLSCertificate" },
        { "Metrics", "TLSKey" },
        { "Metrics", "UsersFile" },
        { "Episodes", NULL },
};

bool config_is_later_key(const char *section, const char *name) {
        for (size_t i = 0; i < sizeof(later_keys) / sizeof(later_keys[0]); i++)
                if (strcmp(later_keys[i].section, section) == 0
                    && (!later_keys[i].name || strcmp(later_keys[i].name, name) == 0))
                        return true;

        return false;
}

int config_set(struct config *c, const char *section, const char *name, const char *value, struct config_error *error) {
        for (size_t i = 0; i < sizeof(config_keys) / sizeof(config_keys[0]); i++) {
                const struct config_key *key = &config_keys[i];

                /* An empty value takes back what was set before, as in systemd's files. */
                if (strcmp(key->section, section) == 0 && strcmp(key->name, name) == 0)
                        return key->set(c, *value ? value : key->by_default, error);
        }

        return -ENOENT;
}

int config_set_defaults(struct config *c) {
        struct config_error error;

        for (size_t i = 0; i < sizeof(config_keys) / sizeof(config_keys[0]); i++) {
                int r = config_keys[i].set(c, config_keys[i].by_default, &error);
                if (r < 0)
                        return r;
        }

        c->listen_chosen = false;
        return 0;
}

void config_done(struct config *config) {
        free(config->cgroup_root);
        free(config->state_directory);
        while (config->n_listen > 0)
                free(config->listen[--config->n_listen]);
        free_globs(&config->include);
        free_globs(&config->exclude);
        *config = (struct config) {};
}
