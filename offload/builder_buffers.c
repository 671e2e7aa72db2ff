/*
 * The buffers that a run keeps between lists.  Row 5.
 */
#include "offload/builder_internal.h"

#include "src/base/arith.h"

uint64_t zo_build_losses_bytes(const struct zo_build_options *options)
{
    return zo_round_up((uint64_t)options->micros *
                           (uint64_t)options->labels_max * sizeof(float),
                       ZO_ALIGN_BYTES);
}

const float *zo_measured_losses(const struct zo_measured *measured, int micro,
                                int device)
{
    return measured->losses +
           (uint64_t)device * zo_build_losses_bytes(measured->options) /
               sizeof(float) +
           micro * measured->options->labels_max;
}

static enum zo_status add_buffer(struct zo_build *build, const char *name,
                                 enum zo_purpose purpose, enum zo_tier tier,
                                 int device, int unit, uint64_t bytes,
                                 zo_buffer_id *id_out)
{
    const struct zo_buffer buffer = {
        .name = name,
        .purpose = purpose,
        .tier = tier,
        .device = device,
        .unit = unit,
        .schedule = -1,
        .bytes = bytes,
    };

    return zo_program_buffer(&build->program, &buffer, id_out);
}

/* Where states that have left the device live. */
static enum zo_tier host_tier(enum zo_tier home, bool is_pageable)
{
    return home == ZO_TIER_NVME ? ZO_TIER_NVME
           : is_pageable        ? ZO_TIER_PAGEABLE
                                : ZO_TIER_CPU;
}

/* One state of a unit on one device. */
struct state {
    const char *name;
    enum zo_purpose purpose;
    enum zo_tier tier;
    uint64_t elem_bytes;    /* 0: the unit has no such state */
    bool is_shard;          /* on a device: of its shard alone */
    zo_buffer_id *id, host; /* host: what the first device made there */
};

static enum zo_status add_states(struct zo_build *build, int u, int d,
                                 const struct state *states, size_t count)
{
    const struct zo_unit *unit = &build->options.units[u];

    for (size_t i = 0; i < count; i++) {
        const struct state *state = &states[i];
        const bool is_host = state->tier != ZO_TIER_GPU;
        const int64_t elems =
            state->is_shard && !is_host ? unit->shard_elems : unit->elems;

        *state->id = ZO_NO_BUFFER;
        if (state->elem_bytes != 0 && is_host && d > 0) {
            *state->id = state->host;
        } else if (state->elem_bytes != 0) {
            const uint64_t bytes = state->elem_bytes * (uint64_t)elems;

            ZO_TRY(add_buffer(build, state->name, state->purpose, state->tier,
                              is_host ? 0 : d, u,
                              state->tier == ZO_TIER_NVME
                                  ? zo_round_up(bytes, ZO_NVME_CHUNK)
                                  : bytes,
                              state->id));
        }
    }
    return ZO_OK;
}

struct zo_held zo_build_held(const struct zo_build *build, int unit, int device,
                             zo_buffer_id id, size_t elem_bytes)
{
    const struct zo_unit *u = &build->options.units[unit];
    const uint64_t whole = (uint64_t)u->elems * elem_bytes;

    return build->program.buffers[id].tier == ZO_TIER_NVME ||
                   build->program.buffers[id].bytes == whole
               ? (struct zo_held){0, u->elems}
               : (struct zo_held){device * u->shard_elems, u->shard_elems};
}

struct zo_access zo_build_own_access(const struct zo_build *build, int unit,
                                     int device, zo_buffer_id id,
                                     size_t elem_bytes,
                                     enum zo_access_mode mode)
{
    const struct zo_held own = zo_build_own(&build->options, unit, device);
    const struct zo_held held =
        zo_build_held(build, unit, device, id, elem_bytes);

    return (struct zo_access){id, mode,
                              (uint64_t)(own.first - held.first) * elem_bytes,
                              (uint64_t)own.count * elem_bytes};
}

bool zo_build_rings_gradient(const struct zo_build_options *options, int unit)
{
    const struct zo_placement *placement = &options->placement;
    int before = 0;

    if (!zo_build_offloads(options, unit) ||
        placement->host_gradient_ring == 0 || options->decides ||
        options->keeps_gradients) {
        return false;
    }
    if (zo_build_spills(options, unit)) {
        return placement->nvme_rings_gradients;
    }
    for (int u = 0; u < unit; u++) {
        before += zo_build_offloads(options, u) && !zo_build_spills(options, u);
    }
    return before >= placement->own_gradients;
}

/* Whether a gradient stays between lists: until a decision has been made, or
 * on the host in a place of its own. */
static bool keeps_gradient(const struct zo_build_options *options, int u)
{
    return options->decides || options->keeps_gradients ||
           (zo_build_offloads(options, u) &&
            !zo_build_rings_gradient(options, u));
}

static enum zo_status add_unit(struct zo_build *build, int u, int d)
{
    const struct zo_build_options *options = &build->options;
    const struct zo_placement *placement = &options->placement;
    const struct zo_unit_homes *homes = zo_build_homes(options, u);
    const bool trains = !options->evaluates_only;
    const bool offloads = zo_build_offloads(options, u);
    const int stage = zo_build_stage(options);
    const uint64_t typed = zo_dtype_bytes(options->type);
    const enum zo_tier optimizer =
        offloads ? host_tier(homes->optimizer, placement->pageable_optimizer)
                 : ZO_TIER_GPU;
    const enum zo_tier weights =
        offloads || zo_build_weights_leave(options, u)
            ? host_tier(homes->weights, placement->pageable_weights)
            : ZO_TIER_GPU;
    const uint64_t moment = options->moment_type == ZO_BF16 ? 2 : 4;
    const bool is_bf16 = options->type == ZO_BF16;
    const bool is_fp16 = options->type == ZO_F16;
    struct zo_unit_buffers *unit = zo_build_unit(build, u, d);
    const struct zo_unit_buffers host = *zo_build_unit(build, u, 0);
    const struct state states[] = {
        {"weights", ZO_PURPOSE_WEIGHTS, weights,
         zo_build_casts(options, u) ? 0 : typed, stage == 3, &unit->weights,
         host.weights},
        {"weights", ZO_PURPOSE_WEIGHTS, ZO_TIER_GPU,
         zo_build_copies_back(options, u) ? typed : 0, stage == 3,
         &unit->device_weights, ZO_NO_BUFFER},
        {"remainders", ZO_PURPOSE_MASTER, optimizer, trains && is_bf16 ? 2 : 0,
         stage >= 1, &unit->remainder, host.remainder},
        {"master weights", ZO_PURPOSE_MASTER, optimizer,
         trains && is_fp16 ? 4 : 0, stage >= 1, &unit->master, host.master},
        {"first moments", ZO_PURPOSE_EXP_AVG, optimizer, trains ? moment : 0,
         stage >= 1, &unit->exp_avg, host.exp_avg},
        {"second moments", ZO_PURPOSE_EXP_AVG_SQ, optimizer,
         trains ? moment : 0, stage >= 1, &unit->exp_avg_sq, host.exp_avg_sq},
        {"gradient", ZO_PURPOSE_GRADIENT, offloads ? ZO_TIER_CPU : ZO_TIER_GPU,
         trains && keeps_gradient(options, u) ? typed : 0, stage >= 2,
         &unit->grad, host.grad},
    };

    return add_states(build, u, d, states, ZO_COUNT(states));
}

/* ---- rings ----------------------------------------------------------------
 */

struct ring {
    const char *name;
    enum zo_purpose purpose;
    enum zo_tier tier;
    int device;
    int depth;
    uint64_t bytes; /* of each; 0: nothing needs the ring */
    zo_buffer_id *ids;
};

static enum zo_status add_ring(struct zo_build *build, const struct ring *ring)
{
    for (int i = 0; i < ring->depth; i++) {
        ring->ids[i] = ZO_NO_BUFFER;
        if (ring->bytes != 0) {
            ZO_TRY(add_buffer(build, ring->name, ring->purpose, ring->tier,
                              ring->device, -1, ring->bytes, &ring->ids[i]));
        }
    }
    return ZO_OK;
}

static void widen(uint64_t *bytes, uint64_t more)
{
    *bytes = more > *bytes ? more : *bytes;
}

static enum zo_status add_ring_set(struct zo_build *build,
                                   const struct ring *rings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ZO_TRY(add_ring(build, &rings[i]));
    }
    return ZO_OK;
}

/* Where whole weights wait for their copy, and pieces of states for theirs:
 * from the arena's begin on, and multiples of the pages NVMe is read by. */
enum zo_status zo_build_add_pages(struct zo_build *build)
{
    const struct zo_build_options *options = &build->options;
    const int depth = options->placement.nvme_ring;
    uint64_t staging = 0, pieces = 0;

    for (int u = 0; u < options->unit_count; u++) {
        const uint64_t bytes =
            (uint64_t)options->units[u].elems * zo_dtype_bytes(options->type);
        struct zo_unit_rows rows;

        if (zo_build_loads_weights(options, u) ||
            (zo_build_stages(options, u) &&
             !zo_build_gathers(options, u, &rows))) {
            widen(&staging,
                  zo_round_up(bytes, zo_build_loads_weights(options, u)
                                         ? ZO_NVME_CHUNK
                                         : ZO_NVME_ALIGN));
        }
        widen(&pieces, zo_build_nvme_slot_bytes(options, u));
    }
    const struct ring rings[] = {
        {"pieces from and to NVMe", ZO_PURPOSE_NVME_RING, ZO_TIER_CPU, 0,
         depth > 0 ? depth : ZO_NVME_RING, pieces, build->nvme_ring},
        {"weights prepared", ZO_PURPOSE_WEIGHT_RING, ZO_TIER_CPU, 0,
         ZO_STAGING_DEPTH, staging, build->staging_ring},
    };

    return add_ring_set(build, rings, ZO_COUNT(rings));
}

/* Each ring's buffers hold the largest of the units that pass through it. */
static enum zo_status add_rings(struct zo_build *build)
{
    const struct zo_build_options *options = &build->options;
    const struct zo_placement *placement = &options->placement;
    uint64_t weights = 0, grads = 0, host_grads = 0, row_bytes = 0;

    for (int u = 0; u < options->unit_count; u++) {
        const uint64_t bytes =
            (uint64_t)options->units[u].elems * zo_dtype_bytes(options->type);
        const bool offloads = zo_build_offloads(options, u);
        const bool streams = zo_build_streams(options, u);
        struct zo_unit_rows rows;

        if (zo_build_gathers(options, u, &rows)) {
            widen(&row_bytes, rows.row_bytes * rows.rows_max);
        } else if (streams || offloads) {
            widen(&weights, streams ? bytes : 0);
        }
        widen(&grads, offloads ? (uint64_t)zo_build_own(options, u, 0).count *
                                     zo_dtype_bytes(options->type)
                               : 0);
        widen(&host_grads, offloads && !keeps_gradient(options, u) ? bytes : 0);
    }
    for (int d = 0; d < options->device_count; d++) {
        const struct ring rings[] = {
            {"weights passing through", ZO_PURPOSE_WEIGHT_RING, ZO_TIER_GPU, d,
             placement->weight_ring, weights, build->weight_ring[d]},
            {"gradients passing through", ZO_PURPOSE_GRADIENT_RING, ZO_TIER_GPU,
             d, placement->gradient_ring, grads, build->gradient_ring[d]},
        };

        ZO_TRY(add_ring_set(build, rings, ZO_COUNT(rings)));
    }
    const struct ring rings[] = {
        {"gradients passing through", ZO_PURPOSE_GRADIENT_RING, ZO_TIER_CPU, 0,
         placement->host_gradient_ring, host_grads, build->host_gradient_ring},
        {"embedding rows", ZO_PURPOSE_WEIGHT_RING, ZO_TIER_CPU, 0,
         ZO_STAGING_DEPTH * options->device_count, row_bytes, build->rows_ring},
    };

    return add_ring_set(build, rings, ZO_COUNT(rings));
}

/* ---- a device, the host ---------------------------------------------------
 */

enum zo_status zo_build_add_device(struct zo_build *build, int d)
{
    const struct zo_build_options *options = &build->options;
    const uint64_t units = (uint64_t)options->unit_count;
    int64_t shard_max = 0;

    for (int u = 0; u < options->unit_count; u++) {
        shard_max = zo_max_i64(shard_max, options->units[u].shard_elems);
        ZO_TRY(add_unit(build, u, d));
    }
    ZO_TRY(add_buffer(build, "gradient norms", ZO_PURPOSE_CONTROL, ZO_TIER_GPU,
                      d, -1, units * sizeof(struct zo_norm_result),
                      &build->norms[d]));
    ZO_TRY(add_buffer(build, "losses", ZO_PURPOSE_CONTROL, ZO_TIER_GPU, d, -1,
                      zo_build_losses_bytes(options), &build->losses[d]));
    ZO_TRY(add_buffer(build, "bad weights", ZO_PURPOSE_CONTROL, ZO_TIER_GPU, d,
                      -1, units * sizeof(uint32_t), &build->bad[d]));
    ZO_TRY(add_buffer(build, "norm workspace", ZO_PURPOSE_WORKSPACE,
                      ZO_TIER_GPU, d, -1,
                      options->kernel_ops->square_norm_workspace(shard_max),
                      &build->norm_workspace[d]));
    return options->model_ops->prepare(options->model, &build->program, d);
}

static enum zo_status add_host_buffer(struct zo_build *build, const char *name,
                                      enum zo_purpose purpose, bool has_slots,
                                      uint64_t bytes, zo_buffer_id *id_out)
{
    const struct zo_buffer buffer = {
        .name = name,
        .purpose = purpose,
        .tier = ZO_TIER_CPU,
        .unit = -1,
        .schedule = -1,
        .bytes = bytes,
        .has_slots = has_slots,
    };

    return zo_program_buffer(&build->program, &buffer, id_out);
}

enum zo_status zo_build_add_host(struct zo_build *build)
{
    const struct zo_build_options *options = &build->options;
    const uint64_t devices = (uint64_t)options->device_count;
    const uint64_t units = (uint64_t)options->unit_count;
    const uint64_t parts = devices * (uint64_t)options->micros;

    ZO_TRY(add_rings(build));
    ZO_TRY(add_host_buffer(build, "step record", ZO_PURPOSE_CONTROL, true,
                           sizeof(struct zo_step_record) +
                               parts * sizeof(struct zo_micro_counts),
                           &build->record));
    ZO_TRY(add_host_buffer(build, "control", ZO_PURPOSE_CONTROL, false,
                           sizeof(struct zo_control), &build->control));
    ZO_TRY(add_host_buffer(build, "step result", ZO_PURPOSE_CONTROL, true,
                           sizeof(struct zo_step_result), &build->result));
    ZO_TRY(add_host_buffer(build, "batch", ZO_PURPOSE_BATCH, true,
                           parts * options->batch_bytes, &build->batch_host));
    ZO_TRY(add_host_buffer(build, "gradient norms", ZO_PURPOSE_CONTROL, true,
                           devices * units * sizeof(struct zo_norm_result),
                           &build->norms_host));
    ZO_TRY(add_host_buffer(build, "losses", ZO_PURPOSE_CONTROL, true,
                           devices * zo_build_losses_bytes(options),
                           &build->losses_host));
    ZO_TRY(add_host_buffer(build, "bad weights", ZO_PURPOSE_CONTROL, true,
                           devices * units * sizeof(uint32_t),
                           &build->bad_host));
    return add_host_buffer(build, "bad weights", ZO_PURPOSE_CONTROL, false,
                           devices * units * sizeof(uint32_t),
                           &build->host_bad);
}
