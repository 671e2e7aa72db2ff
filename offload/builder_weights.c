/*
 * Weights, rows of an embedding and boundary activations on their way between
 * the host and a device.  Row 5.
 */
#include "offload/builder_internal.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

bool zo_build_gathers(const struct zo_build_options *options, int unit,
                      struct zo_unit_rows *rows_out)
{
    return zo_build_weights_leave(options, unit) &&
           options->model_ops->rows != NULL &&
           options->model_ops->rows(options->model, unit, rows_out);
}

/* ---- weights --------------------------------------------------------------
 */

static struct zo_use use_of(const struct zo_build_options *options, int unit)
{
    struct zo_unit_rows rows;

    return (struct zo_use){
        .unit = unit,
        .streams = zo_build_streams(options, unit) &&
                   !zo_build_gathers(options, unit, &rows),
        .elems = options->units[unit].elems,
    };
}

/* The first use of its unit in the list. */
static bool is_first_use(const struct zo_lister *lister,
                         const struct zo_use *use)
{
    for (const struct zo_use *u = lister->uses; u < use; u++) {
        if (u->unit == use->unit) {
            return false;
        }
    }
    return true;
}

/* A device's own copy of weights that the host has updated: once a list. */
static bool renews(const struct zo_lister *lister, size_t at)
{
    const struct zo_build_options *options = &lister->build->options;
    const int unit = lister->uses[at].unit;

    if (!zo_build_offloads(options, unit) || zo_build_streams(options, unit)) {
        return false;
    }
    return is_first_use(lister, &lister->uses[at]);
}

enum zo_status zo_lister_plan_uses(struct zo_lister *lister, int passes)
{
    const struct zo_build_options *options = &lister->build->options;
    const int units = options->unit_count;
    struct zo_unit_rows rows;
    size_t count = 0;

    zo_free(lister->uses);
    lister->uses = NULL;
    ZO_TRY(zo_alloc((size_t)passes * 2 * (size_t)units, sizeof(lister->uses[0]),
                    "the builder", &lister->uses));
    for (int pass = 0; pass < passes; pass++) {
        for (int u = 0; u < units; u++) {
            lister->uses[count++] = use_of(options, u);
        }
        for (int u = units - 2; lister->trains && u >= 0; u--) {
            if (!zo_build_gathers(options, u, &rows)) {
                lister->uses[count++] = use_of(options, u);
            }
        }
    }
    zo_stream_plan(lister->uses, count,
                   (int)zo_max_i64(1, options->placement.weight_ring),
                   options->placement.reuse_max_elems);
    for (size_t i = 0; i < count; i++) {
        lister->uses[i].fetches |= renews(lister, i);
    }
    lister->use_count = count;
    lister->use_at = lister->fetch_at = 0;
    lister->staged = lister->gathered = 0;
    lister->gradients = lister->host_gradients = lister->nvme_pieces = 0;
    return ZO_OK;
}

/* The first bytes of a buffer: those of a unit in a ring of the largest. */
static struct zo_access head_of(zo_buffer_id id, enum zo_access_mode mode,
                                uint64_t bytes)
{
    return (struct zo_access){id, mode, 0, bytes};
}

/* What weights on the host are copied or cast from. */
static zo_buffer_id source_of(const struct zo_build *build, int unit, int d)
{
    const struct zo_unit_buffers *buffers = zo_build_unit(build, unit, d);

    return zo_build_casts(&build->options, unit) ? buffers->master
                                                 : buffers->weights;
}

/* The host makes what is copied; behind the last use, ahead of updates of
 * units that are needed later. */
static enum zo_status stage(struct zo_lister *lister, int unit, int device,
                            zo_buffer_id staging)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int64_t elems = options->units[unit].elems;
    const enum zo_dtype from =
        zo_build_casts(options, unit) ? ZO_F32 : options->type;
    const struct zo_op op = {
        .name = "weights prepared",
        .run = zo_build_run_stage,
        .args = {elems, options->type, from},
        .unit = unit,
        .micro = -1,
        .priority = unit,
        .parts = (int)zo_div_ceil(elems, ZO_TILE_ELEMS),
    };

    return zo_lister_cpu(
        lister, &op,
        (const struct zo_access[]){
            head_of(staging, ZO_WRITE,
                    (uint64_t)elems * zo_dtype_bytes(options->type)),
            zo_whole(&build->program, source_of(build, unit, device), ZO_READ),
        },
        2);
}

static zo_buffer_id place_of(const struct zo_lister *lister,
                             const struct zo_use *use, int device)
{
    const struct zo_build *build = lister->build;
    const struct zo_unit_buffers *unit =
        zo_build_unit(build, use->unit, device);

    if (use->slot != ZO_NO_SLOT) {
        return build->weight_ring[device][use->slot];
    }
    return unit->device_weights != ZO_NO_BUFFER ? unit->device_weights
                                                : unit->weights;
}

/* Of a range of elements in a buffer that begins with the unit. */
static struct zo_access part_of(zo_buffer_id id, enum zo_access_mode mode,
                                struct zo_held part, size_t elem_bytes)
{
    return (struct zo_access){id, mode, (uint64_t)part.first * elem_bytes,
                              (uint64_t)part.count * elem_bytes};
}

/* From the host: each device gets what it owns over its own bus, into its
 * place for the use or, at stage 3, into the shard that it keeps. */
static enum zo_status fetch_from_host(struct zo_lister *lister,
                                      const struct zo_use *use, bool keeps)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const size_t elem_bytes = zo_dtype_bytes(options->type);
    zo_buffer_id source = zo_build_unit(build, use->unit, 0)->weights;

    if (zo_build_loads_weights(options, use->unit)) {
        source = build->staging_ring[lister->staged++ % ZO_STAGING_DEPTH];
        ZO_TRY(zo_lister_load_weights(lister, use->unit, source));
    } else if (zo_build_stages(options, use->unit)) {
        source = build->staging_ring[lister->staged++ % ZO_STAGING_DEPTH];
        ZO_TRY(stage(lister, use->unit, 0, source));
    }
    for (int d = 0; d < options->device_count; d++) {
        const struct zo_held own = zo_build_own(options, use->unit, d);
        const zo_buffer_id kept =
            zo_build_unit(build, use->unit, d)->device_weights;

        ZO_TRY(zo_lister_copy(
            lister,
            &(struct zo_copy){
                .engine = ZO_ENGINE_H2D,
                .name = "weights to the device",
                .device = d,
                .unit = use->unit,
                .micro = -1,
                .target = keeps ? zo_whole(&build->program, kept, ZO_WRITE)
                                : part_of(place_of(lister, use, d), ZO_WRITE,
                                          own, elem_bytes),
                .source = part_of(source, ZO_READ, own, elem_bytes),
            }));
    }
    return ZO_OK;
}

enum zo_status zo_lister_gather_weights(const struct zo_lister *lister,
                                        int unit, const zo_buffer_id *weights,
                                        bool from_shards)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const size_t elem_bytes = zo_dtype_bytes(options->type);
    const struct zo_held whole = {0, options->units[unit].elems};
    const struct zo_op op = {
        .name = "weights gathered",
        .run = from_shards ? zo_build_run_gather_shards : zo_build_run_gather,
        .args = {options->units[unit].shard_elems * (int64_t)elem_bytes},
        .engine = ZO_ENGINE_COLLECTIVE,
        .unit = unit,
        .micro = -1,
    };
    struct zo_access accesses[2 * ZO_DEVICES_MAX];
    size_t count = 0;

    for (int d = 0; d < options->device_count; d++) {
        accesses[count++] =
            part_of(weights[d], from_shards ? ZO_WRITE : ZO_READ_WRITE, whole,
                    elem_bytes);
        if (from_shards) {
            const struct zo_unit_buffers *own = zo_build_unit(build, unit, d);

            accesses[count++] = zo_whole(&build->program,
                                         own->device_weights != ZO_NO_BUFFER
                                             ? own->device_weights
                                             : own->weights,
                                         ZO_READ);
        }
    }
    return zo_schedule_add(&build->program, lister->schedule, &op, accesses,
                           count);
}

static enum zo_status fetch(struct zo_lister *lister, const struct zo_use *use)
{
    const struct zo_build_options *options = &lister->build->options;
    const bool keeps = zo_build_stage(options) == 3 &&
                       zo_build_copies_back(options, use->unit);
    const bool from_host = zo_build_weights_leave(options, use->unit) ||
                           zo_build_offloads(options, use->unit);
    zo_buffer_id places[ZO_DEVICES_MAX];

    for (int d = 0; d < options->device_count; d++) {
        places[d] = place_of(lister, use, d);
    }
    if (from_host && (!keeps || is_first_use(lister, use))) {
        ZO_TRY(fetch_from_host(lister, use, keeps));
    } else if (!from_host && options->decides && !options->evaluates_only &&
               is_first_use(lister, use)) {
        /* Shards whose update a decision has held up. */
        ZO_TRY(zo_lister_update_all(lister, use->unit, NULL));
    }
    return options->device_count == 1
               ? ZO_OK
               : zo_lister_gather_weights(lister, use->unit, places,
                                          keeps || !from_host);
}

enum zo_status zo_lister_use(struct zo_lister *lister, int unit)
{
    const struct zo_build_options *options = &lister->build->options;
    const bool waits = options->placement.waits_to_fetch;
    const size_t at = lister->use_at++;

    ZO_ASSERT(at < lister->use_count && lister->uses[at].unit == unit);
    while (lister->fetch_at < lister->use_count) {
        const struct zo_use *next = &lister->uses[lister->fetch_at];

        if (next->fetches &&
            (next->after >= (int64_t)at || (waits && lister->fetch_at > at))) {
            break;
        }
        if (next->fetches) {
            ZO_TRY(fetch(lister, next));
        }
        lister->fetch_at++;
    }
    for (int d = 0; d < options->device_count; d++) {
        lister->weights[d] = place_of(lister, &lister->uses[at], d);
    }
    return ZO_OK;
}

/* ---- rows -----------------------------------------------------------------
 */

enum zo_status zo_lister_gather(struct zo_lister *lister, int unit, int micro,
                                int device)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int part = micro * options->device_count + device;
    const zo_buffer_id staging =
        build->rows_ring[lister->gathered++ %
                         (ZO_STAGING_DEPTH * options->device_count)];
    zo_buffer_id *id = zo_lister_part(lister->rows, lister, 0, micro, device);
    const struct zo_emit emit = {.program = &build->program,
                                 .schedule = lister->schedule,
                                 .device = device,
                                 .unit = unit};
    struct zo_unit_rows rows = {0};
    struct zo_op op = {
        .name = "rows gathered",
        .context = options->model,
        .args = {zo_build_casts(options, unit) ? ZO_F32 : options->type,
                 device},
        .unit = unit,
        .micro = micro,
        .priority = unit};

    ZO_ASSERT(zo_build_gathers(options, unit, &rows));
    op.run = rows.gather;
    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_WEIGHT_RING, "embedding rows",
                          rows.row_bytes * rows.rows_max, id));
    ZO_TRY(zo_lister_cpu(
        lister, &op,
        (const struct zo_access[]){
            zo_whole(&build->program, build->record, ZO_READ),
            zo_whole(&build->program, staging, ZO_WRITE),
            zo_whole(&build->program, source_of(build, unit, device), ZO_READ),
            {build->batch_host, ZO_READ, (uint64_t)part * options->batch_bytes,
             options->batch_bytes},
        },
        4));
    op.name = "rows to the device";
    op.run = zo_build_run_copy_rows;
    op.args[0] = (int64_t)rows.row_bytes;
    op.engine = ZO_ENGINE_H2D;
    op.device = device;
    return zo_schedule_add(
        &build->program, lister->schedule, &op,
        (const struct zo_access[]){
            zo_whole(&build->program, *id, ZO_WRITE),
            zo_whole(&build->program, staging, ZO_READ),
            zo_whole(&build->program, build->record, ZO_READ),
        },
        3);
}

/* ---- boundaries -----------------------------------------------------------
 */

enum zo_status zo_lister_put_boundary(struct zo_lister *lister, int unit,
                                      int micro, int device)
{
    struct zo_build *build = lister->build;
    const struct zo_buffer buffer = {
        .name = "boundary",
        .purpose = ZO_PURPOSE_BOUNDARY,
        .tier = ZO_TIER_CPU,
        .unit = unit,
        .schedule = lister->schedule,
        .bytes = build->options.boundary_bytes,
    };
    zo_buffer_id *id =
        zo_lister_part(lister->waiting, lister, unit, micro, device);

    ZO_TRY(zo_program_buffer(&build->program, &buffer, id));
    return zo_lister_copy(
        lister,
        &(struct zo_copy){
            .engine = ZO_ENGINE_D2H,
            .name = "boundary to the host",
            .device = device,
            .unit = unit,
            .micro = micro,
            .target = zo_whole(&build->program, *id, ZO_WRITE),
            .source = zo_whole(&build->program,
                               *zo_lister_part(lister->boundaries, lister, unit,
                                               micro, device),
                               ZO_READ),
        });
}

enum zo_status zo_lister_get_boundary(struct zo_lister *lister, int unit,
                                      int micro, int device)
{
    struct zo_build *build = lister->build;
    const struct zo_emit emit = {.program = &build->program,
                                 .schedule = lister->schedule,
                                 .device = device,
                                 .unit = unit};
    zo_buffer_id *id =
        zo_lister_part(lister->boundaries, lister, unit, micro, device);

    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BOUNDARY, "boundary",
                          build->options.boundary_bytes, id));
    return zo_lister_copy(
        lister, &(struct zo_copy){
                    .engine = ZO_ENGINE_H2D,
                    .name = "boundary to the device",
                    .device = device,
                    .unit = unit,
                    .micro = micro,
                    .target = zo_whole(&build->program, *id, ZO_WRITE),
                    .source = zo_whole(&build->program,
                                       *zo_lister_part(lister->waiting, lister,
                                                       unit, micro, device),
                                       ZO_READ),
                });
}
