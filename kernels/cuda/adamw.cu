/*
 * AdamW, elementwise, in place.
 *
 *   maths     kernels.h, zo_adamw_args: exact operations in a fixed order, so
 *             that the bits are the host's.  Every operation is an intrinsic
 *             of stated rounding, which no compiler flag contracts or
 *             flushes; the file is also built with -fmad=false -ftz=false
 *             -prec-div=true -prec-sqrt=true
 *   layout    8 elements a thread; what is left at the end one by one
 *   traffic   bytes an element: bf16 14 in, 12 out; fp16 14 in, 14 out;
 *             fp32 16 in, 12 out; with bf16 moments 4 less each way
 *   bound by  memory
 *   limits    count < 2^42
 *   same bits every run: yes, and the same as the host's
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/element.cuh"

namespace
{

constexpr int THREADS = 256;

/* Below 2^-126, the smallest normal number: +0. */
__device__ inline float flush(float value)
{
    return fabsf(value) < 0x1p-126f ? 0.0f : value;
}

__device__ inline void update(float &p, float &m, float &v, float grad,
                              bool decays, const zo_adamw_scalars &s)
{
    const float g = __fmul_rn(grad, s.grad_scale);

    m = flush(__fmaf_rn(s.beta1, m, __fmul_rn(s.one_minus_beta1, g)));
    v = flush(
        __fmaf_rn(s.beta2, v, __fmul_rn(__fmul_rn(s.one_minus_beta2, g), g)));
    const float d = __fmaf_rn(__fsqrt_rn(v), s.inverse_root2, s.epsilon);
    if (decays) {
        p = __fmaf_rn(-s.decay, p, p);
    }
    p = __fmaf_rn(-s.step_size, __fdiv_rn(m, d), p);
}

/* COUNT neighbouring elements, by the widest accesses that these allow. */
template <typename T, int COUNT>
__device__ inline void load_some(const T *from, T (&values)[COUNT])
{
    if constexpr (COUNT == ZO_GROUP) {
        group8<T> group;

#pragma unroll
        for (int i = 0; i < (int)(sizeof(group) / sizeof(uint4)); i++) {
            reinterpret_cast<uint4 *>(&group)[i] =
                reinterpret_cast<const uint4 *>(from)[i];
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            values[i] = group.items[i];
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            values[i] = from[i];
        }
    }
}

template <typename T, int COUNT>
__device__ inline void store_some(T *to, const T (&values)[COUNT])
{
    if constexpr (COUNT == ZO_GROUP) {
        group8<T> group;

#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            group.items[i] = values[i];
        }
#pragma unroll
        for (int i = 0; i < (int)(sizeof(group) / sizeof(uint4)); i++) {
            reinterpret_cast<uint4 *>(to)[i] =
                reinterpret_cast<const uint4 *>(&group)[i];
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            to[i] = values[i];
        }
    }
}

/*
 * The master of COUNT elements, out of and back into its two parts.  store()
 * returns whether a master (fp16: or its weight) is not finite.
 */
template <typename T, int COUNT> struct master;

template <int COUNT> struct master<float, COUNT> {
    static __device__ inline void load(const zo_adamw_args &args, int64_t i,
                                       float (&p)[COUNT])
    {
        load_some(static_cast<const float *>(args.weight) + i, p);
    }

    static __device__ inline bool store(const zo_adamw_args &args, int64_t i,
                                        const float (&p)[COUNT])
    {
        bool is_bad = false;

#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            is_bad |= !isfinite(p[k]);
        }
        store_some(static_cast<float *>(args.weight) + i, p);
        return is_bad;
    }
};

template <int COUNT> struct master<__nv_bfloat16, COUNT> {
    static __device__ inline void load(const zo_adamw_args &args, int64_t i,
                                       float (&p)[COUNT])
    {
        uint16_t weight[COUNT];
        int16_t remainder[COUNT];

        load_some(static_cast<const uint16_t *>(args.weight) + i, weight);
        load_some(static_cast<const int16_t *>(args.remainder) + i, remainder);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            p[k] = __uint_as_float(((uint32_t)weight[k] << 16) +
                                   (uint32_t)(int32_t)remainder[k]);
        }
    }

    static __device__ inline bool store(const zo_adamw_args &args, int64_t i,
                                        const float (&p)[COUNT])
    {
        uint16_t weight[COUNT];
        int16_t remainder[COUNT];
        bool is_bad = false;

#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            /* The NaN of x86, which the pair's rounding leaves one. */
            const uint32_t bits =
                isnan(p[k]) ? 0xffc00000u : __float_as_uint(p[k]);

            weight[k] = (uint16_t)((bits + 0x8000u) >> 16);
            remainder[k] = (int16_t)(uint16_t)bits;
            is_bad |= !isfinite(p[k]) || (weight[k] & 0x7f80u) == 0x7f80u;
        }
        store_some(static_cast<uint16_t *>(args.weight) + i, weight);
        store_some(args.remainder + i, remainder);
        return is_bad;
    }
};

template <int COUNT> struct master<__half, COUNT> {
    static __device__ inline void load(const zo_adamw_args &args, int64_t i,
                                       float (&p)[COUNT])
    {
        load_some(static_cast<const float *>(args.master) + i, p);
    }

    static __device__ inline bool store(const zo_adamw_args &args, int64_t i,
                                        const float (&p)[COUNT])
    {
        __half weight[COUNT];
        bool is_bad = false;

#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            weight[k] = __float2half_rn(p[k]);
            is_bad |= !isfinite(p[k]) || !isfinite(__half2float(weight[k]));
        }
        store_some(args.master + i, p);
        if (args.weight != nullptr) {
            store_some(static_cast<__half *>(args.weight) + i, weight);
        }
        return is_bad;
    }
};

/* zo_adamw_args: the chance of bf16 moments. */
__device__ inline uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x21f0aaadu;
    x = (x ^ (x >> 15)) * 0xd35a2d97u;
    return x ^ (x >> 15);
}

__device__ inline uint16_t round_moment(float value, uint32_t noise)
{
    return isnan(value) ? (uint16_t)0x7fc0u
                        : (uint16_t)((__float_as_uint(value) + noise) >> 16);
}

/* The moments of COUNT elements, of type M: float, or uint16_t for bf16. */
template <typename M, int COUNT>
__device__ inline void load_moments(const void *from, int64_t first,
                                    float (&values)[COUNT])
{
    M stored[COUNT];

    load_some(static_cast<const M *>(from) + first, stored);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if constexpr (sizeof(M) == sizeof(float)) {
            values[i] = stored[i];
        } else {
            values[i] = __uint_as_float((uint32_t)stored[i] << 16);
        }
    }
}

template <typename M, int COUNT>
__device__ inline void store_moments(const zo_adamw_args &args, int64_t first,
                                     const float (&m)[COUNT],
                                     const float (&v)[COUNT])
{
    M m_stored[COUNT], v_stored[COUNT];

#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if constexpr (sizeof(M) == sizeof(float)) {
            m_stored[i] = m[i];
            v_stored[i] = v[i];
        } else {
            const uint32_t index = (uint32_t)(args.first_index + first + i);
            const uint32_t noise = mix(index ^ mix(args.scalars.step));

            m_stored[i] = round_moment(m[i], noise & 0xffffu);
            v_stored[i] = round_moment(v[i], noise >> 16);
        }
    }
    store_some(static_cast<M *>(args.exp_avg) + first, m_stored);
    store_some(static_cast<M *>(args.exp_avg_sq) + first, v_stored);
}

template <typename T, typename M, int COUNT>
__device__ inline void update_some(const zo_adamw_args &args, int64_t first)
{
    float p[COUNT], m[COUNT], v[COUNT];
    T grad[COUNT];

    master<T, COUNT>::load(args, first, p);
    load_moments<M, COUNT>(args.exp_avg, first, m);
    load_moments<M, COUNT>(args.exp_avg_sq, first, v);
    load_some(static_cast<const T *>(args.grad) + first, grad);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        update(p[i], m[i], v[i], to_float(grad[i]),
               first + i < args.decay_count, args.scalars);
    }
    store_moments<M, COUNT>(args, first, m, v);
    if (master<T, COUNT>::store(args, first, p)) {
        *args.bad = 1;
    }
}

template <typename T, typename M>
__global__ void __launch_bounds__(THREADS)
    adamw_kernel(const zo_adamw_args args)
{
    const int64_t first =
        ((int64_t)blockIdx.x * THREADS + threadIdx.x) * ZO_GROUP;

    if (first + ZO_GROUP <= args.count) {
        update_some<T, M, ZO_GROUP>(args, first);
        return;
    }
    for (int64_t i = first; i < args.count; i++) {
        update_some<T, M, 1>(args, i);
    }
}

} /* namespace */

extern "C" enum zo_status zo_cuda_adamw(struct zo_kernels *,
                                        struct zo_stream *stream,
                                        const struct zo_adamw_args *args)
{
    unsigned grid = 0;

    if (args->count == 0) {
        return ZO_OK;
    }
    ZO_TRY(zo_grid_x("adamw", zo_div_ceil(args->count, THREADS * ZO_GROUP),
                     &grid));
    zo_by_type(args->type, [&](auto tag) {
        using T = typename decltype(tag)::type;

        const cudaStream_t native = zo_stream_cuda_native(stream);

        if (args->moment_type == ZO_BF16) {
            adamw_kernel<T, uint16_t><<<grid, THREADS, 0, native>>>(*args);
        } else {
            adamw_kernel<T, float><<<grid, THREADS, 0, native>>>(*args);
        }
    });
    return ZO_LAUNCH_STATUS("adamw");
}
