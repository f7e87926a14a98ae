/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <err.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "fuzz.h"

/* In the place of libFuzzer: gives each file of the directories and files named to the target, once. */

static unsigned long n_inputs;

static void run_file(const char *path) {
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        struct stat st;

        if (!f || fstat(fileno(f), &st) < 0)
                err(EXIT_FAILURE, "%s", path);

        _cleanup_free_ uint8_t *data = malloc((size_t) st.st_size + 1);
        if (!data || fread(data, 1, (size_t) st.st_size, f) != (size_t) st.st_size)
                errx(EXIT_FAILURE, "%s: cannot be read", path);

        LLVMFuzzerTestOneInput(data, (size_t) st.st_size);
        n_inputs++;

        /* Cut short and with a byte changed in many places: a little of what the fuzzer does. */
        for (size_t i = 0; i < 64 && st.st_size > 0; i++) {
                size_t at = (size_t) st.st_size * i / 64;
                uint8_t before = data[at];

                LLVMFuzzerTestOneInput(data, at);
                data[at] ^= (uint8_t) (1U << i % 8);
                LLVMFuzzerTestOneInput(data, (size_t) st.st_size);
                data[at] = before;
        }
}

static void run_path(const char *path) {
        struct dirent **entries;
        struct stat st;

        if (stat(path, &st) < 0)
                err(EXIT_FAILURE, "%s", path);
        if (!S_ISDIR(st.st_mode)) {
                run_file(path);
                return;
        }

        int n = scandir(path, &entries, NULL, alphasort);
        if (n < 0)
                err(EXIT_FAILURE, "%s", path);
        for (int i = 0; i < n; i++) {
                if (entries[i]->d_name[0] != '.') {
                        _cleanup_free_ char *file = NULL;

                        if (asprintf(&file, "%s/%s", path, entries[i]->d_name) < 0)
                                err(EXIT_FAILURE, "%s", path);
                        run_file(file);
                }
                free(entries[i]);
        }
        free(entries);
}

int main(int argc, char *argv[]) {
        for (int i = 1; i < argc; i++)
                run_path(argv[i]);

        if (n_inputs == 0)
                errx(EXIT_FAILURE, "No input was found.");
        printf("%lu inputs\n", n_inputs);
        return EXIT_SUCCESS;
}
