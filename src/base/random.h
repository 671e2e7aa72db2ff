/*
 * Random numbers that depend on a seed, a name and an index, and on nothing
 * else: not on order, threads, or what was drawn before.
 *
 * Layer 0.  No state.  Only integer arithmetic and IEEE add, multiply, divide
 * and square root, so the same numbers come out on every machine.
 *
 * A stream is splitmix64 (Steele, Lea, Flood 2014) read as a counter: number
 * i is mix(key + (i + 1) * golden).  Its key is a hash of seed and name.
 */
#ifndef ZO_SRC_BASE_RANDOM_H
#define ZO_SRC_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/* The key of the stream that belongs to a seed and a name. */
uint64_t zo_random_key(uint64_t seed, const char *name);

/* Number `index` of a stream: 64 uniform bits. */
uint64_t zo_random_bits(uint64_t key, uint64_t index);

/* Uniform in (0, 1), never 0 and never 1: odd multiples of 2^-53. */
double zo_random_uniform(uint64_t key, uint64_t index);

/* Normal with mean 0 and deviation 1; |x| < 8.3. */
double zo_random_normal(uint64_t key, uint64_t index);

/*
 * zo_random_normal() of first .. first + count - 1, the same bits, several
 * times faster; blocks of 256 are the cheapest.
 */
void zo_random_normals(uint64_t key, uint64_t first, size_t count, double *out);

/*
 * x with P(normal < x) = p, for 0 < p < 1; relative error below 1e-15
 * (Wichura, algorithm AS 241, 1988).
 */
double zo_normal_quantile(double p);

ZO_C_END

#endif
