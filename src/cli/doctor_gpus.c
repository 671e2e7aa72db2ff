/* The GPUs of doctor: each alone, then the bus with all of them at once. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/products.h"
#include "kernels/kernels.h"
#include "src/cli/doctor.h"

#define COPY_BYTES   ((size_t)256 << 20)
#define PRODUCT_SIDE 8192
#define HAS_BF16     80 /* capability from which on products take bf16 */

static const struct zo_device_ops *const cuda = &zo_device_cuda;

static void describe(struct zo_doctor_gpu *gpu, const char *targets,
                     struct zo_device *device)
{
    const struct zo_device_info *info = cuda->info(device);

    gpu->is_open = true;
    (void)snprintf(gpu->name, sizeof(gpu->name), "%s", info->description);
    (void)snprintf(gpu->bus_id, sizeof(gpu->bus_id), "%s", info->bus_id);
    gpu->memory_bytes = info->memory_bytes;
    gpu->peer_mask = info->peer_mask;
    gpu->capability = info->capability;
    gpu->match = zo_target_match(targets, info->capability);
    gpu->product_type = gpu->capability >= HAS_BF16 ? ZO_BF16 : ZO_F16;
}

static enum zo_status time_products(struct zo_doctor_gpu *gpu,
                                    struct zo_device *device,
                                    struct zo_pool *pool)
{
    const struct zo_kernels_options options = {.pool = pool};
    struct zo_machine machine = {
        .device_ops = cuda,
        .kernel_ops = &zo_kernels_cuda,
        .devices = {device},
        .device_count = 1,
    };
    struct zo_product_rate rate = {0};
    enum zo_status status;

    ZO_TRY(machine.kernel_ops->open(device, &options, &machine.kernels[0]));
    status = zo_bench_square(&machine, gpu->product_type, PRODUCT_SIDE, &rate);
    machine.kernel_ops->close(machine.kernels[0]);
    if (status == ZO_OK) {
        gpu->product_flops_per_second = rate.flops / rate.seconds;
    }
    return status;
}

static enum zo_status look_at(struct zo_doctor_gpu *gpu, const char *targets,
                              struct zo_device *device, struct zo_pool *pool)
{
    describe(gpu, targets, device);
    ZO_TRY(cuda->mem_free_bytes(device, &gpu->free_bytes));
    ZO_TRY(zo_rate_copies(cuda, &device, 1, COPY_BYTES, &gpu->bus));
    return gpu->match == ZO_TARGET_NONE ? ZO_OK
                                        : time_products(gpu, device, pool);
}

static enum zo_status look_at_all(struct zo_doctor *doctor,
                                  struct zo_pool *pool,
                                  struct zo_device **devices)
{
    const struct zo_device_options options = {.pool = pool};
    int opened = 0;

    for (int i = 0; i < doctor->gpu_count; i++) {
        struct zo_device *device = NULL;
        enum zo_status status = cuda->open(i, &options, &device);

        if (status == ZO_OK) {
            devices[opened++] = device;
            status = look_at(&doctor->gpus[i], doctor->platform.targets, device,
                             pool);
        }
        if (status != ZO_OK) {
            ZO_TRY(zo_doctor_note_failure(doctor));
        }
    }
    if (opened > 1 && zo_rate_copies(cuda, devices, opened, COPY_BYTES,
                                     &doctor->bus) != ZO_OK) {
        return zo_doctor_note_failure(doctor);
    }
    return ZO_OK;
}

enum zo_status zo_doctor_gpus(struct zo_doctor *doctor, struct zo_pool *pool)
{
    struct zo_device *devices[ZO_DEVICES_MAX] = {0};
    enum zo_status status;
    int count = 0;

    doctor->visible = getenv("CUDA_VISIBLE_DEVICES");
    cuda->platform(&doctor->platform);
    if (cuda->count(&count) != ZO_OK) {
        return zo_doctor_note_failure(doctor);
    }
    doctor->gpu_count = count < ZO_DEVICES_MAX ? count : ZO_DEVICES_MAX;
    status = look_at_all(doctor, pool, devices);
    for (int i = 0; i < doctor->gpu_count; i++) {
        if (devices[i] != NULL) {
            cuda->close(devices[i]);
        }
    }
    return status;
}
