/*
 * CRC-32 as zip archives have it (polynomial 0xedb88320).  Layer 0.
 */
#ifndef ZO_SRC_BASE_CRC32_H
#define ZO_SRC_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/* Of more bytes behind those whose CRC is `crc`; of nothing it is 0. */
uint32_t zo_crc32(uint32_t crc, const void *data, size_t size_bytes);

ZO_C_END

#endif
