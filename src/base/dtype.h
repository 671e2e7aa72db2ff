/*
 * Number types, and the exact conversions between them on the host.
 *
 * Layer 0.  Conversions round to nearest, ties to even, keep NaN a NaN, and
 * treat subnormals exactly; they are the oracle for every other backend.
 */
#ifndef ZO_SRC_BASE_DTYPE_H
#define ZO_SRC_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

enum zo_dtype { ZO_F32, ZO_BF16, ZO_F16 };

static inline size_t zo_dtype_bytes(enum zo_dtype dtype)
{
    return dtype == ZO_F32 ? 4 : 2;
}

/* "fp32", "bf16", "fp16". */
static inline const char *zo_dtype_name(enum zo_dtype dtype)
{
    return dtype == ZO_F32 ? "fp32" : dtype == ZO_BF16 ? "bf16" : "fp16";
}

static inline uint32_t zo_f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float zo_f32_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float zo_bf16_to_f32(uint16_t bits)
{
    return zo_f32_from_bits((uint32_t)bits << 16);
}

static inline uint16_t zo_f32_to_bf16(float value)
{
    const uint32_t bits = zo_f32_bits(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x40u); /* a NaN stays one */
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float zo_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu;
    const uint32_t fraction = bits & 0x3ffu;

    if (exponent == 0x1f) {
        return zo_f32_from_bits(sign | 0x7f800000u | (fraction << 13));
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 */
        const float magnitude = (float)fraction * 0x1p-24f;

        return zo_f32_from_bits(sign | zo_f32_bits(magnitude));
    }
    return zo_f32_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

static inline uint16_t zo_f32_to_f16(float value)
{
    const uint32_t bits = zo_f32_bits(value);
    const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal or zero */
        const float sum = zo_f32_from_bits(magnitude) + 0.5f;

        /* 0.5 has an ulp of 2^-24: the addition rounds, ties to even. */
        return (uint16_t)(sign | (zo_f32_bits(sum) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu +
                               ((magnitude >> 13) & 1u)) >>
                              13));
}

/* The nearest value that the type has. */
static inline float zo_round(float value, enum zo_dtype dtype)
{
    switch (dtype) {
    case ZO_F32:
        break;
    case ZO_BF16:
        return zo_bf16_to_f32(zo_f32_to_bf16(value));
    case ZO_F16:
        return zo_f16_to_f32(zo_f32_to_f16(value));
    }
    return value;
}

/* Element `index` of a dense array. */
static inline float zo_load(const void *array, enum zo_dtype dtype,
                            int64_t index)
{
    switch (dtype) {
    case ZO_F32:
        return ((const float *)array)[index];
    case ZO_BF16:
        return zo_bf16_to_f32(((const uint16_t *)array)[index]);
    case ZO_F16:
        return zo_f16_to_f32(((const uint16_t *)array)[index]);
    }
    return 0.0f;
}

static inline void zo_store(void *array, enum zo_dtype dtype, int64_t index,
                            float value)
{
    switch (dtype) {
    case ZO_F32:
        ((float *)array)[index] = value;
        return;
    case ZO_BF16:
        ((uint16_t *)array)[index] = zo_f32_to_bf16(value);
        return;
    case ZO_F16:
        ((uint16_t *)array)[index] = zo_f32_to_f16(value);
        return;
    }
}

ZO_C_END

#endif
