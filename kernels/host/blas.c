/*
 * Products of fp32 matrices: the one file that knows CBLAS.
 *
 * OpenBLAS is told to use one thread a call, since the pool splits products
 * at borders of its own.  Other libraries have no common way to say so: set
 * theirs through the environment (MKL_NUM_THREADS=1, BLIS_NUM_THREADS=1).
 *
 * Sanitizers cannot see into a library: their builds use loops of our own.
 * A sanitizer would look at each operand of each multiplication, m n k times,
 * which took half the time of its tests.  It looks once a product at what that
 * reads and writes, row by row, and not at the loops.
 */
#include "kernels/host/host.h"

#ifdef ZO_SANITIZED

/* Functions of the runtimes; what GCC has of headers for them is not all. */
#if defined __SANITIZE_THREAD__

#define NOT_LOOKED_AT __attribute__((no_sanitize("thread")))

void __tsan_read_range(void *memory, unsigned long size_bytes);
void __tsan_write_range(void *memory, unsigned long size_bytes);

static void look_at(void *memory, size_t size_bytes, bool writes)
{
    if (writes) {
        __tsan_write_range(memory, size_bytes);
    } else {
        __tsan_read_range(memory, size_bytes);
    }
}

#elif defined __SANITIZE_ADDRESS__

#define NOT_LOOKED_AT __attribute__((no_sanitize("address", "undefined")))

void *__asan_region_is_poisoned(void *memory, unsigned long size_bytes);

/* To touch the first byte that may not be used ends the program, with where. */
static void look_at(void *memory, size_t size_bytes, bool writes)
{
    volatile char *bad = __asan_region_is_poisoned(memory, size_bytes);

    if (bad != NULL) {
        *bad = writes ? 0 : *bad;
    }
}

#else

#define NOT_LOOKED_AT

static void look_at(void *memory, size_t size_bytes, bool writes)
{
    (void)memory, (void)size_bytes, (void)writes;
}

#endif

static void look_at_rows(const float *matrix, int64_t rows, int64_t cols,
                         int64_t ld, bool writes)
{
    for (int64_t row = 0; row < rows; row++) {
        look_at((void *)(uintptr_t)(matrix + row * ld),
                (size_t)cols * sizeof(*matrix), writes);
    }
}

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
    look_at_rows(a, transpose_a ? k : m, transpose_a ? m : k, lda, false);
    look_at_rows(b, transpose_b ? n : k, transpose_b ? k : n, ldb, false);
    look_at_rows(c, m, n, ldc, true);
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
