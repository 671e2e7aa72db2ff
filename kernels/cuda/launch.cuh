/* Helpers around a kernel launch.  Layer 3, private to kernels/cuda. */
#ifndef ZO_KERNELS_CUDA_LAUNCH_CUH
#define ZO_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/cuda/wrappers.h"
#include "src/base/arith.h"
#include "src/device/stream_cuda.h"

#define ZO_WARP 32

/* The launch error of the line above, as a status. */
#define ZO_LAUNCH_STATUS(what) \
    zo_launch_status(__FILE__, __LINE__, (what), cudaGetLastError())

static inline enum zo_status zo_launch_status(const char *file, int line,
                                              const char *what,
                                              cudaError_t error)
{
    if (error == cudaSuccess) {
        return ZO_OK;
    }
    return zo_fail_at(file, line, ZO_E_DEVICE, (int)error, "%s: %s", what,
                      cudaGetErrorString(error));
}

/* blocks as the x of a grid; what does not fit there is no shape of ours. */
static inline enum zo_status zo_grid_x(const char *what, int64_t blocks,
                                       unsigned *grid_out)
{
    if (blocks > INT32_MAX) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: %lld blocks do not fit one grid", what,
                       (long long)blocks);
    }
    *grid_out = (unsigned)blocks;
    return ZO_OK;
}

template <typename T> struct zo_type_tag {
    using type = T;
};

/* Calls launch(zo_type_tag<T>()) with the T of a number type. */
template <typename F> static void zo_by_type(enum zo_dtype dtype, F launch)
{
    switch (dtype) {
    case ZO_F32:
        launch(zo_type_tag<float>());
        return;
    case ZO_BF16:
        launch(zo_type_tag<__nv_bfloat16>());
        return;
    case ZO_F16:
        launch(zo_type_tag<__half>());
        return;
    }
}

#endif
