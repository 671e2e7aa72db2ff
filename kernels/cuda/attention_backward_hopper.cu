/*
 * Causal attention, backward, for sm_90.
 *
 *   maths     attention_backward.cu
 *   layout    d_q: a block 128 queries and a head, which walks tiles of 128
 *             keys.  d_k and d_v: a block 128 keys and a part of a group's
 *             heads, which walks the heads and their tiles of 64 queries;
 *             scores are computed transposed, so that what the next product
 *             takes is in registers.  In both, one warp fetches tiles into a
 *             ring, and two warp groups multiply
 *   traffic   d_q reads T*2*H*D, and keys and values from L2; d_k and d_v the
 *             reverse, and write their fp32 partial sums
 *   bound by  arithmetic: 14 D flops a query and key, 10 D of the formula and
 *             4 D for the scores' second time: the price of sums in order
 *             without another pass through memory
 *   limits    head width 128, bf16 and fp16, scale above 0
 *   same bits every run: yes (no atomics; keys, queries and heads in order)
 *   tested by tests/test_kernels_cuda_attention.c; timed by
 *             bench/bench_kernels.c
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper.cuh"

namespace
{

constexpr int THREADS = 3 * ZO_WARP_GROUP;
constexpr int CONSUMER_WARPS = 2 * ZO_WARP_GROUP / ZO_WARP;
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int ROWS = 128; /* of a block: its queries, or its keys */
constexpr int TILE_BYTES = ROWS * ZO_ROW_BYTES;

struct maps {
    CUtensorMap qkv, d_out;
};

/* ---- d_q --------------------------------------------------------------- */

constexpr int Q_STAGES = 2;

/* Shared memory, from a multiple of 1024 bytes. */
struct alignas(1024) q_blocks {
    unsigned char queries[TILE_BYTES]; /* in the end: d_q */
    unsigned char d_outs[TILE_BYTES];
    unsigned char keys[Q_STAGES][TILE_BYTES];
    unsigned char values[Q_STAGES][TILE_BYTES];
    uint64_t queries_full;
    uint64_t keys_full[Q_STAGES], keys_empty[Q_STAGES];
    uint64_t values_full[Q_STAGES], values_empty[Q_STAGES];
};
constexpr int Q_BYTES = sizeof(q_blocks) + 1024;

/* What a block of d_q does. */
struct q_work {
    int64_t head, start; /* of the row */
    int first, length;   /* first query in the row, tokens of the row */
    int steps;           /* key tiles */
};

__device__ inline void q_produce(q_blocks &shared, const maps &maps,
                                 const zo_attention_backward_args &args,
                                 const q_work &work)
{
    const int row = (int)work.start;
    const int column = (int)work.head * ZO_WIDTH;
    const int key_column =
        (int)(args.heads + work.head / (args.heads / args.groups)) * ZO_WIDTH;
    const int value_column = key_column + (int)args.groups * ZO_WIDTH;
    ring_place<Q_STAGES> ring;

    barrier_arrive_expect(&shared.queries_full, 2 * TILE_BYTES);
    tile_fetch<ROWS>(shared.queries, &maps.qkv, column, row + work.first,
                     &shared.queries_full);
    tile_fetch<ROWS>(shared.d_outs, &maps.d_out, column, row + work.first,
                     &shared.queries_full);
    for (int step = 0; step < work.steps; step++) {
        const int stage = ring.stage;

        barrier_wait(&shared.keys_empty[stage], ring.parity ^ 1);
        barrier_arrive_expect(&shared.keys_full[stage], TILE_BYTES);
        tile_fetch<ROWS>(shared.keys[stage], &maps.qkv, key_column,
                         row + step * ROWS, &shared.keys_full[stage]);
        barrier_wait(&shared.values_empty[stage], ring.parity ^ 1);
        barrier_arrive_expect(&shared.values_full[stage], TILE_BYTES);
        tile_fetch<ROWS>(shared.values[stage], &maps.qkv, value_column,
                         row + step * ROWS, &shared.values_full[stage]);
        ring.advance();
    }
}

template <typename T>
__device__ inline void
q_store(q_blocks &shared, const zo_attention_backward_args &args,
        const q_work &work, int row, const float (&d_q)[64])
{
    const float factor[2] = {args.scale, args.scale};
    const int64_t width = (args.heads + 2 * args.groups) * ZO_WIDTH;
    const int lane = threadIdx.x % ZO_WARP;

    /* The whole warp group is done with these queries. */
    named_wait(threadIdx.x / ZO_WARP_GROUP, ZO_WARP_GROUP);
    tile_put<T, ROWS>(shared.queries, row, d_q, factor);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int own = row + i * 2 + lane / 16, unit = lane % 16;
        T *to = static_cast<T *>(args.d_qkv) +
                (work.start + work.first + own) * width + work.head * ZO_WIDTH;

        if (work.first + own < work.length) {
            reinterpret_cast<uint4 *>(to)[unit] =
                tile_get<ROWS>(shared.queries, own, unit);
        }
    }
}

template <typename T>
__device__ inline void q_consume(q_blocks &shared,
                                 const zo_attention_backward_args &args,
                                 const float *delta, const q_work &work)
{
    const int group = threadIdx.x / ZO_WARP_GROUP - 1;
    const int lane = threadIdx.x % ZO_WARP;
    const int row = group * 64 + threadIdx.x / ZO_WARP % 4 * 16;
    const int offset = group * 64 * ZO_HALF_BYTES;
    const float scale_log2 = args.scale * ZO_LOG2E;
    ring_place<Q_STAGES> ring;
    float d_q[64] = {}, lse_log2[2], own_delta[2];

    /* The lane's two queries; those behind the row's end have p = 0. */
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = work.first + row + lane / 4 + half * 8;
        const int64_t at = work.head * args.tokens + work.start + query;
        const bool is_valid = query < work.length;

        lse_log2[half] = is_valid ? args.lse[at] * ZO_LOG2E : INFINITY;
        own_delta[half] = is_valid ? delta[at] : 0.0f;
    }
    barrier_wait(&shared.queries_full, 0);
    for (int step = 0; step < work.steps; step++) {
        float scores[64], d_p[64];
        uint32_t left[32];

        barrier_wait(&shared.keys_full[ring.stage], ring.parity);
        products_begin();
        tile_product_rows<T, ROWS, ROWS>(scores, shared.queries + offset,
                                         shared.keys[ring.stage]);
        products_commit();
        barrier_wait(&shared.values_full[ring.stage], ring.parity);
        products_begin();
        tile_product_rows<T, ROWS, ROWS>(d_p, shared.d_outs + offset,
                                         shared.values[ring.stage]);
        products_commit();
        products_wait<1>();
        products_ready(scores);
#pragma unroll
        for (int i = 0; i < 64; i++) {
            scores[i] = exp2_fast(scores[i] * scale_log2 - lse_log2[i / 2 % 2]);
        }
        if (step == work.steps - 1) { /* the diagonal */
#pragma unroll
            for (int i = 0; i < 64; i++) {
                const int column = lane % 4 * 2 + i / 4 * 8 + i % 2;

                if (column > row + lane / 4 + i / 2 % 2 * 8) {
                    scores[i] = 0.0f;
                }
            }
        }
        products_wait<0>();
        products_ready(d_p);
        if (lane == 0) {
            barrier_arrive(&shared.values_empty[ring.stage]);
        }
#pragma unroll
        for (int i = 0; i < 64; i++) {
            scores[i] *= d_p[i] - own_delta[i / 2 % 2];
        }
        tile_pack<T>(left, scores);
        products_begin();
        tile_product_columns<T, ROWS>(d_q, left, shared.keys[ring.stage]);
        products_commit();
        products_wait<0>();
        products_ready(d_q);
        if (lane == 0) {
            barrier_arrive(&shared.keys_empty[ring.stage]);
        }
        ring.advance();
    }
    q_store<T>(shared, args, work, row, d_q);
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    d_q_hopper_kernel(const __grid_constant__ maps maps,
                      const zo_attention_backward_args args, const float *delta,
                      int64_t tiles)
{
    extern __shared__ unsigned char bytes[];
    q_blocks &shared = *reinterpret_cast<q_blocks *>(
        bytes + (1024 - shared_address(bytes) % 1024) % 1024);
    const int64_t flat = blockIdx.x / args.heads, row = flat % args.rows;
    q_work work;

    work.head = blockIdx.x % args.heads;
    work.start = args.row_start[row];
    work.length = args.row_start[row + 1] - (int)work.start;
    work.steps = (int)(tiles - flat / args.rows); /* the longest first */
    work.first = (work.steps - 1) * ROWS;
    if (work.first >= work.length) {
        return;
    }
    if (threadIdx.x == 0) {
        barrier_init(&shared.queries_full, 1);
        for (int i = 0; i < Q_STAGES; i++) {
            barrier_init(&shared.keys_full[i], 1);
            barrier_init(&shared.keys_empty[i], CONSUMER_WARPS);
            barrier_init(&shared.values_full[i], 1);
            barrier_init(&shared.values_empty[i], CONSUMER_WARPS);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < ZO_WARP_GROUP) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            q_produce(shared, maps, args, work);
        }
    } else {
        registers_raise<CONSUMER_REGISTERS>();
        q_consume<T>(shared, args, delta, work);
    }
}

/* ---- d_k and d_v -------------------------------------------------------- */

constexpr int KV_STAGES = 3;
constexpr int QUERIES = 64; /* of a tile that they walk */
constexpr int QUERY_BYTES = QUERIES * ZO_ROW_BYTES;

struct alignas(1024) kv_blocks {
    unsigned char keys[TILE_BYTES];
    unsigned char values[TILE_BYTES];
    unsigned char queries[KV_STAGES][QUERY_BYTES];
    unsigned char d_outs[KV_STAGES][QUERY_BYTES];
    float lse_log2[KV_STAGES][QUERIES]; /* +inf behind the row's end */
    float delta[KV_STAGES][QUERIES];
    uint64_t keys_full;
    uint64_t full[KV_STAGES], empty[KV_STAGES];
};
constexpr int KV_BYTES = sizeof(kv_blocks) + 1024;

/* What a block of d_k and d_v does: of each of its heads the query tiles from
 * the first that sees its keys. */
struct kv_work {
    int64_t start;     /* of the row */
    int first, length; /* first key in the row, tokens of the row */
    int group, part;
    int head, heads; /* the first, how many */
    int tiles;       /* of a head */
};

__device__ inline void kv_produce(kv_blocks &shared, const maps &maps,
                                  const zo_attention_backward_args &args,
                                  const float *delta, const kv_work &work)
{
    const int lane = threadIdx.x % ZO_WARP, row = (int)work.start;
    const int column = (int)(args.heads + work.group) * ZO_WIDTH;
    ring_place<KV_STAGES> ring;

    if (lane == 0) {
        barrier_arrive_expect(&shared.keys_full, 2 * TILE_BYTES);
        tile_fetch<ROWS>(shared.keys, &maps.qkv, column, row + work.first,
                         &shared.keys_full);
        tile_fetch<ROWS>(shared.values, &maps.qkv,
                         column + (int)args.groups * ZO_WIDTH, row + work.first,
                         &shared.keys_full);
    }
    for (int h = work.head; h < work.head + work.heads; h++) {
        for (int tile = 0; tile < work.tiles; tile++) {
            const int query = work.first + tile * QUERIES;
            const int stage = ring.stage;

            barrier_wait(&shared.empty[stage], ring.parity ^ 1);
            if (lane == 0) {
                barrier_arrive_expect(&shared.full[stage], 2 * QUERY_BYTES);
                tile_fetch<QUERIES>(shared.queries[stage], &maps.qkv,
                                    h * ZO_WIDTH, row + query,
                                    &shared.full[stage]);
                tile_fetch<QUERIES>(shared.d_outs[stage], &maps.d_out,
                                    h * ZO_WIDTH, row + query,
                                    &shared.full[stage]);
            }
#pragma unroll
            for (int i = lane; i < QUERIES; i += ZO_WARP) {
                const int64_t at = h * args.tokens + row + query + i;
                const bool is_valid = query + i < work.length;

                shared.lse_log2[stage][i] =
                    is_valid ? args.lse[at] * ZO_LOG2E : INFINITY;
                shared.delta[stage][i] = is_valid ? delta[at] : 0.0f;
            }
            barrier_arrive(&shared.full[stage]);
            ring.advance();
        }
    }
}

/* A warp's 16 keys of d_k or d_v, as partial sums or as the gradient. */
template <typename T>
__device__ inline void kv_store(const zo_attention_backward_args &args,
                                float *partial, const kv_work &work, int row,
                                int64_t column, float factor,
                                const float (&sums)[64])
{
    const int64_t width = (args.heads + 2 * args.groups) * ZO_WIDTH;
    const int lane = threadIdx.x % ZO_WARP;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int key = work.first + row + lane / 4 + half * 8;
        const int64_t token = work.start + key;

        if (key >= work.length) {
            break;
        }
#pragma unroll
        for (int n = 0; n < 16; n++) {
            const float x = sums[4 * n + 2 * half];
            const float y = sums[4 * n + 2 * half + 1];
            const int at = n * 8 + lane % 4 * 2;

            if (partial != nullptr) {
                *reinterpret_cast<float2 *>(
                    partial + (token * args.groups + work.group) * ZO_WIDTH +
                    at) = make_float2(x, y);
            } else {
                *reinterpret_cast<uint32_t *>(static_cast<T *>(args.d_qkv) +
                                              token * width + column + at) =
                    pack2<T>(x * factor, y * factor);
            }
        }
    }
}

/* Transposed scores become p, for the queries from `query` on. */
__device__ inline void kv_soften(float (&scores)[32], const float *lse_log2,
                                 int query, int key, float scale_log2)
{
    const int pair = threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float2 lse =
            *reinterpret_cast<const float2 *>(lse_log2 + n * 8 + pair);

#pragma unroll
        for (int i = 0; i < 4; i++) {
            scores[4 * n + i] = exp2_fast(scores[4 * n + i] * scale_log2 -
                                          (i % 2 == 0 ? lse.x : lse.y));
        }
    }
    if (query < key + 16) { /* some queries come before some of the keys */
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int own = key + threadIdx.x % ZO_WARP / 4 + i / 2 % 2 * 8;

            if (query + i / 4 * 8 + pair + i % 2 < own) {
                scores[i] = 0.0f;
            }
        }
    }
}

template <typename T>
__device__ inline void
kv_consume(kv_blocks &shared, const zo_attention_backward_args &args,
           float *partials, int parts, const kv_work &work)
{
    const int group = threadIdx.x / ZO_WARP_GROUP - 1;
    const int lane = threadIdx.x % ZO_WARP;
    const int row = group * 64 + threadIdx.x / ZO_WARP % 4 * 16;
    const int offset = group * 64 * ZO_HALF_BYTES;
    const float scale_log2 = args.scale * ZO_LOG2E;
    const int steps = work.heads * work.tiles;
    ring_place<KV_STAGES> ring;
    float d_k[64] = {}, d_v[64] = {};
    int tile = 0;

    barrier_wait(&shared.keys_full, 0);
    for (int step = 0; step < steps; step++) {
        const int stage = ring.stage;
        float scores[32], d_p[32];
        uint32_t p[16], d_s[16];

        barrier_wait(&shared.full[stage], ring.parity);
        products_begin();
        tile_product_rows<T, ROWS, QUERIES>(scores, shared.keys + offset,
                                            shared.queries[stage]);
        products_commit();
        tile_product_rows<T, ROWS, QUERIES>(d_p, shared.values + offset,
                                            shared.d_outs[stage]);
        products_commit();
        products_wait<1>();
        products_ready(scores);
        kv_soften(scores, shared.lse_log2[stage], work.first + tile * QUERIES,
                  work.first + row, scale_log2);
        tile_pack<T>(p, scores);
        products_begin();
        tile_product_columns<T, QUERIES>(d_v, p, shared.d_outs[stage]);
        products_commit();
        products_wait<1>();
        products_ready(d_p);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float2 delta = *reinterpret_cast<const float2 *>(
                shared.delta[stage] + n * 8 + lane % 4 * 2);

#pragma unroll
            for (int i = 0; i < 4; i++) {
                scores[4 * n + i] *=
                    d_p[4 * n + i] - (i % 2 == 0 ? delta.x : delta.y);
            }
        }
        tile_pack<T>(d_s, scores);
        products_begin();
        tile_product_columns<T, QUERIES>(d_k, d_s, shared.queries[stage]);
        products_commit();
        products_wait<0>();
        products_ready(d_k);
        products_ready(d_v);
        if (lane == 0) {
            barrier_arrive(&shared.empty[stage]);
        }
        ring.advance();
        tile = tile + 1 < work.tiles ? tile + 1 : 0;
    }

    const int64_t size = args.tokens * args.groups * ZO_WIDTH;
    const int64_t column = (args.heads + work.group) * ZO_WIDTH;
    float *partial =
        partials == nullptr ? nullptr : partials + work.part * size;
    kv_store<T>(args, partial, work, row, column, args.scale, d_k);
    kv_store<T>(args, partial == nullptr ? nullptr : partial + parts * size,
                work, row, column + args.groups * ZO_WIDTH, 1.0f, d_v);
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    d_kv_hopper_kernel(const __grid_constant__ maps maps,
                       const zo_attention_backward_args args,
                       const float *delta, float *partials,
                       zo_attention_split split)
{
    extern __shared__ unsigned char bytes[];
    kv_blocks &shared = *reinterpret_cast<kv_blocks *>(
        bytes + (1024 - shared_address(bytes) % 1024) % 1024);
    const int per_group = (int)(args.heads / args.groups);
    const int64_t shares = args.groups * split.parts;
    const int64_t flat = blockIdx.x / shares, row = flat % args.rows;
    kv_work work;

    work.group = (int)(blockIdx.x % shares) / split.parts;
    work.part = (int)(blockIdx.x % shares) % split.parts;
    work.start = args.row_start[row];
    work.length = args.row_start[row + 1] - (int)work.start;
    work.first = (int)(flat / args.rows) * ROWS; /* the longest first */
    work.head = work.group * per_group + work.part * split.heads;
    work.heads = per_group - work.part * split.heads;
    work.heads = work.heads < split.heads ? work.heads : split.heads;
    work.tiles = (work.length - work.first + QUERIES - 1) / QUERIES;
    if (work.first >= work.length) {
        return;
    }
    if (threadIdx.x == 0) {
        barrier_init(&shared.keys_full, 1);
        for (int i = 0; i < KV_STAGES; i++) {
            barrier_init(&shared.full[i], 1 + ZO_WARP);
            barrier_init(&shared.empty[i], CONSUMER_WARPS);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < ZO_WARP_GROUP) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x < ZO_WARP) {
            kv_produce(shared, maps, args, delta, work);
        }
    } else {
        registers_raise<CONSUMER_REGISTERS>();
        kv_consume<T>(shared, args, partials, split.parts, work);
    }
}

/* ---- host ---------------------------------------------------------------- */

template <typename T> cudaError_t allow_shared()
{
    const cudaError_t error = cudaFuncSetAttribute(
        d_q_hopper_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
        Q_BYTES);

    return error != cudaSuccess
               ? error
               : cudaFuncSetAttribute(
                     d_kv_hopper_kernel<T>,
                     cudaFuncAttributeMaxDynamicSharedMemorySize, KV_BYTES);
}

struct grids {
    unsigned q, kv;
    int64_t tiles;
};

template <typename T>
void launch(const maps &maps, const zo_attention_backward_args &args,
            const zo_attention_scratch &scratch, const grids &grids,
            cudaStream_t stream)
{
    d_q_hopper_kernel<T><<<grids.q, THREADS, Q_BYTES, stream>>>(
        maps, args, scratch.delta, grids.tiles);
    d_kv_hopper_kernel<T><<<grids.kv, THREADS, KV_BYTES, stream>>>(
        maps, args, scratch.delta, scratch.partials,
        zo_attention_split_of(args.heads, args.groups));
}

} /* namespace */

enum zo_status
zo_attention_backward_hopper_open(const struct zo_kernels *kernels)
{
    cudaError_t error = cudaSuccess;

    if (zo_attention_has_hopper(kernels)) {
        error = allow_shared<__nv_bfloat16>();
        error = error != cudaSuccess ? error : allow_shared<__half>();
    }
    return zo_launch_status(__FILE__, __LINE__, "attention_backward", error);
}

enum zo_status
zo_attention_backward_hopper(const struct zo_kernels *kernels,
                             struct zo_stream *stream,
                             const struct zo_attention_backward_args *args,
                             const zo_attention_scratch &scratch)
{
    const int parts = zo_attention_split_of(args->heads, args->groups).parts;
    const int64_t tiles = zo_div_ceil(args->row_tokens_max, ROWS);
    const int64_t width = (args->heads + 2 * args->groups) * ZO_WIDTH;
    const cudaStream_t native = zo_stream_cuda_native(stream);
    grids grids = {0, 0, tiles};
    maps maps;

    ZO_TRY(zo_grid_x("attention_backward", tiles * args->rows * args->heads,
                     &grids.q));
    ZO_TRY(zo_grid_x("attention_backward",
                     tiles * args->rows * args->groups * parts, &grids.kv));
    ZO_TRY(zo_map_rows(kernels, &maps.qkv, args->type, args->qkv, width,
                       args->tokens, width));
    ZO_TRY(zo_map_rows(kernels, &maps.d_out, args->type, args->d_out,
                       args->heads * ZO_WIDTH, args->tokens,
                       args->heads * ZO_WIDTH));
    if (args->type == ZO_BF16) {
        launch<__nv_bfloat16>(maps, *args, scratch, grids, native);
    } else {
        launch<__half>(maps, *args, scratch, grids, native);
    }
    return ZO_LAUNCH_STATUS("attention_backward");
}
