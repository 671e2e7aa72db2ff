/*
 * A pool of threads that splits one loop.
 *
 * Layer 0.  Any number of threads may call zo_pool_run() at the same time
 * (each stream of a host device does); a call's own thread takes part, so a
 * pool of 0 workers runs everything in the caller.  Nothing is allocated
 * after open.  Which thread runs which index is not fixed, so the work of an
 * index must not depend on it: that is how results stay the same bits for
 * any number of threads.
 */
#ifndef ZO_SRC_BASE_POOL_H
#define ZO_SRC_BASE_POOL_H

#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_pool;

/* Does index `index` of the loop; may not call zo_pool_run() itself. */
typedef void (*zo_pool_fn)(void *work, int64_t index);

/*
 * Starts `workers` threads (0..1023).  The caller owns *pool_out and ends it
 * with zo_pool_close().
 *
 *   ZO_E_ARG     workers out of range
 *   ZO_E_NOMEM   no memory, or the system refuses a thread
 */
enum zo_status zo_pool_open(int workers,
                            struct zo_pool **pool_out) ZO_MUST_CHECK;

/* Threads that can work at once: workers + 1. */
int zo_pool_width(const struct zo_pool *pool);

/* Runs fn(work, 0 .. count - 1), in any order; returns when all are done. */
void zo_pool_run(struct zo_pool *pool, zo_pool_fn fn, void *work,
                 int64_t count);

/* NULL is allowed.  No zo_pool_run() may be under way. */
void zo_pool_close(struct zo_pool *pool);

/*
 * Cores this process may use: the smaller of its affinity mask and its
 * cgroup's quota (rounded up); at least 1.
 */
int zo_cpu_count(void);

ZO_C_END

#endif
