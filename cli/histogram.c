/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bus-client.h"
#include "core/histogram.h"
#include "core/text.h"
#include "delayctl.h"
#include "fields.h"
#include "output.h"
#include "table.h"

#define ROWS_MAX 40        /* with more rows four buckets, an octave, share one */
#define BAR_WIDTH_MAX 60
#define BAR_WIDTH_MIN 10

struct bar {
        uint64_t above_nsec;
        uint64_t up_to_nsec; /* UINT64_MAX: no bound */
        uint64_t waits;
};

struct bars {
        struct bar *bars;
        size_t n;
        uint64_t waits;
        uint64_t most; /* waits of the longest bar */
};

static size_t read_buckets(struct json_object *buckets, struct bar *bars) {
        uint64_t previous_nsec = 0;
        size_t n = buckets ? json_object_array_length(buckets) : 0;

        for (size_t i = 0; i < n; i++) {
                struct json_object *bucket = json_object_array_get_idx(buckets, i);

                bars[i] = (struct bar) { .above_nsec = previous_nsec, .up_to_nsec = UINT64_MAX };
                json_get_u64(bucket, "le_nsec", &bars[i].up_to_nsec);
                json_get_u64(bucket, "waits", &bars[i].waits);
                previous_nsec = bars[i].up_to_nsec;
        }

        return n;
}

/* Keeps what lies between the first and the last bucket with waits. */
static size_t trim(struct bar *bars, size_t n) {
        size_t first = 0;

        while (n > 0 && bars[n - 1].waits == 0)
                n--;
        while (first < n && bars[first].waits == 0)
                first++;

        memmove(bars, bars + first, (n - first) * sizeof(*bars));
        return n - first;
}

static unsigned octave_of(const struct bar *bar) {
        unsigned bucket = bar->up_to_nsec == UINT64_MAX ? HISTOGRAM_BUCKET_COUNT - 1
                                                        : histogram_bucket_of(bar->up_to_nsec);

        return (bucket + HISTOGRAM_BUCKETS_PER_OCTAVE - 1) / HISTOGRAM_BUCKETS_PER_OCTAVE;
}

static size_t merge_octaves(struct bar *bars, size_t n) {
        size_t merged = 0;

        for (size_t i = 0; i < n; i++)
                if (merged > 0 && octave_of(&bars[merged - 1]) == octave_of(&bars[i])) {
                        bars[merged - 1].up_to_nsec = bars[i].up_to_nsec;
                        bars[merged - 1].waits += bars[i].waits;
                } else
                        bars[merged++] = bars[i];

        return merged;
}

static int make_bars(struct json_object *histogram, struct bars *ret) {
        struct json_object *buckets = json_get_list(histogram, "buckets");
        struct bars bars = {};

        bars.bars = calloc(buckets ? json_object_array_length(buckets) + 1 : 1, sizeof(*bars.bars));
        if (!bars.bars)
                return -ENOMEM;

        bars.n = trim(bars.bars, read_buckets(buckets, bars.bars));
        if (bars.n > ROWS_MAX)
                bars.n = merge_octaves(bars.bars, bars.n);

        for (size_t i = 0; i < bars.n; i++) {
                bars.waits += bars.bars[i].waits;
                if (bars.bars[i].waits > bars.most)
                        bars.most = bars.bars[i].waits;
        }

        *ret = bars;
        return 0;
}

static void draw_bar(uint64_t waits, uint64_t most, size_t width, char *buf) {
        static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
        size_t parts = terminal_is_utf8() ? 8 : 1, length;
        char *p = buf;

        /* What is there must be seen, be it ever so small beside the rest. */
        length = (size_t) ((double) waits / (double) most * (double) (width * parts));
        if (waits > 0 && length == 0)
                length = 1;

        for (size_t i = 0; i < length / parts; i++)
                p = stpcpy(p, parts == 8 ? "█" : "#");
        strcpy(p, eighths[length % parts]);
}

static size_t bar_width(size_t columns) {
        const size_t numbers = 8 + 1 + 8 + 1 + 8 + 1 + 6 + 1;

        if (columns == 0 || columns >= numbers + BAR_WIDTH_MAX)
                return BAR_WIDTH_MAX;

        return columns >= numbers + BAR_WIDTH_MIN ? columns - numbers : BAR_WIDTH_MIN;
}

static int print_bars(const struct bars *bars, bool header) {
        static const struct column columns[] = {
                { "ABOVE", .right = true },
                { "UP TO", .right = true },
                { "WAITS", .right = true },
                { "CUM%", .right = true },
                { "" },
        };
        char bar[BAR_WIDTH_MAX * sizeof("█")], span[TEXT_SPAN_SIZE];
        size_t width = bar_width(terminal_columns());
        uint64_t cumulative = 0;
        struct table *table;
        int r;

        r = table_new(columns, sizeof(columns) / sizeof(*columns), &table);
        if (r < 0)
                return r;

        for (size_t i = 0; i < bars->n; i++) {
                const struct bar *b = &bars->bars[i];

                cumulative += b->waits;
                table_add(table, text_format_span(span, b->above_nsec));
                table_add(table, b->up_to_nsec == UINT64_MAX ? "-" : text_format_span(span, b->up_to_nsec));
                table_add_count(table, true, b->waits);
                table_add_format(table, "%.1f", (double) cumulative * 100 / (double) bars->waits);
                draw_bar(b->waits, bars->most, width, bar);
                table_add(table, bar);
        }

        r = table_print(table, stdout, 0, header);
        table_free(table);
        return r;
}

static void print_quantiles(struct json_object *histogram) {
        static const struct {
                const char *key;
                const char *title;
        } quantiles[] = {
                { "p50_nsec", "P50" },
                { "p90_nsec", "P90" },
                { "p99_nsec", "P99" },
                { "max_nsec", "max" },
        };
        char span[TEXT_SPAN_SIZE];
        const char *separator = "";
        uint64_t nsec;

        for (size_t i = 0; i < sizeof(quantiles) / sizeof(*quantiles); i++)
                if (json_get_u64(histogram, quantiles[i].key, &nsec)) {
                        printf("%s%s %s", separator, quantiles[i].title, text_format_span(span, nsec));
                        separator = ", ";
                }
        if (separator[0])
                putchar('\n');
}

/* "/a/b in the last 5min: 12 blkio waits, total 1.2s, mean 100ms" */
static int print_title(struct json_object *histogram, uint64_t waits) {
        _cleanup_free_ char *name = NULL;
        uint64_t window_nsec = 0, total_nsec;
        char span[TEXT_SPAN_SIZE];

        name = printable_text(json_get_text(histogram, "cgroup") ?: "-");
        if (!name)
                return -ENOMEM;

        json_get_u64(histogram, "window_nsec", &window_nsec);
        printf("%s%s%s in the last %s: %" PRIu64 " %s %s", style_on(STYLE_BOLD), name, style_off(STYLE_BOLD),
               text_format_span(span, window_nsec), waits, json_get_text(histogram, "kind") ?: "-",
               waits == 1 ? "wait" : "waits");
        if (waits > 0 && json_get_u64(histogram, "total_nsec", &total_nsec)) {
                printf(", total %s", text_format_span(span, total_nsec));
                printf(", mean %s", text_format_span(span, total_nsec / waits));
        }
        putchar('\n');
        print_quantiles(histogram);
        putchar('\n');
        return 0;
}

static int print_histogram(struct json_object *histogram, const struct options *options) {
        struct bars bars;
        uint64_t waits;
        int r;

        r = make_bars(histogram, &bars);
        if (r < 0)
                return r;
        if (!json_get_u64(histogram, "waits", &waits))
                waits = bars.waits;

        if (options->legend) {
                r = print_title(histogram, waits);
                if (r < 0)
                        goto finish;
        }
        if (bars.waits > 0)
                r = print_bars(&bars, options->legend);

finish:
        free(bars.bars);
        return r;
}

static int read_histogram(sd_bus_message *reply, struct json_object **ret) {
        _cleanup_json_ struct json_object *histogram = NULL;
        int r;

        r = sd_bus_message_has_signature(reply, "a{sv}");
        if (r <= 0)
                return r < 0 ? r : -EBADMSG;
        r = bus_read_json(reply, &histogram);
        if (r < 0)
                return r;

        return fields_complete(histogram, histogram_fields, ret);
}

int verb_histogram(const struct options *options, int argc, char *argv[]) {
        const char *kind = options->kinds ? delay_kind_name(options->first_kind) : "";
        _cleanup_bus_ sd_bus *bus = NULL;
        _cleanup_message_ sd_bus_message *message = NULL, *reply = NULL;
        _cleanup_json_ struct json_object *histogram = NULL;
        char *error;
        int r;

        if (__builtin_popcount(options->kinds) > 1)
                return fail_usage("A histogram is of one kind: give --kind= one name.");

        r = bus_open(&bus, &error);
        if (r < 0)
                return fail_explained(error);
        r = bus_new_call(bus, "GetHistogram", &message);
        if (r >= 0)
                r = sd_bus_message_append(message, "ssta{sv}", argv[1], kind, options->window_nsec, 0);
        if (r == -EINVAL)
                return fail("The name of the cgroup is not valid UTF-8: give it as 'delayctl cgroups' shows "
                            "it.");
        if (r < 0)
                return fail_explained(bus_explain(NULL, r));
        r = bus_call(bus, message, &reply, &error);
        if (r < 0)
                return fail_explained(error);
        r = read_histogram(reply, &histogram);
        if (r < 0)
                return fail_explained(bus_explain_reply(r));

        if (options->json != JSON_OFF)
                r = print_json(histogram, options->json);
        else
                r = print_histogram(histogram, options);

        return r < 0 ? fail_memory() : EXIT_SUCCESS;
}
