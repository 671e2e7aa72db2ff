/*
 * Copying whole rows, for embedding, gather and scatter.
 *
 * Layer 3, private to kernels/cuda.
 */
#ifndef ZO_KERNELS_CUDA_ROWS_CUH
#define ZO_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/launch.cuh"

#define ZO_ROW_THREADS 256

/* to[block] = from[index[block]], a row being `units` of type U. */
template <typename U>
__global__ void __launch_bounds__(ZO_ROW_THREADS)
    copy_rows_kernel(U *to, const U *from, const int32_t *index, int64_t units)
{
    const int64_t row = blockIdx.x;
    const U *source = from + index[row] * units;
    U *target = to + row * units;

    for (int64_t i = threadIdx.x; i < units; i += ZO_ROW_THREADS) {
        target[i] = source[i];
    }
}

/* Queues it, by 16 bytes where rows are a multiple of that. */
static inline enum zo_status zo_copy_rows(const char *what,
                                          struct zo_stream *stream, void *to,
                                          const void *from,
                                          const int32_t *index, int64_t count,
                                          int64_t row_bytes)
{
    unsigned grid = 0;

    if (count == 0 || row_bytes == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x(what, count, &grid));
    if (row_bytes % (int64_t)sizeof(uint4) == 0) {
        copy_rows_kernel<<<grid, ZO_ROW_THREADS, 0,
                           zo_stream_cuda_native(stream)>>>(
            static_cast<uint4 *>(to), static_cast<const uint4 *>(from), index,
            row_bytes / (int64_t)sizeof(uint4));
    } else {
        copy_rows_kernel<<<grid, ZO_ROW_THREADS, 0,
                           zo_stream_cuda_native(stream)>>>(
            static_cast<uint16_t *>(to), static_cast<const uint16_t *>(from),
            index, row_bytes / (int64_t)sizeof(uint16_t));
    }
    return ZO_LAUNCH_STATUS(what);
}

#endif
