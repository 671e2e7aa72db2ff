/*
 * Checked arithmetic on sizes.  Layer 0.  Each returns false on overflow and
 * then leaves *out untouched.
 */
#ifndef ZO_SRC_BASE_ARITH_H
#define ZO_SRC_BASE_ARITH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool zo_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;

    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *out = product;
    return true;
}

static inline bool zo_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;

    if (__builtin_add_overflow(a, b, &sum)) {
        return false;
    }
    *out = sum;
    return true;
}

static inline bool zo_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t product;

    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *out = product;
    return true;
}

/* value >= 0, multiple >= 1; the caller knows that the result fits. */
static inline uint64_t zo_round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline int64_t zo_div_ceil(int64_t dividend, int64_t divisor)
{
    return (dividend + divisor - 1) / divisor;
}

static inline int64_t zo_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t zo_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
