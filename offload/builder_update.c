/*
 * From fp32 sums to new weights: rounding, exchange, norm, the way to the
 * host, AdamW.  Row 5.
 */
#include <string.h>

#include "offload/builder_internal.h"
#include "src/base/arith.h"

/* The gradient sums of a unit; its gaps are cleared at their first use. */
enum zo_status zo_lister_open_sum(struct zo_lister *lister,
                                  const struct zo_emit *emit)
{
    const struct zo_build_options *options = &lister->build->options;
    const struct zo_unit *unit = &options->units[emit->unit];
    zo_buffer_id *id =
        &lister->grad_sums[emit->unit * options->device_count + emit->device];
    struct zo_unit_gap gaps[ZO_GAPS_MAX];
    struct zo_access accesses[ZO_GAPS_MAX];
    const int count = zo_unit_gaps(unit, gaps, ZO_GAPS_MAX);
    const struct zo_op op = {
        .name = "clear gaps",
        .run = zo_build_run_clear,
        .context = unit,
        .engine = ZO_ENGINE_COMPUTE,
        .device = emit->device,
        .unit = emit->unit,
        .micro = emit->micro,
    };

    ZO_TRY(zo_emit_buffer(emit, ZO_PURPOSE_GRADIENT_SUM, "gradient sums",
                          (uint64_t)unit->elems * sizeof(float), id));
    for (int i = 0; i < count; i++) {
        accesses[i] = (struct zo_access){
            *id, ZO_WRITE, (uint64_t)gaps[i].begin_elems * sizeof(float),
            (uint64_t)(gaps[i].end_elems - gaps[i].begin_elems) *
                sizeof(float)};
    }
    return count == 0
               ? ZO_OK
               : zo_schedule_add(&lister->build->program, lister->schedule, &op,
                                 accesses, (size_t)count);
}

/* ---- AdamW ----------------------------------------------------------------
 */

zo_buffer_id zo_build_second(const struct zo_build *build,
                             const struct zo_unit_buffers *unit)
{
    return build->options.type == ZO_BF16  ? unit->remainder
           : build->options.type == ZO_F16 ? unit->master
                                           : unit->exp_avg; /* none */
}

/*
 * Updates on the host go in the order in which forward needs their units.
 * Those whose gradients share a ring come behind, in the order of the list:
 * the one that is oldest holds up the ring.  Before all, a piece that NVMe
 * waits for: few bytes, and the disk is what takes longest.
 */
static int priority_of(const struct zo_build_options *options, int unit)
{
    return zo_build_spills(options, unit)           ? -1
           : zo_build_rings_gradient(options, unit) ? options->unit_count
                                                    : unit;
}

/* The bytes of an element of each state: weights (or, without them, the
 * master), second, m and v. */
static void state_bytes(const struct zo_build *build, size_t *bytes)
{
    const struct zo_build_options *options = &build->options;
    const size_t moment = options->moment_type == ZO_BF16 ? 2 : 4;

    bytes[0] = zo_dtype_bytes(options->type);
    bytes[1] = options->type == ZO_BF16  ? 2
               : options->type == ZO_F16 ? 4
                                         : moment; /* none */
    bytes[2] = bytes[3] = moment;
}

enum zo_status zo_lister_update_host(const struct zo_lister *lister, int u,
                                     struct zo_held elems,
                                     const struct zo_access *states,
                                     zo_buffer_id grad)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_build_options *options = &build->options;
    const size_t typed = zo_dtype_bytes(options->type);
    struct zo_access accesses[] = {
        zo_whole(program, build->record, ZO_READ),
        zo_whole(program, build->control, ZO_READ),
        states[0],
        states[1],
        states[2],
        states[3],
        {grad, ZO_READ, (uint64_t)elems.first * typed,
         (uint64_t)elems.count * typed},
        {build->host_bad, ZO_READ_WRITE, (uint64_t)u * sizeof(uint32_t),
         sizeof(uint32_t)},
    };
    const struct zo_op op = {
        .name = "AdamW on the host",
        .run = zo_build_run_adamw_cpu,
        .context = options,
        .args = {states[0].bytes > 0, elems.first, elems.count},
        .unit = u,
        .micro = -1,
        .priority = priority_of(options, u),
        .parts = (int)zo_div_ceil(elems.count, ZO_TILE_ELEMS),
        /* In place, not in a buffer of the ring, which is everybody's. */
        .is_shared =
            zo_build_stage(options) > 0 && !zo_build_spills(options, u),
    };

    if (!options->decides) {
        accesses[1].bytes = 0; /* nothing to wait for: the record has it all */
    }
    return zo_lister_cpu(lister, &op, accesses, ZO_COUNT(accesses));
}

/* All states are in host memory: all of the unit at once. */
static enum zo_status update_in_place(const struct zo_lister *lister, int u,
                                      zo_buffer_id grad)
{
    const struct zo_build *build = lister->build;
    const struct zo_unit_buffers *unit = zo_build_unit(build, u, 0);
    const struct zo_held all = {0, build->options.units[u].elems};
    const bool has_weights = unit->weights != ZO_NO_BUFFER;
    const zo_buffer_id ids[] = {has_weights ? unit->weights : unit->master,
                                zo_build_second(build, unit), unit->exp_avg,
                                unit->exp_avg_sq};
    struct zo_access states[ZO_COUNT(ids)];
    size_t bytes[ZO_COUNT(ids)];

    state_bytes(build, bytes);
    for (size_t i = 0; i < ZO_COUNT(ids); i++) {
        states[i] = (struct zo_access){ids[i], ZO_READ_WRITE, 0,
                                       (uint64_t)all.count * bytes[i]};
    }
    if (!has_weights) {
        states[0].bytes = 0;
    }
    return zo_lister_update_host(lister, u, all, states, grad);
}

/* What the device owns. */
static enum zo_status update_on_device(const struct zo_lister *lister, int u,
                                       int d, zo_buffer_id grad)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_build_options *options = &build->options;
    const struct zo_unit_buffers *unit = zo_build_unit(build, u, d);
    const struct zo_held own = zo_build_own(options, u, d);
    size_t bytes[4];

    state_bytes(build, bytes);
    struct zo_access accesses[] = {
        zo_whole(program, build->record, ZO_READ),
        zo_whole(program, build->control, ZO_READ),
        zo_build_own_access(build, u, d, unit->weights, bytes[0],
                            ZO_READ_WRITE),
        zo_build_own_access(build, u, d, zo_build_second(build, unit), bytes[1],
                            ZO_READ_WRITE),
        zo_build_own_access(build, u, d, unit->exp_avg, bytes[2],
                            ZO_READ_WRITE),
        zo_build_own_access(build, u, d, unit->exp_avg_sq, bytes[3],
                            ZO_READ_WRITE),
        zo_build_own_access(build, u, d, grad, bytes[0], ZO_READ),
        {build->bad[d], ZO_READ_WRITE, (uint64_t)u * sizeof(uint32_t),
         sizeof(uint32_t)},
    };
    const struct zo_op op = {
        .name = "AdamW",
        .run = zo_build_run_adamw,
        .context = options,
        .args = {true, own.first, own.count},
        .engine = ZO_ENGINE_COMPUTE,
        .device = d,
        .unit = u,
        .micro = -1,
    };

    if (!options->decides) {
        accesses[1].bytes = 0; /* nothing to wait for: the record has it all */
    }
    return zo_schedule_add(program, lister->schedule, &op, accesses,
                           ZO_COUNT(accesses));
}

/* The host has one copy, whose update is one. */
static enum zo_status update_one(struct zo_lister *lister, int u, int d,
                                 zo_buffer_id grad)
{
    const struct zo_build_options *options = &lister->build->options;

    if (!zo_build_offloads(options, u)) {
        return update_on_device(lister, u, d, grad);
    }
    if (d > 0) {
        return ZO_OK;
    }
    return zo_build_spills(options, u) ? zo_lister_update_nvme(lister, u, grad)
                                       : update_in_place(lister, u, grad);
}

/* ---- rounding, exchange, norm ---------------------------------------------
 */

static enum zo_status emit_cast(const struct zo_lister *lister, int u, int d,
                                zo_buffer_id target, enum zo_dtype type)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int64_t elems = options->units[u].elems;
    const struct zo_op op = {
        .name = "gradient cast",
        .run = zo_build_run_cast,
        .args = {elems, type, ZO_F32},
        .engine = ZO_ENGINE_COMPUTE,
        .device = d,
        .unit = u,
        .micro = -1,
    };
    const zo_buffer_id sum = lister->grad_sums[u * options->device_count + d];

    return zo_schedule_add(
        &build->program, lister->schedule, &op,
        (const struct zo_access[]){
            {target, ZO_WRITE, 0, (uint64_t)elems * zo_dtype_bytes(type)},
            zo_whole(&build->program, sum, ZO_READ),
        },
        2);
}

static struct zo_access norm_access(const struct zo_build *build, int u, int d)
{
    return (struct zo_access){build->norms[d], ZO_WRITE,
                              (uint64_t)u * sizeof(struct zo_norm_result),
                              sizeof(struct zo_norm_result)};
}

/* One device: its sum, rounded, is the gradient. */
static enum zo_status finish_alone(const struct zo_lister *lister, int u,
                                   zo_buffer_id grad)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_build_options *options = &build->options;
    const struct zo_op op = {
        .name = "gradient norm",
        .run = zo_build_run_norm,
        .context = options,
        .engine = ZO_ENGINE_COMPUTE,
        .unit = u,
        .micro = -1,
    };

    ZO_TRY(emit_cast(lister, u, 0, grad, options->type));
    return zo_schedule_add(
        program, lister->schedule, &op,
        (const struct zo_access[]){
            norm_access(build, u, 0),
            {grad, ZO_READ, 0,
             (uint64_t)options->units[u].elems * zo_dtype_bytes(options->type)},
            zo_whole(program, build->norm_workspace[0], ZO_WRITE),
        },
        3);
}

/* Whether every device gets the whole gradient, as at stages 0 and 1. */
static bool has_whole_gradient(const struct zo_build_options *options, int u)
{
    return zo_build_stage(options) <= 1 && !zo_build_offloads(options, u);
}

/* What comes next on a device's compute stream comes behind the exchange. */
static enum zo_status wait_for_exchange(const struct zo_lister *lister, int u,
                                        const zo_buffer_id *grads)
{
    struct zo_build *build = lister->build;

    for (int d = 0; d < build->options.device_count; d++) {
        const struct zo_access gradient = {grads[d], ZO_READ, 0,
                                           zo_dtype_bytes(build->options.type)};
        const struct zo_op op = {
            .name = "behind the reduction",
            .run = zo_build_run_nothing,
            .engine = ZO_ENGINE_COMPUTE,
            .device = d,
            .unit = u,
            .micro = -1,
        };

        ZO_TRY(zo_schedule_add(&build->program, lister->schedule, &op,
                               &gradient, 1));
    }
    return ZO_OK;
}

/* Several devices: the sums, rounded, are exchanged and added at owners. */
static enum zo_status finish_together(const struct zo_lister *lister, int u,
                                      const zo_buffer_id *grads)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_build_options *options = &build->options;
    const struct zo_unit *unit = &options->units[u];
    const size_t comm_bytes = zo_dtype_bytes(options->comm_type);
    const bool is_whole = has_whole_gradient(options, u);
    const uint64_t grad_bytes =
        (uint64_t)(is_whole ? unit->elems : unit->shard_elems) *
        zo_dtype_bytes(options->type);
    const int64_t bucket =
        options->bucket_elems > 0
            ? zo_min_i64((int64_t)zo_round_up((uint64_t)options->bucket_elems,
                                              ZO_TENSOR_ALIGN_ELEMS),
                         unit->shard_elems)
            : unit->shard_elems;
    struct zo_access accesses[ZO_OP_ACCESSES_MAX];
    const struct zo_op op = {
        .name = "gradient reduction",
        .run = zo_build_run_reduce,
        .context = options,
        .args = {bucket, is_whole},
        .engine = ZO_ENGINE_COLLECTIVE,
        .unit = u,
        .micro = -1,
    };

    for (int d = 0; d < options->device_count; d++) {
        const struct zo_emit emit = {.program = program,
                                     .schedule = lister->schedule,
                                     .device = d,
                                     .unit = u};
        zo_buffer_id local, staging;

        ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_COMMUNICATION,
                              "gradient to send",
                              (uint64_t)unit->elems * comm_bytes, &local));
        ZO_TRY(zo_emit_buffer(
            &emit, ZO_PURPOSE_COMMUNICATION, "gradient pieces",
            (uint64_t)(bucket * options->device_count) * comm_bytes, &staging));
        ZO_TRY(emit_cast(lister, u, d, local, options->comm_type));
        accesses[5 * d] = zo_whole(program, local, ZO_READ);
        accesses[5 * d + 1] = zo_whole(program, staging, ZO_WRITE);
        accesses[5 * d + 2] =
            (struct zo_access){grads[d], ZO_WRITE, 0, grad_bytes};
        accesses[5 * d + 3] = norm_access(build, u, d);
        accesses[5 * d + 4] =
            zo_whole(program, build->norm_workspace[d], ZO_WRITE);
    }
    ZO_TRY(zo_schedule_add(program, lister->schedule, &op, accesses,
                           5 * (size_t)options->device_count));
    return options->waits_for_comm ? wait_for_exchange(lister, u, grads)
                                   : ZO_OK;
}

/* ---- behind backward ------------------------------------------------------
 */

/* A gradient on its way to the host, each device's part of it; `grads` become
 * where it is there. */
static enum zo_status drain(struct zo_lister *lister, int u,
                            zo_buffer_id *grads)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int depth = options->placement.host_gradient_ring;
    const uint64_t elem_bytes = zo_dtype_bytes(options->type);
    const zo_buffer_id kept = zo_build_unit(build, u, 0)->grad;
    const zo_buffer_id target =
        kept != ZO_NO_BUFFER
            ? kept
            : build->host_gradient_ring[lister->host_gradients++ % depth];

    for (int d = 0; d < options->device_count; d++) {
        const struct zo_held own = zo_build_own(options, u, d);
        const uint64_t bytes = (uint64_t)own.count * elem_bytes;

        ZO_TRY(zo_lister_copy(
            lister, &(struct zo_copy){
                        .engine = ZO_ENGINE_D2H,
                        .name = "gradient to the host",
                        .device = d,
                        .unit = u,
                        .micro = -1,
                        .target = {target, ZO_WRITE,
                                   (uint64_t)own.first * elem_bytes, bytes},
                        .source = {grads[d], ZO_READ, 0, bytes},
                    }));
        grads[d] = target;
    }
    return ZO_OK;
}

/* Where the rounded gradient of a unit is made, on each device. */
static enum zo_status open_gradients(struct zo_lister *lister, int u,
                                     zo_buffer_id *grads)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const bool offloads = zo_build_offloads(options, u);
    const int slot =
        offloads ? lister->gradients++ % options->placement.gradient_ring : 0;
    const int64_t elems = zo_build_stage(options) >= 2
                              ? options->units[u].shard_elems
                              : options->units[u].elems;

    for (int d = 0; d < options->device_count; d++) {
        const struct zo_emit emit = {.program = &build->program,
                                     .schedule = lister->schedule,
                                     .device = d,
                                     .unit = u};

        grads[d] = offloads ? build->gradient_ring[d][slot]
                            : zo_build_unit(build, u, d)->grad;
        if (grads[d] == ZO_NO_BUFFER) {
            ZO_TRY(zo_emit_buffer(
                &emit, ZO_PURPOSE_GRADIENT, "gradient",
                (uint64_t)elems * zo_dtype_bytes(options->type), &grads[d]));
        }
    }
    return ZO_OK;
}

enum zo_status zo_lister_finish(struct zo_lister *lister, int u)
{
    const struct zo_build_options *options = &lister->build->options;
    zo_buffer_id grads[ZO_DEVICES_MAX];

    ZO_TRY(open_gradients(lister, u, grads));
    ZO_TRY(options->device_count == 1 ? finish_alone(lister, u, grads[0])
                                      : finish_together(lister, u, grads));
    if (zo_build_offloads(options, u)) {
        ZO_TRY(drain(lister, u, grads));
    }
    return options->decides ? ZO_OK : zo_lister_update_all(lister, u, grads);
}

enum zo_status zo_lister_update_all(struct zo_lister *lister, int u,
                                    const zo_buffer_id *grads)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int stage = zo_build_stage(options);
    zo_buffer_id weights[ZO_DEVICES_MAX];

    for (int d = 0; d < options->device_count; d++) {
        const struct zo_unit_buffers *unit = zo_build_unit(build, u, d);

        ZO_TRY(update_one(lister, u, d, grads != NULL ? grads[d] : unit->grad));
        weights[d] = unit->weights;
    }
    /* Each has updated its shard of weights that all have whole. */
    return (stage == 1 || stage == 2) && !zo_build_offloads(options, u)
               ? zo_lister_gather_weights(lister, u, weights, false)
               : ZO_OK;
}
