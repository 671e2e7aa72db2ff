/*
 * Causal attention over packed rows, forward.
 *
 *   maths     softmax in one pass over blocks of keys: the largest score so
 *             far, the sum of exponentials and the weighted values are
 *             rescaled when a larger score turns up
 *   layout    a block of 64 tokens and a head an index; a block may hold the
 *             end of one row and the start of others
 *   traffic   keys and values are read once a block of queries; no array
 *             grows with the length of a row
 *   bound by  sgemm of 64 x 64 blocks
 *   same bits for any number of threads: yes, all borders are constants
 *   tested by tests/test_kernels_attention.c
 */
#include "kernels/host/attention_host.h"

#include <math.h>
#include <string.h>

/* ---- shared with the backward pass ----------------------------------- */

struct zo_segment zo_next_segment(const int32_t *row_start, int64_t rows,
                                  int64_t start, int64_t end)
{
    struct zo_segment segment = {-1, start, end};
    int64_t low = 0, high = rows; /* the first row that ends behind start */

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (row_start[middle + 1] <= start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == rows) {
        return segment;
    }
    if (row_start[low] > start) { /* only before the first row */
        segment.end = zo_min_i64(end, row_start[low]);
        return segment;
    }
    segment.row = low;
    segment.end = zo_min_i64(end, row_start[low + 1]);
    return segment;
}

struct zo_rows zo_load_rows(const struct zo_vector_ops *vector, float *scratch,
                            const void *array, enum zo_dtype type,
                            int64_t stride, int64_t start, int64_t count,
                            int64_t width)
{
    if (type == ZO_F32) {
        return (struct zo_rows){(const float *)array + start * stride, stride};
    }
    for (int64_t row = 0; row < count; row++) {
        vector->load(scratch + row * width,
                     zo_at_const(array, type, (start + row) * stride), type,
                     width);
    }
    return (struct zo_rows){scratch, width};
}

void zo_store_rows(const struct zo_vector_ops *vector, void *array,
                   enum zo_dtype type, int64_t stride, int64_t start,
                   const float *rows, int64_t count, int64_t width)
{
    for (int64_t row = 0; row < count; row++) {
        vector->store(zo_at(array, type, (start + row) * stride), type,
                      rows + row * width, width);
    }
}

void zo_clear_rows(void *array, enum zo_dtype type, int64_t stride,
                   int64_t start, int64_t count, int64_t width)
{
    for (int64_t row = 0; row < count; row++) {
        memset(zo_at(array, type, (start + row) * stride), 0,
               (size_t)width * zo_dtype_bytes(type));
    }
}

/* ---- forward --------------------------------------------------------- */

struct work {
    struct zo_kernels *kernels;
    const struct zo_vector_ops *vector;
    const struct zo_attention_args *args;
};

/* Queries of one row and head under way. */
struct queries {
    int64_t head;
    int64_t start, count;   /* tokens */
    int64_t first_position; /* of token `start` among the row's keys */
    int64_t kv_start;       /* the row's first entry */
    struct zo_rows q;
    float largest[ATTENTION_BLOCK];
    double sum[ATTENTION_BLOCK];
    float *out; /* (count, D), not yet divided by sum */
};

/* Scores of a query against n keys become weights; its state goes along. */
static void weigh(const struct work *work, struct queries *queries,
                  int64_t query, float *scores, int64_t visible, int64_t n)
{
    const struct zo_vector_ops *vector = work->vector;
    const int64_t width = work->args->head_width;
    float largest;

    if (visible > 0) {
        vector->scale(scores, work->args->scale, visible);
        largest = vector->max(scores, visible);
        if (largest > queries->largest[query]) {
            const double rescale =
                exp((double)queries->largest[query] - (double)largest);

            queries->largest[query] = largest;
            queries->sum[query] *= rescale;
            vector->scale(queries->out + query * width, (float)rescale, width);
        }
        queries->sum[query] +=
            vector->exp_sum(scores, scores, queries->largest[query], visible);
    }
    for (int64_t key = visible > 0 ? visible : 0; key < n; key++) {
        scores[key] = 0.0f;
    }
}

/* Adds keys first .. first + n - 1 of the row. */
static void add_keys(const struct work *work, struct queries *queries,
                     int64_t first, int64_t n, float *scratch)
{
    const struct zo_attention_args *args = work->args;
    const int64_t width = args->head_width;
    const int64_t group = queries->head / (args->heads / args->groups);
    const int64_t entry = queries->kv_start + first;
    float *scores = scratch + 2 * ATTENTION_ROWS;
    const struct zo_rows k = zo_load_rows(
        work->vector, scratch, zo_at_const(args->k, args->type, group * width),
        args->type, args->kv_stride_elems, entry, n, width);
    const struct zo_rows v =
        zo_load_rows(work->vector, scratch + ATTENTION_ROWS,
                     zo_at_const(args->v, args->type, group * width),
                     args->type, args->kv_stride_elems, entry, n, width);

    zo_blas_sgemm(false, true, queries->count, n, width, queries->q.at,
                  queries->q.ld, k.at, k.ld, false, scores, n);
    for (int64_t query = 0; query < queries->count; query++) {
        const int64_t visible = queries->first_position + query + 1 - first;

        weigh(work, queries, query, scores + query * n, zo_min_i64(visible, n),
              n);
    }
    zo_blas_sgemm(false, false, queries->count, width, n, scores, n, v.at, v.ld,
                  true, queries->out, width);
}

static void finish(const struct work *work, struct queries *queries)
{
    const struct zo_attention_args *args = work->args;
    const int64_t width = args->head_width;
    float *lse = args->lse + queries->head * args->tokens + queries->start;

    for (int64_t query = 0; query < queries->count; query++) {
        const double sum = queries->sum[query];

        /* A query that sees no key: an empty sum. */
        work->vector->scale(queries->out + query * width,
                            sum == 0.0 ? 0.0f : (float)(1.0 / sum), width);
        lse[query] = (float)((double)queries->largest[query] + log(sum));
    }
    zo_store_rows(work->vector,
                  zo_at(args->out, args->type, queries->head * width),
                  args->type, args->heads * width, queries->start, queries->out,
                  queries->count, width);
}

static void attend(const struct work *work, struct zo_segment segment,
                   int64_t head, float *scratch)
{
    const struct zo_attention_args *args = work->args;
    const int64_t row_start = args->row_start[segment.row];
    const int64_t row_tokens = args->row_start[segment.row + 1] - row_start;
    const int64_t keys =
        args->kv_length != NULL ? args->kv_length[segment.row] : row_tokens;
    struct queries queries = {
        .head = head,
        .start = segment.start,
        .count = segment.end - segment.start,
        .first_position = keys - row_tokens + segment.start - row_start,
        .kv_start =
            args->kv_start != NULL ? args->kv_start[segment.row] : row_start,
        .out = scratch + ATTENTION_ROWS,
    };
    const int64_t seen = queries.first_position + queries.count;

    queries.q = zo_load_rows(
        work->vector, scratch,
        zo_at_const(args->q, args->type, head * args->head_width), args->type,
        args->q_stride_elems, queries.start, queries.count, args->head_width);
    memset(queries.out, 0,
           (size_t)(queries.count * args->head_width) * sizeof(float));
    for (int64_t query = 0; query < queries.count; query++) {
        queries.largest[query] = -INFINITY;
    }
    for (int64_t first = 0; first < seen; first += ATTENTION_BLOCK) {
        add_keys(work, &queries, first,
                 zo_min_i64(ATTENTION_BLOCK, seen - first),
                 scratch + 2 * ATTENTION_ROWS);
    }
    finish(work, &queries);
}

_Static_assert(4 * ATTENTION_ROWS + ATTENTION_SQUARE <= ZO_SCRATCH_FLOATS,
               "q, out, k, v and scores fit in a slot of scratch");

static void run_block(void *argument, int64_t index)
{
    const struct work *work = argument;
    const struct zo_attention_args *args = work->args;
    const int64_t width = args->head_width, head = index % args->heads;
    const int64_t end =
        zo_min_i64(args->tokens, (index / args->heads + 1) * ATTENTION_BLOCK);
    int64_t token = index / args->heads * ATTENTION_BLOCK;
    float *scratch = zo_scratch_acquire(work->kernels);

    while (token < end) {
        const struct zo_segment segment =
            zo_next_segment(args->row_start, args->rows, token, end);

        if (segment.row >= 0) {
            attend(work, segment, head, scratch);
        } else {
            const int64_t count = segment.end - token;

            zo_clear_rows(zo_at(args->out, args->type, head * width),
                          args->type, args->heads * width, token, count, width);
            memset(args->lse + head * args->tokens + token, 0,
                   (size_t)count * sizeof(args->lse[0]));
        }
        token = segment.end;
    }
    zo_scratch_release(work->kernels, scratch);
}

enum zo_status zo_host_attention(struct zo_kernels *kernels,
                                 struct zo_pool *pool,
                                 const struct zo_attention_args *args)
{
    struct work work = {kernels, zo_kernels_vector(kernels), args};

    zo_pool_run(pool, run_block, &work,
                zo_div_ceil(args->tokens, ATTENTION_BLOCK) * args->heads);
    return ZO_OK;
}
