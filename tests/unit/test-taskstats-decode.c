/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "kernel/taskstats-decode.h"
#include "taskstats-encoder.h"

/* Fixtures: every value of every row */

#define ROWS_MAX 128
#define COLUMNS_MAX 40

struct table {
        char *text;
        char *names[COLUMNS_MAX];
        char *rows[ROWS_MAX][COLUMNS_MAX];
        size_t n_columns, n_rows;
};

static size_t split(char *line, char **cells) {
        size_t n = 0;

        for (char *cell; (cell = strsep(&line, "\t"));) {
                assert_true(n < COLUMNS_MAX);
                cells[n++] = cell;
        }

        return n;
}

static void read_table(const char *path, struct table *t) {
        size_t size;
        char *rest = t->text = (char *) read_file(path, &size), *line;

        t->n_columns = split(strsep(&rest, "\n"), t->names);
        for (t->n_rows = 0; (line = strsep(&rest, "\n")) && *line; t->n_rows++) {
                assert_true(t->n_rows < ROWS_MAX);
                assert_int_equal(split(line, t->rows[t->n_rows]), t->n_columns);
        }
}

struct fixture_check {
        const struct table *table;
        size_t row;
        size_t records;
        size_t values;
};

/* What a sample says in a column; NULL: nothing, the record does not carry it. */
static const uint64_t *delay_value(const struct task_sample *s, const char *column) {
        static const char *const suffixes[] = { "count", "delay", "max", "min" };
        const char *underscore = strchr(column, '_');
        char name[16];

        snprintf(name, sizeof(name), "%.*s", (int) (underscore - column), column);
        int kind = delay_kind_from_name(name);
        assert_true(kind >= 0);

        for (size_t i = 0; i < 4; i++)
                if (strcmp(underscore + 1, suffixes[i]) == 0) {
                        if (i < 2 ? !delay_kind_in(s->kinds, (enum delay_kind) kind) : !s->has_extremes)
                                return NULL;
                        return &s->delays[kind].count + i;
                }

        fail_msg("unknown column %s", column);
        return NULL;
}

/* The tables write bytes that are not printable as \xNN, and the backslash too. */
static void check_comm(const char *comm, const char *cell) {
        char escaped[4 * TASK_COMM_SIZE] = "", *p = escaped;

        for (; *comm; comm++)
                if (*comm > ' ' && *comm <= '~' && *comm != '\\')
                        *p++ = *comm;
                else
                        p += sprintf(p, "\\x%02x", (uint8_t) *comm);

        assert_string_equal(escaped, cell);
}

static void check_cell(const struct task_sample *s, uint32_t sequence, const char *column, const char *cell) {
        unsigned long long expected = strtoull(cell, NULL, 10);

        if (strcmp(column, "kind") == 0)
                assert_string_equal(cell, "PID");
        else if (strcmp(column, "comm") == 0)
                check_comm(s->comm, cell);
        else if (strcmp(column, "id") == 0 || strcmp(column, "ac_pid") == 0)
                assert_int_equal(s->tid, expected);
        else if (strcmp(column, "seq") == 0)
                assert_int_equal(sequence, expected);
        else if (strcmp(column, "version") == 0)
                assert_int_equal(s->version, expected);
        else if (strcmp(column, "len") == 0)
                ; /* checked with the raw record */
        else if (strcmp(column, "ac_tgid") == 0)
                assert_int_equal(s->tgid, expected);
        else if (strcmp(column, "ac_ppid") == 0)
                assert_int_equal(s->ppid, expected);
        else if (strcmp(column, "etime_us") == 0)
                assert_int_equal(s->lifetime_nsec, expected * 1000);
        else if (strcmp(column, "flag") == 0)
                assert_int_equal(s->last_of_group, (expected & 0x20) != 0);
        else {
                const uint64_t *value = delay_value(s, column);

                if (strcmp(cell, "-") == 0)
                        assert_null(value);
                else {
                        assert_non_null(value);
                        assert_int_equal(*value, expected);
                }
        }
}

static void check_fixture_record(const struct task_sample *s, uint32_t sequence, void *userdata) {
        struct fixture_check *c = userdata;

        while (c->row < c->table->n_rows && strcmp(c->table->rows[c->row][0], "TGID") == 0)
                c->row++;
        assert_true(c->row < c->table->n_rows);

        for (size_t column = 0; column < c->table->n_columns; column++) {
                check_cell(s, sequence, c->table->names[column], c->table->rows[c->row][column]);
                c->values++;
        }

        c->row++;
        c->records++;
}

/* The len column, and that the layout is proven by each single record. */
static void check_raw_records(const struct table *t, const uint8_t *bytes, size_t size) {
        size_t row = 0;

        for (size_t at = 0; at < size;) {
                struct taskstats_record record;
                uint32_t length;

                memcpy(&length, bytes + at, sizeof(length));
                assert_int_equal(taskstats_find_record(bytes + at + 16, length - 16, &record), 1);
                while (strcmp(t->rows[row][0], "TGID") == 0)
                        row++;
                assert_string_equal(t->names[4], "len");
                assert_int_equal(record.size, atoi(t->rows[row][4]));
                assert_int_equal(taskstats_prove_layout(record.payload, record.size, record.tid), TASKSTATS_LAYOUT_A);
                assert_int_equal(taskstats_prove_layout(record.payload, record.size, record.tid + 1), -ENODATA);
                row++;
                at += length;
        }
}

static void fixture(const char *name, enum taskstats_layout layout, size_t expected_records) {
        char path[256];
        struct table table;
        size_t size;
        struct fixture_check check = { .table = &table };

        snprintf(path, sizeof(path), FIXTURES "/%s.tsv", name);
        read_table(path, &table);
        snprintf(path, sizeof(path), FIXTURES "/%s.bin", name);
        uint8_t *bytes = read_file(path, &size);

        struct taskstats_walk walk = { .layout = layout, .record = check_fixture_record, .userdata = &check };
        memcpy(&walk.family, bytes + 4, sizeof(walk.family));

        assert_int_equal(taskstats_walk(&walk, bytes, size), 0);
        assert_int_equal(check.records, expected_records);
        assert_int_equal(check.values, expected_records * table.n_columns);
        while (check.row < table.n_rows) /* no PID row is left over */
                assert_string_equal(table.rows[check.row++][0], "TGID");
        check_raw_records(&table, bytes, size);

        free(bytes);
        free(table.text);
}

static void fixtures_decode_to_their_tables(void **state) {
        for (int proven = 0; proven < 2; proven++) {
                enum taskstats_layout layout = proven ? TASKSTATS_LAYOUT_A : TASKSTATS_LAYOUT_BY_VERSION;

                fixture("exits-linux-6.1", layout, 41);
                fixture("exits-linux-6.12", layout, 41);
                fixture("exits-linux-6.18", layout, 30);
        }
}

/* Synthetic records of every version */

static void fill_random(void *p, size_t size) {
        for (size_t i = 0; i < size; i++)
                ((uint8_t *) p)[i] = (uint8_t) (random64() >> 32);
}

static void check_basic(const struct task_sample *s, const struct wire_basic *w) {
        assert_memory_equal(s->comm, w->comm, TASK_COMM_SIZE - 1);
        assert_int_equal(s->comm[TASK_COMM_SIZE - 1], '\0'); /* though the record's is not */
        assert_int_equal(s->uid, w->uid);
        assert_int_equal(s->ppid, w->ppid);
        assert_int_equal(s->run_nsec, w->cpu_run_virtual_total);
        assert_int_equal(s->lifetime_nsec, w->etime * 1000);
        assert_int_equal(s->minor_faults, w->minflt);
        assert_int_equal(s->major_faults, w->majflt);
        assert_int_equal(s->read_bytes, w->read_bytes);
        assert_int_equal(s->write_bytes, w->write_bytes);
}

static void check_delay(
                const struct task_sample *s, enum delay_kind kind, bool carried,
                const struct wire_pair *waits, const struct wire_extremes *extremes) {

        const struct delay_counters *d = &s->delays[kind];

        assert_int_equal(delay_kind_in(s->kinds, kind), carried);
        assert_int_equal(d->count, carried ? waits->count : 0);
        assert_int_equal(d->total_nsec, carried ? waits->total : 0);
        assert_int_equal(d->max_nsec, extremes ? extremes->max : 0);
        assert_int_equal(d->min_nsec, extremes ? extremes->min : 0);
}

static void check_a(const struct task_sample *s, const struct wire_a *w, uint16_t version, size_t size) {
        const struct {
                enum delay_kind kind;
                const struct wire_pair *waits;
                uint16_t first;
        } kinds[] = {
                { DELAY_CPU, &w->cpu, 1 },
                { DELAY_BLKIO, &w->blkio, 1 },
                { DELAY_SWAPIN, &w->swapin, 1 },
                { DELAY_FREEPAGES, &w->freepages, 7 },
                { DELAY_THRASHING, &w->thrashing, 9 },
                { DELAY_COMPACT, &w->compact, 11 },
                { DELAY_WPCOPY, &w->wpcopy, 13 },
                { DELAY_IRQ, &w->irq, 14 },
        };
        bool extremes = version >= 16 && size >= 560;

        check_basic(s, &w->basic);
        assert_int_equal(s->version, version);
        assert_int_equal(s->tgid, version >= 12 ? w->identity.tgid : 0);
        assert_int_equal(s->last_of_group, version >= 12 && (w->head.flag & 0x20));
        assert_int_equal(s->has_extremes, extremes);
        for (size_t i = 0; i < DELAY_KIND_COUNT; i++)
                check_delay(s, kinds[i].kind, version >= kinds[i].first, kinds[i].waits, extremes ? &w->extremes[i] : NULL);
}

static void check_b(const struct task_sample *s, const struct wire_b *w, uint16_t version) {
        const struct wire_delay_b *const kinds[DELAY_KIND_COUNT] = {
                [DELAY_CPU] = &w->cpu,             [DELAY_BLKIO] = &w->blkio,         [DELAY_SWAPIN] = &w->swapin,
                [DELAY_FREEPAGES] = &w->freepages, [DELAY_THRASHING] = &w->thrashing, [DELAY_COMPACT] = &w->compact,
                [DELAY_WPCOPY] = &w->wpcopy,       [DELAY_IRQ] = &w->irq,
        };

        check_basic(s, &w->basic);
        assert_int_equal(s->version, version);
        assert_int_equal(s->tgid, w->identity.tgid);
        assert_int_equal(s->last_of_group, (w->head.flag & 0x20) != 0);
        assert_true(s->has_extremes);
        for (int kind = 0; kind < DELAY_KIND_COUNT; kind++)
                check_delay(s, (enum delay_kind) kind, true, &kinds[kind]->waits, &kinds[kind]->extremes);
}

/* Random, but for a lifetime that does not overflow when it is turned into nanoseconds. */
static void random_a(struct wire_a *w, uint16_t version) {
        fill_random(w, sizeof(*w));
        w->head.version = version;
        w->basic.etime &= UINT64_MAX >> 12;
}

static void random_b(struct wire_b *w, uint16_t version) {
        fill_random(w, sizeof(*w));
        w->head.version = version;
        w->basic.etime &= UINT64_MAX >> 12;
}

/* At an odd address. */
static int decode_unaligned(const void *record, size_t size, enum taskstats_layout layout, uint32_t tid, struct task_sample *ret) {
        uint8_t *copy = malloc(size + 1); /* exactly, so that a sanitizer sees one byte too many */

        assert_non_null(copy);
        memcpy(copy + 1, record, size);
        int r = taskstats_decode(copy + 1, size, tid, layout, ret);
        free(copy);
        return r;
}

static void every_version_in_layout_a(void **state) {
        static const uint16_t versions[] = { 8, 9, 10, 11, 12, 13, 14, 16, 17 };
        static const size_t sizes[] = { 328, 344, 352, 368, 400, 416, 432, 560, 688 };
        struct task_sample s;
        struct wire_a w;

        for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
                size_t size = wire_size(versions[i]);

                assert_int_equal(size, sizes[i]);
                for (int round = 0; round < 8; round++) {
                        random_a(&w, versions[i]);
                        assert_int_equal(decode_unaligned(&w, size, TASKSTATS_LAYOUT_A, 7, &s), 0);
                        assert_int_equal(s.tid, 7);
                        assert_int_equal(s.start_max_nsec, 0);
                        check_a(&s, &w, versions[i], size);
                        assert_int_equal(decode_unaligned(&w, size, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), 0);
                        check_a(&s, &w, versions[i], size);
                        assert_int_equal(taskstats_prove_layout(&w, size, w.basic.pid), TASKSTATS_LAYOUT_A);
                }
        }
}

static void layout_b_and_its_mislabelled_records(void **state) {
        static const uint16_t versions[] = { 14, 15 };
        struct task_sample s;
        struct wire_b w;

        assert_int_equal(sizeof(w), 560);
        for (size_t i = 0; i < 2; i++) {
                random_b(&w, versions[i]);
                assert_int_equal(decode_unaligned(&w, sizeof(w), TASKSTATS_LAYOUT_BY_VERSION, 7, &s), 0);
                check_b(&s, &w, versions[i]);
                assert_int_equal(taskstats_prove_layout(&w, sizeof(w), w.basic.pid), TASKSTATS_LAYOUT_B);
                assert_int_equal(decode_unaligned(&w, sizeof(w), TASKSTATS_LAYOUT_B, 7, &s), 0);
                check_b(&s, &w, versions[i]);
        }

        /* A length that no release of v14 ever had. */
        assert_int_equal(decode_unaligned(&w, 496, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), 0); /* v15, cut */
        w.head.version = 14;
        assert_int_equal(decode_unaligned(&w, 496, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), -EBADMSG);
}

static void proof_beats_version(void **state) {
        struct task_sample s;
        struct wire_a a;
        struct wire_b b;

        /* A vendor kernel may have fixed the layout without raising the version, or the reverse. */
        random_a(&a, 15);
        assert_int_equal(decode_unaligned(&a, 560, TASKSTATS_LAYOUT_A, 7, &s), 0);
        assert_int_equal(s.delays[DELAY_BLKIO].total_nsec, a.blkio.total);
        random_b(&b, 16);
        assert_int_equal(decode_unaligned(&b, 560, TASKSTATS_LAYOUT_B, 7, &s), 0);
        check_b(&s, &b, 16);

        /* Where both places hold the TID by chance the version decides. */
        a.head.version = 16;
        a.basic.pid = 4711;
        a.basic.majflt = 4711;
        assert_int_equal(taskstats_prove_layout(&a, 560, 4711), TASKSTATS_LAYOUT_A);
}

static void versions_to_come(void **state) {
        struct {
                struct wire_a known;
                uint8_t more[64];
        } w;
        struct task_sample s;

        memset(w.more, 0xA5, sizeof(w.more));
        random_a(&w.known, 18);
        assert_int_equal(decode_unaligned(&w, sizeof(w), TASKSTATS_LAYOUT_BY_VERSION, w.known.basic.pid, &s), 0);
        check_a(&s, &w.known, 18, sizeof(w));

        /* What does not have the TID in its place has another layout again. */
        assert_int_equal(decode_unaligned(&w, sizeof(w), TASKSTATS_LAYOUT_BY_VERSION, w.known.basic.pid + 1, &s), -EBADMSG);

        /* A rival v17 of 592 bytes: nothing beyond 560 is taken for anything. */
        random_a(&w.known, 17);
        assert_int_equal(decode_unaligned(&w, 592, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), 0);
        check_a(&s, &w.known, 17, 592);
}

static void fields_need_their_bytes(void **state) {
        struct task_sample s;
        struct wire_a w;

        random_a(&w, 16);
        for (size_t size = 0; size < TASKSTATS_SIZE_MIN; size++)
                assert_int_equal(decode_unaligned(&w, size, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), -EBADMSG);

        for (size_t size = TASKSTATS_SIZE_MIN; size <= 560; size++) {
                assert_int_equal(decode_unaligned(&w, size, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), 0);
                assert_int_equal(delay_kind_in(s.kinds, DELAY_IRQ), size >= 432);
                assert_int_equal(s.delays[DELAY_IRQ].count, size >= 432 ? w.irq.count : 0);
                assert_int_equal(s.delays[DELAY_BLKIO].max_nsec, size >= 464 ? w.extremes[DELAY_BLKIO].max : 0);
                assert_int_equal(s.has_extremes, size >= 560);
        }

        /* A field of a later version is not there, whatever the length says. */
        w.head.version = 10;
        assert_int_equal(decode_unaligned(&w, 560, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), 0);
        check_a(&s, &w, 10, 560);

        for (uint16_t version = 0; version < 8; version++) {
                w.head.version = version;
                assert_int_equal(decode_unaligned(&w, 560, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), -EBADMSG);
        }

        w.head.version = 16;
        w.basic.etime = UINT64_MAX / 1000 + 1;
        assert_int_equal(decode_unaligned(&w, 560, TASKSTATS_LAYOUT_BY_VERSION, 7, &s), 0);
        assert_int_equal(s.lifetime_nsec, UINT64_MAX);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(fixtures_decode_to_their_tables),
                cmocka_unit_test_setup(every_version_in_layout_a, seed),
                cmocka_unit_test_setup(layout_b_and_its_mislabelled_records, seed),
                cmocka_unit_test_setup(proof_beats_version, seed),
                cmocka_unit_test_setup(versions_to_come, seed),
                cmocka_unit_test_setup(fields_need_their_bytes, seed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
