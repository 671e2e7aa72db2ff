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

#ifdef ZO_SANITIZED
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "kernels/host/host.h"
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

/* ---- what sanitizers look at --------------------------------------------- */

#ifdef ZO_SANITIZED

enum { M = 3, N = 5, K = 7, LD = 9 };

/* A product in a process of its own, and whether a sanitizer objects. */
struct watched {
    bool transpose_a, transpose_b;
    float *a, *b, *c; /* rows LD apart */
};

static void run_watched(const struct watched *self)
{
    zo_blas_sgemm(self->transpose_a, self->transpose_b, M, N, K, self->a, LD,
                  self->b, LD, false, self->c, LD);
}

static bool is_refused(const struct watched *self,
                       int (*body)(const struct watched *self, float *element),
                       float *element)
{
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        _exit(freopen("/dev/null", "w", stderr) != NULL ? body(self, element)
                                                        : 2);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 1;
}

/* Elements of an operand in the form that it is stored in. */
static int64_t used_elems(bool is_transposed, int64_t rows, int64_t cols)
{
    return ((is_transposed ? cols : rows) - 1) * LD +
           (is_transposed ? rows : cols);
}

#ifdef __SANITIZE_THREAD__

static atomic_int reports;

/* The runtime calls this at each report. */
void __tsan_on_report(void *report);
void __tsan_on_report(void *report)
{
    (void)report;
    atomic_fetch_add(&reports, 1);
}

/* Relaxed: it orders nothing. */
static atomic_bool is_used;

static void *write_element(void *element)
{
    *(float *)element = 0.0f;
    atomic_store_explicit(&is_used, true, memory_order_relaxed);
    return NULL;
}

static void *read_element(void *element)
{
    (void)*(volatile float *)element;
    atomic_store_explicit(&is_used, true, memory_order_relaxed);
    return NULL;
}

static int run_beside(const struct watched *self, void *(*use)(void *element),
                      float *element)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, use, element) != 0) {
        return 2;
    }
    while (!atomic_load_explicit(&is_used, memory_order_relaxed)) {
    }
    run_watched(self);
    (void)pthread_join(thread, NULL);
    return atomic_load(&reports) > 0 ? 1 : 0;
}

static int beside_write(const struct watched *self, float *element)
{
    return run_beside(self, write_element, element);
}

static int beside_read(const struct watched *self, float *element)
{
    return run_beside(self, read_element, element);
}

/* Another thread uses the last element of an operand, or the one behind. */
static void check_form(const struct watched *self)
{
    float *a_end = self->a + used_elems(self->transpose_a, M, K);
    float *b_end = self->b + used_elems(self->transpose_b, K, N);
    float *c_end = self->c + used_elems(false, M, N);

    TAP_CHECK(is_refused(self, beside_write, a_end - 1));
    TAP_CHECK(is_refused(self, beside_write, b_end - 1));
    TAP_CHECK(is_refused(self, beside_read, c_end - 1));
    TAP_CHECK(!is_refused(self, beside_read, a_end - 1));
    TAP_CHECK(!is_refused(self, beside_write, a_end));
    TAP_CHECK(!is_refused(self, beside_write, b_end));
    TAP_CHECK(!is_refused(self, beside_write, c_end));
}

#elif defined __SANITIZE_ADDRESS__

static int run_alone(const struct watched *self, float *element)
{
    (void)element;
    run_watched(self);
    return 0;
}

/* Each operand in turn is an element short. */
static void check_form(const struct watched *self)
{
    const int64_t counts[] = {used_elems(self->transpose_a, M, K),
                              used_elems(self->transpose_b, K, N),
                              used_elems(false, M, N)};

    for (int which = 0; which < 4; which++) {
        struct watched small = *self;
        float **const at[] = {&small.a, &small.b, &small.c};

        for (int i = 0; i < 3; i++) {
            *at[i] = calloc((size_t)counts[i] - (i == which), sizeof(float));
        }
        TAP_CHECK(is_refused(&small, run_alone, NULL) == (which < 3));
        for (int i = 0; i < 3; i++) {
            free(*at[i]);
        }
    }
}

#else

static void check_form(const struct watched *self)
{
    (void)self, (void)is_refused, (void)used_elems;
    tap_skip("neither AddressSanitizer nor ThreadSanitizer");
}

#endif

static void test_is_looked_at(void)
{
    static float a[LD * LD], b[LD * LD], c[LD * LD];

    for (int form = 0; form < 4; form++) {
        check_form(&(struct watched){.transpose_a = form % 2 != 0,
                                     .transpose_b = form / 2 != 0,
                                     .a = a,
                                     .b = b,
                                     .c = c});
    }
}

#else

static void test_is_looked_at(void)
{
    tap_skip("not a sanitizer's build");
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
        {"sanitizers look at what a product reads and writes",
         test_is_looked_at},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
