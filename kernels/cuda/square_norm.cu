/*
 * Sum of squares in double, and the number of elements that are not finite.
 *
 *   maths     kernels.h, zo_square_norm_args: a tree that every backend has
 *   layout    a block of ZO_NORM_LANES threads a ZO_NORM_BLOCK elements, a
 *             thread a lane; one more block adds the blocks' sums in order
 *   traffic   N elements in
 *   bound by  memory (double adds are a third of that on H200; on GPUs with
 *             1/64 double rate they are the bound, at about its bandwidth)
 *   measured  60 % of a device copy's rate;
 *             a layer's gradient, ChatGLM2-6B, H200 (bench/RESULTS.md)
 *   limits    count < 2^47
 *   same bits every run: yes, and the same as the host's
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/element.cuh"

namespace
{

constexpr int AHEAD = 16; /* elements of a lane that are loaded at once */

static_assert(ZO_NORM_BLOCK % (ZO_NORM_LANES * AHEAD) == 0,
              "a lane's elements come in whole rounds");

template <typename T>
__global__ void __launch_bounds__(ZO_NORM_LANES)
    norm_blocks_kernel(zo_norm_result *blocks, const T *in, int64_t count)
{
    __shared__ double sums[ZO_NORM_LANES];
    const int lane = threadIdx.x;
    const int64_t first = (int64_t)blockIdx.x * ZO_NORM_BLOCK + lane;
    double sum = 0.0;
    int bad = 0;

    for (int round = 0; round < ZO_NORM_BLOCK; round += ZO_NORM_LANES * AHEAD) {
        float x[AHEAD];

#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t index = first + round + i * ZO_NORM_LANES;

            x[i] = index < count ? to_float(in[index]) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (isfinite(x[i])) {
                sum += (double)x[i] * (double)x[i]; /* an exact product */
            } else {
                bad++;
            }
        }
    }

    sums[lane] = sum;
    for (int half = ZO_NORM_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
            sums[lane] += sums[lane + half];
        }
    }

    /* Whole numbers: any order gives the same. */
    __shared__ unsigned int bad_count;
    if (lane == 0) {
        bad_count = 0;
    }
    __syncthreads();
    if (bad != 0) {
        atomicAdd(&bad_count, (unsigned int)bad);
    }
    __syncthreads();
    if (lane == 0) {
        blocks[blockIdx.x] = {sums[0], bad_count};
    }
}

/* One block: loads are shared out, thread 0 adds in order. */
__global__ void __launch_bounds__(ZO_NORM_LANES)
    norm_sum_kernel(zo_norm_result *result, const zo_norm_result *blocks,
                    int64_t count)
{
    __shared__ zo_norm_result chunk[ZO_NORM_LANES];
    zo_norm_result total = {0.0, 0};

    for (int64_t first = 0; first < count; first += ZO_NORM_LANES) {
        const int64_t left = count - first;
        const int here = left < ZO_NORM_LANES ? (int)left : ZO_NORM_LANES;

        __syncthreads();
        if ((int)threadIdx.x < here) {
            chunk[threadIdx.x] = blocks[first + threadIdx.x];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 0; i < here; i++) {
                total.square_sum += chunk[i].square_sum;
                total.bad_count += chunk[i].bad_count;
            }
        }
    }
    if (threadIdx.x == 0) {
        *result = total;
    }
}

} /* namespace */

extern "C" uint64_t zo_cuda_square_norm_workspace(int64_t count)
{
    return (uint64_t)zo_div_ceil(count, ZO_NORM_BLOCK) *
           sizeof(struct zo_norm_result);
}

extern "C" enum zo_status
zo_cuda_square_norm(struct zo_kernels *, struct zo_stream *stream,
                    const struct zo_square_norm_args *args)
{
    const int64_t blocks = zo_div_ceil(args->count, ZO_NORM_BLOCK);
    zo_norm_result *sums = static_cast<zo_norm_result *>(args->workspace);
    unsigned grid = 0;

    ZO_TRY(zo_grid_x("square_norm", blocks, &grid));
    if (grid > 0) {
        zo_by_type(args->type, [&](auto tag) {
            using T = typename decltype(tag)::type;

            norm_blocks_kernel<T>
                <<<grid, ZO_NORM_LANES, 0, zo_stream_cuda_native(stream)>>>(
                    sums, static_cast<const T *>(args->in), args->count);
        });
        ZO_TRY(ZO_LAUNCH_STATUS("square_norm"));
    }
    norm_sum_kernel<<<1, ZO_NORM_LANES, 0, zo_stream_cuda_native(stream)>>>(
        args->result, sums, blocks);
    return ZO_LAUNCH_STATUS("square_norm");
}
