/*
 * Which weights pass through a ring of buffers when.
 *
 * Row 5.  The order in which a list uses weights is known, so the buffer to
 * give up is the one whose weights are needed last of all (Belady 1966), and
 * what is still in the ring is not fetched twice: the unit that ends forward
 * begins backward.
 */
#ifndef ZO_OFFLOAD_STREAM_H
#define ZO_OFFLOAD_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_NO_SLOT (-1)

/* One use of a unit's weights. */
struct zo_use {
    int unit;
    bool streams;  /* through the ring; false: they are where they stay */
    int64_t elems; /* of the unit */
    /* Set by zo_stream_plan(). */
    int slot;      /* ZO_NO_SLOT unless it streams */
    bool fetches;  /* they must be copied to the slot first */
    int64_t after; /* which is free behind this use; -1: from the beginning */
};

/*
 * Plans a ring of `depth` >= 1 slots, empty at the beginning.  Weights whose
 * uses lie more than reuse_max_elems apart, counting what is used between
 * them, are fetched again; 0: only when the ring has no place.
 */
void zo_stream_plan(struct zo_use *uses, size_t count, int depth,
                    int64_t reuse_max_elems);

ZO_C_END

#endif
