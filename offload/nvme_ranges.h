/*
 * The union of pieces of memory, for registering them with the kernel.
 *
 * Row 5, private to offload/nvme*.c.
 */
#ifndef ZO_OFFLOAD_NVME_RANGES_H
#define ZO_OFFLOAD_NVME_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_nvme_range {
    char *memory; /* borrowed */
    size_t bytes;
};

/* All zero is empty. */
struct zo_nvme_ranges {
    struct zo_nvme_range *items; /* owned; by address, none touches the next */
    size_t count, capacity;
};

/* Adds memory, which may overlap what is there.  ZO_E_NOMEM. */
enum zo_status zo_nvme_ranges_add(struct zo_nvme_ranges *ranges, char *memory,
                                  size_t bytes) ZO_MUST_CHECK;

/* All bytes, and how many pieces of at most `most` bytes they make. */
uint64_t zo_nvme_ranges_bytes(const struct zo_nvme_ranges *ranges);
size_t zo_nvme_ranges_pieces(const struct zo_nvme_ranges *ranges, size_t most);

void zo_nvme_ranges_fini(struct zo_nvme_ranges *ranges);

ZO_C_END

#endif
