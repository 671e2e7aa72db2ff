/*
 * The SHA-256 of a file, and what is known to compare it with.
 *
 * Layer 6.
 */
#ifndef ZO_SRC_CHECKPOINT_FILE_HASH_H
#define ZO_SRC_CHECKPOINT_FILE_HASH_H

#include <stdbool.h>

#include "src/base/sha256.h"
#include "src/base/status.h"

ZO_C_BEGIN

/*
 * Reads a whole file.
 *
 *   ZO_E_USAGE, ZO_E_IO   as zo_disk_open(), zo_disk_read()
 */
enum zo_status zo_file_hash(const char *path,
                            char text[ZO_SHA256_TEXT_BYTES]) ZO_MUST_CHECK;

/*
 * In Hugging Face's cache a large file is a link to one that is named by its
 * hash: then *expected_out is true, and text is that.
 */
void zo_file_hash_expected(const char *path, char text[ZO_SHA256_TEXT_BYTES],
                           bool *expected_out);

ZO_C_END

#endif
