/*
 * Tiles of 16-bit rows in shared memory, and products of a warp with them.
 *
 * Layer 3, private to kernels/cuda.  A tile has rows of D elements, D a power
 * of two from 16 to 128, kept as 16-byte units.  Units of a row are swapped
 * around by the row's number, so that the eight rows that a warp reads at
 * once lie in different banks.
 */
#ifndef ZO_KERNELS_CUDA_TILE_CUH
#define ZO_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/ptx.cuh"

/* Where unit `unit` of row `row` is, in units. */
template <int D> __device__ inline int tile_at(int row, int unit)
{
    constexpr int UNITS = D / ZO_GROUP;
    constexpr int ROWS_PER_LINE = UNITS < 8 ? 8 / UNITS : 1; /* of 128 bytes */
    constexpr int SWAPPED = UNITS < 8 ? UNITS : 8;

    return row * UNITS + (unit ^ (row / ROWS_PER_LINE % SWAPPED));
}

/* Starts copying ROWS rows with THREADS threads; rows from `valid` on become
 * zeros. */
template <typename T, int D, int ROWS, int THREADS>
__device__ inline void tile_copy(uint4 *tile, const T *from, int64_t stride,
                                 int valid)
{
    constexpr int UNITS = D / ZO_GROUP;

#pragma unroll
    for (int i = 0; i < ROWS * UNITS; i += THREADS) {
        const int index = i + threadIdx.x;
        const int row = index / UNITS, unit = index % UNITS;

        if (ROWS * UNITS % THREADS != 0 && index >= ROWS * UNITS) {
            break;
        }
        copy_async_16(tile + tile_at<D>(row, unit),
                      from + (row < valid ? row * stride : 0) + unit * ZO_GROUP,
                      row < valid);
    }
}

/* The left factor, 16 x 16, at row `row` and column 16 * step. */
template <int D>
__device__ inline void tile_left(uint32_t (&a)[4], const uint4 *tile, int row,
                                 int step)
{
    const int lane = threadIdx.x % ZO_WARP;

    load_matrices(a, tile + tile_at<D>(row + lane % 16, step * 2 + lane / 16));
}

/* Two right factors, 16 x 8 each, for a product with rows of the tile: rows
 * row .. row + 15 are the columns of the result, step as above. */
template <int D>
__device__ inline void tile_right_rows(uint32_t (&b)[4], const uint4 *tile,
                                       int row, int step)
{
    const int lane = threadIdx.x % ZO_WARP;

    load_matrices(b, tile + tile_at<D>(row + lane / 16 * 8 + lane % 8,
                                       step * 2 + lane / 8 % 2));
}

/* The same for a product with columns of the tile: columns 16 * block .. + 15
 * are those of the result; rows row .. row + 15 are summed over. */
template <int D>
__device__ inline void tile_right_columns(uint32_t (&b)[4], const uint4 *tile,
                                          int row, int block)
{
    const int lane = threadIdx.x % ZO_WARP;

    load_matrices_transposed(
        b, tile + tile_at<D>(row + lane / 8 % 2 * 8 + lane % 8,
                             block * 2 + lane / 16));
}

/* sums (16 x 8 N) += left (16 x D) times the tile's rows, transposed. */
template <typename T, int D, int N, typename Left>
__device__ inline void multiply_rows(float (&sums)[N][4], const Left &left,
                                     const uint4 *tile)
{
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t a[4];

        left(a, step);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];

            tile_right_rows<D>(b, tile, n * 8, step);
            multiply_add<T>(sums[n], a, b[0], b[1]);
            multiply_add<T>(sums[n + 1], a, b[2], b[3]);
        }
    }
}

/*
 * sums (16 x D) += left (16 x 8 N) times the tile.  left is a result of
 * multiply_rows, whose lanes hold just what the left factor wants of them.
 */
template <typename T, int D, int N>
__device__ inline void multiply_columns(float (&sums)[D / 8][4],
                                        const float (&left)[N][4],
                                        const uint4 *tile)
{
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        const uint32_t a[4] = {pack2<T>(left[n][0], left[n][1]),
                               pack2<T>(left[n][2], left[n][3]),
                               pack2<T>(left[n + 1][0], left[n + 1][1]),
                               pack2<T>(left[n + 1][2], left[n + 1][3])};

#pragma unroll
        for (int block = 0; block < D / 16; block++) {
            uint32_t b[4];

            tile_right_columns<D>(b, tile, n * 8, block);
            multiply_add<T>(sums[2 * block], a, b[0], b[1]);
            multiply_add<T>(sums[2 * block + 1], a, b[2], b[3]);
        }
    }
}

#endif
