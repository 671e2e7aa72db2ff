/*
 * Time: a monotonic clock for durations, the wall clock for the record.
 *
 * Layer 0.  No state, safe in any thread, never allocates.
 */
#ifndef ZO_SRC_BASE_CLOCK_H
#define ZO_SRC_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/* Nanoseconds since an arbitrary point; never goes backwards. */
int64_t zo_clock_ns(void);

/* Seconds from one zo_clock_ns() to a later one. */
static inline double zo_clock_seconds(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-9;
}

/* Milliseconds since 1970-01-01T00:00:00Z by the machine's wall clock. */
int64_t zo_clock_wall_ms(void);

#define ZO_CLOCK_ISO_BYTES 32

/*
 * "2026-10-03T14:05:59.042Z" of a wall clock time, in UTC, into target
 * (ZO_CLOCK_ISO_BYTES); returns target.  Years 0 to 9999.
 */
const char *zo_clock_iso(char *target, int64_t wall_ms);

#define ZO_CLOCK_SPAN_BYTES 32

/*
 * A duration for people into target (ZO_CLOCK_SPAN_BYTES): "0:42",
 * "1:05:07", "2d 03:10:00"; "?" when it is negative or not finite.  Returns
 * target.
 */
const char *zo_clock_span(char *target, double seconds);

ZO_C_END

#endif
