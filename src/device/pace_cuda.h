/*
 * Pacing copies of a cuda stream: what lies between a begin and an end
 * occupies the stream for at least a given time, so that a fast bus can stand
 * in for a slower one.
 *
 * Layer 2, private to src/device.  The device waits, not a thread of the
 * host.  A begin and an end each cost a launch: some microseconds.
 */
#ifndef ZO_SRC_DEVICE_PACE_CUDA_H
#define ZO_SRC_DEVICE_PACE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct CUstream_st;

/* Of one stream.  All zero is closed. */
struct zo_pace {
    struct CUstream_st *stream; /* borrowed until close */
    uint64_t *began_ns;         /* owned: device memory */
    int priority;               /* of its kernels: before all others */
};

/*
 * The stream's device is the current one.  Loads the kernels, so that a later
 * call allocates nothing; waits for the stream.
 *
 *   ZO_E_DEVMEM, ZO_E_DEVICE
 */
enum zo_status zo_pace_open(struct CUstream_st *stream,
                            struct zo_pace *pace_out) ZO_MUST_CHECK;
void zo_pace_close(struct zo_pace *pace); /* the stream has passed its work */

/* Whether a copy crosses the bus: one end is memory of a device. */
bool zo_pace_crosses(const void *target, const void *source);

/* Queue on the stream, whose device is the current one.  ZO_E_DEVICE. */
enum zo_status zo_pace_begin(const struct zo_pace *pace) ZO_MUST_CHECK;
enum zo_status zo_pace_end(const struct zo_pace *pace,
                           uint64_t least_ns) ZO_MUST_CHECK;

ZO_C_END

#endif
