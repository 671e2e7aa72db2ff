/*
 * Instructions of the tensor cores that CUDA C++ has no name for, sm_80 and
 * later.  Every inline assembly of the portable kernels is here.
 *
 * Layer 3, private to kernels/cuda.
 */
#ifndef ZO_KERNELS_CUDA_PTX_CUH
#define ZO_KERNELS_CUDA_PTX_CUH

#include "kernels/cuda/element.cuh"

/* Below sm_80 these kernels are compiled, but never launched. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define ZO_HAS_MMA 1
#else
#define ZO_HAS_MMA 0
#endif

/* Starts copying 16 bytes into shared memory; zeros when not is_valid. */
__device__ inline void copy_async_16(void *shared, const void *global,
                                     bool is_valid)
{
#if ZO_HAS_MMA
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(is_valid ? 16 : 0)
                 : "memory");
#endif
}

/* The same for 4 bytes. */
__device__ inline void copy_async_4(void *shared, const void *global,
                                    bool is_valid)
{
#if ZO_HAS_MMA
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(is_valid ? 4 : 0)
                 : "memory");
#endif
}

/* Copies started since the last call are one group. */
__device__ inline void copy_async_commit()
{
#if ZO_HAS_MMA
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

/* Waits until at most LEFT of this thread's groups are under way. */
template <int LEFT> __device__ inline void copy_async_wait()
{
#if ZO_HAS_MMA
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
#endif
}

/*
 * Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8
 * of matrix i / 8.  Lane i gets of each matrix row i / 4, columns i % 4 * 2
 * and the next; transposed: column i / 4, rows i % 4 * 2 and the next.
 */
__device__ inline void load_matrices(uint32_t (&out)[4], const void *shared)
{
#if ZO_HAS_MMA
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, "
                 "[%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared))
                 : "memory");
#endif
}

__device__ inline void load_matrices_transposed(uint32_t (&out)[4],
                                                const void *shared)
{
#if ZO_HAS_MMA
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, "
                 "%3}, [%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared))
                 : "memory");
#endif
}

/*
 * d += a b for a warp: a is 16 x 16, b 16 x 8, d 16 x 8 in fp32.  Lane i holds
 * of d row i / 4, columns i % 4 * 2 and the next, then the same of row + 8.
 */
template <typename T>
__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4],
                                    uint32_t b0, uint32_t b1);

template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&d)[4],
                                                   const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1)
{
#if ZO_HAS_MMA
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <>
__device__ inline void multiply_add<__half>(float (&d)[4],
                                            const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1)
{
#if ZO_HAS_MMA
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/* 2^x, 2 ulp; -inf gives 0. */
__device__ inline float exp2_fast(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* Two elements in a register, the first in the low half. */
template <typename T> __device__ inline uint32_t pack2(float low, float high);

template <>
__device__ inline uint32_t pack2<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);

    return *reinterpret_cast<const uint32_t *>(&pair);
}

template <> __device__ inline uint32_t pack2<__half>(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);

    return *reinterpret_cast<const uint32_t *>(&pair);
}

#endif
