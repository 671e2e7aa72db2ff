/*
 * Bias and rotary position embedding of the fused projection, in place, and
 * their gradients.
 *
 *   maths     kernels.h, zo_rope_args, zo_rope_backward_args
 *   layout    forward: a block a token, 8 neighbouring columns a thread.
 *             backward: a block a run of tokens and some columns, of which a
 *             thread owns the same in each token, so that the sum for d_bias
 *             stays in registers; the runs' sums go through the workspace and
 *             are folded in order
 *   traffic   T * (H + 2 G) * D elements read and written; the table, the
 *             positions and the bias come from L1 and L2
 *   bound by  memory
 *   measured  forward 74 %, backward 58 % of a device copy's rate;
 *             bf16, 4,096 tokens of ChatGLM2-6B, H200 (bench/RESULTS.md)
 *   limits    tokens < 2^31
 *   same bits every run: yes (runs depend on the shape alone)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/fold.cuh"

namespace
{

constexpr int THREADS = 192; /* three rounds for the 576 groups of 4608 */
constexpr int BACKWARD_THREADS = 64;

/*
 * What a thread has of a token: WIDTH columns of one head, of which the first
 * is a multiple of 2 in it.  WIDTH is ZO_GROUP, or 2 where heads are not a
 * multiple of that; then the last of an odd head stands alone.
 */
struct span {
    int64_t column; /* of the token's row */
    int count;
};

template <int WIDTH>
__device__ inline span span_at(int64_t index, int64_t head_width)
{
    if constexpr (WIDTH == ZO_GROUP) {
        return {index * ZO_GROUP, ZO_GROUP};
    } else {
        const int64_t spans = (head_width + 1) / 2;
        const int64_t inside = index % spans * 2;

        return {index / spans * head_width + inside,
                inside + 1 < head_width ? 2 : 1};
    }
}

__host__ __device__ inline int64_t spans_of(int64_t width, int64_t head_width)
{
    return head_width % ZO_GROUP == 0
               ? width / ZO_GROUP
               : width / head_width * ((head_width + 1) / 2);
}

template <typename T, int WIDTH>
__device__ inline void load_span(const T *from, int count,
                                 float (&values)[WIDTH])
{
    if constexpr (WIDTH == ZO_GROUP) {
        load8(from, values);
    } else {
        values[0] = to_float(from[0]);
        values[1] = count > 1 ? to_float(from[1]) : 0.0f;
    }
}

template <typename T, int WIDTH>
__device__ inline void store_span(T *to, int count,
                                  const float (&values)[WIDTH])
{
    if constexpr (WIDTH == ZO_GROUP) {
        store8(to, values);
    } else {
        to[0] = from_float<T>(values[0]);
        if (count > 1) {
            to[1] = from_float<T>(values[1]);
        }
    }
}

/* Turns the pairs at `column` of a query or key head, by +angle or -angle. */
template <int WIDTH>
__device__ inline void rotate(float (&x)[WIDTH], int64_t column,
                              const float *angles, int64_t head_width,
                              int64_t pairs, float sign)
{
    const int64_t pair = column % head_width / 2;

#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        if (pair + i < pairs) {
            const float2 angle =
                reinterpret_cast<const float2 *>(angles)[pair + i];
            const float cosine = angle.x, sine = angle.y * sign;
            const float a = x[2 * i], b = x[2 * i + 1];

            x[2 * i] = a * cosine - b * sine;
            x[2 * i + 1] = a * sine + b * cosine;
        }
    }
}

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS) rope_kernel(const zo_rope_args args)
{
    const int64_t token = blockIdx.x;
    const int64_t rotated = (args.heads + args.groups) * args.head_width;
    const int64_t width = rotated + args.groups * args.head_width;
    const int64_t spans = spans_of(width, args.head_width);
    const float *angles =
        args.pairs > 0 ? args.table + args.positions[token] * args.pairs * 2
                       : nullptr;
    const T *bias = static_cast<const T *>(args.bias);
    T *qkv = static_cast<T *>(args.qkv) + token * width;

    for (int64_t index = threadIdx.x; index < spans; index += THREADS) {
        const span at = span_at<WIDTH>(index, args.head_width);
        float x[WIDTH];

        load_span<T, WIDTH>(qkv + at.column, at.count, x);
        if (bias != nullptr) {
            float b[WIDTH];

            load_span<T, WIDTH>(bias + at.column, at.count, b);
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                x[i] += b[i];
            }
        }
        if (at.column < rotated) {
            rotate<WIDTH>(x, at.column, angles, args.head_width, args.pairs,
                          1.0f);
        }
        store_span<T, WIDTH>(qkv + at.column, at.count, x);
    }
}

template <typename T, int WIDTH>
__global__ void __launch_bounds__(BACKWARD_THREADS)
    rope_backward_kernel(const zo_rope_backward_args args,
                         int64_t tokens_per_block)
{
    const int64_t rotated = (args.heads + args.groups) * args.head_width;
    const int64_t width = rotated + args.groups * args.head_width;
    const int64_t index = (int64_t)blockIdx.y * BACKWARD_THREADS + threadIdx.x;
    const int64_t first = blockIdx.x * tokens_per_block;
    const int64_t end = first + tokens_per_block < args.tokens
                            ? first + tokens_per_block
                            : args.tokens;
    float d_bias[WIDTH] = {};

    if (index >= spans_of(width, args.head_width)) {
        return;
    }
    const span at = span_at<WIDTH>(index, args.head_width);
#pragma unroll 4
    for (int64_t token = first; token < end; token++) {
        T *d_qkv = static_cast<T *>(args.d_qkv) + token * width + at.column;
        float x[WIDTH];

        load_span<T, WIDTH>(d_qkv, at.count, x);
        if (at.column < rotated && args.pairs > 0) {
            rotate<WIDTH>(x, at.column,
                          args.table + args.positions[token] * args.pairs * 2,
                          args.head_width, args.pairs, -1.0f);
            store_span<T, WIDTH>(d_qkv, at.count, x);
        }
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            d_bias[i] += to_float(from_float<T>(x[i]));
        }
    }
    if (args.d_bias != nullptr) {
        store_span<float, WIDTH>(static_cast<float *>(args.workspace) +
                                     blockIdx.x * width + at.column,
                                 at.count, d_bias);
    }
}

} /* namespace */

extern "C" enum zo_status zo_cuda_rope(struct zo_kernels *,
                                       struct zo_stream *stream,
                                       const struct zo_rope_args *args)
{
    unsigned grid = 0;

    if (args->tokens == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x("rope", args->tokens, &grid));
    zo_by_type(args->type, [&](auto tag) {
        using T = typename decltype(tag)::type;

        if (args->head_width % ZO_GROUP == 0) {
            rope_kernel<T, ZO_GROUP>
                <<<grid, THREADS, 0, zo_stream_cuda_native(stream)>>>(*args);
        } else {
            rope_kernel<T, 2>
                <<<grid, THREADS, 0, zo_stream_cuda_native(stream)>>>(*args);
        }
    });
    return ZO_LAUNCH_STATUS("rope");
}

extern "C" uint64_t zo_cuda_rope_backward_workspace(int64_t tokens,
                                                    int64_t width)
{
    return (uint64_t)(zo_fold_parts(tokens) * width) * sizeof(float);
}

extern "C" enum zo_status
zo_cuda_rope_backward(struct zo_kernels *, struct zo_stream *stream,
                      const struct zo_rope_backward_args *args)
{
    const bool is_grouped = args->head_width % ZO_GROUP == 0;
    const int64_t width = (args->heads + 2 * args->groups) * args->head_width;
    const int64_t columns =
        zo_div_ceil(spans_of(width, args->head_width), BACKWARD_THREADS);
    const int64_t parts = zo_fold_parts(args->tokens);

    if (columns > 65535) {
        return ZO_FAIL(ZO_E_SHAPE, "rope_backward: %lld columns",
                       (long long)width);
    }
    if (parts > 0) {
        zo_by_type(args->type, [&](auto tag) {
            using T = typename decltype(tag)::type;
            const dim3 blocks((unsigned)parts, (unsigned)columns);

            if (is_grouped) {
                rope_backward_kernel<T, ZO_GROUP>
                    <<<blocks, BACKWARD_THREADS, 0,
                       zo_stream_cuda_native(stream)>>>(
                        *args, zo_fold_rows(args->tokens));
            } else {
                rope_backward_kernel<T, 2><<<blocks, BACKWARD_THREADS, 0,
                                             zo_stream_cuda_native(stream)>>>(
                    *args, zo_fold_rows(args->tokens));
            }
        });
        ZO_TRY(ZO_LAUNCH_STATUS("rope_backward"));
    }
    if (args->d_bias == NULL) {
        return ZO_OK;
    }
    return zo_fold("rope_backward", stream, args->d_bias, args->workspace,
                   parts, width, args->add);
}
