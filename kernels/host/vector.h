/*
 * The inner loops of the host backend, on short fp32 arrays in cache.
 *
 * Layer 3, host backend only.  One body (vector_body.h) is compiled for
 * several instruction sets.  No contraction, no reassociation: sums have a
 * fixed number of lanes and fused multiply-adds are written out, so that all
 * of them give the same bits and the choice is one of speed alone.
 *
 * Arrays do not overlap unless the comment says "in place".
 */
#ifndef ZO_KERNELS_HOST_VECTOR_H
#define ZO_KERNELS_HOST_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/dtype.h"

ZO_C_BEGIN

#define ZO_VECTOR_LANES 16 /* of every sum */

struct zo_vector_ops {
    const char *name; /* "base", "avx2", "avx512" */

    /* Conversions, exactly those of dtype.h. */
    void (*load)(float *out, const void *in, enum zo_dtype type, int64_t n);
    void (*store)(void *out, enum zo_dtype type, const float *in, int64_t n);

    /* y += x; x *= factor, in place. */
    void (*add)(float *y, const float *x, int64_t n);
    void (*scale)(float *x, float factor, int64_t n);
    void (*add_to_double)(double *y, const float *x, int64_t n);

    /* Sums in double, in ZO_VECTOR_LANES lanes folded in halves. */
    double (*sum_squares)(const float *x, int64_t n);
    double (*dot)(const float *x, const float *y, int64_t n);
    /* sum of (x * y) * z, the first product in fp32 */
    double (*dot3)(const float *x, const float *y, const float *z, int64_t n);

    /* The largest; NaN is passed over.  n >= 1. */
    float (*max)(const float *x, int64_t n);
    /* out = exp(x - shift), also in place; returns the sum of out. */
    double (*exp_sum)(float *out, const float *x, float shift, int64_t n);
    /* out = exp(x - shift) * inverse * factor */
    void (*softmax_gradient)(float *out, const float *x, float shift,
                             float inverse, float factor, int64_t n);
    /* dp = p * (dp - delta) * factor, in place */
    void (*attention_gradient)(float *dp, const float *p, float delta,
                               float factor, int64_t n);

    /* out = in * rstd * weight */
    void (*rmsnorm)(float *out, const float *in, const float *weight,
                    float rstd, int64_t n);
    /* d_in = rstd * (d_out * weight - in * rstd * mean) + residual; d_in may
     * be d_out or residual, in place */
    void (*rmsnorm_backward)(float *d_in, const float *d_out, const float *in,
                             const float *weight, const float *residual,
                             float rstd, float mean, int64_t n);
    /* sum += d_out * (in * rstd) */
    void (*rmsnorm_weight)(double *sum, const float *d_out, const float *in,
                           float rstd, int64_t n);

    /* out = silu(a) * b */
    void (*swiglu)(float *out, const float *a, const float *b, int64_t n);
    /* a and b become their gradients, in place */
    void (*swiglu_backward)(float *a, float *b, const float *d_out, int64_t n);

    /* Turns pairs (2i, 2i + 1) of x, in place, by table[i] = {cos, sin};
     * direction 1.0f, or -1.0f for back. */
    void (*rotate)(float *x, const float *table, float direction,
                   int64_t pairs);

    /* lanes[i] += x[i]^2 of the finite ones; returns how many are not. */
    uint64_t (*square_lanes)(double *lanes, const float *x, int64_t n);

    /* zo_adamw_args for its elements first .. first + n - 1, all of which
     * decay or none; true when a new master or its weight is not finite. */
    bool (*adamw)(const struct zo_adamw_args *args, int64_t first, int64_t n,
                  bool decays);
};

extern const struct zo_vector_ops zo_vector_base;
extern const struct zo_vector_ops zo_vector_avx2;   /* base where unknown */
extern const struct zo_vector_ops zo_vector_avx512; /* likewise */

/* The widest that this processor runs. */
const struct zo_vector_ops *zo_vector_best(void);

/* Fills all[3] with those that this processor runs; returns their number. */
int zo_vector_usable(const struct zo_vector_ops **all);

ZO_C_END

#endif
