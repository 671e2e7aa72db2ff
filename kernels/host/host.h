/*
 * What the files of the host backend share.
 *
 * Layer 3, host backend only.  An operation runs in its stream's thread and
 * splits its loop over the pool at borders that follow from the shape alone,
 * so that the bits do not depend on the number of threads.  Rows are worked
 * on in fp32 blocks of ZO_BLOCK elements, which stay in the first cache.
 */
#ifndef ZO_KERNELS_HOST_HOST_H
#define ZO_KERNELS_HOST_HOST_H

#include <stdint.h>

#include "kernels/host/vector.h"
#include "kernels/kernels.h"
#include "src/base/arith.h"
#include "src/base/pool.h"

ZO_C_BEGIN

#define ZO_BLOCK       1024  /* elements of a block */
#define ZO_CHUNK_ELEMS 16384 /* elements of an index of elementwise loops */

/* ---- scratch --------------------------------------------------------- */

#define ZO_SCRATCH_FLOATS (1024 * 1024) /* of a slot: 4 MiB */

/* A slot that nobody else uses; blocks while all are taken.  Who holds one
 * waits for nothing else, so it comes free. */
float *zo_scratch_acquire(struct zo_kernels *kernels);
void zo_scratch_release(struct zo_kernels *kernels, float *scratch);

const struct zo_vector_ops *zo_kernels_vector(const struct zo_kernels *kernels);

/* For tests: another instruction set than the best. */
void zo_kernels_set_vector(struct zo_kernels *kernels,
                           const struct zo_vector_ops *vector);

/* ---- blas.c ---------------------------------------------------------- */

/* Lets a library that has threads of its own use one a call. */
void zo_blas_open(void);

/*
 * c = op(a) op(b) + (is_added ? c : 0), fp32, row-major: c is (m, n) with
 * rows ldc apart; a is (m, k), or (k, m) when transpose_a; b is (k, n), or
 * (n, k) when transpose_b.
 */
void zo_blas_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, const float *a, int64_t lda, const float *b,
                   int64_t ldb, bool is_added, float *c, int64_t ldc);

/* ---- parts_host.c ---------------------------------------------------- */

/* out[c] = (is_added ? out[c] : 0) + the sum, in order and in double, of
 * parts[0 .. count - 1][c], rounded once. */
void zo_add_parts(struct zo_pool *pool, const double *parts, int64_t count,
                  int64_t cols, bool is_added, float *out);

/* ---- elements of typed arrays ---------------------------------------- */

static inline void *zo_at(void *array, enum zo_dtype type, int64_t index)
{
    return (char *)array + (size_t)index * zo_dtype_bytes(type);
}

static inline const void *zo_at_const(const void *array, enum zo_dtype type,
                                      int64_t index)
{
    return (const char *)array + (size_t)index * zo_dtype_bytes(type);
}

/* n elements from `index` on as floats: in `block`, or where they are. */
static inline const float *zo_view(const struct zo_vector_ops *vector,
                                   float *block, const void *array,
                                   enum zo_dtype type, int64_t index, int64_t n)
{
    const void *at = zo_at_const(array, type, index);

    if (type == ZO_F32) {
        return at;
    }
    vector->load(block, at, type, n);
    return block;
}

/* ---- parts of an operation, in the calling thread ---------------------- */

/* Elements first .. first + count - 1; true when one becomes not finite. */
bool zo_adamw_range(const struct zo_vector_ops *vector,
                    const struct zo_adamw_args *args, int64_t first,
                    int64_t count);
void zo_cast_range(const struct zo_vector_ops *vector,
                   const struct zo_cast_args *args, int64_t first,
                   int64_t count);

/* ---- the operations; each runs in the stream's thread ----------------- */

#define ZO_HOST_RUN(name)                                     \
    enum zo_status zo_host_##name(struct zo_kernels *kernels, \
                                  struct zo_pool *pool,       \
                                  const struct zo_##name##_args *args)
ZO_HOST_RUN(embedding);
ZO_HOST_RUN(embedding_backward);
ZO_HOST_RUN(rmsnorm);
ZO_HOST_RUN(rmsnorm_backward);
ZO_HOST_RUN(matmul);
ZO_HOST_RUN(rope);
ZO_HOST_RUN(rope_backward);
ZO_HOST_RUN(attention);
ZO_HOST_RUN(attention_backward);
ZO_HOST_RUN(swiglu);
ZO_HOST_RUN(swiglu_backward);
ZO_HOST_RUN(gather);
ZO_HOST_RUN(scatter);
ZO_HOST_RUN(cross_entropy);
ZO_HOST_RUN(cast);
ZO_HOST_RUN(reduce);
ZO_HOST_RUN(square_norm);
ZO_HOST_RUN(adamw);
#undef ZO_HOST_RUN

/* Workspace of the operations, in bytes. */
uint64_t zo_host_rmsnorm_backward_workspace(int64_t rows, int64_t cols);
uint64_t zo_host_rope_backward_workspace(int64_t tokens, int64_t width);
uint64_t zo_host_attention_backward_workspace(int64_t tokens, int64_t heads);
uint64_t zo_host_square_norm_workspace(int64_t count);

ZO_C_END

#endif
