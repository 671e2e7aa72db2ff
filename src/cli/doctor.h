/*
 * What doctor finds out, and what it makes of it.
 *
 * Layer 8, private to src/cli/doctor*.c.  doctor.c fills a struct zo_doctor
 * from top to bottom; faults, lines and profile are made of it alone, so that
 * a test can ask about any machine.
 */
#ifndef ZO_SRC_CLI_DOCTOR_H
#define ZO_SRC_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config/cli_options.h"
#include "src/base/disk_probe.h"
#include "src/base/notes.h"
#include "src/base/system.h"
#include "src/device/device.h"
#include "src/device/targets.h"
#include "src/train/devices.h"
#include "src/train/rates.h"

ZO_C_BEGIN

/* A rate that was not measured is 0. */
struct zo_doctor_gpu {
    bool is_open; /* else nothing of this is known; a fault says why */
    char name[96], bus_id[16];
    uint64_t memory_bytes, free_bytes; /* free: beside our context */
    uint64_t peer_mask;
    int capability; /* 90 is 9.0 */
    enum zo_target_match match;
    struct zo_copy_rates bus; /* alone */
    enum zo_dtype product_type;
    double product_flops_per_second;
};

struct zo_doctor {
    struct zo_system system;
    int affinity_cores, usable_cores;
    const char *simd; /* static; the one that is used */
    char simd_there[64];
    int uring_error; /* 0: it works */
    bool is_liburing_built;

    const char *folder; /* borrowed */
    bool is_folder_named;
    struct zo_disk_rates disk;
    double memory_bytes_per_second; /* read plus written */
    double product_flops_per_second;

    struct zo_device_platform platform;
    const char *visible; /* CUDA_VISIBLE_DEVICES; borrowed, or NULL */
    int gpu_count;       /* that the driver lists */
    struct zo_doctor_gpu gpus[ZO_DEVICES_MAX];
    struct zo_copy_rates bus; /* of all GPUs at once, where several */

    struct zo_notes faults; /* what does not work, each with its cure */
};

/* What needs no device: processor, memory, io_uring. */
void zo_doctor_look(struct zo_doctor *doctor, const char *root);

/*
 * The rates of memory, processor and disk; then the GPUs and theirs.  What
 * fails becomes a fault.
 *
 *   ZO_E_NOMEM   a fault could not be noted
 *   ZO_E_USAGE   no file can be made in a folder that was named
 */
enum zo_status zo_doctor_time_host(struct zo_doctor *doctor,
                                   const struct zo_devices *host) ZO_MUST_CHECK;
enum zo_status zo_doctor_time_disk(struct zo_doctor *doctor,
                                   const struct zo_devices *host) ZO_MUST_CHECK;
enum zo_status zo_doctor_gpus(struct zo_doctor *doctor,
                              struct zo_pool *pool) ZO_MUST_CHECK;

/* Notes this thread's latest failure as a fault. */
enum zo_status zo_doctor_note_failure(struct zo_doctor *doctor) ZO_MUST_CHECK;

/* Adds the faults that the facts show. */
enum zo_status zo_doctor_find_faults(struct zo_doctor *doctor) ZO_MUST_CHECK;

/* A line a fact; a line a fault. */
void zo_doctor_print(FILE *file, const struct zo_doctor *doctor);

/* The machine profile, one JSON object, to a file or (NULL) an fd. */
enum zo_status
zo_doctor_print_profile(FILE *file, int fd, const char *name,
                        const struct zo_doctor *doctor) ZO_MUST_CHECK;

/*
 * Writes the profile to a path, making its folders, in place of an older one.
 *
 *   ZO_E_IO      it cannot be written
 */
enum zo_status
zo_doctor_write_profile(const char *path,
                        const struct zo_doctor *doctor) ZO_MUST_CHECK;

#define ZO_DOCTOR_PROFILE "zero-offload/machine.json"

/*
 * $XDG_CACHE_HOME/zero-offload/machine.json, or that in ~/.cache.  Owned by
 * the caller, ended with zo_free().
 *
 *   ZO_E_USAGE   the environment names neither
 */
enum zo_status zo_doctor_profile_path(char **path_out) ZO_MUST_CHECK;

ZO_C_END

#endif
