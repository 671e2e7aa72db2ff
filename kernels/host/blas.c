/*
 * Products of fp32 matrices: the one file that knows CBLAS.
 *
 * OpenBLAS is told to use one thread a call, since the pool splits products
 * at borders of its own.  Other libraries have no common way to say so: set
 * theirs through the environment (MKL_NUM_THREADS=1, BLIS_NUM_THREADS=1).
 *
 * Sanitizers cannot see into a library: their builds use loops of our own.
 * ThreadSanitizer would look at each operand of each multiplication, m n k
 * times, which took half the time of its tests.  It is told once a product
 * what that reads and writes, row by row, and does not look at the loops.
 */
#include "kernels/host/host.h"

#ifdef ZO_SANITIZED

#ifdef __SANITIZE_THREAD__

#define NOT_LOOKED_AT __attribute__((no_sanitize_thread))

/* Of its runtime; no header of GCC has them. */
void __tsan_read_range(void *memory, unsigned long size_bytes);
void __tsan_write_range(void *memory, unsigned long size_bytes);

static void tell_reads(const float *matrix, int64_t rows, int64_t cols,
                       int64_t ld)
{
    for (int64_t row = 0; row < rows; row++) {
        __tsan_read_range((void *)(uintptr_t)(matrix + row * ld),
                          (unsigned long)cols * sizeof(*matrix));
    }
}

static void tell_writes(float *matrix, int64_t rows, int64_t cols, int64_t ld)
{
    for (int64_t row = 0; row < rows; row++) {
        __tsan_write_range(matrix + row * ld,
                           (unsigned long)cols * sizeof(*matrix));
    }
}

#else

#define NOT_LOOKED_AT

static void tell_reads(const float *matrix, int64_t rows, int64_t cols,
                       int64_t ld)
{
    (void)matrix, (void)rows, (void)cols, (void)ld;
}

static void tell_writes(float *matrix, int64_t rows, int64_t cols, int64_t ld)
{
    (void)matrix, (void)rows, (void)cols, (void)ld;
}

#endif

void zo_blas_open(void)
{
}

/* c's row += a[k] * b's row, for the k of one row of op(a). */
NOT_LOOKED_AT static void add_row(const float *a, int64_t a_stride, int64_t k,
                                  const float *b, int64_t ldb, int64_t n,
                                  float *c)
{
    for (int64_t p = 0; p < k; p++) {
        const float factor = a[p * a_stride];

        for (int64_t j = 0; j < n; j++) {
            c[j] += factor * b[p * ldb + j];
        }
    }
}

/* c's row += a's row times each of n rows of b. */
NOT_LOOKED_AT static void add_dots(const float *a, int64_t a_stride, int64_t k,
                                   const float *b, int64_t ldb, int64_t n,
                                   float *c)
{
    for (int64_t j = 0; j < n; j++) {
        float sum = 0.0f;

        for (int64_t p = 0; p < k; p++) {
            sum += a[p * a_stride] * b[j * ldb + p];
        }
        c[j] += sum;
    }
}

NOT_LOOKED_AT static void multiply(bool transpose_a, bool transpose_b,
                                   int64_t m, int64_t n, int64_t k,
                                   const float *a, int64_t lda, const float *b,
                                   int64_t ldb, bool is_added, float *c,
                                   int64_t ldc)
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

void zo_blas_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, const float *a, int64_t lda, const float *b,
                   int64_t ldb, bool is_added, float *c, int64_t ldc)
{
    tell_reads(a, transpose_a ? k : m, transpose_a ? m : k, lda);
    tell_reads(b, transpose_b ? n : k, transpose_b ? k : n, ldb);
    tell_writes(c, m, n, ldc);
    multiply(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, is_added, c,
             ldc);
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
