/*
 * The one body of vector.h, included by vector_base.c, vector_avx2.c and
 * vector_avx512.c after their target is set.  No include guard: each file
 * makes its own copy, named by ZO_VECTOR_TABLE and ZO_VECTOR_NAME.
 *
 * Loops are written for the compiler's vectoriser: no branch in a body, no
 * array that may alias another, counts of lanes known at compile time.
 */
#include <math.h>
#include <string.h>

#include "kernels/host/vector.h"
#include "kernels/host/vector_target.h"

enum { LANES = ZO_VECTOR_LANES };

/* ---- conversions: dtype.h without branches --------------------------- */

static inline float bf16_to_f32(uint16_t bits)
{
    return zo_bf16_to_f32(bits);
}

static inline uint16_t f32_to_bf16(float value)
{
    const uint32_t bits = zo_f32_bits(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    /* With 2^-14 in front, a subnormal's fraction is what exceeds it. */
    const float above = zo_f32_from_bits(magnitude + (113u << 23));
    const uint32_t small = zo_f32_bits(above - 0x1p-14f);
    const uint32_t special = magnitude + (224u << 23);
    const uint32_t normal = magnitude + (112u << 23);
    const uint32_t large = magnitude >= (31u << 23) ? special : normal;

    return zo_f32_from_bits(sign | (magnitude < (1u << 23) ? small : large));
}

static inline uint16_t f32_to_f16(float value)
{
    const uint32_t bits = zo_f32_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    /* 0.5 has an ulp of 2^-24: the addition rounds, ties to even. */
    const uint32_t small =
        zo_f32_bits(zo_f32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal =
        (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t result = magnitude < 0x38800000u ? small : normal;

    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? nan : result;
    return (uint16_t)(sign | result);
}

static void body_load(float *restrict out, const void *restrict in,
                      enum zo_dtype type, int64_t n)
{
    const uint16_t *restrict half = in;

    switch (type) {
    case ZO_F32:
        memcpy(out, in, (size_t)n * sizeof(*out));
        return;
    case ZO_BF16:
        for (int64_t i = 0; i < n; i++) {
            out[i] = bf16_to_f32(half[i]);
        }
        return;
    case ZO_F16:
        for (int64_t i = 0; i < n; i++) {
            out[i] = f16_to_f32(half[i]);
        }
        return;
    }
}

static void body_store(void *restrict out, enum zo_dtype type,
                       const float *restrict in, int64_t n)
{
    uint16_t *restrict half = out;

    switch (type) {
    case ZO_F32:
        memcpy(out, in, (size_t)n * sizeof(*in));
        return;
    case ZO_BF16:
        for (int64_t i = 0; i < n; i++) {
            half[i] = f32_to_bf16(in[i]);
        }
        return;
    case ZO_F16:
        for (int64_t i = 0; i < n; i++) {
            half[i] = f32_to_f16(in[i]);
        }
        return;
    }
}

/* ---- sums ------------------------------------------------------------ */

static void body_add(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

static void body_scale(float *restrict x, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static void body_add_to_double(double *restrict y, const float *restrict x,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += (double)x[i];
    }
}

static double fold(double *lanes)
{
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; lane++) {
            lanes[lane] += lanes[lane + half];
        }
    }
    return lanes[0];
}

/* Lane l adds the terms of elements l, l + LANES, ...; TERM uses `at`. */
#define SUM_IN_LANES(n, TERM)                            \
    double lanes_[LANES] = {0};                          \
    int64_t start_ = 0;                                  \
                                                         \
    for (; start_ + LANES <= (n); start_ += LANES) {     \
        for (int lane_ = 0; lane_ < LANES; lane_++) {    \
            const int64_t at = start_ + lane_;           \
            lanes_[lane_] += (TERM);                     \
        }                                                \
    }                                                    \
    for (int lane_ = 0; start_ + lane_ < (n); lane_++) { \
        const int64_t at = start_ + lane_;               \
        lanes_[lane_] += (TERM);                         \
    }                                                    \
    return fold(lanes_)

static double body_sum_squares(const float *restrict x, int64_t n)
{
    SUM_IN_LANES(n, (double)x[at] * (double)x[at]);
}

static double body_dot(const float *restrict x, const float *restrict y,
                       int64_t n)
{
    SUM_IN_LANES(n, (double)x[at] * (double)y[at]);
}

static double body_dot3(const float *restrict x, const float *restrict y,
                        const float *restrict z, int64_t n)
{
    SUM_IN_LANES(n, (double)(x[at] * y[at]) * (double)z[at]);
}

static double sum(const float *restrict x, int64_t n)
{
    SUM_IN_LANES(n, (double)x[at]);
}

static inline float larger(float a, float b)
{
    return b > a ? b : a;
}

static float body_max(const float *restrict x, int64_t n)
{
    float lanes[LANES];
    int64_t i = 0;

    for (int lane = 0; lane < LANES; lane++) {
        lanes[lane] = -INFINITY;
    }
    for (; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            lanes[lane] = larger(lanes[lane], x[i + lane]);
        }
    }
    for (; i < n; i++) {
        lanes[0] = larger(lanes[0], x[i]);
    }
    for (int lane = 1; lane < LANES; lane++) {
        lanes[0] = larger(lanes[0], lanes[lane]);
    }
    return lanes[0];
}

/* ---- exp ------------------------------------------------------------- */

/*
 * exp(x) to 1 ulp or so: x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial
 * (Cephes' expf).  Below -86.6, short of where results are subnormal and
 * slow, it is 0; above 88.72 it is infinity; NaN stays NaN.
 */
static inline float exp_one(float x)
{
    const float round = 0x1.8p23f; /* adding it leaves an integer */
    const float low = x < -86.6f ? -86.6f : x;
    const float clamped = low > 89.0f ? 89.0f : low;
    const float shifted = clamped * 0x1.715476p0f + round;
    const float n = shifted - round;
    /* ln 2 in two parts, of which n times the first is exact */
    const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
    /* 2^(n-1), since 2^128 is no float */
    const float half_power = zo_f32_from_bits(
        (zo_f32_bits(shifted) - zo_f32_bits(round) + 126u) << 23);
    float p = 1.9875691500e-4f;

    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    p = (p * half_power) * 2.0f;
    return x < -86.6f ? 0.0f : p;
}

static double body_exp_sum(float *out, const float *x, float shift, int64_t n)
{
    ZO_VECTOR_IN_PLACE
    for (int64_t i = 0; i < n; i++) {
        out[i] = exp_one(x[i] - shift);
    }
    return sum(out, n);
}

static void body_softmax_gradient(float *restrict out, const float *restrict x,
                                  float shift, float inverse, float factor,
                                  int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = exp_one(x[i] - shift) * inverse * factor;
    }
}

static void body_attention_gradient(float *restrict dp, const float *restrict p,
                                    float delta, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dp[i] = p[i] * (dp[i] - delta) * factor;
    }
}

/* ---- normalisation --------------------------------------------------- */

static void body_rmsnorm(float *restrict out, const float *restrict in,
                         const float *restrict weight, float rstd, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = in[i] * rstd * weight[i];
    }
}

static void body_rmsnorm_backward(float *d_in, const float *d_out,
                                  const float *restrict in,
                                  const float *restrict weight,
                                  const float *residual, float rstd, float mean,
                                  int64_t n)
{
    ZO_VECTOR_IN_PLACE
    for (int64_t i = 0; i < n; i++) {
        const float g = d_out[i] * weight[i];

        d_in[i] = rstd * (g - in[i] * rstd * mean) + residual[i];
    }
}

static void body_rmsnorm_weight(double *restrict sums,
                                const float *restrict d_out,
                                const float *restrict in, float rstd, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sums[i] += (double)d_out[i] * (double)(in[i] * rstd);
    }
}

/* ---- swiglu ---------------------------------------------------------- */

static void body_swiglu(float *restrict out, const float *restrict a,
                        const float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = a[i] / (1.0f + exp_one(-a[i])) * b[i];
    }
}

static void body_swiglu_backward(float *restrict a, float *restrict b,
                                 const float *restrict d_out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float sigmoid = 1.0f / (1.0f + exp_one(-a[i]));
        const float silu = a[i] * sigmoid;
        const float slope = sigmoid + silu * (1.0f - sigmoid);
        const float d_a = d_out[i] * b[i] * slope;

        b[i] = d_out[i] * silu;
        a[i] = d_a;
    }
}

/* ---- rope ------------------------------------------------------------ */

/*
 * Even and odd elements are taken apart first: given them side by side, GCC
 * 12 makes a fused multiply-add of the difference and the sum, in spite of
 * -ffp-contract=off.
 */
static void body_rotate(float *restrict x, const float *restrict table,
                        float direction, int64_t pairs)
{
    float even[LANES], odd[LANES], cosine[LANES], sine[LANES];

    for (int64_t start = 0; start < pairs; start += LANES) {
        const int count = pairs - start < LANES ? (int)(pairs - start) : LANES;

        for (int i = 0; i < count; i++) {
            even[i] = x[2 * (start + i)];
            odd[i] = x[2 * (start + i) + 1];
            cosine[i] = table[2 * (start + i)];
            sine[i] = table[2 * (start + i) + 1] * direction;
        }
        for (int i = 0; i < count; i++) {
            const float turned = even[i] * cosine[i] - odd[i] * sine[i];

            odd[i] = odd[i] * cosine[i] + even[i] * sine[i];
            even[i] = turned;
        }
        for (int i = 0; i < count; i++) {
            x[2 * (start + i)] = even[i];
            x[2 * (start + i) + 1] = odd[i];
        }
    }
}

/* ---- norm and AdamW -------------------------------------------------- */

static inline uint32_t is_not_finite(float value)
{
    return (zo_f32_bits(value) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
}

static uint64_t body_square_lanes(double *restrict lanes,
                                  const float *restrict x, int64_t n)
{
    uint32_t bad = 0;

    for (int64_t i = 0; i < n; i++) {
        const uint32_t is_bad = is_not_finite(x[i]);
        const float finite = is_bad != 0 ? 0.0f : x[i];

        lanes[i] += (double)finite * (double)finite;
        bad += is_bad;
    }
    return bad;
}

#include "kernels/host/vector_adamw.h"

const struct zo_vector_ops ZO_VECTOR_TABLE = {
    .name = ZO_VECTOR_NAME,
    .load = body_load,
    .store = body_store,
    .add = body_add,
    .scale = body_scale,
    .add_to_double = body_add_to_double,
    .sum_squares = body_sum_squares,
    .dot = body_dot,
    .dot3 = body_dot3,
    .max = body_max,
    .exp_sum = body_exp_sum,
    .softmax_gradient = body_softmax_gradient,
    .attention_gradient = body_attention_gradient,
    .rmsnorm = body_rmsnorm,
    .rmsnorm_backward = body_rmsnorm_backward,
    .rmsnorm_weight = body_rmsnorm_weight,
    .swiglu = body_swiglu,
    .swiglu_backward = body_swiglu_backward,
    .rotate = body_rotate,
    .square_lanes = body_square_lanes,
    .adamw = body_adamw,
};
