#include "offload/builder.h"

#include <string.h>

#include "offload/builder_internal.h"
#include "offload/layout.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

/* ---- for models --------------------------------------------------------- */

enum zo_status zo_emit_buffer(const struct zo_emit *emit,
                              enum zo_purpose purpose, const char *name,
                              uint64_t bytes, zo_buffer_id *id_out)
{
    const struct zo_buffer buffer = {
        .name = name,
        .purpose = purpose,
        .tier = ZO_TIER_GPU,
        .device = emit->device,
        .unit = emit->unit,
        .schedule = emit->schedule,
        .bytes = bytes,
    };

    return zo_program_buffer(emit->program, &buffer, id_out);
}

enum zo_status zo_emit_op(const struct zo_emit *emit, const struct zo_op *op,
                          const struct zo_access *accesses, size_t access_count)
{
    struct zo_access all[ZO_EMIT_ACCESSES_MAX];
    struct zo_op added = *op;

    ZO_ASSERT(access_count < ZO_EMIT_ACCESSES_MAX);
    added.engine = ZO_ENGINE_COMPUTE;
    added.device = emit->device;
    added.unit = emit->unit;
    added.micro = emit->micro;
    all[0] = zo_whole(emit->program, emit->record, ZO_READ);
    for (size_t i = 0; i < access_count; i++) {
        all[i + 1] = accesses[i];
    }
    return zo_schedule_add(emit->program, emit->schedule, &added, all,
                           access_count + 1);
}

const struct zo_micro_counts *zo_call_counts(const struct zo_op_call *call)
{
    const struct zo_step_record *record = call->at[0];

    return &record->counts[call->op->micro * call->machine->device_count +
                           call->op->device];
}

/* ---- emitting lists ------------------------------------------------------ */

static zo_buffer_id *part(zo_buffer_id *ids, const struct zo_lister *lister,
                          int outer, int micro, int device)
{
    const struct zo_build_options *options = &lister->build->options;

    return &ids[(outer * options->micros + micro) * options->device_count +
                device];
}

static struct zo_emit emit_of(const struct zo_lister *lister, int unit,
                              int micro, int device)
{
    struct zo_build *build = lister->build;

    return (struct zo_emit){
        .program = &build->program,
        .schedule = lister->schedule,
        .tokens_max = build->options.tokens_max,
        .labels_max = build->options.labels_max,
        .unit = unit,
        .device = device,
        .micro = micro,
        .trains = lister->trains,
        .is_first = micro == 0,
        .keep = build->options.placement.keep,
        .weights = zo_build_unit(build, unit, device)->weights,
        .grad_sum = ZO_NO_BUFFER,
        .batch = *part(lister->batches, lister, 0, micro, device),
        .input = unit > 0 ? *part(lister->boundaries, lister, unit - 1, micro,
                                  device)
                          : ZO_NO_BUFFER,
        .output = ZO_NO_BUFFER,
        .d_input = ZO_NO_BUFFER,
        .d_output = ZO_NO_BUFFER,
        .losses = build->losses[device],
        .logits = ZO_NO_BUFFER,
        .cache = ZO_NO_BUFFER,
        .record = build->record,
        .control = build->control,
    };
}

static enum zo_status emit_copy(const struct zo_lister *lister,
                                enum zo_engine engine, const char *name,
                                int device, struct zo_access target,
                                struct zo_access source)
{
    const struct zo_op op = {
        .name = name,
        .run = zo_build_run_copy,
        .args = {(int64_t)target.bytes},
        .engine = engine,
        .device = device,
        .unit = -1,
        .micro = -1,
    };

    return zo_schedule_add(&lister->build->program, lister->schedule, &op,
                           (const struct zo_access[]){target, source}, 2);
}

static enum zo_status emit_upload(struct zo_lister *lister, int micro,
                                  int device)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const struct zo_emit emit = {
        .program = &build->program,
        .schedule = lister->schedule,
        .device = device,
        .unit = -1,
    };
    const uint64_t offset = (uint64_t)(micro * options->device_count + device) *
                            options->batch_bytes;
    zo_buffer_id *id = part(lister->batches, lister, 0, micro, device);

    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BATCH, "batch",
                          options->batch_bytes, id));
    return emit_copy(lister, ZO_ENGINE_H2D, "batch upload", device,
                     zo_whole(&build->program, *id, ZO_WRITE),
                     (struct zo_access){build->batch_host, ZO_READ, offset,
                                        options->batch_bytes});
}

static enum zo_status emit_adamw(const struct zo_lister *lister, int u, int d)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_unit_buffers *unit = zo_build_unit(build, u, d);
    const zo_buffer_id second = build->options.type == ZO_BF16 ? unit->remainder
                                : build->options.type == ZO_F16
                                    ? unit->master
                                    : unit->exp_avg; /* fp32: none */
    const struct zo_access accesses[] = {
        zo_whole(program, build->record, ZO_READ),
        zo_whole(program, build->control, ZO_READ),
        zo_whole(program, unit->weights, ZO_READ_WRITE),
        zo_whole(program, second, ZO_READ_WRITE),
        zo_whole(program, unit->exp_avg, ZO_READ_WRITE),
        zo_whole(program, unit->exp_avg_sq, ZO_READ_WRITE),
        zo_whole(program, unit->grad, ZO_READ),
        {build->bad[d], ZO_READ_WRITE, (uint64_t)u * sizeof(uint32_t),
         sizeof(uint32_t)},
    };
    struct zo_access used[ZO_COUNT(accesses)];
    const struct zo_op op = {
        .name = "AdamW",
        .run = zo_build_run_adamw,
        .context = &build->options,
        .engine = ZO_ENGINE_COMPUTE,
        .device = d,
        .unit = u,
        .micro = -1,
    };

    memcpy(used, accesses, sizeof(used));
    if (!build->options.decides) {
        used[1].bytes = 0; /* nothing to wait for: the record has it all */
    }
    return zo_schedule_add(program, lister->schedule, &op, used,
                           ZO_COUNT(used));
}

static enum zo_status emit_forward(struct zo_lister *lister, int u, int micro,
                                   int d)
{
    const struct zo_build_options *options = &lister->build->options;
    struct zo_emit emit = emit_of(lister, u, micro, d);

    if (u + 1 < options->unit_count) {
        zo_buffer_id *id = part(lister->boundaries, lister, u, micro, d);

        ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BOUNDARY, "boundary",
                              options->boundary_bytes, id));
        emit.output = *id;
    }
    return options->model_ops->forward(options->model, &emit);
}

/* The gradient sums of a unit; its gaps are cleared at their first use. */
static enum zo_status open_sum(struct zo_lister *lister,
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

/* Backward of a unit; of the last one, forward and loss with it. */
static enum zo_status emit_backward(struct zo_lister *lister, int u, int micro,
                                    int d)
{
    const struct zo_build_options *options = &lister->build->options;
    const bool turns = u + 1 == options->unit_count;
    struct zo_emit emit = emit_of(lister, u, micro, d);

    if (emit.is_first) {
        ZO_TRY(open_sum(lister, &emit));
    }
    emit.grad_sum = lister->grad_sums[u * options->device_count + d];
    if (!turns) {
        emit.output = *part(lister->boundaries, lister, u, micro, d);
        emit.d_output = *part(lister->d_boundaries, lister, u, micro, d);
    }
    if (u > 0) {
        zo_buffer_id *id = part(lister->d_boundaries, lister, u - 1, micro, d);

        ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BOUNDARY, "boundary gradient",
                              options->boundary_bytes, id));
        emit.d_input = *id;
    }
    return turns ? options->model_ops->turn(options->model, &emit)
                 : options->model_ops->backward(options->model, &emit);
}

static enum zo_status emit_cast(const struct zo_lister *lister, int u, int d,
                                zo_buffer_id target, enum zo_dtype type)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const struct zo_op op = {
        .name = "gradient cast",
        .run = zo_build_run_cast,
        .args = {options->units[u].elems, type, ZO_F32},
        .engine = ZO_ENGINE_COMPUTE,
        .device = d,
        .unit = u,
        .micro = -1,
    };
    const zo_buffer_id sum = lister->grad_sums[u * options->device_count + d];

    return zo_schedule_add(&build->program, lister->schedule, &op,
                           (const struct zo_access[]){
                               zo_whole(&build->program, target, ZO_WRITE),
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
static enum zo_status finish_alone(const struct zo_lister *lister, int u)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_unit_buffers *unit = zo_build_unit(build, u, 0);
    const struct zo_op op = {
        .name = "gradient norm",
        .run = zo_build_run_norm,
        .context = &build->options,
        .engine = ZO_ENGINE_COMPUTE,
        .unit = u,
        .micro = -1,
    };

    ZO_TRY(emit_cast(lister, u, 0, unit->grad, build->options.type));
    return zo_schedule_add(
        program, lister->schedule, &op,
        (const struct zo_access[]){
            norm_access(build, u, 0),
            zo_whole(program, unit->grad, ZO_READ),
            zo_whole(program, build->norm_workspace[0], ZO_WRITE),
        },
        3);
}

/* Several devices: the sums, rounded, are exchanged and added at owners. */
static enum zo_status finish_together(const struct zo_lister *lister, int u)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_build_options *options = &build->options;
    const struct zo_unit *unit = &options->units[u];
    const size_t comm_bytes = zo_dtype_bytes(options->comm_type);
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
        .args = {bucket},
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
            zo_whole(program, zo_build_unit(build, u, d)->grad, ZO_WRITE);
        accesses[5 * d + 3] = norm_access(build, u, d);
        accesses[5 * d + 4] =
            zo_whole(program, build->norm_workspace[d], ZO_WRITE);
    }
    return zo_schedule_add(program, lister->schedule, &op, accesses,
                           5 * (size_t)options->device_count);
}

static enum zo_status finish_unit(const struct zo_lister *lister, int u)
{
    return lister->build->options.device_count == 1
               ? finish_alone(lister, u)
               : finish_together(lister, u);
}

/* ---- lists --------------------------------------------------------------- */

static enum zo_status emit_pass(struct zo_lister *lister, int begin, int end)
{
    const struct zo_build_options *options = &lister->build->options;
    const int devices = options->device_count;
    const int parts = (end - begin) * devices;

    for (int i = 0; i < parts; i++) {
        ZO_TRY(emit_upload(lister, begin + i / devices, i % devices));
    }
    for (int u = 0; u < options->unit_count; u++) {
        for (int d = 0; begin == 0 && d < devices; d++) {
            ZO_TRY(emit_adamw(lister, u, d));
        }
        for (int i = 0; u + 1 < options->unit_count && i < parts; i++) {
            ZO_TRY(emit_forward(lister, u, begin + i / devices, i % devices));
        }
    }
    for (int u = options->unit_count - 1; u >= 0; u--) {
        for (int i = 0; i < parts; i++) {
            ZO_TRY(emit_backward(lister, u, begin + i / devices, i % devices));
        }
        if (end == options->micros) {
            ZO_TRY(finish_unit(lister, u));
        }
    }
    return ZO_OK;
}

/* What the host wants to know, device by device. */
static enum zo_status emit_results(const struct zo_lister *lister, int d)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const uint64_t units = (uint64_t)options->unit_count;
    const struct {
        const char *name;
        zo_buffer_id target, source;
        uint64_t bytes;
        bool trains;
    } copies[] = {
        {"norms to the host", build->norms_host, build->norms[d],
         units * sizeof(struct zo_norm_result), true},
        {"losses to the host", build->losses_host, build->losses[d],
         zo_build_losses_bytes(options), false},
        {"checks to the host", build->bad_host, build->bad[d],
         units * sizeof(uint32_t), true},
    };

    for (size_t i = 0; i < ZO_COUNT(copies); i++) {
        if (copies[i].trains && !lister->trains) {
            continue;
        }
        ZO_TRY(emit_copy(
            lister, ZO_ENGINE_D2H, copies[i].name, d,
            (struct zo_access){copies[i].target, ZO_WRITE,
                               (uint64_t)d * copies[i].bytes, copies[i].bytes},
            (struct zo_access){copies[i].source, ZO_READ, 0, copies[i].bytes}));
    }
    return ZO_OK;
}

static enum zo_status emit_decide(const struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    struct zo_program *program = &build->program;
    const struct zo_op op = {
        .name = "decide",
        .run = zo_build_run_decide,
        .context = &build->options,
        .engine = ZO_ENGINE_CPU,
        .unit = -1,
        .micro = -1,
    };

    return zo_schedule_add(program, lister->schedule, &op,
                           (const struct zo_access[]){
                               zo_whole(program, build->record, ZO_READ),
                               zo_whole(program, build->norms_host, ZO_READ),
                               zo_whole(program, build->losses_host, ZO_READ),
                               zo_whole(program, build->bad_host, ZO_READ),
                               zo_whole(program, build->control, ZO_READ_WRITE),
                               zo_whole(program, build->result, ZO_WRITE),
                           },
                           6);
}

static enum zo_status build_step(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;

    build->step_schedule = lister->schedule =
        zo_program_schedule(&build->program, "step");
    lister->trains = true;
    for (int begin = 0; begin < options->micros;
         begin += options->placement.pass_micros) {
        ZO_TRY(emit_pass(
            lister, begin,
            (int)zo_min_i64(begin + options->placement.pass_micros, options->micros)));
    }
    for (int d = 0; d < options->device_count; d++) {
        ZO_TRY(emit_results(lister, d));
    }
    return emit_decide(lister);
}

/* One micro batch a device, forward only. */
static enum zo_status build_evaluation(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;

    build->evaluation_schedule = lister->schedule =
        zo_program_schedule(&build->program, "evaluation");
    lister->trains = false;
    for (int d = 0; d < options->device_count; d++) {
        ZO_TRY(emit_upload(lister, 0, d));
    }
    for (int u = 0; u < options->unit_count; u++) {
        for (int d = 0; d < options->device_count; d++) {
            if (!options->evaluates_only) {
                ZO_TRY(emit_adamw(lister, u, d));
            }
            ZO_TRY(emit_forward(lister, u, 0, d));
        }
    }
    for (int d = 0; d < options->device_count; d++) {
        ZO_TRY(emit_results(lister, d));
    }
    return ZO_OK;
}

static enum zo_status build_tail(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;

    build->tail_schedule = lister->schedule =
        zo_program_schedule(&build->program, "last update");
    for (int u = 0; u < options->unit_count; u++) {
        for (int d = 0; d < options->device_count; d++) {
            ZO_TRY(emit_adamw(lister, u, d));
        }
    }
    return ZO_OK;
}

static enum zo_status open_lister(struct zo_lister *lister)
{
    const struct zo_build_options *options = &lister->build->options;
    const size_t devices = (size_t)options->device_count;
    const size_t parts = (size_t)options->micros * devices;
    const size_t units = (size_t)options->unit_count;

    ZO_TRY(zo_alloc(units * parts, sizeof(zo_buffer_id), "the builder",
                    &lister->boundaries));
    ZO_TRY(zo_alloc(units * parts, sizeof(zo_buffer_id), "the builder",
                    &lister->d_boundaries));
    ZO_TRY(zo_alloc(units * devices, sizeof(zo_buffer_id), "the builder",
                    &lister->grad_sums));
    return zo_alloc(parts, sizeof(zo_buffer_id), "the builder",
                    &lister->batches);
}

static void close_lister(struct zo_lister *lister)
{
    zo_free(lister->boundaries);
    zo_free(lister->d_boundaries);
    zo_free(lister->grad_sums);
    zo_free(lister->batches);
}

static enum zo_status build_all(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;

    ZO_TRY(open_lister(lister));
    ZO_TRY(zo_alloc((size_t)options->unit_count * (size_t)options->device_count,
                    sizeof(build->units[0]), "the builder", &build->units));
    for (int d = 0; d < options->device_count; d++) {
        ZO_TRY(zo_build_add_device(build, d));
    }
    ZO_TRY(zo_build_add_host(build));
    if (!options->evaluates_only) {
        ZO_TRY(build_step(lister));
        ZO_TRY(build_tail(lister));
    }
    if (options->has_evaluation || options->evaluates_only) {
        ZO_TRY(build_evaluation(lister));
    }
    return zo_layout(&build->program);
}

enum zo_status zo_build_train(const struct zo_build_options *options,
                              struct zo_build *build_out)
{
    struct zo_lister lister = {.build = build_out};
    enum zo_status status;

    ZO_ASSERT(options->unit_count >= 2);
    ZO_ASSERT(options->placement.pass_micros >= 1 &&
              options->placement.pass_micros <= options->micros);
    *build_out =
        (struct zo_build){.options = *options, .evaluation_schedule = -1};
    zo_program_init(&build_out->program, options->device_count);
    status = build_all(&lister);
    close_lister(&lister);
    if (status != ZO_OK) {
        zo_build_fini(build_out);
    }
    return status;
}

void zo_build_fini(struct zo_build *build)
{
    if (build == NULL) {
        return;
    }
    zo_program_fini(&build->program);
    zo_free(build->units);
    *build = (struct zo_build){0};
}
