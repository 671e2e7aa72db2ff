#include "src/train/trainer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/train/feed.h"
#include "src/train/place_config.h"

#define PASSES_MAX INT64_C(32768) /* of micro batches through units */

/* A step that was started and whose result has not been read. */
struct started {
    bool is_under_way;
    uint64_t ticket;
    int slot;
    int64_t step;
    struct zo_batches_step batch;
};

/* A list of a step that a trace may want, though it fails on its way. */
struct under_way {
    int64_t step; /* 0: none */
    int64_t begin_ns;
};

struct zo_trainer {
    struct zo_trainer_options options;
    struct zo_glm *glm;
    struct zo_place place; /* empty when a test has chosen */
    struct zo_build build;
    bool is_built;
    struct zo_executor *executor;
    struct zo_decider decider;
    struct zo_feed feed;
    bool has_update;         /* the last step's update has yet to run */
    int64_t updates_started; /* steps started, when none can be skipped */
    struct started last;
    int64_t last_done_ns;
    int64_t tokens_total;
    double best_loss;
    struct under_way under_way[2]; /* one a slot */
    uint64_t gpu_bytes[ZO_DEVICES_MAX];
};

/* ---- building ------------------------------------------------------------ */

static int micros_of(const struct zo_trainer_options *options)
{
    return options->evaluates_only
               ? 1
               : (int)options->config->gradient_accumulation_steps;
}

/* All but a placement. */
static struct zo_build_options build_options(struct zo_trainer *trainer)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_run_config *config = options->config;
    struct zo_build_options build = {
        .device_count = options->devices->machine.device_count,
        .type = config->dtype,
        .comm_type = config->communication_dtype,
        .micros = micros_of(options),
        .decides = zo_run_decides(config),
        .moment_type = config->optimizer.moment_dtype,
        .simd = options->simd,
        .keeps_gradients = options->keeps_gradients,
        .has_evaluation = options->eval_batches != NULL,
        .evaluates_only = options->evaluates_only,
        .bucket_elems = config->zero.reduce_bucket_size,
        .tokens_max = options->bounds.tokens,
        .labels_max = zo_max_i64(options->bounds.labels, 1),
        .boundary_bytes = (uint64_t)options->bounds.tokens *
                          (uint64_t)options->model->hidden_size *
                          zo_dtype_bytes(config->dtype),
        .batch_bytes = trainer->feed.layout.bytes,
        .kernel_ops = options->devices->machine.kernel_ops,
        .model_ops = &zo_glm_ops,
        .model = trainer->glm,
        .decide = zo_decide,
        .decide_context = &trainer->decider,
    };

    build.units = zo_glm_units(trainer->glm, &build.unit_count);
    return build;
}

uint64_t zo_trainer_own_bytes(const struct zo_trainer *trainer, int device)
{
    const struct zo_machine *machine = &trainer->options.devices->machine;

    return machine->kernel_ops->own_device_bytes(machine->kernels[device]) +
           zo_trainer_context_bytes(trainer, device);
}

uint64_t zo_trainer_context_bytes(const struct zo_trainer *trainer, int device)
{
    const struct zo_machine *machine = &trainer->options.devices->machine;

    return machine->device_ops->info(machine->devices[device])->context_bytes;
}

/* The first budget that the plan passes. */
static enum zo_status check_budgets(const struct zo_trainer *trainer)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_program *program = &trainer->build.program;
    const struct zo_machine *machine = &options->devices->machine;
    char need_text[32], budget_text[32];
    uint64_t host = program->arena_bytes[ZO_TIER_CPU][0] +
                    program->arena_bytes[ZO_TIER_PAGEABLE][0];

    for (int d = 0; d < program->device_count; d++) {
        const uint64_t need = program->arena_bytes[ZO_TIER_GPU][d] +
                              zo_trainer_own_bytes(trainer, d);

        if (options->gpu_memory_bytes != 0 &&
            need > options->gpu_memory_bytes) {
            return ZO_FAIL(
                ZO_E_FIT,
                "%s needs %s, and %s are allowed (--gpu-memory); see the plan "
                "for what it is made of",
                machine->device_ops->info(machine->devices[d])->name,
                zo_text_gib(need_text, sizeof(need_text), need),
                zo_text_gib(budget_text, sizeof(budget_text),
                            options->gpu_memory_bytes));
        }
        if (machine->device_ops == &zo_device_host) {
            host += need; /* virtual devices live in host memory */
        }
    }
    if (options->host_memory_bytes != 0 && host > options->host_memory_bytes) {
        return ZO_FAIL(ZO_E_FIT,
                       "the run needs %s of host memory, and %s are allowed "
                       "or free (--host-memory); see the plan for what it is "
                       "made of",
                       zo_text_gib(need_text, sizeof(need_text), host),
                       zo_text_gib(budget_text, sizeof(budget_text),
                                   options->host_memory_bytes));
    }
    return ZO_OK;
}

/* A budget less what it must hold beside an arena; 0 is no budget. */
static uint64_t left_of(uint64_t budget, uint64_t taken)
{
    return budget == 0 ? 0 : (budget > taken ? budget - taken : 1);
}

/* Threads for updates on the host. */
static int workers_of(const struct zo_trainer_options *options)
{
    return options->cpu_threads > 0 ? (int)zo_min_i64(options->cpu_threads, 256)
                                    : zo_devices_cpu_workers(options->devices);
}

/* What a placement may be; `build` is borrowed by it. */
static struct zo_place_options
place_options(const struct zo_trainer *trainer,
              const struct zo_build_options *build)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_machine *machine = &options->devices->machine;
    struct zo_place_options place = {
        .build = build,
        .device_is_host = machine->device_ops == &zo_device_host,
        .profile =
            options->profile != NULL ? options->profile : zo_profile_shipped(0),
        .cpu_workers = workers_of(options),
    };
    uint64_t own = 0;

    zo_place_from_config(options->config, &place);
    place.pageable_weights |= options->avoids_locking;
    place.pageable_optimizer |= options->avoids_locking;
    for (int d = 0; d < machine->device_count; d++) {
        const uint64_t bytes = zo_trainer_own_bytes(trainer, d);

        own = bytes > own ? bytes : own;
    }
    place.gpu_bytes = left_of(options->gpu_memory_bytes, own);
    place.host_bytes = options->host_memory_bytes;
    return place;
}

static enum zo_status choose_placement(struct zo_trainer *trainer,
                                       const struct zo_build_options *build)
{
    const struct zo_place_options options = place_options(trainer, build);

    return zo_place_choose(&options, &trainer->place);
}

/* What does not fit is built all the same, for its plan. */
static enum zo_status build_what_fits(struct zo_trainer *trainer)
{
    struct zo_build_options build = build_options(trainer);
    enum zo_status status = ZO_OK;

    if (trainer->options.placement != NULL) {
        build.placement = *trainer->options.placement;
    } else {
        status = choose_placement(trainer, &build);
        if (status != ZO_OK && status != ZO_E_FIT) {
            return status;
        }
        build.placement = trainer->place.placement;
    }
    ZO_TRY(zo_build_train(&build, &trainer->build));
    trainer->is_built = true;
    return check_budgets(trainer);
}

/*
 * A step is a list of all its micro batches.  At this length one is built in
 * 1 to 6 s of a core, of which a planner tries dozens; the edges of an update
 * that more than 512 gathers precede then grow with the square of it.
 */
static enum zo_status check_length(const struct zo_trainer_options *options)
{
    const int64_t units = options->model->num_layers + 2;
    const int64_t micros = options->evaluates_only
                               ? 1
                               : options->config->gradient_accumulation_steps;

    if (micros > PASSES_MAX / units) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "gradient_accumulation_steps: %" PRId64
                       " micro batches through %" PRId64
                       " units make a step too long to plan; want at most "
                       "%" PRId64 ", with more rows in each",
                       micros, units, PASSES_MAX / units);
    }
    return ZO_OK;
}

static struct zo_glm_batch
batch_layout(const struct zo_trainer_options *options)
{
    return zo_glm_batch_layout(options->bounds.tokens, options->bounds.rows,
                               zo_max_i64(options->bounds.labels, 1));
}

static enum zo_status open_glm(struct zo_trainer *trainer)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_run_config *config = options->config;
    const struct zo_glm_options glm = {
        .config = options->model,
        .type = config->dtype,
        .device_count = options->devices->machine.device_count,
        .micros = micros_of(options),
        .tokens_max = options->bounds.tokens,
        .rows_max = options->bounds.rows,
        .labels_max = zo_max_i64(options->bounds.labels, 1),
        .positions_max = options->positions_max,
        .decay_all = config->optimizer.decay_all,
        .half_angles = config->rope_precision == ZO_ROPE_PRECISION_MODEL,
        .kernel_ops = options->devices->machine.kernel_ops,
    };

    return zo_glm_open(&glm, &trainer->glm);
}

enum zo_status zo_trainer_fits(const struct zo_trainer_options *options,
                               bool *fits_out)
{
    struct zo_trainer trainer = {.options = *options};
    struct zo_build_options build;
    struct zo_place_options place;
    enum zo_status status;

    trainer.feed.layout = batch_layout(options);
    ZO_TRY(open_glm(&trainer));
    build = build_options(&trainer);
    place = place_options(&trainer, &build);
    status = zo_place_fits(&place, fits_out);
    zo_glm_close(trainer.glm);
    return status;
}

/* Whether so many micro batches a step fit in one pass. */
static enum zo_status micros_fit(const struct zo_trainer_options *options,
                                 int64_t micros, bool *fits_out)
{
    struct zo_run_config config = *options->config;
    struct zo_trainer_options changed = *options;

    config.gradient_accumulation_steps = micros;
    changed.config = &config;
    return zo_trainer_fits(&changed, fits_out);
}

enum zo_status
zo_trainer_largest_accumulation(const struct zo_trainer_options *options,
                                int64_t *micros_out)
{
    const int64_t most = PASSES_MAX / (options->model->num_layers + 2);
    int64_t low = 0, high = 1; /* what fits; what may not */
    bool is_in = true;

    for (high = 1; is_in && high <= most; high *= 2) {
        ZO_TRY(micros_fit(options, high, &is_in));
        low = is_in ? high : low;
    }
    high = is_in ? most + 1 : high / 2;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        ZO_TRY(micros_fit(options, middle, &is_in));
        if (is_in) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *micros_out = low;
    return ZO_OK;
}

enum zo_status zo_trainer_open(const struct zo_trainer_options *options,
                               struct zo_trainer **trainer_out)
{
    enum zo_status status;
    struct zo_trainer *trainer = NULL;

    ZO_TRY(check_length(options));
    ZO_TRY(zo_alloc(1, sizeof(*trainer), "the trainer", &trainer));
    trainer->options = *options;
    trainer->best_loss = INFINITY;
    trainer->feed.layout = batch_layout(options);
    trainer->feed.build = &trainer->build;
    trainer->feed.reduction = options->config->loss_reduction;
    ZO_TRY_GOTO(close_trainer,
                zo_decider_init(&trainer->decider, options->config));
    ZO_TRY_GOTO(close_trainer, open_glm(trainer));
    status = build_what_fits(trainer);
    if (status != ZO_OK && status != ZO_E_FIT) {
        goto close_trainer;
    }
    *trainer_out = trainer;
    return status;

close_trainer:
    zo_trainer_close(trainer);
    return status;
}

void zo_trainer_close(struct zo_trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    zo_executor_close(trainer->executor);
    if (trainer->is_built) {
        zo_build_fini(&trainer->build);
    }
    zo_place_fini(&trainer->place);
    zo_glm_close(trainer->glm);
    zo_free(trainer);
}

const struct zo_place *zo_trainer_place(const struct zo_trainer *trainer)
{
    return trainer->place.homes == NULL ? NULL : &trainer->place;
}

int zo_trainer_cpu_workers(const struct zo_trainer *trainer)
{
    return workers_of(&trainer->options);
}

const struct zo_build *zo_trainer_build(const struct zo_trainer *trainer)
{
    return &trainer->build;
}

struct zo_glm *zo_trainer_glm(const struct zo_trainer *trainer)
{
    return trainer->glm;
}

struct zo_executor *zo_trainer_executor(const struct zo_trainer *trainer)
{
    return trainer->executor;
}

enum zo_status zo_trainer_start(struct zo_trainer *trainer)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_machine *machine = &options->devices->machine;
    const struct zo_executor_options executor = {
        .cpu_workers = workers_of(options),
        .is_serial = options->is_serial,
        .poisons = options->poisons,
        .times_ops = options->times_ops,
        .records_times = options->records_times,
        .fail_at_op = options->fail_at_op,
        .pool = options->devices->pool,
    };
    struct zo_control *control;

    ZO_ASSERT(options->trace == NULL || options->records_times);

    ZO_TRY(zo_executor_open(&trainer->build.program, machine, &executor,
                            &trainer->executor));
    trainer->feed.executor = trainer->executor;
    control = zo_executor_address(trainer->executor, trainer->build.control, 0);
    control->loss_scale = trainer->decider.scaler.state.scale;
    for (int d = 0; d < machine->device_count; d++) {
        trainer->gpu_bytes[d] = machine->device_ops->mem_allocated(
            machine->devices[d], ZO_MEM_DEVICE);
    }
    if (options->trace != NULL) {
        ZO_TRY(
            zo_trace_start(options->trace, &trainer->build, trainer->executor));
    }
    return zo_glm_upload_tables(trainer->glm, trainer->executor);
}

struct zo_weights zo_trainer_weights(const struct zo_trainer *trainer)
{
    return (struct zo_weights){
        .glm = trainer->glm,
        .executor = trainer->executor,
        .train = &trainer->build,
        .type = trainer->options.config->dtype,
        .device_count = trainer->options.devices->machine.device_count,
        .pool = trainer->options.devices->pool,
    };
}

enum zo_status zo_trainer_gradient(const struct zo_trainer *trainer,
                                   size_t parameter, float *target)
{
    const enum zo_dtype type = trainer->options.config->dtype;
    const struct zo_parameter *named =
        &zo_glm_parameters(trainer->glm)->items[parameter];
    const struct zo_unit_tensor *tensor =
        &zo_glm_tensors(trainer->glm)[parameter];
    const size_t bytes = (size_t)tensor->elems * zo_dtype_bytes(type);
    enum zo_status status;
    void *grad = NULL;

    ZO_TRY(zo_alloc(1, bytes, "a gradient", &grad));
    status = zo_executor_download(
        trainer->executor, grad,
        zo_build_unit(&trainer->build, named->unit, 0)->grad,
        (uint64_t)tensor->offset_elems * zo_dtype_bytes(type), bytes);
    for (int64_t i = 0; status == ZO_OK && i < tensor->elems; i++) {
        target[i] = zo_load(grad, type, i);
    }
    zo_free(grad);
    return status;
}

/* ---- steps --------------------------------------------------------------- */

/*
 * The fields of a record that do not come from the rows.  An update that was
 * held up by a decision is due in whatever list comes next; others stand in
 * the list of their own step, and none of them is skipped.
 */
static void fill_record(struct zo_trainer *trainer, int slot, int64_t step,
                        bool trains)
{
    const bool decides = trainer->build.options.decides;
    struct zo_step_record *record =
        zo_executor_address(trainer->executor, trainer->build.record, slot);

    record->step = step;
    record->has_update = decides ? trainer->has_update : trains;
    if (trains && !decides) {
        record->update = zo_update_scalars(trainer->options.config,
                                           ++trainer->updates_started, 1.0);
    }
    trainer->has_update = trains && decides;
}

static enum zo_status start_step(struct zo_trainer *trainer, int64_t step)
{
    struct started started = {.is_under_way = true, .step = step};

    ZO_TRY(zo_executor_acquire(trainer->executor, &started.slot));
    ZO_TRY(zo_feed_step(&trainer->feed, trainer->options.batches, step - 1,
                        trainer->build.options.micros, started.slot,
                        &started.batch));
    fill_record(trainer, started.slot, step, true);
    trainer->under_way[started.slot] = (struct under_way){step, zo_clock_ns()};
    ZO_TRY(zo_executor_start(trainer->executor, trainer->build.step_schedule,
                             &started.ticket));
    trainer->last = started;
    return ZO_OK;
}

/* Resident bytes of this process, now; 0 where the system does not say. */
static uint64_t resident_bytes(void)
{
    char text[128] = "";
    unsigned long long pages = 0;
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    if (file < 0) {
        return 0;
    }
    if (read(file, text, sizeof(text) - 1) > 0) {
        (void)sscanf(text, "%*u %llu", &pages);
    }
    (void)close(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t resident_bytes_peak(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0
               ? (uint64_t)usage.ru_maxrss * 1024
               : 0;
}

/* How long an engine was busy in a list; a stream engine, on the average of
 * its devices. */
static double busy_seconds(const struct zo_trainer *trainer,
                           const struct zo_executor_counters *counters,
                           enum zo_engine engine)
{
    const bool is_shared = engine < ZO_ENGINE_COLLECTIVE;
    const double lanes =
        is_shared ? trainer->options.devices->machine.device_count : 1;

    if (zo_engine_is_stream(engine) && !trainer->options.records_times) {
        return NAN; /* null, not a made-up number */
    }
    return (double)counters->busy_ns[engine] * 1e-9 / lanes;
}

static void fill_traffic(struct zo_trainer *trainer, int slot,
                         struct zo_step_metrics *metrics)
{
    const struct zo_machine *machine = &trainer->options.devices->machine;
    struct zo_executor_counters list;

    zo_executor_list_counters(trainer->executor, slot, &list);
    metrics->device_count = (size_t)machine->device_count;
    metrics->gpu_bytes = trainer->gpu_bytes;
    metrics->gpu_bytes_peak = trainer->gpu_bytes; /* nothing grows */
    metrics->host_bytes = resident_bytes();
    metrics->host_bytes_peak = resident_bytes_peak();
    metrics->pinned_bytes =
        machine->device_ops->mem_allocated(machine->devices[0], ZO_MEM_PINNED);
    metrics->h2d_bytes = list.bytes[ZO_ENGINE_H2D];
    metrics->d2h_bytes = list.bytes[ZO_ENGINE_D2H];
    metrics->compute_seconds = busy_seconds(trainer, &list, ZO_ENGINE_COMPUTE);
    metrics->h2d_seconds = busy_seconds(trainer, &list, ZO_ENGINE_H2D);
    metrics->d2h_seconds = busy_seconds(trainer, &list, ZO_ENGINE_D2H);
    metrics->collective_seconds =
        busy_seconds(trainer, &list, ZO_ENGINE_COLLECTIVE);
    metrics->cpu_seconds = busy_seconds(trainer, &list, ZO_ENGINE_CPU);
}

/* Hands a step to the trace: what ran of it, in the lane of steps until now. */
static void trace_step(struct zo_trainer *trainer, int slot, int64_t now)
{
    struct under_way *under_way = &trainer->under_way[slot];
    const struct zo_trace_step step = {
        .step = under_way->step,
        .schedule = trainer->build.step_schedule,
        .slot = slot,
        .begin_ns = zo_max_i64(under_way->begin_ns, trainer->last_done_ns),
        .end_ns = now,
    };

    under_way->step = 0;
    if (trainer->options.trace != NULL &&
        zo_trace_wants(trainer->options.trace, step.step)) {
        zo_trace_list(trainer->options.trace, &step);
    }
}

/* Those that a failure has cut off, the older one first. */
static void trace_what_failed(struct zo_trainer *trainer)
{
    const struct under_way *under_way = trainer->under_way;
    const int first = under_way[0].step > under_way[1].step ? 1 : 0;

    for (int i = 0; i < 2; i++) {
        const int slot = i == 0 ? first : 1 - first;

        if (under_way[slot].step > 0) {
            const int64_t now = zo_clock_ns();

            trace_step(trainer, slot, now);
            trainer->last_done_ns = now;
        }
    }
}

/* Waits for the step that was started last and tells of it. */
static enum zo_status finish_step(struct zo_trainer *trainer,
                                  const struct started *started,
                                  const struct zo_trainer_watch *watch)
{
    const struct zo_step_result *result;
    struct zo_step_metrics metrics = {0};
    int64_t now;

    if (!started->is_under_way) {
        return ZO_OK;
    }
    ZO_TRY(zo_executor_wait(trainer->executor, started->ticket));
    result = zo_executor_address(trainer->executor, trainer->build.result,
                                 started->slot);
    now = zo_clock_ns();
    trainer->tokens_total += started->batch.tokens;
    metrics = (struct zo_step_metrics){
        .step = started->step,
        .epoch = (double)started->step /
                 (double)zo_batches_steps_per_epoch(trainer->options.batches),
        .loss = started->batch.labels > 0 ? result->loss : NAN,
        .grad_norm = result->grad_norm,
        .clip_coefficient = result->clip,
        .learning_rate = result->learning_rate,
        .loss_scale = result->loss_scale,
        .overflow = result->overflowed,
        .skipped_steps = result->skipped_steps,
        .rows = started->batch.rows,
        .tokens = started->batch.tokens,
        .label_tokens = started->batch.labels,
        .tokens_total = trainer->tokens_total,
        .step_seconds = zo_clock_seconds(trainer->last_done_ns, now),
    };
    fill_traffic(trainer, started->slot, &metrics);
    trace_step(trainer, started->slot, now);
    trainer->last_done_ns = now;
    return watch->on_step != NULL ? watch->on_step(watch->context, &metrics)
                                  : ZO_OK;
}

/* Runs the update of the last step, so that weights are those after it. */
static enum zo_status run_tail(struct zo_trainer *trainer)
{
    const struct zo_build *build = &trainer->build;
    uint64_t ticket = 0;
    int slot = 0;

    if (!trainer->has_update) {
        return ZO_OK;
    }
    ZO_TRY(zo_executor_acquire(trainer->executor, &slot));
    fill_record(trainer, slot, trainer->last.step, false);
    ZO_TRY(zo_executor_start(trainer->executor, build->tail_schedule, &ticket));
    return zo_executor_wait(trainer->executor, ticket);
}

/* Nobody decides on the last update: whether its weights are finite. */
static enum zo_status check_last_update(struct zo_trainer *trainer)
{
    const struct zo_build_options *options = &trainer->build.options;
    const uint32_t *host_bad =
        zo_executor_address(trainer->executor, trainer->build.host_bad, 0);

    for (int d = 0; d < options->device_count; d++) {
        for (int u = 0; u < options->unit_count; u++) {
            uint32_t bad = 0;

            ZO_TRY(zo_executor_download(
                trainer->executor, &bad, trainer->build.bad[d],
                (uint64_t)u * sizeof(bad), sizeof(bad)));
            if (bad != 0 || host_bad[d * options->unit_count + u] != 0) {
                return ZO_FAIL(ZO_E_NUMERIC,
                               "step %" PRId64 ": the update made a weight of "
                               "the %s that is not finite; lower the learning "
                               "rate",
                               trainer->last.step, options->units[u].name);
            }
        }
    }
    return ZO_OK;
}

/* ---- evaluation ---------------------------------------------------------- */

/* Sum of the losses of one evaluation list, and its labels. */
static double sum_losses(const struct zo_trainer *trainer, int slot)
{
    const struct zo_build *build = &trainer->build;
    const struct zo_measured measured = {
        .record = zo_executor_address(trainer->executor, build->record, slot),
        .losses =
            zo_executor_address(trainer->executor, build->losses_host, slot),
        .options = &build->options,
    };
    double sum = 0.0;

    for (int d = 0; d < build->options.device_count; d++) {
        const float *losses = zo_measured_losses(&measured, 0, d);

        for (int32_t l = 0; l < measured.record->counts[d].labels; l++) {
            sum += (double)losses[l];
        }
    }
    return sum;
}

enum zo_status zo_trainer_evaluate(struct zo_trainer *trainer,
                                   struct zo_eval_metrics *metrics_out)
{
    struct zo_batches *batches = trainer->options.eval_batches;
    const int64_t steps = zo_batches_steps_per_epoch(batches);
    const int64_t started_ns = zo_clock_ns();
    struct zo_eval_metrics metrics = {0};
    double sum = 0.0;

    for (int64_t i = 0; i < steps; i++) {
        struct zo_batches_step batch;
        uint64_t ticket = 0;
        int slot = 0;

        ZO_TRY(zo_executor_acquire(trainer->executor, &slot));
        ZO_TRY(zo_feed_step(&trainer->feed, batches, i, 1, slot, &batch));
        fill_record(trainer, slot, trainer->last.step, false);
        ZO_TRY(zo_executor_start(trainer->executor,
                                 trainer->build.evaluation_schedule, &ticket));
        ZO_TRY(zo_executor_wait(trainer->executor, ticket));
        sum += sum_losses(trainer, slot);
        metrics.rows += batch.rows;
        metrics.tokens += batch.tokens;
        metrics.label_tokens += batch.labels;
    }
    metrics.loss =
        metrics.label_tokens > 0 ? sum / (double)metrics.label_tokens : NAN;
    metrics.seconds = zo_clock_seconds(started_ns, zo_clock_ns());
    *metrics_out = metrics;
    return ZO_OK;
}

static enum zo_status evaluate_now(struct zo_trainer *trainer, int64_t step,
                                   const struct zo_trainer_watch *watch)
{
    struct zo_eval_metrics metrics;

    ZO_TRY(zo_trainer_evaluate(trainer, &metrics));
    metrics.step = step;
    metrics.epoch = (double)step / (double)zo_batches_steps_per_epoch(
                                       trainer->options.batches);
    metrics.is_best = metrics.loss < trainer->best_loss;
    if (metrics.is_best) {
        trainer->best_loss = metrics.loss;
    }
    if (watch->on_eval != NULL) {
        ZO_TRY(watch->on_eval(watch->context, &metrics));
    }
    trainer->last_done_ns = zo_clock_ns(); /* no step takes its time */
    return ZO_OK;
}

/* ---- the run ------------------------------------------------------------- */

/*
 * One step is always ahead: while the devices work on it, the results of the
 * one before are read and told.
 */
static enum zo_status run_steps(struct zo_trainer *trainer,
                                const struct zo_trainer_watch *watch,
                                int64_t *steps_out)
{
    const struct zo_trainer_options *options = &trainer->options;

    for (int64_t step = options->first_step; step <= options->last_step;
         step++) {
        const struct started before = trainer->last;
        const bool evaluates =
            options->eval_batches != NULL &&
            ((options->eval_every > 0 && step % options->eval_every == 0) ||
             step == options->last_step);

        if (watch->wants_stop != NULL && watch->wants_stop(watch->context)) {
            break;
        }
        ZO_TRY(start_step(trainer, step));
        ZO_TRY(finish_step(trainer, &before, watch));
        *steps_out = step;
        if (evaluates) {
            const struct started now = trainer->last;

            trainer->last.is_under_way = false;
            ZO_TRY(finish_step(trainer, &now, watch));
            ZO_TRY(evaluate_now(trainer, step, watch));
        }
    }
    return finish_step(trainer, &trainer->last, watch);
}

enum zo_status zo_trainer_run(struct zo_trainer *trainer,
                              const struct zo_trainer_watch *watch,
                              int64_t *steps_out)
{
    int64_t steps = trainer->options.first_step - 1;
    enum zo_status status;

    trainer->last = (struct started){.step = steps};
    trainer->last_done_ns = zo_clock_ns();
    status = run_steps(trainer, watch, &steps);
    if (status != ZO_OK) {
        trace_what_failed(trainer);
        return status;
    }
    trainer->last.is_under_way = false;
    *steps_out = steps;
    ZO_TRY(run_tail(trainer));
    ZO_TRY(zo_executor_drain(trainer->executor));
    return check_last_update(trainer);
}
