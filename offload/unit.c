#include "offload/unit.h"

#include "src/base/arith.h"

static int64_t align(int64_t elems)
{
    return (int64_t)zo_round_up((uint64_t)elems, ZO_TENSOR_ALIGN_ELEMS);
}

static enum zo_status count_elems(struct zo_unit_tensor *tensor)
{
    int64_t elems = 1;

    for (int d = 0; d < tensor->dims; d++) {
        if (tensor->shape[d] < 1 ||
            !zo_mul_i64(elems, tensor->shape[d], &elems) ||
            elems > (int64_t)1 << 40) {
            return ZO_FAIL(ZO_E_SHAPE, "%s: dimension %d is %lld", tensor->name,
                           d, (long long)tensor->shape[d]);
        }
    }
    tensor->elems = elems;
    return ZO_OK;
}

enum zo_status zo_unit_layout(struct zo_unit *unit, int device_count)
{
    int64_t at = 0;

    unit->used_elems = 0;
    for (int pass = 0; pass < 2; pass++) { /* what decays, then the rest */
        for (int i = 0; i < unit->tensor_count; i++) {
            struct zo_unit_tensor *tensor = &unit->tensors[i];

            if (tensor->decays != (pass == 0)) {
                continue;
            }
            ZO_TRY(count_elems(tensor));
            tensor->offset_elems = at;
            at += align(tensor->elems);
            unit->used_elems += tensor->elems;
        }
        if (pass == 0) {
            unit->decay_elems = at;
        }
    }
    unit->shard_elems = align(zo_div_ceil(at, device_count));
    unit->elems = unit->shard_elems * device_count;
    unit->has_gaps = unit->elems != unit->used_elems;
    return ZO_OK;
}

int64_t zo_unit_part_elems(const struct zo_unit_tensor *tensor, int64_t at,
                           int64_t step)
{
    return zo_min_i64(step - (tensor->offset_elems + at) % step,
                      tensor->elems - at);
}

int zo_unit_gaps(const struct zo_unit *unit, struct zo_unit_gap *gaps_out,
                 int max)
{
    int64_t end = 0; /* of the aligned tensors */
    int count = 0;

    for (int i = 0; i < unit->tensor_count; i++) {
        const struct zo_unit_tensor *tensor = &unit->tensors[i];
        const int64_t used = tensor->offset_elems + tensor->elems;
        const int64_t next = tensor->offset_elems + align(tensor->elems);

        if (used < next) {
            ZO_ASSERT(count < max);
            gaps_out[count++] = (struct zo_unit_gap){used, next};
        }
        end = zo_max_i64(end, next);
    }
    if (end < unit->elems) {
        ZO_ASSERT(count < max);
        gaps_out[count++] = (struct zo_unit_gap){end, unit->elems};
    }
    return count;
}
