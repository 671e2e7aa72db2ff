/*
 * RMS normalisation, forward and backward.
 *
 *   maths     kernels.h, zo_rmsnorm_args, zo_rmsnorm_backward_args
 *   layout    forward: a block a row.  backward: a block a run of rows, of
 *             which a thread owns the same columns in each, so that the sum
 *             for d_weight stays in registers; the runs' sums go through the
 *             workspace and are folded in order
 *   traffic   forward: R*C in, R*C out, R fp32 out; the row is read a second
 *             time, from L1.  backward: 3*R*C in (2 without d_residual), R*C
 *             out, and at most 256*C fp32 out and in again
 *   bound by  memory
 *   measured  forward 68 %, backward 50 % of a device copy's rate;
 *             bf16, 4,096 tokens of ChatGLM2-6B, H200 (bench/RESULTS.md)
 *   limits    rows < 2^31; cols a multiple of 8, backward up to 16384
 *   same bits every run: yes (fixed trees; runs depend on the shape alone)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/fold.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int WARPS_MAX = 32;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    rmsnorm_kernel(const zo_rmsnorm_args args)
{
    __shared__ float sums[WARPS_MAX];
    const int64_t row = blockIdx.x;
    const int64_t groups = args.cols / ZO_GROUP;
    const T *in = static_cast<const T *>(args.in) + row * args.cols;
    const T *weight = static_cast<const T *>(args.weight);
    T *out = static_cast<T *>(args.out) + row * args.cols;
    float sum = 0.0f;

    for (int64_t i = threadIdx.x; i < groups; i += THREADS) {
        float x[ZO_GROUP];

        load8(in + i * ZO_GROUP, x);
#pragma unroll
        for (int c = 0; c < ZO_GROUP; c++) {
            sum += x[c] * x[c];
        }
    }

    const float mean = block_sum(sum, sums) / (float)args.cols;
    const float rstd = 1.0f / sqrtf(mean + args.epsilon);

    for (int64_t i = threadIdx.x; i < groups; i += THREADS) {
        float x[ZO_GROUP], w[ZO_GROUP];

        load8(in + i * ZO_GROUP, x);
        load8(weight + i * ZO_GROUP, w);
#pragma unroll
        for (int c = 0; c < ZO_GROUP; c++) {
            x[c] = x[c] * rstd * w[c];
        }
        store8(out + i * ZO_GROUP, x);
    }
    if (threadIdx.x == 0) {
        args.rstd[row] = rstd;
    }
}

/* A thread owns groups threadIdx.x + i * blockDim.x, i < OWNED.  d_in may be
 * d_out or d_residual: what a thread writes, no other has yet to read. */
template <typename T, int OWNED, int MAX_THREADS>
__global__ void __launch_bounds__(MAX_THREADS)
    rmsnorm_backward_kernel(const zo_rmsnorm_backward_args args,
                            int64_t rows_per_block)
{
    __shared__ float sums[2][WARPS_MAX];
    const int64_t groups = args.cols / ZO_GROUP;
    const int64_t first = blockIdx.x * rows_per_block;
    const int64_t end =
        first + rows_per_block < args.rows ? first + rows_per_block : args.rows;
    float d_weight[OWNED][ZO_GROUP] = {};

    for (int64_t row = first; row < end; row++) {
        const T *in = static_cast<const T *>(args.in) + row * args.cols;
        const T *d_out = static_cast<const T *>(args.d_out) + row * args.cols;
        const T *weight = static_cast<const T *>(args.weight);
        const float rstd = args.rstd[row];
        float x[OWNED][ZO_GROUP], g[OWNED][ZO_GROUP], dot = 0.0f;

#pragma unroll
        for (int i = 0; i < OWNED; i++) {
            const int64_t group = threadIdx.x + (int64_t)i * blockDim.x;
            float w[ZO_GROUP];

            if (group >= groups) {
                break;
            }
            load8(in + group * ZO_GROUP, x[i]);
            load8(d_out + group * ZO_GROUP, g[i]);
            load8(weight + group * ZO_GROUP, w);
#pragma unroll
            for (int c = 0; c < ZO_GROUP; c++) {
                x[i][c] *= rstd;
                d_weight[i][c] += g[i][c] * x[i][c];
                g[i][c] *= w[c];
                dot += g[i][c] * x[i][c];
            }
        }

        const float mean =
            block_sum(dot, sums[(row - first) % 2]) / (float)args.cols;
        const T *residual =
            args.d_residual == nullptr
                ? nullptr
                : static_cast<const T *>(args.d_residual) + row * args.cols;
        T *d_in = static_cast<T *>(args.d_in) + row * args.cols;

#pragma unroll
        for (int i = 0; i < OWNED; i++) {
            const int64_t group = threadIdx.x + (int64_t)i * blockDim.x;
            float d[ZO_GROUP] = {};

            if (group >= groups) {
                break;
            }
            if (residual != nullptr) {
                load8(residual + group * ZO_GROUP, d);
            }
#pragma unroll
            for (int c = 0; c < ZO_GROUP; c++) {
                d[c] += rstd * (g[i][c] - x[i][c] * mean);
            }
            store8(d_in + group * ZO_GROUP, d);
        }
    }

    float *partial =
        static_cast<float *>(args.workspace) + blockIdx.x * args.cols;
#pragma unroll
    for (int i = 0; i < OWNED; i++) {
        const int64_t group = threadIdx.x + (int64_t)i * blockDim.x;

        if (group < groups) {
            store8(partial + group * ZO_GROUP, d_weight[i]);
        }
    }
}

template <typename T>
void launch_backward(const zo_rmsnorm_backward_args &args, unsigned blocks,
                     int64_t rows_per_block, cudaStream_t stream)
{
    const int64_t groups = args.cols / ZO_GROUP;

    if (groups <= 256) {
        rmsnorm_backward_kernel<T, 1, 256>
            <<<blocks, 256, 0, stream>>>(args, rows_per_block);
    } else if (groups <= 2 * 256) {
        rmsnorm_backward_kernel<T, 2, 256>
            <<<blocks, 256, 0, stream>>>(args, rows_per_block);
    } else if (groups <= 2 * 512) {
        rmsnorm_backward_kernel<T, 2, 512>
            <<<blocks, 512, 0, stream>>>(args, rows_per_block);
    } else {
        rmsnorm_backward_kernel<T, 4, 512>
            <<<blocks, 512, 0, stream>>>(args, rows_per_block);
    }
}

constexpr int64_t BACKWARD_COLS_MAX = 4 * 512 * ZO_GROUP;

} /* namespace */

extern "C" enum zo_status zo_cuda_rmsnorm(struct zo_kernels *,
                                          struct zo_stream *stream,
                                          const struct zo_rmsnorm_args *args)
{
    unsigned grid = 0;

    if (args->rows == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x("rmsnorm", args->rows, &grid));
    zo_by_type(args->type, [&](auto tag) {
        using T = typename decltype(tag)::type;

        rmsnorm_kernel<T>
            <<<grid, THREADS, 0, zo_stream_cuda_native(stream)>>>(*args);
    });
    return ZO_LAUNCH_STATUS("rmsnorm");
}

extern "C" uint64_t zo_cuda_rmsnorm_backward_workspace(int64_t rows,
                                                       int64_t cols)
{
    return (uint64_t)(zo_fold_parts(rows) * cols) * sizeof(float);
}

extern "C" enum zo_status
zo_cuda_rmsnorm_backward(struct zo_kernels *, struct zo_stream *stream,
                         const struct zo_rmsnorm_backward_args *args)
{
    const int64_t parts = zo_fold_parts(args->rows);

    if (args->cols > BACKWARD_COLS_MAX) {
        return ZO_FAIL(ZO_E_SHAPE,
                       "rmsnorm_backward: %lld columns; cuda takes "
                       "up to %lld",
                       (long long)args->cols, (long long)BACKWARD_COLS_MAX);
    }
    if (parts > 0) {
        zo_by_type(args->type, [&](auto tag) {
            using T = typename decltype(tag)::type;

            launch_backward<T>(*args, (unsigned)parts, zo_fold_rows(args->rows),
                               zo_stream_cuda_native(stream));
        });
        ZO_TRY(ZO_LAUNCH_STATUS("rmsnorm_backward"));
    }
    return zo_fold("rmsnorm_backward", stream, args->d_weight, args->workspace,
                   parts, args->cols, args->add);
}
