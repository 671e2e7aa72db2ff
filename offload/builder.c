#include "offload/builder.h"

#include <string.h>

#include "offload/builder_internal.h"
#include "offload/layout.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

#define BOUNDARIES_AHEAD 2 /* that come back before they are needed */

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

zo_buffer_id *zo_lister_part(zo_buffer_id *ids, const struct zo_lister *lister,
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
        .weights = lister->weights[device],
        .grad_sum = ZO_NO_BUFFER,
        .batch = *zo_lister_part(lister->batches, lister, 0, micro, device),
        .input = unit > 0 ? *zo_lister_part(lister->boundaries, lister,
                                            unit - 1, micro, device)
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

enum zo_status zo_lister_copy(const struct zo_lister *lister,
                              const struct zo_copy *copy)
{
    const struct zo_op op = {
        .name = copy->name,
        .run = zo_build_run_copy,
        .args = {(int64_t)copy->target.bytes},
        .engine = copy->engine,
        .device = copy->device,
        .unit = copy->unit,
        .micro = copy->micro,
    };

    return zo_schedule_add(
        &lister->build->program, lister->schedule, &op,
        (const struct zo_access[]){copy->target, copy->source}, 2);
}

enum zo_status zo_lister_cpu(const struct zo_lister *lister,
                             const struct zo_op *op,
                             const struct zo_access *accesses,
                             size_t access_count)
{
    struct zo_op added = *op;

    added.engine = ZO_ENGINE_CPU;
    added.device = 0;
    return zo_schedule_add(&lister->build->program, lister->schedule, &added,
                           accesses, access_count);
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
    zo_buffer_id *id =
        zo_lister_part(lister->batches, lister, 0, micro, device);

    ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BATCH, "batch",
                          options->batch_bytes, id));
    return zo_lister_copy(
        lister, &(struct zo_copy){
                    .engine = ZO_ENGINE_H2D,
                    .name = "batch upload",
                    .device = device,
                    .unit = -1,
                    .micro = micro,
                    .target = zo_whole(&build->program, *id, ZO_WRITE),
                    .source = {build->batch_host, ZO_READ, offset,
                               options->batch_bytes},
                });
}

/* The first units' boundaries wait on the host, but that of the last layer:
 * the head needs it next. */
static bool waits_on_host(const struct zo_lister *lister, int unit)
{
    const struct zo_build_options *options = &lister->build->options;

    return lister->trains && unit < options->placement.host_boundaries &&
           unit + 2 < options->unit_count;
}

static enum zo_status emit_forward(struct zo_lister *lister, int u, int micro,
                                   int d)
{
    const struct zo_build_options *options = &lister->build->options;
    struct zo_emit emit = emit_of(lister, u, micro, d);
    struct zo_unit_rows rows;

    if (u + 1 < options->unit_count) {
        zo_buffer_id *id =
            zo_lister_part(lister->boundaries, lister, u, micro, d);

        ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BOUNDARY, "boundary",
                              options->boundary_bytes, id));
        emit.output = *id;
    }
    if (zo_build_gathers(options, u, &rows)) {
        emit.has_rows = true;
        emit.weights = *zo_lister_part(lister->rows, lister, 0, micro, d);
    }
    ZO_TRY(options->model_ops->forward(options->model, &emit));
    return waits_on_host(lister, u)
               ? zo_lister_put_boundary(lister, u, micro, d)
               : ZO_OK;
}

/* Backward of a unit; of the last one, forward and loss with it. */
static enum zo_status emit_backward(struct zo_lister *lister, int u, int micro,
                                    int d)
{
    const struct zo_build_options *options = &lister->build->options;
    const bool turns = u + 1 == options->unit_count;
    struct zo_emit emit = emit_of(lister, u, micro, d);
    struct zo_unit_rows rows;

    if (zo_build_gathers(options, u, &rows)) { /* forward alone has them */
        emit.weights = ZO_NO_BUFFER;
    }
    if (emit.is_first) {
        ZO_TRY(zo_lister_open_sum(lister, &emit));
    }
    emit.grad_sum = lister->grad_sums[u * options->device_count + d];
    if (!turns) {
        emit.d_output =
            *zo_lister_part(lister->d_boundaries, lister, u, micro, d);
    }
    if (u > 0) {
        zo_buffer_id *id =
            zo_lister_part(lister->d_boundaries, lister, u - 1, micro, d);

        ZO_TRY(zo_emit_buffer(&emit, ZO_PURPOSE_BOUNDARY, "boundary gradient",
                              options->boundary_bytes, id));
        emit.d_input = *id;
    }
    return turns ? options->model_ops->turn(options->model, &emit)
                 : options->model_ops->backward(options->model, &emit);
}

/* ---- lists --------------------------------------------------------------- */

/* A pass: micro batches begin .. end - 1 through all units. */
struct pass {
    int begin, end;
    int parts; /* micro batches times devices */
};

static int micro_of(const struct zo_lister *lister, const struct pass *pass,
                    int part)
{
    return pass->begin + part / lister->build->options.device_count;
}

static int device_of(const struct zo_lister *lister, int part)
{
    return part % lister->build->options.device_count;
}

/* The rows of a part of a pass; behind the last one there are none. */
static enum zo_status gather_part(struct zo_lister *lister,
                                  const struct pass *pass, int part)
{
    struct zo_unit_rows rows;

    if (part >= pass->parts ||
        !zo_build_gathers(&lister->build->options, 0, &rows)) {
        return ZO_OK;
    }
    return zo_lister_gather(lister, 0, micro_of(lister, pass, part),
                            device_of(lister, part));
}

/* Rows are gathered for the part behind the one at hand. */
static enum zo_status forward_unit(struct zo_lister *lister, int u,
                                   const struct pass *pass)
{
    if (u == 0) {
        ZO_TRY(gather_part(lister, pass, 0));
    }
    ZO_TRY(zo_lister_use(lister, u));
    for (int i = 0; i < pass->parts; i++) {
        if (u == 0) {
            ZO_TRY(gather_part(lister, pass, i + 1));
        }
        ZO_TRY(emit_forward(lister, u, micro_of(lister, pass, i),
                            device_of(lister, i)));
    }
    return ZO_OK;
}

/* Boundaries that backward needs, counted from the last layer's down, a part
 * at a time; those that wait on the host come back ahead of time. */
static enum zo_status fetch_boundaries(struct zo_lister *lister,
                                       const struct pass *pass, int64_t item)
{
    const int layers = lister->build->options.unit_count - 2;

    for (; lister->boundary_at <= item + BOUNDARIES_AHEAD;
         lister->boundary_at++) {
        const int part = (int)(lister->boundary_at % pass->parts);
        const int64_t unit = layers - lister->boundary_at / pass->parts - 1;

        if (unit < 0) {
            break;
        }
        if (waits_on_host(lister, (int)unit)) {
            ZO_TRY(zo_lister_get_boundary(lister, (int)unit,
                                          micro_of(lister, pass, part),
                                          device_of(lister, part)));
        }
    }
    return ZO_OK;
}

static enum zo_status backward_unit(struct zo_lister *lister, int u,
                                    const struct pass *pass)
{
    const struct zo_build_options *options = &lister->build->options;
    const int layers = options->unit_count - 2;
    struct zo_unit_rows rows;

    if (!zo_build_gathers(options, u, &rows)) { /* only forward reads rows */
        ZO_TRY(zo_lister_use(lister, u));
    }
    for (int i = 0; i < pass->parts; i++) {
        ZO_TRY(fetch_boundaries(lister, pass,
                                (int64_t)(layers - u) * pass->parts + i));
        ZO_TRY(emit_backward(lister, u, micro_of(lister, pass, i),
                             device_of(lister, i)));
    }
    return pass->end == options->micros ? zo_lister_finish(lister, u) : ZO_OK;
}

/* Updates of what a decision held up: those on the host may begin at once,
 * those on a device stand where forward needs them, or before they are
 * gathered. */
static enum zo_status update_before(struct zo_lister *lister, int unit,
                                    bool is_offloaded)
{
    const struct zo_build_options *options = &lister->build->options;

    if (!options->decides || options->evaluates_only ||
        zo_build_offloads(options, unit) != is_offloaded) {
        return ZO_OK;
    }
    return zo_lister_update_all(lister, unit, NULL);
}

static enum zo_status emit_pass(struct zo_lister *lister,
                                const struct pass *pass)
{
    const struct zo_build_options *options = &lister->build->options;
    const int last = options->unit_count - 1;

    lister->boundary_at = 0;
    for (int i = 0; i < pass->parts; i++) {
        ZO_TRY(emit_upload(lister, micro_of(lister, pass, i),
                           device_of(lister, i)));
    }
    for (int u = 0; u <= last; u++) {
        if (pass->begin == 0 && !zo_build_streams(options, u)) {
            ZO_TRY(update_before(lister, u, false));
        }
        if (u < last || !lister->trains) {
            ZO_TRY(forward_unit(lister, u, pass));
        }
    }
    for (int u = last; lister->trains && u >= 0; u--) {
        ZO_TRY(backward_unit(lister, u, pass));
    }
    return ZO_OK;
}

/* The passes of a list over `micros` micro batches. */
static enum zo_status emit_passes(struct zo_lister *lister, int micros,
                                  int pass_micros)
{
    const struct zo_build_options *options = &lister->build->options;

    ZO_TRY(zo_lister_plan_uses(lister, (int)zo_div_ceil(micros, pass_micros)));
    for (int u = 0; u < options->unit_count; u++) {
        ZO_TRY(update_before(lister, u, true));
    }
    for (int begin = 0; begin < micros; begin += pass_micros) {
        const int end = (int)zo_min_i64(begin + pass_micros, micros);
        const struct pass pass = {begin, end,
                                  (end - begin) * options->device_count};

        ZO_TRY(emit_pass(lister, &pass));
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
        ZO_TRY(zo_lister_copy(
            lister,
            &(struct zo_copy){
                .engine = ZO_ENGINE_D2H,
                .name = copies[i].name,
                .device = d,
                .unit = -1,
                .micro = -1,
                .target = {copies[i].target, ZO_WRITE,
                           (uint64_t)d * copies[i].bytes, copies[i].bytes},
                .source = {copies[i].source, ZO_READ, 0, copies[i].bytes},
            }));
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
        .priority = -1, /* the next step waits for it */
    };

    return zo_schedule_add(program, lister->schedule, &op,
                           (const struct zo_access[]){
                               zo_whole(program, build->record, ZO_READ),
                               zo_whole(program, build->norms_host, ZO_READ),
                               zo_whole(program, build->losses_host, ZO_READ),
                               zo_whole(program, build->bad_host, ZO_READ),
                               zo_whole(program, build->host_bad, ZO_READ),
                               zo_whole(program, build->control, ZO_READ_WRITE),
                               zo_whole(program, build->result, ZO_WRITE),
                           },
                           7);
}

static enum zo_status build_step(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;

    build->step_schedule = lister->schedule =
        zo_program_schedule(&build->program, "step");
    lister->trains = true;
    ZO_TRY(
        emit_passes(lister, options->micros, options->placement.pass_micros));
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
    ZO_TRY(emit_passes(lister, 1, 1));
    for (int d = 0; d < options->device_count; d++) {
        ZO_TRY(emit_results(lister, d));
    }
    return ZO_OK;
}

/* Empty when no update is held up. */
static enum zo_status build_tail(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;

    build->tail_schedule = lister->schedule =
        zo_program_schedule(&build->program, "last update");
    lister->nvme_pieces = 0;
    for (int u = 0; u < build->options.unit_count; u++) {
        ZO_TRY(update_before(lister, u, true));
        ZO_TRY(update_before(lister, u, false));
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
    ZO_TRY(zo_alloc(units * parts, sizeof(zo_buffer_id), "the builder",
                    &lister->waiting));
    ZO_TRY(zo_alloc(units * devices, sizeof(zo_buffer_id), "the builder",
                    &lister->grad_sums));
    ZO_TRY(zo_alloc(parts, sizeof(zo_buffer_id), "the builder", &lister->rows));
    return zo_alloc(parts, sizeof(zo_buffer_id), "the builder",
                    &lister->batches);
}

static void close_lister(struct zo_lister *lister)
{
    zo_free(lister->boundaries);
    zo_free(lister->d_boundaries);
    zo_free(lister->waiting);
    zo_free(lister->grad_sums);
    zo_free(lister->rows);
    zo_free(lister->uses);
    zo_free(lister->batches);
}

static enum zo_status build_all(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;

    ZO_TRY(open_lister(lister));
    ZO_TRY(zo_alloc((size_t)options->unit_count * (size_t)options->device_count,
                    sizeof(build->units[0]), "the builder", &build->units));
    ZO_TRY(zo_alloc((size_t)options->unit_count, sizeof(build->copies[0]),
                    "the builder", &build->copies));
    ZO_TRY(zo_build_add_pages(build));
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
    if (!options->evaluates_only) {
        ZO_TRY(zo_build_add_copies(build));
        ZO_TRY(zo_lister_save(lister));
    }
    return zo_layout(&build->program);
}

/* Rules that the planner keeps to. */
static void check_options(const struct zo_build_options *options)
{
    const struct zo_placement *placement = &options->placement;
    bool offloads = false, streams = false;
    struct zo_unit_rows rows;

    ZO_ASSERT(options->unit_count >= 2);
    ZO_ASSERT(placement->pass_micros >= 1 &&
              placement->pass_micros <= options->micros);
    for (int u = 0; u < options->unit_count; u++) {
        const struct zo_unit_homes *homes = zo_build_homes(options, u);

        ZO_ASSERT(homes->weights != ZO_TIER_PAGEABLE &&
                  homes->optimizer != ZO_TIER_PAGEABLE);
        ZO_ASSERT(!zo_build_loads_weights(options, u) ||
                  !zo_build_gathers(options, u, &rows));
        /* A weight is half of its master. */
        ZO_ASSERT(homes->weights == ZO_TIER_GPU ||
                  homes->optimizer != ZO_TIER_GPU || options->evaluates_only);
        streams |= zo_build_streams(options, u);
        offloads |= zo_build_offloads(options, u);
    }
    ZO_ASSERT(options->stage >= 0 && options->stage <= 3);
    /* At stage 0 all devices have all states: there is nothing to share. */
    ZO_ASSERT(options->device_count == 1 || options->stage > 0 || !offloads);
    /* Rings that nothing passes through have slots too. */
    ZO_ASSERT(placement->weight_ring <= ZO_RING_MAX &&
              placement->gradient_ring <= ZO_RING_MAX);
    ZO_ASSERT(!streams || placement->weight_ring >= 2);
    ZO_ASSERT(!offloads || placement->gradient_ring >= 1);
    ZO_ASSERT(placement->host_gradient_ring >= 0 &&
              placement->host_gradient_ring <= ZO_RING_MAX);
    ZO_ASSERT(
        placement->nvme_ring == 0 ||
        (placement->nvme_ring >= 3 && placement->nvme_ring <= ZO_RING_MAX));
}

enum zo_status zo_build_train(const struct zo_build_options *options,
                              struct zo_build *build_out)
{
    struct zo_lister lister = {.build = build_out};
    enum zo_status status;

    check_options(options);
    *build_out = (struct zo_build){
        .options = *options, .evaluation_schedule = -1, .save_schedule = -1};
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
    zo_free(build->copies);
    *build = (struct zo_build){0};
}
