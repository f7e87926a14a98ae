/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/query.h"
#include "fuzz.h"
#include "replay-input.h"

/* A whole file, as --replay opens it: a recording, a capture, or neither. Checksums stop most changes: see fuzz-replay. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        void *file = fuzz_copy(data, size);

        replay_input(file, size);
        free(file);
        return 0;
}
