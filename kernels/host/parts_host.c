/* Sums over rows that were taken in parts: bias and norm weight gradients. */
#include "kernels/host/host.h"

struct work {
    const double *parts; /* (count, cols) */
    int64_t count, cols;
    bool is_added;
    float *out; /* (cols) */
};

static void run_cols(void *argument, int64_t index)
{
    const struct work *work = argument;
    const int64_t start = index * ZO_BLOCK;
    const int64_t n = zo_min_i64(ZO_BLOCK, work->cols - start);
    double sums[ZO_BLOCK] = {0};

    for (int64_t part = 0; part < work->count; part++) {
        const double *from = work->parts + part * work->cols + start;

        for (int64_t i = 0; i < n; i++) {
            sums[i] += from[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        float *out = &work->out[start + i];

        *out = (float)(work->is_added ? (double)*out + sums[i] : sums[i]);
    }
}

void zo_add_parts(struct zo_pool *pool, const double *parts, int64_t count,
                  int64_t cols, bool is_added, float *out)
{
    struct work work = {parts, count, cols, is_added, out};

    zo_pool_run(pool, run_cols, &work, zo_div_ceil(cols, ZO_BLOCK));
}
