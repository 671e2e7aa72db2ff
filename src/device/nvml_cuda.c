#include "src/device/nvml_cuda.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"
#define SUCCESS 0 /* NVML_SUCCESS */

/* nvmlMemory_t of nvml.h. */
struct memory_info {
    unsigned long long total, free, used;
};

/* A function through memcpy: ISO C has no cast from void * to it. */
static bool find(void *library, const char *name, void *function_out)
{
    void *function = dlsym(library, name);

    if (function == NULL) {
        return false;
    }
    memcpy(function_out, &function, sizeof(function));
    return true;
}

static bool open_gpu(struct zo_nvml *nvml, const char *bus_id)
{
    int (*init)(void) = NULL;
    int (*by_bus_id)(const char *, void **) = NULL;

    if (!find(nvml->library, "nvmlInit_v2", &init) ||
        !find(nvml->library, "nvmlShutdown", &nvml->shutdown) ||
        !find(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus_id) ||
        !find(nvml->library, "nvmlDeviceGetMemoryInfo", &nvml->memory_info)) {
        nvml->shutdown = NULL;
        return false;
    }
    if (init() != SUCCESS) {
        nvml->shutdown = NULL;
        return false;
    }
    (void)find(nvml->library, "nvmlDeviceGetDisplayActive",
               &nvml->display_active);
    return by_bus_id(bus_id, &nvml->gpu) == SUCCESS;
}

void zo_nvml_open(struct zo_nvml *nvml, const char *bus_id)
{
    *nvml = (struct zo_nvml){.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)};
    if (nvml->library != NULL && !open_gpu(nvml, bus_id)) {
        zo_nvml_close(nvml);
    }
}

bool zo_nvml_free_bytes(const struct zo_nvml *nvml, uint64_t *bytes_out)
{
    struct memory_info info = {0, 0, 0};

    if (nvml->library == NULL ||
        nvml->memory_info(nvml->gpu, &info) != SUCCESS) {
        return false;
    }
    *bytes_out = info.free;
    return true;
}

bool zo_nvml_has_display(const struct zo_nvml *nvml)
{
    int active = 0; /* nvmlEnableState_t */

    return nvml->display_active != NULL &&
           nvml->display_active(nvml->gpu, &active) == SUCCESS && active != 0;
}

void zo_nvml_close(struct zo_nvml *nvml)
{
    if (nvml->shutdown != NULL) {
        (void)nvml->shutdown();
    }
    if (nvml->library != NULL) {
        (void)dlclose(nvml->library);
    }
    *nvml = (struct zo_nvml){0};
}
