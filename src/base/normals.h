/*
 * What random.c shares with its block-wise form.  Layer 0, private to
 * src/base/random.c and src/base/normals_*.c.
 *
 * The block-wise form makes the numbers of zo_random_normal(), bit for bit:
 * the same IEEE operations in the same order, over many indices at a time.
 * normals_base.c, normals_avx2.c and normals_avx512.c compile one body,
 * normals_body.h, for one instruction set each.
 */
#ifndef ZO_SRC_BASE_NORMALS_H
#define ZO_SRC_BASE_NORMALS_H

#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

#define ZO_RANDOM_GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio, odd */
#define ZO_LOG_2         0.69314718055994530942
#define ZO_SQRT_HALF     0.70710678118654752440
#define ZO_LOG_POWER     23 /* of the last term of the logarithm's series */

#define ZO_NORMAL_MIDDLE 0.425 /* |p - 1/2|: the middle ends */
#define ZO_NORMAL_CENTRE 0.180625
#define ZO_NORMAL_NEAR   5.0 /* sqrt(-ln tail): the near tail ends */
#define ZO_NORMAL_SHIFT  1.6

#define ZO_NORMALS_BLOCK 256 /* numbers that a call of the table makes */

static inline uint64_t zo_random_mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

struct zo_rational {
    double above[8], below[8];
};

/* Coefficients of AS 241, PPND16: the middle, the near and the far tail. */
/* clang-format off */
static const struct zo_rational zo_normal_middle = {
    {3.3871328727963666080e0,  1.3314166789178437745e2,
     1.9715909503065514427e3,  1.3731693765509461125e4,
     4.5921953931549871457e4,  6.7265770927008700853e4,
     3.3430575583588128105e4,  2.5090809287301226727e3},
    {1.0,                      4.2313330701600911252e1,
     6.8718700749205790830e2,  5.3941960214247511077e3,
     2.1213794301586595867e4,  3.9307895800092710610e4,
     2.8729085735721942674e4,  5.2264952788528545610e3},
};
static const struct zo_rational zo_normal_near = {
    {1.42343711074968357734e0, 4.63033784615654529590e0,
     5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4},
    {1.0,                      2.05319162663775882187e0,
     1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2,
     5.47593808499534494600e-4, 1.05075007164441684324e-9},
};
static const struct zo_rational zo_normal_far = {
    {6.65790464350110377720e0, 5.46378491116411436990e0,
     1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7},
    {1.0,                      5.99832206555887937690e-1,
     1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5,
     1.42151175831644588870e-7, 2.04426310338993978564e-15},
};
/* clang-format on */

/* Numbers first .. first + ZO_NORMALS_BLOCK - 1 of a stream. */
typedef void (*zo_normals_fn)(uint64_t key, uint64_t first, double *out);

void zo_normals_base(uint64_t key, uint64_t first, double *out);
void zo_normals_avx2(uint64_t key, uint64_t first, double *out);
void zo_normals_avx512(uint64_t key, uint64_t first, double *out);

/* Those that this processor can run, slowest first; how many. */
int zo_normals_usable(zo_normals_fn all[3]);

ZO_C_END

#endif
