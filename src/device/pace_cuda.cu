/*
 * Pacing: a clock stopped and waited for on a stream.
 *
 *   maths     begin: cell = now.  end: waits until now - cell >= least_ns
 *   layout    one thread; %globaltimer, which advances every 32 ns to 1 us
 *   traffic   8 bytes each
 *   bound by  launches, and by least_ns.  A thread that waits sleeps; it takes
 *             one warp of one multiprocessor.  Its priority lets it in before
 *             the blocks of products that wait for room
 *   limits    least_ns < 2^63.  Where no multiprocessor has room for a warp it
 *             waits for a block to end: a copy then takes that much longer
 *   same bits every run: yes (no arithmetic)
 *   tested by tests/test_device_cuda.c
 */
#include "src/device/pace_cuda.h"

#include <cuda_runtime.h>

namespace
{

__device__ uint64_t now_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

__global__ void __launch_bounds__(1) begin_kernel(uint64_t *began_ns)
{
    *began_ns = now_ns();
}

__global__ void __launch_bounds__(1)
    end_kernel(const uint64_t *began_ns, uint64_t least_ns)
{
    const uint64_t began = *began_ns;

    for (;;) {
        const uint64_t passed = now_ns() - began;

        if (passed >= least_ns) {
            return;
        }
        /* It sleeps up to twice what it is told, and a millisecond at most. */
        __nanosleep((unsigned)min((least_ns - passed) / 2,
                                  static_cast<uint64_t>(500000)));
    }
}

enum zo_status check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) {
        return ZO_OK;
    }
    (void)cudaGetLastError(); /* or the next call would see it */
    return ZO_FAIL_NATIVE(
        error == cudaErrorMemoryAllocation ? ZO_E_DEVMEM : ZO_E_DEVICE,
        (int)error, "pacing copies: %s: %s", what, cudaGetErrorString(error));
}

/* One thread, before all others. */
template <typename... Parameters, typename... Arguments>
enum zo_status launch(const struct zo_pace *pace, void (*kernel)(Parameters...),
                      const char *what, Arguments... arguments)
{
    cudaLaunchAttribute priority = {};
    cudaLaunchConfig_t config = {};

    priority.id = cudaLaunchAttributePriority;
    priority.val.priority = pace->priority;
    config.gridDim = 1;
    config.blockDim = 1;
    config.stream = pace->stream;
    config.attrs = &priority;
    config.numAttrs = 1;
    return check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

enum zo_status fill(struct zo_pace *pace)
{
    int least = 0;

    ZO_TRY(check(cudaDeviceGetStreamPriorityRange(&least, &pace->priority),
                 "asking for priorities"));
    ZO_TRY(check(cudaMalloc(&pace->began_ns, sizeof(*pace->began_ns)),
                 "8 bytes of memory"));
    ZO_TRY(zo_pace_begin(pace));
    ZO_TRY(zo_pace_end(pace, 0));
    return check(cudaStreamSynchronize(pace->stream), "the first launches");
}

bool is_device_memory(const void *at)
{
    cudaPointerAttributes attributes = {};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, at);

    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeDevice;
}

} /* namespace */

extern "C" enum zo_status zo_pace_open(struct CUstream_st *stream,
                                       struct zo_pace *pace_out)
{
    struct zo_pace pace = {};
    enum zo_status status;

    pace.stream = stream;
    status = fill(&pace);
    if (status != ZO_OK) {
        zo_pace_close(&pace);
        return status;
    }
    *pace_out = pace;
    return ZO_OK;
}

extern "C" void zo_pace_close(struct zo_pace *pace)
{
    if (pace->began_ns != nullptr) {
        (void)cudaFree(pace->began_ns);
        (void)cudaGetLastError();
    }
    *pace = {};
}

extern "C" bool zo_pace_crosses(const void *target, const void *source)
{
    return is_device_memory(target) != is_device_memory(source);
}

extern "C" enum zo_status zo_pace_begin(const struct zo_pace *pace)
{
    return launch(pace, begin_kernel, "taking the time", pace->began_ns);
}

extern "C" enum zo_status zo_pace_end(const struct zo_pace *pace,
                                      uint64_t least_ns)
{
    return launch(pace, end_kernel, "waiting", pace->began_ns, least_ns);
}
