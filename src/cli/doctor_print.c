/* The facts of a machine for people: a line each, then a line a fault. */
#include <inttypes.h>
#include <stdarg.h>

#include "src/base/text.h"
#include "src/cli/doctor.h"

#define GIB_BYTES 16

static void line(FILE *file, const char *name, const char *format, ...)
    ZO_PRINTF(3, 4);

static void line(FILE *file, const char *name, const char *format, ...)
{
    va_list arguments;

    (void)fprintf(file, "%-12s ", name);
    va_start(arguments, format);
    (void)vfprintf(file, format, arguments);
    va_end(arguments);
    (void)fputc('\n', file);
}

static void print_memory(FILE *file, const struct zo_system *system)
{
    char first[GIB_BYTES], second[GIB_BYTES];

    line(file, "memory", "%s, %s available",
         zo_text_gib(first, sizeof(first), system->memory_bytes),
         zo_text_gib(second, sizeof(second), system->available_bytes));
    if (system->group_limit_bytes == ZO_SYSTEM_NO_LIMIT) {
        line(file, "group limit", "none");
    } else {
        line(file, "group limit", "%s, %s used",
             zo_text_gib(first, sizeof(first), system->group_limit_bytes),
             zo_text_gib(second, sizeof(second), system->group_used_bytes));
    }
    if (system->lock_limit_bytes == ZO_SYSTEM_NO_LIMIT) {
        line(file, "lock limit", "none");
    } else {
        line(file, "lock limit", "%" PRIu64 " KiB%s",
             system->lock_limit_bytes / 1024,
             system->is_lock_privileged ? ", which does not bind this user"
                                        : "");
    }
    line(file, "huge pages", "%s", zo_huge_pages_name(system->huge_pages));
}

static void print_host(FILE *file, const struct zo_doctor *doctor)
{
    const struct zo_system *system = &doctor->system;
    char quota[32] = "no quota";

    if (system->quota_cores > 0) {
        (void)snprintf(quota, sizeof(quota), "quota %d", system->quota_cores);
    }
    line(file, "processor", "%d core%s usable of %d (%s), %d NUMA node%s",
         doctor->usable_cores, doctor->usable_cores == 1 ? "" : "s",
         doctor->affinity_cores, quota, system->numa_nodes,
         system->numa_nodes == 1 ? "" : "s");
    line(file, "SIMD", "%s, of %s", doctor->simd, doctor->simd_there);
    print_memory(file, system);
    if (doctor->memory_bytes_per_second > 0.0) {
        line(file, "memory rate", "%.1f GB/s, copying: read plus written",
             doctor->memory_bytes_per_second * 1e-9);
    }
    if (doctor->product_flops_per_second > 0.0) {
        line(file, "products", "%.3f TFLOP/s in fp32, on the processor",
             doctor->product_flops_per_second * 1e-12);
    }
}

static void print_disk(FILE *file, const struct zo_doctor *doctor)
{
    const struct zo_disk_rates *disk = &doctor->disk;
    char bytes[GIB_BYTES];

    line(file, "io_uring", "%s; this build has %s",
         doctor->uring_error == 0 ? "works" : "refused",
         doctor->is_liburing_built ? "liburing" : "no liburing");
    if (disk->write_bytes_per_second > 0.0) {
        line(file, "disk", "%s: %s free, %s O_DIRECT", doctor->folder,
             zo_text_gib(bytes, sizeof(bytes), disk->free_bytes),
             disk->is_direct ? "takes" : "does not take");
        line(file, "disk rate", "writes %.2f GB/s, reads %.2f GB/s",
             disk->write_bytes_per_second * 1e-9,
             disk->read_bytes_per_second * 1e-9);
    }
}

/* ---- GPUs ------------------------------------------------------------- */

static void print_driver(FILE *file, const struct zo_doctor *doctor)
{
    const struct zo_device_platform *platform = &doctor->platform;
    const int runtime = platform->runtime_version;
    const int needed = zo_driver_needed(runtime);
    const int driver = platform->driver_version;
    const char *release = zo_driver_release(runtime);
    const char *installed = doctor->system.gpu_driver;

    if (runtime == 0) {
        line(file, "CUDA", "not in this build");
        return;
    }
    line(file, "runtime", "CUDA %d.%d; needs a driver for %d.%d%s%s",
         runtime / 1000, runtime % 1000 / 10, needed / 1000, needed % 1000 / 10,
         release != NULL ? ", from " : "", release != NULL ? release : "");
    if (driver == 0) {
        line(file, "driver", "%s",
             installed[0] != '\0' ? installed : "there is none");
    } else {
        line(file, "driver", "%s%sfor CUDA %d.%d", installed,
             installed[0] != '\0' ? ", " : "", driver / 1000,
             driver % 1000 / 10);
    }
    line(file, "built for", "%s", platform->targets);
    if (doctor->gpu_count == 0) {
        line(file, "GPUs", "none%s%s", platform->refusal[0] != '\0' ? ": " : "",
             platform->refusal);
    }
}

static void print_peers(FILE *file, const struct zo_doctor *doctor, int index)
{
    const struct zo_doctor_gpu *gpu = &doctor->gpus[index];
    bool has_peer = false;

    (void)fputs(", copies directly to", file);
    for (int i = 0; i < doctor->gpu_count; i++) {
        if (i != index && (gpu->peer_mask >> i & 1) != 0) {
            (void)fprintf(file, " %d", i);
            has_peer = true;
        }
    }
    if (!has_peer) {
        (void)fputs(" none", file);
    }
}

static void print_gpu(FILE *file, const struct zo_doctor *doctor, int index)
{
    const struct zo_doctor_gpu *gpu = &doctor->gpus[index];
    char name[24], total[GIB_BYTES], free_text[GIB_BYTES];

    (void)snprintf(name, sizeof(name), "cuda:%d", index);
    if (!gpu->is_open) {
        line(file, name, "cannot be opened");
        return;
    }
    (void)fprintf(file, "%-12s %s, %d.%d (%s), %s, %s free, PCI %s", name,
                  gpu->name, gpu->capability / 10, gpu->capability % 10,
                  zo_target_match_name(gpu->match),
                  zo_text_gib(total, sizeof(total), gpu->memory_bytes),
                  zo_text_gib(free_text, sizeof(free_text), gpu->free_bytes),
                  gpu->bus_id);
    if (doctor->gpu_count > 1) {
        print_peers(file, doctor, index);
    }
    (void)fputc('\n', file);
    if (gpu->bus.from_devices > 0.0) {
        line(file, "  bus", "to it %.1f GB/s, from it %.1f GB/s",
             gpu->bus.to_devices * 1e-9, gpu->bus.from_devices * 1e-9);
    }
    if (gpu->product_flops_per_second > 0.0) {
        line(file, "  products", "%.1f TFLOP/s in %s",
             gpu->product_flops_per_second * 1e-12,
             zo_dtype_name(gpu->product_type));
    }
}

void zo_doctor_print(FILE *file, const struct zo_doctor *doctor)
{
    print_host(file, doctor);
    print_disk(file, doctor);
    print_driver(file, doctor);
    for (int i = 0; i < doctor->gpu_count; i++) {
        print_gpu(file, doctor, i);
    }
    if (doctor->bus.from_devices > 0.0) {
        line(file, "all GPUs", "to them %.1f GB/s, from them %.1f GB/s",
             doctor->bus.to_devices * 1e-9, doctor->bus.from_devices * 1e-9);
    }
    for (size_t i = 0; i < doctor->faults.count; i++) {
        line(file, "fault", "%s", doctor->faults.items[i].text);
    }
}
