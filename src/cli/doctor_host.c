/* The processor, memory and disk of doctor. */
#include <stdio.h>

#include "bench/products.h"
#include "kernels/host/vector.h"
#include "src/base/cpu.h"
#include "src/base/pool.h"
#include "src/base/uring_probe.h"
#include "src/cli/doctor.h"

#define MEMORY_BYTES_MAX ((uint64_t)512 << 20) /* past every cache */
#define MEMORY_BYTES_MIN ((uint64_t)4 << 20)
#define DISK_BYTES       ((size_t)256 << 20)
#define SIDE_MIN         512 /* of a product */
#define SIDE_MAX         4096
#define PRODUCT_SECONDS  0.02 /* long enough to be no question of start-up */

void zo_doctor_look(struct zo_doctor *doctor, const char *root)
{
    const struct zo_vector_ops *there[3];
    const int count = zo_vector_usable(there);
    int at = 0;

    zo_system_read(root, &doctor->system);
    doctor->affinity_cores = zo_cpu_affinity();
    doctor->usable_cores = zo_cpu_count();
    doctor->simd = zo_vector_best()->name;
    for (int i = 0; i < count; i++) {
        at += snprintf(doctor->simd_there + at,
                       sizeof(doctor->simd_there) - (size_t)at, "%s%s",
                       i > 0 ? ", " : "", there[i]->name);
    }
    doctor->uring_error = zo_uring_probe_run(NULL);
#ifdef HAVE_LIBURING
    doctor->is_liburing_built = true;
#endif
}

/* A size that this machine has room for, twice. */
static size_t memory_bytes(const struct zo_system *system)
{
    const uint64_t room = (system->group_limit_bytes < system->available_bytes
                               ? system->group_limit_bytes
                               : system->available_bytes) /
                          8;

    return (size_t)(room > MEMORY_BYTES_MAX   ? MEMORY_BYTES_MAX
                    : room < MEMORY_BYTES_MIN ? MEMORY_BYTES_MIN
                                              : room);
}

/* Larger and larger products, until one takes long enough. */
static enum zo_status time_products(struct zo_doctor *doctor,
                                    const struct zo_machine *machine)
{
    for (int64_t side = SIDE_MIN; side <= SIDE_MAX; side *= 2) {
        struct zo_product_rate rate = {0};

        ZO_TRY(zo_bench_square(machine, ZO_F32, side, &rate));
        if (rate.flops / rate.seconds > doctor->product_flops_per_second) {
            doctor->product_flops_per_second = rate.flops / rate.seconds;
        }
        if (rate.seconds > PRODUCT_SECONDS) {
            break;
        }
    }
    return ZO_OK;
}

enum zo_status zo_doctor_time_host(struct zo_doctor *doctor,
                                   const struct zo_devices *host)
{
    if (zo_rate_memory(host->pool, memory_bytes(&doctor->system),
                       &doctor->memory_bytes_per_second) != ZO_OK) {
        ZO_TRY(zo_doctor_note_failure(doctor));
    }
    if (time_products(doctor, &host->machine) != ZO_OK) {
        ZO_TRY(zo_doctor_note_failure(doctor));
    }
    return ZO_OK;
}

enum zo_status zo_doctor_time_disk(struct zo_doctor *doctor,
                                   const struct zo_devices *host)
{
    const enum zo_status status = zo_disk_probe_run(doctor->folder, host->pool,
                                                    DISK_BYTES, &doctor->disk);

    if (status == ZO_OK || (status == ZO_E_USAGE && doctor->is_folder_named)) {
        return status;
    }
    return zo_doctor_note_failure(doctor);
}
