#include "src/device/context_cuda.h"

#include <cuda.h>
#include <stdatomic.h>
#include <time.h>

#include "src/device/driver_cuda.h"

#define GPUS_MAX     64
#define SETTLE_TRIES 50
#define SETTLE_SAME  3
#define SETTLE_NS    10000000

/* Of each GPU's, when this process made it. */
static _Atomic uint64_t context_bytes[GPUS_MAX];

bool zo_context_is_made(int index)
{
    CUresult (*state)(CUdevice, unsigned int *, int *) = NULL;
    void *function = zo_cuda_driver_function("cuDevicePrimaryCtxGetState");
    unsigned int flags = 0;
    int is_active = 0;

    if (function == NULL) {
        return false;
    }
    *(void **)&state = function;
    return state(index, &flags, &is_active) == CUDA_SUCCESS && is_active != 0;
}

/*
 * What is free once it no longer changes: the driver goes on giving back the
 * memory of a process that has just ended, which would hide what this one
 * takes.
 */
static bool settled_free_bytes(const struct zo_nvml *nvml, uint64_t *bytes_out)
{
    uint64_t bytes = 0, before = UINT64_MAX;
    int same = 0;

    for (int i = 0; i < SETTLE_TRIES && same < SETTLE_SAME; i++) {
        const struct timespec pause = {0, SETTLE_NS};

        if (!zo_nvml_free_bytes(nvml, &bytes)) {
            return false;
        }
        same = bytes == before ? same + 1 : 0;
        before = bytes;
        (void)nanosleep(&pause, NULL);
    }
    *bytes_out = bytes;
    return true;
}

void zo_context_watch_begin(struct zo_context_watch *watch, int index,
                            const char *bus_id)
{
    *watch = (struct zo_context_watch){.index = index};
    zo_nvml_open(&watch->nvml, bus_id);
    watch->is_known = !zo_context_is_made(index) &&
                      settled_free_bytes(&watch->nvml, &watch->free_bytes);
}

void zo_context_watch_end(struct zo_context_watch *watch,
                          struct zo_device_info *info)
{
    const bool is_kept = watch->index < GPUS_MAX;
    uint64_t after = 0;

    info->has_display = zo_nvml_has_display(&watch->nvml);
    if (watch->is_known) {
        info->context_bytes = zo_nvml_free_bytes(&watch->nvml, &after) &&
                                      after < watch->free_bytes
                                  ? watch->free_bytes - after
                                  : 0;
        if (is_kept) {
            atomic_store(&context_bytes[watch->index], info->context_bytes);
        }
    } else if (is_kept) {
        info->context_bytes = atomic_load(&context_bytes[watch->index]);
    }
    zo_nvml_close(&watch->nvml);
}
