/*
 * Column sums of gradients in two passes: row blocks, fixed by the shape
 * alone, leave a partial sum each; the fold adds these in order.
 *
 * Layer 3, private to kernels/cuda.
 */
#ifndef ZO_KERNELS_CUDA_FOLD_CUH
#define ZO_KERNELS_CUDA_FOLD_CUH

#include "kernels/cuda/launch.cuh"

/* At most so many row blocks; a constant, so that bits are the same on every
 * GPU.  Two blocks for each of an H200's 132 multiprocessors. */
#define ZO_FOLD_PARTS 256

#define ZO_FOLD_COLS   32
#define ZO_FOLD_SLICES 8

static inline int64_t zo_fold_rows(int64_t rows)
{
    return zo_max_i64(1, zo_div_ceil(rows, ZO_FOLD_PARTS));
}

static inline int64_t zo_fold_parts(int64_t rows)
{
    return zo_div_ceil(rows, zo_fold_rows(rows));
}

/* sum[c] = partial[0][c] + partial[1][c] + ...; added to when `add`. */
static __global__ void __launch_bounds__(ZO_FOLD_COLS *ZO_FOLD_SLICES)
    fold_kernel(float *sum, const float *partial, int64_t parts, int64_t cols,
                bool add)
{
    __shared__ float slices[ZO_FOLD_SLICES][ZO_FOLD_COLS];
    const int lane = threadIdx.x % ZO_FOLD_COLS;
    const int slice = threadIdx.x / ZO_FOLD_COLS;
    const int64_t column = (int64_t)blockIdx.x * ZO_FOLD_COLS + lane;
    const int64_t share = (parts + ZO_FOLD_SLICES - 1) / ZO_FOLD_SLICES;
    const int64_t first = slice * share;
    const int64_t end = first + share < parts ? first + share : parts;
    float total = 0.0f;

    if (column < cols) {
        for (int64_t part = first; part < end; part++) {
            total += partial[part * cols + column];
        }
    }
    slices[slice][lane] = total;
    __syncthreads();
    if (slice != 0 || column >= cols) {
        return;
    }
    for (int i = 1; i < ZO_FOLD_SLICES; i++) {
        total += slices[i][lane];
    }
    sum[column] = add ? sum[column] + total : total;
}

static inline enum zo_status zo_fold(const char *what, struct zo_stream *stream,
                                     float *sum, const void *partial,
                                     int64_t parts, int64_t cols, bool add)
{
    unsigned grid = 0;

    ZO_TRY(zo_grid_x(what, zo_div_ceil(cols, ZO_FOLD_COLS), &grid));
    fold_kernel<<<grid, ZO_FOLD_COLS * ZO_FOLD_SLICES, 0,
                  zo_stream_cuda_native(stream)>>>(
        sum, static_cast<const float *>(partial), parts, cols, add);
    return ZO_LAUNCH_STATUS(what);
}

#endif
