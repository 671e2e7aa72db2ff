/*
 * What sm_90a adds: products of a warp group (wgmma) with factors in shared
 * memory, copies of tiles by the tensor memory accelerator, barriers that
 * count the bytes of such copies, and registers that warps hand each other.
 *
 * Layer 3, private to kernels/cuda.  Included by *_hopper.cu alone, which are
 * compiled for sm_90a and nothing else.
 *
 * A tile here has rows of 128 elements in two halves of 64, each half `rows`
 * times 128 bytes, swizzled by 16-byte units within 8 rows: what the copies
 * write and the products read.  Tiles begin at multiples of 1024 bytes.
 */
#ifndef ZO_KERNELS_CUDA_HOPPER_CUH
#define ZO_KERNELS_CUDA_HOPPER_CUH

#include <cuda.h>

#include "kernels/cuda/ptx.cuh"

#define ZO_WARP_GROUP 128

__device__ inline uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* ---- barriers -------------------------------------------------------- */

__device__ inline void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(
                     shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

/* Makes initialised barriers known to copies; then __syncthreads(). */
__device__ inline void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    asm volatile("fence.proxy.async;\n" ::: "memory");
}

__device__ inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(
                     shared_address(barrier))
                 : "memory");
}

/* Arrives, and lets the phase wait for that many bytes of copies too. */
__device__ inline void barrier_arrive_expect(uint64_t *barrier, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(
            shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

/* Waits until the phase of this parity has passed. */
__device__ inline void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra passed;\n"
                 "bra again;\n"
                 "passed:\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Barriers 1 to 15 of the block: `threads` of them wait and arrive. */
__device__ inline void named_wait(int id, int threads)
{
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/* ---- copies ---------------------------------------------------------- */

/* 64 rows of 64 elements, from column and row on; zeros outside the map. */
__device__ inline void copy_box(void *shared, const CUtensorMap *map,
                                int column, int row, uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n" ::"r"(
            shared_address(shared)),
        "l"(reinterpret_cast<uint64_t>(map)), "r"(column), "r"(row),
        "r"(shared_address(barrier))
        : "memory");
}

__device__ inline void prefetch_map(const CUtensorMap *map)
{
    asm volatile(
        "prefetch.tensormap [%0];\n" ::"l"(reinterpret_cast<uint64_t>(map))
        : "memory");
}

/* ---- registers ------------------------------------------------------- */

template <int COUNT> __device__ inline void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

template <int COUNT> __device__ inline void registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

/* ---- products -------------------------------------------------------- */

/* Before products that read registers written by other instructions. */
__device__ inline void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

/* Products queued since the last call are one group. */
__device__ inline void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Waits until at most LEFT groups are under way. */
template <int LEFT> __device__ inline void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
}

/* After a wait: keeps the compiler from reading results before it. */
template <int N> __device__ inline void products_ready(float (&sums)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(sums[i])::"memory");
    }
}

/*
 * Descriptor of a factor in shared memory: address, the distance of 64-wide
 * parts, the distance of 8-row parts (1024: 8 rows of 128 bytes), 128-byte
 * swizzle.  All in units of 16 bytes.
 */
__device__ inline uint64_t factor_at(const void *shared, int part_bytes)
{
    const uint64_t address = shared_address(shared);

    return (address & 0x3ffff) >> 4 | (uint64_t)(part_bytes >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define ZO_REGS_8(d, i)                                         \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
        "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ZO_REGS_32(d, i)                                        \
    ZO_REGS_8(d, i), ZO_REGS_8(d, i + 8), ZO_REGS_8(d, i + 16), \
        ZO_REGS_8(d, i + 24)
#define ZO_NAMES_32                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
    "%30, %31"
#define ZO_NAMES_64                                                          \
    ZO_NAMES_32                                                              \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "    \
    "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63"

/*
 * d (64 x 128, or 64 x 64) = a b^T, added to d when `add`; 16 columns of a and
 * of b, both with rows of the tile as rows of the factor.  A lane's share of
 * d is that of multiply_add(), warp i having rows 16 i .. 16 i + 15.
 */
template <typename T>
__device__ inline void product_rows(float (&d)[64], uint64_t a, uint64_t b,
                                    bool add);
template <typename T>
__device__ inline void product_rows(float (&d)[32], uint64_t a, uint64_t b,
                                    bool add);
#define ZO_PRODUCT_ROWS(type, name)                                      \
    template <>                                                          \
    __device__ inline void product_rows<type>(float(&d)[64], uint64_t a, \
                                              uint64_t b, bool add)      \
    {                                                                    \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"    \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." name \
                     "." name " {" ZO_NAMES_64                           \
                     "}, %64, %65, add, 1, 1, 0, 0;\n}\n"                \
                     : ZO_REGS_32(d, 0), ZO_REGS_32(d, 32)               \
                     : "l"(a), "l"(b), "r"((int)add));                   \
    }                                                                    \
    template <>                                                          \
    __device__ inline void product_rows<type>(float(&d)[32], uint64_t a, \
                                              uint64_t b, bool add)      \
    {                                                                    \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"    \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." name  \
                     "." name " {" ZO_NAMES_32                           \
                     "}, %32, %33, add, 1, 1, 0, 0;\n}\n"                \
                     : ZO_REGS_32(d, 0)                                  \
                     : "l"(a), "l"(b), "r"((int)add));                   \
    }
ZO_PRODUCT_ROWS(__nv_bfloat16, "bf16")
ZO_PRODUCT_ROWS(__half, "f16")
#undef ZO_PRODUCT_ROWS

/* d (64 x 128) += a b: a (64 x 16) in registers, as for multiply_add(), b the
 * 16 rows of a tile at the descriptor. */
template <typename T>
__device__ inline void product_columns(float (&d)[64], const uint32_t *a,
                                       uint64_t b);
#define ZO_PRODUCT_COLUMNS(type, name)                                      \
    template <>                                                             \
    __device__ inline void product_columns<type>(                           \
        float(&d)[64], const uint32_t *a, uint64_t b)                       \
    {                                                                       \
        asm volatile("{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"         \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." name    \
                     "." name " {" ZO_NAMES_64                              \
                     "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}\n"     \
                     : ZO_REGS_32(d, 0), ZO_REGS_32(d, 32)                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    }
ZO_PRODUCT_COLUMNS(__nv_bfloat16, "bf16")
ZO_PRODUCT_COLUMNS(__half, "f16")
#undef ZO_PRODUCT_COLUMNS

/* ---- tiles ----------------------------------------------------------- */

constexpr int ZO_WIDTH = 128;      /* of a tile's rows */
constexpr int ZO_HALF_BYTES = 128; /* of a row of one half */
constexpr int ZO_BOX_ROWS = 64;    /* of one copy */
constexpr int ZO_ROW_BYTES = 2 * ZO_HALF_BYTES;

/* Starts copying ROWS rows of a tile; the barrier expects ROWS * 256 bytes. */
template <int ROWS>
__device__ inline void tile_fetch(unsigned char *tile, const CUtensorMap *map,
                                  int column, int row, uint64_t *barrier)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int box = 0; box < ROWS; box += ZO_BOX_ROWS) {
            copy_box(tile + (half * ROWS + box) * ZO_HALF_BYTES, map,
                     column + half * 64, row + box, barrier);
        }
    }
}

/* d = a b^T over all columns of two tiles, of A_ROWS and B_ROWS rows; `a`
 * and `b` point at the first rows of their factors. */
template <typename T, int A_ROWS, int B_ROWS, int N>
__device__ inline void tile_product_rows(float (&d)[N], const unsigned char *a,
                                         const unsigned char *b)
{
    const uint64_t a_factor = factor_at(a, 16), b_factor = factor_at(b, 16);

#pragma unroll
    for (int step = 0; step < ZO_WIDTH / 16; step++) {
        const int half = step / 4, unit = step % 4 * 2;

        product_rows<T>(
            d, a_factor + half * (A_ROWS * ZO_HALF_BYTES / 16) + unit,
            b_factor + half * (B_ROWS * ZO_HALF_BYTES / 16) + unit, step > 0);
    }
}

/* d += a b, with all B_ROWS rows of tile b; a holds 4 registers for each 16
 * of them. */
template <typename T, int B_ROWS>
__device__ inline void tile_product_columns(float (&d)[64],
                                            const uint32_t (&a)[B_ROWS / 4],
                                            const unsigned char *b)
{
    const uint64_t b_factor = factor_at(b, B_ROWS * ZO_HALF_BYTES);

#pragma unroll
    for (int step = 0; step < B_ROWS / 16; step++) {
        product_columns<T>(d, a + 4 * step,
                           b_factor + step * (16 * ZO_HALF_BYTES / 16));
    }
}

/* What tile_product_rows() left, as the left factor of the next product. */
template <typename T, int N>
__device__ inline void tile_pack(uint32_t (&a)[N / 2], const float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        a[i] = pack2<T>(d[2 * i], d[2 * i + 1]);
    }
}

/* A warp's 16 rows of d, times the factors of a lane's two rows, into rows
 * `row`.. of a tile of ROWS rows; then __syncwarp(). */
template <typename T, int ROWS>
__device__ inline void tile_put(unsigned char *tile, int row,
                                const float (&d)[64], const float (&factor)[2])
{
    const int lane = threadIdx.x % ZO_WARP;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int own = row + lane / 4 + half * 8;

#pragma unroll
        for (int n = 0; n < 16; n++) {
            const int unit = n % 8 ^ own % 8;

            *reinterpret_cast<uint32_t *>(tile +
                                          (n / 8 * ROWS + own) * ZO_HALF_BYTES +
                                          unit * 16 + lane % 4 * 4) =
                pack2<T>(d[4 * n + 2 * half] * factor[half],
                         d[4 * n + 2 * half + 1] * factor[half]);
        }
    }
}

/* Unit `unit` of 16 of a row. */
template <int ROWS>
__device__ inline uint4 tile_get(const unsigned char *tile, int row, int unit)
{
    return *reinterpret_cast<const uint4 *>(
        tile + (unit / 8 * ROWS + row) * ZO_HALF_BYTES +
        (unit % 8 ^ row % 8) * 16);
}

/* Where a ring of STAGES buffers stands; each round turns the parity. */
template <int STAGES> struct ring_place {
    int stage = 0;
    uint32_t parity = 0;

    __device__ inline void advance()
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* ---- host ------------------------------------------------------------ */

/* A map of rows of `cols` elements, for boxes of 64 rows and 64 columns. */
static inline enum zo_status zo_map_rows(const struct zo_kernels *kernels,
                                         CUtensorMap *map, enum zo_dtype type,
                                         const void *base, int64_t cols,
                                         int64_t rows, int64_t stride_elems)
{
    const cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows};
    const cuuint64_t strides[1] = {(cuuint64_t)stride_elems * 2};
    const cuuint32_t box[2] = {64, ZO_BOX_ROWS}, steps[2] = {1, 1};
    const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        kernels->encode_tile);
    const CUresult error = encode(
        map,
        type == ZO_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                        : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2, const_cast<void *>(base), sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

    if (error != CUDA_SUCCESS) {
        return ZO_FAIL_NATIVE(ZO_E_DEVICE, (int)error,
                              "attention: no map of (%lld, %lld)",
                              (long long)rows, (long long)cols);
    }
    return ZO_OK;
}

#endif
