/*
 * The builder: emits the lists of a training run.
 *
 * Row 5: knows units, devices and micro batches, not what a unit computes;
 * the model fills in the operations of a unit through struct zo_model_ops.
 *
 * The list of step k, for passes of pass_micros micro batches:
 *
 *   for each pass
 *     upload of the batch
 *     for each unit in forward order, each micro batch: forward
 *     the last unit, each micro batch: forward and backward
 *     for each unit in backward order, each micro batch: backward
 *       behind the last micro batch of the step: cast, exchange, norm; to the
 *       host, if the optimizer is there; AdamW(k, unit)
 *   results to the host; decide(k)
 *
 * so micro batches pass through a unit before the next unit is touched
 * (layer-major accumulation).  Weights that live on the host pass through a
 * ring of device buffers, each fetched as early as the ring allows.
 *
 * When updates wait for decide(k) (clipping, loss scale, overflow check),
 * AdamW(k, unit) stands in list k + 1 instead, before forward's first use of
 * the unit, all gradients wait until then, and a tail list ends the run.
 * Otherwise an update reads nothing but its own gradient, so it may stand
 * right behind it: a resident gradient then lives no longer than that, and
 * those on the host may share a ring.
 *
 * A list of its own copies the states behind step k, for a save.  It joins
 * the list in which AdamW(k, unit) stands: k, or k + 1 if updates wait.
 */
#ifndef ZO_OFFLOAD_BUILDER_H
#define ZO_OFFLOAD_BUILDER_H

#include "kernels/host_passes.h"
#include "offload/nvme.h"
#include "offload/record.h"
#include "offload/schedule.h"
#include "offload/unit.h"

ZO_C_BEGIN

/* What of the inside of a unit forward keeps for backward. */
enum zo_keep {
    ZO_KEEP_ALL,    /* everything */
    ZO_KEEP_COSTLY, /* norms and activation functions are recomputed */
    ZO_KEEP_INPUT,  /* the unit's input: all of its inside is recomputed */
};

/*
 * Where a unit's states live between steps: GPU, CPU or NVMe tier.  A weight
 * is half of its master (bf16), so an optimizer on the GPU keeps the weights
 * there; with the optimizer on the host, weights at home on the GPU are a
 * second copy, renewed by every update.  States on NVMe are updated on the
 * host, piece by piece through a ring: read, AdamW, written.  With the
 * optimizer there and the weights elsewhere, these (bf16: the master's half;
 * fp16: a copy) are in host memory.  Weights that forward reads by rows may
 * not be on NVMe.
 */
struct zo_unit_homes {
    enum zo_tier weights;
    enum zo_tier optimizer; /* master, exp_avg, exp_avg_sq */
};

/* How a step is laid out over the tiers: speed and memory, never a bit. */
struct zo_placement {
    const struct zo_unit_homes *homes; /* a unit, borrowed; NULL: all GPU */
    int pass_micros;                   /* micro batches a pass: 1..micros */
    enum zo_keep keep;                 /* of the inside of units */
    int weight_ring;        /* device buffers of weights that stream: >= 2 */
    int gradient_ring;      /* device buffers of gradients on their way: >= 1 */
    int host_gradient_ring; /* likewise on the host; 0: one buffer a unit */
    int own_gradients;      /* with such a ring: so many of the first units
                               on the host have a buffer of their own */
    int host_boundaries;    /* outputs of so many first units wait there */
    bool weight_copies;     /* fp16: the host keeps 16-bit weights too */
    int nvme_ring;          /* pieces on their way from and to NVMe: >= 3;
                               0: ZO_NVME_RING */
    int nvme_piece_tiles;   /* ZO_TILE_ELEMS of a piece; 0:
                               ZO_NVME_PIECE_TILES */
    bool nvme_rings_gradients; /* those of units on NVMe pass through the
                                  host's ring; false: each has its own, so
                                  that the disk is busy all the time */
    bool pageable_weights, pageable_optimizer; /* pin_memory false */
    bool waits_to_fetch;     /* weights are fetched when needed, not before */
    int64_t reuse_max_elems; /* weights whose uses lie further apart are
                                fetched again; 0: however far */
};

/* Of a unit that forward reads by rows (an embedding): those that a micro
 * batch uses are gathered on the host, and they alone cross the bus. */
struct zo_unit_rows {
    uint64_t row_bytes, rows_max;
    /* CPU engine: record, rows (written), weights or master, the micro
     * batch's tables on the host.  Context: the model.  args: the type of what
     * is read, the device whose micro batch it is. */
    zo_op_fn gather;
};

/* Where the operations of one (unit, device, micro batch) go. */
struct zo_emit {
    struct zo_program *program;
    int schedule;
    int64_t tokens_max, labels_max; /* of a micro batch */
    int unit, device, micro;
    bool trains;   /* false: evaluation or decoding */
    bool is_first; /* gradient sums are set, not added to */
    enum zo_keep keep;
    zo_buffer_id weights;       /* (elems) type; with has_rows, only those */
    bool has_rows;              /* rows that the micro batch uses */
    zo_buffer_id grad_sum;      /* (elems) fp32 */
    zo_buffer_id batch;         /* the micro batch's tables, on the device */
    zo_buffer_id input, output; /* (T, C) type; of the boundaries */
    zo_buffer_id d_input, d_output; /* likewise */
    zo_buffer_id losses; /* (L) fp32 of this micro batch, on the device */
    zo_buffer_id logits; /* decoding: (L, V) fp32, on the device */
    zo_buffer_id cache;  /* decoding: of this unit */
    zo_buffer_id record, control; /* on the host */
};

/* What a model does; forward, turn and backward append operations with
 * zo_emit_op(). */
struct zo_model_ops {
    /* Adds what the model keeps on a device between lists: tables,
     * workspaces. */
    enum zo_status (*prepare)(void *model, struct zo_program *program,
                              int device);
    enum zo_status (*forward)(void *model, const struct zo_emit *emit);
    /* May be NULL.  True: forward reads the unit by rows. */
    bool (*rows)(void *model, int unit, struct zo_unit_rows *rows_out);
    /* The last unit: forward, loss and backward in one. */
    enum zo_status (*turn)(void *model, const struct zo_emit *emit);
    enum zo_status (*backward)(void *model, const struct zo_emit *emit);
};

/*
 * decide(k): from what the step measured to what comes next.  Runs on a CPU
 * worker; the trainer's scaler and schedules may be touched here alone.
 */
struct zo_measured {
    const struct zo_step_record *record;
    const struct zo_norm_result *norms; /* (devices, units) */
    const float *losses;                /* see zo_measured_losses() */
    /* (devices, units): of updates on the device, and on the host. */
    const uint32_t *bad, *host_bad;
    const struct zo_build_options *options;
};

/* The losses of one micro batch: as many as its counts have labels. */
const float *zo_measured_losses(const struct zo_measured *measured, int micro,
                                int device);

typedef enum zo_status (*zo_decide_fn)(void *context,
                                       const struct zo_measured *measured,
                                       struct zo_control *control,
                                       struct zo_step_result *result_out);

struct zo_build_options {
    const struct zo_unit *units; /* borrowed; forward order */
    int unit_count;
    int device_count;
    enum zo_dtype type;      /* the model's */
    enum zo_dtype comm_type; /* communication_data_type */
    int micros;              /* gradient accumulation steps */
    /* ZeRO, of several devices: 0 all have everything; from 1 on each has the
     * optimizer's states of its shard of a unit alone, from 2 on also its
     * gradient, at 3 its weights. */
    int stage;
    bool decides; /* updates wait for decide: clipping, scale or check */
    bool keeps_gradients; /* for tests: each stays until the next one */
    enum zo_simd simd;    /* of updates on the host */
    struct zo_placement placement;
    enum zo_dtype moment_type; /* ZO_F32, or ZO_BF16 as an opt-in */
    bool has_evaluation;
    bool evaluates_only;     /* weights and the evaluation list, nothing else */
    int64_t bucket_elems;    /* largest piece of an exchange; 0: a shard */
    bool waits_for_comm;     /* backward goes on when an exchange is done */
    int64_t tokens_max;      /* of the longest micro batch, padded */
    int64_t labels_max;      /* of one micro batch */
    uint64_t boundary_bytes; /* (T, C) of the longest micro batch */
    uint64_t batch_bytes;    /* tables of one micro batch */
    const struct zo_kernel_ops *kernel_ops; /* workspace sizes */
    const struct zo_model_ops *model_ops;
    void *model; /* borrowed */
    zo_decide_fn decide;
    void *decide_context; /* borrowed */
};

/*
 * Buffers of one unit on one device; ZO_NO_BUFFER where there is none.  Those
 * on the host are one for all devices and hold the whole unit; one on a device
 * holds the whole unit or, by the stage, the device's shard.
 */
struct zo_unit_buffers {
    zo_buffer_id weights;        /* at home */
    zo_buffer_id device_weights; /* the device's copy, renewed by each list */
    zo_buffer_id remainder;      /* bf16 */
    zo_buffer_id master;         /* fp16 */
    zo_buffer_id exp_avg, exp_avg_sq;
    zo_buffer_id grad; /* one that stays between lists */
};

#define ZO_RING_MAX         64
#define ZO_STAGING_DEPTH    2      /* of what the host prepares for a copy */
#define ZO_TILE_ELEMS       524288 /* of a unit, for a CPU worker at a time */
#define ZO_NVME_RING        4  /* read ahead, at work, written behind, spare */
#define ZO_NVME_PIECE_TILES 16 /* 16 MiB of a 16-bit state, 32 of a 32-bit */

struct zo_build {
    struct zo_build_options options;
    struct zo_program program;
    struct zo_unit_buffers *units;        /* (units, devices); owned */
    struct zo_unit_buffers *copies;       /* (units), for saves; owned */
    zo_buffer_id record, control, result; /* host */
    zo_buffer_id batch_host;              /* (micros, devices) blobs, slots */
    zo_buffer_id norms_host, losses_host, bad_host;
    zo_buffer_id host_bad; /* of updates on the host; no slots */
    /* Rings: weights and gradients on the device; gradients, weights to be
     * cast or copied, and rows of an embedding on the host. */
    zo_buffer_id weight_ring[ZO_DEVICES_MAX][ZO_RING_MAX];
    zo_buffer_id gradient_ring[ZO_DEVICES_MAX][ZO_RING_MAX];
    zo_buffer_id host_gradient_ring[ZO_RING_MAX];
    zo_buffer_id staging_ring[ZO_STAGING_DEPTH];
    zo_buffer_id rows_ring[ZO_STAGING_DEPTH * ZO_DEVICES_MAX];
    zo_buffer_id nvme_ring[ZO_RING_MAX]; /* pieces of all states of a unit */
    zo_buffer_id norms[ZO_DEVICES_MAX], losses[ZO_DEVICES_MAX];
    zo_buffer_id bad[ZO_DEVICES_MAX], norm_workspace[ZO_DEVICES_MAX];
    int step_schedule, tail_schedule;
    int evaluation_schedule; /* -1: none */
    int save_schedule;       /* joins a step; -1: none */
};

static inline struct zo_unit_buffers *
zo_build_unit(const struct zo_build *build, int unit, int device)
{
    return &build->units[unit * build->options.device_count + device];
}

/* The elements of a unit that a device's buffer of it holds. */
struct zo_held {
    int64_t first, count;
};
struct zo_held zo_build_held(const struct zo_build *build, int unit, int device,
                             zo_buffer_id id, size_t elem_bytes);

/*
 * Builds the program of a training run (or, with evaluates_only, of an
 * evaluation: ids of states are then ZO_NO_BUFFER) and lays it out.  Operations
 * point into *build_out: it may not be moved or copied.
 *
 *   ZO_E_NOMEM   no memory for the records
 *   ZO_E_FIT     sizes beyond any machine
 */
enum zo_status zo_build_train(const struct zo_build_options *options,
                              struct zo_build *build_out) ZO_MUST_CHECK;

/*
 * The program of decoding on one device: a list for a prompt of up to
 * tokens_max tokens, and one for a single further token, with a cache of
 * cache_bytes a unit (0: none).  Weights only.
 *
 * The weights of the first host_units units are at home on the host: each
 * crosses the bus for every list, two at most on the device at a time, the
 * next on its way while one is used; of a unit that is read by rows only
 * those that are used cross.  Its blob then has the tables of such rows, and
 * counts its table_rows.
 */
struct zo_decode_options {
    const struct zo_unit *units; /* borrowed; forward order */
    int unit_count;
    enum zo_dtype type;
    uint64_t token_bytes; /* of a boundary, a token */
    int64_t tokens_max;   /* of a prompt */
    int64_t labels_max;   /* positions whose logits are wanted at once */
    int64_t vocab;
    uint64_t cache_bytes; /* of a unit */
    uint64_t batch_bytes;
    int host_units; /* 0: all weights stay on the device */
    const struct zo_kernel_ops *kernel_ops;
    const struct zo_model_ops *model_ops;
    void *model;
};

#define ZO_DECODE_RING 2 /* units of the host that are on the device */

struct zo_decode_build {
    struct zo_program program;
    zo_buffer_id *weights;             /* a unit, at home; owned */
    zo_buffer_id *caches;              /* a unit; owned */
    zo_buffer_id ring[ZO_DECODE_RING]; /* of units from the host */
    zo_buffer_id rows_host;            /* gathered for a copy */
    zo_buffer_id record, batch_host, logits_host;
    int prompt_schedule, token_schedule;
};

enum zo_status zo_build_decode(const struct zo_decode_options *options,
                               struct zo_decode_build *build_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_build_fini(struct zo_build *build);
void zo_decode_build_fini(struct zo_decode_build *build);

/* ---- for models --------------------------------------------------------- */

/* A transient buffer on the emit's device. */
enum zo_status zo_emit_buffer(const struct zo_emit *emit,
                              enum zo_purpose purpose, const char *name,
                              uint64_t bytes,
                              zo_buffer_id *id_out) ZO_MUST_CHECK;

/*
 * An operation on the emit's compute stream; name, run, context, args and
 * flops come from `op`.  The record becomes access 0, the given accesses
 * follow from 1 on.
 */
enum zo_status zo_emit_op(const struct zo_emit *emit, const struct zo_op *op,
                          const struct zo_access *accesses,
                          size_t access_count) ZO_MUST_CHECK;

/* The counts of the call's micro batch; at[0] must be the record. */
const struct zo_micro_counts *zo_call_counts(const struct zo_op_call *call);

ZO_C_END

#endif
