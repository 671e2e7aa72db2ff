/*
 * The one body of the block-wise normals, included by normals_base.c,
 * normals_avx2.c and normals_avx512.c.  No include guard: each file makes its
 * own function, named by ZO_NORMALS_NAME.
 *
 * Loops are written for the compiler's vectoriser: no branch in a body, and
 * counts known at compile time.  A number in the middle of the distribution
 * (85 of 100) is one ratio of polynomials; the others are gathered and take
 * the path of the tail together.
 */
#include <math.h>
#include <string.h>

#include "src/base/normals.h"
#include "src/base/random.h"

#ifndef __clang__
#pragma GCC optimize("tree-vectorize,vect-cost-model=dynamic,no-trapping-math")
#endif

enum { BLOCK = ZO_NORMALS_BLOCK, TAIL_LANES = 16 };

/* A double and its bits, for a whole block. */
union block {
    uint64_t bits[BLOCK];
    double value[BLOCK];
};

union tails {
    uint64_t bits[TAIL_LANES];
    double value[TAIL_LANES];
};

#define BITS_OF_2_52 0x4330000000000000u /* of the double 2^52 */

/* Written out: a loop in a loop's body would not be vectorised. */
static inline double polynomial(const double c[8], double x)
{
    double sum = c[7] * x + c[6];

    sum = sum * x + c[5];
    sum = sum * x + c[4];
    sum = sum * x + c[3];
    sum = sum * x + c[2];
    sum = sum * x + c[1];
    return sum * x + c[0];
}

/* As zo_random_uniform(): integers below 2^52 become doubles exactly. */
static void fill_uniform(uint64_t key, uint64_t first, union block *p)
{
    for (int i = 0; i < BLOCK; i++) {
        p->bits[i] = (zo_random_mix(key + (first + (uint64_t)i + 1) *
                                              ZO_RANDOM_GOLDEN) >>
                      12) |
                     BITS_OF_2_52;
    }
    for (int i = 0; i < BLOCK; i++) {
        p->value[i] = ((p->value[i] - 0x1p52) + 0.5) * 0x1p-52;
    }
}

static void fill_middle(const union block *p, double *restrict out)
{
    for (int i = 0; i < BLOCK; i++) {
        const double centred = p->value[i] - 0.5;
        const double x = ZO_NORMAL_CENTRE - centred * centred;

        out[i] = centred * (polynomial(zo_normal_middle.above, x) /
                            polynomial(zo_normal_middle.below, x));
    }
}

/* sqrt(-ln t) of each t in (2^-54, 1/2), as the scalar form takes it. */
static void take_roots(const union tails *t, double *restrict roots)
{
    union tails fraction, exponent;

    for (int i = 0; i < TAIL_LANES; i++) {
        fraction.bits[i] =
            (t->bits[i] & 0x000fffffffffffffu) | 0x3fe0000000000000u;
        exponent.bits[i] = (t->bits[i] >> 52) | BITS_OF_2_52;
    }
    for (int i = 0; i < TAIL_LANES; i++) {
        const double small = fraction.value[i] < ZO_SQRT_HALF ? 1.0 : 0.0;
        const double f = fraction.value[i] * (1.0 + small);
        const double e = exponent.value[i] - (0x1p52 + 1022.0) - small;
        const double s = (f - 1.0) / (f + 1.0);
        const double square = s * s;
        double sum = 0.0;

#define TERM(power) sum = (sum + 1.0 / (power)) * square
        TERM(23);
        TERM(21);
        TERM(19);
        TERM(17);
        TERM(15);
        TERM(13);
        TERM(11);
        TERM(9);
        TERM(7);
        TERM(5);
        TERM(3);
#undef TERM
        roots[i] = sqrt(-(e * ZO_LOG_2 + 2.0 * s * (1.0 + sum)));
    }
}

/* The size of each number of the near tail. */
static void take_sizes(const double *restrict roots, double *restrict sizes)
{
    for (int i = 0; i < TAIL_LANES; i++) {
        const double x = roots[i] - ZO_NORMAL_SHIFT;

        sizes[i] = polynomial(zo_normal_near.above, x) /
                   polynomial(zo_normal_near.below, x);
    }
}

/* Numbers at[0 .. count - 1] of the block, count at most TAIL_LANES. */
static void fill_tails(const union block *p, const int *at, int count,
                       double *out)
{
    double roots[TAIL_LANES], sizes[TAIL_LANES];
    union tails t;

    for (int i = 0; i < TAIL_LANES; i++) {
        const double value = i < count ? p->value[at[i]] : 0.25;

        t.value[i] = value - 0.5 < 0.0 ? value : 1.0 - value;
    }
    take_roots(&t, roots);
    take_sizes(roots, sizes);
    for (int i = 0; i < count; i++) {
        const double value = p->value[at[i]];

        out[at[i]] = roots[i] > ZO_NORMAL_NEAR ? zo_normal_quantile(value)
                     : value - 0.5 < 0.0       ? -sizes[i]
                                               : sizes[i];
    }
}

void ZO_NORMALS_NAME(uint64_t key, uint64_t first, double *out)
{
    union block p;
    int at[BLOCK + 1], count = 0;

    fill_uniform(key, first, &p);
    fill_middle(&p, out);
    for (int i = 0; i < BLOCK; i++) {
        at[count] = i;
        count += fabs(p.value[i] - 0.5) > ZO_NORMAL_MIDDLE;
    }
    for (int i = 0; i < count; i += TAIL_LANES) {
        const int rest = count - i;

        fill_tails(&p, at + i, rest < TAIL_LANES ? rest : TAIL_LANES, out);
    }
}
