/*
 * Conversions, sums of parts, and the square norm.
 *
 *   layout    ZO_CHUNK_ELEMS elements an index; the norm a ZO_NORM_BLOCK
 *   bound by  memory
 *   same bits for any number of threads: yes, elementwise or a fixed tree
 *   tested by tests/test_kernels.c
 */
#include <string.h>

#include "kernels/host/host.h"

/* ---- cast ------------------------------------------------------------ */

struct cast_work {
    const struct zo_vector_ops *vector;
    const struct zo_cast_args *args;
};

void zo_cast_range(const struct zo_vector_ops *vector,
                   const struct zo_cast_args *args, int64_t first,
                   int64_t count)
{
    float block[ZO_BLOCK];

    for (int64_t i = first; i < first + count; i += ZO_BLOCK) {
        const int64_t n = zo_min_i64(ZO_BLOCK, first + count - i);
        void *out = zo_at(args->out, args->out_type, i);

        if (args->in_type == args->out_type) { /* a NaN keeps its bits */
            memcpy(out, zo_at_const(args->in, args->in_type, i),
                   (size_t)n * zo_dtype_bytes(args->in_type));
        } else {
            vector->store(out, args->out_type,
                          zo_view(vector, block, args->in, args->in_type, i, n),
                          n);
        }
    }
}

static void run_cast(void *argument, int64_t index)
{
    const struct cast_work *work = argument;
    const int64_t first = index * ZO_CHUNK_ELEMS;

    zo_cast_range(work->vector, work->args, first,
                  zo_min_i64(ZO_CHUNK_ELEMS, work->args->count - first));
}

enum zo_status zo_host_cast(struct zo_kernels *kernels, struct zo_pool *pool,
                            const struct zo_cast_args *args)
{
    struct cast_work work = {zo_kernels_vector(kernels), args};

    zo_pool_run(pool, run_cast, &work,
                zo_div_ceil(args->count, ZO_CHUNK_ELEMS));
    return ZO_OK;
}

/* ---- reduce ---------------------------------------------------------- */

struct reduce_work {
    const struct zo_vector_ops *vector;
    const struct zo_reduce_args *args;
};

static void run_reduce(void *argument, int64_t index)
{
    const struct reduce_work *work = argument;
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_reduce_args *args = work->args;
    const int64_t start = index * ZO_CHUNK_ELEMS;
    const int64_t end = zo_min_i64(args->count, start + ZO_CHUNK_ELEMS);
    float sums[ZO_BLOCK], block[ZO_BLOCK];

    for (int64_t i = start; i < end; i += ZO_BLOCK) {
        const int64_t n = zo_min_i64(ZO_BLOCK, end - i);

        vector->load(sums, zo_at_const(args->parts, args->type, i), args->type,
                     n);
        for (int64_t part = 1; part < args->part_count; part++) {
            vector->add(sums,
                        zo_view(vector, block, args->parts, args->type,
                                part * args->part_stride_elems + i, n),
                        n);
        }
        vector->store(zo_at(args->out, args->out_type, i), args->out_type, sums,
                      n);
    }
}

enum zo_status zo_host_reduce(struct zo_kernels *kernels, struct zo_pool *pool,
                              const struct zo_reduce_args *args)
{
    struct reduce_work work = {zo_kernels_vector(kernels), args};

    zo_pool_run(pool, run_reduce, &work,
                zo_div_ceil(args->count, ZO_CHUNK_ELEMS));
    return ZO_OK;
}

/* ---- square norm ----------------------------------------------------- */

struct norm_work {
    const struct zo_vector_ops *vector;
    const struct zo_square_norm_args *args;
    struct zo_norm_result *blocks; /* in the workspace */
};

uint64_t zo_host_square_norm_workspace(int64_t count)
{
    return (uint64_t)zo_div_ceil(count, ZO_NORM_BLOCK) *
           sizeof(struct zo_norm_result);
}

static void run_norm(void *argument, int64_t index)
{
    const struct norm_work *work = argument;
    const struct zo_square_norm_args *args = work->args;
    const int64_t start = index * ZO_NORM_BLOCK;
    const int64_t end = zo_min_i64(args->count, start + ZO_NORM_BLOCK);
    struct zo_norm_result *result = &work->blocks[index];
    double lanes[ZO_NORM_LANES] = {0};
    float block[ZO_NORM_LANES];

    result->bad_count = 0;
    for (int64_t i = start; i < end; i += ZO_NORM_LANES) {
        const int64_t n = zo_min_i64(ZO_NORM_LANES, end - i);

        result->bad_count += work->vector->square_lanes(
            lanes, zo_view(work->vector, block, args->in, args->type, i, n), n);
    }
    for (int half = ZO_NORM_LANES / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; lane++) {
            lanes[lane] += lanes[lane + half];
        }
    }
    result->square_sum = lanes[0];
}

enum zo_status zo_host_square_norm(struct zo_kernels *kernels,
                                   struct zo_pool *pool,
                                   const struct zo_square_norm_args *args)
{
    const int64_t blocks = zo_div_ceil(args->count, ZO_NORM_BLOCK);
    struct norm_work work = {zo_kernels_vector(kernels), args, args->workspace};
    struct zo_norm_result total = {0};

    zo_pool_run(pool, run_norm, &work, blocks);
    for (int64_t block = 0; block < blocks; block++) {
        total.square_sum += work.blocks[block].square_sum;
        total.bad_count += work.blocks[block].bad_count;
    }
    *args->result = total;
    return ZO_OK;
}
