#include "src/base/random.h"

#include <math.h>
#include <string.h>

#include "src/base/normals.h"

uint64_t zo_random_key(uint64_t seed, const char *name)
{
    uint64_t key = zo_random_mix(seed + ZO_RANDOM_GOLDEN);

    for (const char *c = name; *c != '\0'; c++) {
        key = zo_random_mix((key ^ (unsigned char)*c) + ZO_RANDOM_GOLDEN);
    }
    return key;
}

uint64_t zo_random_bits(uint64_t key, uint64_t index)
{
    return zo_random_mix(key + (index + 1) * ZO_RANDOM_GOLDEN);
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
    int exponent = 0;
    double fraction = frexp(value, &exponent); /* in [1/2, 1) */
    double s, square, sum = 0.0;

    if (fraction < ZO_SQRT_HALF) {
        fraction *= 2.0;
        exponent--;
    }
    /* ln f = 2 (s + s^3/3 + s^5/5 + ...); |s| < 0.172, s^25/25 < 2^-67 */
    s = (fraction - 1.0) / (fraction + 1.0);
    square = s * s;
    for (int power = ZO_LOG_POWER; power >= 3; power -= 2) {
        sum = (sum + 1.0 / power) * square;
    }
    return exponent * ZO_LOG_2 + 2.0 * s * (1.0 + sum);
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

static double ratio(const struct zo_rational *r, double x)
{
    return polynomial(r->above, x) / polynomial(r->below, x);
}

double zo_normal_quantile(double p)
{
    const double centred = p - 0.5;
    double tail, root, size;

    if (fabs(centred) <= ZO_NORMAL_MIDDLE) {
        return centred *
               ratio(&zo_normal_middle, ZO_NORMAL_CENTRE - centred * centred);
    }
    tail = centred < 0.0 ? p : 1.0 - p;
    root = sqrt(-own_log(tail));
    size = root <= ZO_NORMAL_NEAR
               ? ratio(&zo_normal_near, root - ZO_NORMAL_SHIFT)
               : ratio(&zo_normal_far, root - ZO_NORMAL_NEAR);
    return centred < 0.0 ? -size : size;
}

/* ---- many at a time ------------------------------------------------------ */

int zo_normals_usable(zo_normals_fn all[3])
{
    int count = 0;

    all[count++] = zo_normals_base;
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c")) {
        all[count++] = zo_normals_avx2;
    }
#endif
#ifdef HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        all[count++] = zo_normals_avx512;
    }
#endif
    return count;
}

void zo_random_normals(uint64_t key, uint64_t first, size_t count, double *out)
{
    zo_normals_fn all[3];
    const zo_normals_fn make = all[zo_normals_usable(all) - 1];
    double block[ZO_NORMALS_BLOCK];

    for (; count >= ZO_NORMALS_BLOCK; count -= ZO_NORMALS_BLOCK) {
        make(key, first, out);
        first += ZO_NORMALS_BLOCK;
        out += ZO_NORMALS_BLOCK;
    }
    if (count > 0) {
        make(key, first, block);
        memcpy(out, block, count * sizeof(block[0]));
    }
}
