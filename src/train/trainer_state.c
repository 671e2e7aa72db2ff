/*
 * The trainer's state: out of the buffers that hold it, and into them.  Row 7.
 */
#include <pthread.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/train/trainer_internal.h"

/* ---- out ------------------------------------------------------------------
 */

/* What the threads that fetch pieces share. */
struct fetching {
    struct zo_trainer *trainer;
    struct zo_weights weights;
    pthread_mutex_t bus; /* one copy from a device or a disk at a time */
    int64_t half_elems;  /* room of a pair of halves */

    pthread_mutex_t lock; /* guards what follows */
    char **rooms;         /* owned; idle ones */
    int room_count;
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

static enum zo_status download(struct fetching *fetching, void *target,
                               zo_buffer_id id, uint64_t offset_bytes,
                               size_t size_bytes)
{
    struct zo_executor *executor = fetching->trainer->executor;
    const enum zo_tier tier = zo_executor_tier(executor, id);
    enum zo_status status;

    if (tier == ZO_TIER_CPU || tier == ZO_TIER_PAGEABLE) {
        return zo_executor_download(executor, target, id, offset_bytes,
                                    size_bytes);
    }
    (void)pthread_mutex_lock(&fetching->bus);
    status =
        zo_executor_download(executor, target, id, offset_bytes, size_bytes);
    (void)pthread_mutex_unlock(&fetching->bus);
    return status;
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
static void fill_run(const struct zo_trainer *trainer, struct zo_state_run *run)
{
    const struct zo_loss_scaler_state *scaler = &trainer->decider.scaler.state;

    run->step = trainer->last.step;
    run->optimizer_steps = trainer->decider.optimizer_steps;
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

static enum zo_status save(struct fetching *fetching,
                           struct zo_state_write_options *options,
                           struct zo_state_written *written_out)
{
    struct zo_trainer *trainer = fetching->trainer;
    struct zo_state_run run = *options->run;
    struct zo_tensor_info *infos = NULL;
    enum zo_status status;

    fill_run(trainer, &run);
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

enum zo_status zo_trainer_save(struct zo_trainer *trainer,
                               const struct zo_state_write_options *options,
                               struct zo_state_written *written_out)
{
    struct zo_state_write_options all = *options;
    struct fetching fetching = {.trainer = trainer};
    enum zo_status status;

    ZO_ASSERT(!trainer->has_update);
    (void)pthread_mutex_init(&fetching.bus, NULL);
    (void)pthread_mutex_init(&fetching.lock, NULL);
    status =
        open_rooms(&fetching, options->piece_elems > 0 ? options->piece_elems
                                                       : ZO_STATE_PIECE_ELEMS);
    if (status == ZO_OK) {
        status = save(&fetching, &all, written_out);
    }
    for (int i = 0; i < fetching.room_count; i++) {
        zo_free(fetching.rooms[i]);
    }
    zo_free(fetching.rooms);
    (void)pthread_mutex_destroy(&fetching.bus);
    (void)pthread_mutex_destroy(&fetching.lock);
    return status;
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
