/*
 * Products of fp32 matrices: the one file that knows CBLAS.
 *
 * OpenBLAS is told to use one thread a call, since the pool splits products
 * at borders of its own.  Other libraries have no common way to say so: set
 * theirs through the environment (MKL_NUM_THREADS=1, BLIS_NUM_THREADS=1).
 *
 * Sanitizers cannot see into a library: their builds use loops of our own.
 */
#include "kernels/host/host.h"

#ifdef ZO_SANITIZED

void zo_blas_open(void)
{
}

/* c's row += a[k] * b's row, for the k of one row of op(a). */
static void add_row(const float *a, int64_t a_stride, int64_t k, const float *b,
                    int64_t ldb, int64_t n, float *c)
{
    for (int64_t p = 0; p < k; p++) {
        const float factor = a[p * a_stride];

        for (int64_t j = 0; j < n; j++) {
            c[j] += factor * b[p * ldb + j];
        }
    }
}

/* c's row += a's row times each of n rows of b. */
static void add_dots(const float *a, int64_t a_stride, int64_t k,
                     const float *b, int64_t ldb, int64_t n, float *c)
{
    for (int64_t j = 0; j < n; j++) {
        float sum = 0.0f;

        for (int64_t p = 0; p < k; p++) {
            sum += a[p * a_stride] * b[j * ldb + p];
        }
        c[j] += sum;
    }
}

void zo_blas_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, const float *a, int64_t lda, const float *b,
                   int64_t ldb, bool is_added, float *c, int64_t ldc)
{
    const int64_t row_stride = transpose_a ? 1 : lda;
    const int64_t a_stride = transpose_a ? lda : 1;

    for (int64_t i = 0; i < m; i++) {
        float *row = c + i * ldc;

        for (int64_t j = 0; j < n && !is_added; j++) {
            row[j] = 0.0f;
        }
        if (transpose_b) {
            add_dots(a + i * row_stride, a_stride, k, b, ldb, n, row);
        } else {
            add_row(a + i * row_stride, a_stride, k, b, ldb, n, row);
        }
    }
}

#else

#include <cblas.h>

void openblas_set_num_threads(int count) __attribute__((weak));

void zo_blas_open(void)
{
    if (openblas_set_num_threads != NULL) {
        openblas_set_num_threads(1);
    }
}

void zo_blas_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, const float *a, int64_t lda, const float *b,
                   int64_t ldb, bool is_added, float *c, int64_t ldc)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k,
                1.0f, a, (int)lda, b, (int)ldb, is_added ? 1.0f : 0.0f, c,
                (int)ldc);
}

#endif
