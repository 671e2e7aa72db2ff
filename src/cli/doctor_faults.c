/* The faults of a machine, out of its facts: what, and what cures it. */
#include <inttypes.h>

#include "src/base/text.h"
#include "src/base/uring_probe.h"
#include "src/cli/doctor.h"

#define LOCKED_BYTES_LEAST ((uint64_t)256 << 20) /* buffers of an NVMe ring */
#define BUS_LEAST          6e9 /* bytes a second; PCIe 3.0 x16 gives 12e9 */
#define BF16_LEAST         80  /* capability */
#define GIB_BYTES          16

#define FAULT(doctor, ...) \
    ZO_TRY(zo_note_add(&(doctor)->faults, ZO_NOTE_WARN, __VA_ARGS__))

/* "13.0" of 13000. */
#define MAJOR(version) ((version) / 1000), ((version) % 1000 / 10)

/* ---- the system ------------------------------------------------------- */

static enum zo_status find_limits(struct zo_doctor *doctor)
{
    const struct zo_system *system = &doctor->system;
    char limit[GIB_BYTES], other[GIB_BYTES];

    if (system->group_limit_bytes < system->available_bytes / 2) {
        FAULT(doctor,
              "the control group may use %s of the %s that are available: "
              "raise its limit (MemoryMax, or --memory of the container)",
              zo_text_gib(limit, sizeof(limit), system->group_limit_bytes),
              zo_text_gib(other, sizeof(other), system->available_bytes));
    }
    if (system->quota_cores > 0 &&
        system->quota_cores <= doctor->affinity_cores / 2) {
        FAULT(doctor,
              "the quota is %d of %d cores, which slows AdamW in host memory "
              "down: raise it (CPUQuota, or --cpus of the container)",
              system->quota_cores, doctor->affinity_cores);
    }
    if (!system->is_lock_privileged &&
        system->lock_limit_bytes < LOCKED_BYTES_LEAST) {
        FAULT(doctor,
              "the limit of locked memory is %" PRIu64
              " KiB, too little for buffers registered with io_uring: raise it "
              "(ulimit -l unlimited, LimitMEMLOCK=infinity, or --ulimit "
              "memlock=-1 of the container)",
              system->lock_limit_bytes / 1024);
    }
    if (system->huge_pages == ZO_HUGE_PAGES_NEVER) {
        FAULT(doctor,
              "transparent huge pages are off, so that host memory takes long "
              "to hand out and to lock: echo madvise > "
              "/sys/kernel/mm/transparent_hugepage/enabled, as root");
    }
    return ZO_OK;
}

static enum zo_status find_disk(struct zo_doctor *doctor)
{
    if (doctor->uring_error != 0) {
        FAULT(doctor, "io_uring: %s", zo_uring_probe_cure(doctor->uring_error));
    }
    if (!doctor->is_liburing_built) {
        FAULT(doctor, "this build has no liburing, so that files go through "
                      "pread and pwrite: install it and configure again");
    }
    if (doctor->disk.write_bytes_per_second > 0.0 && !doctor->disk.is_direct) {
        FAULT(doctor,
              "%s does not take O_DIRECT, so that states on it would fill the "
              "page cache: choose a folder on a local disk (ext4, xfs) with "
              "--nvme",
              doctor->folder);
    }
    return ZO_OK;
}

/* ---- GPUs ------------------------------------------------------------- */

static enum zo_status find_driver(struct zo_doctor *doctor)
{
    const struct zo_device_platform *platform = &doctor->platform;
    const int on_bus = doctor->system.gpus_on_bus;
    const int needed = zo_driver_needed(platform->runtime_version);
    const char *release = zo_driver_release(platform->runtime_version);

    release = release != NULL ? release : "a newer one";
    if (platform->runtime_version == 0) {
        if (on_bus > 0) {
            FAULT(doctor,
                  "%d NVIDIA GPU%s, and a build without CUDA: install the CUDA "
                  "toolkit and configure again",
                  on_bus, on_bus == 1 ? "" : "s");
        }
    } else if (platform->driver_version == 0) {
        if (on_bus > 0) {
            FAULT(doctor,
                  "%d NVIDIA GPU%s without a driver that this process sees: "
                  "install NVIDIA's, %s or later (in a container: --gpus all)",
                  on_bus, on_bus == 1 ? "" : "s", release);
        }
    } else if (platform->driver_version < needed) {
        FAULT(doctor,
              "the driver serves CUDA %d.%d, this build runs on CUDA %d.%d and "
              "needs a driver for %d.%d: install %s or later, or build with "
              "the CUDA toolkit %d",
              MAJOR(platform->driver_version), MAJOR(platform->runtime_version),
              MAJOR(needed), release, platform->driver_version / 1000);
    } else if (doctor->gpu_count == 0 && doctor->visible != NULL) {
        FAULT(
            doctor,
            "CUDA_VISIBLE_DEVICES=%s names no GPU: unset it, or name one that "
            "nvidia-smi lists",
            doctor->visible);
    } else if (doctor->gpu_count == 0 && on_bus > 0) {
        FAULT(doctor,
              "the driver lists no GPU although there %s %d: %s; give the "
              "container its devices (--gpus all), or load the driver again",
              on_bus == 1 ? "is" : "are", on_bus,
              platform->refusal[0] != '\0' ? platform->refusal : "no reason");
    }
    return ZO_OK;
}

static enum zo_status find_code(struct zo_doctor *doctor, int index)
{
    const struct zo_doctor_gpu *gpu = &doctor->gpus[index];
    const struct zo_device_platform *platform = &doctor->platform;

    if (gpu->match == ZO_TARGET_NONE) {
        FAULT(doctor,
              "cuda:%d is of architecture %d.%d, and this build has code for "
              "%s: configure it with --with-cuda-arch=%d",
              index, gpu->capability / 10, gpu->capability % 10,
              platform->targets, gpu->capability);
    } else if (gpu->match == ZO_TARGET_PTX &&
               platform->driver_version < platform->runtime_version) {
        FAULT(doctor,
              "cuda:%d would run PTX of CUDA %d.%d, which a driver for %d.%d "
              "cannot compile: install a newer driver, or configure with "
              "--with-cuda-arch=%d",
              index, MAJOR(platform->runtime_version),
              MAJOR(platform->driver_version), gpu->capability);
    }
    if (gpu->capability < BF16_LEAST) {
        FAULT(doctor, "cuda:%d (%d.%d) has no bf16: train with --fp16", index,
              gpu->capability / 10, gpu->capability % 10);
    }
    return ZO_OK;
}

static double slower(const struct zo_copy_rates *rates)
{
    return rates->to_devices < rates->from_devices ? rates->to_devices
                                                   : rates->from_devices;
}

/* A GPU in the wrong slot, or behind a bad cable. */
static enum zo_status find_slow_bus(struct zo_doctor *doctor)
{
    double fastest = 0.0;

    for (int i = 0; i < doctor->gpu_count; i++) {
        const double rate = slower(&doctor->gpus[i].bus);

        fastest = rate > fastest ? rate : fastest;
    }
    for (int i = 0; i < doctor->gpu_count; i++) {
        const double rate = slower(&doctor->gpus[i].bus);

        if (rate > 0.0 && (rate < BUS_LEAST || rate < fastest / 2)) {
            FAULT(doctor,
                  "cuda:%d copies at %.1f GB/s, which slows offload down: look "
                  "at its link with nvidia-smi -q (want x16), and at its slot",
                  i, rate * 1e-9);
        }
    }
    return ZO_OK;
}

static enum zo_status find_peers(struct zo_doctor *doctor)
{
    int pairs = 0, direct = 0;

    for (int i = 0; i < doctor->gpu_count; i++) {
        for (int j = i + 1; j < doctor->gpu_count; j++) {
            pairs++;
            direct += (doctor->gpus[i].peer_mask >> j & 1) != 0;
        }
    }
    if (direct < pairs) {
        FAULT(doctor,
              "%d of %d pairs of GPUs cannot copy to each other, and go "
              "through host memory: want NVLink, or PCIe without ACS and with "
              "the IOMMU in pass-through",
              pairs - direct, pairs);
    }
    return ZO_OK;
}

enum zo_status zo_doctor_find_faults(struct zo_doctor *doctor)
{
    ZO_TRY(find_limits(doctor));
    ZO_TRY(find_disk(doctor));
    ZO_TRY(find_driver(doctor));
    for (int i = 0; i < doctor->gpu_count; i++) {
        if (doctor->gpus[i].is_open) {
            ZO_TRY(find_code(doctor, i));
        }
    }
    ZO_TRY(find_slow_bus(doctor));
    return find_peers(doctor);
}
