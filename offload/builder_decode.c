/*
 * The program of decoding.  Row 5.
 */
#include "offload/builder_internal.h"
#include "offload/layout.h"
#include "src/base/memory.h"

static enum zo_status add_buffer(struct zo_decode_build *build,
                                 const char *name, enum zo_purpose purpose,
                                 enum zo_tier tier, int unit, uint64_t bytes,
                                 zo_buffer_id *id_out)
{
    const struct zo_buffer buffer = {
        .name = name,
        .purpose = purpose,
        .tier = tier,
        .unit = unit,
        .schedule = -1,
        .bytes = bytes,
        .has_slots = tier == ZO_TIER_CPU,
    };

    return zo_program_buffer(&build->program, &buffer, id_out);
}

static uint64_t unit_bytes(const struct zo_decode_options *options, int unit)
{
    return (uint64_t)options->units[unit].elems * zo_dtype_bytes(options->type);
}

/* Whether a unit of the host is read by rows, and not fetched whole. */
static bool gathers(const struct zo_decode_options *options, int unit,
                    struct zo_unit_rows *rows_out)
{
    return unit < options->host_units && options->model_ops->rows != NULL &&
           options->model_ops->rows(options->model, unit, rows_out);
}

static bool streams(const struct zo_decode_options *options, int unit)
{
    struct zo_unit_rows rows;

    return unit < options->host_units && !gathers(options, unit, &rows);
}

/* What weights on the host pass through. */
static enum zo_status add_rings(const struct zo_decode_options *options,
                                struct zo_decode_build *build)
{
    struct zo_unit_rows rows;
    uint64_t largest = 0;

    build->rows_host = ZO_NO_BUFFER;
    for (int u = 0; u < options->host_units; u++) {
        if (gathers(options, u, &rows)) {
            ZO_TRY(add_buffer(build, "embedding rows", ZO_PURPOSE_WEIGHT_RING,
                              ZO_TIER_CPU, u, rows.row_bytes * rows.rows_max,
                              &build->rows_host));
        } else if (unit_bytes(options, u) > largest) {
            largest = unit_bytes(options, u);
        }
    }
    for (int i = 0; i < ZO_DECODE_RING; i++) {
        build->ring[i] = ZO_NO_BUFFER;
        if (largest > 0) {
            ZO_TRY(add_buffer(build, "weights passing through",
                              ZO_PURPOSE_WEIGHT_RING, ZO_TIER_GPU, -1, largest,
                              &build->ring[i]));
        }
    }
    return ZO_OK;
}

static enum zo_status add_weights(const struct zo_decode_options *options,
                                  struct zo_decode_build *build, int unit)
{
    const struct zo_buffer buffer = {
        .name = "weights",
        .purpose = ZO_PURPOSE_WEIGHTS,
        .tier = unit < options->host_units ? ZO_TIER_CPU : ZO_TIER_GPU,
        .unit = unit,
        .schedule = -1,
        .bytes = unit_bytes(options, unit),
    };

    return zo_program_buffer(&build->program, &buffer, &build->weights[unit]);
}

static enum zo_status add_persistent(const struct zo_decode_options *options,
                                     struct zo_decode_build *build)
{
    const size_t units = (size_t)options->unit_count;

    ZO_TRY(zo_alloc(units, sizeof(build->weights[0]), "the builder",
                    &build->weights));
    ZO_TRY(zo_alloc(units, sizeof(build->caches[0]), "the builder",
                    &build->caches));
    for (int u = 0; u < options->unit_count; u++) {
        const bool is_layer = u > 0 && u + 1 < options->unit_count;

        ZO_TRY(add_weights(options, build, u));
        build->caches[u] = ZO_NO_BUFFER;
        if (is_layer && options->cache_bytes > 0) {
            ZO_TRY(add_buffer(build, "key/value cache", ZO_PURPOSE_CACHE,
                              ZO_TIER_GPU, u, options->cache_bytes,
                              &build->caches[u]));
        }
    }
    ZO_TRY(add_rings(options, build));
    ZO_TRY(add_buffer(build, "step record", ZO_PURPOSE_CONTROL, ZO_TIER_CPU, -1,
                      sizeof(struct zo_step_record) +
                          sizeof(struct zo_micro_counts),
                      &build->record));
    ZO_TRY(add_buffer(build, "batch", ZO_PURPOSE_BATCH, ZO_TIER_CPU, -1,
                      options->batch_bytes, &build->batch_host));
    ZO_TRY(add_buffer(build, "logits", ZO_PURPOSE_LOGITS, ZO_TIER_CPU, -1,
                      (uint64_t)(options->labels_max * options->vocab) *
                          sizeof(float),
                      &build->logits_host));
    return options->model_ops->prepare(options->model, &build->program, 0);
}

static enum zo_status emit_copy(struct zo_decode_build *build, int schedule,
                                enum zo_engine engine, const char *name,
                                int unit, struct zo_access target,
                                struct zo_access source)
{
    const struct zo_op op = {
        .name = name,
        .run = zo_build_run_copy,
        .args = {(int64_t)source.bytes},
        .engine = engine,
        .unit = unit,
        .micro = -1,
    };

    return zo_schedule_add(&build->program, schedule, &op,
                           (const struct zo_access[]){target, source}, 2);
}

/* A list that is being built: which units of the host are on their way. */
struct walk {
    const struct zo_decode_options *options;
    struct zo_decode_build *build;
    int schedule;
    int next;    /* unit to look at for the next fetch */
    int fetched; /* units fetched so far */
    int used;    /* of those, units used */
};

/* Brings the next unit of the host into the ring, if one is left. */
static enum zo_status fetch_next(struct walk *walk)
{
    const struct zo_decode_options *options = walk->options;
    const int host_units = options->host_units;
    struct zo_decode_build *build = walk->build;

    while (walk->next < host_units && !streams(options, walk->next)) {
        walk->next++;
    }
    if (walk->next >= host_units) {
        return ZO_OK;
    }
    ZO_TRY(emit_copy(
        build, walk->schedule, ZO_ENGINE_H2D, "weights to the device",
        walk->next,
        (struct zo_access){build->ring[walk->fetched % ZO_DECODE_RING],
                           ZO_WRITE, 0, unit_bytes(options, walk->next)},
        zo_whole(&build->program, build->weights[walk->next], ZO_READ)));
    walk->next++;
    walk->fetched++;
    return ZO_OK;
}

/* The rows that the batch uses, through the host's staging buffer. */
static enum zo_status gather_rows(const struct walk *walk,
                                  const struct zo_unit_rows *rows,
                                  struct zo_emit *emit)
{
    struct zo_decode_build *build = walk->build;
    struct zo_program *program = &build->program;
    struct zo_op op = {
        .name = "rows gathered",
        .run = rows->gather,
        .context = walk->options->model,
        .args = {walk->options->type, 0},
        .engine = ZO_ENGINE_CPU,
        .unit = emit->unit,
        .micro = 0,
        .parts = 1,
    };

    ZO_TRY(zo_emit_buffer(emit, ZO_PURPOSE_WEIGHT_RING, "embedding rows",
                          rows->row_bytes * rows->rows_max, &emit->weights));
    emit->has_rows = true;
    ZO_TRY(zo_schedule_add(
        program, walk->schedule, &op,
        (const struct zo_access[]){
            zo_whole(program, build->record, ZO_READ),
            zo_whole(program, build->rows_host, ZO_WRITE),
            zo_whole(program, build->weights[emit->unit], ZO_READ),
            zo_whole(program, build->batch_host, ZO_READ),
        },
        4));
    op = (struct zo_op){
        .name = "rows to the device",
        .run = zo_build_run_copy_rows,
        .args = {(int64_t)rows->row_bytes},
        .engine = ZO_ENGINE_H2D,
        .unit = emit->unit,
        .micro = 0,
    };
    return zo_schedule_add(program, walk->schedule, &op,
                           (const struct zo_access[]){
                               zo_whole(program, emit->weights, ZO_WRITE),
                               zo_whole(program, build->rows_host, ZO_READ),
                               zo_whole(program, build->record, ZO_READ),
                           },
                           3);
}

/* Forward through one unit, wherever its weights are. */
static enum zo_status walk_unit(struct walk *walk, struct zo_emit *emit)
{
    const struct zo_decode_options *options = walk->options;
    struct zo_unit_rows rows;

    emit->has_rows = false;
    emit->weights = walk->build->weights[emit->unit];
    if (gathers(options, emit->unit, &rows)) {
        ZO_TRY(gather_rows(walk, &rows, emit));
    } else if (streams(options, emit->unit)) {
        emit->weights = walk->build->ring[walk->used++ % ZO_DECODE_RING];
    }
    ZO_TRY(options->model_ops->forward(options->model, emit));
    return streams(options, emit->unit) ? fetch_next(walk) : ZO_OK;
}

/* Forward through all units, for up to tokens tokens. */
static enum zo_status build_list(const struct zo_decode_options *options,
                                 struct zo_decode_build *build,
                                 const char *name, int64_t tokens,
                                 int64_t labels, int *schedule_out)
{
    struct zo_emit emit = {
        .program = &build->program,
        .schedule = zo_program_schedule(&build->program, name),
        .tokens_max = tokens,
        .labels_max = labels,
        .unit = -1,
        .grad_sum = ZO_NO_BUFFER,
        .d_input = ZO_NO_BUFFER,
        .d_output = ZO_NO_BUFFER,
        .losses = ZO_NO_BUFFER,
        .record = build->record,
        .control = ZO_NO_BUFFER,
    };
    struct walk walk = {
        .options = options, .build = build, .schedule = emit.schedule};

    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BATCH, "batch",
                          options->batch_bytes, &emit.batch));
    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_LOGITS, "logits",
                          (uint64_t)(labels * options->vocab) * sizeof(float),
                          &emit.logits));
    ZO_TRY(emit_copy(build, emit.schedule, ZO_ENGINE_H2D, "batch upload", -1,
                     zo_whole(&build->program, emit.batch, ZO_WRITE),
                     zo_whole(&build->program, build->batch_host, ZO_READ)));
    for (int i = 0; i < ZO_DECODE_RING; i++) {
        ZO_TRY(fetch_next(&walk));
    }
    emit.output = ZO_NO_BUFFER;
    for (emit.unit = 0; emit.unit < options->unit_count; emit.unit++) {
        emit.input = emit.output;
        emit.output = ZO_NO_BUFFER;
        emit.cache = build->caches[emit.unit];
        if (emit.unit + 1 < options->unit_count) {
            ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BOUNDARY, "boundary",
                                  (uint64_t)tokens * options->token_bytes,
                                  &emit.output));
        }
        ZO_TRY(walk_unit(&walk, &emit));
    }
    *schedule_out = emit.schedule;
    return emit_copy(
        build, emit.schedule, ZO_ENGINE_D2H, "logits to the host", -1,
        (struct zo_access){build->logits_host, ZO_WRITE, 0,
                           (uint64_t)(labels * options->vocab) * sizeof(float)},
        zo_whole(&build->program, emit.logits, ZO_READ));
}

enum zo_status zo_build_decode(const struct zo_decode_options *options,
                               struct zo_decode_build *build_out)
{
    enum zo_status status;

    ZO_ASSERT(options->unit_count >= 2);
    *build_out = (struct zo_decode_build){0};
    zo_program_init(&build_out->program, 1);
    ZO_TRY_GOTO(fini_build, add_persistent(options, build_out));
    ZO_TRY_GOTO(fini_build,
                build_list(options, build_out, "prompt", options->tokens_max,
                           options->labels_max, &build_out->prompt_schedule));
    ZO_TRY_GOTO(fini_build, build_list(options, build_out, "token", 1, 1,
                                       &build_out->token_schedule));
    ZO_TRY_GOTO(fini_build, zo_layout(&build_out->program));
    return ZO_OK;

fini_build:
    zo_decode_build_fini(build_out);
    return status;
}

void zo_decode_build_fini(struct zo_decode_build *build)
{
    if (build == NULL) {
        return;
    }
    zo_program_fini(&build->program);
    zo_free(build->weights);
    zo_free(build->caches);
    *build = (struct zo_decode_build){0};
}
