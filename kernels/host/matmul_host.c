/*
 * Matrix product.
 *
 *   layout    c in tiles of TILE_M x TILE_N, one a pool index; K in blocks of
 *             BLOCK_K, added in order
 *   traffic   16-bit operands become fp32 panels in scratch, once a tile
 *   bound by  the library's sgemm; panels cost some 1/64 of a tile's product
 *   same bits for any number of threads: yes, all borders are constants
 *   tested by tests/test_kernels_matmul.c
 */
#include <string.h>

#include "kernels/host/host.h"

#define TILE_M  256
#define TILE_N  512
#define BLOCK_K 1024

_Static_assert(TILE_M *BLOCK_K + BLOCK_K * TILE_N + TILE_M * TILE_N <=
                   ZO_SCRATCH_FLOATS,
               "the panels and the tile fit in a slot of scratch");
_Static_assert(TILE_N <= ZO_BLOCK, "a row of a tile fits in a block");

struct work {
    struct zo_kernels *kernels;
    const struct zo_vector_ops *vector;
    const struct zo_matmul_args *args;
    int64_t tiles_m;
};

/* Rows and columns of a part of a stored matrix. */
struct part {
    int64_t row, col, rows, cols;
};

/* A part of op(x), as it is stored, as floats: where it is, or in `panel`. */
static const float *load_part(const struct work *work, float *panel,
                              const void *matrix, int64_t ld, struct part part,
                              int64_t *ld_out)
{
    const enum zo_dtype type = work->args->type;

    if (type == ZO_F32) {
        *ld_out = ld;
        return (const float *)matrix + part.row * ld + part.col;
    }
    for (int64_t row = 0; row < part.rows; row++) {
        work->vector->load(
            panel + row * part.cols,
            zo_at_const(matrix, type, (part.row + row) * ld + part.col), type,
            part.cols);
    }
    *ld_out = part.cols;
    return panel;
}

/* tile (rows ldc apart) = the product without the addend */
static void multiply(const struct work *work, struct part tile, float *panels,
                     float *c, int64_t ldc)
{
    const struct zo_matmul_args *args = work->args;

    if (args->k == 0) {
        for (int64_t row = 0; row < tile.rows; row++) {
            memset(c + row * ldc, 0, (size_t)tile.cols * sizeof(*c));
        }
    }
    for (int64_t k = 0; k < args->k; k += BLOCK_K) {
        const int64_t depth = zo_min_i64(BLOCK_K, args->k - k);
        const struct part a_part =
            args->transpose_a ? (struct part){k, tile.row, depth, tile.rows}
                              : (struct part){tile.row, k, tile.rows, depth};
        const struct part b_part =
            args->transpose_b ? (struct part){tile.col, k, tile.cols, depth}
                              : (struct part){k, tile.col, depth, tile.cols};
        int64_t lda, ldb;
        const float *a =
            load_part(work, panels, args->a,
                      args->transpose_a ? args->m : args->k, a_part, &lda);
        const float *b =
            load_part(work, panels + TILE_M * BLOCK_K, args->b,
                      args->transpose_b ? args->k : args->n, b_part, &ldb);

        zo_blas_sgemm(args->transpose_a, args->transpose_b, tile.rows,
                      tile.cols, depth, a, lda, b, ldb, k > 0, c, ldc);
    }
}

/* Adds the addend, and rounds. */
static void finish(const struct work *work, struct part tile, float *product)
{
    const struct zo_matmul_args *args = work->args;
    float block[ZO_BLOCK];

    for (int64_t row = 0; row < tile.rows; row++) {
        const int64_t at = (tile.row + row) * args->n + tile.col;
        float *sums = product + row * tile.cols;

        if (args->addend != NULL) {
            work->vector->add(sums,
                              zo_view(work->vector, block, args->addend,
                                      args->c_type, at, tile.cols),
                              tile.cols);
        }
        work->vector->store(zo_at(args->c, args->c_type, at), args->c_type,
                            sums, tile.cols);
    }
}

static void run_tile(void *argument, int64_t index)
{
    const struct work *work = argument;
    const struct zo_matmul_args *args = work->args;
    struct part tile = {.row = index % work->tiles_m * TILE_M,
                        .col = index / work->tiles_m * TILE_N};
    float *scratch = zo_scratch_acquire(work->kernels);
    float *product = scratch + TILE_M * BLOCK_K + BLOCK_K * TILE_N;

    tile.rows = zo_min_i64(TILE_M, args->m - tile.row);
    tile.cols = zo_min_i64(TILE_N, args->n - tile.col);
    if (args->c_type == ZO_F32 && args->addend == NULL) {
        multiply(work, tile, scratch,
                 (float *)args->c + tile.row * args->n + tile.col, args->n);
    } else {
        multiply(work, tile, scratch, product, tile.cols);
        finish(work, tile, product);
    }
    zo_scratch_release(work->kernels, scratch);
}

enum zo_status zo_host_matmul(struct zo_kernels *kernels, struct zo_pool *pool,
                              const struct zo_matmul_args *args)
{
    struct work work = {
        .kernels = kernels,
        .vector = zo_kernels_vector(kernels),
        .args = args,
        .tiles_m = zo_div_ceil(args->m, TILE_M),
    };

    zo_pool_run(pool, run_tile, &work,
                work.tiles_m * zo_div_ceil(args->n, TILE_N));
    return ZO_OK;
}
