/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "config.h"
#include "core/address.h"
#include "core/histogram.h"
#include "core/text.h"
#include "log.h"

/* Says what is wrong with a value and what would be right. */
struct config_error {
        char text[256];
};

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

static bool is_later_key(const char *section, const char *name) {
        for (size_t i = 0; i < sizeof(later_keys) / sizeof(later_keys[0]); i++)
                if (strcmp(later_keys[i].section, section) == 0
                    && (!later_keys[i].name || strcmp(later_keys[i].name, name) == 0))
                        return true;

        return false;
}

/* What the operator is shown of a reload that failed, beside the log. */
static char first_fault[384];

const char *config_fault(void) {
        return first_fault[0] ? first_fault : NULL;
}

static void log_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void log_fault(const char *format, ...) {
        char text[1024];
        va_list ap;

        va_start(ap, format);
        vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);

        if (!first_fault[0])
                snprintf(first_fault, sizeof(first_fault), "%.*s", (int) sizeof(first_fault) - 1, text);
        log_error("%s", text);
}

struct config_reader {
        struct config *config;
        const char *source; /* file name, or NULL for the command line */
        FILE *file;
        unsigned line;
        char *text;         /* of this line, whole */
        size_t text_size;
        bool wants_key;     /* the line is to hold a key, */
        bool has_key;       /* and does */
        bool is_cut;        /* the library has only got the beginning */
        int result;
};

static void apply(struct config_reader *reader, const char *section, const char *name, const char *value) {
        struct config_error error = {};
        char place[512] = "";

        if (reader->source)
                snprintf(place, sizeof(place), "%s:%u: ", reader->source, reader->line);

        for (size_t i = 0; i < sizeof(config_keys) / sizeof(config_keys[0]); i++) {
                const struct config_key *key = &config_keys[i];

                if (strcmp(key->section, section) != 0 || strcmp(key->name, name) != 0)
                        continue;

                /* An empty value takes back what was set before, as in systemd's files. */
                int r = key->set(reader->config, *value ? value : key->by_default, &error);
                if (r == -EINVAL)
                        log_fault("%s%s.%s=%s %s.", place, section, name, value, error.text);
                else if (r < 0)
                        log_fault("%s%s.%s=: %s", place, section, name, strerror(-r));
                if (r < 0)
                        reader->result = r;
                return;
        }

        if (is_later_key(section, name)) {
                if (*value)
                        log_warning("%s%s.%s= is not supported by this version, ignored.", place, section, name);
        } else if (reader->source)
                log_warning("%sUnknown key %s.%s=, ignored. See delayd.conf(5).", place, section, name);
        else {
                log_fault("--set: there is no key %s.%s=. See delayd.conf(5).", section, name);
                reader->result = -EINVAL;
        }
}

#define BLANKS " \t\r\n\v\f"

/* The value of a line that is too long for the library, by its own rules. */
static const char *whole_value(char *line) {
        char *value = line + strcspn(line, "=:");

        value += *value != '\0';
        value += strspn(value, BLANKS);

        /* A semicolon that follows a blank begins a comment. */
        for (char *p = value; *p; p++)
                if (*p == ';' && p > value && strchr(BLANKS, p[-1])) {
                        *p = '\0';
                        break;
                }

        for (size_t n = strlen(value); n > 0 && strchr(BLANKS, value[n - 1]);)
                value[--n] = '\0';
        return value;
}

static int on_key(void *user, const char *section, const char *name, const char *value) {
        struct config_reader *reader = user;

        reader->has_key = true;
        apply(reader, section, name, reader->is_cut ? whole_value(reader->text) : value ? value : "");
        return 1;
}

static void refuse_line(struct config_reader *reader) {
        if (reader->wants_key && !reader->has_key) {
                log_fault("%s:%u: This is neither a [Section] nor a Key=value line.", reader->source, reader->line);
                reader->result = -EINVAL;
        }
        reader->wants_key = false;
}

/*
 * In the place of fgets(), which takes long lines to pieces and tells nobody where it is. The library keeps the
 * first bad line alone in mind; we name them all.
 */
static char *read_line(char *buf, int size, void *stream) {
        struct config_reader *reader = stream;

        refuse_line(reader);

        ssize_t n = getline(&reader->text, &reader->text_size, reader->file);
        if (n < 0)
                return NULL;

        reader->line++;
        const char *begin = reader->text;
        if (reader->line == 1 && strncmp(begin, "\xEF\xBB\xBF", 3) == 0)
                begin += 3;
        begin += strspn(begin, BLANKS);

        reader->has_key = *begin == '[' && strchr(begin, ']');
        reader->wants_key = *begin && *begin != '#' && *begin != ';';
        reader->is_cut = n >= size;

        /*
         * Without what it is indented by, which would make it another value of the key above. The rest of a long
         * line is not for the library: what a key needs of it is taken from our own copy.
         */
        snprintf(buf, (size_t) size, "%s", begin);
        return buf;
}

static int cannot_read(const char *path, int error) {
        log_fault("Cannot read the configuration %s: %s", path, strerror(error));
        return -error;
}

static int read_file(struct config *config, const char *path, bool required) {
        struct config_reader reader = { .config = config, .source = path };
        _cleanup_fclose_ FILE *file = fopen(path, "re");

        if (!file) {
                if (errno == ENOENT && !required)
                        return 0;
                return cannot_read(path, errno);
        }

        reader.file = file;
        int line = ini_parse_stream(read_line, &reader, on_key, &reader);
        free(reader.text);

        if (line > 0 && reader.result >= 0) {
                log_fault("%s:%d: This line cannot be understood.", path, line);
                return -EINVAL;
        }
        if (ferror(file))
                return cannot_read(path, EIO);

        return reader.result;
}

static int is_drop_in(const struct dirent *entry) {
        const char *dot = strrchr(entry->d_name, '.');

        return entry->d_name[0] != '.' && dot && strcmp(dot, ".conf") == 0;
}

static int read_drop_ins(struct config *config, const char *path) {
        _cleanup_free_ char *directory = NULL;
        struct dirent **entries = NULL;
        int r = 0;

        if (asprintf(&directory, "%s.d", path) < 0)
                return -ENOMEM;

        int n = scandir(directory, &entries, is_drop_in, alphasort);
        if (n < 0)
                return errno == ENOENT ? 0 : cannot_read(directory, errno);

        for (int i = 0; i < n; i++) {
                _cleanup_free_ char *file = NULL;

                if (asprintf(&file, "%s/%s", directory, entries[i]->d_name) < 0)
                        r = -ENOMEM;
                else {
                        int q = read_file(config, file, true);
                        if (q < 0)
                                r = q;
                }
                free(entries[i]);
        }

        free(entries);
        return r;
}

static int apply_setting(struct config *config, const char *setting) {
        struct config_reader reader = { .config = config };
        _cleanup_free_ char *section = strdup(setting);

        if (!section)
                return -ENOMEM;

        char *value = strchr(section, '='), *name = value ? memchr(section, '.', (size_t) (value - section)) : NULL;
        if (!value || !name) {
                log_fault("--set %s: expected Section.Key=VALUE, such as Collect.PollInterval=2s.", setting);
                return -EINVAL;
        }

        *value++ = '\0';
        *name++ = '\0';
        apply(&reader, section, name, value);
        return reader.result;
}

int config_load(const char *path, bool required, char *const *settings, size_t n_settings, struct config *ret) {
        _cleanup_(config_done) struct config config = {};
        int r, result = 0;

        first_fault[0] = '\0';
        for (size_t i = 0; i < sizeof(config_keys) / sizeof(config_keys[0]); i++) {
                struct config_error error = {};

                r = config_keys[i].set(&config, config_keys[i].by_default, &error);
                if (r < 0)
                        return r;
        }
        config.listen_chosen = false;

        /* Every fault is told, not only the first. */
        r = read_file(&config, path, required);
        if (r < 0)
                result = r;
        r = read_drop_ins(&config, path);
        if (r < 0)
                result = r;
        for (size_t i = 0; i < n_settings; i++) {
                r = apply_setting(&config, settings[i]);
                if (r < 0)
                        result = r;
        }
        if (result < 0)
                return result;

        *ret = config;
        config = (struct config) {};
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
