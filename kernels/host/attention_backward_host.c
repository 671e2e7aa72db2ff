/*
 * Causal attention over packed rows, backward.
 *
 *   maths     P = exp(scale q k^T - lse); delta = rowsum(d_out * out)
 *             dS = P * (d_out v^T - delta) * scale
 *             d_q = dS k;  d_k = dS^T q;  d_v = P^T d_out
 *   layout    two loops: a block of 64 queries and a head an index for d_q
 *             and delta, then a block of 64 keys and a group for d_k and d_v,
 *             which sum over the group's heads in order
 *   traffic   scores are computed in both loops: two products of seven more
 *             than one loop would need, and nothing to add up between threads
 *   bound by  sgemm of 64 x 64 blocks
 *   same bits for any number of threads: yes, all borders are constants
 *   tested by tests/test_kernels_attention.c
 */
#include <string.h>

#include "kernels/host/attention_host.h"

struct work {
    struct zo_kernels *kernels;
    const struct zo_vector_ops *vector;
    const struct zo_attention_backward_args *args;
    int64_t q_width, qkv_width; /* of a token */
    float *delta;               /* (H, T) */
};

/* Some tokens of one head or group, or a square of two of them. */
struct block {
    int64_t start, count;
};

uint64_t zo_host_attention_backward_workspace(int64_t tokens, int64_t heads)
{
    return (uint64_t)tokens * (uint64_t)heads * sizeof(float);
}

static struct zo_rows load_qkv(const struct work *work, float *scratch,
                               int64_t head, struct block block)
{
    const struct zo_attention_backward_args *args = work->args;

    return zo_load_rows(
        work->vector, scratch,
        zo_at_const(args->qkv, args->type, head * args->head_width), args->type,
        work->qkv_width, block.start, block.count, args->head_width);
}

static struct zo_rows load_out(const struct work *work, float *scratch,
                               const void *array, int64_t head,
                               struct block block)
{
    const struct zo_attention_backward_args *args = work->args;

    return zo_load_rows(work->vector, scratch,
                        zo_at_const(array, args->type, head * args->head_width),
                        args->type, work->q_width, block.start, block.count,
                        args->head_width);
}

/* P and dS of queries against keys, both (queries, keys) and dense. */
static void
gradients_of_scores(const struct work *work, int64_t head, struct block queries,
                    struct block keys, const struct zo_rows *q,
                    const struct zo_rows *k, const struct zo_rows *v,
                    const struct zo_rows *d_out, float *p, float *d_scores)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_attention_backward_args *args = work->args;
    const int64_t width = args->head_width, n = keys.count;
    const int64_t at = head * args->tokens + queries.start;

    zo_blas_sgemm(false, true, queries.count, n, width, q->at, q->ld, k->at,
                  k->ld, false, p, n);
    zo_blas_sgemm(false, true, queries.count, n, width, d_out->at, d_out->ld,
                  v->at, v->ld, false, d_scores, n);
    for (int64_t i = 0; i < queries.count; i++) {
        const int64_t before = queries.start + i + 1 - keys.start;
        const int64_t visible = zo_max_i64(0, zo_min_i64(before, n));
        float *p_row = p + i * n, *d_row = d_scores + i * n;

        vector->scale(p_row, args->scale, visible);
        (void)vector->exp_sum(p_row, p_row, args->lse[at + i], visible);
        vector->attention_gradient(d_row, p_row, work->delta[at + i],
                                   args->scale, visible);
        for (int64_t j = visible; j < n; j++) {
            p_row[j] = 0.0f;
            d_row[j] = 0.0f;
        }
    }
}

/* ---- d_q and delta: a block of queries and a head -------------------- */

static void write_delta(const struct work *work, int64_t head,
                        struct block queries, const struct zo_rows *out,
                        const struct zo_rows *d_out)
{
    float *delta = work->delta + head * work->args->tokens + queries.start;

    for (int64_t i = 0; i < queries.count; i++) {
        delta[i] = (float)work->vector->dot(out->at + i * out->ld,
                                            d_out->at + i * d_out->ld,
                                            work->args->head_width);
    }
}

_Static_assert(5 * ATTENTION_ROWS + 2 * ATTENTION_SQUARE <= ZO_SCRATCH_FLOATS,
               "q, d_out, d_q, k, v and two squares fit in a slot");

static void backward_queries(const struct work *work, struct zo_segment segment,
                             int64_t head, float *scratch)
{
    const struct zo_attention_backward_args *args = work->args;
    const int64_t width = args->head_width;
    const int64_t group = head / (args->heads / args->groups);
    const struct block queries = {segment.start, segment.end - segment.start};
    float *d_q = scratch + 2 * ATTENTION_ROWS;
    float *k_scratch = scratch + 3 * ATTENTION_ROWS;
    float *v_scratch = scratch + 4 * ATTENTION_ROWS;
    float *p = scratch + 5 * ATTENTION_ROWS;
    float *d_scores = p + ATTENTION_SQUARE;
    const struct zo_rows q = load_qkv(work, scratch, head, queries);
    const struct zo_rows d_out =
        load_out(work, scratch + ATTENTION_ROWS, args->d_out, head, queries);
    const struct zo_rows out =
        load_out(work, k_scratch, args->out, head, queries);

    write_delta(work, head, queries, &out, &d_out);
    for (int64_t first = args->row_start[segment.row]; first < segment.end;
         first += ATTENTION_BLOCK) {
        const struct block keys = {
            first, zo_min_i64(ATTENTION_BLOCK, segment.end - first)};
        const struct zo_rows k =
            load_qkv(work, k_scratch, args->heads + group, keys);
        const struct zo_rows v =
            load_qkv(work, v_scratch, args->heads + args->groups + group, keys);

        gradients_of_scores(work, head, queries, keys, &q, &k, &v, &d_out, p,
                            d_scores);
        zo_blas_sgemm(false, false, queries.count, width, keys.count, d_scores,
                      keys.count, k.at, k.ld,
                      first > args->row_start[segment.row], d_q, width);
    }
    zo_store_rows(work->vector, zo_at(args->d_qkv, args->type, head * width),
                  args->type, work->qkv_width, queries.start, d_q,
                  queries.count, width);
}

static void run_queries(void *argument, int64_t index)
{
    const struct work *work = argument;
    const struct zo_attention_backward_args *args = work->args;
    const int64_t head = index % args->heads;
    const int64_t end =
        zo_min_i64(args->tokens, (index / args->heads + 1) * ATTENTION_BLOCK);
    int64_t token = index / args->heads * ATTENTION_BLOCK;
    float *scratch = zo_scratch_acquire(work->kernels);

    while (token < end) {
        const struct zo_segment segment =
            zo_next_segment(args->row_start, args->rows, token, end);

        if (segment.row >= 0) {
            backward_queries(work, segment, head, scratch);
        } else {
            zo_clear_rows(
                zo_at(args->d_qkv, args->type, head * args->head_width),
                args->type, work->qkv_width, token, segment.end - token,
                args->head_width);
        }
        token = segment.end;
    }
    zo_scratch_release(work->kernels, scratch);
}

/* ---- d_k and d_v: a block of keys and a group ------------------------ */

/* Keys of one row and group under way. */
struct keys {
    struct block block;
    int64_t row_end;
    struct zo_rows k, v;
    float *d_k, *d_v; /* (count, D) */
};

/* Adds what the row's queries of one head, from the first key on, give. */
static void add_head(const struct work *work, struct keys *keys, int64_t head,
                     bool is_first, float *scratch)
{
    const struct zo_attention_backward_args *args = work->args;
    const int64_t width = args->head_width, n = keys->block.count;
    float *p = scratch + 2 * ATTENTION_ROWS;
    float *d_scores = p + ATTENTION_SQUARE;

    for (int64_t first = keys->block.start; first < keys->row_end;
         first += ATTENTION_BLOCK) {
        const struct block queries = {
            first, zo_min_i64(ATTENTION_BLOCK, keys->row_end - first)};
        const struct zo_rows q = load_qkv(work, scratch, head, queries);
        const struct zo_rows d_out = load_out(work, scratch + ATTENTION_ROWS,
                                              args->d_out, head, queries);
        const bool is_added = !is_first || first > keys->block.start;

        gradients_of_scores(work, head, queries, keys->block, &q, &keys->k,
                            &keys->v, &d_out, p, d_scores);
        zo_blas_sgemm(true, false, n, width, queries.count, p, n, d_out.at,
                      d_out.ld, is_added, keys->d_v, width);
        zo_blas_sgemm(true, false, n, width, queries.count, d_scores, n, q.at,
                      q.ld, is_added, keys->d_k, width);
    }
}

_Static_assert(6 * ATTENTION_ROWS + 2 * ATTENTION_SQUARE <= ZO_SCRATCH_FLOATS,
               "k, v, d_k, d_v, q, d_out and two squares fit in a slot");

static void backward_keys(const struct work *work, struct zo_segment segment,
                          int64_t group, float *scratch)
{
    const struct zo_attention_backward_args *args = work->args;
    const int64_t width = args->head_width;
    const int64_t shared = args->heads / args->groups; /* heads of a group */
    struct keys keys = {
        .block = {segment.start, segment.end - segment.start},
        .row_end = args->row_start[segment.row + 1],
        .d_k = scratch + 2 * ATTENTION_ROWS,
        .d_v = scratch + 3 * ATTENTION_ROWS,
    };

    keys.k = load_qkv(work, scratch, args->heads + group, keys.block);
    keys.v = load_qkv(work, scratch + ATTENTION_ROWS,
                      args->heads + args->groups + group, keys.block);
    for (int64_t i = 0; i < shared; i++) {
        add_head(work, &keys, group * shared + i, i == 0,
                 scratch + 4 * ATTENTION_ROWS);
    }
    zo_store_rows(work->vector,
                  zo_at(args->d_qkv, args->type, (args->heads + group) * width),
                  args->type, work->qkv_width, segment.start, keys.d_k,
                  keys.block.count, width);
    zo_store_rows(work->vector,
                  zo_at(args->d_qkv, args->type,
                        (args->heads + args->groups + group) * width),
                  args->type, work->qkv_width, segment.start, keys.d_v,
                  keys.block.count, width);
}

/* Keys and values of tokens of no row. */
static void clear_keys(const struct work *work, struct zo_segment segment,
                       int64_t group)
{
    const struct zo_attention_backward_args *args = work->args;
    const int64_t k_head = args->heads + group;

    for (int64_t head = k_head; head <= k_head + args->groups;
         head += args->groups) {
        zo_clear_rows(zo_at(args->d_qkv, args->type, head * args->head_width),
                      args->type, work->qkv_width, segment.start,
                      segment.end - segment.start, args->head_width);
    }
}

static void run_keys(void *argument, int64_t index)
{
    const struct work *work = argument;
    const struct zo_attention_backward_args *args = work->args;
    const int64_t group = index % args->groups;
    const int64_t end =
        zo_min_i64(args->tokens, (index / args->groups + 1) * ATTENTION_BLOCK);
    int64_t token = index / args->groups * ATTENTION_BLOCK;
    float *scratch = zo_scratch_acquire(work->kernels);

    while (token < end) {
        const struct zo_segment segment =
            zo_next_segment(args->row_start, args->rows, token, end);

        if (segment.row >= 0) {
            backward_keys(work, segment, group, scratch);
        } else {
            clear_keys(work, segment, group);
        }
        token = segment.end;
    }
    zo_scratch_release(work->kernels, scratch);
}

enum zo_status
zo_host_attention_backward(struct zo_kernels *kernels, struct zo_pool *pool,
                           const struct zo_attention_backward_args *args)
{
    const int64_t blocks = zo_div_ceil(args->tokens, ATTENTION_BLOCK);
    struct work work = {
        .kernels = kernels,
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .q_width = args->heads * args->head_width,
        .qkv_width = (args->heads + 2 * args->groups) * args->head_width,
        .delta = args->workspace,
    };

    zo_pool_run(pool, run_queries, &work, blocks * args->heads);
    zo_pool_run(pool, run_keys, &work, blocks * args->groups);
    return ZO_OK;
}
