#include "tests/fake_model.h"

#include <math.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/random.h"
#include "src/device/stream_host.h"
#include "tests/offload_help.h"

enum { INNER_BYTES = 96, CACHE_BYTES = 60, CHUNK = 16384 };

/* ---- the model's operations ---------------------------------------------- */

/* The last access takes floats in (-1, 1): set, or added when it is read. */
static enum zo_status grads_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct help_mix_args args;
    uint64_t hash;
    float *grads;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    args.count--;
    hash = help_hash(&args);
    grads = args.at[args.count];
    for (uint32_t i = 0; i < args.bytes[args.count] / sizeof(float); i++) {
        const float grad = (float)(2.0 * zo_random_uniform(hash, i) - 1.0);

        grads[i] = args.modes[args.count] == ZO_WRITE ? grad : grads[i] + grad;
    }
    return ZO_OK;
}

static enum zo_status run_grads(const struct zo_op_call *call)
{
    const struct help_mix_args args = help_mix_args_of(call);

    return zo_stream_host_submit(call->streams[0], grads_in_stream, &args,
                                 sizeof(args));
}

static enum zo_status emit_op(const struct zo_emit *emit, const char *name,
                              zo_op_fn run, const struct zo_access *accesses,
                              size_t count)
{
    /* The seed is that of the place in the model, not in the list. */
    const struct zo_op op = {
        .name = name,
        .run = run,
        .context = emit->program,
        .args = {emit->schedule,
                 (int64_t)(zo_random_key((uint64_t)emit->unit, name) >> 1)},
    };

    return zo_emit_op(emit, &op, accesses, count);
}

#define EMIT(emit, name, run, ...)                                          \
    emit_op((emit), (name), (run), (const struct zo_access[]){__VA_ARGS__}, \
            sizeof((const struct zo_access[]){__VA_ARGS__}) /               \
                sizeof(struct zo_access))

static struct zo_access whole(const struct zo_emit *emit, zo_buffer_id id,
                              enum zo_access_mode mode)
{
    return zo_whole(emit->program, id, mode);
}

/* What an operation reads or writes where a unit has such a buffer. */
static struct zo_access whole_if(const struct zo_emit *emit, zo_buffer_id id,
                                 enum zo_access_mode mode)
{
    return id == ZO_NO_BUFFER ? (struct zo_access){emit->batch, mode, 0, 0}
                              : whole(emit, id, mode);
}

static struct zo_access tensor_of(const struct fake_model *model,
                                  const struct zo_emit *emit, int index,
                                  zo_buffer_id id, size_t elem_bytes,
                                  enum zo_access_mode mode)
{
    const struct zo_unit_tensor *tensor = &model->tensors[emit->unit][index];

    return (struct zo_access){id, mode,
                              (uint64_t)tensor->offset_elems * elem_bytes,
                              (uint64_t)tensor->elems * elem_bytes};
}

static enum zo_status prepare(void *context, struct zo_program *program,
                              int device)
{
    struct fake_model *model = context;
    struct zo_buffer buffer = {.name = "table",
                               .purpose = ZO_PURPOSE_BATCH,
                               .tier = ZO_TIER_GPU,
                               .device = device,
                               .unit = -1,
                               .schedule = -1,
                               .bytes = 50};

    ZO_TRY(zo_program_buffer(program, &buffer, &model->table[device]));
    buffer.name = "workspace";
    return zo_program_buffer(program, &buffer, &model->workspace[device]);
}

/* ---- rows ---------------------------------------------------------------- */

/* Which row of unit 0's first tensor stands at a place of the batch. */
static size_t row_at(const struct fake_model *model, const unsigned char *batch,
                     int i)
{
    return batch[i] % (size_t)(model->tensors[0][0].elems / FAKE_ROW_ELEMS);
}

/* at: record, rows, weights or master, batch. */
static enum zo_status gather(const struct zo_op_call *call)
{
    const struct fake_model *model = call->op->context;
    const enum zo_dtype from = (enum zo_dtype)call->op->args[0];
    const int rows = zo_call_counts(call)->table_rows;

    for (int i = 0; i < rows; i++) {
        const int64_t first =
            model->tensors[0][0].offset_elems +
            (int64_t)row_at(model, call->at[3], i) * FAKE_ROW_ELEMS;

        for (int64_t k = 0; k < FAKE_ROW_ELEMS; k++) {
            zo_store(call->at[1], model->shape.type, i * FAKE_ROW_ELEMS + k,
                     zo_load(call->at[2], from, first + k));
        }
    }
    return ZO_OK;
}

static bool rows_of(void *context, int unit, struct zo_unit_rows *rows_out)
{
    const struct fake_model *model = context;

    *rows_out = (struct zo_unit_rows){
        .row_bytes = FAKE_ROW_ELEMS * zo_dtype_bytes(model->shape.type),
        .rows_max = FAKE_ROWS_MAX,
        .gather = gather,
    };
    return unit == 0 && model->shape.reads_rows;
}

struct row_args {
    struct help_mix_args mix;
    const struct fake_model *model;
    const char *rows; /* gathered, or the tensor that has them all */
    const unsigned char *batch;
    int count;
    bool is_gathered;
};

/* The same bits from gathered rows and from the whole tensor. */
static enum zo_status rows_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct row_args args;
    size_t row_bytes;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    row_bytes = FAKE_ROW_ELEMS * zo_dtype_bytes(args.model->shape.type);
    for (int i = 0; i < args.count; i++) {
        const size_t row =
            args.is_gathered ? (size_t)i : row_at(args.model, args.batch, i);
        struct help_mix_args one = {.seed = args.mix.seed};

        help_mix_add(&one, ZO_READ, (void *)(args.rows + row * row_bytes),
                     row_bytes);
        args.mix.seed = help_hash(&one);
    }
    help_mix_bytes(&args.mix);
    return ZO_OK;
}

/* at: record, batch, rows or the tensor, out. */
static enum zo_status run_rows(const struct zo_op_call *call)
{
    struct row_args args = {
        .mix = {.seed = (uint64_t)call->op->args[1]},
        .model = call->op->context,
        .rows = call->at[2],
        .batch = call->at[1],
        .count = zo_call_counts(call)->table_rows,
        .is_gathered = call->op->args[0] != 0,
    };

    help_mix_add(&args.mix, ZO_READ, call->at[1], FAKE_BATCH_BYTES);
    help_mix_add(&args.mix, ZO_WRITE, call->at[3], INNER_BYTES);
    return zo_stream_host_submit(call->streams[0], rows_in_stream, &args,
                                 sizeof(args));
}

/* The inside of unit 0 where forward reads it by rows. */
static enum zo_status emit_rows(const struct fake_model *model,
                                const struct zo_emit *emit, zo_buffer_id *id)
{
    const struct zo_op op = {.name = "rows",
                             .run = run_rows,
                             .context = model,
                             .args = {emit->has_rows, 77}};

    ZO_TRY(
        zo_emit_buffer(emit, ZO_PURPOSE_ACTIVATION, "inner", INNER_BYTES, id));
    return zo_emit_op(
        emit, &op,
        (const struct zo_access[]){
            whole(emit, emit->batch, ZO_READ),
            emit->has_rows
                ? whole(emit, emit->weights, ZO_READ)
                : tensor_of(model, emit, 0, emit->weights,
                            zo_dtype_bytes(model->shape.type), ZO_READ),
            whole(emit, *id, ZO_WRITE),
        },
        3);
}

static bool is_rows_unit(const struct fake_model *model,
                         const struct zo_emit *emit)
{
    return emit->unit == 0 && model->shape.reads_rows;
}

/* ---- units --------------------------------------------------------------- */

/* The inside of a unit, as forward and recomputation get it. */
static enum zo_status emit_inner(const struct fake_model *model,
                                 const struct zo_emit *emit, zo_buffer_id *id)
{
    const size_t bytes = zo_dtype_bytes(model->shape.type);

    if (is_rows_unit(model, emit)) {
        return emit_rows(model, emit, id);
    }
    ZO_TRY(
        zo_emit_buffer(emit, ZO_PURPOSE_ACTIVATION, "inner", INNER_BYTES, id));
    return EMIT(emit, "inner", help_mix, whole(emit, emit->batch, ZO_READ),
                whole(emit, model->table[emit->device], ZO_READ),
                whole_if(emit, emit->input, ZO_READ),
                tensor_of(model, emit, 0, emit->weights, bytes, ZO_READ),
                whole_if(emit, emit->cache, ZO_READ_WRITE),
                whole(emit, model->workspace[emit->device], ZO_WRITE),
                whole(emit, *id, ZO_WRITE));
}

static zo_buffer_id *kept_of(struct fake_model *model,
                             const struct zo_emit *emit)
{
    return &model->kept[emit->unit][emit->micro][emit->device];
}

static enum zo_status forward(void *context, const struct zo_emit *emit)
{
    struct fake_model *model = context;
    const size_t bytes = zo_dtype_bytes(model->shape.type);
    zo_buffer_id inner;

    ZO_TRY(emit_inner(model, emit, &inner));
    if (emit->trains) {
        *kept_of(model, emit) = inner;
    }
    if (emit->logits != ZO_NO_BUFFER && emit->output == ZO_NO_BUFFER) {
        return EMIT(emit, "logits", help_mix, whole(emit, inner, ZO_READ),
                    whole(emit, emit->logits, ZO_WRITE));
    }
    if (emit->output == ZO_NO_BUFFER) { /* evaluation: the last unit */
        return EMIT(
            emit, "losses alone", help_mix, whole(emit, inner, ZO_READ),
            {emit->losses, ZO_WRITE, 0, FAKE_LABELS_MAX * sizeof(float)});
    }
    if (is_rows_unit(model, emit)) { /* the rows are all that it reads */
        return EMIT(emit, "outer", help_mix, whole(emit, inner, ZO_READ),
                    whole(emit, emit->output, ZO_WRITE));
    }
    return EMIT(emit, "outer", help_mix, whole(emit, inner, ZO_READ),
                tensor_of(model, emit, 1, emit->weights, bytes, ZO_READ),
                whole(emit, emit->output, ZO_WRITE));
}

static enum zo_status emit_grads(const struct fake_model *model,
                                 const struct zo_emit *emit, zo_buffer_id inner)
{
    for (int i = 0; i < 2; i++) {
        ZO_TRY(EMIT(emit, i == 0 ? "first grads" : "second grads", run_grads,
                    whole(emit, inner, ZO_READ),
                    whole_if(emit, emit->d_output, ZO_READ),
                    tensor_of(model, emit, i, emit->grad_sum, sizeof(float),
                              emit->is_first ? ZO_WRITE : ZO_READ_WRITE)));
    }
    return ZO_OK;
}

static enum zo_status turn(void *context, const struct zo_emit *emit)
{
    struct fake_model *model = context;
    zo_buffer_id inner;

    ZO_TRY(emit_inner(model, emit, &inner));
    ZO_TRY(EMIT(emit, "losses", help_mix, whole(emit, inner, ZO_READ),
                {emit->losses, ZO_WRITE,
                 (uint64_t)emit->micro * FAKE_LABELS_MAX * sizeof(float),
                 FAKE_LABELS_MAX * sizeof(float)},
                whole(emit, emit->d_input, ZO_WRITE)));
    return emit_grads(model, emit, inner);
}

static enum zo_status backward(void *context, const struct zo_emit *emit)
{
    struct fake_model *model = context;
    zo_buffer_id inner = *kept_of(model, emit);

    if (emit->keep == ZO_KEEP_INPUT && !is_rows_unit(model, emit)) {
        ZO_TRY(emit_inner(model, emit, &inner));
    }
    ZO_TRY(emit_grads(model, emit, inner));
    if (emit->d_input == ZO_NO_BUFFER) {
        return ZO_OK;
    }
    return EMIT(emit, "input gradient", help_mix, whole(emit, inner, ZO_READ),
                whole(emit, emit->d_output, ZO_READ),
                whole(emit, model->workspace[emit->device], ZO_WRITE),
                whole(emit, emit->d_input, ZO_WRITE));
}

static const struct zo_model_ops fake_model_ops = {
    .prepare = prepare,
    .forward = forward,
    .rows = rows_of,
    .turn = turn,
    .backward = backward,
};

/* ---- kernels ------------------------------------------------------------- */

static enum zo_status cast_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct zo_cast_args args;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    for (int64_t i = 0; i < args.count; i++) {
        zo_store(args.out, args.out_type, i, zo_load(args.in, args.in_type, i));
    }
    return ZO_OK;
}

static enum zo_status reduce_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct zo_reduce_args args;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    for (int64_t i = 0; i < args.count; i++) {
        float sum = 0.0f;

        for (int64_t p = 0; p < args.part_count; p++) {
            sum +=
                zo_load(args.parts, args.type, p * args.part_stride_elems + i);
        }
        zo_store(args.out, args.out_type, i, sum);
    }
    return ZO_OK;
}

static uint64_t square_norm_workspace(int64_t count)
{
    (void)count;
    return 4 * sizeof(double);
}

/* Quarters, each into the workspace, then their sum. */
static enum zo_status norm_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct zo_square_norm_args args;
    double *sums;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    sums = args.workspace;
    for (int q = 0; q < 4; q++) {
        sums[q] = 0.0;
        for (int64_t i = q; i < args.count; i += 4) {
            const double value = (double)zo_load(args.in, args.type, i);

            sums[q] += value * value;
        }
    }
    args.result->square_sum = sums[0] + sums[1] + sums[2] + sums[3];
    args.result->bad_count = 0;
    return ZO_OK;
}

static enum zo_status adamw_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct zo_adamw_args args;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    (void)zo_adamw_cpu(&args, 0, args.count, ZO_SIMD_BASE);
    *args.bad |= 2; /* seen */
    return ZO_OK;
}

#define KERNEL(name, run)                                               \
    static enum zo_status name(struct zo_kernels *kernels,              \
                               struct zo_stream *stream,                \
                               const struct zo_##name##_args *args)     \
    {                                                                   \
        (void)kernels;                                                  \
        return zo_stream_host_submit(stream, run, args, sizeof(*args)); \
    }
KERNEL(cast, cast_in_stream)
KERNEL(reduce, reduce_in_stream)
KERNEL(square_norm, norm_in_stream)
KERNEL(adamw, adamw_in_stream)

const struct zo_kernel_ops fake_kernels = {
    .kind = "host",
    .square_norm_workspace = square_norm_workspace,
    .cast = cast,
    .reduce = reduce,
    .square_norm = square_norm,
    .adamw = adamw,
};

/* ---- building ------------------------------------------------------------ */

static struct zo_adamw_scalars scalars_of(double grad_scale)
{
    return (struct zo_adamw_scalars){
        .grad_scale = (float)grad_scale,
        .beta1 = 0.9f,
        .one_minus_beta1 = 0.1f,
        .beta2 = 0.99f,
        .one_minus_beta2 = 0.01f,
        .inverse_root2 = 1.0f,
        .epsilon = 1e-6f,
        .decay = 1e-3f,
        .step_size = 1e-2f,
    };
}

/* Step 2 of 3 is skipped; everything that was measured counts. */
static enum zo_status decide(void *context, const struct zo_measured *measured,
                             struct zo_control *control,
                             struct zo_step_result *result_out)
{
    const struct zo_build_options *options = measured->options;
    const size_t devices = (size_t)options->device_count;
    const size_t units = (size_t)options->unit_count;
    struct help_mix_args args = {.seed = 9};
    double sum = 0.0;
    uint64_t hash;

    (void)context;
    help_mix_add(&args, ZO_READ, (void *)measured->norms,
                 devices * units * sizeof(measured->norms[0]));
    help_mix_add(&args, ZO_READ, (void *)measured->bad,
                 devices * units * sizeof(measured->bad[0]));
    for (int m = 0; m < options->micros && m < FAKE_MICROS_MAX; m++) {
        help_mix_add(&args, ZO_READ, (void *)zo_measured_losses(measured, m, 0),
                     FAKE_LABELS_MAX * sizeof(float));
    }
    for (size_t i = 0; i < devices * units; i++) {
        sum += measured->norms[i].square_sum;
    }
    hash = help_hash(&args);
    control->skips = measured->record->step % 3 == 2;
    control->loss_scale += (double)(hash % 17);
    control->update = scalars_of(1.0 / (1.0 + sqrt(sum)));
    memset(result_out, 0, sizeof(*result_out));
    result_out->step = measured->record->step;
    result_out->grad_norm = sqrt(sum);
    result_out->loss = (double)(hash % 1000);
    result_out->loss_scale = control->loss_scale;
    result_out->overflowed = control->skips;
    return ZO_OK;
}

static enum zo_status make_units(struct fake_model *model)
{
    static const char *const names[FAKE_UNITS_MAX] = {
        "unit 0", "unit 1", "unit 2", "unit 3",
        "unit 4", "unit 5", "unit 6", "unit 7"};
    struct help_random random = help_random_of(model->shape.seed, "units");

    for (int u = 0; u < model->shape.units; u++) {
        for (int i = 0; i < 2; i++) {
            model->tensors[u][i] = (struct zo_unit_tensor){
                .name = i == 0 ? "matrix" : "bias",
                .dims = 1,
                .shape = {help_once_in(&random, 4)
                              ? ZO_TENSOR_ALIGN_ELEMS
                              : 1 + (int64_t)help_below(&random, 200)},
                .decays = i == 0,
            };
        }
        if (u == 0 && model->shape.reads_rows) {
            model->tensors[u][0].shape[0] =
                FAKE_ROW_ELEMS * (1 + (int64_t)help_below(&random, 40));
        }
        if (u >= 1 && u <= 1 + model->shape.large_units &&
            model->shape.large_elems > 0) {
            model->tensors[u][0].shape[0] = model->shape.large_elems;
        }
        model->units[u] = (struct zo_unit){
            .name = names[u], .tensors = model->tensors[u], .tensor_count = 2};
        ZO_TRY(zo_unit_layout(&model->units[u], model->shape.devices));
    }
    return ZO_OK;
}

enum zo_status fake_model_build(const struct fake_shape *shape,
                                struct fake_model *model)
{
    struct zo_build_options options = {
        .units = model->units,
        .unit_count = shape->units,
        .device_count = shape->devices,
        .type = shape->type,
        .comm_type = shape->comm_type,
        .micros = shape->micros,
        .decides = shape->decides,
        .placement = shape->placement,
        .has_evaluation = shape->has_evaluation,
        .evaluates_only = shape->evaluates_only,
        .bucket_elems = shape->bucket_elems,
        .tokens_max = 64,
        .labels_max = FAKE_LABELS_MAX,
        .boundary_bytes = FAKE_BOUNDARY_BYTES,
        .batch_bytes = FAKE_BATCH_BYTES,
        .kernel_ops = shape->kernel_ops,
        .model_ops = &fake_model_ops,
        .model = model,
        .decide = decide,
    };

    *model = (struct fake_model){.shape = *shape};
    options.placement.homes = model->shape.homes;
    ZO_TRY(make_units(model));
    return zo_build_train(&options, &model->build);
}

enum zo_status fake_model_build_decode(const struct fake_shape *shape,
                                       bool has_cache, struct fake_model *model)
{
    const struct zo_decode_options options = {
        .units = model->units,
        .unit_count = shape->units,
        .type = shape->type,
        .token_bytes = FAKE_BOUNDARY_BYTES,
        .tokens_max = 5,
        .labels_max = 2,
        .vocab = 7,
        .cache_bytes = has_cache ? CACHE_BYTES : 0,
        .batch_bytes = FAKE_BATCH_BYTES,
        .kernel_ops = shape->kernel_ops,
        .model_ops = &fake_model_ops,
        .model = model,
    };

    *model = (struct fake_model){.shape = *shape};
    ZO_TRY(make_units(model));
    return zo_build_decode(&options, &model->decode);
}

/* ---- running ------------------------------------------------------------- */

/* Elements first .. first + count - 1 of a tensor, on every device. */
static enum zo_status load_chunk(const struct fake_model *model,
                                 struct zo_executor *executor, int u, int i,
                                 int64_t first, int64_t count)
{
    const enum zo_dtype type = model->shape.type;
    const uint64_t key = zo_random_key((uint64_t)(2 * u + i), "weights");
    const size_t bytes = zo_dtype_bytes(type);
    const uint64_t offset =
        (uint64_t)(model->tensors[u][i].offset_elems + first);
    float weights[CHUNK], masters[CHUNK];

    for (int64_t k = 0; k < count; k++) {
        const float value =
            (float)zo_random_uniform(key, (uint64_t)(first + k));

        zo_store(weights, type, k, value);
        masters[k] = value;
    }
    for (int d = 0; d < model->shape.devices; d++) {
        const struct zo_unit_buffers *unit = zo_build_unit(&model->build, u, d);

        if (unit->weights != ZO_NO_BUFFER) {
            ZO_TRY(zo_executor_upload(executor, unit->weights, offset * bytes,
                                      weights, (size_t)count * bytes));
        }
        if (unit->master != ZO_NO_BUFFER) {
            ZO_TRY(zo_executor_upload(executor, unit->master, offset * 4,
                                      masters, (size_t)count * 4));
        }
    }
    return ZO_OK;
}

static enum zo_status load_tensor(const struct fake_model *model,
                                  struct zo_executor *executor, int u, int i)
{
    const int64_t elems = model->tensors[u][i].elems;

    for (int64_t first = 0; first < elems; first += CHUNK) {
        ZO_TRY(load_chunk(model, executor, u, i, first,
                          zo_min_i64(CHUNK, elems - first)));
    }
    return ZO_OK;
}

enum zo_status fake_model_load(const struct fake_model *model,
                               struct zo_executor *executor)
{
    for (int u = 0; u < model->shape.units; u++) {
        ZO_TRY(load_tensor(model, executor, u, 0));
        ZO_TRY(load_tensor(model, executor, u, 1));
    }
    return ZO_OK;
}

/* A state of a unit: on NVMe there is more behind its own bytes. */
static uint64_t hash_state(uint64_t hash, const struct fake_model *model,
                           struct zo_executor *executor, int u, zo_buffer_id id,
                           size_t elem_bytes)
{
    return help_hash_buffer(hash, executor, id, 0,
                            (size_t)model->units[u].elems * elem_bytes);
}

/* The 16-bit weights, which may be in their master alone. */
static uint64_t hash_weights(uint64_t hash, const struct fake_model *model,
                             struct zo_executor *executor, int u)
{
    const struct zo_unit_buffers *unit = zo_build_unit(&model->build, u, 0);
    const float *master;

    if (unit->weights != ZO_NO_BUFFER) {
        return hash_state(hash, model, executor, u, unit->weights,
                          zo_dtype_bytes(model->shape.type));
    }
    master = zo_executor_address(executor, unit->master, 0);
    hash ^= 0xcbf29ce484222325u;
    for (int64_t i = 0; i < model->units[u].elems; i++) {
        const uint16_t weight = zo_f32_to_f16(master[i]);

        hash = (hash ^ (weight & 0xffu)) * 0x100000001b3u;
        hash = (hash ^ (weight >> 8)) * 0x100000001b3u;
    }
    return hash;
}

uint64_t fake_model_states(const struct fake_model *model,
                           struct zo_executor *executor)
{
    const struct zo_build *build = &model->build;
    uint64_t hash = 0;

    for (int u = 0; u < model->shape.units; u++) {
        const struct zo_unit_buffers *unit = zo_build_unit(build, u, 0);

        hash = hash_weights(hash, model, executor, u);
        hash = hash_state(hash, model, executor, u, unit->remainder, 2);
        hash = hash_state(hash, model, executor, u, unit->master, 4);
        hash = hash_state(hash, model, executor, u, unit->exp_avg, 4);
        hash = hash_state(hash, model, executor, u, unit->exp_avg_sq, 4);
    }
    return hash;
}

uint64_t fake_model_measured(const struct fake_model *model,
                             struct zo_executor *executor)
{
    const struct zo_build *build = &model->build;
    const struct zo_buffer *buffers = build->program.buffers;
    uint64_t hash = 0;

    for (int slot = 0; slot < 2; slot++) {
        hash = help_hash_buffer(hash, executor, build->losses_host, slot,
                                buffers[build->losses_host].bytes);
        hash = help_hash_buffer(hash, executor, build->norms_host, slot,
                                buffers[build->norms_host].bytes);
    }
    return hash;
}

int fake_model_list(const struct fake_model *model, char list)
{
    return list == 's'   ? model->build.step_schedule
           : list == 'e' ? model->build.evaluation_schedule
                         : model->build.tail_schedule;
}

/* Random counts, and the scalars of an update. */
static void fill_record(struct zo_executor *executor, zo_buffer_id id, int slot,
                        int index, int parts, bool has_update, bool fills_rows)
{
    const uint64_t key = zo_random_key((uint64_t)index, "record");
    struct zo_step_record *record = zo_executor_address(executor, id, slot);

    memset(record, 0,
           sizeof(*record) + (size_t)parts * sizeof(record->counts[0]));
    record->step = index + 1;
    record->has_update = has_update;
    record->update = scalars_of(0.5 + zo_random_uniform(key, 0));
    for (int i = 0; i < parts; i++) {
        record->counts[i].tokens =
            (int32_t)zo_random_bits(key, 1 + (uint64_t)i) & 0xff;
        record->counts[i].table_rows =
            fills_rows ? FAKE_ROWS_MAX
                       : 1 + record->counts[i].tokens % FAKE_ROWS_MAX;
    }
}

static void fill_batch(struct zo_executor *executor, zo_buffer_id id, int slot,
                       int index, int parts)
{
    const uint64_t key = zo_random_key((uint64_t)index, "batch");
    unsigned char *batch = zo_executor_address(executor, id, slot);

    for (uint64_t i = 0; i < (uint64_t)parts * FAKE_BATCH_BYTES; i++) {
        batch[i] = (unsigned char)zo_random_bits(key, i);
    }
}

static enum zo_status start_all(const struct fake_model *model,
                                struct zo_executor *executor, const char *lists)
{
    const int parts = model->shape.micros * model->shape.devices;
    const bool decides = model->shape.decides;
    bool held = false; /* an update, by a decision */

    for (int i = 0; lists[i] != '\0'; i++) {
        int slot;

        ZO_TRY(zo_executor_acquire(executor, &slot));
        fill_record(executor, model->build.record, slot, i, parts,
                    decides ? held : lists[i] == 's', model->shape.fills_rows);
        fill_batch(executor, model->build.batch_host, slot, i, parts);
        ZO_TRY(zo_executor_start(executor, fake_model_list(model, lists[i]),
                                 NULL));
        held = lists[i] == 's'; /* any other list took it */
    }
    return zo_executor_drain(executor);
}

enum zo_status fake_model_run(const struct fake_model *model,
                              struct zo_executor *executor, const char *lists)
{
    enum zo_status status;

    zo_memory_freeze(true);
    status = start_all(model, executor, lists);
    zo_memory_freeze(false);
    return status;
}

static enum zo_status start_decoding(const struct fake_model *model,
                                     struct zo_executor *executor,
                                     const char *lists)
{
    const struct zo_decode_build *build = &model->decode;

    for (int i = 0; lists[i] != '\0'; i++) {
        int slot;

        ZO_TRY(zo_executor_acquire(executor, &slot));
        fill_record(executor, build->record, slot, i, 1, false, false);
        fill_batch(executor, build->batch_host, slot, i, 1);
        ZO_TRY(zo_executor_start(executor,
                                 lists[i] == 'p' ? build->prompt_schedule
                                                 : build->token_schedule,
                                 NULL));
    }
    return zo_executor_drain(executor);
}

enum zo_status fake_model_run_decode(const struct fake_model *model,
                                     struct zo_executor *executor,
                                     const char *lists)
{
    enum zo_status status;

    zo_memory_freeze(true);
    status = start_decoding(model, executor, lists);
    zo_memory_freeze(false);
    return status;
}
