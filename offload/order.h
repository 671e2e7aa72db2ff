/*
 * Order, derived from accesses.
 *
 * Row 5.  An operation waits for every earlier one, of its list or of lists
 * started before it, that touches one of its bytes, unless both only read.
 * Kept per byte as the last writer and the readers since: bytes are first cut
 * into atoms, the ranges between any two borders of any access of the
 * program, so that an access is a run of atoms.
 *
 * One thread.  Nothing is allocated after open.
 */
#ifndef ZO_OFFLOAD_ORDER_H
#define ZO_OFFLOAD_ORDER_H

#include "offload/schedule.h"

ZO_C_BEGIN

/*
 * Lanes: a stream engine's operations on one device run in list order, so of
 * several predecessors in a lane the last stands for all.  CPU and NVMe
 * operations are in no lane.
 */
#define ZO_NO_LANE UINT32_MAX
uint32_t zo_lane_of(const struct zo_program *program, const struct zo_op *op);
uint32_t zo_lane_count(const struct zo_program *program);

/* The bytes of an access in its arena, with the slot applied. */
struct zo_range {
    enum zo_tier tier;
    int device;
    uint64_t begin, end;
    enum zo_access_mode mode;
};
struct zo_range zo_access_range(const struct zo_program *program,
                                const struct zo_access *access, int slot);

struct zo_order;

/*
 * For a program that is laid out; borrowed until close.  Each schedule has at
 * most lists_max lists with operations that are not retired.
 */
enum zo_status zo_order_open(const struct zo_program *program, size_t lists_max,
                             struct zo_order **order_out) ZO_MUST_CHECK;
void zo_order_close(struct zo_order *order); /* NULL is allowed */

/* The run of one operation.  Instances are numbered from 1, ascending. */
struct zo_order_step {
    int schedule;
    size_t op;
    int slot;
    uint64_t instance;
    uint64_t retired_below; /* instances below it are done: no predecessors */
};

/*
 * Writes the instances that this one must wait for, at most one a lane and
 * each other once, and takes note of its accesses.  Returns their number; one
 * above max means that not all fitted: wait for everything before it.
 */
size_t zo_order_next(struct zo_order *order, const struct zo_order_step *step,
                     uint64_t *preds_out, size_t max);

/* ---- whole sequences, for the checker, the simulator and tests ---------- */

/* Lists as they would be started, one after another. */
struct zo_sequence_item {
    int schedule, slot;
};

/* Predecessors of instance i (from 0): preds[first[i] .. first[i + 1] - 1]. */
struct zo_edges {
    size_t count;  /* instances */
    size_t *first; /* owned, count + 1 */
    size_t *preds; /* owned */
    size_t preds_capacity;
};

enum zo_status zo_edges_derive(const struct zo_program *program,
                               const struct zo_sequence_item *items,
                               size_t item_count,
                               struct zo_edges *edges_out) ZO_MUST_CHECK;
void zo_edges_fini(struct zo_edges *edges); /* NULL is allowed */

/*
 * Proves, pair by pair and without the deriver, that any two operations that
 * touch a common byte, and do not both read it, are ordered by edges and
 * lanes.
 *
 *   ZO_E_ARG     two are not; the text names both and the bytes
 *   ZO_E_NOMEM   no memory for the closure
 */
enum zo_status zo_edges_check(const struct zo_program *program,
                              const struct zo_sequence_item *items,
                              size_t item_count,
                              const struct zo_edges *edges) ZO_MUST_CHECK;

ZO_C_END

#endif
