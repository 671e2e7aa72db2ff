/*
 * Measuring the rates of a machine profile.  Row 7.
 */
#ifndef ZO_SRC_TRAIN_PROFILE_MEASURE_H
#define ZO_SRC_TRAIN_PROFILE_MEASURE_H

#include "offload/profile.h"
#include "src/train/devices.h"

ZO_C_BEGIN

/*
 * Where copies are paced, all of it is measured so, and the profile says it.
 *
 * Everything but products and NVMe, in about three seconds: pinned copies in
 * either direction and both; AdamW on the host (bf16 pair, 26 bytes an
 * element) with these instructions, as a run does it: on as many threads as it
 * has workers, on one, and beside the copies of every device; copies inside the
 * first device's memory; the time of a launch, and of handing over.  Between
 * devices: a copy from the first to the second.
 *
 * On the host backend device memory is DRAM: its rate is that of a copy with
 * all threads, and nothing is measured beside anything else.
 *
 * Takes up to bytes_max of host memory, in part page-locked, and 128 MiB of
 * each device's, and gives them back.
 *
 *   ZO_E_NOMEM, ZO_E_DEVMEM, ZO_E_DEVICE
 */
enum zo_status zo_profile_measure(const struct zo_devices *devices,
                                  enum zo_simd simd, uint64_t bytes_max,
                                  struct zo_profile *profile_out) ZO_MUST_CHECK;

ZO_C_END

#endif
