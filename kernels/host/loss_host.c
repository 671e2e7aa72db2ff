/*
 * Cross-entropy and its gradient.
 *
 *   layout    a row of logits an index
 *   traffic   the row is read three times, from the second cache for the
 *             official vocabulary (254 KiB)
 *   bound by  two exponentials an element
 *   same bits for any number of threads: yes, a row has one thread
 *   tested by tests/test_kernels.c
 */
#include <math.h>

#include "kernels/host/host.h"

struct work {
    const struct zo_vector_ops *vector;
    const struct zo_cross_entropy_args *args;
};

/* d_logits of a row; sum is that of exp(logit - largest). */
static void write_gradient(const struct work *work, int64_t row, float largest,
                           double sum)
{
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_cross_entropy_args *args = work->args;
    const float *logits = args->logits + row * args->vocab;
    const int64_t label = args->label[row];
    const float inverse = (float)(1.0 / sum);
    float out[ZO_BLOCK];

    for (int64_t start = 0; start < args->vocab; start += ZO_BLOCK) {
        const int64_t n = zo_min_i64(ZO_BLOCK, args->vocab - start);

        vector->softmax_gradient(out, logits + start, largest, inverse,
                                 args->scale, n);
        if (label >= start && label < start + n) {
            float p; /* again without the scale, for p - 1 */

            vector->softmax_gradient(&p, logits + label, largest, inverse, 1.0f,
                                     1);
            out[label - start] = (p - 1.0f) * args->scale;
        }
        vector->store(
            zo_at(args->d_logits, args->type, row * args->vocab + start),
            args->type, out, n);
    }
}

static void run_row(void *argument, int64_t row)
{
    const struct work *work = argument;
    const struct zo_vector_ops *vector = work->vector;
    const struct zo_cross_entropy_args *args = work->args;
    const float *logits = args->logits + row * args->vocab;
    const float largest = vector->max(logits, args->vocab);
    float block[ZO_BLOCK];
    double sum = 0.0;

    for (int64_t start = 0; start < args->vocab; start += ZO_BLOCK) {
        sum += vector->exp_sum(block, logits + start, largest,
                               zo_min_i64(ZO_BLOCK, args->vocab - start));
    }
    args->loss[row] = (float)(log(sum) + ((double)largest -
                                          (double)logits[args->label[row]]));
    if (args->d_logits != NULL) {
        write_gradient(work, row, largest, sum);
    }
}

enum zo_status zo_host_cross_entropy(struct zo_kernels *kernels,
                                     struct zo_pool *pool,
                                     const struct zo_cross_entropy_args *args)
{
    struct work work = {zo_kernels_vector(kernels), args};

    for (int64_t row = 0; row < args->count; row++) {
        if (args->label[row] < 0 || args->label[row] >= args->vocab) {
            return ZO_FAIL(ZO_E_ARG,
                           "cross_entropy: label[%lld] is %d; want 0..%lld",
                           (long long)row, (int)args->label[row],
                           (long long)args->vocab - 1);
        }
    }
    zo_pool_run(pool, run_row, &work, args->count);
    return ZO_OK;
}
