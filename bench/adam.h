/*
 * The speed of AdamW on the host, beside that of plain passes over the same
 * memory.  Row 8.
 */
#ifndef ZO_BENCH_ADAM_H
#define ZO_BENCH_ADAM_H

#include "kernels/host_passes.h"
#include "src/base/pool.h"

ZO_C_BEGIN

struct zo_bench_adam; /* opaque: the arrays */

/* Bytes of arrays a parameter, for the widest case. */
#define ZO_BENCH_ADAM_BYTES 16

/* Parameters that take half of the memory that is free, at most 2e8, and at
 * most most_bytes; 0: no such bound. */
int64_t zo_bench_adam_elems(uint64_t most_bytes);

/*
 * Takes arrays for `elems` parameters, on huge pages where the system grants
 * them, and touches them with all threads of the pool, which is borrowed
 * until the call returns.  The caller owns *bench_out and ends it with
 * zo_bench_adam_close().
 *
 *   ZO_E_ARG     elems below 1e5, which no cache would notice
 *   ZO_E_NOMEM   no memory for ZO_BENCH_ADAM_BYTES bytes of each
 */
enum zo_status
zo_bench_adam_open(struct zo_pool *pool, int64_t elems,
                   struct zo_bench_adam **bench_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_bench_adam_close(struct zo_bench_adam *bench);

struct zo_adam_roofs { /* bytes a second, read and written */
    double copy;       /* memcpy() of one half to the other */
    double update;     /* x += y in place: as much written as read */
};

/* The rates of all threads of the pool, the fastest of several runs. */
void zo_bench_adam_roofs(struct zo_bench_adam *bench, struct zo_pool *pool,
                         struct zo_adam_roofs *roofs_out);

struct zo_adam_case {
    enum zo_dtype type, moment_type;
    bool has_weight; /* fp16: a 16-bit copy is written too */
    enum zo_simd simd;
    int64_t elems; /* of those opened; 0: all */
};

struct zo_adam_figure {
    int64_t elems;
    double seconds;             /* of the fastest of several runs */
    double seconds_per_billion; /* of 1e9 parameters */
    int bytes_per_elem;         /* read plus written, at least */
    double bytes_per_second;
};

/*
 * Times one step over all elements of a case, split over the pool.
 *
 *   ZO_E_NOSUPPORT   this processor does not run the instruction set
 *   ZO_E_NUMERIC     a result was not finite
 */
enum zo_status
zo_bench_adam_time(struct zo_bench_adam *bench, struct zo_pool *pool,
                   const struct zo_adam_case *which,
                   struct zo_adam_figure *figure_out) ZO_MUST_CHECK;

ZO_C_END

#endif
