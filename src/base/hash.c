#include "src/base/hash.h"

#include <xxhash.h>

uint64_t zo_hash64(const void *data, size_t size_bytes)
{
    return XXH3_64bits(data, size_bytes);
}
