/*
 * Which memory is a device's: a list of ranges.  Layer 2, private to
 * src/device; the caller guards it with a lock.
 */
#ifndef ZO_SRC_DEVICE_RANGES_H
#define ZO_SRC_DEVICE_RANGES_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_range {
    struct zo_range *next;
    const void *memory; /* borrowed until it is removed */
    size_t size_bytes;
};

/* All zero is empty. */
struct zo_ranges {
    struct zo_range *first; /* owned */
};

/* ZO_E_NOMEM. */
enum zo_status zo_ranges_add(struct zo_ranges *ranges, const void *memory,
                             size_t size_bytes) ZO_MUST_CHECK;
/* The range that begins there; none is allowed. */
void zo_ranges_remove(struct zo_ranges *ranges, const void *memory);
bool zo_ranges_has(const struct zo_ranges *ranges, const void *at);

ZO_C_END

#endif
