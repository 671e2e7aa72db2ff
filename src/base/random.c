#include "src/base/random.h"

#include <math.h>
#include <string.h>

#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio, odd */

static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

uint64_t zo_random_key(uint64_t seed, const char *name)
{
    uint64_t key = mix(seed + GOLDEN);

    for (const char *c = name; *c != '\0'; c++) {
        key = mix((key ^ (unsigned char)*c) + GOLDEN);
    }
    return key;
}

uint64_t zo_random_bits(uint64_t key, uint64_t index)
{
    return mix(key + (index + 1) * GOLDEN);
}

double zo_random_uniform(uint64_t key, uint64_t index)
{
    /* 52 bits and a half: symmetric about 1/2, and exact. */
    const uint64_t high = zo_random_bits(key, index) >> 12;

    return ((double)high + 0.5) * 0x1p-52;
}

double zo_random_normal(uint64_t key, uint64_t index)
{
    return zo_normal_quantile(zo_random_uniform(key, index));
}

/*
 * Natural logarithm of a normal number.  The C library's may differ in its
 * last bit from one version to the next; this one does not.
 */
static double own_log(double value)
{
    const double log_2 = 0.69314718055994530942;
    int exponent = 0;
    double fraction = frexp(value, &exponent); /* in [1/2, 1) */
    double s, square, sum = 0.0;

    if (fraction < 0.70710678118654752440) {
        fraction *= 2.0;
        exponent--;
    }
    /* ln f = 2 (s + s^3/3 + s^5/5 + ...); |s| < 0.172, s^25/25 < 2^-67 */
    s = (fraction - 1.0) / (fraction + 1.0);
    square = s * s;
    for (int power = 23; power >= 3; power -= 2) {
        sum = (sum + 1.0 / power) * square;
    }
    return exponent * log_2 + 2.0 * s * (1.0 + sum);
}

/* ((c[7] x + c[6]) x + ...) x + c[0] */
static double polynomial(const double c[8], double x)
{
    double sum = c[7];

    for (int i = 6; i >= 0; i--) {
        sum = sum * x + c[i];
    }
    return sum;
}

struct rational {
    double above[8], below[8];
};

/* Coefficients of AS 241, PPND16: the middle, the near and the far tail. */
/* clang-format off */
static const struct rational middle = {
    {3.3871328727963666080e0,  1.3314166789178437745e2,
     1.9715909503065514427e3,  1.3731693765509461125e4,
     4.5921953931549871457e4,  6.7265770927008700853e4,
     3.3430575583588128105e4,  2.5090809287301226727e3},
    {1.0,                      4.2313330701600911252e1,
     6.8718700749205790830e2,  5.3941960214247511077e3,
     2.1213794301586595867e4,  3.9307895800092710610e4,
     2.8729085735721942674e4,  5.2264952788528545610e3},
};
static const struct rational near_tail = {
    {1.42343711074968357734e0, 4.63033784615654529590e0,
     5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4},
    {1.0,                      2.05319162663775882187e0,
     1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2,
     5.47593808499534494600e-4, 1.05075007164441684324e-9},
};
static const struct rational far_tail = {
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

static double ratio(const struct rational *r, double x)
{
    return polynomial(r->above, x) / polynomial(r->below, x);
}

double zo_normal_quantile(double p)
{
    const double centred = p - 0.5;
    double tail, root, size;

    if (fabs(centred) <= 0.425) {
        return centred * ratio(&middle, 0.180625 - centred * centred);
    }
    tail = centred < 0.0 ? p : 1.0 - p;
    root = sqrt(-own_log(tail));
    size = root <= 5.0 ? ratio(&near_tail, root - 1.6)
                       : ratio(&far_tail, root - 5.0);
    return centred < 0.0 ? -size : size;
}
