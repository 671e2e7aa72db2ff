/*
 * How fast memory and the bus are, measured.
 *
 * Row 7.  Nothing is kept.  Threads: one at a time.
 */
#ifndef ZO_SRC_TRAIN_RATES_H
#define ZO_SRC_TRAIN_RATES_H

#include <stddef.h>

#include "src/base/pool.h"
#include "src/base/status.h"
#include "src/device/device.h"

ZO_C_BEGIN

/*
 * Copies size_bytes of host memory with all threads of the pool, again and
 * again, and gives the rate of the fastest: bytes read plus bytes written.
 * Small sizes stay in the caches.
 *
 *   ZO_E_NOMEM   no memory for twice the size
 */
enum zo_status zo_rate_memory(struct zo_pool *pool, size_t size_bytes,
                              double *bytes_per_second_out) ZO_MUST_CHECK;

struct zo_copy_rates { /* bytes a second, of all devices together */
    double to_devices, from_devices;
};

/*
 * Copies size_bytes between pinned memory and each of the devices at the same
 * time, in one direction, then in the other.
 *
 *   ZO_E_NOMEM, ZO_E_DEVMEM, ZO_E_DEVICE
 */
enum zo_status zo_rate_copies(const struct zo_device_ops *ops,
                              struct zo_device *const *devices, int count,
                              size_t size_bytes,
                              struct zo_copy_rates *rates_out) ZO_MUST_CHECK;

ZO_C_END

#endif
