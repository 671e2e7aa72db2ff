#include "src/train/trainer_internal.h"

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
#include "src/train/place_config.h"

enum zo_status zo_trainer_open(const struct zo_trainer_options *options,
                               struct zo_trainer **trainer_out)
{
    enum zo_status status;
    struct zo_trainer *trainer = NULL;

    ZO_TRY(zo_trainer_check_length(options));
    ZO_TRY(zo_alloc(1, sizeof(*trainer), "the trainer", &trainer));
    trainer->options = *options;
    trainer->best_loss = INFINITY;
    trainer->feed.layout = zo_trainer_batch_layout(options);
    trainer->feed.build = &trainer->build;
    trainer->feed.reduction = options->config->loss_reduction;
    ZO_TRY_GOTO(close_trainer,
                zo_decider_init(&trainer->decider, options->config));
    ZO_TRY_GOTO(close_trainer, zo_trainer_open_glm(trainer));
    status = zo_trainer_build_what_fits(trainer);
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
    return zo_trainer_workers(&trainer->options);
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
    const struct zo_nvme_options nvme =
        options->nvme != NULL ? *options->nvme : zo_place_nvme(options->config);
    const struct zo_executor_options executor = {
        .nvme = &nvme,
        .numa = &options->devices->numa,
        .cpu_workers = zo_trainer_workers(options),
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
    const size_t elem_bytes = zo_dtype_bytes(type);
    const int64_t end = tensor->offset_elems + tensor->elems;
    enum zo_status status;
    int64_t at = tensor->offset_elems;
    char *grad = NULL;

    ZO_TRY(zo_alloc((size_t)tensor->elems, elem_bytes, "a gradient", &grad));
    status = ZO_OK;
    for (int d = 0; status == ZO_OK && at < end; d++) {
        const zo_buffer_id id =
            zo_build_unit(&trainer->build, named->unit, d)->grad;
        const struct zo_held held =
            zo_build_held(&trainer->build, named->unit, d, id, elem_bytes);
        const int64_t to = zo_min_i64(end, held.first + held.count);

        if (to > at) {
            status = zo_executor_download(
                trainer->executor,
                grad + (size_t)(at - tensor->offset_elems) * elem_bytes, id,
                (uint64_t)(at - held.first) * elem_bytes,
                (size_t)(to - at) * elem_bytes);
            at = to;
        }
    }
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
    if (metrics->host_bytes_peak < metrics->host_bytes) { /* the kernel lags */
        metrics->host_bytes_peak = metrics->host_bytes;
    }
    metrics->pinned_bytes =
        machine->device_ops->mem_allocated(machine->devices[0], ZO_MEM_PINNED);
    metrics->h2d_bytes = list.bytes[ZO_ENGINE_H2D];
    metrics->d2h_bytes = list.bytes[ZO_ENGINE_D2H];
    metrics->nvme_bytes = trainer->build.program.arena_bytes[ZO_TIER_NVME][0];
    metrics->nvme_read_bytes = list.nvme_read_bytes;
    metrics->nvme_write_bytes = list.nvme_write_bytes;
    metrics->compute_seconds = busy_seconds(trainer, &list, ZO_ENGINE_COMPUTE);
    metrics->h2d_seconds = busy_seconds(trainer, &list, ZO_ENGINE_H2D);
    metrics->d2h_seconds = busy_seconds(trainer, &list, ZO_ENGINE_D2H);
    metrics->collective_seconds =
        busy_seconds(trainer, &list, ZO_ENGINE_COLLECTIVE);
    metrics->cpu_seconds = busy_seconds(trainer, &list, ZO_ENGINE_CPU);
    metrics->nvme_seconds = busy_seconds(trainer, &list, ZO_ENGINE_NVME);
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
    trainer->last_told = started->step;
    if (trainer->copying.stage != COPY_NONE &&
        trainer->copying.step == started->step) {
        zo_trainer_describe_copy(trainer);
    }
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
    return zo_trainer_evaluate_told(trainer, NULL, NULL, metrics_out);
}

enum zo_status zo_trainer_evaluate_told(struct zo_trainer *trainer,
                                        zo_evaluated_fn tell, void *context,
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
        metrics.seconds = zo_clock_seconds(started_ns, zo_clock_ns());
        if (tell != NULL) {
            tell(context, &metrics);
        }
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

/* ---- saving -------------------------------------------------------------- */

/* Waits for the step that is under way and tells of it. */
static enum zo_status finish_now(struct zo_trainer *trainer,
                                 const struct zo_trainer_watch *watch)
{
    const struct started now = trainer->last;

    trainer->last.is_under_way = false;
    return finish_step(trainer, &now, watch);
}

/* Behind a step that has been told: every update has run, and is sound. */
static enum zo_status save_now(struct zo_trainer *trainer, int64_t step,
                               const struct zo_trainer_watch *watch)
{
    ZO_TRY(run_tail(trainer));
    ZO_TRY(zo_executor_drain(trainer->executor));
    ZO_TRY(check_last_update(trainer));
    ZO_TRY(watch->on_save(watch->context, step));
    trainer->last_done_ns = zo_clock_ns(); /* no step takes its time */
    return ZO_OK;
}

/* The step whose list writes what is copied, and decides that it is sound. */
static int64_t writing_step(const struct zo_trainer *trainer)
{
    return trainer->copying.step + (trainer->build.options.decides ? 1 : 0);
}

/* The list of the copy joins the one that writes the states, once that is
 * started. */
static enum zo_status join_copy(struct zo_trainer *trainer)
{
    struct copying *copying = &trainer->copying;

    if (copying->stage != COPY_WANTED ||
        trainer->last.step < writing_step(trainer)) {
        return ZO_OK;
    }
    copying->stage = COPY_STARTED;
    return zo_executor_join(trainer->executor, trainer->build.save_schedule,
                            &copying->ticket);
}

/* Tells of a copy that is whole and sound. */
static enum zo_status tell_copy(struct zo_trainer *trainer,
                                const struct zo_trainer_watch *watch)
{
    struct copying *copying = &trainer->copying;

    if (copying->stage != COPY_STARTED ||
        trainer->last_told < writing_step(trainer) ||
        !zo_executor_is_done(trainer->executor, copying->ticket)) {
        return ZO_OK;
    }
    copying->stage = COPY_NONE;
    return watch->on_save(watch->context, copying->step);
}

/* Waits for a copy that is on its way, and tells of it. */
static enum zo_status end_copy(struct zo_trainer *trainer,
                               const struct zo_trainer_watch *watch)
{
    if (trainer->copying.stage != COPY_STARTED) {
        return ZO_OK;
    }
    if (trainer->last_told < writing_step(trainer)) {
        ZO_TRY(finish_now(trainer, watch));
    }
    ZO_TRY(zo_executor_wait(trainer->executor, trainer->copying.ticket));
    return tell_copy(trainer, watch);
}

static enum zo_status begin_copy(struct zo_trainer *trainer, int64_t step,
                                 const struct zo_trainer_watch *watch)
{
    ZO_TRY(end_copy(trainer, watch));
    if (watch->on_copy != NULL) {
        ZO_TRY(watch->on_copy(watch->context));
    }
    trainer->copying = (struct copying){.stage = COPY_WANTED, .step = step};
    if (trainer->last_told == step) {
        zo_trainer_describe_copy(trainer);
    }
    return join_copy(trainer);
}

/* ---- the run ------------------------------------------------------------- */

static bool evaluates_behind(const struct zo_trainer_options *options,
                             int64_t step)
{
    return options->eval_batches != NULL &&
           ((options->eval_every > 0 && step % options->eval_every == 0) ||
            step == options->last_step);
}

/* What is due behind a step, which is under way. */
static enum zo_status run_behind(struct zo_trainer *trainer, int64_t step,
                                 const struct zo_trainer_watch *watch)
{
    const bool evaluates = evaluates_behind(&trainer->options, step);
    const bool saves =
        watch->wants_save != NULL && watch->wants_save(watch->context, step);
    const bool copies = trainer->copy != NULL;

    if (evaluates || (saves && !copies)) {
        ZO_TRY(finish_now(trainer, watch));
    }
    if (evaluates) {
        ZO_TRY(end_copy(trainer, watch)); /* then nothing is under way */
        ZO_TRY(evaluate_now(trainer, step, watch));
    }
    if (!saves) {
        return ZO_OK;
    }
    return copies ? begin_copy(trainer, step, watch)
                  : save_now(trainer, step, watch);
}

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

        if (watch->wants_stop != NULL && watch->wants_stop(watch->context)) {
            trainer->copying.stage =
                COPY_NONE; /* who stops saves a later one */
            break;
        }
        ZO_TRY(start_step(trainer, step));
        ZO_TRY(join_copy(trainer));
        ZO_TRY(finish_step(trainer, &before, watch));
        *steps_out = step;
        ZO_TRY(tell_copy(trainer, watch));
        ZO_TRY(run_behind(trainer, step, watch));
    }
    return finish_now(trainer, watch);
}

enum zo_status zo_trainer_run(struct zo_trainer *trainer,
                              const struct zo_trainer_watch *watch,
                              int64_t *steps_out)
{
    int64_t steps = trainer->options.first_step - 1;
    enum zo_status status;

    trainer->last = (struct started){.step = steps};
    trainer->last_told = steps;
    trainer->copying = (struct copying){.stage = COPY_NONE};
    trainer->last_done_ns = zo_clock_ns();
    status = run_steps(trainer, watch, &steps);
    if (status != ZO_OK) {
        trace_what_failed(trainer);
        return status;
    }
    *steps_out = steps;
    ZO_TRY(end_copy(trainer, watch));
    ZO_TRY(run_tail(trainer));
    ZO_TRY(zo_executor_drain(trainer->executor));
    return check_last_update(trainer);
}
