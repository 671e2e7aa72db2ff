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

        ZO_TRY(add_buffer(build, "weights", ZO_PURPOSE_WEIGHTS, ZO_TIER_GPU, u,
                          (uint64_t)options->units[u].elems *
                              zo_dtype_bytes(options->type),
                          &build->weights[u]));
        build->caches[u] = ZO_NO_BUFFER;
        if (is_layer && options->cache_bytes > 0) {
            ZO_TRY(add_buffer(build, "key/value cache", ZO_PURPOSE_CACHE,
                              ZO_TIER_GPU, u, options->cache_bytes,
                              &build->caches[u]));
        }
    }
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
                                struct zo_access target,
                                struct zo_access source)
{
    const struct zo_op op = {
        .name = name,
        .run = zo_build_run_copy,
        .args = {(int64_t)source.bytes},
        .engine = engine,
        .unit = -1,
        .micro = -1,
    };

    return zo_schedule_add(&build->program, schedule, &op,
                           (const struct zo_access[]){target, source}, 2);
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

    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BATCH, "batch",
                          options->batch_bytes, &emit.batch));
    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_LOGITS, "logits",
                          (uint64_t)(labels * options->vocab) * sizeof(float),
                          &emit.logits));
    ZO_TRY(emit_copy(build, emit.schedule, ZO_ENGINE_H2D, "batch upload",
                     zo_whole(&build->program, emit.batch, ZO_WRITE),
                     zo_whole(&build->program, build->batch_host, ZO_READ)));
    emit.output = ZO_NO_BUFFER;
    for (emit.unit = 0; emit.unit < options->unit_count; emit.unit++) {
        emit.input = emit.output;
        emit.output = ZO_NO_BUFFER;
        emit.weights = build->weights[emit.unit];
        emit.cache = build->caches[emit.unit];
        if (emit.unit + 1 < options->unit_count) {
            ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BOUNDARY, "boundary",
                                  (uint64_t)tokens * options->token_bytes,
                                  &emit.output));
        }
        ZO_TRY(options->model_ops->forward(options->model, &emit));
    }
    *schedule_out = emit.schedule;
    return emit_copy(
        build, emit.schedule, ZO_ENGINE_D2H, "logits to the host",
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
