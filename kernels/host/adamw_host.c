/*
 * AdamW.
 *
 *   layout    ZO_CHUNK_ELEMS elements an index, in blocks
 *   traffic   bf16: 2 + 2 + 4 + 4 bytes read and written, 2 read, an element
 *   bound by  memory
 *   same bits for any number of threads and instruction set: yes
 *   tested by tests/test_kernels_adamw.c
 */
#include <stdatomic.h>

#include "kernels/host/host.h"

#define F16_OVERFLOW 65520.0f /* from here on fp16 rounds to infinity */

struct work {
    const struct zo_vector_ops *vector;
    const struct zo_adamw_args *args;
    atomic_bool is_bad;
};

/* n elements from `at` on, all of which decay or none; p is their master. */
static bool update(const struct work *work, float *p, int64_t at, int64_t n,
                   bool decays)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_adamw_args *args = work->args;
    float grad_block[ZO_BLOCK];

    return vector->adamw(
        p, args->exp_avg + at, args->exp_avg_sq + at,
        zo_view(vector, grad_block, args->grad, args->type, at, n),
        &args->scalars, decays, n);
}

/* n <= ZO_BLOCK elements, all of which decay or none; true when bad. */
static bool update_block(const struct work *work, int64_t at, int64_t n,
                         bool decays)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_adamw_args *args = work->args;
    bool is_bad = false;
    float p[ZO_BLOCK], *master;

    switch (args->type) {
    case ZO_F32:
        is_bad = update(work, (float *)args->weight + at, at, n, decays);
        break;
    case ZO_BF16:
        vector->pair_join(p, (const uint16_t *)args->weight + at,
                          args->remainder + at, n);
        is_bad = update(work, p, at, n, decays);
        is_bad |= vector->pair_split((uint16_t *)args->weight + at,
                                     args->remainder + at, p, n);
        break;
    case ZO_F16:
        master = args->master + at;
        is_bad = update(work, master, at, n, decays);
        is_bad |= vector->reaches(master, F16_OVERFLOW, n);
        if (args->weight != NULL) {
            vector->store((uint16_t *)args->weight + at, ZO_F16, master, n);
        }
        break;
    }
    return is_bad;
}

static void run_chunk(void *argument, int64_t index)
{
    struct work *work = argument;
    const struct zo_adamw_args *args = work->args;
    const int64_t end = zo_min_i64(args->count, (index + 1) * ZO_CHUNK_ELEMS);
    int64_t at = index * ZO_CHUNK_ELEMS;
    bool is_bad = false;

    while (at < end) {
        const bool decays = at < args->decay_count;
        int64_t n = zo_min_i64(ZO_BLOCK, end - at);

        if (decays) {
            n = zo_min_i64(n, args->decay_count - at);
        }
        is_bad |= update_block(work, at, n, decays);
        at += n;
    }
    if (is_bad) {
        atomic_store(&work->is_bad, true);
    }
}

enum zo_status zo_host_adamw(struct zo_kernels *kernels, struct zo_pool *pool,
                             const struct zo_adamw_args *args)
{
    struct work work = {.vector = zo_kernels_vector(kernels), .args = args};

    zo_pool_run(pool, run_chunk, &work,
                zo_div_ceil(args->count, ZO_CHUNK_ELEMS));
    if (atomic_load(&work.is_bad)) {
        *args->bad = 1;
    }
    return ZO_OK;
}
