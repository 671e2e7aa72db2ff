/*
 * Where states should live: the fastest placement that fits the budgets.
 *
 * Row 5.  Tries placements: which units are resident, and whether the weights
 * of others stay on the devices; what of the inside of units is kept; how many
 * micro batches make a pass; how deep rings are; whether boundary activations
 * wait on the host; what its memory is spent on; and, where it is short, what
 * is on NVMe: as little as will do, optimizers before weights, units that
 * forward needs last first.  Each candidate is built, so that its bytes are
 * those of the run, and simulated if it may be the fastest, so that its time is
 * that of the schedule; nothing is measured or allocated.
 *
 * A larger budget allows all that a smaller one does.  Within 1 % of the time
 * the choice is what takes less of the host; within 10 %, what leaves NVMe
 * alone.
 */
#ifndef ZO_OFFLOAD_PLACEMENT_H
#define ZO_OFFLOAD_PLACEMENT_H

#include "offload/builder.h"
#include "offload/profile.h"

ZO_C_BEGIN

struct zo_place_options {
    /* All but its placement; borrowed. */
    const struct zo_build_options *build;
    /* The slowest tier that states may use: GPU, CPU or NVMe. */
    enum zo_tier weights_limit, optimizer_limit;
    /* They use faster ones as far as the budgets allow; false: as literally
     * asked, all on the slowest. */
    bool fills;
    /* DeepSpeed's ratio: the largest share of the optimizer's elements that
     * leaves the device, 0..1; units that forward needs first stay. */
    double optimizer_share;
    /* Of the inside of units: from keep_most (ZO_KEEP_ALL) to keep_least. */
    enum zo_keep keep_most, keep_least;
    bool host_boundaries_always; /* cpu_checkpointing */
    int weight_ring_max;         /* 2..ZO_RING_MAX */
    bool waits_to_fetch;
    int64_t reuse_max_elems;
    bool pageable_weights, pageable_optimizer;
    /* Budgets of the arenas, in bytes; 0: without limit.  With
     * device_is_host the device's arena counts as host memory too. */
    uint64_t gpu_bytes, host_bytes, nvme_bytes;
    bool device_is_host;
    const struct zo_profile *profile; /* borrowed */
    int cpu_workers;
};

struct zo_place {
    struct zo_placement placement;
    struct zo_unit_homes *homes; /* owned; what placement.homes points to */
    int resident_units, tried;   /* candidates that were built */
    double step_seconds;         /* simulated; 0: the profile lacks rates */
    /* Arenas of the literal need (nothing filled up) and of this placement. */
    uint64_t literal_gpu_bytes, gpu_bytes, host_bytes, nvme_bytes;
};

/*
 * Chooses.  With ZO_E_FIT *place_out is set all the same, to the placement that
 * needs least of what is short, so that its plan can be printed.
 *
 *   ZO_E_FIT     no placement fits the budgets
 *   ZO_E_NOMEM   no memory to try one
 */
enum zo_status zo_place_choose(const struct zo_place_options *options,
                               struct zo_place *place_out) ZO_MUST_CHECK;

/*
 * Whether some placement fits, without a choice: what takes least; where a
 * unit may leave the device, with all micro batches in one pass.  ZO_E_NOMEM.
 */
enum zo_status zo_place_fits(const struct zo_place_options *options,
                             bool *fits_out) ZO_MUST_CHECK;
void zo_place_fini(struct zo_place *place); /* NULL is allowed */

ZO_C_END

#endif
