/*
 * Causal attention, backward: what its forms share, and the choice of one.
 *
 *   maths     kernels.h, zo_attention_backward_args.  With p = exp(s - lse)
 *             and delta = d_out . out: d_s = p (d_out . v - delta), and
 *             d_v = p^T d_out, d_k = scale d_s^T q, d_q = scale d_s k
 *   layout    delta: 16 lanes a token and head, 8 columns each.  fold: 8
 *             columns a thread
 *   traffic   delta: 2*T*H*D in.  fold: 2*parts*T*G*D fp32 in, 2*T*G*D out
 *   bound by  memory
 *   forms     attention_backward_plain() in attention_plain.cu,
 *             attention_backward_mma.cu, attention_backward_hopper.cu
 *   same bits every run: yes (parts are added in order)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/attention.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int LANES = 16; /* of a head */

/* delta[h][t] for tokens of a row; others get their gradient, zero. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    delta_kernel(const zo_attention_backward_args args, float *delta)
{
    const int64_t token = blockIdx.x, width = args.head_width;
    const int64_t row_width = (args.heads + 2 * args.groups) * width;
    const int lane = threadIdx.x % LANES;

    if (zo_attention_row_of(args.row_start, args.rows, token) < 0) {
        T *d_qkv = static_cast<T *>(args.d_qkv) + token * row_width;

        for (int64_t c = threadIdx.x; c < row_width; c += THREADS) {
            d_qkv[c] = from_float<T>(0.0f);
        }
        return;
    }
    /* A whole warp goes round together, for its shuffles. */
    for (int64_t first = 0; first < args.heads; first += THREADS / LANES) {
        const int64_t head = first + threadIdx.x / LANES;
        const int64_t at = (token * args.heads + head) * width;
        const T *d_out = static_cast<const T *>(args.d_out) + at;
        const T *out = static_cast<const T *>(args.out) + at;
        const int64_t end = head < args.heads ? width : 0;
        const bool is_grouped = width % ZO_GROUP == 0;
        const int64_t groups = is_grouped ? end / ZO_GROUP : 0;
        float sum = 0.0f;

        for (int64_t g = lane; g < groups; g += LANES) {
            float a[ZO_GROUP], b[ZO_GROUP];

            load8(d_out + g * ZO_GROUP, a);
            load8(out + g * ZO_GROUP, b);
#pragma unroll
            for (int i = 0; i < ZO_GROUP; i++) {
                sum += a[i] * b[i];
            }
        }
        for (int64_t c = groups * ZO_GROUP + lane; c < end; c += LANES) {
            sum += to_float(d_out[c]) * to_float(out[c]);
        }
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        }
        if (lane == 0 && head < args.heads) {
            delta[head * args.tokens + token] = sum;
        }
    }
}

/* The keys' and values' parts of d_qkv out of the partial sums. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    fold_parts_kernel(const zo_attention_backward_args args,
                      const float *partials, int parts)
{
    const int64_t width = args.groups * args.head_width;
    const int64_t index =
        ((int64_t)blockIdx.x * THREADS + threadIdx.x) * ZO_GROUP;
    const int64_t token = index / (2 * width), column = index % (2 * width);
    const bool is_value = column >= width;
    const int64_t size = args.tokens * width;
    float sum[ZO_GROUP] = {};

    if (token >= args.tokens || token < args.row_start[0] ||
        token >= args.row_start[args.rows]) {
        return;
    }
    partials += (is_value ? parts * size : 0) + token * width + column % width;
    for (int part = 0; part < parts; part++) {
        float x[ZO_GROUP];

        load8(partials + part * size, x);
#pragma unroll
        for (int i = 0; i < ZO_GROUP; i++) {
            sum[i] += x[i];
        }
    }
#pragma unroll
    for (int i = 0; i < ZO_GROUP; i++) {
        sum[i] *= is_value ? 1.0f : args.scale;
    }
    store8(static_cast<T *>(args.d_qkv) +
               token * (args.heads * args.head_width + 2 * width) +
               args.heads * args.head_width + column,
           sum);
}

uint64_t delta_bytes(int64_t tokens, int64_t heads)
{
    return zo_round_up((uint64_t)(tokens * heads) * sizeof(float), 256);
}

enum zo_status fold_parts(struct zo_stream *stream,
                          const struct zo_attention_backward_args *args,
                          const float *partials, int parts)
{
    const int64_t elems = 2 * args->tokens * args->groups * args->head_width;
    unsigned grid = 0;

    ZO_TRY(zo_grid_x("attention_backward",
                     zo_div_ceil(elems, THREADS * ZO_GROUP), &grid));
    zo_by_type(args->type, [&](auto tag) {
        using T = typename decltype(tag)::type;

        fold_parts_kernel<T>
            <<<grid, THREADS, 0, zo_stream_cuda_native(stream)>>>(
                *args, partials, parts);
    });
    return ZO_LAUNCH_STATUS("attention_backward");
}

} /* namespace */

extern "C" uint64_t zo_cuda_attention_backward_workspace(int64_t tokens,
                                                         int64_t heads,
                                                         int64_t groups,
                                                         int64_t head_width)
{
    const int parts = zo_attention_split_of(heads, groups).parts;
    const uint64_t partials =
        parts > 1 ? 2 * (uint64_t)parts *
                        (uint64_t)(tokens * groups * head_width) * sizeof(float)
                  : 0;

    return delta_bytes(tokens, heads) + partials;
}

extern "C" enum zo_status
zo_cuda_attention_backward(struct zo_kernels *kernels, struct zo_stream *stream,
                           const struct zo_attention_backward_args *args)
{
    const int parts = zo_attention_split_of(args->heads, args->groups).parts;
    char *workspace = static_cast<char *>(args->workspace);
    zo_attention_scratch scratch = {};
    unsigned grid = 0;

    if (args->tokens == 0) {
        return ZO_OK;
    }
    scratch.delta = reinterpret_cast<float *>(workspace);
    ZO_TRY(zo_grid_x("attention_backward", args->tokens, &grid));
    zo_by_type(args->type, [&](auto tag) {
        using T = typename decltype(tag)::type;

        delta_kernel<T><<<grid, THREADS, 0, zo_stream_cuda_native(stream)>>>(
            *args, scratch.delta);
    });
    ZO_TRY(ZO_LAUNCH_STATUS("attention_backward"));
    if (args->rows == 0 || args->row_tokens_max == 0) {
        return ZO_OK;
    }
    if (!zo_attention_has_tiles(kernels, args->head_width, args->type,
                                args->scale)) {
        return zo_attention_backward_plain(stream, args, scratch);
    }
    if (parts > 1) {
        scratch.partials = reinterpret_cast<float *>(
            workspace + delta_bytes(args->tokens, args->heads));
    }
    if (zo_attention_has_hopper(kernels) && args->head_width == 128) {
        ZO_TRY(zo_attention_backward_hopper(kernels, stream, args, scratch));
    } else {
        ZO_TRY(zo_attention_backward_mma(stream, args, scratch));
    }
    if (parts > 1) {
        return fold_parts(stream, args, scratch.partials, parts);
    }
    return ZO_OK;
}
