#include "src/device/ranges.h"

#include <stdint.h>

#include "src/base/memory.h"

enum zo_status zo_ranges_add(struct zo_ranges *ranges, const void *memory,
                             size_t size_bytes)
{
    struct zo_range *range = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*range), "a range of memory", &range));
    *range = (struct zo_range){ranges->first, memory, size_bytes};
    ranges->first = range;
    return ZO_OK;
}

void zo_ranges_remove(struct zo_ranges *ranges, const void *memory)
{
    struct zo_range **link = &ranges->first, *range;

    while (*link != NULL && (*link)->memory != memory) {
        link = &(*link)->next;
    }
    range = *link;
    if (range != NULL) {
        *link = range->next;
        zo_free(range);
    }
}

bool zo_ranges_has(const struct zo_ranges *ranges, const void *at)
{
    const struct zo_range *range = ranges->first;

    while (range != NULL &&
           (uintptr_t)at - (uintptr_t)range->memory >= range->size_bytes) {
        range = range->next;
    }
    return range != NULL;
}
