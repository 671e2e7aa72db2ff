/*
 * Host allocations of the program's own records.
 *
 * Layer 0.  Every allocation of the program goes through here, so that a test
 * can make the nth one fail, and so that one made in the steady state of
 * training is seen: after zo_memory_freeze(true) an allocation is a bug.
 */
#ifndef ZO_SRC_BASE_MEMORY_H
#define ZO_SRC_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

/*
 * count * size_bytes zeroed bytes; at least one, so never NULL on success.
 * The caller owns *memory_out and ends it with zo_free().  `what` is for the
 * message: "the shard index".
 *
 *   ZO_E_NOMEM   the product overflows or there is no memory
 */
enum zo_status zo_alloc(size_t count, size_t size_bytes, const char *what,
                        void *memory_out) ZO_MUST_CHECK;

/*
 * Grows *memory_inout (may point to NULL) to count * size_bytes; new bytes
 * are not cleared.  On failure *memory_inout is untouched and still owned.
 */
enum zo_status zo_realloc(void *memory_inout, size_t count, size_t size_bytes,
                          const char *what) ZO_MUST_CHECK;

/*
 * Makes room for one more element in a growing array: doubles *capacity_inout
 * when count has reached it.
 */
enum zo_status zo_grow(void *memory_inout, size_t count, size_t *capacity_inout,
                       size_t size_bytes, const char *what) ZO_MUST_CHECK;

/* A terminated copy of size_bytes bytes; owned, ended with zo_free(). */
enum zo_status zo_strndup(const char *text, size_t size_bytes,
                          char **copy_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_free(void *memory);

/*
 * Large aligned host memory (streams, arenas): page aligned, not cleared and
 * not touched.  Counted and failed like the others; end with zo_pages_free().
 */
enum zo_status zo_pages_alloc(size_t size_bytes, const char *what,
                              void *memory_out) ZO_MUST_CHECK;
void zo_pages_free(void *memory, size_t size_bytes);

/*
 * The same on huge pages where the system grants them, spread over the NUMA
 * nodes where there are several: begins where a huge page can begin.  Ended
 * with zo_pages_free() of the same size.
 */
enum zo_status zo_huge_alloc(size_t size_bytes, const char *what,
                             void *memory_out) ZO_MUST_CHECK;

/* After freeze, an allocation anywhere in the program is a ZO_ASSERT. */
void zo_memory_freeze(bool is_frozen);

/* Allocations so far. */
uint64_t zo_memory_count(void);

/* For tests: lets the nth allocation from now on fail (0: none does). */
void zo_memory_fail_at(uint64_t nth);

ZO_C_END

#endif
