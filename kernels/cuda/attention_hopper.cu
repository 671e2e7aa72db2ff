/*
 * Causal attention, forward, for sm_90.
 *
 *   maths     kernels.h, zo_attention_args, by the running softmax
 *   layout    a block a multiprocessor, which takes tiles of 128 queries and
 *             a head, those with most keys first.  One thread of its first
 *             warp group fetches queries, and tiles of 128 keys and values
 *             into rings of two; two warp groups of 64 queries multiply.  A
 *             group's softmax runs beside its own product of the tile before
 *             and beside the other group's products: they take turns
 *   traffic   T * (2 H + 2 G) * D elements, keys from L2 for every 128 queries
 *   bound by  arithmetic: 4 D flops a query and key
 *   limits    training form, head width 128, bf16 and fp16, scale above 0,
 *             one stride for q, k and v of 16-byte units
 *   same bits every run: yes (a tile's keys in order, last first)
 *   tested by tests/test_kernels_cuda_attention.c; timed by
 *             bench/bench_kernels.c
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper.cuh"

namespace
{

constexpr int THREADS = 3 * ZO_WARP_GROUP;
constexpr int CONSUMERS = 2 * ZO_WARP_GROUP;
constexpr int ROWS = 128; /* of every tile: queries, keys, values */
constexpr int TILE_BYTES = ROWS * ZO_ROW_BYTES;
constexpr int STAGES = 2;
constexpr int LAST_PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

/* Shared memory, from a multiple of 1024 bytes. */
struct alignas(1024) blocks {
    unsigned char queries[TILE_BYTES];
    unsigned char keys[STAGES][TILE_BYTES];
    unsigned char values[STAGES][TILE_BYTES];
    unsigned char out[TILE_BYTES];
    uint64_t queries_full, queries_empty;
    uint64_t keys_full[STAGES], keys_empty[STAGES];
    uint64_t values_full[STAGES], values_empty[STAGES];
};
constexpr int SHARED_BYTES = sizeof(blocks) + 1024;

struct maps {
    CUtensorMap q, k, v;
};

/* One of the tiles that a block takes: a head's queries of a row. */
struct work {
    int64_t head, start; /* of the row */
    int first, length;   /* first query in the row, tokens of the row */
    int steps;           /* key tiles */
};

__device__ inline bool work_at(const zo_attention_args &args, int64_t flat,
                               int64_t tiles, work *work_out)
{
    const int64_t row = flat / args.heads % args.rows;

    work_out->head = flat % args.heads;
    work_out->start = args.row_start[row];
    work_out->length = args.row_start[row + 1] - (int)work_out->start;
    work_out->steps = (int)(tiles - flat / args.heads / args.rows);
    work_out->first = (work_out->steps - 1) * ROWS;
    return work_out->first < work_out->length;
}

__device__ inline void produce(blocks &shared, const maps &maps,
                               const zo_attention_args &args, int64_t tiles,
                               int64_t total)
{
    ring_place<STAGES> ring;
    uint32_t parity = 0;

    for (int64_t flat = blockIdx.x; flat < total; flat += gridDim.x) {
        work work;

        if (!work_at(args, flat, tiles, &work)) {
            continue;
        }
        const int column =
            (int)(work.head / (args.heads / args.groups)) * ZO_WIDTH;

        barrier_wait(&shared.queries_empty, parity ^ 1);
        parity ^= 1;
        barrier_arrive_expect(&shared.queries_full, TILE_BYTES);
        tile_fetch<ROWS>(shared.queries, &maps.q, (int)work.head * ZO_WIDTH,
                         (int)work.start + work.first, &shared.queries_full);
        for (int step = work.steps - 1; step >= 0; step--) {
            const int row = (int)work.start + step * ROWS;

            barrier_wait(&shared.keys_empty[ring.stage], ring.parity ^ 1);
            barrier_arrive_expect(&shared.keys_full[ring.stage], TILE_BYTES);
            tile_fetch<ROWS>(shared.keys[ring.stage], &maps.k, column, row,
                             &shared.keys_full[ring.stage]);
            barrier_wait(&shared.values_empty[ring.stage], ring.parity ^ 1);
            barrier_arrive_expect(&shared.values_full[ring.stage], TILE_BYTES);
            tile_fetch<ROWS>(shared.values[ring.stage], &maps.v, column, row,
                             &shared.values_full[ring.stage]);
            ring.advance();
        }
    }
}

/* A lane's two rows of its warp's 16. */
struct row_state {
    float max[2], sum[2];
};

/* On the diagonal a query sees the keys up to its own number. */
__device__ inline void mask(float (&scores)[64], int query)
{
    const int column = threadIdx.x % 4 * 2;

#pragma unroll
    for (int i = 0; i < 64; i++) {
        if (column + i / 4 * 8 + i % 2 > query + i / 2 % 2 * 8) {
            scores[i] = -INFINITY;
        }
    }
}

/* Scores become exp(score - max); shrink is what that makes of sums so far. */
__device__ inline void soften(float (&scores)[64], row_state &state,
                              float (&shrink)[2], float scale_log2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float max = state.max[half], sum = 0.0f;

#pragma unroll
        for (int n = 2 * half; n < 64; n += 4) {
            max = fmaxf(max, fmaxf(scores[n], scores[n + 1]));
        }
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));

        const float base = max * scale_log2;
        shrink[half] = exp2_fast(state.max[half] * scale_log2 - base);
#pragma unroll
        for (int n = 2 * half; n < 64; n += 4) {
            scores[n] = exp2_fast(scores[n] * scale_log2 - base);
            scores[n + 1] = exp2_fast(scores[n + 1] * scale_log2 - base);
            sum += scores[n] + scores[n + 1];
        }
        state.sum[half] = state.sum[half] * shrink[half] + sum;
        state.max[half] = max;
    }
}

/* The warp's 16 rows of out, through shared memory, by 16-byte stores. */
template <typename T>
__device__ inline void store(const zo_attention_args &args, const work &work,
                             unsigned char *tile, int row,
                             const float (&out)[64], const row_state &state)
{
    const int lane = threadIdx.x % ZO_WARP;
    const int64_t start = work.start + work.first;
    const int valid = work.length - work.first;
    float factor[2];

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int own = row + lane / 4 + half * 8;
        float sum = state.sum[half];

        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        factor[half] = 1.0f / sum;
        if (lane % 4 == 0 && own < valid) {
            args.lse[work.head * args.tokens + start + own] =
                state.max[half] * args.scale + logf(sum);
        }
    }
    __syncwarp(); /* the rows of the tile before have been read */
    tile_put<T, ROWS>(tile, row, out, factor);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int own = row + i * 2 + lane / 16, unit = lane % 16;
        uint4 *to =
            reinterpret_cast<uint4 *>(args.out) +
            ((start + own) * args.heads + work.head) * (ZO_WIDTH / ZO_GROUP);

        if (own < valid) {
            to[unit] = tile_get<ROWS>(tile, own, unit);
        }
    }
}

template <typename T>
__device__ inline void consume(blocks &shared, const zo_attention_args &args,
                               int64_t tiles, int64_t total)
{
    const int group = threadIdx.x / ZO_WARP_GROUP - 1; /* 0 or 1 */
    const int warp = threadIdx.x / ZO_WARP % 4, lane = threadIdx.x % ZO_WARP;
    const int row = group * 64 + warp * 16; /* the warp's first of the tile */
    const float scale_log2 = args.scale * ZO_LOG2E;
    const unsigned char *queries = shared.queries + group * 64 * ZO_HALF_BYTES;
    ring_place<STAGES> keys, values;
    uint32_t parity = 0;

    if (group == 1) {
        named_arrive(1, CONSUMERS); /* group 0 begins */
    }
    for (int64_t flat = blockIdx.x; flat < total; flat += gridDim.x) {
        float scores[64], out[64] = {}, shrink[2];
        row_state state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
        uint32_t left[32];
        work work;

        if (!work_at(args, flat, tiles, &work)) {
            continue;
        }
        barrier_wait(&shared.queries_full, parity);
        parity ^= 1;
        barrier_wait(&shared.keys_full[keys.stage], keys.parity);
        named_wait(1 + group, CONSUMERS);
        products_begin();
        tile_product_rows<T, ROWS, ROWS>(scores, queries,
                                         shared.keys[keys.stage]);
        products_commit();
        named_arrive(2 - group, CONSUMERS);
        products_wait<0>();
        products_ready(scores);
        if (lane == 0) {
            barrier_arrive(&shared.keys_empty[keys.stage]);
        }
        keys.advance();
        mask(scores, row + lane / 4);
        soften(scores, state, shrink, scale_log2);
        tile_pack<T>(left, scores);

        for (int step = work.steps - 2; step >= 0; step--) {
            barrier_wait(&shared.keys_full[keys.stage], keys.parity);
            named_wait(1 + group, CONSUMERS);
            products_begin();
            tile_product_rows<T, ROWS, ROWS>(scores, queries,
                                             shared.keys[keys.stage]);
            products_commit();
            barrier_wait(&shared.values_full[values.stage], values.parity);
            products_begin();
            tile_product_columns<T, ROWS>(out, left,
                                          shared.values[values.stage]);
            products_commit();
            named_arrive(2 - group, CONSUMERS);
            products_wait<1>();
            products_ready(scores);
            if (lane == 0) {
                barrier_arrive(&shared.keys_empty[keys.stage]);
            }
            keys.advance();
            soften(scores, state, shrink, scale_log2);
            products_wait<0>();
            products_ready(out);
            if (lane == 0) {
                barrier_arrive(&shared.values_empty[values.stage]);
            }
            values.advance();
#pragma unroll
            for (int i = 0; i < 64; i++) {
                out[i] *= shrink[i / 2 % 2];
            }
            tile_pack<T>(left, scores);
        }
        if (lane == 0) {
            barrier_arrive(&shared.queries_empty);
        }
        barrier_wait(&shared.values_full[values.stage], values.parity);
        products_begin();
        tile_product_columns<T, ROWS>(out, left, shared.values[values.stage]);
        products_commit();
        products_wait<0>();
        products_ready(out);
        if (lane == 0) {
            barrier_arrive(&shared.values_empty[values.stage]);
        }
        values.advance();
        store<T>(args, work, shared.out, row, out, state);
    }
    if (group == 0) {
        named_wait(1, CONSUMERS); /* group 1's last arrival */
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    attention_hopper_kernel(const __grid_constant__ maps maps,
                            const zo_attention_args args, int64_t tiles,
                            int64_t total)
{
    extern __shared__ unsigned char bytes[];
    blocks &shared = *reinterpret_cast<blocks *>(
        bytes + (1024 - shared_address(bytes) % 1024) % 1024);

    if (threadIdx.x == 0) {
        constexpr int WARPS = CONSUMERS / ZO_WARP;

        barrier_init(&shared.queries_full, 1);
        barrier_init(&shared.queries_empty, WARPS);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&shared.keys_full[i], 1);
            barrier_init(&shared.keys_empty[i], WARPS);
            barrier_init(&shared.values_full[i], 1);
            barrier_init(&shared.values_empty[i], WARPS);
        }
        barrier_init_done();
    }
    zo_attention_clear<T>(args);
    __syncthreads();
    if (threadIdx.x < ZO_WARP_GROUP) {
        registers_lower<LAST_PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            produce(shared, maps, args, tiles, total);
        }
    } else {
        registers_raise<CONSUMER_REGISTERS>();
        consume<T>(shared, args, tiles, total);
    }
}

template <typename T>
cudaError_t launch(const maps &maps, const zo_attention_args &args,
                   unsigned grid, int64_t tiles, int64_t total,
                   cudaStream_t stream)
{
    attention_hopper_kernel<T>
        <<<grid, THREADS, SHARED_BYTES, stream>>>(maps, args, tiles, total);
    return cudaGetLastError();
}

template <typename T> cudaError_t allow_shared()
{
    return cudaFuncSetAttribute(attention_hopper_kernel<T>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                SHARED_BYTES);
}

} /* namespace */

enum zo_status zo_attention_hopper_open(const struct zo_kernels *kernels)
{
    cudaError_t error = cudaSuccess;

    if (zo_attention_has_hopper(kernels)) {
        error = allow_shared<__nv_bfloat16>();
        error = error != cudaSuccess ? error : allow_shared<__half>();
    }
    return zo_launch_status(__FILE__, __LINE__, "attention", error);
}

enum zo_status zo_attention_hopper(const struct zo_kernels *kernels,
                                   struct zo_stream *stream,
                                   const struct zo_attention_args *args)
{
    const int64_t tiles = zo_div_ceil(args->row_tokens_max, ROWS);
    const int64_t total = tiles * args->rows * args->heads;
    const int64_t blocks =
        zo_max_i64(1, zo_min_i64(total, (int64_t)kernels->multiprocessors));
    const cudaStream_t native = zo_stream_cuda_native(stream);
    cudaError_t error;
    maps maps;

    ZO_TRY(zo_map_rows(kernels, &maps.q, args->type, args->q,
                       args->heads * ZO_WIDTH, args->tokens,
                       args->q_stride_elems));
    ZO_TRY(zo_map_rows(kernels, &maps.k, args->type, args->k,
                       args->groups * ZO_WIDTH, args->tokens,
                       args->kv_stride_elems));
    ZO_TRY(zo_map_rows(kernels, &maps.v, args->type, args->v,
                       args->groups * ZO_WIDTH, args->tokens,
                       args->kv_stride_elems));
    error = args->type == ZO_BF16
                ? launch<__nv_bfloat16>(maps, *args, (unsigned)blocks, tiles,
                                        total, native)
                : launch<__half>(maps, *args, (unsigned)blocks, tiles, total,
                                 native);
    return zo_launch_status(__FILE__, __LINE__, "attention", error);
}
