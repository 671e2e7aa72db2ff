#include "src/train/devices.h"

#include <stdio.h>

#include "src/base/text.h"
#include "src/comm/comm.h"

#define CPU_WORKERS_MAX 256                 /* memory is shared by fewer */
#define TAKEN_BYTES_MAX ((uint64_t)1 << 30) /* a desktop holds less */

struct backend {
    const struct zo_device_ops *device_ops;
    const struct zo_kernel_ops *kernel_ops;
    const struct zo_comm_ops *comm_ops[2]; /* the faster first; NULL */
};

static const struct backend host_backend = {
    &zo_device_host, &zo_kernels_host, {&zo_comm_host}};
static const struct backend cuda_backend = {
    &zo_device_cuda, &zo_kernels_cuda, {&zo_comm_peer, &zo_comm_nccl}};

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
    if (options->backend == ZO_BACKEND_AUTO && gpus == 0 &&
        options->indices != NULL) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--devices names GPUs, and there is none that this "
                       "build can use; --backend host takes the processor, "
                       "with --num-devices N virtual devices");
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
    *count_out = count;
    return ZO_OK;
}

uint64_t zo_devices_comm_bytes(const struct zo_machine *machine, int device)
{
    return machine->comm == NULL
               ? 0
               : machine->comm_ops->own_device_bytes(machine->comm, device);
}

/* Bytes of a device that neither are free nor went to its context. */
static enum zo_status taken_bytes(const struct zo_machine *machine, int device,
                                  uint64_t *bytes_out)
{
    const struct zo_device_info *info =
        machine->device_ops->info(machine->devices[device]);
    uint64_t rest = 0;

    ZO_TRY(
        machine->device_ops->mem_free_bytes(machine->devices[device], &rest));
    rest += info->context_bytes;
    *bytes_out = rest < info->memory_bytes ? info->memory_bytes - rest : 0;
    return ZO_OK;
}

enum zo_status zo_devices_check_idle(const struct zo_machine *machine)
{
    char names[512], text[32];
    size_t used = 0;

    for (int d = 0; d < machine->device_count; d++) {
        const struct zo_device_info *info =
            machine->device_ops->info(machine->devices[d]);
        uint64_t bytes = 0;

        ZO_TRY(taken_bytes(machine, d, &bytes));
        if (bytes > TAKEN_BYTES_MAX && used < sizeof(names)) {
            used += (size_t)snprintf(names + used, sizeof(names) - used,
                                     "%s%s of %s", used > 0 ? ", " : "",
                                     zo_text_gib(text, sizeof(text), bytes),
                                     info->name);
        }
    }
    return used == 0 ? ZO_OK
                     : ZO_FAIL(ZO_E_USAGE,
                               "somebody else uses %s; name the GPUs to train "
                               "on, these too if you mean them, with --devices",
                               names);
}

/* Several GPUs that nobody named. */
static bool are_implied(const struct zo_devices_options *options,
                        const struct backend *backend, int count)
{
    return backend == &cuda_backend && count > 1 && options->indices == NULL;
}

/* What carries: where the faster way does not work, the other. */
static enum zo_status open_comm(struct zo_devices *devices,
                                const struct backend *backend)
{
    struct zo_machine *machine = &devices->machine;
    const struct zo_comm_ops *other = backend->comm_ops[1];
    enum zo_status status;

    machine->comm_ops = backend->comm_ops[0];
    status = machine->comm_ops->open(machine->devices, machine->device_count,
                                     &machine->comm);
    if (status != ZO_E_COMM || other == NULL) {
        return status;
    }
    (void)snprintf(devices->carrier, sizeof(devices->carrier), "%.511s",
                   zo_err_last()->text);
    if (other->lack != NULL) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%s; such GPUs need NCCL, and %s; choose one with "
                       "--devices",
                       devices->carrier, other->lack);
    }
    machine->comm_ops = other;
    return other->open(machine->devices, machine->device_count, &machine->comm);
}

static void read_numa(struct zo_devices *devices)
{
    const struct zo_machine *machine = &devices->machine;
    const char *bus_ids[ZO_DEVICES_MAX];

    for (int d = 0; d < machine->device_count; d++) {
        bus_ids[d] = machine->device_ops->info(machine->devices[d])->bus_id;
    }
    zo_numa_read("", bus_ids, machine->device_count, &devices->numa);
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
    for (int i = 0; i < count; i++) {
        const int index = options->indices != NULL ? options->indices[i] : i;

        ZO_TRY(backend->device_ops->open(index, &device_options,
                                         &machine->devices[i]));
        machine->device_count = i + 1;
    }
    read_numa(devices);
    if (are_implied(options, backend, count)) {
        ZO_TRY(zo_devices_check_idle(machine));
    }
    for (int i = 0; i < count; i++) {
        ZO_TRY(backend->kernel_ops->open(machine->devices[i], &kernel_options,
                                         &machine->kernels[i]));
    }
    return count == 1 ? ZO_OK : open_comm(devices, backend);
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
