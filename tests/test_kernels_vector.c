/*
 * The inner loops of the host backend.
 *
 * Method: every instruction set of this processor on the same input, in
 * lengths around the widest vector; conversions exhaustively against dtype.h,
 * the exponential against the C library's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/vector.h"
#include "src/base/dtype.h"
#include "tests/rig.h"
#include "tests/tap.h"

static int usable(const struct zo_vector_ops **all)
{
    return zo_vector_usable(all);
}

static void test_best(void)
{
    const struct zo_vector_ops *all[3];
    const int count = usable(all);

    TAP_CHECK(count >= 1 && count <= 3);
    TAP_CHECK(strcmp(all[0]->name, "base") == 0);
    TAP_CHECK(zo_vector_best() == all[count - 1]);
}

/* ---- conversions ----------------------------------------------------- */

enum { HALVES = 65536 };

/* Two NaNs are the same when they are NaNs: the payload may be quieted. */
static bool same_float(float a, float b)
{
    return zo_f32_bits(a) == zo_f32_bits(b) || (isnan(a) && isnan(b));
}

static void test_load(void)
{
    const struct zo_vector_ops *all[3];
    const int count = usable(all);
    uint16_t *halves = calloc(HALVES, sizeof(*halves));
    float *floats = calloc(HALVES, sizeof(*floats));

    TAP_CHECK(halves != NULL && floats != NULL);
    for (int i = 0; i < HALVES; i++) {
        halves[i] = (uint16_t)i;
    }
    for (int v = 0; v < count; v++) {
        for (int type = ZO_BF16; type <= ZO_F16; type++) {
            all[v]->load(floats, halves, (enum zo_dtype)type, HALVES);
            for (int i = 0; i < HALVES; i++) {
                TAP_CHECK(same_float(floats[i],
                                     zo_load(halves, (enum zo_dtype)type, i)));
            }
        }
    }
    free(halves), free(floats);
}

/* Around every half: itself, the ties on either side, and their neighbours;
 * then a walk through all floats. */
static void test_store(void)
{
    const struct zo_vector_ops *all[3];
    const int count = usable(all);
    const int n = HALVES * 16;
    uint16_t *halves = calloc((size_t)n, sizeof(*halves));
    float *floats = calloc((size_t)n, sizeof(*floats));

    TAP_CHECK(halves != NULL && floats != NULL);
    for (int i = 0; i < HALVES; i++) {
        const uint32_t bf16 = (uint32_t)i << 16;
        const uint32_t f16 = zo_f32_bits(zo_f16_to_f32((uint16_t)i));

        for (uint32_t k = 0; k < 3; k++) {
            floats[16 * i + k] = zo_f32_from_bits(bf16 + 0x7fffu + k);
            floats[16 * i + 3 + k] = zo_f32_from_bits(f16 + 0xfffu + k);
            floats[16 * i + 6 + k] = zo_f32_from_bits(f16 - 1u + k);
        }
        /* subnormal ties are at odd multiples of 2^-25 */
        floats[16 * i + 9] = (float)(2 * i + 1) * 0x1p-25f;
        for (int k = 10; k < 16; k++) {
            floats[16 * i + k] =
                zo_f32_from_bits((uint32_t)(16 * i + k) * 2654435761u);
        }
    }
    for (int v = 0; v < count; v++) {
        for (int type = ZO_BF16; type <= ZO_F16; type++) {
            all[v]->store(halves, (enum zo_dtype)type, floats, n);
            for (int i = 0; i < n; i++) {
                uint16_t want = 0;

                zo_store(&want, (enum zo_dtype)type, 0, floats[i]);
                if (halves[i] != want) {
                    tap_fail(__FILE__, __LINE__, "%s: %a to %#x, want %#x",
                             all[v]->name, (double)floats[i], halves[i], want);
                    return;
                }
            }
        }
    }
    free(halves), free(floats);
}

/* ---- exp ------------------------------------------------------------- */

static void test_exp(void)
{
    enum { COUNT = 40000 };
    const struct zo_vector_ops *vector = zo_vector_best();
    float *x = calloc(COUNT, sizeof(*x)), *out = calloc(COUNT, sizeof(*out));
    double sum = 0.0, got;

    TAP_CHECK(x != NULL && out != NULL);
    for (int i = 0; i < COUNT; i++) { /* -86.5 .. 88.7 */
        x[i] = -86.5f + 175.2f * (float)i / (float)COUNT;
    }
    got = vector->exp_sum(out, x, 0.0f, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const double want = exp((double)x[i]);

        sum += (double)out[i];
        TAP_CHECK(fabs((double)out[i] - want) <= 2.0 * 0x1p-24 * want);
    }
    TAP_CHECK(fabs(got - sum) <= 1e-12 * sum);
    x[0] = -INFINITY;
    x[1] = -1e30f;
    x[2] = -87.0f;
    x[3] = 89.0f;
    x[4] = INFINITY;
    x[5] = NAN;
    x[6] = 0.0f;
    (void)vector->exp_sum(x, x, 0.0f, 7); /* in place */
    TAP_CHECK(x[0] == 0.0f && x[1] == 0.0f);
    TAP_CHECK(x[2] >= 0.0f && x[2] < 1e-37f);
    TAP_CHECK(isinf(x[3]) && isinf(x[4]) && isnan(x[5]));
    TAP_CHECK(x[6] == 1.0f);
    free(x), free(out);
}

/* ---- all loops, all instruction sets --------------------------------- */

enum { LENGTH_MAX = 131 };

/* Results of all loops on one seeded input of n elements. */
struct results {
    float floats[12][2 * LENGTH_MAX];
    double sums[4], doubles[3][LENGTH_MAX];
    uint16_t halves[5][LENGTH_MAX];
    int16_t remainders[LENGTH_MAX];
    uint64_t bad;
};

static void fill(struct rig *rig, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(8.0 * rig_uniform(rig) - 4.0);
    }
}

/* Of the types with most to do; tests/test_kernels_adamw.c has them all. */
static uint64_t run_adamw(const struct zo_vector_ops *v, int64_t n,
                          struct results *r, const float *x)
{
    struct zo_adamw_args args = {
        .weight = r->halves[0],
        .remainder = r->remainders,
        .exp_avg = r->halves[1],
        .exp_avg_sq = r->halves[2],
        .grad = r->halves[3],
        .count = n,
        .first_index = 77,
        .scalars = {0.7f, 0.9f, 0.1f, 0.99f, 0.01f, 1.25f, 1e-8f, 1e-3f, 0.02f,
                    3},
        .type = ZO_BF16,
        .moment_type = ZO_BF16,
    };
    uint64_t bad;

    v->store(r->halves[3], ZO_BF16, x, n);
    bad = v->adamw(&args, 0, n, true);
    args.type = ZO_F16;
    args.weight = r->halves[4];
    args.master = r->floats[11];
    return bad + v->adamw(&args, 0, n, false);
}

static void run_all(const struct zo_vector_ops *v, int64_t n, struct results *r)
{
    struct rig rig = {.random = (uint64_t)n};
    float x[2 * LENGTH_MAX], y[LENGTH_MAX], z[LENGTH_MAX], w[LENGTH_MAX];

    memset(r, 0, sizeof(*r));
    fill(&rig, x, 2 * n);
    fill(&rig, y, n);
    fill(&rig, z, n);
    fill(&rig, w, n);
    for (int i = 0; i < 12; i++) {
        fill(&rig, r->floats[i], 2 * n);
    }
    v->add(r->floats[0], x, n);
    v->scale(r->floats[1], 0.3f, n);
    v->add_to_double(r->doubles[0], x, n);
    r->sums[0] = v->sum_squares(x, n);
    r->sums[1] = v->dot(x, y, n);
    r->sums[2] = v->dot3(x, y, z, n);
    r->floats[2][0] = n > 0 ? v->max(x, n) : 0.0f;
    r->sums[3] = v->exp_sum(r->floats[3], x, 1.5f, n);
    v->softmax_gradient(r->floats[4], x, 2.0f, 0.4f, 3.0f, n);
    v->attention_gradient(r->floats[5], x, 0.2f, 0.7f, n);
    v->rmsnorm(r->floats[6], x, y, 1.3f, n);
    v->rmsnorm_backward(r->floats[7], x, y, z, w, 1.1f, 0.3f, n);
    v->rmsnorm_weight(r->doubles[1], x, y, 0.9f, n);
    v->swiglu(r->floats[8], x, y, n);
    v->swiglu_backward(r->floats[9], r->floats[9] + n, x, n);
    v->rotate(r->floats[10], x, -1.0f, n);
    r->bad = v->square_lanes(r->doubles[2], x, n);
    r->bad += run_adamw(v, n, r, x);
}

static void test_same_bits(void)
{
    const struct zo_vector_ops *all[3];
    const int count = usable(all);
    struct results *first = malloc(sizeof(*first));
    struct results *other = malloc(sizeof(*other));

    TAP_CHECK(first != NULL && other != NULL);
    for (int64_t n = 0; n <= LENGTH_MAX; n++) {
        run_all(all[0], n, first);
        for (int v = 1; v < count; v++) {
            run_all(all[v], n, other);
            if (memcmp(first, other, sizeof(*first)) != 0) {
                tap_fail(__FILE__, __LINE__, "%s differs at length %d",
                         all[v]->name, (int)n);
                return;
            }
        }
    }
    free(first), free(other);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the widest usable instruction set is chosen", test_best},
        {"all 65536 halves load as dtype.h says", test_load},
        {"floats around every half store as dtype.h says", test_store},
        {"the exponential is within 2 ulp", test_exp},
        {"every loop gives the same bits on every instruction set",
         test_same_bits},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
