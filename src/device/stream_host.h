/*
 * The window through which kernels/host and src/comm queue work of their own
 * on a stream of the host device.  Layer 2.
 */
#ifndef ZO_SRC_DEVICE_STREAM_HOST_H
#define ZO_SRC_DEVICE_STREAM_HOST_H

#include "src/device/device.h"

ZO_C_BEGIN

#define ZO_HOST_ARGS_MAX 256 /* bytes of arguments that a command carries */

/* Runs in the stream's thread.  A failure stops the stream. */
typedef enum zo_status (*zo_host_fn)(struct zo_pool *pool, const void *args);

/*
 * Queues fn with a copy of args (args_bytes <= ZO_HOST_ARGS_MAX).  Blocks
 * while the stream's queue is full; allocates nothing.
 */
enum zo_status zo_stream_host_submit(struct zo_stream *stream, zo_host_fn fn,
                                     const void *args,
                                     size_t args_bytes) ZO_MUST_CHECK;

ZO_C_END

#endif
