/*
 * Causal attention, forward, on the tensor cores of sm_80 and later.
 *
 *   maths     kernels.h, zo_attention_args, by the running softmax: no score
 *             leaves the registers
 *   layout    a block a head and 128 queries, a warp 16 of these; keys come
 *             in tiles of 64, one under way while one is used.  Tiles with
 *             most keys start first
 *   traffic   T * (2 H + 2 G) * D elements, keys from L2 for every 128 queries
 *   bound by  arithmetic: 4 D flops a query and key
 *   limits    head width 16, 32, 64, 128; bf16 and fp16; scale above 0; blocks
 *             (tiles of the longest row * rows * heads) < 2^31
 *   same bits every run: yes (keys in order)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tile.cuh"

namespace
{

constexpr int WARPS = 8;
constexpr int THREADS = WARPS * ZO_WARP;
constexpr int QUERIES = WARPS * 16;
constexpr int KEYS = 64;
constexpr int SCORES = KEYS / 8;

/* Two stages of keys and values; the queries pass through the second. */
template <int D> constexpr int TILE_UNITS = KEYS *D / ZO_GROUP;
template <int D>
constexpr int SHARED_BYTES = 4 * TILE_UNITS<D> *(int)sizeof(uint4);

static_assert(QUERIES <= 2 * KEYS, "the queries fit one stage");

/* A lane has two rows of the warp's 16, and a quarter of their columns. */
struct row_state {
    float max[2], sum[2];
};

/* The largest of four lanes, which share a row. */
__device__ inline float quad_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ inline float quad_sum(float value)
{
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/* Keys after a query's own become -inf.  `first` is the tile's first key,
 * `last` what the lane's upper row may see. */
__device__ inline void mask(float (&scores)[SCORES][4], int first, int last)
{
    const int column = first + threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < SCORES; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (column + n * 8 + i % 2 > last + i / 2 * 8) {
                scores[n][i] = -INFINITY;
            }
        }
    }
}

/* Scores become exp(score - max); what came before shrinks to the new max. */
template <int D>
__device__ inline void soften(float (&scores)[SCORES][4],
                              float (&out)[D / 8][4], row_state &state,
                              float scale_log2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float max = state.max[half], sum = 0.0f;

#pragma unroll
        for (int n = 0; n < SCORES; n++) {
            max =
                fmaxf(max, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        }
        max = quad_max(max);
        /* Where nothing was seen yet, exp2(-inf - 0) is 0 and not NaN. */
        const float base = max == -INFINITY ? 0.0f : max * scale_log2;
        const float shrink = exp2_fast(state.max[half] * scale_log2 - base);

#pragma unroll
        for (int n = 0; n < SCORES; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[n][i] = exp2_fast(scores[n][i] * scale_log2 - base);
                sum += scores[n][i];
            }
        }
        state.sum[half] = state.sum[half] * shrink + sum;
        state.max[half] = max;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            out[n][2 * half] *= shrink;
            out[n][2 * half + 1] *= shrink;
        }
    }
}

template <typename T, int D>
__device__ inline void
store(const zo_attention_args &args, int64_t head, const zo_attention_row &row,
      int query, const float (&out)[D / 8][4], const row_state &state)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = query + half * 8;
        const float sum = quad_sum(state.sum[half]);
        const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
        const int64_t token = row.q_start + at;

        if (at >= row.q_length) {
            continue;
        }
        T *to = static_cast<T *>(args.out) + (token * args.heads + head) * D +
                threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *reinterpret_cast<uint32_t *>(to + n * 8) = pack2<T>(
                out[n][2 * half] * factor, out[n][2 * half + 1] * factor);
        }
        if (threadIdx.x % 4 == 0) {
            args.lse[head * args.tokens + token] =
                state.max[half] * args.scale + logf(sum);
        }
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    attention_mma_kernel(const zo_attention_args args, int64_t tiles)
{
    extern __shared__ uint4 shared[];
    const int64_t head = blockIdx.x % args.heads;
    const int64_t group = head / (args.heads / args.groups);
    const int warp = threadIdx.x / ZO_WARP, lane = threadIdx.x % ZO_WARP;

    zo_attention_clear<T>(args);
    if (args.rows == 0) {
        return;
    }
    const int64_t flat = blockIdx.x / args.heads;
    const int first = (int)(tiles - 1 - flat / args.rows) * QUERIES;
    const zo_attention_row row = zo_attention_row_at(args, flat % args.rows);
    if (first >= row.q_length) {
        return;
    }

    const T *q = static_cast<const T *>(args.q) +
                 (row.q_start + first) * args.q_stride_elems + head * D;
    const T *k = static_cast<const T *>(args.k) +
                 row.kv_start * args.kv_stride_elems + group * D;
    const T *v = static_cast<const T *>(args.v) +
                 row.kv_start * args.kv_stride_elems + group * D;
    const int before = row.kv_length - row.q_length; /* keys of no query */
    const int end =
        first + QUERIES < row.q_length ? first + QUERIES : row.q_length;
    const int key_tiles = (end + before + KEYS - 1) / KEYS;
    const float scale_log2 = args.scale * ZO_LOG2E;
    constexpr int STAGE = 2 * TILE_UNITS<D>;
    uint32_t left[D / 16][4];
    float out[D / 8][4] = {};
    row_state state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};

    tile_copy<T, D, QUERIES, THREADS>(shared + STAGE, q, args.q_stride_elems,
                                      row.q_length - first);
    tile_copy<T, D, KEYS, THREADS>(shared, k, args.kv_stride_elems,
                                   row.kv_length);
    tile_copy<T, D, KEYS, THREADS>(shared + TILE_UNITS<D>, v,
                                   args.kv_stride_elems, row.kv_length);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        tile_left<D>(left[step], shared + STAGE, warp * 16, step);
    }

    /* The lane's upper row, and the last key that it may see. */
    const int query = first + warp * 16 + lane / 4;
    for (int tile = 0; tile < key_tiles; tile++) {
        const uint4 *keys = shared + tile % 2 * STAGE;
        const int key = tile * KEYS;
        float scores[SCORES][4] = {};

        copy_async_wait<0>();
        __syncthreads(); /* this tile is here; the other one is free */
        if (tile + 1 < key_tiles) {
            uint4 *next = shared + (tile + 1) % 2 * STAGE;
            const int64_t at = (int64_t)(key + KEYS) * args.kv_stride_elems;

            tile_copy<T, D, KEYS, THREADS>(next, k + at, args.kv_stride_elems,
                                           row.kv_length - key - KEYS);
            tile_copy<T, D, KEYS, THREADS>(next + TILE_UNITS<D>, v + at,
                                           args.kv_stride_elems,
                                           row.kv_length - key - KEYS);
            copy_async_commit();
        }
        if (key > first + warp * 16 + 15 + before) {
            continue; /* all of it comes after the warp's queries */
        }
        multiply_rows<T, D, SCORES>(
            scores,
            [&](uint32_t(&a)[4], int step) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[i] = left[step][i];
                }
            },
            keys);
        if (key + KEYS - 1 > first + warp * 16 + before) {
            mask(scores, key, query + before);
        }
        soften<D>(scores, out, state, scale_log2);
        multiply_columns<T, D, SCORES>(out, scores, keys + TILE_UNITS<D>);
    }
    store<T, D>(args, head, row, query, out, state);
}

template <typename T, int D> cudaError_t allow_shared()
{
    return cudaFuncSetAttribute(attention_mma_kernel<T, D>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                SHARED_BYTES<D>);
}

template <typename T>
void launch(const zo_attention_args &args, unsigned grid, int64_t tiles,
            cudaStream_t stream)
{
    switch (args.head_width) {
    case 16:
        attention_mma_kernel<T, 16>
            <<<grid, THREADS, SHARED_BYTES<16>, stream>>>(args, tiles);
        return;
    case 32:
        attention_mma_kernel<T, 32>
            <<<grid, THREADS, SHARED_BYTES<32>, stream>>>(args, tiles);
        return;
    case 64:
        attention_mma_kernel<T, 64>
            <<<grid, THREADS, SHARED_BYTES<64>, stream>>>(args, tiles);
        return;
    default:
        attention_mma_kernel<T, 128>
            <<<grid, THREADS, SHARED_BYTES<128>, stream>>>(args, tiles);
        return;
    }
}

} /* namespace */

enum zo_status zo_attention_mma_open(const struct zo_kernels *kernels)
{
    cudaError_t error = cudaSuccess;

    if (kernels->compute >= 80) { /* only width 128 asks for over 48 KiB */
        error = allow_shared<__nv_bfloat16, 128>();
        if (error == cudaSuccess) {
            error = allow_shared<__half, 128>();
        }
    }
    return zo_launch_status(__FILE__, __LINE__, "attention", error);
}

enum zo_status zo_attention_mma(struct zo_stream *stream,
                                const struct zo_attention_args *args)
{
    const int64_t tiles =
        zo_max_i64(1, zo_div_ceil(args->row_tokens_max, QUERIES));
    const cudaStream_t native = zo_stream_cuda_native(stream);
    unsigned grid = 0;

    ZO_TRY(zo_grid_x("attention",
                     tiles * zo_max_i64(1, args->rows) * args->heads, &grid));
    if (args->type == ZO_BF16) {
        launch<__nv_bfloat16>(*args, grid, tiles, native);
    } else {
        launch<__half>(*args, grid, tiles, native);
    }
    return ZO_LAUNCH_STATUS("attention");
}
