/*
 * The simulator: how long lists take on a machine, without running them.
 *
 * Row 5.  Runs a sequence of lists in simulated time by the executor's rules
 * (streams in list order; the CPU engine's workers take pieces of any ready
 * operation, lowest priority number first, then the oldest; two lists under
 * way at most) on edges derived from the accesses, as the executor's are.
 *
 * What runs at the same time shares: the host's memory bandwidth is one
 * resource of copies, CPU work and NVMe; both directions of a device's bus
 * have a common limit; on host devices all computation shares the cores.
 * Rates are worked out anew at every start and end of an operation.
 *
 * An operation's work: on the compute stream the longer of its products at
 * the profile's rate and its device bytes at the device's bandwidth; a copy
 * the bytes that it writes; on the CPU engine the bytes of host memory that it
 * reads plus those that it writes.
 *
 * One thread.  The same input gives the same bits.
 */
#ifndef ZO_OFFLOAD_SIMULATOR_H
#define ZO_OFFLOAD_SIMULATOR_H

#include "offload/order.h"
#include "offload/profile.h"
#include "offload/schedule.h"

ZO_C_BEGIN

/* What time goes to: the engines, and memory that several of them share. */
enum zo_bound {
    ZO_BOUND_COMPUTE, /* as enum zo_engine */
    ZO_BOUND_H2D,
    ZO_BOUND_D2H,
    ZO_BOUND_COLLECTIVE,
    ZO_BOUND_CPU,
    ZO_BOUND_NVME,
    ZO_BOUND_DRAM,    /* engines that wait for the host's memory */
    ZO_BOUND_WAITING, /* launches and handing over */
    ZO_BOUNDS
};
const char *zo_bound_text(enum zo_bound bound); /* "AdamW on the host", ... */

/* Of one run of one operation, in the order of the sequence. */
struct zo_sim_op {
    int item;             /* of the sequence */
    size_t op;            /* of its list */
    double ready_seconds; /* its predecessors are done */
    double start_seconds, end_seconds;
    double alone_seconds; /* what it takes with nothing beside it */
    uint64_t last_pred;   /* which let it start; UINT64_MAX: none */
};

/* One engine, of all devices together, in the window. */
struct zo_sim_engine {
    double busy_seconds;            /* of streams: the mean of the devices' */
    double idle_seconds;            /* the rest of the window */
    double bytes;                   /* copied, or of host memory touched */
    double bytes_per_second;        /* while busy */
    double flops, flops_per_second; /* of products, while busy with all */
};

struct zo_sim_result {
    /* The window: from the end of the list before it to that of its last;
     * with a single list, or `whole`, all of it. */
    double step_seconds, from_seconds, to_seconds;
    struct zo_sim_engine engines[ZO_ENGINES];
    double dram_bytes;        /* in the window */
    double dram_busy_seconds; /* those at the profile's full bandwidth */
    /*
     * No execution at these rates is faster: what the window's lists add to
     * the longest chain of edges, streams' orders and two lists at most, each
     * operation alone; and what they give the busiest engine, or the host's
     * memory, to do.  Of a steady state, as the window is.
     */
    double chain_seconds, busiest_seconds;
    enum zo_bound busiest;
    /* The chain of operations that ended last, back through what each waited
     * for: where the window's time went.  Sums to step_seconds. */
    double path_seconds[ZO_BOUNDS];
    enum zo_bound bound; /* the most of them */
    bool is_rough;       /* as the profile's is_host */
    /* Owned; in order of the sequence. */
    struct zo_sim_op *ops;
    size_t op_count;
};

struct zo_sim_options {
    const struct zo_program *program; /* laid out */
    const struct zo_profile *profile;
    enum zo_dtype type; /* of products */
    int cpu_workers;    /* 0: the profile's threads */
    bool whole;         /* the window is all of the sequence */
    bool seconds_alone; /* of the result ops and the window alone are set */
    /* The window is so many lists, and what is told is of each of them, on
     * average [1]; behind it run so many more, that those in it have company
     * to their end. */
    int window_lists, lists_behind;
};

/*
 * Simulates the lists, started one after another.
 *
 *   ZO_E_ARG     a rate that the lists need is unknown; the text names it
 *   ZO_E_NOMEM   no memory for the tables
 */
enum zo_status zo_simulate(const struct zo_sim_options *options,
                           const struct zo_sequence_item *items,
                           size_t item_count,
                           struct zo_sim_result *result_out) ZO_MUST_CHECK;
void zo_sim_result_fini(struct zo_sim_result *result); /* NULL is allowed */

/* The steady state of a list that repeats with alternating slots: the mean of
 * two, since steps may be long and short by turns. */
enum zo_status
zo_simulate_steps(const struct zo_sim_options *options, int schedule,
                  struct zo_sim_result *result_out) ZO_MUST_CHECK;

/*
 * What one run of a list gives the engines to do, without simulating it: the
 * seconds of computation of the device that has most of it, and those of the
 * busiest of the rest.  No run is faster than either.  Errors as above.
 */
enum zo_status zo_sim_busy(const struct zo_sim_options *options, int schedule,
                           double *compute_out, double *rest_out) ZO_MUST_CHECK;

/*
 * What a save adds to the time of steps: of some of them, from the first on,
 * with a list that joins one of them, less those without.
 */
enum zo_status zo_simulate_save(const struct zo_sim_options *options,
                                int step_schedule, int save_schedule,
                                double *seconds_out) ZO_MUST_CHECK;

ZO_C_END

#endif
