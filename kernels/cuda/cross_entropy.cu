/*
 * Cross-entropy over the vocabulary, with its gradient.
 *
 *   maths     kernels.h, zo_cross_entropy_args
 *   layout    a block a row, WIDTH logits a thread and round.  First pass: a
 *             running maximum and sum a thread, merged over the block.
 *             Second: the gradient
 *   traffic   L*V fp32 in (read a second time from L2: the rows under way
 *             are 260 kB each for V = 65024), L*V elements out
 *   bound by  memory
 *   measured  49 % of a device copy's rate, at 512 rows;
 *             bf16, ChatGLM2-6B, H200 (bench/RESULTS.md)
 *   limits    count < 2^31; any vocab (16-byte accesses for multiples of 8)
 *   same bits every run: yes (fixed trees)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/element.cuh"

namespace
{

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / ZO_WARP;

/* sum of exp(x - max) over the values seen */
struct softmax_state {
    float max, sum;
};

__device__ inline softmax_state merge(softmax_state a, softmax_state b)
{
    const float max = fmaxf(a.max, b.max);

    if (max == -INFINITY) {
        return {max, a.sum + b.sum}; /* nothing seen yet, or all -inf */
    }
    return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}

/* Merges over the block in a fixed tree; the same in every thread. */
__device__ softmax_state block_merge(softmax_state state)
{
    __shared__ softmax_state warps[WARPS];

#pragma unroll
    for (int offset = ZO_WARP / 2; offset > 0; offset /= 2) {
        const softmax_state other = {
            __shfl_xor_sync(0xffffffffu, state.max, offset),
            __shfl_xor_sync(0xffffffffu, state.sum, offset)};

        /* Lower lane first, so that both get the same bits. */
        state = (threadIdx.x & offset) == 0 ? merge(state, other)
                                            : merge(other, state);
    }
    if (threadIdx.x % ZO_WARP == 0) {
        warps[threadIdx.x / ZO_WARP] = state;
    }
    __syncthreads();
    state = warps[0];
    for (int i = 1; i < WARPS; i++) {
        state = merge(state, warps[i]);
    }
    return state;
}

/* WIDTH is ZO_GROUP, or 1 where rows are not so aligned. */
template <int WIDTH>
__device__ inline void load_logits(const float *from, float (&x)[WIDTH])
{
    if constexpr (WIDTH == ZO_GROUP) {
        load8(from, x);
    } else {
        x[0] = from[0];
    }
}

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_kernel(const zo_cross_entropy_args args)
{
    const int64_t row = blockIdx.x;
    const int64_t label = args.label[row];
    const float *logits = args.logits + row * args.vocab;
    softmax_state state = {-INFINITY, 0.0f};

    for (int64_t v = (int64_t)threadIdx.x * WIDTH; v < args.vocab;
         v += THREADS * WIDTH) {
        float x[WIDTH], max;

        load_logits<WIDTH>(logits + v, x);
        max = x[0];
#pragma unroll
        for (int i = 1; i < WIDTH; i++) {
            max = fmaxf(max, x[i]);
        }
        if (max > state.max) {
            state.sum *= __expf(state.max - max);
            state.max = max;
        }

        /* As long as all were -inf: their sum is 0, and a NaN still shows. */
        const float base = state.max == -INFINITY ? 0.0f : state.max;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            state.sum += __expf(x[i] - base);
        }
    }
    state = block_merge(state);
    if (threadIdx.x == 0) {
        args.loss[row] = logf(state.sum) - (logits[label] - state.max);
    }
    if (args.d_logits == nullptr) {
        return;
    }

    T *d_logits = static_cast<T *>(args.d_logits) + row * args.vocab;
    const float factor = args.scale / state.sum;
    for (int64_t v = (int64_t)threadIdx.x * WIDTH; v < args.vocab;
         v += THREADS * WIDTH) {
        float x[WIDTH];

        load_logits<WIDTH>(logits + v, x);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            x[i] = __expf(x[i] - state.max) * factor -
                   (v + i == label ? args.scale : 0.0f);
        }
        if constexpr (WIDTH == ZO_GROUP) {
            store8(d_logits + v, x);
        } else {
            d_logits[v] = from_float<T>(x[0]);
        }
    }
}

} /* namespace */

extern "C" enum zo_status
zo_cuda_cross_entropy(struct zo_kernels *, struct zo_stream *stream,
                      const struct zo_cross_entropy_args *args)
{
    unsigned grid = 0;

    if (args->count == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x("cross_entropy", args->count, &grid));
    zo_by_type(args->type, [&](auto tag) {
        using T = typename decltype(tag)::type;

        if (args->vocab % ZO_GROUP == 0) {
            cross_entropy_kernel<T, ZO_GROUP>
                <<<grid, THREADS, 0, zo_stream_cuda_native(stream)>>>(*args);
        } else {
            cross_entropy_kernel<T, 1>
                <<<grid, THREADS, 0, zo_stream_cuda_native(stream)>>>(*args);
        }
    });
    return ZO_LAUNCH_STATUS("cross_entropy");
}
