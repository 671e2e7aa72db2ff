/*
 * Which home each state of each unit has, by a few numbers: what the search of
 * placement.h chooses among.
 *
 * Row 5, private to offload.  Pure: nothing is allocated or kept.
 */
#ifndef ZO_OFFLOAD_PLACEMENT_HOMES_H
#define ZO_OFFLOAD_PLACEMENT_HOMES_H

#include <limits.h>

#include "offload/placement.h"

ZO_C_BEGIN

struct zo_home_choice {
    int resident;       /* units, in the order of zo_homes_unit_at() */
    int spilled;        /* states of the others that are on NVMe */
    bool keeps_weights; /* of the others, on the devices */
};

/*
 * The i-th unit to become resident.  Layers first, in the order in which
 * forward needs them: each spares two copies up; then the embedding, of which
 * few rows go up, and the head, which goes up once.
 */
int zo_homes_unit_at(int i, int units);

/*
 * Sets the homes of a choice, one a unit, and returns how many states are on
 * NVMe: there may be fewer than asked for.  There go optimizers first, then
 * weights, but for those of which forward gathers rows; of each the units that
 * forward needs last.
 */
#define ZO_SPILL_ALL INT_MAX
int zo_homes_set(const struct zo_place_options *options,
                 const struct zo_home_choice *choice,
                 struct zo_unit_homes *homes);

/* The fewest resident units that leave no more than the share asked for. */
int zo_homes_fewest_resident(const struct zo_place_options *options);

/* Bytes on a device that a unit's states take once it is resident, beside its
 * weights if they are there before. */
uint64_t zo_homes_resident_bytes(const struct zo_build_options *build, int unit,
                                 bool has_weights);

ZO_C_END

#endif
