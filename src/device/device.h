/*
 * The device interface: what a trainer may ask of a host or a GPU.
 *
 * Layer 2: includes src/base only.  Everything above talks to a device
 * through here; only src/device/cuda* and kernels/cuda see CUDA.
 *
 * The model is CUDA's: work is queued on streams, a stream runs its work in
 * order, an event is a point in a stream.  The host device has the same
 * semantics with a thread a stream, so that overlap and races show without a
 * GPU.
 */
#ifndef ZO_SRC_DEVICE_DEVICE_H
#define ZO_SRC_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/pool.h"
#include "src/base/status.h"

ZO_C_BEGIN

struct zo_device; /* opaque; one per GPU, or one virtual host device */
struct zo_stream; /* opaque; work queued on it runs in order */
struct zo_event;  /* opaque; a point in a stream */

enum zo_mem_kind {
    ZO_MEM_DEVICE, /* memory of the device; on cuda the host may not read it */
    ZO_MEM_PINNED, /* page-locked host memory, for asynchronous copies */
    ZO_MEM_KINDS
};

/* Sees memory of which no page is there yet: to say where they shall be. */
typedef void (*zo_place_fn)(void *context, void *memory);

struct zo_device_options {
    struct zo_pool *pool; /* borrowed until close; host: splits its kernels */
    /* Host, for tests: each command waits a random 0..delay_us_max first. */
    uint64_t delay_seed;
    uint32_t delay_us_max;
    /*
     * For tests and benches, to stand in for a slower bus; 0: as fast as it
     * goes.  A copy between the host and the device occupies its stream for
     * at least its bytes at this rate; streams do not wait for each other.
     * Copies inside a device, and on cuda between devices, are not held up.
     */
    uint64_t copy_bytes_per_second;
};

/* Facts that never change after open. */
struct zo_device_info {
    const char *name;        /* borrowed: "host:0", "cuda:3" */
    const char *description; /* borrowed: "NVIDIA H200", "x86-64, 16 cores" */
    uint64_t memory_bytes;   /* total, not free */
    uint32_t align_bytes;    /* every allocation is aligned to this; >= 256 */
    uint64_t peer_mask;      /* bit i: copies to device i without the host */
    const char *bus_id;      /* borrowed: "0000:1b:00.0"; "" on no bus */
    int capability;          /* cuda: 90 is 9.0; else 0 */
    bool has_display;        /* a screen is driven by it */
    /* Device memory that this process took by opening the device, the first
     * time it did; 0: none, or unknown. */
    uint64_t context_bytes;
};

/* What a kind of device asks of the machine, whether or not there is one. */
struct zo_device_platform {
    int driver_version;  /* newest runtime it serves: 12040 is 12.4; 0: none */
    int runtime_version; /* of this program; 0: it needs none */
    const char *targets; /* static; see targets.h */
    const char *refusal; /* static; why count() is 0, if the driver says */
};

/*
 * One table per kind of device.  Rules for who writes one:
 *  - no entry is NULL where count() can be above 0: what a device cannot do
 *    returns ZO_E_NOSUPPORT;
 *  - an entry that fails leaves its out-pointers untouched;
 *  - "queues" means the call may return before the work is done, so buffers
 *    named in it belong to the stream until the stream has passed them;
 *  - queueing, recording and querying allocate nothing;
 *  - one thread issues for all streams of a run; the host device's stream
 *    threads are its own;
 *  - work that fails on a stream is reported, once, by the next sync or query
 *    of that stream or of an event recorded on it after the failure; work
 *    behind a failure is dropped, and a stream that waits for an event
 *    behind it fails likewise.
 */
struct zo_device_ops {
    uint32_t abi; /* ZO_DEVICE_ABI; a mismatch is a bug */
    const char *kind;

    /* Cannot fail, and starts no device. */
    void (*platform)(struct zo_device_platform *platform_out);
    /*
     * Devices that can be opened; 0 is no failure.  host: as many as asked.
     * cuda: the GPUs; for tests where there are too few of them, as many
     * devices on each as ZERO_OFFLOAD_DEVICES_PER_GPU says (2 to 8), which
     * share its memory.
     */
    enum zo_status (*count)(int *count_out);
    enum zo_status (*open)(int index, const struct zo_device_options *options,
                           struct zo_device **device_out);
    void (*close)(struct zo_device *device); /* NULL is allowed */
    const struct zo_device_info *(*info)(const struct zo_device *device);

    /* Bytes of device memory that are free, now, for everybody. */
    enum zo_status (*mem_free_bytes)(struct zo_device *device,
                                     uint64_t *bytes_out);
    /* Caller owns *memory_out and returns it to mem_free of the same device.
     * `name` is for the message of a failure: "weights".  ZO_E_LOCK: there
     * is memory, but the system refuses to lock it. */
    enum zo_status (*mem_alloc)(struct zo_device *device, enum zo_mem_kind kind,
                                const char *name, size_t size_bytes,
                                void **memory_out);
    /* The same of ZO_MEM_PINNED, for a place_fn. */
    enum zo_status (*mem_alloc_placed)(struct zo_device *device,
                                       const char *name, size_t size_bytes,
                                       zo_place_fn place, void *context,
                                       void **memory_out);
    void (*mem_free)(struct zo_device *device, enum zo_mem_kind kind,
                     void *memory, size_t size_bytes); /* NULL is allowed */
    /* Bytes allocated through this device, by kind. */
    uint64_t (*mem_allocated)(const struct zo_device *device,
                              enum zo_mem_kind kind);

    /* `name` is for traces and messages: "compute", "h2d". */
    enum zo_status (*stream_open)(struct zo_device *device, const char *name,
                                  struct zo_stream **stream_out);
    void (*stream_close)(struct zo_stream *stream); /* NULL, or waits first */
    enum zo_status (*stream_sync)(struct zo_stream *stream); /* blocks */

    /* Queues.  Ranges may not overlap.  Either side may be any kind, also of
     * a sibling device.  size_bytes may be 0. */
    enum zo_status (*copy)(struct zo_stream *stream, void *target,
                           const void *source, size_t size_bytes);
    /* Queues: memset. */
    enum zo_status (*fill)(struct zo_stream *stream, void *target, int byte,
                           size_t size_bytes);

    enum zo_status (*event_open)(struct zo_device *device,
                                 struct zo_event **event_out);
    void (*event_close)(struct zo_event *event); /* NULL is allowed */
    /* Queues.  A later record of the same event replaces this one.  Stream
     * and event are of the same device. */
    enum zo_status (*event_record)(struct zo_stream *stream,
                                   struct zo_event *event);
    /* Queues: the stream goes on when the latest record so far has been
     * passed.  An event never recorded is no wait.  Any device's event of
     * the same kind. */
    enum zo_status (*event_wait)(struct zo_stream *stream,
                                 struct zo_event *event);
    /* True in *done_out when the latest record has been passed. */
    enum zo_status (*event_query)(struct zo_event *event, bool *done_out);
    enum zo_status (*event_sync)(struct zo_event *event); /* blocks */

    /* An event that takes the time when it is passed; else as any other.  It
     * is closed only when its records have been passed. */
    enum zo_status (*event_open_timed)(struct zo_device *device,
                                       struct zo_event **event_out);
    /* When the latest record was passed, on the clock of zo_clock_ns().  Of a
     * timed event whose record has been passed: ZO_E_ARG, or ZO_E_DEVICE on
     * cuda, otherwise.  host: exact.  cuda: 1 us between events of a second;
     * against the host's clock the time of a call, some 20 us, which also is
     * how far times may jump once a second. */
    enum zo_status (*event_time_ns)(struct zo_event *event,
                                    int64_t *time_ns_out);
};

#define ZO_DEVICE_ABI 5u

extern const struct zo_device_ops zo_device_host;
extern const struct zo_device_ops zo_device_cuda; /* a stub without CUDA */

ZO_C_END

#endif
