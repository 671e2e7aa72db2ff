/*
 * What the builder keeps while it emits a list.  Row 5, private to
 * offload/builder*.c.
 */
#ifndef ZO_OFFLOAD_BUILDER_INTERNAL_H
#define ZO_OFFLOAD_BUILDER_INTERNAL_H

#include <limits.h>

#include "offload/builder.h"
#include "offload/stream.h"

#define ZO_EMIT_ACCESSES_MAX 24
#define ZO_GAPS_MAX          16      /* of a unit */
#define ZO_PRIORITY_COPY     INT_MAX /* whatever else is ready goes first */

struct zo_lister {
    struct zo_build *build;
    int schedule;
    bool trains;
    zo_buffer_id *boundaries;   /* output of (unit, micro batch, device) */
    zo_buffer_id *d_boundaries; /* its gradient */
    zo_buffer_id *waiting;      /* a boundary's copy on the host */
    zo_buffer_id *grad_sums;    /* (units, devices) */
    zo_buffer_id *batches;      /* (micro batches, devices) */
    zo_buffer_id *rows;         /* likewise, of the embedding */
    /* The list's uses of weights, in order: which is at hand, which is the
     * next to be fetched. */
    struct zo_use *uses;
    size_t use_count, use_at, fetch_at;
    zo_buffer_id weights[ZO_DEVICES_MAX]; /* of the use at hand */
    int64_t boundary_at; /* the next boundary that backward of a pass needs */
    /* How often each ring has been used in this list. */
    int gradients, host_gradients, staged, gathered, nvme_pieces;
};

static inline const struct zo_unit_homes *
zo_build_homes(const struct zo_build_options *options, int unit)
{
    static const struct zo_unit_homes resident = {ZO_TIER_GPU, ZO_TIER_GPU};

    return options->placement.homes == NULL ? &resident
                                            : &options->placement.homes[unit];
}

/* One device has nobody to share with. */
static inline int zo_build_stage(const struct zo_build_options *options)
{
    return options->device_count > 1 ? options->stage : 0;
}

/* Its weights are at home on the host. */
static inline bool
zo_build_weights_leave(const struct zo_build_options *options, int unit)
{
    return zo_build_homes(options, unit)->weights != ZO_TIER_GPU;
}

/* Its weights pass through the ring, or through the ring of rows: they come
 * from the host, or from the shards of all devices. */
static inline bool zo_build_streams(const struct zo_build_options *options,
                                    int unit)
{
    return zo_build_weights_leave(options, unit) ||
           zo_build_stage(options) == 3;
}

/* The elements whose optimizer a device runs. */
static inline struct zo_held
zo_build_own(const struct zo_build_options *options, int unit, int device)
{
    const struct zo_unit *u = &options->units[unit];

    return zo_build_stage(options) == 0
               ? (struct zo_held){0, u->elems}
               : (struct zo_held){device * u->shard_elems, u->shard_elems};
}

/* Those, in a buffer that holds them or more. */
struct zo_access zo_build_own_access(const struct zo_build *build, int unit,
                                     int device, zo_buffer_id id,
                                     size_t elem_bytes,
                                     enum zo_access_mode mode);

/* Its optimizer runs on the host. */
static inline bool zo_build_offloads(const struct zo_build_options *options,
                                     int unit)
{
    return !options->evaluates_only &&
           zo_build_homes(options, unit)->optimizer != ZO_TIER_GPU;
}

/* Its weights, at home on NVMe, pass through host memory. */
static inline bool
zo_build_loads_weights(const struct zo_build_options *options, int unit)
{
    return zo_build_homes(options, unit)->weights == ZO_TIER_NVME;
}

/* Some of what its update writes is on NVMe. */
static inline bool zo_build_spills(const struct zo_build_options *options,
                                   int unit)
{
    return zo_build_offloads(options, unit) &&
           (zo_build_homes(options, unit)->optimizer == ZO_TIER_NVME ||
            zo_build_loads_weights(options, unit));
}

/* The host updates weights that are at home on the devices: at stage 3 each
 * has its shard of them, else all of them. */
static inline bool zo_build_copies_back(const struct zo_build_options *options,
                                        int unit)
{
    return zo_build_offloads(options, unit) &&
           !zo_build_weights_leave(options, unit);
}

/* Its gradient passes through the ring on the host. */
bool zo_build_rings_gradient(const struct zo_build_options *options, int unit);

/* What a unit's 16-bit weights are made from on their way to the device:
 * themselves, or fp16 masters, in host memory, without a copy. */
static inline bool zo_build_casts(const struct zo_build_options *options,
                                  int unit)
{
    return zo_build_offloads(options, unit) && options->type == ZO_F16 &&
           !options->placement.weight_copies && !zo_build_spills(options, unit);
}

/* The host prepares a unit's weights for their copy to the device. */
static inline bool zo_build_stages(const struct zo_build_options *options,
                                   int unit)
{
    return zo_build_casts(options, unit) ||
           (options->placement.pageable_weights &&
            !zo_build_loads_weights(options, unit) &&
            (zo_build_weights_leave(options, unit) ||
             zo_build_offloads(options, unit)));
}

/* Forward reads it by rows, gathered on the host. */
bool zo_build_gathers(const struct zo_build_options *options, int unit,
                      struct zo_unit_rows *rows_out);

/* builder.c */
zo_buffer_id *zo_lister_part(zo_buffer_id *ids, const struct zo_lister *lister,
                             int outer, int micro, int device);
struct zo_copy {
    enum zo_engine engine;
    const char *name;
    int device, unit, micro;
    struct zo_access target, source;
};
enum zo_status zo_lister_copy(const struct zo_lister *lister,
                              const struct zo_copy *copy) ZO_MUST_CHECK;
/* An operation of a unit on the CPU engine. */
enum zo_status zo_lister_cpu(const struct zo_lister *lister,
                             const struct zo_op *op,
                             const struct zo_access *accesses,
                             size_t access_count) ZO_MUST_CHECK;

/* builder_buffers.c: what a run keeps on a device, and on the host.  First
 * what NVMe is read into and written from: page by page. */
enum zo_status zo_build_add_pages(struct zo_build *build) ZO_MUST_CHECK;
enum zo_status zo_build_add_device(struct zo_build *build, int d) ZO_MUST_CHECK;
enum zo_status zo_build_add_host(struct zo_build *build) ZO_MUST_CHECK;
uint64_t zo_build_losses_bytes(const struct zo_build_options *options);

/* builder_weights.c: weights, rows and boundaries on their way. */
/* Plans the uses of weights of a list: `passes` times forward and, in a list
 * that trains, backward. */
enum zo_status zo_lister_plan_uses(struct zo_lister *lister,
                                   int passes) ZO_MUST_CHECK;
/* The next use, of this unit, begins: fetches what may be fetched by now,
 * and sets lister->weights to where its weights are. */
enum zo_status zo_lister_use(struct zo_lister *lister, int unit) ZO_MUST_CHECK;
/* Every device gets the whole unit, in `weights` of each: from the shards that
 * lie there in place, or from where the shards are at home. */
enum zo_status zo_lister_gather_weights(const struct zo_lister *lister,
                                        int unit, const zo_buffer_id *weights,
                                        bool from_shards) ZO_MUST_CHECK;
/* The rows of a micro batch, gathered and copied. */
enum zo_status zo_lister_gather(struct zo_lister *lister, int unit, int micro,
                                int device) ZO_MUST_CHECK;
/* A boundary waits on the host; comes back. */
enum zo_status zo_lister_put_boundary(struct zo_lister *lister, int unit,
                                      int micro, int device) ZO_MUST_CHECK;
enum zo_status zo_lister_get_boundary(struct zo_lister *lister, int unit,
                                      int micro, int device) ZO_MUST_CHECK;

/* builder_update.c: from fp32 sums to new weights. */
enum zo_status zo_lister_open_sum(struct zo_lister *lister,
                                  const struct zo_emit *emit) ZO_MUST_CHECK;
/* Behind the last backward of a unit in a step. */
enum zo_status zo_lister_finish(struct zo_lister *lister,
                                int unit) ZO_MUST_CHECK;
/* AdamW of a unit, on all devices or on the host, and what makes weights whole
 * again; grads NULL: those that stay between lists. */
enum zo_status zo_lister_update_all(struct zo_lister *lister, int unit,
                                    const zo_buffer_id *grads) ZO_MUST_CHECK;
/* Its second half of the master, where a type has one. */
zo_buffer_id zo_build_second(const struct zo_build *build,
                             const struct zo_unit_buffers *unit);
/* An update on the host of some elements of a unit; `states`: of weights,
 * second, m and v. */
enum zo_status zo_lister_update_host(const struct zo_lister *lister, int unit,
                                     struct zo_held elems,
                                     const struct zo_access *states,
                                     zo_buffer_id grad) ZO_MUST_CHECK;

/* builder_nvme.c: states on their way from and to NVMe. */
/* What a piece of the unit takes of a buffer of the ring; 0: nothing. */
uint64_t zo_build_nvme_slot_bytes(const struct zo_build_options *options,
                                  int unit);
enum zo_status zo_lister_update_nvme(struct zo_lister *lister, int unit,
                                     zo_buffer_id grad) ZO_MUST_CHECK;
/* A state of a unit, whole, from NVMe to the host. */
struct zo_load {
    const char *name; /* of the operations; static storage */
    int unit, priority;
    size_t elem_bytes;
    zo_buffer_id target, source;
};
enum zo_status zo_lister_load(const struct zo_lister *lister,
                              const struct zo_load *load) ZO_MUST_CHECK;
enum zo_status zo_lister_load_weights(const struct zo_lister *lister, int unit,
                                      zo_buffer_id target) ZO_MUST_CHECK;

/* builder_save.c: room for a copy of the states, and the list that fills it. */
enum zo_status zo_build_add_copies(struct zo_build *build) ZO_MUST_CHECK;
enum zo_status zo_lister_save(struct zo_lister *lister) ZO_MUST_CHECK;

/*
 * builder_run.c: the operations' zo_op_fn; addresses in `at`, in this order.
 */
/* Per device weights; args[0]: bytes of a shard. */
enum zo_status zo_build_run_gather(const struct zo_op_call *call);
/* Per device weights, shard. */
enum zo_status zo_build_run_gather_shards(const struct zo_op_call *call);
/* target, source; args[0]: bytes. */
enum zo_status zo_build_run_copy(const struct zo_op_call *call);
/* rows on the device, rows on the host, record; args[0]: bytes of a row. */
enum zo_status zo_build_run_copy_rows(const struct zo_op_call *call);
/* CPU: weights for a copy, weights or master; args: elements, type of both. */
enum zo_status zo_build_run_stage(const struct zo_op_call *call);
/* One gap of the gradient sums each; context: the unit. */
enum zo_status zo_build_run_clear(const struct zo_op_call *call);
/* out, in; args: count, type of out, type of in. */
enum zo_status zo_build_run_cast(const struct zo_op_call *call);
/* The context of the others is the build's options. */
/* result, gradient, workspace. */
enum zo_status zo_build_run_norm(const struct zo_op_call *call);
/* Per device local, staging, gradient, norm, workspace; args: piece; whether
 * every device gets the whole gradient. */
enum zo_status zo_build_run_reduce(const struct zo_op_call *call);
/* It waits for what it reads, no more. */
enum zo_status zo_build_run_nothing(const struct zo_op_call *call);
/* record, control, weights, second, m, v, gradient, bad: second is the
 * remainder (bf16) or the master (fp16).  On the device, and on the host. */
enum zo_status zo_build_run_adamw(const struct zo_op_call *call);
enum zo_status zo_build_run_adamw_cpu(const struct zo_op_call *call);
/* record, norms, losses, bad, bad of the host, control, result. */
enum zo_status zo_build_run_decide(const struct zo_op_call *call);

#endif
