/*
 * Causal attention, backward, on the tensor cores of sm_80 and later.
 *
 *   maths     attention_backward.cu
 *   layout    d_q: a block a head and 64 queries, a warp 16 of these, which
 *             walks tiles of 64 keys.  d_k and d_v: a block 64 keys and a
 *             part of a group's heads, a warp 16 keys, which walks the heads
 *             and their tiles of 32 queries; scores are computed transposed,
 *             so that no tile of them leaves the registers.  A tile is under
 *             way while one is used
 *   traffic   d_q reads T*2*H*D, and keys and values from L2; d_k and d_v the
 *             reverse, and write their fp32 partial sums
 *   bound by  arithmetic: 14 D flops a query and key, of which 10 D are the
 *             formula and 4 D the second computation of the scores: the
 *             price of sums in order without another pass through memory
 *   limits    as attention_mma.cu
 *   same bits every run: yes (no atomics; keys, queries and heads in order)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tile.cuh"

namespace
{

constexpr int WARPS = 4;
constexpr int THREADS = WARPS * ZO_WARP;
constexpr int ROWS = WARPS * 16; /* of a block: its queries, or its keys */
constexpr int KEYS = 64;         /* of a tile that d_q walks */
constexpr int QUERIES = 32;      /* of a tile that d_k and d_v walk */

/* 16-byte units of a row in shared memory. */
template <int D> constexpr int UNITS = D / ZO_GROUP;

/* d_q: queries and their d_out, and two stages of keys and values. */
template <int D>
constexpr int Q_BYTES = (2 * ROWS + 4 * KEYS) * UNITS<D> *(int)sizeof(uint4);

/* d_k and d_v: keys and values, and two stages of queries, their d_out, lse
 * and delta. */
template <int D>
constexpr int
    KV_BYTES = (2 * ROWS + 4 * QUERIES) * UNITS<D> *(int)sizeof(uint4) +
               4 * QUERIES *(int)sizeof(float);

/* Where the parts of a token's qkv and d_qkv begin, in elements. */
struct qkv_layout {
    int64_t width, k, v; /* of a token; of the keys and values in it */
};

template <int D>
__device__ inline qkv_layout layout_of(const zo_attention_backward_args &args)
{
    const int64_t k = args.heads * D, v = k + args.groups * D;

    return {v + args.groups * D, k, v};
}

/* d_scores out of scores and d_out . v, for one element. */
__device__ inline float d_score(float p, float d_p, float delta)
{
    return p * (d_p - delta);
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    d_q_kernel(const zo_attention_backward_args args, const float *delta,
               int64_t tiles)
{
    extern __shared__ uint4 shared[];
    const int64_t head = blockIdx.x % args.heads;
    const int64_t flat = blockIdx.x / args.heads, row = flat % args.rows;
    const int64_t start = args.row_start[row];
    const int length = args.row_start[row + 1] - (int)start;
    const int first = (int)(tiles - 1 - flat / args.rows) * ROWS;
    const int warp = threadIdx.x / ZO_WARP, lane = threadIdx.x % ZO_WARP;
    const qkv_layout layout = layout_of<D>(args);
    const T *qkv = static_cast<const T *>(args.qkv) + start * layout.width;
    const T *keys =
        qkv + layout.k + head / (args.heads / args.groups) * (int64_t)D;
    uint4 *queries = shared, *d_outs = shared + ROWS * UNITS<D>;
    uint4 *stages = shared + 2 * ROWS * UNITS<D>;

    if (first >= length) {
        return;
    }
    tile_copy<T, D, ROWS, THREADS>(queries,
                                   qkv + first * layout.width + head * D,
                                   layout.width, length - first);
    tile_copy<T, D, ROWS, THREADS>(d_outs,
                                   static_cast<const T *>(args.d_out) +
                                       ((start + first) * args.heads + head) *
                                           D,
                                   args.heads * D, length - first);
    tile_copy<T, D, KEYS, THREADS>(stages, keys, layout.width, length);
    tile_copy<T, D, KEYS, THREADS>(stages + KEYS * UNITS<D>,
                                   keys + (layout.v - layout.k), layout.width,
                                   length);
    copy_async_commit();

    /* The lane's two queries; those behind the row's end have p = 0. */
    const int query = first + warp * 16 + lane / 4;
    const float scale_log2 = args.scale * ZO_LOG2E;
    float lse_log2[2], own_delta[2], d_q[D / 8][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = query + half * 8;
        const int64_t index = head * args.tokens + start + at;

        lse_log2[half] = at < length ? args.lse[index] * ZO_LOG2E : INFINITY;
        own_delta[half] = at < length ? delta[index] : 0.0f;
    }

    const int end = first + ROWS < length ? first + ROWS : length;
    const int steps = (end + KEYS - 1) / KEYS;
    for (int step = 0; step < steps; step++) {
        const uint4 *tile = stages + step % 2 * 2 * KEYS * UNITS<D>;
        const int key = step * KEYS;
        float p[KEYS / 8][4] = {}, d_p[KEYS / 8][4] = {};

        copy_async_wait<0>();
        __syncthreads(); /* this tile is here; the other one is free */
        if (step + 1 < steps) {
            uint4 *next = stages + (step + 1) % 2 * 2 * KEYS * UNITS<D>;
            const T *from = keys + (key + KEYS) * layout.width;

            tile_copy<T, D, KEYS, THREADS>(next, from, layout.width,
                                           length - key - KEYS);
            tile_copy<T, D, KEYS, THREADS>(next + KEYS * UNITS<D>,
                                           from + (layout.v - layout.k),
                                           layout.width, length - key - KEYS);
            copy_async_commit();
        }
        multiply_rows<T, D, KEYS / 8>(
            p,
            [&](uint32_t(&a)[4], int k) {
                tile_left<D>(a, queries, warp * 16, k);
            },
            tile);
        multiply_rows<T, D, KEYS / 8>(
            d_p,
            [&](uint32_t(&a)[4], int k) {
                tile_left<D>(a, d_outs, warp * 16, k);
            },
            tile + KEYS * UNITS<D>);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = key + n * 8 + lane % 4 * 2 + i % 2;
                const bool is_seen = column <= query + i / 2 * 8;
                const float e =
                    exp2_fast(p[n][i] * scale_log2 - lse_log2[i / 2]);

                p[n][i] =
                    is_seen ? d_score(e, d_p[n][i], own_delta[i / 2]) : 0.0f;
            }
        }
        multiply_columns<T, D, KEYS / 8>(d_q, p, tile);
    }

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = query + half * 8;
        T *to = static_cast<T *>(args.d_qkv) + (start + at) * layout.width +
                head * D + lane % 4 * 2;

        if (at < length) {
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                *reinterpret_cast<uint32_t *>(to + n * 8) =
                    pack2<T>(d_q[n][2 * half] * args.scale,
                             d_q[n][2 * half + 1] * args.scale);
            }
        }
    }
}

/* What a block of d_k and d_v walks: heads, and of each the query tiles from
 * the first that sees its keys. */
struct walk {
    int64_t head; /* the first */
    int heads;    /* how many */
    int first;    /* query of the first tile */
    int tiles;    /* of a head */
};

template <typename T, int D>
__device__ inline void copy_queries(const zo_attention_backward_args &args,
                                    const float *delta, const walk &walk,
                                    int step, int64_t start, int length,
                                    uint4 *tile, float *numbers)
{
    const qkv_layout layout = layout_of<D>(args);
    const int64_t head = walk.head + step / walk.tiles;
    const int query = walk.first + step % walk.tiles * QUERIES;
    const int64_t token = start + query;

    tile_copy<T, D, QUERIES, THREADS>(tile,
                                      static_cast<const T *>(args.qkv) +
                                          token * layout.width + head * D,
                                      layout.width, length - query);
    tile_copy<T, D, QUERIES, THREADS>(tile + QUERIES * UNITS<D>,
                                      static_cast<const T *>(args.d_out) +
                                          (token * args.heads + head) * D,
                                      args.heads * D, length - query);
    for (int i = threadIdx.x; i < 2 * QUERIES; i += THREADS) {
        const float *from = i < QUERIES ? args.lse : delta;
        const int at = i % QUERIES;
        const bool is_valid = query + at < length;

        copy_async_4(numbers + i,
                     from + head * args.tokens + token + (is_valid ? at : 0),
                     is_valid);
    }
    copy_async_commit();
}

/* A lane's two keys of d_k or d_v, as partial sums or as the gradient. */
template <typename T, int D>
__device__ inline void store_keys(const zo_attention_backward_args &args,
                                  float *partial, int64_t token, int valid,
                                  int64_t group, int64_t column, float factor,
                                  const float (&sums)[D / 8][4])
{
    const int64_t width = layout_of<D>(args).width;
    const int pair = threadIdx.x % 4 * 2;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t at = token + half * 8;

        if (half * 8 >= valid) {
            break;
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const float x = sums[n][2 * half], y = sums[n][2 * half + 1];

            if (partial != nullptr) {
                *reinterpret_cast<float2 *>(
                    partial + (at * args.groups + group) * D + n * 8 + pair) =
                    make_float2(x, y);
            } else {
                *reinterpret_cast<uint32_t *>(
                    static_cast<T *>(args.d_qkv) + at * width + column + n * 8 +
                    pair) = pack2<T>(x * factor, y * factor);
            }
        }
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    d_kv_kernel(const zo_attention_backward_args args, const float *delta,
                float *partials, zo_attention_split split)
{
    extern __shared__ uint4 shared[];
    const int64_t share = blockIdx.x % (args.groups * split.parts);
    const int64_t flat = blockIdx.x / (args.groups * split.parts);
    const int64_t group = share / split.parts;
    const int part = (int)(share % split.parts);
    const int64_t start = args.row_start[flat % args.rows];
    const int length = args.row_start[flat % args.rows + 1] - (int)start;
    const int first = (int)(flat / args.rows) * ROWS;
    const int warp = threadIdx.x / ZO_WARP, lane = threadIdx.x % ZO_WARP;
    const int per_group = (int)(args.heads / args.groups);
    const qkv_layout layout = layout_of<D>(args);
    uint4 *keys = shared, *values = shared + ROWS * UNITS<D>;
    uint4 *stages = shared + 2 * ROWS * UNITS<D>;
    float *numbers = reinterpret_cast<float *>(stages + 4 * QUERIES * UNITS<D>);

    if (first >= length) {
        return;
    }
    const int left = per_group - part * split.heads;
    const walk walk = {group * per_group + part * split.heads,
                       left < split.heads ? left : split.heads, first,
                       (length - first + QUERIES - 1) / QUERIES};
    const T *from = static_cast<const T *>(args.qkv) +
                    (start + first) * layout.width + group * D;
    tile_copy<T, D, ROWS, THREADS>(keys, from + layout.k, layout.width,
                                   length - first);
    tile_copy<T, D, ROWS, THREADS>(values, from + layout.v, layout.width,
                                   length - first);
    copy_queries<T, D>(args, delta, walk, 0, start, length, stages, numbers);

    const int key = first + warp * 16 + lane / 4; /* and key + 8 */
    const float scale_log2 = args.scale * ZO_LOG2E;
    const int steps = walk.heads * walk.tiles;
    float d_k[D / 8][4] = {}, d_v[D / 8][4] = {};
    for (int step = 0; step < steps; step++) {
        const uint4 *tile = stages + step % 2 * 2 * QUERIES * UNITS<D>;
        const float *lse = numbers + step % 2 * 2 * QUERIES;
        const int query = walk.first + step % walk.tiles * QUERIES;
        float p[QUERIES / 8][4] = {}, d_p[QUERIES / 8][4] = {};

        copy_async_wait<0>();
        __syncthreads(); /* this tile is here; the other one is free */
        if (step + 1 < steps) {
            copy_queries<T, D>(args, delta, walk, step + 1, start, length,
                               stages + (step + 1) % 2 * 2 * QUERIES * UNITS<D>,
                               numbers + (step + 1) % 2 * 2 * QUERIES);
        }
        multiply_rows<T, D, QUERIES / 8>(
            p,
            [&](uint32_t(&a)[4], int k) {
                tile_left<D>(a, keys, warp * 16, k);
            },
            tile);
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = n * 8 + lane % 4 * 2 + i % 2;
                const bool is_seen =
                    query + at >= key + i / 2 * 8 && query + at < length;

                p[n][i] =
                    is_seen
                        ? exp2_fast(p[n][i] * scale_log2 - lse[at] * ZO_LOG2E)
                        : 0.0f;
            }
        }
        multiply_columns<T, D, QUERIES / 8>(d_v, p, tile + QUERIES * UNITS<D>);
        multiply_rows<T, D, QUERIES / 8>(
            d_p,
            [&](uint32_t(&a)[4], int k) {
                tile_left<D>(a, values, warp * 16, k);
            },
            tile + QUERIES * UNITS<D>);
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = n * 8 + lane % 4 * 2 + i % 2;

                p[n][i] = d_score(p[n][i], d_p[n][i], lse[QUERIES + at]);
            }
        }
        multiply_columns<T, D, QUERIES / 8>(d_k, p, tile);
    }

    const int64_t size = args.tokens * args.groups * D;
    float *partial = partials == nullptr ? nullptr : partials + part * size;
    store_keys<T, D>(args, partial, start + key, length - key, group,
                     layout.k + group * D, args.scale, d_k);
    if (partial != nullptr) {
        partial += split.parts * size;
    }
    store_keys<T, D>(args, partial, start + key, length - key, group,
                     layout.v + group * D, 1.0f, d_v);
}

template <typename T, int D> cudaError_t allow_shared()
{
    const cudaError_t error = cudaFuncSetAttribute(
        d_q_kernel<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
        Q_BYTES<D>);

    return error != cudaSuccess
               ? error
               : cudaFuncSetAttribute(
                     d_kv_kernel<T, D>,
                     cudaFuncAttributeMaxDynamicSharedMemorySize, KV_BYTES<D>);
}

struct grids {
    unsigned q, kv;
    int64_t tiles;
};

template <typename T, int D>
void launch(const zo_attention_backward_args &args,
            const zo_attention_scratch &scratch, const grids &grids,
            cudaStream_t stream)
{
    d_q_kernel<T, D><<<grids.q, THREADS, Q_BYTES<D>, stream>>>(
        args, scratch.delta, grids.tiles);
    d_kv_kernel<T, D><<<grids.kv, THREADS, KV_BYTES<D>, stream>>>(
        args, scratch.delta, scratch.partials,
        zo_attention_split_of(args.heads, args.groups));
}

template <typename T>
void launch_width(const zo_attention_backward_args &args,
                  const zo_attention_scratch &scratch, const grids &grids,
                  cudaStream_t stream)
{
    switch (args.head_width) {
    case 16:
        launch<T, 16>(args, scratch, grids, stream);
        return;
    case 32:
        launch<T, 32>(args, scratch, grids, stream);
        return;
    case 64:
        launch<T, 64>(args, scratch, grids, stream);
        return;
    default:
        launch<T, 128>(args, scratch, grids, stream);
        return;
    }
}

} /* namespace */

enum zo_status zo_attention_backward_mma_open(const struct zo_kernels *kernels)
{
    cudaError_t error = cudaSuccess;

    if (kernels->compute >= 80) { /* widths that ask for over 48 KiB */
        error = allow_shared<__nv_bfloat16, 64>();
        error = error != cudaSuccess ? error : allow_shared<__half, 64>();
        error =
            error != cudaSuccess ? error : allow_shared<__nv_bfloat16, 128>();
        error = error != cudaSuccess ? error : allow_shared<__half, 128>();
    }
    return zo_launch_status(__FILE__, __LINE__, "attention_backward", error);
}

enum zo_status
zo_attention_backward_mma(struct zo_stream *stream,
                          const struct zo_attention_backward_args *args,
                          const zo_attention_scratch &scratch)
{
    const int parts = zo_attention_split_of(args->heads, args->groups).parts;
    const int64_t tiles = zo_div_ceil(args->row_tokens_max, ROWS);
    const cudaStream_t native = zo_stream_cuda_native(stream);
    grids grids = {0, 0, tiles};

    ZO_TRY(zo_grid_x("attention_backward", tiles * args->rows * args->heads,
                     &grids.q));
    ZO_TRY(zo_grid_x("attention_backward",
                     tiles * args->rows * args->groups * parts, &grids.kv));
    if (args->type == ZO_BF16) {
        launch_width<__nv_bfloat16>(*args, scratch, grids, native);
    } else {
        launch_width<__half>(*args, scratch, grids, native);
    }
    return ZO_LAUNCH_STATUS("attention_backward");
}
