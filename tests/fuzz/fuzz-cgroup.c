/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/cgroup-name.h"
#include "core/cgroup-table.h"
#include "core/text.h"
#include "fuzz.h"
#include "kernel/cgroup-tree-internal.h"
#include "record/anonymize.h"

/* Names and paths of cgroups, and the files of /proc that tell them. */

static void check_lookup(const char *path, const char *name) {
        struct cgroup_table t;
        struct cgroup *cgroup;

        CHECK(cgroup_table_init(&t, 4, 1, 1) == 0);
        CHECK(cgroup_table_add(&t, 1, 1, 0, "/", NULL) == 0);
        CHECK(cgroup_table_add(&t, 1, 2, 1, path, &cgroup) == 0);
        check_displayable(cgroup->display);
        if (cgroup->name.unit)
                check_displayable(cgroup->name.unit);
        if (cgroup->name.container_id)
                check_displayable(cgroup->name.container_id);

        /* A cgroup is found by what is shown of it. */
        if (strcmp(path, "/") != 0)
                CHECK(cgroup_table_lookup(&t, cgroup->display, &cgroup) == 0 && cgroup->key == 2);
        (void) cgroup_table_lookup(&t, name, &cgroup);
        cgroup_table_done(&t);
}

static void check_anonymous(const char *path) {
        static const struct anonymizer anonymizer = { { 1, 2 } };
        char comm[ANONYMIZED_COMM_SIZE], *anonymous = anonymize_path(&anonymizer, path);
        size_t slashes[2] = {};

        CHECK(anonymous);
        for (const char *p = path; *p; p++)
                slashes[0] += *p == '/';
        for (const char *p = anonymous; *p; p++)
                slashes[1] += *p == '/';
        CHECK(slashes[0] == slashes[1]);
        free(anonymous);

        anonymize_comm(&anonymizer, path, comm);
        CHECK(memchr(comm, '\0', sizeof(comm)));
}

static void check_proc_cgroup(const uint8_t *data, size_t size) {
        static const char *const hierarchies[] = { NULL, "memory", "name=systemd", "cpu,cpuacct", "" };
        char *text = fuzz_copy(data, size);

        for (size_t i = 0; i < sizeof(hierarchies) / sizeof(hierarchies[0]); i++) {
                const char *path;
                size_t length;

                if (cgroup_proc_parse(text, size, hierarchies[i], &path, &length) == 0) {
                        CHECK(path >= text && path + length < text + size);
                        CHECK(length > 0 && path[0] == '/' && path[length] == '\n' && !memchr(path, '\n', length));
                }
        }
        free(text);
}

static void check_mounts(const uint8_t *data, size_t size, const char *text) {
        struct cgroup_mount *mounts;
        size_t n;

        if (size == 0)
                return;

        FILE *f = fmemopen((void *) data, size, "r");
        CHECK(f);
        if (cgroup_mounts_parse(f, text, &mounts, &n) == 0) {
                for (size_t i = 0; i < n; i++)
                        CHECK(mounts[i].point && (mounts[i].controllers || mounts[i].mode != CGROUP_V1));
                cgroup_mounts_free(mounts, n);
        }
        fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char *text = fuzz_string(data, size), *path = malloc(size + 2);

        char *shown = text_display((const char *) data, size);
        CHECK(shown);
        check_displayable(shown);
        free(shown);

        CHECK(path);
        path[0] = '/';
        strcpy(path + 1, text);
        check_lookup(path, text);
        check_anonymous(path);

        char *unescaped = text_unescape_unit(text);
        CHECK(unescaped && strlen(unescaped) <= strlen(text));
        free(unescaped);

        check_proc_cgroup(data, size);
        check_mounts(data, size, text);
        free(path);
        free(text);
        return 0;
}
