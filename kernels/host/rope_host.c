/*
 * Bias and rotary position embedding, forward and backward, in place.
 *
 *   layout    forward: some tokens an index; backward: TOKENS tokens an index,
 *             which leaves its part of d_bias, in double, in the workspace
 *   bound by  memory
 *   same bits for any number of threads: yes, parts are added in order
 *   tested by tests/test_kernels.c
 */
#include <string.h>

#include "kernels/host/host.h"

#define TOKENS 64 /* of an index of the backward pass */

/* ---- forward --------------------------------------------------------- */

struct forward_work {
    const struct zo_vector_ops *vector;
    const struct zo_rope_args *args;
    int64_t tokens_per_index;
};

static void turn_token(const struct forward_work *work, int64_t token)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_rope_args *args = work->args;
    const int64_t turned = args->heads + args->groups;
    const int64_t all = turned + args->groups, width = args->head_width;
    const float *table = NULL;
    float head[ZO_BLOCK], bias_block[ZO_BLOCK];

    if (args->pairs > 0) {
        table = args->table + (int64_t)args->positions[token] * args->pairs * 2;
    }
    for (int64_t h = 0; h < all; h++) {
        const int64_t at = (token * all + h) * width;
        void *qkv = zo_at(args->qkv, args->type, at);

        vector->load(head, qkv, args->type, width);
        if (args->bias != NULL) {
            vector->add(head,
                        zo_view(vector, bias_block, args->bias, args->type,
                                h * width, width),
                        width);
        }
        if (h < turned) {
            vector->rotate(head, table, 1.0f, args->pairs);
        }
        vector->store(qkv, args->type, head, width);
    }
}

static void run_tokens(void *argument, int64_t index)
{
    const struct forward_work *work = argument;
    const int64_t start = index * work->tokens_per_index;
    const int64_t end =
        zo_min_i64(work->args->tokens, start + work->tokens_per_index);

    for (int64_t token = start; token < end; token++) {
        turn_token(work, token);
    }
}

enum zo_status zo_host_rope(struct zo_kernels *kernels, struct zo_pool *pool,
                            const struct zo_rope_args *args)
{
    const int64_t width = (args->heads + 2 * args->groups) * args->head_width;
    struct forward_work work = {
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .tokens_per_index = zo_div_ceil(ZO_CHUNK_ELEMS, width),
    };

    zo_pool_run(pool, run_tokens, &work,
                zo_div_ceil(args->tokens, work.tokens_per_index));
    return ZO_OK;
}

/* ---- backward -------------------------------------------------------- */

struct backward_work {
    const struct zo_vector_ops *vector;
    const struct zo_rope_backward_args *args;
    int64_t width;
    double *parts; /* (indices, width), or NULL */
};

uint64_t zo_host_rope_backward_workspace(int64_t tokens, int64_t width)
{
    return (uint64_t)zo_div_ceil(tokens, TOKENS) * (uint64_t)width *
           sizeof(double);
}

/* part, of one token's width, may be NULL. */
static void turn_token_back(const struct backward_work *work, int64_t token,
                            double *part)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_rope_backward_args *args = work->args;
    const int64_t turned = args->heads + args->groups;
    const int64_t all = turned + args->groups, width = args->head_width;
    const float *table = NULL;
    float head[ZO_BLOCK];

    if (args->pairs > 0) {
        table = args->table + (int64_t)args->positions[token] * args->pairs * 2;
    }
    for (int64_t h = 0; h < all; h++) {
        void *d_qkv = zo_at(args->d_qkv, args->type, (token * all + h) * width);

        vector->load(head, d_qkv, args->type, width);
        if (h < turned) {
            vector->rotate(head, table, -1.0f, args->pairs);
            vector->store(d_qkv, args->type, head, width);
            vector->load(head, d_qkv, args->type, width); /* as rounded */
        }
        if (part != NULL) {
            vector->add_to_double(part + h * width, head, width);
        }
    }
}

static void run_tokens_back(void *argument, int64_t index)
{
    const struct backward_work *work = argument;
    const int64_t start = index * TOKENS;
    const int64_t end = zo_min_i64(work->args->tokens, start + TOKENS);
    double *part = NULL;

    if (work->parts != NULL) {
        part = work->parts + index * work->width;
        memset(part, 0, (size_t)work->width * sizeof(*part));
    }
    for (int64_t token = start; token < end; token++) {
        turn_token_back(work, token, part);
    }
}

enum zo_status zo_host_rope_backward(struct zo_kernels *kernels,
                                     struct zo_pool *pool,
                                     const struct zo_rope_backward_args *args)
{
    const int64_t parts = zo_div_ceil(args->tokens, TOKENS);
    struct backward_work work = {
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .width = (args->heads + 2 * args->groups) * args->head_width,
        .parts = args->d_bias != NULL ? args->workspace : NULL,
    };

    zo_pool_run(pool, run_tokens_back, &work, parts);
    if (args->d_bias != NULL) {
        zo_add_parts(pool, work.parts, parts, work.width, args->add,
                     args->d_bias);
    }
    return ZO_OK;
}
