/*
 * The free memory of a GPU as the driver counts it, without a CUDA context:
 * asking through CUDA would make one first, and a context takes memory.
 *
 * Layer 2, private to src/device.  The library is looked for at run time: the
 * program does not link it, and goes on without.
 */
#ifndef ZO_SRC_DEVICE_NVML_CUDA_H
#define ZO_SRC_DEVICE_NVML_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/* All zero is closed: reads then fail, and closing it is allowed. */
struct zo_nvml {
    void *library; /* owned */
    void *gpu;     /* nvmlDevice_t */
    int (*shutdown)(void);
    int (*memory_info)(void *gpu, void *info_out);
    int (*display_active)(void *gpu, int *active_out); /* may be NULL */
};

/* The GPU at "0000:1b:00.0"; closed when the library does not know it. */
void zo_nvml_open(struct zo_nvml *nvml, const char *bus_id);

/* False when the driver does not say. */
bool zo_nvml_free_bytes(const struct zo_nvml *nvml, uint64_t *bytes_out);

/* Whether a screen shows what it draws; false when the driver does not say. */
bool zo_nvml_has_display(const struct zo_nvml *nvml);

void zo_nvml_close(struct zo_nvml *nvml);

ZO_C_END

#endif
