#include "src/train/devices.h"

#include "src/comm/comm.h"

#define CPU_WORKERS_MAX 256 /* memory is shared by fewer */

struct backend {
    const struct zo_device_ops *device_ops;
    const struct zo_kernel_ops *kernel_ops;
    const struct zo_comm_ops *comm_ops;
};

static const struct backend host_backend = {&zo_device_host, &zo_kernels_host,
                                            &zo_comm_host};
static const struct backend cuda_backend = {&zo_device_cuda, &zo_kernels_cuda,
                                            NULL};

/* The backend that options ask for, and how many devices it has. */
static enum zo_status choose(const struct zo_devices_options *options,
                             const struct backend **backend_out, int *there_out)
{
    int gpus = 0;

    if (options->backend != ZO_BACKEND_HOST) {
        ZO_TRY(zo_device_cuda.count(&gpus));
    }
    if (options->backend == ZO_BACKEND_CUDA && gpus == 0) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "--backend cuda: no GPU that this build can use; "
                       "--backend host trains on the processor");
    }
    *backend_out = gpus > 0 ? &cuda_backend : &host_backend;
    *there_out = gpus > 0 ? gpus : ZO_DEVICES_MAX;
    return ZO_OK;
}

enum zo_status zo_devices_count(const struct zo_devices_options *options,
                                int *count_out)
{
    const struct backend *backend = NULL;
    int there = 0, count;

    ZO_TRY(choose(options, &backend, &there));
    count = options->count > 0         ? options->count
            : backend == &host_backend ? 1
                                       : there;
    if (count > there) {
        return ZO_FAIL(ZO_E_USAGE, "%d devices asked for; there are %d", count,
                       there);
    }
    for (int i = 0; options->indices != NULL && i < count; i++) {
        if (options->indices[i] < 0 || options->indices[i] >= there) {
            return ZO_FAIL(ZO_E_USAGE,
                           "--devices: there is no device %d; want 0 to %d",
                           options->indices[i], there - 1);
        }
        for (int j = 0; j < i; j++) {
            if (options->indices[j] == options->indices[i]) {
                return ZO_FAIL(ZO_E_USAGE, "--devices names %d twice",
                               options->indices[i]);
            }
        }
    }
    if (count > 1 && backend->comm_ops == NULL) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%d GPUs: this version trains on one; choose it with "
                       "--devices",
                       count);
    }
    *count_out = count;
    return ZO_OK;
}

static enum zo_status open_machine(struct zo_devices *devices,
                                   const struct backend *backend,
                                   const struct zo_devices_options *options,
                                   int count)
{
    struct zo_machine *machine = &devices->machine;
    const struct zo_device_options device_options = {
        .pool = devices->pool,
        .delay_seed = options->delay_seed,
        .delay_us_max = options->delay_us_max,
        .copy_bytes_per_second = options->copy_bytes_per_second,
    };
    const struct zo_kernels_options kernel_options = {.pool = devices->pool};

    machine->device_ops = backend->device_ops;
    machine->kernel_ops = backend->kernel_ops;
    machine->comm_ops = backend->comm_ops;
    for (int i = 0; i < count; i++) {
        const int index = options->indices != NULL ? options->indices[i] : i;

        ZO_TRY(backend->device_ops->open(index, &device_options,
                                         &machine->devices[i]));
        machine->device_count = i + 1;
        ZO_TRY(backend->kernel_ops->open(machine->devices[i], &kernel_options,
                                         &machine->kernels[i]));
    }
    return count == 1 ? ZO_OK
                      : backend->comm_ops->open(machine->devices, count,
                                                &machine->comm);
}

enum zo_status zo_devices_open(const struct zo_devices_options *options,
                               struct zo_devices *devices_out)
{
    enum zo_status status;
    const struct backend *backend = NULL;
    struct zo_devices devices = {0};
    int there = 0, count = 0;

    ZO_TRY(choose(options, &backend, &there));
    ZO_TRY(zo_devices_count(options, &count));
    devices.copy_bytes_per_second = options->copy_bytes_per_second;
    devices.threads = options->threads > 0 ? options->threads : zo_cpu_count();
    ZO_TRY(zo_pool_open(devices.threads - 1, &devices.pool));
    ZO_TRY_GOTO(close_devices, open_machine(&devices, backend, options, count));
    *devices_out = devices;
    return ZO_OK;

close_devices:
    zo_devices_close(&devices);
    return status;
}

int zo_devices_cpu_workers(const struct zo_devices *devices)
{
    const int workers = zo_pool_width(devices->pool) - 1;

    return workers < 1                 ? 1
           : workers < CPU_WORKERS_MAX ? workers
                                       : CPU_WORKERS_MAX;
}

void zo_devices_close(struct zo_devices *devices)
{
    if (devices == NULL) {
        return;
    }
    if (devices->machine.comm != NULL) {
        devices->machine.comm_ops->close(devices->machine.comm);
    }
    for (int i = 0; i < devices->machine.device_count; i++) {
        devices->machine.kernel_ops->close(devices->machine.kernels[i]);
        devices->machine.device_ops->close(devices->machine.devices[i]);
    }
    zo_pool_close(devices->pool);
    *devices = (struct zo_devices){0};
}
