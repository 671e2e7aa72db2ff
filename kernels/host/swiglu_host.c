/*
 * SwiGLU, forward and backward.
 *
 *   layout    some rows an index
 *   bound by  the exponential, on two cores; memory beyond
 *   same bits for any number of threads: yes, elementwise
 *   tested by tests/test_kernels.c
 */
#include "kernels/host/host.h"

struct forward_work {
    const struct zo_vector_ops *vector;
    const struct zo_swiglu_args *args;
    int64_t rows_per_index;
};

static void run_rows(void *argument, int64_t index)
{
    const struct forward_work *work = argument;
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_swiglu_args *args = work->args;
    const int64_t inner = args->inner;
    const int64_t start = index * work->rows_per_index;
    const int64_t end = zo_min_i64(args->rows, start + work->rows_per_index);
    float a_block[ZO_BLOCK], b_block[ZO_BLOCK], out[ZO_BLOCK];

    for (int64_t row = start; row < end; row++) {
        for (int64_t col = 0; col < inner; col += ZO_BLOCK) {
            const int64_t n = zo_min_i64(ZO_BLOCK, inner - col);
            const int64_t a = row * 2 * inner + col;

            vector->swiglu(
                out, zo_view(vector, a_block, args->in, args->type, a, n),
                zo_view(vector, b_block, args->in, args->type, a + inner, n),
                n);
            vector->store(zo_at(args->out, args->type, row * inner + col),
                          args->type, out, n);
        }
    }
}

enum zo_status zo_host_swiglu(struct zo_kernels *kernels, struct zo_pool *pool,
                              const struct zo_swiglu_args *args)
{
    struct forward_work work = {
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .rows_per_index = zo_div_ceil(ZO_CHUNK_ELEMS, args->inner),
    };

    zo_pool_run(pool, run_rows, &work,
                zo_div_ceil(args->rows, work.rows_per_index));
    return ZO_OK;
}

struct backward_work {
    const struct zo_vector_ops *vector;
    const struct zo_swiglu_backward_args *args;
    int64_t rows_per_index;
};

static void run_rows_back(void *argument, int64_t index)
{
    const struct backward_work *work = argument;
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_swiglu_backward_args *args = work->args;
    const enum zo_dtype type = args->type;
    const int64_t inner = args->inner;
    const int64_t start = index * work->rows_per_index;
    const int64_t end = zo_min_i64(args->rows, start + work->rows_per_index);
    float a[ZO_BLOCK], b[ZO_BLOCK], d_out_block[ZO_BLOCK];

    for (int64_t row = start; row < end; row++) {
        for (int64_t col = 0; col < inner; col += ZO_BLOCK) {
            const int64_t n = zo_min_i64(ZO_BLOCK, inner - col);
            const int64_t a_at = row * 2 * inner + col, b_at = a_at + inner;

            vector->load(a, zo_at_const(args->in, type, a_at), type, n);
            vector->load(b, zo_at_const(args->in, type, b_at), type, n);
            vector->swiglu_backward(a, b,
                                    zo_view(vector, d_out_block, args->d_out,
                                            type, row * inner + col, n),
                                    n);
            vector->store(zo_at(args->d_in, type, a_at), type, a, n);
            vector->store(zo_at(args->d_in, type, b_at), type, b, n);
        }
    }
}

enum zo_status
zo_host_swiglu_backward(struct zo_kernels *kernels, struct zo_pool *pool,
                        const struct zo_swiglu_backward_args *args)
{
    struct backward_work work = {
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .rows_per_index = zo_div_ceil(ZO_CHUNK_ELEMS, args->inner),
    };

    zo_pool_run(pool, run_rows_back, &work,
                zo_div_ceil(args->rows, work.rows_per_index));
    return ZO_OK;
}
