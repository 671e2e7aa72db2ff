/*
 * The plan: what a program takes of every tier, before anything is allocated.
 *
 * Row 5.  Read off the layout that the executor runs with, so that it cannot
 * drift from the run.
 */
#ifndef ZO_OFFLOAD_PLANNER_H
#define ZO_OFFLOAD_PLANNER_H

#include "offload/schedule.h"

ZO_C_BEGIN

/* One arena at its fullest moment. */
struct zo_plan_arena {
    enum zo_tier tier;
    int device;
    uint64_t total_bytes;           /* of the arena */
    uint64_t persistent_bytes;      /* of those, between steps too */
    uint64_t purposes[ZO_PURPOSES]; /* bytes in use at that moment */
    uint64_t unused_bytes;          /* gaps that the layout leaves then */
    const char *schedule;           /* the moment: list, operation, unit */
    const char *op;                 /* NULL: nothing is transient */
    int unit;
};

void zo_plan_arena(const struct zo_program *program, enum zo_tier tier,
                   int device, struct zo_plan_arena *arena_out);

/* Bytes that a list moves from and to NVMe. */
struct zo_plan_nvme {
    uint64_t read_bytes, written_bytes;
};
struct zo_plan_nvme zo_plan_nvme(const struct zo_program *program,
                                 int schedule);

/* Whether a buffer, by its index, is in use there at that moment. */
bool zo_plan_holds(const struct zo_program *program,
                   const struct zo_plan_arena *arena, size_t buffer);
/* Bytes that it takes of the arena, of both slots. */
uint64_t zo_plan_stored_bytes(const struct zo_buffer *buffer);

/* Floating-point operations of a list's products, for its longest batch. */
double zo_plan_flops(const struct zo_program *program, int schedule);

ZO_C_END

#endif
