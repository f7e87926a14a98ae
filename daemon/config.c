/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "config-keys.h"
#include "config.h"
#include "log.h"
#include "open-file.h"

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

        int r = config_set(reader->config, section, name, value, &error);
        if (r != -ENOENT) {
                if (r == -EINVAL)
                        log_fault("%s%s.%s=%s %s.", place, section, name, value, error.text);
                else if (r < 0)
                        log_fault("%s%s.%s=: %s", place, section, name, strerror(-r));
                if (r < 0)
                        reader->result = r;
                return;
        }

        if (config_is_later_key(section, name)) {
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
        if (strlen(reader->text) < (size_t) n) {
                log_fault("%s:%u: There is a NUL byte in this line.", reader->source, reader->line);
                reader->result = -EINVAL;
        }
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

static int cannot_read(const char *path, int r) {
        log_fault("Cannot read the configuration %s: %s", path, open_file_error(r));
        return r;
}

static int read_file(struct config *config, const char *path, bool required) {
        struct config_reader reader = { .config = config, .source = path };
        _cleanup_fclose_ FILE *file = NULL;

        int r = open_file(path, &file);
        if (r < 0)
                return r == -ENOENT && !required ? 0 : cannot_read(path, r);

        reader.file = file;
        int line = ini_parse_stream(read_line, &reader, on_key, &reader);
        free(reader.text);

        if (line > 0 && reader.result >= 0) {
                log_fault("%s:%d: This line cannot be understood.", path, line);
                return -EINVAL;
        }
        if (ferror(file))
                return cannot_read(path, -EIO);

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
                return errno == ENOENT ? 0 : cannot_read(directory, -errno);

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
        r = config_set_defaults(&config);
        if (r < 0)
                return r;

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
