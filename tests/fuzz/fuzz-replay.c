/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuzz.h"
#include "record/recording.h"
#include "replay-input.h"

/* The events of a recording, in a block whose checksum is right. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct recording_block block = {};
        uint8_t *packed, *file;
        size_t packed_size;

        if (size > RECORDING_BLOCK_MAX)
                return 0;

        CHECK(recording_pack(&block, data, size, &packed, &packed_size) == 0);
        file = malloc(RECORDING_FILE_HEADER_SIZE + packed_size);
        CHECK(file);
        recording_file_header(file);
        memcpy(file + RECORDING_FILE_HEADER_SIZE, packed, packed_size);
        free(packed);

        replay_input(file, RECORDING_FILE_HEADER_SIZE + packed_size);
        free(file);
        return 0;
}
