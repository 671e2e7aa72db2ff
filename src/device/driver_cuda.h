/*
 * Functions of the CUDA driver, found at run time: the program links the
 * runtime alone, so that it starts on a machine without a driver.
 *
 * Layer 2, private to src/device and kernels/cuda.
 */
#ifndef ZO_SRC_DEVICE_DRIVER_CUDA_H
#define ZO_SRC_DEVICE_DRIVER_CUDA_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* NULL when the driver has no such function (of the 12.0 interface). */
static inline void *zo_cuda_driver_function(const char *name)
{
    enum cudaDriverEntryPointQueryResult found =
        cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
    cudaError_t error;

#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, &function, 12000,
                                             cudaEnableDefault, &found);
#else
    error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return function;
}

#endif
