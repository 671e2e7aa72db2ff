/*
 * The simulator's parts: what an operation costs (simulator_cost.c), the run
 * in simulated time (simulator.c), and what is read off it
 * (simulator_result.c).  Row 5, private to offload/simulator*.c.
 */
#ifndef ZO_OFFLOAD_SIMULATOR_INTERNAL_H
#define ZO_OFFLOAD_SIMULATOR_INTERNAL_H

#include "offload/simulator.h"

ZO_C_BEGIN

#define ZO_NO_INSTANCE UINT64_MAX

/* What an operation of a list takes, whenever it runs. */
struct zo_sim_cost {
    double bytes;        /* that the engine's rate is about */
    double seconds;      /* of a stream or NVMe, behind the lead */
    double piece_bytes;  /* CPU: of one part */
    double lead_seconds; /* before it begins; CPU: before every part */
    double dram_bytes;   /* of the host's memory, in all */
    double alone_seconds;
    int parts;
};

/* Of one run of one operation. */
struct zo_sim_instance {
    const struct zo_op *op;
    const struct zo_sim_cost *cost;
    uint32_t lane;  /* ZO_NO_LANE: CPU, NVMe */
    int list;       /* see zo_sim.list_first */
    size_t pending; /* what it waits for, beside its lane */
    int parts_to_start, parts_to_end;
    double saturated_before; /* see zo_sim.saturated_seconds */
    double saturated_seconds, lead_seconds;
};

/* A run in simulated time. */
struct zo_sim {
    const struct zo_sim_options *options;
    const struct zo_sequence_item *items;
    size_t item_count;
    int workers;
    struct zo_sim_cost *costs[ZO_SCHEDULES_MAX]; /* owned */
    struct zo_edges edges;                       /* owned */
    struct zo_sim_instance *instances;           /* owned */
    struct zo_sim_op *ops;                       /* owned, of the result */
    size_t count;
    /* The instances of a list, with those of one that has joined it. */
    size_t *list_first; /* owned, list_count + 1 */
    size_t list_count;
};

/* What the operations of the lists in the sequence cost: sim->costs. */
enum zo_status zo_sim_costs(struct zo_sim *sim) ZO_MUST_CHECK;

/* Bytes a second that one worker of the CPU engine takes at most. */
double zo_sim_thread_rate(const struct zo_profile *profile);

/* Fills everything but ops, which is left to the caller. */
enum zo_status zo_sim_read(const struct zo_sim *sim,
                           struct zo_sim_result *result) ZO_MUST_CHECK;

/* What one run of a list keeps busy: see zo_sim_busy(). */
enum zo_status zo_sim_read_list(const struct zo_sim *sim, int schedule,
                                double *compute_out,
                                double *rest_out) ZO_MUST_CHECK;

ZO_C_END

#endif
