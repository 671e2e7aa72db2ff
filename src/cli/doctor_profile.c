/*
 * The machine profile: what planning needs to know of a machine, as JSON.
 * It holds no names of hosts, users or folders, so that it can be shared.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/folders.h"
#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/cli/doctor.h"
#include "src/train/profile_file.h"

#define FORMAT       1
#define BUFFER_BYTES 16384

/* What was not measured, or is not limited, is null. */
static void put_rate(struct zo_jsonl *json, const char *key, double rate)
{
    if (rate > 0.0) {
        zo_jsonl_real(json, key, rate);
    } else {
        zo_jsonl_null(json, key);
    }
}

static void put_limit(struct zo_jsonl *json, const char *key, uint64_t bytes)
{
    if (bytes == ZO_SYSTEM_NO_LIMIT) {
        zo_jsonl_null(json, key);
    } else {
        zo_jsonl_uint(json, key, bytes);
    }
}

static void put_host(struct zo_jsonl *json, const struct zo_doctor *doctor)
{
    const struct zo_system *system = &doctor->system;

    zo_jsonl_object_begin(json, "host");
    zo_jsonl_int(json, "cores", doctor->usable_cores);
    zo_jsonl_int(json, "cores_affinity", doctor->affinity_cores);
    zo_jsonl_int(json, "cores_quota", system->quota_cores);
    zo_jsonl_text(json, "simd", doctor->simd);
    zo_jsonl_int(json, "numa_nodes", system->numa_nodes);
    zo_jsonl_uint(json, "memory_bytes", system->memory_bytes);
    zo_jsonl_uint(json, "available_bytes", system->available_bytes);
    put_limit(json, "group_limit_bytes", system->group_limit_bytes);
    put_limit(json, "lock_limit_bytes",
              system->is_lock_privileged ? ZO_SYSTEM_NO_LIMIT
                                         : system->lock_limit_bytes);
    zo_jsonl_text(json, "huge_pages", zo_huge_pages_name(system->huge_pages));
    put_rate(json, "copy_bytes_per_second", doctor->memory_bytes_per_second);
    put_rate(json, "product_flops_per_second",
             doctor->product_flops_per_second);
    zo_jsonl_object_end(json);
}

static void put_disk(struct zo_jsonl *json, const struct zo_doctor *doctor)
{
    const struct zo_disk_rates *disk = &doctor->disk;

    zo_jsonl_object_begin(json, "disk");
    zo_jsonl_bool(json, "io_uring", doctor->uring_error == 0);
    zo_jsonl_bool(json, "liburing", doctor->is_liburing_built);
    zo_jsonl_bool(json, "direct", disk->is_direct);
    zo_jsonl_uint(json, "free_bytes", disk->free_bytes);
    put_rate(json, "write_bytes_per_second", disk->write_bytes_per_second);
    put_rate(json, "read_bytes_per_second", disk->read_bytes_per_second);
    zo_jsonl_object_end(json);
}

static void put_gpu(struct zo_jsonl *json, const struct zo_doctor *doctor,
                    int index)
{
    const struct zo_doctor_gpu *gpu = &doctor->gpus[index];

    zo_jsonl_object_begin(json, NULL);
    zo_jsonl_int(json, "index", index);
    zo_jsonl_bool(json, "opens", gpu->is_open);
    if (gpu->is_open) {
        zo_jsonl_text(json, "name", gpu->name);
        zo_jsonl_int(json, "capability", gpu->capability);
        zo_jsonl_text(json, "code", zo_target_match_name(gpu->match));
        zo_jsonl_uint(json, "memory_bytes", gpu->memory_bytes);
        zo_jsonl_uint(json, "free_bytes", gpu->free_bytes);
        zo_jsonl_array_begin(json, "peers");
        for (int i = 0; i < doctor->gpu_count; i++) {
            if (i != index && (gpu->peer_mask >> i & 1) != 0) {
                zo_jsonl_int(json, NULL, i);
            }
        }
        zo_jsonl_array_end(json);
        put_rate(json, "h2d_bytes_per_second", gpu->bus.to_devices);
        put_rate(json, "d2h_bytes_per_second", gpu->bus.from_devices);
        zo_jsonl_text(json, "product_dtype", zo_dtype_name(gpu->product_type));
        put_rate(json, "product_flops_per_second",
                 gpu->product_flops_per_second);
    }
    zo_jsonl_object_end(json);
}

static enum zo_status print_profile(FILE *file, int fd, const char *name,
                                    const struct zo_doctor *doctor,
                                    const char *older)
{
    const struct zo_device_platform *platform = &doctor->platform;
    char buffer[BUFFER_BYTES], date[ZO_CLOCK_ISO_BYTES];
    struct zo_jsonl json;

    if (file != NULL) {
        zo_jsonl_init_file(&json, file, name, buffer, sizeof(buffer));
    } else {
        zo_jsonl_init_fd(&json, fd, name, buffer, sizeof(buffer));
    }
    zo_jsonl_begin(&json);
    zo_jsonl_int(&json, "format", FORMAT);
    zo_jsonl_text(&json, "kind", "machine");
    zo_jsonl_text(&json, "version", PACKAGE_VERSION);
    zo_jsonl_text(&json, "date", zo_clock_iso(date, zo_clock_wall_ms()));
    put_host(&json, doctor);
    put_disk(&json, doctor);
    zo_jsonl_object_begin(&json, "cuda");
    zo_jsonl_int(&json, "runtime", platform->runtime_version);
    zo_jsonl_int(&json, "driver", platform->driver_version);
    zo_jsonl_int(&json, "driver_needed",
                 zo_driver_needed(platform->runtime_version));
    zo_jsonl_text(&json, "driver_release", doctor->system.gpu_driver);
    zo_jsonl_text(&json, "targets", platform->targets);
    zo_jsonl_object_end(&json);
    zo_jsonl_array_begin(&json, "gpus");
    for (int i = 0; i < doctor->gpu_count; i++) {
        put_gpu(&json, doctor, i);
    }
    zo_jsonl_array_end(&json);
    put_rate(&json, "h2d_bytes_per_second_all", doctor->bus.to_devices);
    put_rate(&json, "d2h_bytes_per_second_all", doctor->bus.from_devices);
    if (older != NULL) { /* plan has measured them */
        ZO_TRY(zo_profile_file_keep_rates(older, &json));
    }
    return zo_jsonl_end(&json);
}

enum zo_status zo_doctor_print_profile(FILE *file, int fd, const char *name,
                                       const struct zo_doctor *doctor)
{
    return print_profile(file, fd, name, doctor, NULL);
}

enum zo_status zo_doctor_write_profile(const char *path,
                                       const struct zo_doctor *doctor)
{
    static const char ending[] = ".new";
    const size_t bytes = strlen(path) + sizeof(ending);
    struct zo_disk_file file = {.fd = -1};
    enum zo_status status;
    char *fresh = NULL;

    ZO_TRY(zo_folders_make_parents(NULL, path, ZO_E_IO));
    ZO_TRY(zo_alloc(bytes, 1, "a path", &fresh));
    (void)snprintf(fresh, bytes, "%s%s", path, ending);
    ZO_TRY_GOTO(free_fresh, zo_disk_create(fresh, &file));
    ZO_TRY_GOTO(close_file, print_profile(NULL, file.fd, path, doctor, path));
    ZO_TRY_GOTO(close_file, zo_disk_finish(&file));
    ZO_TRY_GOTO(close_file, zo_disk_rename(fresh, path));

close_file:
    zo_disk_close(&file);
    if (status != ZO_OK) {
        (void)remove(fresh);
    }
free_fresh:
    zo_free(fresh);
    return status;
}

enum zo_status zo_doctor_profile_path(char **path_out)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const bool is_set = cache != NULL && cache[0] == '/';
    const char *folder = is_set ? cache : home;
    char *path = NULL;
    size_t bytes;

    if (folder == NULL || folder[0] != '/') {
        return ZO_FAIL(ZO_E_USAGE, "the profile was not written: neither "
                                   "XDG_CACHE_HOME nor HOME names a folder; "
                                   "name a file with --write");
    }
    bytes = strlen(folder) + sizeof("/.cache/" ZO_DOCTOR_PROFILE);
    ZO_TRY(zo_alloc(bytes, 1, "a path", &path));
    (void)snprintf(path, bytes, "%s%s/%s", folder, is_set ? "" : "/.cache",
                   ZO_DOCTOR_PROFILE);
    *path_out = path;
    return ZO_OK;
}
