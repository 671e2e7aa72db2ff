/*
 * The trainer's state: out of the buffers that hold it, and into them.  Row 7.
 */
#include <pthread.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/train/trainer_internal.h"

/* ---- out ------------------------------------------------------------------
 */

#define BOUNCE_BYTES ((size_t)1 << 20)

/* What the threads that fetch pieces share. */
struct fetching {
    struct zo_trainer *trainer;
    pthread_mutex_t bus; /* one copy from a device at a time */
    int64_t half_elems;  /* room of a pair of halves */
    char *bounces;       /* owned; page-locked: what devices copy to */

    pthread_mutex_t lock; /* guards what follows */
    char **rooms;         /* owned; idle ones */
    int room_count;
    char **idle_bounces; /* owned; in bounces */
    int bounce_count;
};

/* A state by its place in struct zo_unit_buffers. */
typedef zo_buffer_id (*buffer_fn)(const struct zo_unit_buffers *buffers);

static zo_buffer_id weights_of(const struct zo_unit_buffers *buffers)
{
    return buffers->weights;
}

static zo_buffer_id remainder_of(const struct zo_unit_buffers *buffers)
{
    return buffers->remainder;
}

static zo_buffer_id master_of(const struct zo_unit_buffers *buffers)
{
    return buffers->master;
}

static zo_buffer_id exp_avg_of(const struct zo_unit_buffers *buffers)
{
    return buffers->exp_avg;
}

static zo_buffer_id exp_avg_sq_of(const struct zo_unit_buffers *buffers)
{
    return buffers->exp_avg_sq;
}

/* The bus is free for others while what came is copied on. */
static enum zo_status download_bouncing(struct fetching *fetching, char *target,
                                        zo_buffer_id id, uint64_t offset_bytes,
                                        size_t size_bytes)
{
    struct zo_executor *executor = fetching->trainer->executor;
    enum zo_status status = ZO_OK;
    char *bounce;

    (void)pthread_mutex_lock(&fetching->lock);
    ZO_ASSERT(fetching->bounce_count > 0);
    bounce = fetching->idle_bounces[--fetching->bounce_count];
    (void)pthread_mutex_unlock(&fetching->lock);
    for (size_t at = 0; status == ZO_OK && at < size_bytes;
         at += BOUNCE_BYTES) {
        const size_t bytes =
            size_bytes - at < BOUNCE_BYTES ? size_bytes - at : BOUNCE_BYTES;

        (void)pthread_mutex_lock(&fetching->bus);
        status = zo_executor_download(executor, bounce, id, offset_bytes + at,
                                      bytes);
        (void)pthread_mutex_unlock(&fetching->bus);
        if (status == ZO_OK) {
            memcpy(target + at, bounce, bytes);
        }
    }
    (void)pthread_mutex_lock(&fetching->lock);
    fetching->idle_bounces[fetching->bounce_count++] = bounce;
    (void)pthread_mutex_unlock(&fetching->lock);
    return status;
}

static enum zo_status download(struct fetching *fetching, void *target,
                               zo_buffer_id id, uint64_t offset_bytes,
                               size_t size_bytes)
{
    struct zo_executor *executor = fetching->trainer->executor;

    return zo_executor_tier(executor, id) == ZO_TIER_GPU
               ? download_bouncing(fetching, target, id, offset_bytes,
                                   size_bytes)
               : zo_executor_download(executor, target, id, offset_bytes,
                                      size_bytes);
}

/* Elements of a unit's state, each from the first device that holds it. */
static enum zo_status fetch(struct fetching *fetching, int unit,
                            buffer_fn buffer, size_t elem_bytes, int64_t first,
                            int64_t count, void *target)
{
    const struct zo_build *build = &fetching->trainer->build;
    const int64_t end = first + count;
    int64_t at = first;

    for (int d = 0; d < build->options.device_count && at < end; d++) {
        const zo_buffer_id id = buffer(zo_build_unit(build, unit, d));
        const struct zo_held held =
            zo_build_held(build, unit, d, id, elem_bytes);
        const int64_t to = zo_min_i64(end, held.first + held.count);

        if (to > at) {
            ZO_TRY(download(fetching,
                            (char *)target + (size_t)(at - first) * elem_bytes,
                            id, (uint64_t)(at - held.first) * elem_bytes,
                            (size_t)(to - at) * elem_bytes));
            at = to;
        }
    }
    return ZO_OK;
}

static char *take_room(struct fetching *fetching)
{
    char *room;

    (void)pthread_mutex_lock(&fetching->lock);
    ZO_ASSERT(fetching->room_count > 0);
    room = fetching->rooms[--fetching->room_count];
    (void)pthread_mutex_unlock(&fetching->lock);
    return room;
}

static void give_room(struct fetching *fetching, char *room)
{
    (void)pthread_mutex_lock(&fetching->lock);
    fetching->rooms[fetching->room_count++] = room;
    (void)pthread_mutex_unlock(&fetching->lock);
}

/* bf16: from weights and remainders, which are the two halves of a master. */
static enum zo_status fetch_halves(struct fetching *fetching, int unit,
                                   int64_t first, int64_t count, float *target)
{
    char *room = take_room(fetching);
    uint16_t *weight = (uint16_t *)room;
    int16_t *remainder = (int16_t *)(weight + fetching->half_elems);
    enum zo_status status;

    status = fetch(fetching, unit, weights_of, 2, first, count, weight);
    if (status == ZO_OK) {
        status =
            fetch(fetching, unit, remainder_of, 2, first, count, remainder);
    }
    for (int64_t i = 0; status == ZO_OK && i < count; i++) {
        target[i] = zo_pair_master(weight[i], remainder[i]);
    }
    give_room(fetching, room);
    return status;
}

static enum zo_status fetch_masters(struct fetching *fetching, int unit,
                                    int64_t first, int64_t count, float *target)
{
    const struct zo_build *build = &fetching->trainer->build;

    switch (build->options.type) {
    case ZO_F32:
        return fetch(fetching, unit, weights_of, 4, first, count, target);
    case ZO_F16:
        return fetch(fetching, unit, master_of, 4, first, count, target);
    case ZO_BF16:
        break;
    }
    return fetch_halves(fetching, unit, first, count, target);
}

/* The zo_state_data_fn of a run. */
static enum zo_status give(void *context, enum zo_state_kind kind, size_t index,
                           int64_t first_elem, int64_t elem_count, void *buffer)
{
    struct fetching *fetching = context;
    const struct zo_glm *glm = fetching->trainer->glm;
    const int unit = zo_glm_parameters(glm)->items[index].unit;
    const int64_t first = zo_glm_tensors(glm)[index].offset_elems + first_elem;
    const size_t moment_bytes =
        zo_dtype_bytes(fetching->trainer->build.options.moment_type);

    switch (kind) {
    case ZO_STATE_MASTER:
        return fetch_masters(fetching, unit, first, elem_count, buffer);
    case ZO_STATE_EXP_AVG:
        return fetch(fetching, unit, exp_avg_of, moment_bytes, first,
                     elem_count, buffer);
    case ZO_STATE_EXP_AVG_SQ:
        break;
    }
    return fetch(fetching, unit, exp_avg_sq_of, moment_bytes, first, elem_count,
                 buffer);
}

static enum zo_status open_rooms(struct fetching *fetching, int64_t piece_elems)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(fetching->trainer->glm);
    const int width = zo_pool_width(fetching->trainer->options.devices->pool);

    for (size_t i = 0; i < parameters->trained_count; i++) {
        fetching->half_elems =
            zo_max_i64(fetching->half_elems,
                       zo_min_i64(parameters->items[i].elems, piece_elems));
    }
    ZO_TRY(zo_alloc((size_t)width, sizeof(fetching->rooms[0]),
                    "room for pieces of a state", &fetching->rooms));
    while (fetching->room_count < width) {
        ZO_TRY(zo_alloc((size_t)fetching->half_elems,
                        sizeof(uint16_t) + sizeof(int16_t),
                        "room for pieces of a state",
                        &fetching->rooms[fetching->room_count]));
        fetching->room_count++;
    }
    return ZO_OK;
}

static enum zo_status open_bounces(struct fetching *fetching)
{
    const struct zo_machine *machine =
        &fetching->trainer->options.devices->machine;
    const int width = zo_pool_width(fetching->trainer->options.devices->pool);
    void *memory = NULL;

    ZO_TRY(zo_alloc((size_t)width, sizeof(fetching->idle_bounces[0]),
                    "room for pieces of a state", &fetching->idle_bounces));
    ZO_TRY(machine->device_ops->mem_alloc(
        machine->devices[0], ZO_MEM_PINNED, "room for pieces of a state",
        (size_t)width * BOUNCE_BYTES, &memory));
    fetching->bounces = memory;
    while (fetching->bounce_count < width) {
        fetching->idle_bounces[fetching->bounce_count] =
            fetching->bounces + (size_t)fetching->bounce_count * BOUNCE_BYTES;
        fetching->bounce_count++;
    }
    return ZO_OK;
}

static enum zo_status list_tensors(const struct zo_trainer *trainer,
                                   struct zo_tensor_info **infos_out)
{
    const struct zo_parameters *parameters = zo_glm_parameters(trainer->glm);
    struct zo_tensor_info *infos = NULL;

    ZO_TRY(zo_alloc(parameters->trained_count, sizeof(infos[0]),
                    "the list of tensors", &infos));
    for (size_t i = 0; i < parameters->trained_count; i++) {
        const struct zo_parameter *parameter = &parameters->items[i];

        infos[i] = (struct zo_tensor_info){
            .name = parameter->name,
            .rank = parameter->dims,
            .shape = {parameter->shape[0], parameter->shape[1]},
        };
    }
    *infos_out = infos;
    return ZO_OK;
}

/* Where training stands; the rest is the caller's. */
static void fill_run(const struct zo_trainer *trainer, int64_t step,
                     const struct zo_decided *decided, struct zo_state_run *run)
{
    const struct zo_loss_scaler_state *scaler = &decided->scaler;

    run->step = step;
    run->optimizer_steps = decided->optimizer_steps;
    run->tokens_total = trainer->tokens_total;
    run->best_loss = trainer->best_loss;
    run->scales = trainer->options.config->dtype == ZO_F16;
    run->loss_scale = scaler->scale;
    run->scaler_iteration = scaler->iteration;
    run->last_overflow = scaler->last_overflow;
    run->hysteresis_left = scaler->hysteresis_left;
    run->futile_skips = scaler->futile_skips;
    run->skipped_steps = scaler->skipped_steps;
}

/* Rows and fingerprints, which the trainer does not know. */
static void keep_callers(const struct zo_state_run *callers,
                         struct zo_state_run *run)
{
    run->seed = callers->seed;
    run->shuffles = callers->shuffles;
    run->step_rows = callers->step_rows;
    run->data_fingerprint = callers->data_fingerprint;
    run->model_fingerprint = callers->model_fingerprint;
}

static enum zo_status save(struct fetching *fetching,
                           struct zo_state_write_options *options,
                           struct zo_state_written *written_out)
{
    struct zo_trainer *trainer = fetching->trainer;
    const struct zo_decided now = {trainer->decider.optimizer_steps,
                                   trainer->decider.scaler.state};
    struct zo_state_run run = {0};
    struct zo_tensor_info *infos = NULL;
    enum zo_status status;

    fill_run(trainer, trainer->last.step, &now, &run);
    keep_callers(options->run, &run);
    ZO_TRY(list_tensors(trainer, &infos));
    options->run = &run;
    options->tensors = infos;
    options->tensor_count = zo_glm_parameters(trainer->glm)->trained_count;
    options->moment_type = trainer->build.options.moment_type;
    options->data = give;
    options->context = fetching;
    options->pool = trainer->options.devices->pool;
    status = zo_state_write(options, written_out);
    zo_free(infos);
    return status;
}

static enum zo_status open_fetching(struct zo_trainer *trainer,
                                    int64_t piece_elems,
                                    struct fetching *fetching)
{
    ZO_ASSERT(!trainer->has_update);
    *fetching = (struct fetching){.trainer = trainer};
    (void)pthread_mutex_init(&fetching->bus, NULL);
    (void)pthread_mutex_init(&fetching->lock, NULL);
    ZO_TRY(open_rooms(fetching, piece_elems));
    return open_bounces(fetching);
}

/* Also behind an open that failed. */
static void close_fetching(struct fetching *fetching)
{
    const struct zo_machine *machine =
        &fetching->trainer->options.devices->machine;

    if (fetching->bounces != NULL) {
        machine->device_ops->mem_free(
            machine->devices[0], ZO_MEM_PINNED, fetching->bounces,
            (size_t)zo_pool_width(fetching->trainer->options.devices->pool) *
                BOUNCE_BYTES);
    }
    zo_free(fetching->idle_bounces);
    for (int i = 0; i < fetching->room_count; i++) {
        zo_free(fetching->rooms[i]);
    }
    zo_free(fetching->rooms);
    (void)pthread_mutex_destroy(&fetching->bus);
    (void)pthread_mutex_destroy(&fetching->lock);
}

enum zo_status zo_trainer_save(struct zo_trainer *trainer,
                               const struct zo_state_write_options *options,
                               struct zo_state_written *written_out)
{
    struct zo_state_write_options all = *options;
    struct fetching fetching;
    enum zo_status status;

    status = open_fetching(trainer,
                           options->piece_elems > 0 ? options->piece_elems
                                                    : ZO_STATE_PIECE_ELEMS,
                           &fetching);
    if (status == ZO_OK) {
        status = save(&fetching, &all, written_out);
    }
    close_fetching(&fetching);
    return status;
}

/* ---- a copy ---------------------------------------------------------------
 */

struct zo_trainer_copy {
    struct zo_trainer *trainer;   /* borrowed */
    struct zo_state_run run;      /* of what was taken last */
    struct zo_tensor_info *infos; /* owned; names are the trainer's */
    size_t count;
};

uint64_t zo_trainer_copy_bytes(const struct zo_trainer *trainer)
{
    return trainer->build.program.arena_bytes[ZO_TIER_COPY][0];
}

enum zo_status zo_trainer_copy_open(struct zo_trainer *trainer,
                                    struct zo_trainer_copy **copy_out)
{
    struct zo_trainer_copy *copy = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*copy), "a copy of the state", &copy));
    copy->trainer = trainer;
    copy->count = zo_glm_parameters(trainer->glm)->trained_count;
    status = list_tensors(trainer, &copy->infos);
    if (status == ZO_OK) {
        status = zo_executor_open_copy(trainer->executor,
                                       trainer->options.devices->pool);
    }
    if (status != ZO_OK) {
        zo_trainer_copy_close(copy);
        return status;
    }
    trainer->copy = copy;
    *copy_out = copy;
    return ZO_OK;
}

void zo_trainer_describe_copy(const struct zo_trainer *trainer)
{
    const int64_t step = trainer->copying.step;

    fill_run(trainer, step, &trainer->decider.behind[step & 1],
             &trainer->copy->run);
}

static const char *copied(const struct zo_trainer *trainer, zo_buffer_id id,
                          int64_t first, size_t elem_bytes)
{
    return (const char *)zo_executor_address(trainer->executor, id, 0) +
           (uint64_t)first * elem_bytes;
}

static void give_masters(const struct zo_trainer *trainer,
                         const struct zo_unit_buffers *unit, int64_t first,
                         int64_t count, float *target)
{
    const enum zo_dtype type = trainer->build.options.type;
    const uint16_t *weight;
    const int16_t *remainder;

    if (type != ZO_BF16) {
        memcpy(target,
               copied(trainer, type == ZO_F16 ? unit->master : unit->weights,
                      first, sizeof(float)),
               (size_t)count * sizeof(float));
        return;
    }
    weight = (const void *)copied(trainer, unit->weights, first, 2);
    remainder = (const void *)copied(trainer, unit->remainder, first, 2);
    for (int64_t i = 0; i < count; i++) {
        target[i] = zo_pair_master(weight[i], remainder[i]);
    }
}

/* The zo_state_data_fn of a copy. */
static enum zo_status give_copied(void *context, enum zo_state_kind kind,
                                  size_t index, int64_t first_elem,
                                  int64_t elem_count, void *buffer)
{
    const struct zo_trainer_copy *copy = context;
    const struct zo_trainer *trainer = copy->trainer;
    const struct zo_unit_buffers *unit =
        &trainer->build
             .copies[zo_glm_parameters(trainer->glm)->items[index].unit];
    const int64_t first =
        zo_glm_tensors(trainer->glm)[index].offset_elems + first_elem;
    const size_t moment_bytes =
        zo_dtype_bytes(trainer->build.options.moment_type);

    if (kind == ZO_STATE_MASTER) {
        give_masters(trainer, unit, first, elem_count, buffer);
    } else {
        memcpy(
            buffer,
            copied(trainer,
                   kind == ZO_STATE_EXP_AVG ? unit->exp_avg : unit->exp_avg_sq,
                   first, moment_bytes),
            (size_t)elem_count * moment_bytes);
    }
    return ZO_OK;
}

enum zo_status
zo_trainer_copy_save(const struct zo_trainer_copy *copy,
                     const struct zo_state_write_options *options,
                     struct zo_state_written *written_out)
{
    struct zo_state_write_options all = *options;
    struct zo_state_run run = copy->run;

    keep_callers(options->run, &run);
    all.run = &run;
    all.tensors = copy->infos;
    all.tensor_count = copy->count;
    all.moment_type = copy->trainer->build.options.moment_type;
    all.data = give_copied;
    all.context = (void *)(uintptr_t)copy;
    return zo_state_write(&all, written_out);
}

void zo_trainer_copy_close(struct zo_trainer_copy *copy)
{
    if (copy == NULL) {
        return;
    }
    copy->trainer->copy = NULL;
    zo_free(copy->infos);
    zo_free(copy);
}

/* ---- in -------------------------------------------------------------------
 */

static enum zo_status restore_scaler(struct zo_trainer *trainer,
                                     const struct zo_state_run *run)
{
    const bool scales = trainer->options.config->dtype == ZO_F16;
    struct zo_loss_scaler *scaler = &trainer->decider.scaler;
    const struct zo_loss_scaler_state state = {
        .scale = run->loss_scale,
        .iteration = run->scaler_iteration,
        .last_overflow = run->last_overflow,
        .hysteresis_left = run->hysteresis_left,
        .futile_skips = run->futile_skips,
        .skipped_steps = run->skipped_steps,
    };

    if (scales != (run->scales != 0)) { /* a new type: a new scale */
        scaler->state.skipped_steps = run->skipped_steps;
        return ZO_OK;
    }
    return zo_loss_scaler_restore(scaler, &state);
}

enum zo_status zo_trainer_restore(struct zo_trainer *trainer,
                                  const struct zo_state *state)
{
    const struct zo_weights weights = zo_trainer_weights(trainer);
    const struct zo_state_run *run = zo_state_run(state);
    struct zo_control *control =
        zo_executor_address(trainer->executor, trainer->build.control, 0);

    ZO_TRY(zo_weights_check_state(&weights, state));
    if (run->step < 1 || run->optimizer_steps > run->step ||
        run->skipped_steps > run->step) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: step %lld with %lld updates and %lld skipped is "
                       "nowhere a run can be",
                       zo_state_path(state), (long long)run->step,
                       (long long)run->optimizer_steps,
                       (long long)run->skipped_steps);
    }
    ZO_TRY(restore_scaler(trainer, run));
    ZO_TRY(zo_weights_restore(&weights, state));
    control->loss_scale = trainer->decider.scaler.state.scale;
    trainer->decider.optimizer_steps = run->optimizer_steps;
    trainer->updates_started = run->optimizer_steps;
    trainer->tokens_total = run->tokens_total;
    trainer->best_loss = run->best_loss;
    trainer->options.first_step = run->step + 1;
    trainer->last.step = run->step;
    return ZO_OK;
}
