/*
 * The schedule: a training step as data.
 *
 * Row 5: includes src/base, src/device, kernels and src/comm.
 *
 * A program holds buffers and schedules.  A schedule is a list of operations;
 * each names the engine that runs it, the bytes that it reads and writes, and
 * its cost.  Running the list serially is its meaning: what may overlap is
 * derived from the accesses (order.h), the layout of storage from the
 * lifetimes (layout.h), the plan from the layout (plan.h).
 *
 * Life cycle: open; add buffers, schedules and operations; zo_layout(); then
 * the program is read only, and any number of readers may use it.
 */
#ifndef ZO_OFFLOAD_SCHEDULE_H
#define ZO_OFFLOAD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/status.h"
#include "src/comm/comm.h"
#include "src/device/device.h"

ZO_C_BEGIN

#define ZO_DEVICES_MAX 64
#define ZO_ALIGN_BYTES 256 /* of every buffer */

/* The first four are streams, one of each a device, and run in list order. */
enum zo_engine {
    ZO_ENGINE_COMPUTE,
    ZO_ENGINE_H2D,
    ZO_ENGINE_D2H,
    ZO_ENGINE_COLLECTIVE, /* an operation has a part on every device */
    ZO_ENGINE_CPU,        /* any ready operation, lowest priority first */
    ZO_ENGINE_NVME,       /* likewise; pairs of accesses, target and source:
                             one on NVMe, the other in page-locked memory;
                             of an update, then the step record: nothing
                             moves for one that is not due */
    ZO_ENGINES
};

enum zo_tier {
    ZO_TIER_GPU,
    ZO_TIER_CPU,      /* page-locked: copies to and from it are asynchronous */
    ZO_TIER_PAGEABLE, /* host memory that only the CPU engine touches */
    ZO_TIER_NVME,
    ZO_TIER_COPY, /* host memory for a copy of the states, which a run may
                     have or not: in no plan, and opened by itself */
    ZO_TIERS
};

/* What a buffer is for: the lines of the plan. */
#define ZO_PURPOSE_LIST(X)                    \
    X(WEIGHTS, "weights")                     \
    X(MASTER, "master weights")               \
    X(EXP_AVG, "first moments")               \
    X(EXP_AVG_SQ, "second moments")           \
    X(WEIGHT_RING, "weights in the ring")     \
    X(NVME_RING, "pieces from and to NVMe")   \
    X(GRADIENT, "gradients")                  \
    X(GRADIENT_RING, "gradients in the ring") \
    X(GRADIENT_SUM, "gradient sums (fp32)")   \
    X(BOUNDARY, "activations between units")  \
    X(ACTIVATION, "activations inside units") \
    X(LOGITS, "logits of one chunk")          \
    X(CACHE, "key/value cache")               \
    X(COMMUNICATION, "communication buffers") \
    X(WORKSPACE, "kernel workspaces")         \
    X(BATCH, "token ids and tables")          \
    X(CONTROL, "step records and results")

enum zo_purpose {
#define ZO_PURPOSE_ENUM(name, text) ZO_PURPOSE_##name,
    ZO_PURPOSE_LIST(ZO_PURPOSE_ENUM)
#undef ZO_PURPOSE_ENUM
        ZO_PURPOSES
};

/* "gradient sums (fp32)".  Static storage. */
const char *zo_purpose_text(enum zo_purpose purpose);
const char *zo_engine_text(enum zo_engine engine); /* "compute", "h2d", ... */
/* For people, short for what a plan calls them: "computation", "to device"; at
 * most 11 bytes. */
const char *zo_engine_words(enum zo_engine engine);
const char *zo_tier_text(enum zo_tier tier); /* "GPU", "host", ... */

/* An index into a program's buffers. */
typedef uint32_t zo_buffer_id;
#define ZO_NO_BUFFER UINT32_MAX

struct zo_buffer {
    const char *name; /* static storage */
    enum zo_purpose purpose;
    enum zo_tier tier;
    int device;   /* GPU tier: whose memory; else 0 */
    int unit;     /* -1: none */
    int schedule; /* -1: persistent; else the only schedule that uses it */
    uint64_t bytes;
    /* Two copies, one a slot of the step records (see zo_executor_start). */
    bool has_slots;
    /* Set by zo_layout(). */
    uint64_t offset;             /* in the arena of (tier, device) */
    uint64_t slot_stride_bytes;  /* 0 without slots */
    int64_t first_use, last_use; /* operation indices; transient only */
};

enum zo_access_mode {
    ZO_READ = 1,
    ZO_WRITE = 2, /* without reading what was there */
    ZO_READ_WRITE = 3,
};

/* Bytes [offset, offset + bytes) of a buffer. */
struct zo_access {
    zo_buffer_id buffer;
    enum zo_access_mode mode;
    uint64_t offset, bytes;
};

/* Of one operation: a reduction has five a device. */
#define ZO_OP_ACCESSES_MAX (5 * ZO_DEVICES_MAX)

struct zo_op;

/* What runs operations: the tables and what they opened. */
struct zo_machine {
    const struct zo_device_ops *device_ops;
    const struct zo_kernel_ops *kernel_ops;
    const struct zo_comm_ops *comm_ops; /* NULL with one device */
    struct zo_comm *comm;               /* NULL with one device */
    int device_count;
    struct zo_device *devices[ZO_DEVICES_MAX];  /* borrowed */
    struct zo_kernels *kernels[ZO_DEVICES_MAX]; /* borrowed */
};

/* One run of an operation. */
struct zo_op_call {
    const struct zo_op *op;
    const struct zo_machine *machine;
    /* Address of each access, in the order they were declared: the only way
     * to memory that an operation has. */
    void *const *at;
    /* The stream to queue on; of a collective, one a device; else NULL. */
    struct zo_stream *const *streams;
    int part; /* CPU: 0..parts - 1; several run at once */
    /* Copies add the bytes that they move: fewer than the longest batch's. */
    uint64_t *moved_bytes;
};

/*
 * Queues the operation's work on call->streams, or, on the CPU engine, does
 * it.  Runs in the issuing thread, or in a CPU worker.
 */
typedef enum zo_status (*zo_op_fn)(const struct zo_op_call *call);

struct zo_op {
    const char *name; /* static storage: "attention backward" */
    zo_op_fn run;
    const void *context; /* borrowed by the program; shapes and the like */
    int64_t args[4];     /* for run: whatever it needs beyond context */
    enum zo_engine engine;
    int device;   /* of a stream engine but the collective; else 0 */
    int unit;     /* -1: none */
    int micro;    /* micro batch of the step; -1: none */
    int priority; /* CPU and NVMe: lower goes first */
    int parts;    /* CPU: pieces that workers share; 0 is 1 */
    /* CPU: parts, and the bytes of each large access, are the devices' in turn,
     * in equal shares: each works best near its device. */
    bool is_shared;
    double flops; /* of the longest batch */
    /* Likewise of attention, whose rate is another. */
    double attention_flops;
    /* Set by zo_schedule_add(). */
    uint32_t access_first, access_count;
};

/* One list. */
struct zo_schedule {
    const char *name;  /* static storage: "step", "evaluation" */
    struct zo_op *ops; /* owned by the program */
    size_t op_count, op_capacity;
    struct zo_access *accesses; /* owned by the program */
    size_t access_count, access_capacity;
    bool joins; /* it runs beside another: see zo_executor_join() */
};

#define ZO_SCHEDULES_MAX 8

/* During an operation of a list; bytes is 0 when nothing is transient. */
struct zo_moment {
    uint64_t bytes;
    int schedule;
    size_t op;
};

struct zo_program {
    int device_count;
    struct zo_buffer *buffers; /* owned */
    size_t buffer_count, buffer_capacity;
    struct zo_schedule schedules[ZO_SCHEDULES_MAX];
    int schedule_count;
    /* Set by zo_layout(): bytes of each arena; [tier][device], device 0 of
     * the CPU and NVMe tiers. */
    uint64_t arena_bytes[ZO_TIERS][ZO_DEVICES_MAX];
    /* Likewise: when most transient bytes are alive, and how many. */
    struct zo_moment fullest[ZO_TIERS][ZO_DEVICES_MAX];
    bool is_laid_out;
};

/* An empty program for 1..ZO_DEVICES_MAX devices. */
void zo_program_init(struct zo_program *program, int device_count);
/* Frees what the program owns.  NULL is allowed. */
void zo_program_fini(struct zo_program *program);

/*
 * Adds a buffer of the fields up to has_slots; a transient one (schedule >= 0)
 * shares its bytes with others of other lifetimes.
 *
 *   ZO_E_NOMEM   no memory for the record
 */
enum zo_status zo_program_buffer(struct zo_program *program,
                                 const struct zo_buffer *buffer,
                                 zo_buffer_id *id_out) ZO_MUST_CHECK;

/* Starts an empty schedule; its index is its identity. */
int zo_program_schedule(struct zo_program *program, const char *name);

/*
 * Appends an operation to a schedule, with its accesses.  Every range must
 * lie inside its buffer, buffers must be persistent or the schedule's own,
 * and on the engine's side of the bus: a bug otherwise.
 *
 *   ZO_E_NOMEM   no memory for the record
 */
enum zo_status zo_schedule_add(struct zo_program *program, int schedule,
                               const struct zo_op *op,
                               const struct zo_access *accesses,
                               size_t access_count) ZO_MUST_CHECK;

/* Shorthands: a whole buffer. */
static inline struct zo_access zo_whole(const struct zo_program *program,
                                        zo_buffer_id id,
                                        enum zo_access_mode mode)
{
    return (struct zo_access){id, mode, 0, program->buffers[id].bytes};
}

/* In-order engines have one lane a device, or one for all (collective). */
static inline bool zo_engine_is_stream(enum zo_engine engine)
{
    return engine <= ZO_ENGINE_COLLECTIVE;
}

ZO_C_END

#endif
