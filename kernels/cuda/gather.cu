/*
 * Gather and scatter: the rows that have a label, out of and back into the
 * rows of the batch.
 *
 *   maths     kernels.h, zo_gather_args, zo_scatter_args
 *   layout    a block a row of the output, 16 bytes a thread.  scatter: each
 *             block looks its row up in `index` by bisection, log2(L) reads
 *             that L2 answers, and writes zeros where it is not there
 *   traffic   gather: L rows read, L written.  scatter: L read, T written
 *   bound by  memory
 *   limits    rows, count < 2^31; any cols
 *   same bits every run: yes (no arithmetic)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/rows.cuh"

namespace
{

/* Where `row` is in the ascending index, or -1. */
__device__ int64_t find_row(const int32_t *index, int64_t count, int64_t row)
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
    return low < count && index[low] == row ? low : -1;
}

template <typename U>
__global__ void __launch_bounds__(ZO_ROW_THREADS)
    scatter_kernel(U *out, const U *in, const int32_t *index, int64_t count,
                   int64_t units)
{
    const int64_t row = blockIdx.x;
    const int64_t source = find_row(index, count, row);

    for (int64_t i = threadIdx.x; i < units; i += ZO_ROW_THREADS) {
        out[row * units + i] = source < 0 ? U{} : in[source * units + i];
    }
}

} /* namespace */

extern "C" enum zo_status zo_cuda_gather(struct zo_kernels *,
                                         struct zo_stream *stream,
                                         const struct zo_gather_args *args)
{
    return zo_copy_rows("gather", stream, args->out, args->in, args->index,
                        args->count,
                        args->cols * (int64_t)zo_dtype_bytes(args->type));
}

extern "C" enum zo_status zo_cuda_scatter(struct zo_kernels *,
                                          struct zo_stream *stream,
                                          const struct zo_scatter_args *args)
{
    const int64_t row_bytes = args->cols * (int64_t)zo_dtype_bytes(args->type);
    unsigned grid = 0;

    if (args->rows == 0 || row_bytes == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x("scatter", args->rows, &grid));
    if (row_bytes % (int64_t)sizeof(uint4) == 0) {
        scatter_kernel<<<grid, ZO_ROW_THREADS, 0,
                         zo_stream_cuda_native(stream)>>>(
            static_cast<uint4 *>(args->out),
            static_cast<const uint4 *>(args->in), args->index, args->count,
            row_bytes / (int64_t)sizeof(uint4));
    } else {
        scatter_kernel<<<grid, ZO_ROW_THREADS, 0,
                         zo_stream_cuda_native(stream)>>>(
            static_cast<uint16_t *>(args->out),
            static_cast<const uint16_t *>(args->in), args->index, args->count,
            row_bytes / (int64_t)sizeof(uint16_t));
    }
    return ZO_LAUNCH_STATUS("scatter");
}
