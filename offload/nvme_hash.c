/* The only file that knows xxHash. */
#include <xxhash.h>

#include "offload/nvme_internal.h"

uint64_t zo_nvme_hash(const void *memory, size_t bytes)
{
    return XXH3_64bits(memory, bytes);
}
