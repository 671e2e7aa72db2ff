/*
 * Elements of the three number types: conversion, groups of eight by 16-byte
 * accesses, and sums with a fixed order.
 *
 * Layer 3, private to kernels/cuda.
 */
#ifndef ZO_KERNELS_CUDA_ELEMENT_CUH
#define ZO_KERNELS_CUDA_ELEMENT_CUH

#include "kernels/cuda/launch.cuh"

#define ZO_GROUP 8 /* elements that one thread reads or writes at once */

__device__ inline float to_float(float value)
{
    return value;
}

__device__ inline float to_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

__device__ inline float to_float(__half value)
{
    return __half2float(value);
}

template <typename T> __device__ inline T from_float(float value);

template <> __device__ inline float from_float<float>(float value)
{
    return value;
}

template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}

template <> __device__ inline __half from_float<__half>(float value)
{
    return __float2half_rn(value);
}

/* Eight elements as they lie in memory. */
template <typename T> struct alignas(16) group8 {
    T items[ZO_GROUP];
};

/* `from` is a multiple of 16 bytes. */
template <typename T>
__device__ inline void load8(const T *from, float (&values)[ZO_GROUP])
{
    constexpr int QUADS = sizeof(group8<T>) / sizeof(uint4);
    group8<T> group;

#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        reinterpret_cast<uint4 *>(&group)[i] =
            reinterpret_cast<const uint4 *>(from)[i];
    }
#pragma unroll
    for (int i = 0; i < ZO_GROUP; i++) {
        values[i] = to_float(group.items[i]);
    }
}

template <typename T>
__device__ inline void store8(T *to, const float (&values)[ZO_GROUP])
{
    constexpr int QUADS = sizeof(group8<T>) / sizeof(uint4);
    group8<T> group;

#pragma unroll
    for (int i = 0; i < ZO_GROUP; i++) {
        group.items[i] = from_float<T>(values[i]);
    }
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        reinterpret_cast<uint4 *>(to)[i] =
            reinterpret_cast<const uint4 *>(&group)[i];
    }
}

/* The same bits in every lane: a + b is b + a. */
__device__ inline float warp_sum(float value)
{
#pragma unroll
    for (int offset = ZO_WARP / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

__device__ inline float warp_max(float value)
{
#pragma unroll
    for (int offset = ZO_WARP / 2; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
}

/*
 * The sum over a block, in every thread, warps added in order.  `shared` has
 * a float a warp and may be used again after the next barrier.
 */
__device__ inline float block_sum(float value, float *shared)
{
    const int warps = blockDim.x / ZO_WARP;
    float sum = 0.0f;

    value = warp_sum(value);
    if (threadIdx.x % ZO_WARP == 0) {
        shared[threadIdx.x / ZO_WARP] = value;
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
        sum += shared[i];
    }
    return sum;
}

#endif
