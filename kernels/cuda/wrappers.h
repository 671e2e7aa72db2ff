/*
 * What kernels_cuda.c and the operations of this folder share.
 *
 * Layer 3, private to kernels/.  A zo_cuda_* operation is called with checked
 * arguments and its device current; it queues, or fails and queues nothing.
 */
#ifndef ZO_KERNELS_CUDA_WRAPPERS_H
#define ZO_KERNELS_CUDA_WRAPPERS_H

#include "kernels/kernels.h"

ZO_C_BEGIN

struct zo_matmul_plans; /* opaque: matmul_cuda.c */

struct zo_kernels {
    struct zo_matmul_plans *plans; /* owned */
    uint64_t own_device_bytes;
    int device_index;
    int compute; /* 90 for compute capability 9.0 */
    int multiprocessors;
    void *encode_tile; /* cuTensorMapEncodeTiled(), or NULL */
};

/* Loads the kernels that need more shared memory than the default. */
enum zo_status zo_cuda_attention_open(struct zo_kernels *kernels) ZO_MUST_CHECK;

enum zo_status
zo_cuda_matmul_open(struct zo_matmul_plans **plans_out) ZO_MUST_CHECK;
void zo_cuda_matmul_close(struct zo_matmul_plans *plans); /* NULL is allowed */

uint64_t zo_cuda_matmul_workspace(void);
uint64_t zo_cuda_rmsnorm_backward_workspace(int64_t rows, int64_t cols);
uint64_t zo_cuda_rope_backward_workspace(int64_t tokens, int64_t width);
uint64_t zo_cuda_attention_backward_workspace(int64_t tokens, int64_t heads,
                                              int64_t groups,
                                              int64_t head_width);
uint64_t zo_cuda_square_norm_workspace(int64_t count);

#define ZO_CUDA_KERNEL(name)                                  \
    enum zo_status zo_cuda_##name(struct zo_kernels *kernels, \
                                  struct zo_stream *stream,   \
                                  const struct zo_##name##_args *args)
ZO_CUDA_KERNEL(embedding);
ZO_CUDA_KERNEL(embedding_backward);
ZO_CUDA_KERNEL(rmsnorm);
ZO_CUDA_KERNEL(rmsnorm_backward);
ZO_CUDA_KERNEL(matmul);
ZO_CUDA_KERNEL(rope);
ZO_CUDA_KERNEL(rope_backward);
ZO_CUDA_KERNEL(attention);
ZO_CUDA_KERNEL(attention_backward);
ZO_CUDA_KERNEL(swiglu);
ZO_CUDA_KERNEL(swiglu_backward);
ZO_CUDA_KERNEL(gather);
ZO_CUDA_KERNEL(scatter);
ZO_CUDA_KERNEL(cross_entropy);
ZO_CUDA_KERNEL(cast);
ZO_CUDA_KERNEL(reduce);
ZO_CUDA_KERNEL(square_norm);
ZO_CUDA_KERNEL(adamw);
#undef ZO_CUDA_KERNEL

ZO_C_END

#endif
