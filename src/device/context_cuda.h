/*
 * What a GPU's context takes of its memory.
 *
 * Layer 2, private to src/device.  A context is made when this process first
 * uses a GPU, and stays until the process ends, whoever closes what.
 */
#ifndef ZO_SRC_DEVICE_CONTEXT_CUDA_H
#define ZO_SRC_DEVICE_CONTEXT_CUDA_H

#include "src/device/device.h"
#include "src/device/nvml_cuda.h"

ZO_C_BEGIN

/* Whether this process has one on that GPU; asking makes none. */
bool zo_context_is_made(int index);

struct zo_context_watch {
    struct zo_nvml nvml;
    int index;
    uint64_t free_bytes; /* before */
    bool is_known;       /* free_bytes; no context was there */
};

/* Before a GPU is used; bus_id: "0000:1b:00.0". */
void zo_context_watch_begin(struct zo_context_watch *watch, int index,
                            const char *bus_id);
/*
 * Behind its first use: context_bytes, what the driver has less of than at
 * begin; when the context was there already, what was found when it was made;
 * 0 where neither is known.  Also has_display.
 */
void zo_context_watch_end(struct zo_context_watch *watch,
                          struct zo_device_info *info);

ZO_C_END

#endif
