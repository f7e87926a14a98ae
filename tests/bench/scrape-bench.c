/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <delayd/limits.h>

#include "cleanup.h"
#include "core/status.h"
#include "serve/json-build.h"
#include "serve/json-view.h"
#include "serve/metrics.h"

/* How long the body of a scrape and the rows of /api/v1/cgroups take, for 100 to 10,000 cgroups that all waited. */
#define N_BUCKETS 24
#define FIRST_OCTAVE (-16)
#define ROUNDS 15

static uint64_t now(void *userdata) {
        return 1000 * NSEC_PER_SEC;
}

static void fill_status(struct status_facts *ret, void *userdata) {
        *ret = (struct status_facts) { .threads = 1 };
}

static double elapsed_ms(const struct timespec *since) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double) (t.tv_sec - since->tv_sec) * 1e3 + (double) (t.tv_nsec - since->tv_nsec) / 1e6;
}

static int fill(struct accounting *a, unsigned n) {
        unsigned seed = 1;

        int r = cgroup_table_init(&a->cgroups, n + 1, n + 1, 300 * NSEC_PER_SEC);
        if (r >= 0)
                r = cgroup_table_add(&a->cgroups, 1, 1, 0, "/", NULL);

        for (unsigned i = 0; i < n && r >= 0; i++) {
                char path[128];
                struct cgroup *cgroup;

                snprintf(path, sizeof(path), "/system.slice/system-worker.slice/worker@%u.service", i);
                r = cgroup_table_add(&a->cgroups, 1, 2 + i, 1, path, &cgroup);

                for (unsigned w = 0; w < 40 && r >= 0; w++) {
                        const struct delay_batch batch = {
                                .waits = 1 + (unsigned) rand_r(&seed) % 3,
                                .total_nsec = UINT64_C(1) << ((unsigned) rand_r(&seed) % 34),
                        };

                        r = delay_stats_add(cgroup_stats(cgroup, w % 2 ? DELAY_BLKIO : DELAY_SWAPIN),
                                            900 * NSEC_PER_SEC + w * NSEC_PER_SEC, &batch);
                }
        }

        return r;
}

static int measure(unsigned n) {
        struct accounting a = { .config.kinds = DELAY_KINDS_DEFAULT };
        struct health health = {};
        double bounds[N_BUCKETS];
        unsigned indices[N_BUCKETS];
        struct view view = {
                .accounting = &a,
                .health = &health,
                .now_nsec = now,
                .fill_status = fill_status,
                .bucket_bounds_sec = bounds,
                .bucket_indices = indices,
                .n_buckets = N_BUCKETS,
        };
        double best[3] = { 1e9, 1e9, 1e9 };
        size_t size = 0;

        for (unsigned i = 0; i < N_BUCKETS; i++) {
                indices[i] = ((unsigned) (FIRST_OCTAVE - HISTOGRAM_FIRST_OCTAVE) + i) * HISTOGRAM_BUCKETS_PER_OCTAVE;
                bounds[i] = histogram_bucket_upper_sec(indices[i]);
        }

        int r = fill(&a, n);
        for (unsigned round = 0; round < ROUNDS && r >= 0; round++) {
                const struct query queries[] = { { .recursive = true }, { .limit = 20 } };
                _cleanup_free_ char *text = NULL;
                struct timespec start;
                double ms;

                clock_gettime(CLOCK_MONOTONIC, &start);
                r = metrics_render(&view, &text, &size);
                ms = elapsed_ms(&start);
                best[0] = ms < best[0] ? ms : best[0];

                for (unsigned q = 0; q < 2 && r >= 0; q++) {
                        _cleanup_json_ struct json_object *object = NULL;

                        clock_gettime(CLOCK_MONOTONIC, &start);
                        r = json_cgroups(&view, queries + q, &object);
                        if (r >= 0)
                                json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN);
                        ms = elapsed_ms(&start);
                        best[q + 1] = ms < best[q + 1] ? ms : best[q + 1];
                }
        }

        printf("%6u cgroups x 2 kinds: scrape %8.3f ms (%zu bytes), all rows recursive %8.3f ms, top 20 %8.3f ms\n",
               n, best[0], size, best[1], best[2]);
        cgroup_table_done(&a.cgroups);
        return r;
}

int main(void) {
        for (unsigned n = 100; n <= 10000; n *= 10)
                if (measure(n) < 0)
                        return EXIT_FAILURE;

        return EXIT_SUCCESS;
}
