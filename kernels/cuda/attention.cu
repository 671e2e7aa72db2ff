/*
 * Causal attention, forward: the choice of its form.
 *
 *   maths     kernels.h, zo_attention_args
 *   forms     attention_plain.cu, attention_mma.cu, attention_hopper.cu
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 */
#include "kernels/cuda/attention.cuh"

namespace
{

/* Rows of 16-byte units: what the tiles' copies need. */
bool is_aligned(const struct zo_attention_args *args)
{
    const uintptr_t bits = reinterpret_cast<uintptr_t>(args->q) |
                           reinterpret_cast<uintptr_t>(args->k) |
                           reinterpret_cast<uintptr_t>(args->v);

    return bits % 16 == 0 && args->q_stride_elems % ZO_GROUP == 0 &&
           args->kv_stride_elems % ZO_GROUP == 0;
}

} /* namespace */

extern "C" enum zo_status zo_cuda_attention_open(struct zo_kernels *kernels)
{
    ZO_TRY(zo_attention_mma_open(kernels));
    ZO_TRY(zo_attention_hopper_open(kernels));
    ZO_TRY(zo_attention_backward_mma_open(kernels));
    return zo_attention_backward_hopper_open(kernels);
}

extern "C" enum zo_status
zo_cuda_attention(struct zo_kernels *kernels, struct zo_stream *stream,
                  const struct zo_attention_args *args)
{
    if (args->tokens == 0) {
        return ZO_OK;
    }
    if (!zo_attention_has_tiles(kernels, args->head_width, args->type,
                                args->scale) ||
        !is_aligned(args)) {
        return zo_attention_plain(stream, args);
    }
    if (zo_attention_has_hopper(kernels) && args->head_width == 128 &&
        args->kv_start == NULL) {
        return zo_attention_hopper(kernels, stream, args);
    }
    return zo_attention_mma(stream, args);
}
