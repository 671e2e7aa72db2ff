/*
 * Gaps: where an arena has room over a span of time.
 *
 * Row 5; for the layout.  A tree over moments, each node half of its parent's:
 * a span of time is a few nodes, so a range of bytes that is taken is kept
 * with those few and with the nodes above them, and a search looks at as many
 * nodes, whatever else lives at other times.  A node's ranges are united,
 * since whose they are does not matter: bytes that are packed tightly are few
 * ranges, however many buffers they hold.
 *
 * Life cycle: open, then for one arena after the other clear, find and take;
 * close.  One thread.
 */
#ifndef ZO_OFFLOAD_GAPS_H
#define ZO_OFFLOAD_GAPS_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_gaps; /* opaque */

/* Moments first..last, both of them included. */
struct zo_gaps_span {
    uint32_t first, last;
};

/*
 * Up to moments_max moments, from 0.
 *
 *   ZO_E_NOMEM   no memory for the tree
 */
enum zo_status zo_gaps_open(size_t moments_max,
                            struct zo_gaps **gaps_out) ZO_MUST_CHECK;
void zo_gaps_close(struct zo_gaps *gaps); /* NULL is allowed */

/* Nothing is taken any more; `moments` of moments_max will be used. */
void zo_gaps_clear(struct zo_gaps *gaps, size_t moments);

/*
 * The lowest `at` from `base` such that [at, at + bytes) is free throughout
 * the span.  Sums stay below 2^64 when all ends, base and bytes are at most
 * 2^63.
 */
uint64_t zo_gaps_find(struct zo_gaps *gaps, struct zo_gaps_span span,
                      uint64_t base, uint64_t bytes);

/*
 * Takes [at, at + bytes) throughout the span; may be taken already.
 *
 *   ZO_E_NOMEM   no memory for it; close is all that may follow
 */
enum zo_status zo_gaps_take(struct zo_gaps *gaps, struct zo_gaps_span span,
                            uint64_t at, uint64_t bytes) ZO_MUST_CHECK;

ZO_C_END

#endif
