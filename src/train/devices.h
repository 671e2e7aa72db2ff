/*
 * The machine of a run: devices, their kernels, collectives and the pool.
 *
 * Row 7.  Life cycle: open, run, close.
 */
#ifndef ZO_SRC_TRAIN_DEVICES_H
#define ZO_SRC_TRAIN_DEVICES_H

#include "config/cli_options.h"
#include "offload/schedule.h"
#include "src/base/numa.h"
#include "src/base/notes.h"

ZO_C_BEGIN

struct zo_devices_options {
    enum zo_backend backend; /* auto: cuda where there is a GPU, else host */
    const int *indices;      /* which, or NULL: the first `count` */
    int count;               /* 0: all GPUs; on the host 1 */
    int threads;             /* 0: one a core this process may use */
    uint64_t delay_seed;     /* host, for tests: random delays */
    uint32_t delay_us_max;
    uint64_t copy_bytes_per_second; /* as in zo_device_options */
};

struct zo_devices {
    struct zo_pool *pool;      /* owned */
    struct zo_machine machine; /* devices, kernels and comm: owned */
    struct zo_numa numa;       /* of the devices and their host memory */
    char carrier[512]; /* why it is not the fastest that carries; or "" */
    int threads;
    uint64_t copy_bytes_per_second; /* that copies are held up to; 0: not */
};

/* Threads that update on the host: all of the pool's but one, which issues. */
int zo_devices_cpu_workers(const struct zo_devices *devices);

/*
 *   ZO_E_USAGE       a device is named twice or does not exist; or somebody
 *                    else uses one of several GPUs that nobody named
 *   ZO_E_NOSUPPORT   the backend is not in this build, or has no device; or
 *                    several GPUs that do not reach each other's memory, in a
 *                    build without NCCL
 *   ZO_E_DEVICE      a device cannot be opened
 *   ZO_E_COMM        devices cannot reach each other, or with wrong bytes
 */
enum zo_status zo_devices_open(const struct zo_devices_options *options,
                               struct zo_devices *devices_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_devices_close(struct zo_devices *devices);

/* Device memory of the collectives, in no arena; 0 with one device. */
uint64_t zo_devices_comm_bytes(const struct zo_machine *machine, int device);

/*
 * Looks for devices on which others hold more than 1 GiB.  For devices just
 * opened, that hold nothing of ours but their context.
 *
 *   ZO_E_USAGE   there is one; the text names all of them
 */
enum zo_status
zo_devices_check_idle(const struct zo_machine *machine) ZO_MUST_CHECK;

/* How many devices options name, without opening them: for the config. */
enum zo_status zo_devices_count(const struct zo_devices_options *options,
                                int *count_out) ZO_MUST_CHECK;

ZO_C_END

#endif
