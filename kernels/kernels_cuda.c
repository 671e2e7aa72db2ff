/*
 * The cuda backend's table of operations.
 *
 * Layer 3.  Each entry checks its arguments, makes its device current and
 * goes on to kernels/cuda, where one file holds one operation.
 */
#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/wrappers.h"
#include "src/base/memory.h"
#include "src/device/driver_cuda.h"
#include "src/device/stream_cuda.h"

/*
 * What the driver takes when kernels run for the first time, cuBLASLt's above
 * all: code that is loaded then, and not before.  On an H200 with CUDA 13.0 it
 * was 123 MiB for ChatGLM2-6B.
 */
#define LATER_BYTES ((uint64_t)128 << 20)

#define CUDA_TRY(operation, call)                                           \
    do {                                                                    \
        const cudaError_t error_ = (call);                                  \
        if (error_ != cudaSuccess) {                                        \
            (void)cudaGetLastError();                                       \
            return ZO_FAIL_NATIVE(ZO_E_DEVICE, (int)error_, "%s: %s",       \
                                  (operation), cudaGetErrorString(error_)); \
        }                                                                   \
    } while (0)

static enum zo_status use_device(const struct zo_kernels *kernels)
{
    int current = -1;

    CUDA_TRY("cudaGetDevice", cudaGetDevice(&current));
    if (current != kernels->device_index) {
        CUDA_TRY("cudaSetDevice", cudaSetDevice(kernels->device_index));
    }
    return ZO_OK;
}

static enum zo_status read_facts(struct zo_kernels *kernels)
{
    const int index = kernels->device_index;
    int major = 0, minor = 0;

    CUDA_TRY("kernels", cudaDeviceGetAttribute(
                            &major, cudaDevAttrComputeCapabilityMajor, index));
    CUDA_TRY("kernels", cudaDeviceGetAttribute(
                            &minor, cudaDevAttrComputeCapabilityMinor, index));
    CUDA_TRY("kernels",
             cudaDeviceGetAttribute(&kernels->multiprocessors,
                                    cudaDevAttrMultiProcessorCount, index));
    kernels->compute = 10 * major + minor;
    kernels->encode_tile = zo_cuda_driver_function("cuTensorMapEncodeTiled");
    return ZO_OK;
}

static enum zo_status open_parts(struct zo_kernels *kernels)
{
    size_t before = 0, after = 0, total = 0;

    ZO_TRY(use_device(kernels));
    CUDA_TRY("kernels", cudaMemGetInfo(&before, &total));
    ZO_TRY(read_facts(kernels));
    ZO_TRY(zo_cuda_attention_open(kernels));
    ZO_TRY(zo_cuda_matmul_open(&kernels->plans));
    CUDA_TRY("kernels", cudaMemGetInfo(&after, &total));
    kernels->own_device_bytes = before > after ? before - after : 0;
    return ZO_OK;
}

static void cuda_close(struct zo_kernels *kernels)
{
    if (kernels == NULL) {
        return;
    }
    (void)cudaSetDevice(kernels->device_index);
    zo_cuda_matmul_close(kernels->plans);
    zo_free(kernels);
}

static enum zo_status cuda_open(struct zo_device *device,
                                const struct zo_kernels_options *options,
                                struct zo_kernels **kernels_out)
{
    struct zo_kernels *kernels = NULL;
    enum zo_status status;

    (void)options;
    ZO_TRY(zo_alloc(1, sizeof(*kernels), "the cuda kernels", &kernels));
    kernels->device_index = zo_device_cuda_index(device);
    status = open_parts(kernels);
    if (status != ZO_OK) {
        cuda_close(kernels);
        return status;
    }
    *kernels_out = kernels;
    return ZO_OK;
}

static uint64_t cuda_own_device_bytes(const struct zo_kernels *kernels)
{
    return kernels->own_device_bytes + LATER_BYTES;
}

#define CUDA_ENTRY(name)                                                   \
    static enum zo_status cuda_##name(struct zo_kernels *kernels,          \
                                      struct zo_stream *stream,            \
                                      const struct zo_##name##_args *args) \
    {                                                                      \
        ZO_TRY(zo_##name##_check(args));                                   \
        ZO_TRY(use_device(kernels));                                       \
        return zo_cuda_##name(kernels, stream, args);                      \
    }
CUDA_ENTRY(embedding)
CUDA_ENTRY(embedding_backward)
CUDA_ENTRY(rmsnorm)
CUDA_ENTRY(rmsnorm_backward)
CUDA_ENTRY(matmul)
CUDA_ENTRY(rope)
CUDA_ENTRY(rope_backward)
CUDA_ENTRY(attention)
CUDA_ENTRY(attention_backward)
CUDA_ENTRY(swiglu)
CUDA_ENTRY(swiglu_backward)
CUDA_ENTRY(gather)
CUDA_ENTRY(scatter)
CUDA_ENTRY(cross_entropy)
CUDA_ENTRY(cast)
CUDA_ENTRY(reduce)
CUDA_ENTRY(square_norm)
CUDA_ENTRY(adamw)

const struct zo_kernel_ops zo_kernels_cuda = {
    .kind = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .own_device_bytes = cuda_own_device_bytes,
    .matmul_workspace = zo_cuda_matmul_workspace,
    .rmsnorm_backward_workspace = zo_cuda_rmsnorm_backward_workspace,
    .rope_backward_workspace = zo_cuda_rope_backward_workspace,
    .attention_backward_workspace = zo_cuda_attention_backward_workspace,
    .square_norm_workspace = zo_cuda_square_norm_workspace,
    .embedding = cuda_embedding,
    .embedding_backward = cuda_embedding_backward,
    .rmsnorm = cuda_rmsnorm,
    .rmsnorm_backward = cuda_rmsnorm_backward,
    .matmul = cuda_matmul,
    .rope = cuda_rope,
    .rope_backward = cuda_rope_backward,
    .attention = cuda_attention,
    .attention_backward = cuda_attention_backward,
    .swiglu = cuda_swiglu,
    .swiglu_backward = cuda_swiglu_backward,
    .gather = cuda_gather,
    .scatter = cuda_scatter,
    .cross_entropy = cuda_cross_entropy,
    .cast = cuda_cast,
    .reduce = cuda_reduce,
    .square_norm = cuda_square_norm,
    .adamw = cuda_adamw,
};
