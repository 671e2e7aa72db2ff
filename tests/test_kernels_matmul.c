/*
 * The matrix product.
 *
 * Method: plain loops in double on the same inputs, for every form of the
 * call, everywhere that rig.h runs them.  Shapes are the edges of the host's
 * tiles (256 x 512, K in blocks of 1024) and the empty ones.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_THREAD__
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/host/host.h"
#endif

#include "src/base/memory.h"
#include "tests/rig.h"
#include "tests/tap.h"

enum addend { ADDEND_NONE, ADDEND_OTHER, ADDEND_C, ADDENDS };

struct product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
};

/* want[m][n] += op(a) op(b) */
static void add_product(const struct product *self, const double *a,
                        const double *b, double *want)
{
    const int64_t m = self->m, n = self->n, k = self->k;

    for (int64_t i = 0; i < m; i++) {
        for (int64_t p = 0; p < k; p++) {
            const double factor =
                self->transpose_a ? a[p * m + i] : a[i * k + p];

            for (int64_t j = 0; j < n; j++) {
                want[i * n + j] +=
                    factor * (self->transpose_b ? b[j * k + p] : b[p * n + j]);
            }
        }
    }
}

static void check_product(struct rig *rig, const struct product *self,
                          enum zo_dtype type, enum zo_dtype c_type,
                          enum addend addend)
{
    const int64_t m = self->m, n = self->n, k = self->k;
    struct rig_array *a = rig_random(rig, (enum rig_type)type, m * k, 1.0);
    struct rig_array *b = rig_random(rig, (enum rig_type)type, k * n, 1.0);
    struct rig_array *c = rig_random(rig, (enum rig_type)c_type, m * n, 1.0);
    struct rig_array *other =
        rig_random(rig, (enum rig_type)c_type, m * n, 1.0);
    struct rig_array *workspace = rig_bytes(rig, rig->ops->matmul_workspace());
    double *a_values = rig_values(a), *b_values = rig_values(b);
    double *want = addend == ADDEND_NONE    ? rig_doubles(m * n)
                   : addend == ADDEND_OTHER ? rig_values(other)
                                            : rig_values(c);
    const struct zo_matmul_args args = {
        .c = c->at,
        .a = a->at,
        .b = b->at,
        .addend = addend == ADDEND_NONE    ? NULL
                  : addend == ADDEND_OTHER ? other->at
                                           : c->at,
        .workspace = workspace->at,
        .m = m,
        .n = n,
        .k = k,
        .transpose_a = self->transpose_a,
        .transpose_b = self->transpose_b,
        .type = type,
        .c_type = c_type,
    };

    add_product(self, a_values, b_values, want);
    RIG_CHECK(rig->ops->matmul(rig->kernels, rig->stream, &args) == ZO_OK);
    (void)rig_matches(rig, "c", c, want, rig_product_bound(k));
    free(a_values), free(b_values), free(want);
    rig_clear(rig);
}

/* All forms of one shape. */
static void check_shape(struct rig *rig, int64_t m, int64_t n, int64_t k)
{
    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (int form = 0; form < 4 * ADDENDS; form++) {
            const struct product self = {m, n, k, (form & 1) != 0,
                                         (form & 2) != 0};

            check_product(rig, &self, rig_types[t], rig_types[t],
                          (enum addend)(form / 4));
            if (rig_types[t] != ZO_F32) {
                check_product(rig, &self, rig_types[t], ZO_F32,
                              (enum addend)(form / 4));
            }
        }
    }
}

static void product_cases(struct rig *rig)
{
    static const int64_t shapes[][3] = {
        {0, 5, 6},  {5, 0, 6},    {5, 6, 0},   {1, 1, 1},    {3, 7, 5},
        {1, 70, 9}, {257, 3, 11}, {5, 515, 9}, {3, 5, 1030}, {130, 33, 65},
    };

    for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
        check_shape(rig, shapes[i][0], shapes[i][1], shapes[i][2]);
    }
}

static void test_products(void)
{
    rig_everywhere(product_cases);
}

/* Rounding the product before adding would lose the 1. */
static void rounds_once(struct rig *rig)
{
    struct rig_array *a = rig_array(rig, RIG_BF16, 1);
    struct rig_array *b = rig_array(rig, RIG_BF16, 1);
    struct rig_array *c = rig_array(rig, RIG_BF16, 1);
    struct rig_array *addend = rig_array(rig, RIG_BF16, 1);
    struct rig_array *workspace = rig_bytes(rig, rig->ops->matmul_workspace());
    const struct zo_matmul_args args = {
        .c = c->at,
        .a = a->at,
        .b = b->at,
        .addend = addend->at,
        .workspace = workspace->at,
        .m = 1,
        .n = 1,
        .k = 1,
        .type = ZO_BF16,
        .c_type = ZO_BF16,
    };

    rig_set(a, 0, 129.0);
    rig_set(b, 0, 129.0); /* 16641: bf16 holds 16640 */
    rig_set(addend, 0, -16640.0);
    RIG_CHECK(rig_upload(rig, a) && rig_upload(rig, b) &&
              rig_upload(rig, addend));
    RIG_CHECK(rig->ops->matmul(rig->kernels, rig->stream, &args) == ZO_OK);
    RIG_CHECK(rig_fetch(rig, c));
    RIG_CHECK(rig_get(c, 0) == 1.0);
    rig_clear(rig);
}

static void test_rounds_once(void)
{
    rig_everywhere(rounds_once);
}

/* Streams of one device share its scratch, of fewer slots than callers. */
static void test_several_streams(void)
{
    enum { STREAMS = 4, SIDE = 96 };
    struct zo_stream *streams[STREAMS];
    struct rig_array *c[STREAMS], *a, *b;
    double *want, *a_values, *b_values;
    const struct product self = {SIDE, SIDE, SIDE, false, true};
    struct rig rig;

    TAP_CHECK(rig_open_host(&rig, 1));
    a = rig_random(&rig, RIG_BF16, SIDE * SIDE, 1.0);
    b = rig_random(&rig, RIG_BF16, SIDE * SIDE, 1.0);
    want = rig_doubles(SIDE * SIDE);
    a_values = rig_values(a);
    b_values = rig_values(b);
    add_product(&self, a_values, b_values, want);
    for (int i = 0; i < STREAMS; i++) {
        c[i] = rig_array(&rig, RIG_F32, SIDE * SIDE);
        TAP_CHECK_INT(
            rig.device_ops->stream_open(rig.device, "more", &streams[i]),
            ZO_OK);
    }
    for (int again = 0; again < 20; again++) {
        for (int i = 0; i < STREAMS; i++) {
            const struct zo_matmul_args args = {
                .c = c[i]->at,
                .a = a->at,
                .b = b->at,
                .m = SIDE,
                .n = SIDE,
                .k = SIDE,
                .transpose_b = true,
                .type = ZO_BF16,
                .c_type = ZO_F32,
            };
            TAP_CHECK_INT(rig.ops->matmul(rig.kernels, streams[i], &args),
                          ZO_OK);
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        rig.device_ops->stream_close(streams[i]);
        (void)rig_matches(&rig, "c", c[i], want, rig_product_bound(SIDE));
    }
    free(want), free(a_values), free(b_values);
    rig_close(&rig);
}

static void test_open_and_close(void)
{
    struct zo_kernels *untouched = (struct zo_kernels *)&untouched;
    struct zo_kernels *kernels = untouched;
    struct zo_kernels_options options = {0};
    uint64_t before;
    struct rig rig;

    TAP_CHECK(rig_open_host(&rig, 2));
    before = rig.device_ops->mem_allocated(rig.device, ZO_MEM_DEVICE);
    options.pool = rig.pool;
    for (uint64_t nth = 1; kernels == untouched; nth++) {
        zo_memory_fail_at(nth);
        if (rig.ops->open(rig.device, &options, &kernels) != ZO_OK) {
            TAP_CHECK(kernels == untouched);
            TAP_CHECK(rig.device_ops->mem_allocated(rig.device,
                                                    ZO_MEM_DEVICE) == before);
        }
        zo_memory_fail_at(0);
        TAP_CHECK(nth < 8);
    }
    TAP_CHECK(rig.ops->own_device_bytes(kernels) ==
              rig.device_ops->mem_allocated(rig.device, ZO_MEM_DEVICE) -
                  before);
    TAP_CHECK(rig.ops->own_device_bytes(kernels) > 0);
    rig.ops->close(kernels);
    rig.ops->close(NULL);
    TAP_CHECK(rig.device_ops->mem_allocated(rig.device, ZO_MEM_DEVICE) ==
              before);
    rig_close(&rig);
}

static void test_cuda_stub(void)
{
#ifdef HAVE_CUDA
    tap_skip("built with CUDA: there is no stub");
#else
    struct zo_kernels *kernels = NULL;
    int count = 0;

    TAP_CHECK_INT(zo_device_cuda.count(&count), ZO_OK);
    if (count > 0) {
        tap_skip("this build has CUDA devices");
        return;
    }
    TAP_CHECK(zo_kernels_cuda.open(NULL, NULL, &kernels) != ZO_OK);
    TAP_CHECK(kernels == NULL);
    zo_kernels_cuda.close(NULL);
#endif
}

/* ---- what ThreadSanitizer is told ---------------------------------------- */

#ifdef __SANITIZE_THREAD__

static atomic_int reports;

/* Its runtime calls this at each report. */
void __tsan_on_report(void *report);
void __tsan_on_report(void *report)
{
    (void)report;
    atomic_fetch_add(&reports, 1);
}

/* An element that another thread uses during a product. */
struct element {
    float *at;
    bool is_read; /* or written */
    float value;
    atomic_bool is_used;
};

static void *use_element(void *argument)
{
    struct element *element = argument;

    if (element->is_read) {
        element->value = *element->at;
    } else {
        *element->at = 0.0f;
    }
    /* Relaxed: it orders nothing. */
    atomic_store_explicit(&element->is_used, true, memory_order_relaxed);
    return NULL;
}

enum { M = 3, N = 5, K = 7, LD = 9 };

/* Does using that element race with a product?  In a process of its own, since
 * a report is given once. */
static bool races(bool transpose_a, bool transpose_b, float *at, bool is_read,
                  float *a, float *b, float *c)
{
    struct element element = {.at = at, .is_read = is_read};
    const pid_t child = fork();
    pthread_t thread;
    int status = 0;

    if (child != 0) {
        return waitpid(child, &status, 0) == child && WIFEXITED(status) &&
               WEXITSTATUS(status) == 1;
    }
    if (freopen("/dev/null", "w", stderr) == NULL ||
        pthread_create(&thread, NULL, use_element, &element) != 0) {
        _exit(2);
    }
    while (!atomic_load_explicit(&element.is_used, memory_order_relaxed)) {
    }
    zo_blas_sgemm(transpose_a, transpose_b, M, N, K, a, LD, b, LD, false, c,
                  LD);
    (void)pthread_join(thread, NULL);
    _exit(atomic_load(&reports) > 0 ? 1 : 0);
}

static void test_is_told(void)
{
    static float a[LD * LD], b[LD * LD], c[LD * LD];

    for (int form = 0; form < 4; form++) {
        const bool ta = form % 2 != 0, tb = form / 2 != 0;
        float *const a_last =
            &a[ta ? (K - 1) * LD + M - 1 : (M - 1) * LD + K - 1];
        float *const b_last =
            &b[tb ? (N - 1) * LD + K - 1 : (K - 1) * LD + N - 1];
        float *const c_last = &c[(M - 1) * LD + N - 1];

        TAP_CHECK(races(ta, tb, a_last, false, a, b, c));
        TAP_CHECK(races(ta, tb, b_last, false, a, b, c));
        TAP_CHECK(races(ta, tb, c_last, true, a, b, c));
        TAP_CHECK(!races(ta, tb, a_last, true, a, b, c));
        TAP_CHECK(!races(ta, tb, a_last + 1, false, a, b, c));
        TAP_CHECK(!races(ta, tb, b_last + 1, false, a, b, c));
        TAP_CHECK(!races(ta, tb, c_last + 1, false, a, b, c));
    }
}

#else

static void test_is_told(void)
{
    tap_skip("not under ThreadSanitizer");
}

#endif

int main(void)
{
    static const struct tap_case cases[] = {
        {"every form of a product matches double", test_products},
        {"a product and its addend are rounded once", test_rounds_once},
        {"streams may share the scratch of a device", test_several_streams},
        {"what open takes is counted, and each failure is clean",
         test_open_and_close},
        {"without CUDA its kernels do not open", test_cuda_stub},
        {"ThreadSanitizer is told what a product reads and writes",
         test_is_told},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
