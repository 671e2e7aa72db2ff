#include "kernels/host_passes.h"
#include <string.h>
#include "kernels/host/vector.h"
#include "offload/unit.h"
bool zo_adamw_cpu(const struct zo_adamw_args *a, int64_t first, int64_t count, enum zo_simd simd)
{
    bool bad = false;
    const struct zo_vector_ops *v = zo_vector_best();
    (void)simd;
    for (int64_t i = first; i < first + count; i++) {
        float p = a->type == ZO_BF16 ? zo_pair_master(((uint16_t *)a->weight)[i], a->remainder[i]) : a->type == ZO_F16 ? a->master[i] : ((float *)a->weight)[i];
        float g = zo_load(a->grad, a->type, i);
        bad |= v->adamw(&p, &a->exp_avg[i], &a->exp_avg_sq[i], &g, &a->scalars, i < a->decay_count, 1);
        if (a->type == ZO_BF16) { ((uint16_t *)a->weight)[i] = zo_pair_weight(p); a->remainder[i] = zo_pair_remainder(p); }
        else if (a->type == ZO_F16) { a->master[i] = p; if (a->weight) zo_store(a->weight, ZO_F16, i, p); }
        else ((float *)a->weight)[i] = p;
    }
    return bad;
}
void zo_cast_cpu(const struct zo_cast_args *a, int64_t first, int64_t count, enum zo_simd simd)
{
    (void)simd;
    for (int64_t i = first; i < first + count; i++) zo_store(a->out, a->out_type, i, zo_load(a->in, a->in_type, i));
}
