/*
 * The layout: where every buffer of a program lies.
 *
 * Row 5.  One arena a (tier, device).  Persistent buffers lie one after
 * another; behind them every schedule lays its transient buffers, so that two
 * share bytes exactly when no operation lies in the lifetimes of both.  The
 * lifetime of a buffer runs from the first operation of the list that touches
 * it to the last: since the order of execution is derived from bytes, reuse
 * is safe whatever overlaps.
 */
#ifndef ZO_OFFLOAD_LAYOUT_H
#define ZO_OFFLOAD_LAYOUT_H

#include "offload/schedule.h"

ZO_C_BEGIN

/*
 * Sets offsets, lifetimes and arena sizes; the program is read only from
 * here.  Placement is largest first, each at the lowest offset that is free
 * for all of its lifetime; deterministic.
 *
 *   ZO_E_NOMEM   no memory for the work lists
 *   ZO_E_FIT     an arena would pass 2^62 bytes
 */
enum zo_status zo_layout(struct zo_program *program) ZO_MUST_CHECK;

/* Bytes that a buffer takes of its arena: aligned, both slots. */
uint64_t zo_layout_stored_bytes(const struct zo_buffer *buffer);

/* Bytes of an arena that its persistent buffers take. */
uint64_t zo_layout_persistent_bytes(const struct zo_program *program,
                                    enum zo_tier tier, int device);

ZO_C_END

#endif
