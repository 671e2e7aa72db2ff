/*
 * What the operating system grants this process, as /proc and /sys say.
 *
 * Layer 0.  No state, safe in any thread, allocates nothing.
 */
#ifndef ZO_SRC_BASE_SYSTEM_H
#define ZO_SRC_BASE_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

#define ZO_SYSTEM_NO_LIMIT UINT64_MAX

/* Transparent huge pages: for nobody, for who asks, for everybody. */
enum zo_huge_pages {
    ZO_HUGE_PAGES_UNKNOWN,
    ZO_HUGE_PAGES_NEVER,
    ZO_HUGE_PAGES_MADVISE,
    ZO_HUGE_PAGES_ALWAYS
};

struct zo_system {
    uint64_t memory_bytes;      /* of the machine; 0: unknown */
    uint64_t available_bytes;   /* MemAvailable; 0: unknown */
    uint64_t group_limit_bytes; /* the smallest; or ZO_SYSTEM_NO_LIMIT */
    uint64_t group_used_bytes;  /* of the group with that limit */
    /* What the groups leave, pages of files that can be dropped counted as
     * free; or ZO_SYSTEM_NO_LIMIT. */
    uint64_t group_free_bytes;
    uint64_t lock_limit_bytes; /* RLIMIT_MEMLOCK, or ZO_SYSTEM_NO_LIMIT */
    bool is_lock_privileged;   /* CAP_IPC_LOCK: the limit does not bind */
    enum zo_huge_pages huge_pages;
    int quota_cores; /* of the control groups; 0: no quota */
    int numa_nodes;  /* at least 1 */

    /* NVIDIA's display and compute devices on the PCI bus, and their kernel
     * driver ("580.95.05"; "" without one), whatever this build can use. */
    int gpus_on_bus;
    char gpu_driver[32];
};

/*
 * Reads root/proc and root/sys; root is "" but for tests.  What cannot be
 * read is no failure: it is unknown, or no limit.
 */
void zo_system_read(const char *root, struct zo_system *system_out);

/*
 * Host memory that this process may still take: the smaller of what its
 * control groups and the machine leave; ZO_SYSTEM_NO_LIMIT: unknown.
 */
uint64_t zo_system_room(const struct zo_system *system);

/* "unknown", "never", "madvise", "always". */
const char *zo_huge_pages_name(enum zo_huge_pages huge_pages);

ZO_C_END

#endif
