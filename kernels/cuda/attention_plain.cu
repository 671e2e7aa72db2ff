/*
 * Causal attention, forward and backward, without tensor cores.
 *
 *   maths     kernels.h, zo_attention_args, zo_attention_backward_args
 *   layout    forward and d_q: a warp a query and head, whose lanes share out
 *             the head width and which walks the keys.  d_k and d_v: a warp a
 *             key and group, which walks the group's heads and their queries.
 *             Neighbouring warps read the same keys, from L1
 *   traffic   T * (2 H + 2 G) * D elements through device memory; the keys of
 *             each query through L1
 *   bound by  L1 and the warp sums; about 3 TFLOP/s.  For fp32, for head
 *             widths without tiles, and for GPUs before sm_80
 *   limits    head width up to 1024; tokens * heads < 2^34
 *   same bits every run: yes (each result is one warp's, in order)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/attention.cuh"

namespace
{

constexpr int WARPS = 8;
constexpr int KEYS = 4; /* walked together, to have their loads in flight */

/* A lane's share of a row of D elements: lane, lane + 32, ... */
template <typename T, int SHARE>
__device__ inline void load_share(const T *row, int64_t width,
                                  float (&values)[SHARE])
{
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        const int64_t column = threadIdx.x % ZO_WARP + i * ZO_WARP;

        values[i] = column < width ? to_float(row[column]) : 0.0f;
    }
}

template <typename T, int SHARE>
__device__ inline void store_share(T *row, int64_t width,
                                   const float (&values)[SHARE], float factor)
{
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        const int64_t column = threadIdx.x % ZO_WARP + i * ZO_WARP;

        if (column < width) {
            row[column] = from_float<T>(values[i] * factor);
        }
    }
}

template <int SHARE>
__device__ inline float dot(const float (&a)[SHARE], const float (&b)[SHARE])
{
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        sum += a[i] * b[i];
    }
    return warp_sum(sum);
}

template <typename T, int SHARE>
__global__ void __launch_bounds__(WARPS *ZO_WARP)
    attention_kernel(const zo_attention_args args)
{
    const int64_t width = args.head_width;
    const int64_t head = blockIdx.x % args.heads;
    const int64_t token =
        blockIdx.x / args.heads * WARPS + threadIdx.x / ZO_WARP;
    const int64_t column = head / (args.heads / args.groups) * width;
    T *out = static_cast<T *>(args.out) + (token * args.heads + head) * width;
    float q[SHARE], sums[SHARE] = {}, max = -INFINITY, sum = 0.0f;

    if (token >= args.tokens) {
        return;
    }
    const int64_t row = zo_attention_row_of(args.row_start, args.rows, token);
    if (row < 0) {
        store_share(out, width, sums, 0.0f);
        if (threadIdx.x % ZO_WARP == 0) {
            args.lse[head * args.tokens + token] = 0.0f;
        }
        return;
    }
    const zo_attention_row at = zo_attention_row_at(args, row);
    const int seen = (int)(token - at.q_start) + 1 + at.kv_length - at.q_length;
    const T *k = static_cast<const T *>(args.k) +
                 at.kv_start * args.kv_stride_elems + column;
    const T *v = static_cast<const T *>(args.v) +
                 at.kv_start * args.kv_stride_elems + column;

    load_share(static_cast<const T *>(args.q) + token * args.q_stride_elems +
                   head * width,
               width, q);
    for (int first = 0; first < seen; first += KEYS) {
        float score[KEYS], max_new = max;

#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            float key[SHARE];

            score[j] = -INFINITY;
            if (first + j < seen) {
                load_share(k + (first + j) * args.kv_stride_elems, width, key);
                score[j] = args.scale * dot(q, key);
            }
            max_new = fmaxf(max_new, score[j]);
        }

        const float shrink = expf(max - max_new);
        sum *= shrink;
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            sums[i] *= shrink;
        }
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            float value[SHARE];

            if (first + j < seen) {
                const float p = expf(score[j] - max_new);

                load_share(v + (first + j) * args.kv_stride_elems, width,
                           value);
                sum += p;
#pragma unroll
                for (int i = 0; i < SHARE; i++) {
                    sums[i] += p * value[i];
                }
            }
        }
        max = max_new;
    }
    store_share(out, width, sums, sum > 0.0f ? 1.0f / sum : 0.0f);
    if (threadIdx.x % ZO_WARP == 0) {
        args.lse[head * args.tokens + token] = max + logf(sum);
    }
}

/* Where the parts of a token's qkv and d_qkv begin, in elements. */
struct qkv_layout {
    int64_t width, k, v; /* of a token; of the keys and values in it */
};

__device__ inline qkv_layout layout_of(const zo_attention_backward_args &args)
{
    const int64_t k = args.heads * args.head_width;
    const int64_t v = k + args.groups * args.head_width;

    return {v + args.groups * args.head_width, k, v};
}

template <typename T, int SHARE>
__global__ void __launch_bounds__(WARPS *ZO_WARP)
    attention_d_q_kernel(const zo_attention_backward_args args,
                         const float *delta)
{
    const int64_t width = args.head_width;
    const qkv_layout layout = layout_of(args);
    const int64_t head = blockIdx.x % args.heads;
    const int64_t token =
        blockIdx.x / args.heads * WARPS + threadIdx.x / ZO_WARP;
    const int64_t column = head / (args.heads / args.groups) * width;
    const T *qkv = static_cast<const T *>(args.qkv);
    const T *d_out = static_cast<const T *>(args.d_out);
    float q[SHARE], d[SHARE], d_q[SHARE] = {};

    if (token >= args.tokens) {
        return;
    }
    const int64_t row = zo_attention_row_of(args.row_start, args.rows, token);
    if (row < 0) {
        return; /* cleared before */
    }
    const float lse = args.lse[head * args.tokens + token];
    const float own_delta = delta[head * args.tokens + token];

    load_share(qkv + token * layout.width + head * width, width, q);
    load_share(d_out + (token * args.heads + head) * width, width, d);
    for (int64_t key = args.row_start[row]; key <= token; key++) {
        const T *entry = qkv + key * layout.width + column;
        float k[SHARE], v[SHARE];

        load_share(entry + layout.k, width, k);
        load_share(entry + layout.v, width, v);
        const float p = expf(args.scale * dot(q, k) - lse);
        const float d_score = p * (dot(d, v) - own_delta);
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            d_q[i] += d_score * k[i];
        }
    }
    store_share(static_cast<T *>(args.d_qkv) + token * layout.width +
                    head * width,
                width, d_q, args.scale);
}

template <typename T, int SHARE>
__global__ void __launch_bounds__(WARPS *ZO_WARP)
    attention_d_kv_kernel(const zo_attention_backward_args args,
                          const float *delta)
{
    const int64_t width = args.head_width;
    const int64_t per_group = args.heads / args.groups;
    const qkv_layout layout = layout_of(args);
    const int64_t group = blockIdx.x % args.groups;
    const int64_t token =
        blockIdx.x / args.groups * WARPS + threadIdx.x / ZO_WARP;
    const T *qkv = static_cast<const T *>(args.qkv);
    const T *d_out = static_cast<const T *>(args.d_out);
    float k[SHARE], v[SHARE], d_k[SHARE] = {}, d_v[SHARE] = {};

    if (token >= args.tokens) {
        return;
    }
    const int64_t row = zo_attention_row_of(args.row_start, args.rows, token);
    if (row < 0) {
        return;
    }
    const int64_t end = args.row_start[row + 1];
    const int64_t own = token * layout.width + group * width;

    load_share(qkv + own + layout.k, width, k);
    load_share(qkv + own + layout.v, width, v);
    for (int64_t h = group * per_group; h < (group + 1) * per_group; h++) {
        for (int64_t query = token; query < end; query++) {
            float q[SHARE], d[SHARE];

            load_share(qkv + query * layout.width + h * width, width, q);
            load_share(d_out + (query * args.heads + h) * width, width, d);
            const float p = expf(args.scale * dot(q, k) -
                                 args.lse[h * args.tokens + query]);
            const float d_score =
                p * (dot(d, v) - delta[h * args.tokens + query]);
#pragma unroll
            for (int i = 0; i < SHARE; i++) {
                d_v[i] += p * d[i];
                d_k[i] += d_score * q[i];
            }
        }
    }
    T *d_qkv = static_cast<T *>(args.d_qkv) + own;
    store_share(d_qkv + layout.k, width, d_k, args.scale);
    store_share(d_qkv + layout.v, width, d_v, 1.0f);
}

template <int SHARE> struct share_tag {
    static constexpr int share = SHARE;
};

/* Calls launch() with the smallest share that covers a head's width. */
template <typename F> void by_share(int64_t head_width, F launch)
{
    if (head_width <= 2 * ZO_WARP) {
        launch(share_tag<2>());
    } else if (head_width <= 4 * ZO_WARP) {
        launch(share_tag<4>());
    } else {
        launch(share_tag<32>());
    }
}

} /* namespace */

enum zo_status zo_attention_plain(struct zo_stream *stream,
                                  const struct zo_attention_args *args)
{
    unsigned grid = 0;

    ZO_TRY(zo_grid_x("attention",
                     zo_div_ceil(args->tokens, WARPS) * args->heads, &grid));
    zo_by_type(args->type, [&](auto type) {
        using T = typename decltype(type)::type;

        by_share(args->head_width, [&](auto share) {
            constexpr int SHARE = decltype(share)::share;

            attention_kernel<T, SHARE>
                <<<grid, WARPS * ZO_WARP, 0, zo_stream_cuda_native(stream)>>>(
                    *args);
        });
    });
    return ZO_LAUNCH_STATUS("attention");
}

enum zo_status
zo_attention_backward_plain(struct zo_stream *stream,
                            const struct zo_attention_backward_args *args,
                            const zo_attention_scratch &scratch)
{
    const int64_t blocks = zo_div_ceil(args->tokens, WARPS);
    const cudaStream_t native = zo_stream_cuda_native(stream);
    unsigned q_grid = 0, kv_grid = 0;

    ZO_TRY(zo_grid_x("attention_backward", blocks * args->heads, &q_grid));
    ZO_TRY(zo_grid_x("attention_backward", blocks * args->groups, &kv_grid));
    zo_by_type(args->type, [&](auto type) {
        using T = typename decltype(type)::type;

        by_share(args->head_width, [&](auto share) {
            constexpr int SHARE = decltype(share)::share;

            attention_d_q_kernel<T, SHARE>
                <<<q_grid, WARPS * ZO_WARP, 0, native>>>(*args, scratch.delta);
            attention_d_kv_kernel<T, SHARE>
                <<<kv_grid, WARPS * ZO_WARP, 0, native>>>(*args, scratch.delta);
        });
    });
    return ZO_LAUNCH_STATUS("attention_backward");
}
