#include "offload/nvme_ranges.h"

#include <string.h>

#include "src/base/memory.h"

static uintptr_t begin_of(const struct zo_nvme_range *range)
{
    return (uintptr_t)range->memory;
}

static uintptr_t end_of(const struct zo_nvme_range *range)
{
    return begin_of(range) + range->bytes;
}

/* Takes the next one into `at` while they touch. */
static void merge(struct zo_nvme_ranges *ranges, size_t at)
{
    struct zo_nvme_range *range = &ranges->items[at];

    while (at + 1 < ranges->count && end_of(range) >= begin_of(range + 1)) {
        if (end_of(range + 1) > end_of(range)) {
            range->bytes = end_of(range + 1) - begin_of(range);
        }
        ranges->count--;
        memmove(range + 1, range + 2,
                (ranges->count - at - 1) * sizeof(range[0]));
    }
}

enum zo_status zo_nvme_ranges_add(struct zo_nvme_ranges *ranges, char *memory,
                                  size_t bytes)
{
    const struct zo_nvme_range range = {.memory = memory, .bytes = bytes};
    size_t at = 0;

    if (bytes == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grow(&ranges->items, ranges->count, &ranges->capacity,
                   sizeof(ranges->items[0]),
                   "the registered memory of the NVMe store"));
    while (at < ranges->count &&
           begin_of(&ranges->items[at]) < begin_of(&range)) {
        at++;
    }
    memmove(&ranges->items[at + 1], &ranges->items[at],
            (ranges->count - at) * sizeof(range));
    ranges->items[at] = range;
    ranges->count++;
    merge(ranges, at > 0 && end_of(&ranges->items[at - 1]) >= begin_of(&range)
                      ? at - 1
                      : at);
    return ZO_OK;
}

uint64_t zo_nvme_ranges_bytes(const struct zo_nvme_ranges *ranges)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < ranges->count; i++) {
        bytes += ranges->items[i].bytes;
    }
    return bytes;
}

size_t zo_nvme_ranges_pieces(const struct zo_nvme_ranges *ranges, size_t most)
{
    size_t pieces = 0;

    for (size_t i = 0; i < ranges->count; i++) {
        pieces += (ranges->items[i].bytes + most - 1) / most;
    }
    return pieces;
}

void zo_nvme_ranges_fini(struct zo_nvme_ranges *ranges)
{
    zo_free(ranges->items);
    memset(ranges, 0, sizeof(*ranges));
}
