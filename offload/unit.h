/*
 * Units: what moves between tiers as a whole.
 *
 * Row 5.  A unit's weights are one flat buffer: the tensors that decay first,
 * each aligned, the whole padded so that it splits evenly over the devices.
 * Gaps and padding are zero and stay zero.
 */
#ifndef ZO_OFFLOAD_UNIT_H
#define ZO_OFFLOAD_UNIT_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_TENSOR_DIMS_MAX    2
#define ZO_TENSOR_ALIGN_ELEMS 128 /* 256 bytes of 16-bit numbers */

struct zo_unit_tensor {
    const char *name; /* borrowed from the model, as in the model's files */
    int dims;         /* 1 or 2 */
    int64_t shape[ZO_TENSOR_DIMS_MAX];
    bool decays; /* weight decay applies */
    /* Set by zo_unit_layout(). */
    int64_t elems, offset_elems;
};

struct zo_unit {
    const char *name;               /* borrowed: "layer 3" */
    struct zo_unit_tensor *tensors; /* borrowed from the model */
    int tensor_count;
    /* Set by zo_unit_layout(). */
    int64_t elems;       /* with gaps and padding; shard_elems * devices */
    int64_t used_elems;  /* parameters */
    int64_t decay_elems; /* the first of elems decay */
    int64_t shard_elems; /* a device's 1/N */
    bool has_gaps;
};

/*
 * Sets offsets and sizes for a number of devices.
 *
 *   ZO_E_SHAPE   a size is below 1 or the sum does not fit
 */
enum zo_status zo_unit_layout(struct zo_unit *unit,
                              int device_count) ZO_MUST_CHECK;

/*
 * How far a part of a tensor goes that begins at element `at` of it: parts end
 * where elements of the unit are a multiple of `step`, so that those of a
 * state share no chunk on NVMe but where tensors meet.
 */
int64_t zo_unit_part_elems(const struct zo_unit_tensor *tensor, int64_t at,
                           int64_t step);

/* A stretch of a unit that holds no parameter; at most tensor_count + 1. */
struct zo_unit_gap {
    int64_t begin_elems, end_elems;
};
int zo_unit_gaps(const struct zo_unit *unit, struct zo_unit_gap *gaps_out,
                 int max);

/*
 * The master of an element: fp32 bits <-> 16-bit weight and signed 16-bit
 * remainder (DESIGN 3): the weight is rounded to nearest, ties away from
 * zero; a bijection on the finite numbers.
 */
static inline uint16_t zo_pair_weight(float master)
{
    return (uint16_t)((zo_f32_bits(master) + 0x8000u) >> 16);
}

static inline int16_t zo_pair_remainder(float master)
{
    return (int16_t)(uint16_t)(zo_f32_bits(master) & 0xffffu);
}

static inline float zo_pair_master(uint16_t weight, int16_t remainder)
{
    return zo_f32_from_bits(((uint32_t)weight << 16) +
                            (uint32_t)(int32_t)remainder);
}

ZO_C_END

#endif
