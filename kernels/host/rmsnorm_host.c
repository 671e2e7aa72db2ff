/*
 * RMS normalisation, forward and backward.
 *
 *   layout    forward: some rows an index; backward: ROWS rows an index, which
 *             leaves its part of d_weight, in double, in the workspace
 *   traffic   each row is read twice, from the second cache at most
 *   bound by  memory
 *   same bits for any number of threads: yes, parts are added in order
 *   tested by tests/test_kernels.c
 */
#include <math.h>
#include <string.h>

#include "kernels/host/host.h"

#define ROWS 64 /* of an index of the backward pass */

/* ---- forward --------------------------------------------------------- */

struct forward_work {
    const struct zo_vector_ops *vector;
    const struct zo_rmsnorm_args *args;
    int64_t rows_per_index;
};

static float row_rstd(const struct zo_vector_ops *vector,
                      const struct zo_rmsnorm_args *args, int64_t row)
{
    float block[ZO_BLOCK];
    double squares = 0.0;

    for (int64_t col = 0; col < args->cols; col += ZO_BLOCK) {
        const int64_t n = zo_min_i64(ZO_BLOCK, args->cols - col);

        squares +=
            vector->sum_squares(zo_view(vector, block, args->in, args->type,
                                        row * args->cols + col, n),
                                n);
    }
    return (float)(1.0 /
                   sqrt(squares / (double)args->cols + (double)args->epsilon));
}

static void run_rows(void *argument, int64_t index)
{
    const struct forward_work *work = argument;
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_rmsnorm_args *args = work->args;
    const int64_t start = index * work->rows_per_index;
    const int64_t end = zo_min_i64(args->rows, start + work->rows_per_index);
    float in_block[ZO_BLOCK], weight_block[ZO_BLOCK], out[ZO_BLOCK];

    for (int64_t row = start; row < end; row++) {
        const float rstd = row_rstd(vector, args, row);

        args->rstd[row] = rstd;
        for (int64_t col = 0; col < args->cols; col += ZO_BLOCK) {
            const int64_t n = zo_min_i64(ZO_BLOCK, args->cols - col);
            const int64_t at = row * args->cols + col;

            vector->rmsnorm(
                out, zo_view(vector, in_block, args->in, args->type, at, n),
                zo_view(vector, weight_block, args->weight, args->type, col, n),
                rstd, n);
            vector->store(zo_at(args->out, args->type, at), args->type, out, n);
        }
    }
}

enum zo_status zo_host_rmsnorm(struct zo_kernels *kernels, struct zo_pool *pool,
                               const struct zo_rmsnorm_args *args)
{
    struct forward_work work = {
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .rows_per_index = zo_div_ceil(ZO_CHUNK_ELEMS, args->cols),
    };

    zo_pool_run(pool, run_rows, &work,
                zo_div_ceil(args->rows, work.rows_per_index));
    return ZO_OK;
}

/* ---- backward -------------------------------------------------------- */

struct backward_work {
    const struct zo_vector_ops *vector;
    const struct zo_rmsnorm_backward_args *args;
    double *parts; /* (indices, cols) */
};

uint64_t zo_host_rmsnorm_backward_workspace(int64_t rows, int64_t cols)
{
    return (uint64_t)zo_div_ceil(rows, ROWS) * (uint64_t)cols * sizeof(double);
}

/* The mean of g * x, with g = d_out * weight and x = in * rstd. */
static float row_mean(const struct backward_work *work, int64_t row)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_rmsnorm_backward_args *args = work->args;
    float d_out_block[ZO_BLOCK], in_block[ZO_BLOCK], weight_block[ZO_BLOCK];
    double sum = 0.0;

    for (int64_t col = 0; col < args->cols; col += ZO_BLOCK) {
        const int64_t n = zo_min_i64(ZO_BLOCK, args->cols - col);
        const int64_t at = row * args->cols + col;

        sum += vector->dot3(
            zo_view(vector, d_out_block, args->d_out, args->type, at, n),
            zo_view(vector, weight_block, args->weight, args->type, col, n),
            zo_view(vector, in_block, args->in, args->type, at, n), n);
    }
    return (float)(sum * (double)args->rstd[row] / (double)args->cols);
}

/* d_in of a row, and its share of d_weight added to part. */
static void backward_row(const struct backward_work *work, int64_t row,
                         double *part)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_rmsnorm_backward_args *args = work->args;
    const enum zo_dtype type = args->type;
    const float mean = row_mean(work, row), rstd = args->rstd[row];
    float d_out_block[ZO_BLOCK], in_block[ZO_BLOCK], weight_block[ZO_BLOCK];
    float residual_block[ZO_BLOCK], d_in[ZO_BLOCK];

    for (int64_t col = 0; col < args->cols; col += ZO_BLOCK) {
        const int64_t n = zo_min_i64(ZO_BLOCK, args->cols - col);
        const int64_t at = row * args->cols + col;
        const float *d_out =
            zo_view(vector, d_out_block, args->d_out, type, at, n);
        const float *in = zo_view(vector, in_block, args->in, type, at, n);
        const float *residual = residual_block;

        if (args->d_residual != NULL) {
            residual =
                zo_view(vector, residual_block, args->d_residual, type, at, n);
        } else {
            memset(residual_block, 0, (size_t)n * sizeof(residual_block[0]));
        }
        vector->rmsnorm_weight(part + col, d_out, in, rstd, n);
        vector->rmsnorm_backward(
            d_in, d_out, in,
            zo_view(vector, weight_block, args->weight, type, col, n), residual,
            rstd, mean, n);
        vector->store(zo_at(args->d_in, type, at), type, d_in, n);
    }
}

static void run_backward_rows(void *argument, int64_t index)
{
    const struct backward_work *work = argument;
    const struct zo_rmsnorm_backward_args *args = work->args;
    const int64_t start = index * ROWS;
    const int64_t end = zo_min_i64(args->rows, start + ROWS);
    double *part = work->parts + index * args->cols;

    memset(part, 0, (size_t)args->cols * sizeof(*part));
    for (int64_t row = start; row < end; row++) {
        backward_row(work, row, part);
    }
}

enum zo_status
zo_host_rmsnorm_backward(struct zo_kernels *kernels, struct zo_pool *pool,
                         const struct zo_rmsnorm_backward_args *args)
{
    const int64_t parts = zo_div_ceil(args->rows, ROWS);
    struct backward_work work = {
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .parts = args->workspace,
    };

    zo_pool_run(pool, run_backward_rows, &work, parts);
    zo_add_parts(pool, work.parts, parts, args->cols, args->add,
                 args->d_weight);
    return ZO_OK;
}
