/*
 * Reads a tokenizer.model file and checks that it is one, before SentencePiece
 * sees it: what it says about a bad file helps no one.
 *
 * Layer 6.
 */
#ifndef ZO_SRC_DATA_TOKENIZER_FILE_H
#define ZO_SRC_DATA_TOKENIZER_FILE_H

#include <stddef.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_TOKENIZER_FILE_BYTES_MAX (64 * 1024 * 1024)
#define ZO_TOKENIZER_PIECES_MAX     (1 << 20)

/*
 * The bytes of the file, owned, ended with zo_free().
 *
 *   ZO_E_USAGE     cannot be opened, or is no regular file
 *   ZO_E_CORRUPT   as zo_tokenizer_check()
 *   ZO_E_IO        reading failed; native is errno
 *   ZO_E_NOMEM     no memory
 */
enum zo_status zo_tokenizer_read(const char *path, unsigned char **bytes_out,
                                 size_t *size_bytes_out) ZO_MUST_CHECK;

/*
 * Fails unless the bytes are a whole SentencePiece model as far as its
 * protocol buffer tells: every field within its message, pieces, a training
 * and a normaliser part.
 *
 *   ZO_E_CORRUPT   empty, too large, a Git LFS pointer, a web page, cut off,
 *                  or something else
 */
enum zo_status zo_tokenizer_check(const char *path, const unsigned char *bytes,
                                  size_t size_bytes) ZO_MUST_CHECK;

ZO_C_END

#endif
