/*
 * SHA-256 (FIPS 180-4), the hash that model hubs publish for their files.
 *
 * Layer 0.  Life cycle: init, add as often as wanted, end.
 */
#ifndef ZO_SRC_BASE_SHA256_H
#define ZO_SRC_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

#define ZO_SHA256_BLOCK_BYTES 64
#define ZO_SHA256_TEXT_BYTES  65 /* 64 digits and the end */

struct zo_sha256 {
    uint32_t words[8];
    uint64_t size_bytes; /* added so far */
    uint8_t block[ZO_SHA256_BLOCK_BYTES];
};

void zo_sha256_init(struct zo_sha256 *hash);
void zo_sha256_add(struct zo_sha256 *hash, const void *data, size_t size_bytes);

/* In hexadecimal; the hash is of no use any more. */
void zo_sha256_end(struct zo_sha256 *hash, char text[ZO_SHA256_TEXT_BYTES]);

ZO_C_END

#endif
