/*
 * Cast between number types, and the ordered sum of parts.
 *
 *   maths     kernels.h, zo_cast_args, zo_reduce_args
 *   layout    8 elements a thread; what is left at the end one by one
 *   traffic   cast: N in, N out.  reduce: P*N in, N out
 *   bound by  memory
 *   measured  gradient cast, fp32 to bf16: 103 % of a device copy's rate;
 *             a layer's of ChatGLM2-6B, H200 (bench/RESULTS.md)
 *   limits    count < 2^42
 *   same bits every run: yes (elementwise; parts in order)
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/element.cuh"

namespace
{

constexpr int THREADS = 256;

/* A cast is the sum of one part. */
template <typename To, typename From, bool IS_GROUPED>
__global__ void __launch_bounds__(THREADS)
    reduce_kernel(To *out, const From *parts, int64_t count, int64_t part_count,
                  int64_t stride)
{
    const int64_t first =
        ((int64_t)blockIdx.x * THREADS + threadIdx.x) * ZO_GROUP;

    if (IS_GROUPED && first + ZO_GROUP <= count) {
        float sum[ZO_GROUP];

        load8(parts + first, sum);
        for (int64_t part = 1; part < part_count; part++) {
            float x[ZO_GROUP];

            load8(parts + part * stride + first, x);
#pragma unroll
            for (int i = 0; i < ZO_GROUP; i++) {
                sum[i] += x[i];
            }
        }
        store8(out + first, sum);
        return;
    }
    for (int64_t i = first; i < count && i < first + ZO_GROUP; i++) {
        float sum = to_float(parts[i]);

        for (int64_t part = 1; part < part_count; part++) {
            sum += to_float(parts[part * stride + i]);
        }
        out[i] = from_float<To>(sum);
    }
}

enum zo_status reduce(const char *what, struct zo_stream *stream,
                      const zo_reduce_args &args)
{
    unsigned grid = 0;

    if (args.count == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x(what, zo_div_ceil(args.count, THREADS * ZO_GROUP), &grid));
    zo_by_type(args.out_type, [&](auto to_tag) {
        using To = typename decltype(to_tag)::type;

        zo_by_type(args.type, [&](auto from_tag) {
            using From = typename decltype(from_tag)::type;
            const cudaStream_t native = zo_stream_cuda_native(stream);
            To *out = static_cast<To *>(args.out);
            const From *parts = static_cast<const From *>(args.parts);

            if (args.part_count == 1 ||
                args.part_stride_elems % ZO_GROUP == 0) {
                reduce_kernel<To, From, true><<<grid, THREADS, 0, native>>>(
                    out, parts, args.count, args.part_count,
                    args.part_stride_elems);
            } else {
                reduce_kernel<To, From, false><<<grid, THREADS, 0, native>>>(
                    out, parts, args.count, args.part_count,
                    args.part_stride_elems);
            }
        });
    });
    return ZO_LAUNCH_STATUS(what);
}

} /* namespace */

extern "C" enum zo_status zo_cuda_cast(struct zo_kernels *,
                                       struct zo_stream *stream,
                                       const struct zo_cast_args *args)
{
    const struct zo_reduce_args one = {
        .out = args->out,
        .parts = args->in,
        .count = args->count,
        .part_count = 1,
        .part_stride_elems = 0,
        .type = args->in_type,
        .out_type = args->out_type,
    };

    if (args->out_type == args->in_type) { /* a NaN keeps its bits */
        const size_t bytes =
            (size_t)args->count * zo_dtype_bytes(args->in_type);
        const cudaError_t error = cudaMemcpyAsync(
            args->out, args->in, bytes, cudaMemcpyDeviceToDevice,
            zo_stream_cuda_native(stream));

        return zo_launch_status(__FILE__, __LINE__, "cast", error);
    }
    return reduce("cast", stream, one);
}

extern "C" enum zo_status zo_cuda_reduce(struct zo_kernels *,
                                         struct zo_stream *stream,
                                         const struct zo_reduce_args *args)
{
    const int64_t bytes = args->count * (int64_t)zo_dtype_bytes(args->out_type);

    if (args->part_count == 0) { /* an empty sum */
        const cudaError_t error = cudaMemsetAsync(
            args->out, 0, (size_t)bytes, zo_stream_cuda_native(stream));

        return zo_launch_status(__FILE__, __LINE__, "reduce", error);
    }
    return reduce("reduce", stream, *args);
}
