/*
 * What a folder's disk does: whether past the page cache, and how fast.
 *
 * Layer 0.  No state, safe in any thread.
 */
#ifndef ZO_SRC_BASE_DISK_PROBE_H
#define ZO_SRC_BASE_DISK_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/pool.h"
#include "src/base/status.h"

ZO_C_BEGIN

struct zo_disk_rates {
    bool is_direct;      /* O_DIRECT works; else the page cache takes part */
    uint64_t free_bytes; /* for an ordinary user, before the file */
    double write_bytes_per_second; /* until the disk has it */
    double read_bytes_per_second;
};

/*
 * Writes a file of size_bytes (a multiple of 4 MiB) in a folder, with all
 * threads of the pool, then reads it.  The file has no name from the start:
 * whatever happens, nothing is left behind.
 *
 *   ZO_E_USAGE   no file can be made in the folder; native is errno
 *   ZO_E_IO      there is no room, or a read or write failed
 *   ZO_E_NOMEM   no memory for the data
 */
enum zo_status zo_disk_probe_run(const char *folder, struct zo_pool *pool,
                                 size_t size_bytes,
                                 struct zo_disk_rates *rates_out) ZO_MUST_CHECK;

ZO_C_END

#endif
