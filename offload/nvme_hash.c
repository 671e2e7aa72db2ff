/* The only file that knows xxHash. */
#include <xxhash.h>

#include "offload/nvme_internal.h"

uint64_t zo_nvme_hash(const void *memory, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(memory, bytes, seed);
}
