/*
 * A fast hash of bytes, to find damage: XXH3 of 64 bits, no defence against
 * whoever means harm.
 *
 * Layer 0.
 */
#ifndef ZO_SRC_BASE_HASH_H
#define ZO_SRC_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/* Same on every machine; written into files. */
uint64_t zo_hash64(const void *data, size_t size_bytes);

ZO_C_END

#endif
