/*
 * Embedding: rows of a table by token id, and the gradient of the table.
 *
 *   maths     kernels.h, zo_embedding_args, zo_embedding_backward_args
 *   layout    forward: a block a token, 16 bytes a thread.
 *             backward: a block a segment and 512 columns, 8 columns a
 *             thread, which walks the segment's tokens in order
 *   traffic   forward: T rows read, T written.  backward: T rows of d_out
 *             read, U rows of d_table (fp32) read and written
 *   bound by  memory; a long segment (one id many times) by the latency of
 *             its own rows, ROWS_AHEAD of which are in flight
 *   limits    tokens, segments < 2^31; any cols (16-byte accesses where the
 *             rows allow it)
 *   same bits every run: yes (a segment is summed in order by one thread)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/rows.cuh"

namespace
{

constexpr int THREADS = 64;
constexpr int ROWS_AHEAD = 4;

/* WIDTH columns a thread: ZO_GROUP, or 1 where rows are not so aligned. */
template <typename T, int WIDTH>
__device__ inline void load_columns(const T *from, float (&values)[WIDTH])
{
    if constexpr (WIDTH == ZO_GROUP) {
        load8(from, values);
    } else {
        values[0] = to_float(from[0]);
    }
}

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    embedding_backward_kernel(const zo_embedding_backward_args args)
{
    const int64_t column =
        ((int64_t)blockIdx.y * THREADS + threadIdx.x) * WIDTH;
    const int64_t first = args.segment_start[blockIdx.x];
    const int64_t end = args.segment_start[blockIdx.x + 1];
    const T *d_out = static_cast<const T *>(args.d_out) + column;
    float sum[WIDTH] = {};

    if (column >= args.cols) {
        return;
    }
    for (int64_t i = first; i < end; i += ROWS_AHEAD) {
        float ahead[ROWS_AHEAD][WIDTH] = {};

#pragma unroll
        for (int r = 0; r < ROWS_AHEAD; r++) {
            if (i + r < end) {
                load_columns<T, WIDTH>(d_out + args.order[i + r] * args.cols,
                                       ahead[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS_AHEAD; r++) {
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                sum[c] += ahead[r][c];
            }
        }
    }

    float *d_table =
        args.d_table + args.segment_id[blockIdx.x] * args.cols + column;
#pragma unroll
    for (int c = 0; c < WIDTH; c++) {
        d_table[c] += sum[c];
    }
}

} /* namespace */

extern "C" enum zo_status
zo_cuda_embedding(struct zo_kernels *, struct zo_stream *stream,
                  const struct zo_embedding_args *args)
{
    return zo_copy_rows("embedding", stream, args->out, args->table, args->ids,
                        args->tokens,
                        args->cols * (int64_t)zo_dtype_bytes(args->type));
}

extern "C" enum zo_status
zo_cuda_embedding_backward(struct zo_kernels *, struct zo_stream *stream,
                           const struct zo_embedding_backward_args *args)
{
    const bool is_grouped = args->cols % ZO_GROUP == 0;
    const int64_t width = is_grouped ? ZO_GROUP : 1;
    const int64_t columns = zo_div_ceil(args->cols, THREADS * width);
    unsigned grid = 0;

    if (args->segments == 0 || args->cols == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x("embedding_backward", args->segments, &grid));
    if (columns > 65535) {
        return ZO_FAIL(ZO_E_SHAPE, "embedding_backward: %lld columns",
                       (long long)args->cols);
    }
    zo_by_type(args->type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const dim3 blocks(grid, (unsigned)columns);

        if (is_grouped) {
            embedding_backward_kernel<T, ZO_GROUP>
                <<<blocks, THREADS, 0, zo_stream_cuda_native(stream)>>>(*args);
        } else {
            embedding_backward_kernel<T, 1>
                <<<blocks, THREADS, 0, zo_stream_cuda_native(stream)>>>(*args);
        }
    });
    return ZO_LAUNCH_STATUS("embedding_backward");
}
