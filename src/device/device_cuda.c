/*
 * The cuda device: streams, events, memory and copies of NVIDIA GPUs.
 *
 * Layer 2.  A call makes its device current where CUDA asks for that; no
 * caller has to.  A failure names the operation and the device, and clears
 * the error that CUDA keeps, so that the next call does not report it again.
 */
#include "src/device/device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/system.h"
#include "src/base/text.h"
#include "src/device/context_cuda.h"
#include "src/device/pace_cuda.h"
#include "src/device/stream_cuda.h"

#define ALIGN_BYTES    256     /* what cudaMalloc promises */
#define TOUCH_BYTES    8388608 /* of one index of the touching loop */
#define NAME_BYTES     24
#define GIB_BYTES      16
#define BUS_ID_BYTES   16
#define PEERS_MAX      64         /* bits of peer_mask */
#define ANCHOR_LIFE_NS 1000000000 /* two clocks drift some us a second */
#define ANCHOR_NEAR_NS 50000      /* as well as two clocks need to be set */
#define ANCHOR_TRIES   4
#define PER_GPU_MAX    8

struct zo_device {
    struct zo_device_info info;
    struct zo_pool *pool;           /* borrowed; may be NULL */
    uint64_t copy_bytes_per_second; /* 0: copies are not paced */
    uint64_t allocated_bytes[ZO_MEM_KINDS];
    int index; /* CUDA's, of the GPU */
    char name[NAME_BYTES];
    char description[256];
    char bus_id[BUS_ID_BYTES];
    /* Of timed events: a point on both clocks.  NULL: there are none yet. */
    cudaStream_t anchor_stream;
    cudaEvent_t anchor;
    int64_t anchor_ns;
};

struct zo_stream {
    struct zo_device *device; /* borrowed */
    cudaStream_t native;
    struct zo_pace pace; /* closed, unless copies are paced */
    char name[NAME_BYTES];
};

struct zo_event {
    struct zo_device *device; /* borrowed */
    cudaEvent_t native;
};

static enum zo_status status_of(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? ZO_E_DEVMEM : ZO_E_DEVICE;
}

#define CUDA_TRY(device_name, operation, call)                              \
    do {                                                                    \
        const cudaError_t error_ = (call);                                  \
        if (error_ != cudaSuccess) {                                        \
            (void)cudaGetLastError(); /* or the next call would see it */   \
            return ZO_FAIL_NATIVE(status_of(error_), (int)error_,           \
                                  "%s: %s: %s", (device_name), (operation), \
                                  cudaGetErrorString(error_));              \
        }                                                                   \
    } while (0)

#define STREAM_TRY(stream, operation, call)                                    \
    do {                                                                       \
        const cudaError_t error_ = (call);                                     \
        if (error_ != cudaSuccess) {                                           \
            (void)cudaGetLastError();                                          \
            return ZO_FAIL_NATIVE(status_of(error_), (int)error_,              \
                                  "%s: %s, stream %s: %s",                     \
                                  (stream)->device->name, (operation),         \
                                  (stream)->name, cudaGetErrorString(error_)); \
        }                                                                      \
    } while (0)

struct CUstream_st *zo_stream_cuda_native(struct zo_stream *stream)
{
    return stream->native;
}

int zo_device_cuda_index(const struct zo_device *device)
{
    return device->index;
}

/* Both calls read and write a thread's own record: some 20 ns. */
static enum zo_status use_device(const struct zo_device *device)
{
    int current = -1;

    CUDA_TRY(device->name, "cudaGetDevice", cudaGetDevice(&current));
    if (current != device->index) {
        CUDA_TRY(device->name, "cudaSetDevice", cudaSetDevice(device->index));
    }
    return ZO_OK;
}

static void cuda_platform(struct zo_device_platform *platform_out)
{
    struct zo_device_platform platform = {
        .runtime_version = CUDART_VERSION,
        .targets = ZO_CUDA_TARGETS,
        .refusal = "",
    };
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (error != cudaSuccess) {
        platform.refusal = cudaGetErrorString(error);
    }
    (void)cudaDriverGetVersion(&platform.driver_version);
    (void)cudaGetLastError();
    *platform_out = platform;
}

static enum zo_status gpu_count(int *count_out)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
        error == cudaErrorStubLibrary) {
        (void)cudaGetLastError();
        *count_out = 0; /* a machine without a GPU is no failure */
        return ZO_OK;
    }
    CUDA_TRY("cuda", "counting the GPUs", error);
    *count_out = count;
    return ZO_OK;
}

/* For tests where there are too few GPUs; see device.h. */
static int devices_per_gpu(void)
{
    const char *text = getenv("ZERO_OFFLOAD_DEVICES_PER_GPU");
    const long count = text != NULL ? strtol(text, NULL, 10) : 1;

    return count >= 1 && count <= PER_GPU_MAX ? (int)count : 1;
}

static enum zo_status cuda_count(int *count_out)
{
    int gpus = 0;

    ZO_TRY(gpu_count(&gpus));
    *count_out = gpus * devices_per_gpu();
    return ZO_OK;
}

/*
 * Lets this device and each one that this process has opened copy to each
 * other directly.  Where that fails copies go through the host, by CUDA's
 * own means, so a failure here is none.
 */
static uint64_t open_peers(const struct zo_device *device, int count)
{
    uint64_t peer_mask = 0;

    for (int peer = 0; peer < count && peer < PEERS_MAX; peer++) {
        int is_able = 0;

        if (peer == device->index ||
            cudaDeviceCanAccessPeer(&is_able, device->index, peer) !=
                cudaSuccess ||
            !is_able) {
            continue;
        }
        peer_mask |= UINT64_C(1) << peer;
        if (zo_context_is_made(peer)) {
            (void)cudaDeviceEnablePeerAccess(peer, 0);
            (void)cudaSetDevice(peer);
            (void)cudaDeviceEnablePeerAccess(device->index, 0);
            (void)cudaSetDevice(device->index);
        }
    }
    (void)cudaGetLastError();
    return peer_mask;
}

static void describe(struct zo_device *device,
                     const struct cudaDeviceProp *prop, uint64_t peer_mask)
{
    (void)snprintf(device->description, sizeof(device->description), "%s",
                   prop->name);
    device->info = (struct zo_device_info){
        .name = device->name,
        .description = device->description,
        .memory_bytes = prop->totalGlobalMem,
        .align_bytes = ALIGN_BYTES,
        .peer_mask = peer_mask,
        .bus_id = device->bus_id,
        .capability = 10 * prop->major + prop->minor,
    };
}

/* A waiting thread sleeps: its core belongs to the host's AdamW. */
static enum zo_status start(struct zo_device *device, int count)
{
    struct cudaDeviceProp prop;

    CUDA_TRY(device->name, "starting the device",
             cudaInitDevice(device->index, cudaDeviceScheduleBlockingSync,
                            cudaInitDeviceFlagsAreValid));
    CUDA_TRY(device->name, "starting the device", cudaSetDevice(device->index));
    CUDA_TRY(device->name, "starting the device", cudaFree(NULL));
    CUDA_TRY(device->name, "reading its properties",
             cudaGetDeviceProperties(&prop, device->index));
    describe(device, &prop, open_peers(device, count));
    return ZO_OK;
}

/* Starts, and takes note of what that took. */
static enum zo_status start_measured(struct zo_device *device, int count)
{
    struct zo_context_watch watch;
    enum zo_status status;

    if (cudaDeviceGetPCIBusId(device->bus_id, (int)sizeof(device->bus_id),
                              device->index) != cudaSuccess) {
        (void)cudaGetLastError();
        device->bus_id[0] = '\0';
    }
    zo_context_watch_begin(&watch, device->index, device->bus_id);
    status = start(device, count);
    zo_context_watch_end(&watch, &device->info);
    return status;
}

static enum zo_status cuda_open(int index,
                                const struct zo_device_options *options,
                                struct zo_device **device_out)
{
    struct zo_device *device = NULL;
    enum zo_status status;
    int gpus = 0;

    ZO_TRY(gpu_count(&gpus));
    if (index < 0 || index >= gpus * devices_per_gpu()) {
        return ZO_FAIL(ZO_E_ARG, "cuda:%d: no such device; there are %d", index,
                       gpus * devices_per_gpu());
    }
    ZO_TRY(zo_alloc(1, sizeof(*device), "a device record", &device));
    device->index = index % gpus;
    if (options != NULL) {
        device->pool = options->pool;
        device->copy_bytes_per_second = options->copy_bytes_per_second;
    }
    (void)snprintf(device->name, sizeof(device->name), "cuda:%d", index);
    status = start_measured(device, gpus);
    if (status != ZO_OK) {
        zo_free(device);
        return status;
    }
    *device_out = device;
    return ZO_OK;
}

/* The context stays: libraries of this process may still hold parts of it. */
static void cuda_close(struct zo_device *device)
{
    if (device != NULL && device->anchor_stream != NULL) {
        (void)cudaSetDevice(device->index);
        (void)cudaEventDestroy(device->anchor);
        (void)cudaStreamDestroy(device->anchor_stream);
        (void)cudaGetLastError();
    }
    zo_free(device);
}

static const struct zo_device_info *cuda_info(const struct zo_device *device)
{
    return &device->info;
}

static enum zo_status cuda_mem_free_bytes(struct zo_device *device,
                                          uint64_t *bytes_out)
{
    size_t free_bytes = 0, total_bytes = 0;

    ZO_TRY(use_device(device));
    CUDA_TRY(device->name, "asking for its free memory",
             cudaMemGetInfo(&free_bytes, &total_bytes));
    *bytes_out = free_bytes;
    return ZO_OK;
}

static enum zo_status device_alloc(struct zo_device *device, const char *name,
                                   size_t size_bytes, void **memory_out)
{
    void *memory = NULL;
    cudaError_t error;

    ZO_TRY(use_device(device));
    error = cudaMalloc(&memory, size_bytes > 0 ? size_bytes : 1);
    if (error != cudaSuccess) {
        char wanted[GIB_BYTES], held[GIB_BYTES];

        (void)cudaGetLastError();
        return ZO_FAIL_NATIVE(
            status_of(error), (int)error,
            "%s: no memory for %s: %zu bytes (%s) wanted, %s allocated "
            "before: %s",
            device->name, name, size_bytes,
            zo_text_gib(wanted, sizeof(wanted), size_bytes),
            zo_text_gib(held, sizeof(held),
                        device->allocated_bytes[ZO_MEM_DEVICE]),
            cudaGetErrorString(error));
    }
    *memory_out = memory;
    return ZO_OK;
}

/* Bytes that are mapped for a request: whole pages, no more. */
static size_t pinned_bytes(size_t size_bytes)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

    return zo_round_up(size_bytes > 0 ? size_bytes : 1, page_bytes);
}

struct touch {
    char *memory;
    size_t size_bytes, page_bytes;
};

static void touch_part(void *work, int64_t index)
{
    const struct touch *touch = work;
    const size_t first = (size_t)index * TOUCH_BYTES;
    const size_t left = touch->size_bytes - first;
    const size_t end = first + (left < TOUCH_BYTES ? left : TOUCH_BYTES);

    for (size_t i = first; i < end; i += touch->page_bytes) {
        ((volatile char *)touch->memory)[i] = 0;
    }
}

/*
 * Hands out each page, with all threads: 25 GB/s with 16 of them, and the
 * registration that follows then runs at 37 GB/s on huge pages.
 * cudaHostAlloc does both in one thread at 1.7 GB/s (all measured, H200).
 */
static void touch_pages(struct zo_pool *pool, char *memory, size_t size_bytes)
{
    struct touch touch = {
        .memory = memory,
        .size_bytes = size_bytes,
        .page_bytes = (size_t)sysconf(_SC_PAGESIZE),
    };
    const int64_t parts = zo_div_ceil((int64_t)size_bytes, TOUCH_BYTES);

    if (pool != NULL) {
        zo_pool_run(pool, touch_part, &touch, parts);
        return;
    }
    for (int64_t i = 0; i < parts; i++) {
        touch_part(&touch, i);
    }
}

/* Names the limits that can be the cause. */
static enum zo_status fail_lock(const struct zo_device *device,
                                const char *name, size_t size_bytes,
                                cudaError_t error)
{
    char wanted[GIB_BYTES], held[GIB_BYTES], lock[GIB_BYTES], room[GIB_BYTES];
    struct zo_system system;

    zo_system_read("", &system);
    return ZO_FAIL_NATIVE(
        ZO_E_LOCK, (int)error,
        "%s: cannot lock host memory for %s: %zu bytes (%s) wanted, %s locked "
        "before: %s; RLIMIT_MEMLOCK (ulimit -l) is %s%s, the control group "
        "and MemAvailable leave %s",
        device->name, name, size_bytes,
        zo_text_gib(wanted, sizeof(wanted), size_bytes),
        zo_text_gib(held, sizeof(held), device->allocated_bytes[ZO_MEM_PINNED]),
        cudaGetErrorString(error),
        system.lock_limit_bytes == ZO_SYSTEM_NO_LIMIT
            ? "unlimited"
            : zo_text_gib(lock, sizeof(lock), system.lock_limit_bytes),
        system.is_lock_privileged ? " (CAP_IPC_LOCK: it does not bind)" : "",
        zo_text_gib(room, sizeof(room), zo_system_room(&system)));
}

/* `place` may be NULL. */
static enum zo_status pinned_alloc(struct zo_device *device, const char *name,
                                   size_t size_bytes, zo_place_fn place,
                                   void *context, void **memory_out)
{
    const size_t mapped_bytes = pinned_bytes(size_bytes);
    char *memory = NULL;
    cudaError_t error;

    ZO_TRY(use_device(device));
    ZO_TRY(zo_huge_alloc(mapped_bytes, name, &memory));
    if (place != NULL) {
        place(context, memory);
    }
    touch_pages(device->pool, memory, mapped_bytes);
    error = cudaHostRegister(memory, mapped_bytes, cudaHostRegisterPortable);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        zo_pages_free(memory, mapped_bytes);
        return fail_lock(device, name, size_bytes, error);
    }
    *memory_out = memory;
    return ZO_OK;
}

static enum zo_status cuda_mem_alloc(struct zo_device *device,
                                     enum zo_mem_kind kind, const char *name,
                                     size_t size_bytes, void **memory_out)
{
    switch (kind) {
    case ZO_MEM_DEVICE:
        ZO_TRY(device_alloc(device, name, size_bytes, memory_out));
        break;
    case ZO_MEM_PINNED:
        ZO_TRY(pinned_alloc(device, name, size_bytes, NULL, NULL, memory_out));
        break;
    case ZO_MEM_KINDS:
        return ZO_FAIL(ZO_E_ARG, "%s: no such kind of memory", device->name);
    }
    device->allocated_bytes[kind] += size_bytes;
    return ZO_OK;
}

static enum zo_status cuda_mem_alloc_placed(struct zo_device *device,
                                            const char *name, size_t size_bytes,
                                            zo_place_fn place, void *context,
                                            void **memory_out)
{
    ZO_TRY(pinned_alloc(device, name, size_bytes, place, context, memory_out));
    device->allocated_bytes[ZO_MEM_PINNED] += size_bytes;
    return ZO_OK;
}

static void cuda_mem_free(struct zo_device *device, enum zo_mem_kind kind,
                          void *memory, size_t size_bytes)
{
    if (memory == NULL) {
        return;
    }
    (void)cudaSetDevice(device->index);
    if (kind == ZO_MEM_PINNED) {
        (void)cudaHostUnregister(memory);
        zo_pages_free(memory, pinned_bytes(size_bytes));
    } else {
        (void)cudaFree(memory);
    }
    (void)cudaGetLastError();
    device->allocated_bytes[kind] -= size_bytes;
}

static uint64_t cuda_mem_allocated(const struct zo_device *device,
                                   enum zo_mem_kind kind)
{
    return device->allocated_bytes[kind];
}

static void cuda_stream_close(struct zo_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    (void)cudaSetDevice(stream->device->index);
    (void)cudaStreamSynchronize(stream->native);
    zo_pace_close(&stream->pace);
    (void)cudaStreamDestroy(stream->native);
    (void)cudaGetLastError();
    zo_free(stream);
}

static enum zo_status cuda_stream_open(struct zo_device *device,
                                       const char *name,
                                       struct zo_stream **stream_out)
{
    struct zo_stream *stream = NULL;
    cudaStream_t native = NULL;
    enum zo_status status = ZO_OK;

    ZO_TRY(use_device(device));
    ZO_TRY(zo_alloc(1, sizeof(*stream), "a stream record", &stream));
    stream->device = device;
    (void)snprintf(stream->name, sizeof(stream->name), "%s", name);

    const cudaError_t error =
        cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        zo_free(stream);
        CUDA_TRY(device->name, "opening a stream", error);
    }
    stream->native = native;
    if (device->copy_bytes_per_second > 0) {
        status = zo_pace_open(native, &stream->pace);
    }
    if (status != ZO_OK) {
        cuda_stream_close(stream);
        return status;
    }
    *stream_out = stream;
    return ZO_OK;
}

static enum zo_status cuda_stream_sync(struct zo_stream *stream)
{
    ZO_TRY(use_device(stream->device));
    STREAM_TRY(stream, "waiting", cudaStreamSynchronize(stream->native));
    return ZO_OK;
}

static enum zo_status cuda_copy(struct zo_stream *stream, void *target,
                                const void *source, size_t size_bytes)
{
    const uint64_t rate = stream->device->copy_bytes_per_second;
    const bool is_paced = rate > 0 && zo_pace_crosses(target, source);
    cudaError_t error;

    if (size_bytes == 0) {
        return ZO_OK;
    }
    ZO_TRY(use_device(stream->device));
    if (is_paced) {
        ZO_TRY(zo_pace_begin(&stream->pace));
    }
    error = cudaMemcpyAsync(target, source, size_bytes, cudaMemcpyDefault,
                            stream->native);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return ZO_FAIL_NATIVE(status_of(error), (int)error,
                              "%s: copying %zu bytes, stream %s: %s",
                              stream->device->name, size_bytes, stream->name,
                              cudaGetErrorString(error));
    }
    return is_paced ? zo_pace_end(
                          &stream->pace,
                          (uint64_t)(1e9 * (double)size_bytes / (double)rate))
                    : ZO_OK;
}

static enum zo_status cuda_fill(struct zo_stream *stream, void *target,
                                int byte, size_t size_bytes)
{
    cudaError_t error;

    if (size_bytes == 0) {
        return ZO_OK;
    }
    ZO_TRY(use_device(stream->device));
    error = cudaMemsetAsync(target, byte, size_bytes, stream->native);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return ZO_FAIL_NATIVE(status_of(error), (int)error,
                              "%s: filling %zu bytes, stream %s: %s",
                              stream->device->name, size_bytes, stream->name,
                              cudaGetErrorString(error));
    }
    return ZO_OK;
}

static enum zo_status open_event(struct zo_device *device, unsigned int flags,
                                 struct zo_event **event_out)
{
    struct zo_event *event = NULL;
    cudaEvent_t native = NULL;

    ZO_TRY(use_device(device));
    ZO_TRY(zo_alloc(1, sizeof(*event), "an event record", &event));

    const cudaError_t error = cudaEventCreateWithFlags(&native, flags);
    if (error != cudaSuccess) {
        zo_free(event);
        CUDA_TRY(device->name, "opening an event", error);
    }
    event->device = device;
    event->native = native;
    *event_out = event;
    return ZO_OK;
}

static enum zo_status cuda_event_open(struct zo_device *device,
                                      struct zo_event **event_out)
{
    return open_event(device, cudaEventDisableTiming | cudaEventBlockingSync,
                      event_out);
}

static void cuda_event_close(struct zo_event *event)
{
    if (event == NULL) {
        return;
    }
    (void)cudaEventDestroy(event->native);
    (void)cudaGetLastError();
    zo_free(event);
}

static enum zo_status cuda_event_record(struct zo_stream *stream,
                                        struct zo_event *event)
{
    ZO_TRY(use_device(stream->device));
    STREAM_TRY(stream, "recording an event",
               cudaEventRecord(event->native, stream->native));
    return ZO_OK;
}

static enum zo_status cuda_event_wait(struct zo_stream *stream,
                                      struct zo_event *event)
{
    ZO_TRY(use_device(stream->device));
    STREAM_TRY(stream, "waiting for an event",
               cudaStreamWaitEvent(stream->native, event->native, 0));
    return ZO_OK;
}

static enum zo_status cuda_event_query(struct zo_event *event, bool *done_out)
{
    ZO_TRY(use_device(event->device));

    const cudaError_t error = cudaEventQuery(event->native);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        *done_out = false;
        return ZO_OK;
    }
    CUDA_TRY(event->device->name, "asking for an event", error);
    *done_out = true;
    return ZO_OK;
}

static enum zo_status cuda_event_sync(struct zo_event *event)
{
    ZO_TRY(use_device(event->device));
    CUDA_TRY(event->device->name, "waiting for an event",
             cudaEventSynchronize(event->native));
    return ZO_OK;
}

/*
 * Takes the time at which an idle stream passes an event: between the call
 * that records it and the query that sees it passed.  A try that was held up
 * is made again.
 */
static enum zo_status drop_anchor(struct zo_device *device)
{
    for (int i = 0; i < ANCHOR_TRIES; i++) {
        const int64_t before_ns = zo_clock_ns();
        cudaError_t error = cudaErrorNotReady;
        int64_t width_ns;

        CUDA_TRY(device->name, "reading its clock",
                 cudaEventRecord(device->anchor, device->anchor_stream));
        while (error == cudaErrorNotReady) {
            error = cudaEventQuery(device->anchor);
        }
        CUDA_TRY(device->name, "reading its clock", error);
        width_ns = zo_clock_ns() - before_ns;
        device->anchor_ns = before_ns + width_ns / 2;
        if (width_ns <= ANCHOR_NEAR_NS) {
            break;
        }
    }
    (void)cudaGetLastError(); /* that of a query is kept too */
    return ZO_OK;
}

static enum zo_status open_anchor(struct zo_device *device)
{
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    cudaError_t error;

    ZO_TRY(use_device(device));
    CUDA_TRY(device->name, "opening its clock",
             cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    error = cudaEventCreateWithFlags(&event, cudaEventDefault);
    if (error != cudaSuccess) {
        (void)cudaStreamDestroy(stream);
        CUDA_TRY(device->name, "opening its clock", error);
    }
    device->anchor_stream = stream;
    device->anchor = event;
    ZO_TRY(drop_anchor(device)); /* the first call of a stream is slow */
    return drop_anchor(device);
}

static enum zo_status cuda_event_open_timed(struct zo_device *device,
                                            struct zo_event **event_out)
{
    if (device->anchor_stream == NULL) {
        ZO_TRY(open_anchor(device));
    }
    return open_event(device, cudaEventBlockingSync, event_out);
}

static enum zo_status cuda_event_time_ns(struct zo_event *event,
                                         int64_t *time_ns_out)
{
    struct zo_device *device = event->device;
    float elapsed_ms = 0.0f; /* below 0 for what was before the anchor */

    ZO_TRY(use_device(device));
    if (device->anchor_stream != NULL &&
        zo_clock_ns() - device->anchor_ns > ANCHOR_LIFE_NS) {
        ZO_TRY(drop_anchor(device));
    }
    CUDA_TRY(device->name, "the time of an event",
             cudaEventElapsedTime(&elapsed_ms, device->anchor, event->native));
    *time_ns_out = device->anchor_ns + (int64_t)((double)elapsed_ms * 1e6);
    return ZO_OK;
}

const struct zo_device_ops zo_device_cuda = {
    .abi = ZO_DEVICE_ABI,
    .kind = "cuda",
    .platform = cuda_platform,
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .mem_free_bytes = cuda_mem_free_bytes,
    .mem_alloc = cuda_mem_alloc,
    .mem_alloc_placed = cuda_mem_alloc_placed,
    .mem_free = cuda_mem_free,
    .mem_allocated = cuda_mem_allocated,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .stream_sync = cuda_stream_sync,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_query = cuda_event_query,
    .event_sync = cuda_event_sync,
    .event_open_timed = cuda_event_open_timed,
    .event_time_ns = cuda_event_time_ns,
};
