/*
 * Operations that move rows: embedding and its backward pass, gather,
 * scatter.
 *
 *   layout    some rows an index
 *   bound by  memory
 *   same bits for any number of threads: yes, a row has one writer
 *   tested by tests/test_kernels.c
 */
#include <string.h>

#include "kernels/host/host.h"

/* Ids come from data that was checked; here a wrong one would be a write to
 * anywhere, so the host backend looks again. */
static enum zo_status check_index(const char *what, const int32_t *index,
                                  int64_t count, int64_t limit)
{
    for (int64_t i = 0; i < count; i++) {
        if (index[i] < 0 || index[i] >= limit) {
            return ZO_FAIL(ZO_E_ARG, "%s[%lld] is %d; want 0..%lld", what,
                           (long long)i, (int)index[i], (long long)limit - 1);
        }
    }
    return ZO_OK;
}

/* ---- out[i] = in[index[i]] ------------------------------------------- */

struct copy_work {
    void *out;
    const void *in;
    const int32_t *index;
    int64_t count, rows_per_index;
    size_t row_bytes;
};

static void run_copy(void *argument, int64_t index)
{
    const struct copy_work *work = argument;
    const int64_t start = index * work->rows_per_index;
    const int64_t end = zo_min_i64(work->count, start + work->rows_per_index);

    for (int64_t row = start; row < end; row++) {
        memcpy((char *)work->out + (size_t)row * work->row_bytes,
               (const char *)work->in +
                   (size_t)work->index[row] * work->row_bytes,
               work->row_bytes);
    }
}

static void copy_rows(struct zo_pool *pool, void *out, const void *in,
                      const int32_t *index, int64_t count, int64_t cols,
                      enum zo_dtype type)
{
    struct copy_work work = {
        .out = out,
        .in = in,
        .index = index,
        .count = count,
        .rows_per_index = zo_div_ceil(ZO_CHUNK_ELEMS, cols),
        .row_bytes = (size_t)cols * zo_dtype_bytes(type),
    };

    zo_pool_run(pool, run_copy, &work, zo_div_ceil(count, work.rows_per_index));
}

enum zo_status zo_host_embedding(struct zo_kernels *kernels,
                                 struct zo_pool *pool,
                                 const struct zo_embedding_args *args)
{
    (void)kernels;
    ZO_TRY(check_index("embedding: ids", args->ids, args->tokens, args->vocab));
    copy_rows(pool, args->out, args->table, args->ids, args->tokens, args->cols,
              args->type);
    return ZO_OK;
}

enum zo_status zo_host_gather(struct zo_kernels *kernels, struct zo_pool *pool,
                              const struct zo_gather_args *args)
{
    (void)kernels;
    ZO_TRY(check_index("gather: index", args->index, args->count, args->rows));
    copy_rows(pool, args->out, args->in, args->index, args->count, args->cols,
              args->type);
    return ZO_OK;
}

/* ---- out[index[i]] = in[i], else zero -------------------------------- */

struct scatter_work {
    const struct zo_scatter_args *args;
    int64_t rows_per_index;
    size_t row_bytes;
};

/* The first of index[0 .. count - 1], ascending, that is not below row. */
static int64_t first_not_below(const int32_t *index, int64_t count, int64_t row)
{
    int64_t low = 0, high = count;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (index[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void run_scatter(void *argument, int64_t index)
{
    const struct scatter_work *work = argument;
    const struct zo_scatter_args *args = work->args;
    const int64_t start = index * work->rows_per_index;
    const int64_t end = zo_min_i64(args->rows, start + work->rows_per_index);
    int64_t next = first_not_below(args->index, args->count, start);

    for (int64_t row = start; row < end; row++) {
        char *out = (char *)args->out + (size_t)row * work->row_bytes;

        if (next < args->count && args->index[next] == row) {
            memcpy(out, (const char *)args->in + (size_t)next * work->row_bytes,
                   work->row_bytes);
            next++;
        } else {
            memset(out, 0, work->row_bytes);
        }
    }
}

enum zo_status zo_host_scatter(struct zo_kernels *kernels, struct zo_pool *pool,
                               const struct zo_scatter_args *args)
{
    struct scatter_work work = {
        .args = args,
        .rows_per_index = zo_div_ceil(ZO_CHUNK_ELEMS, args->cols),
        .row_bytes = (size_t)args->cols * zo_dtype_bytes(args->type),
    };

    (void)kernels;
    ZO_TRY(check_index("scatter: index", args->index, args->count, args->rows));
    zo_pool_run(pool, run_scatter, &work,
                zo_div_ceil(args->rows, work.rows_per_index));
    return ZO_OK;
}

/* ---- the gradient of the embedding ----------------------------------- */

struct segment_work {
    const struct zo_vector_ops *vector;
    const struct zo_embedding_backward_args *args;
    int64_t segments_per_index;
};

static void add_segment(const struct segment_work *work, int64_t segment)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_embedding_backward_args *args = work->args;
    const int64_t start = args->segment_start[segment];
    const int64_t end = args->segment_start[segment + 1];
    float *d_row = args->d_table + args->segment_id[segment] * args->cols;
    float sums[ZO_BLOCK], block[ZO_BLOCK];

    for (int64_t col = 0; col < args->cols; col += ZO_BLOCK) {
        const int64_t n = zo_min_i64(ZO_BLOCK, args->cols - col);

        memset(sums, 0, (size_t)n * sizeof(sums[0]));
        for (int64_t i = start; i < end; i++) {
            vector->add(sums,
                        zo_view(vector, block, args->d_out, args->type,
                                args->order[i] * args->cols + col, n),
                        n);
        }
        vector->add(d_row + col, sums, n);
    }
}

static void run_segments(void *argument, int64_t index)
{
    const struct segment_work *work = argument;
    const int64_t start = index * work->segments_per_index;
    const int64_t end =
        zo_min_i64(work->args->segments, start + work->segments_per_index);

    for (int64_t segment = start; segment < end; segment++) {
        add_segment(work, segment);
    }
}

enum zo_status
zo_host_embedding_backward(struct zo_kernels *kernels, struct zo_pool *pool,
                           const struct zo_embedding_backward_args *args)
{
    struct segment_work work = {
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .segments_per_index = zo_div_ceil(ZO_CHUNK_ELEMS, args->cols),
    };

    ZO_TRY(check_index("embedding_backward: segment_id", args->segment_id,
                       args->segments, args->vocab));
    zo_pool_run(pool, run_segments, &work,
                zo_div_ceil(args->segments, work.segments_per_index));
    return ZO_OK;
}
