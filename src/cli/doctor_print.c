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
        line(file, "group limit",
             "none: no container or service holds it down");
    } else {
        line(file, "group limit", "%s for this container or service, %s used",
             zo_text_gib(first, sizeof(first), system->group_limit_bytes),
             zo_text_gib(second, sizeof(second), system->group_used_bytes));
    }
    if (system->lock_limit_bytes == ZO_SYSTEM_NO_LIMIT) {
        line(file, "lock limit", "none: all memory may be page-locked");
    } else {
        line(file, "lock limit", "%" PRIu64 " KiB may be page-locked%s",
             system->lock_limit_bytes / 1024,
             system->is_lock_privileged ? "; this user is not bound by it"
                                        : " (ulimit -l)");
    }
    line(file, "huge pages", "%s%s", zo_huge_pages_name(system->huge_pages),
         system->huge_pages == ZO_HUGE_PAGES_MADVISE
             ? ": where a program asks, as this one does"
             : "");
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
    line(file, "SIMD", "AdamW runs with %s; there are %s", doctor->simd,
         doctor->simd_there);
    print_memory(file, system);
    if (doctor->memory_bytes_per_second > 0.0) {
        line(file, "memory rate",
             "%.1f GB/s read and written together, copying",
             doctor->memory_bytes_per_second * 1e-9);
    }
    if (doctor->product_flops_per_second > 0.0) {
        line(file, "products",
             "%.3f TFLOP/s of matrix products, in fp32 on the processor",
             doctor->product_flops_per_second * 1e-12);
    }
}

static void print_disk(FILE *file, const struct zo_doctor *doctor)
{
    const struct zo_disk_rates *disk = &doctor->disk;
    char bytes[GIB_BYTES];

    line(file, "io_uring", "%s; %s",
         doctor->uring_error == 0 ? "the system allows it"
                                  : "the system refuses it",
         doctor->is_liburing_built ? "this build can use it (liburing)"
                                   : "this build cannot use it (no liburing)");
    if (disk->write_bytes_per_second > 0.0) {
        line(file, "disk", "%s: %s free, %s past the page cache (O_DIRECT)",
             doctor->is_folder_named ? doctor->folder : "the current folder",
             zo_text_gib(bytes, sizeof(bytes), disk->free_bytes),
             disk->is_direct ? "transfers go" : "no transfers");
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
        line(file, "CUDA", "not in this build, which uses no GPU");
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
    line(file, "built for", "GPU architectures %s", platform->targets);
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

/* GPUs that can be opened and have code in this build. */
static int count_usable(const struct zo_doctor *doctor)
{
    int count = 0;

    for (int i = 0; i < doctor->gpu_count; i++) {
        count +=
            doctor->gpus[i].is_open && doctor->gpus[i].match != ZO_TARGET_NONE
                ? 1
                : 0;
    }
    return count;
}

/* What a reader wants to know who skips the rest. */
static void print_verdict(FILE *file, const struct zo_doctor *doctor)
{
    const int usable = count_usable(doctor);
    const size_t faults = doctor->faults.count;
    char where[48] = "the processor";

    if (usable > 0) {
        (void)snprintf(where, sizeof(where), "%d GPU%s", usable,
                       usable == 1 ? "" : "s");
    }
    if (faults == 0) {
        line(file, "verdict", "no faults; training runs on %s", where);
    } else {
        line(file, "verdict",
             "%zu fault%s, with what cures %s; as it is, training runs on %s",
             faults, faults == 1 ? "" : "s", faults == 1 ? "it" : "them",
             where);
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
    print_verdict(file, doctor);
}
