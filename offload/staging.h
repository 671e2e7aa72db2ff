/*
 * Staging: page-locked pieces of memory on their way to buffers.
 *
 * Row 5.  For loading: copies out of page-locked memory run at the speed of
 * the bus and beside the threads that fill the next pieces.
 *
 * Life cycle: open; then any number of take, fill, upload and give; sync;
 * close.  Between open and sync nothing else may use the executor.
 *
 * Threads: take, upload and give may be called by several at once, each with
 * a piece of its own.
 */
#ifndef ZO_OFFLOAD_STAGING_H
#define ZO_OFFLOAD_STAGING_H

#include "offload/executor.h"

ZO_C_BEGIN

struct zo_staging;

/*
 * `piece_count` (at least 1) pieces of piece_bytes each.  Where the system
 * refuses to lock them they are ordinary memory: slower, no failure.
 *
 *   ZO_E_NOMEM   no memory for them
 */
enum zo_status zo_staging_open(struct zo_executor *executor, size_t piece_bytes,
                               int piece_count,
                               struct zo_staging **staging_out) ZO_MUST_CHECK;

/*
 * Waits for a piece that nobody has and that no copy reads any more.  The
 * caller has it until zo_staging_give().  *memory_out is aligned as memory of
 * the device is.
 */
enum zo_status zo_staging_take(struct zo_staging *staging, int *piece_out,
                               void **memory_out) ZO_MUST_CHECK;

/*
 * Queues a copy out of the caller's piece; into memory of the host it is done
 * on return.  NVMe has a copy of its own on return, and what its disk refuses
 * may be told by a later call.
 */
enum zo_status zo_staging_upload(struct zo_staging *staging,
                                 zo_buffer_id target, uint64_t offset,
                                 const void *source,
                                 size_t size_bytes) ZO_MUST_CHECK;

/* Gives a piece back; its copies may still be under way.  Also on failure. */
enum zo_status zo_staging_give(struct zo_staging *staging,
                               int piece) ZO_MUST_CHECK;

/* Waits for every copy.  All pieces have been given back. */
enum zo_status zo_staging_sync(struct zo_staging *staging) ZO_MUST_CHECK;

/* Waits likewise, and frees.  NULL is allowed. */
void zo_staging_close(struct zo_staging *staging);

ZO_C_END

#endif
