#include "src/train/weights.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>

#include "offload/staging.h"
#include "offload/unit.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

/* That a thread makes at a time: 2 MiB of bf16, chunks of NVMe in any type. */
#define PART_ELEMS   1048576
#define PIECES_SPARE 4       /* on the bus while every thread fills one */
#define PIECE_ELEMS  4194304 /* on its way back */

/* Room for one piece of what comes back. */
struct piece {
    uint16_t weight[PIECE_ELEMS];
    int16_t remainder[PIECE_ELEMS];
};

static struct zo_weight_home home_of(const struct zo_weights *weights, int unit,
                                     int device)
{
    if (weights->train != NULL) {
        const struct zo_unit_buffers *buffers =
            zo_build_unit(weights->train, unit, device);

        return (struct zo_weight_home){buffers->weights, buffers->remainder,
                                       buffers->master};
    }
    return (struct zo_weight_home){weights->decode->weights[unit], ZO_NO_BUFFER,
                                   ZO_NO_BUFFER};
}

/* ---- filling ---------------------------------------------------------------
 */

/* Makes masters of a parameter; called by many threads at once. */
struct maker {
    enum zo_status (*make)(const struct maker *maker, size_t parameter,
                           int64_t first_elem, int64_t elem_count,
                           float *target, struct zo_value_counts *counts);
    const struct zo_weights *weights;
    const struct zo_model_dir *dir; /* of the ones that read */
    const struct zo_state *state;   /* of the ones that restore */
    uint64_t seed;                  /* of the ones that invent */
};

/* What one thread makes and sends at a time. */
struct part {
    size_t parameter;
    enum zo_state_kind kind; /* moments when a state is restored */
    int64_t first, count;    /* elements of the parameter */
};

/*
 * Threads take the parts in the order of the files.  Each makes its part in a
 * page-locked piece, queues the copies and goes on, so that the disk, the
 * processor and the bus are busy together.
 */
struct filling {
    const struct maker *maker;
    struct zo_staging *staging;
    struct part *parts; /* owned */
    int64_t part_count;
    int64_t part_elems; /* of the longest */

    pthread_mutex_t lock;           /* guards what follows */
    struct zo_value_counts *counts; /* owned; of each parameter */
    size_t refused;      /* the first parameter with values that cannot stay */
    int64_t failed;      /* the first part that failed */
    struct zo_err error; /* of it */
};

/* A part in every form that it takes. */
struct forms {
    float *master;
    uint16_t *weight;
    int16_t *remainder;
};

static size_t piece_bytes(const struct zo_weights *weights, int64_t elems)
{
    const size_t elem_bytes =
        sizeof(float) + sizeof(uint16_t) + sizeof(int16_t);

    return (size_t)elems *
           (weights->type == ZO_F32 ? sizeof(float) : elem_bytes);
}

static struct forms forms_in(void *memory, int64_t elems)
{
    struct forms forms = {.master = memory};

    forms.weight = (uint16_t *)(forms.master + elems);
    forms.remainder = (int16_t *)(forms.weight + elems);
    return forms;
}

/* Splits masters into what the type stores. */
static void split(enum zo_dtype type, bool has_remainder,
                  const struct forms *forms, int64_t count)
{
    const float *master = forms->master;
    uint16_t *restrict weight = forms->weight;
    int16_t *restrict remainder = forms->remainder;

    if (type == ZO_F16) {
        for (int64_t i = 0; i < count; i++) {
            weight[i] = zo_f32_to_f16(master[i]);
        }
    } else if (has_remainder) {
        for (int64_t i = 0; i < count; i++) {
            weight[i] = zo_pair_weight(master[i]);
            remainder[i] = zo_pair_remainder(master[i]);
        }
    } else if (type == ZO_BF16) {
        for (int64_t i = 0; i < count; i++) {
            weight[i] = zo_f32_to_bf16(master[i]);
        }
    }
}

/* The elements of a unit that a buffer holds. */
static struct zo_held held_by(const struct zo_weights *weights, int unit,
                              int device, zo_buffer_id id, size_t elem_bytes)
{
    int count = 0;

    return weights->train != NULL
               ? zo_build_held(weights->train, unit, device, id, elem_bytes)
               : (struct zo_held){
                     0, zo_glm_units(weights->glm, &count)[unit].elems};
}

/* A stretch of a unit's elements, on its way to one device. */
struct stretch {
    const struct zo_weights *weights;
    struct zo_staging *staging;
    int unit, device;
    int64_t first, count;
};

static struct stretch stretch_of(const struct filling *filling,
                                 const struct part *part, int device)
{
    const struct zo_weights *weights = filling->maker->weights;

    return (struct stretch){
        .weights = weights,
        .staging = filling->staging,
        .unit = zo_glm_parameters(weights->glm)->items[part->parameter].unit,
        .device = device,
        .first = zo_glm_tensors(weights->glm)[part->parameter].offset_elems +
                 part->first,
        .count = part->count,
    };
}

/* What of it the buffer holds; the host's buffers are one for all devices. */
static enum zo_status send(const struct stretch *stretch, zo_buffer_id id,
                           const void *source, size_t elem_bytes)
{
    struct zo_held held;
    int64_t from, to;

    if (id == ZO_NO_BUFFER ||
        (stretch->device > 0 &&
         zo_executor_tier(stretch->weights->executor, id) != ZO_TIER_GPU)) {
        return ZO_OK;
    }
    held = held_by(stretch->weights, stretch->unit, stretch->device, id,
                   elem_bytes);
    from = zo_max_i64(stretch->first, held.first);
    to = zo_min_i64(stretch->first + stretch->count, held.first + held.count);
    if (from >= to) {
        return ZO_OK;
    }
    return zo_staging_upload(
        stretch->staging, id, (uint64_t)(from - held.first) * elem_bytes,
        (const char *)source + (size_t)(from - stretch->first) * elem_bytes,
        (size_t)(to - from) * elem_bytes);
}

static enum zo_status upload_to(const struct stretch *stretch,
                                const struct forms *forms)
{
    const struct zo_weights *weights = stretch->weights;
    const struct zo_weight_home home =
        home_of(weights, stretch->unit, stretch->device);

    if (weights->type == ZO_F32) {
        return send(stretch, home.weights, forms->master, 4);
    }
    ZO_TRY(send(stretch, home.remainder, forms->remainder, 2));
    ZO_TRY(send(stretch, home.master, forms->master, 4));
    return send(stretch, home.weights, forms->weight, 2);
}

/* Finite masters that the type cannot hold. */
static uint64_t count_overflows(enum zo_dtype type, const struct forms *forms,
                                int64_t count)
{
    uint64_t overflows = 0;

    for (int64_t i = 0; type == ZO_F16 && i < count; i++) {
        overflows += (forms->weight[i] & 0x7fff) == 0x7c00 &&
                     forms->master[i] - forms->master[i] == 0.0f;
    }
    return overflows;
}

/* A moment goes as it is. */
static enum zo_status send_moment(const struct filling *filling,
                                  const struct part *part, void *memory)
{
    const struct zo_weights *weights = filling->maker->weights;
    const struct zo_tensor_source *source =
        zo_state_tensors(filling->maker->state, part->kind);
    const enum zo_dtype type = weights->train->options.moment_type;
    const char *name =
        zo_glm_parameters(weights->glm)->items[part->parameter].name;
    size_t index = 0;

    ZO_ASSERT(zo_tensor_source_find(source, name, &index));
    ZO_TRY(zo_tensor_source_read_as(source, index, (uint64_t)part->first,
                                    (uint64_t)part->count, type, memory, NULL));
    for (int d = 0; d < weights->device_count; d++) {
        const struct stretch stretch = stretch_of(filling, part, d);
        const struct zo_unit_buffers *buffers =
            zo_build_unit(weights->train, stretch.unit, d);

        ZO_TRY(send(&stretch,
                    part->kind == ZO_STATE_EXP_AVG ? buffers->exp_avg
                                                   : buffers->exp_avg_sq,
                    memory, zo_dtype_bytes(type)));
    }
    return ZO_OK;
}

/* Makes a part in the piece, and queues its copies to all devices. */
static enum zo_status send_part(const struct filling *filling,
                                const struct part *part,
                                const struct forms *forms,
                                struct zo_value_counts *counts)
{
    const struct maker *maker = filling->maker;
    const struct zo_weights *weights = maker->weights;
    const int unit =
        zo_glm_parameters(weights->glm)->items[part->parameter].unit;
    const bool has_remainder =
        home_of(weights, unit, 0).remainder != ZO_NO_BUFFER;

    if (part->kind != ZO_STATE_MASTER) {
        return send_moment(filling, part, forms->master);
    }
    ZO_TRY(maker->make(maker, part->parameter, part->first, part->count,
                       forms->master, counts));
    split(weights->type, has_remainder, forms, part->count);
    counts->overflowed += count_overflows(weights->type, forms, part->count);
    for (int d = 0; d < weights->device_count; d++) {
        const struct stretch stretch = stretch_of(filling, part, d);

        ZO_TRY(upload_to(&stretch, forms));
    }
    return ZO_OK;
}

static enum zo_status fill_part(const struct filling *filling,
                                const struct part *part,
                                struct zo_value_counts *counts)
{
    void *memory = NULL;
    struct forms forms;
    int piece = 0;

    ZO_TRY(zo_staging_take(filling->staging, &piece, &memory));
    forms = forms_in(memory, filling->part_elems);
    if (send_part(filling, part, &forms, counts) != ZO_OK) {
        const struct zo_err failure = *zo_err_last();
        const enum zo_status ignored = zo_staging_give(filling->staging, piece);

        (void)ignored;
        return zo_err_adopt(&failure);
    }
    return zo_staging_give(filling->staging, piece);
}

/* What stands behind the first mistake is of no use any more. */
static bool is_in_vain(struct filling *filling, int64_t index)
{
    bool is_so;

    (void)pthread_mutex_lock(&filling->lock);
    is_so = index > filling->failed ||
            filling->parts[index].parameter > filling->refused;
    (void)pthread_mutex_unlock(&filling->lock);
    return is_so;
}

/* Does part `index`; keeps the first mistake in the order of the parts. */
static void work(void *argument, int64_t index)
{
    struct filling *filling = argument;
    const struct part *part = &filling->parts[index];
    struct zo_value_counts counts = {0};
    enum zo_status status;

    if (is_in_vain(filling, index)) {
        return;
    }
    status = fill_part(filling, part, &counts);
    (void)pthread_mutex_lock(&filling->lock);
    if (status != ZO_OK && index < filling->failed) {
        filling->failed = index;
        filling->error = *zo_err_last();
    }
    if (filling->maker->dir != NULL && part->parameter < filling->refused &&
        counts.non_finite + counts.overflowed > 0) {
        filling->refused = part->parameter;
    }
    filling->counts[part->parameter].non_finite += counts.non_finite;
    filling->counts[part->parameter].overflowed += counts.overflowed;
    (void)pthread_mutex_unlock(&filling->lock);
}

/* Says what is wrong with the first parameter that is refused. */
static enum zo_status judge(const struct filling *filling,
                            struct zo_notes *notes)
{
    const struct maker *maker = filling->maker;
    const struct zo_parameters *parameters =
        zo_glm_parameters(maker->weights->glm);
    size_t index = 0;

    if (filling->refused == SIZE_MAX) {
        return ZO_OK;
    }
    ZO_ASSERT(zo_model_dir_find(
        maker->dir, parameters->items[filling->refused].name, &index));
    return zo_model_dir_check_values(maker->dir, index, maker->weights->type,
                                     &filling->counts[filling->refused],
                                     ZO_VALUES_REFUSE, notes);
}

static void list_kind(struct filling *filling, size_t parameter,
                      enum zo_state_kind kind, int64_t step)
{
    const struct zo_unit_tensor *tensor =
        &zo_glm_tensors(filling->maker->weights->glm)[parameter];
    int64_t count;

    for (int64_t at = 0; at < tensor->elems; at += count) {
        count = zo_unit_part_elems(tensor, at, step);
        filling->parts[filling->part_count++] =
            (struct part){parameter, kind, at, count};
    }
}

/* All parts, in the order of the files; allocates their list. */
static enum zo_status list_parts(struct filling *filling)
{
    const struct zo_weights *weights = filling->maker->weights;
    const struct zo_unit_tensor *tensors = zo_glm_tensors(weights->glm);
    const size_t parameters = zo_glm_parameters(weights->glm)->trained_count;
    const int kinds = filling->maker->state != NULL ? ZO_STATE_KINDS : 1;
    const int64_t step =
        weights->part_elems > 0 ? weights->part_elems : PART_ELEMS;
    int64_t count = 0;

    filling->part_elems = 1;
    for (size_t i = 0; i < parameters; i++) {
        /* One more where the first is cut short. */
        count += (zo_div_ceil(tensors[i].elems, step) + 1) * kinds;
        filling->part_elems =
            zo_max_i64(filling->part_elems, zo_min_i64(tensors[i].elems, step));
    }
    ZO_TRY(zo_alloc((size_t)count, sizeof(filling->parts[0]),
                    "the parts of all tensors", &filling->parts));
    for (size_t i = 0; i < parameters; i++) {
        for (int kind = 0; kind < kinds; kind++) {
            list_kind(filling, i, (enum zo_state_kind)kind, step);
        }
    }
    return zo_alloc(parameters, sizeof(filling->counts[0]),
                    "what is counted of tensors", &filling->counts);
}

static enum zo_status run(struct filling *filling, struct zo_notes *notes)
{
    const struct zo_weights *weights = filling->maker->weights;
    const int pieces = zo_pool_width(weights->pool) + PIECES_SPARE;
    enum zo_status status;

    ZO_TRY(list_parts(filling));
    ZO_TRY(zo_staging_open(
        weights->executor, piece_bytes(weights, filling->part_elems),
        (int)zo_min_i64(pieces, filling->part_count + 1), &filling->staging));
    zo_pool_run(weights->pool, work, filling, filling->part_count);
    if (filling->failed < filling->part_count &&
        filling->parts[filling->failed].parameter <= filling->refused) {
        status = zo_err_adopt(&filling->error);
    } else {
        status = zo_staging_sync(filling->staging);
    }
    if (status == ZO_OK) {
        status = judge(filling, notes);
    }
    zo_staging_close(filling->staging);
    return status;
}

static enum zo_status fill(const struct maker *maker, struct zo_notes *notes)
{
    struct filling filling = {
        .maker = maker, .refused = SIZE_MAX, .failed = INT64_MAX};
    enum zo_status status;

    (void)pthread_mutex_init(&filling.lock, NULL);
    status = run(&filling, notes);
    (void)pthread_mutex_destroy(&filling.lock);
    zo_free(filling.parts);
    zo_free(filling.counts);
    return status;
}

/* ---- loading ---------------------------------------------------------------
 */

static enum zo_status read_part(const struct maker *maker, size_t parameter,
                                int64_t first_elem, int64_t elem_count,
                                float *target, struct zo_value_counts *counts)
{
    const struct zo_parameter *named =
        &zo_glm_parameters(maker->weights->glm)->items[parameter];
    size_t index = 0;

    ZO_ASSERT(zo_model_dir_find(maker->dir, named->name, &index));
    return zo_model_dir_read_as(maker->dir, index, (uint64_t)first_elem,
                                (uint64_t)elem_count, ZO_F32, target, counts);
}

static enum zo_status check_names(const struct zo_weights *weights,
                                  const struct zo_model_dir *dir,
                                  struct zo_notes *notes)
{
    const struct zo_parameters *parameters = zo_glm_parameters(weights->glm);
    struct zo_expected_tensor *expected = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(parameters->trained_count, sizeof(expected[0]),
                    "the list of tensors", &expected));
    for (size_t i = 0; i < parameters->trained_count; i++) {
        const struct zo_parameter *parameter = &parameters->items[i];

        expected[i].name = parameter->name;
        expected[i].rank = parameter->dims;
        for (int d = 0; d < parameter->dims; d++) {
            expected[i].shape[d] = parameter->shape[d];
        }
    }
    status = zo_model_dir_check_names(dir, expected, parameters->trained_count,
                                      notes);
    zo_free(expected);
    return status;
}

enum zo_status zo_weights_load(const struct zo_weights *weights,
                               const struct zo_model_dir *dir,
                               struct zo_notes *notes)
{
    const struct maker maker = {
        .make = read_part, .weights = weights, .dir = dir};

    ZO_TRY(check_names(weights, dir, notes));
    return fill(&maker, notes);
}

/* ---- restoring ----------------------------------------------------------- */

static enum zo_status restore_part(const struct maker *maker, size_t parameter,
                                   int64_t first_elem, int64_t elem_count,
                                   float *target,
                                   struct zo_value_counts *counts)
{
    const struct zo_tensor_source *source =
        zo_state_tensors(maker->state, ZO_STATE_MASTER);
    const char *name =
        zo_glm_parameters(maker->weights->glm)->items[parameter].name;
    size_t index = 0;

    ZO_ASSERT(zo_tensor_source_find(source, name, &index));
    ZO_TRY(zo_tensor_source_read_as(source, index, (uint64_t)first_elem,
                                    (uint64_t)elem_count, ZO_F32, target,
                                    counts));
    return counts->non_finite == 0
               ? ZO_OK
               : ZO_FAIL(ZO_E_CORRUPT,
                         "%s: \"%s\" has a weight that is not finite",
                         zo_state_path(maker->state), name);
}

enum zo_status zo_weights_check_state(const struct zo_weights *weights,
                                      const struct zo_state *state)
{
    const struct zo_parameters *parameters = zo_glm_parameters(weights->glm);
    const struct zo_tensor_source *source =
        zo_state_tensors(state, ZO_STATE_MASTER);

    for (size_t i = 0; i < parameters->trained_count; i++) {
        const struct zo_parameter *parameter = &parameters->items[i];
        const struct zo_tensor_info *info = NULL;
        size_t index = 0;

        if (zo_tensor_source_find(source, parameter->name, &index)) {
            info = zo_tensor_source_info(source, index);
        }
        if (info == NULL || info->rank != parameter->dims ||
            info->elem_count != (uint64_t)parameter->elems ||
            info->shape[0] != parameter->shape[0]) {
            return ZO_FAIL(ZO_E_CONFIG,
                           "%s: no tensor \"%s\" of the model's shape: it is "
                           "the state of another model",
                           zo_state_path(state), parameter->name);
        }
    }
    if (zo_tensor_source_count(source) != parameters->trained_count) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "%s: %zu tensors, and the model has %zu: it is the "
                       "state of another model",
                       zo_state_path(state), zo_tensor_source_count(source),
                       parameters->trained_count);
    }
    return ZO_OK;
}

enum zo_status zo_weights_restore(const struct zo_weights *weights,
                                  const struct zo_state *state)
{
    const struct maker maker = {
        .make = restore_part, .weights = weights, .state = state};

    return fill(&maker, NULL);
}

/* ---- random weights ------------------------------------------------------ */

static enum zo_status invent_part(const struct maker *maker, size_t parameter,
                                  int64_t first_elem, int64_t elem_count,
                                  float *target, struct zo_value_counts *counts)
{
    struct zo_glm *glm = maker->weights->glm;

    (void)counts;
    zo_parameter_fill(&zo_glm_parameters(glm)->items[parameter],
                      zo_glm_config(glm), maker->seed, first_elem, elem_count,
                      ZO_F32, target);
    return ZO_OK;
}

enum zo_status zo_weights_randomize(const struct zo_weights *weights,
                                    uint64_t seed)
{
    const struct maker maker = {
        .make = invent_part, .weights = weights, .seed = seed};

    return fill(&maker, NULL);
}

/* ---- writing ------------------------------------------------------------- */

/* A state of a unit, by what the buffers of one device are called. */
typedef zo_buffer_id (*zo_state_of)(const struct zo_weight_home *home);

static zo_buffer_id weights_of(const struct zo_weight_home *home)
{
    return home->weights;
}

static zo_buffer_id remainder_of(const struct zo_weight_home *home)
{
    return home->remainder;
}

static zo_buffer_id master_of(const struct zo_weight_home *home)
{
    return home->master;
}

/* Elements of a unit's state, each from the first device that holds it. */
static enum zo_status download(const struct zo_weights *weights, int unit,
                               zo_state_of state, size_t elem_bytes,
                               int64_t first, int64_t count, void *target)
{
    const int64_t end = first + count;
    int64_t at = first;

    for (int d = 0; d < weights->device_count && at < end; d++) {
        const struct zo_weight_home home = home_of(weights, unit, d);
        const struct zo_held held =
            held_by(weights, unit, d, state(&home), elem_bytes);
        const int64_t to = zo_min_i64(end, held.first + held.count);

        if (to > at) {
            ZO_TRY(zo_executor_download(
                weights->executor,
                (char *)target + (size_t)(at - first) * elem_bytes,
                state(&home), (uint64_t)(at - held.first) * elem_bytes,
                (size_t)(to - at) * elem_bytes));
            at = to;
        }
    }
    return ZO_OK;
}

/* The masters of `count` (at most a piece) elements of a unit, from `at`. */
static enum zo_status read_masters(const struct zo_weights *weights, int unit,
                                   int64_t at, int64_t count,
                                   struct piece *piece, float *target)
{
    const struct zo_weight_home home = home_of(weights, unit, 0);
    const bool has_remainder = home.remainder != ZO_NO_BUFFER;

    if (weights->type == ZO_F32) {
        return download(weights, unit, weights_of, 4, at, count, target);
    }
    if (home.master != ZO_NO_BUFFER) {
        return download(weights, unit, master_of, 4, at, count, target);
    }
    ZO_TRY(download(weights, unit, weights_of, 2, at, count, piece->weight));
    if (has_remainder) {
        ZO_TRY(download(weights, unit, remainder_of, 2, at, count,
                        piece->remainder));
    }
    for (int64_t i = 0; i < count; i++) {
        target[i] = has_remainder
                        ? zo_pair_master(piece->weight[i], piece->remainder[i])
                        : zo_load(piece->weight, weights->type, i);
    }
    return ZO_OK;
}

static enum zo_status read_all(const struct zo_weights *weights,
                               size_t parameter, int64_t first_elem,
                               int64_t elem_count, struct piece *piece,
                               float *target)
{
    const struct zo_parameter *named =
        &zo_glm_parameters(weights->glm)->items[parameter];
    const struct zo_unit_tensor *tensor =
        &zo_glm_tensors(weights->glm)[parameter];

    for (int64_t at = 0; at < elem_count; at += PIECE_ELEMS) {
        ZO_TRY(read_masters(
            weights, named->unit, tensor->offset_elems + first_elem + at,
            zo_min_i64(PIECE_ELEMS, elem_count - at), piece, target + at));
    }
    return ZO_OK;
}

enum zo_status zo_weights_read(const struct zo_weights *weights,
                               size_t parameter, int64_t first_elem,
                               int64_t elem_count, float *target)
{
    enum zo_status status;
    struct piece *piece = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*piece), "a piece of a tensor", &piece));
    status =
        read_all(weights, parameter, first_elem, elem_count, piece, target);
    zo_free(piece);
    return status;
}

/* Weights in the type of the files; their numbers have room there. */
static enum zo_status round_to(enum zo_dtype dtype, const float *masters,
                               int64_t count, const char *name, void *buffer)
{
    for (int64_t i = 0; i < count; i++) {
        zo_store(buffer, dtype, i, masters[i]);
        if (isinf(zo_load(buffer, dtype, i))) {
            return ZO_FAIL(ZO_E_NUMERIC,
                           "\"%s\" has the weight %g, too large for %s, the "
                           "type of the source; a training state holds it, "
                           "which export --dtype writes in another",
                           name, (double)masters[i], zo_dtype_name(dtype));
        }
    }
    return ZO_OK;
}

/* What the writer's callback needs. */
struct source {
    const struct zo_weights *weights;
    enum zo_dtype dtype;
    float *masters; /* of the largest piece asked for */
    struct piece *piece;
};

static enum zo_status give(void *context, size_t index, uint64_t offset_bytes,
                           size_t size_bytes, void *buffer)
{
    const struct source *source = context;
    const struct zo_parameters *parameters =
        zo_glm_parameters(source->weights->glm);
    const size_t elem_bytes = zo_dtype_bytes(source->dtype);
    const int64_t first = (int64_t)(offset_bytes / elem_bytes);
    const int64_t count = (int64_t)(size_bytes / elem_bytes);

    if (index >= parameters->trained_count) { /* inv_freq */
        zo_parameter_fill(&parameters->items[index],
                          zo_glm_config(source->weights->glm), 0, first, count,
                          source->dtype, buffer);
        return ZO_OK;
    }
    ZO_TRY(read_all(source->weights, index, first, count, source->piece,
                    source->masters));
    return round_to(source->dtype, source->masters, count,
                    parameters->items[index].name, buffer);
}

static enum zo_status describe_tensors(const struct zo_weights *weights,
                                       const struct zo_weights_export *export_,
                                       struct zo_tensor_info **infos_out,
                                       size_t *count_out)
{
    const struct zo_parameters *parameters = zo_glm_parameters(weights->glm);
    const size_t count =
        export_->has_inv_freq ? parameters->count : parameters->trained_count;
    struct zo_tensor_info *infos = NULL;

    ZO_TRY(zo_alloc(count, sizeof(infos[0]), "the list of tensors", &infos));
    for (size_t i = 0; i < count; i++) {
        const struct zo_parameter *parameter = &parameters->items[i];

        infos[i] = (struct zo_tensor_info){
            .name = parameter->name,
            .element = zo_element_of_dtype(export_->dtype),
            .rank = parameter->dims,
            .shape = {parameter->shape[0], parameter->shape[1]},
        };
    }
    *infos_out = infos;
    *count_out = count;
    return ZO_OK;
}

enum zo_status zo_weights_write(const struct zo_weights *weights,
                                const struct zo_weights_export *export_,
                                struct zo_notes *notes,
                                struct zo_model_written *written_out)
{
    struct source source = {.weights = weights, .dtype = export_->dtype};
    struct zo_model_write_options options = {
        .path = export_->path,
        .source_path = export_->source_path,
        .tokenizer_path = export_->tokenizer_path,
        .config_json = export_->config_json,
        .data = give,
        .context = &source,
        .piece_bytes = PIECE_ELEMS * zo_dtype_bytes(export_->dtype),
        .replace = export_->replace,
    };
    struct zo_tensor_info *infos = NULL;
    enum zo_status status;

    ZO_TRY(describe_tensors(weights, export_, &infos, &options.tensor_count));
    options.tensors = infos;
    ZO_TRY_GOTO(free_infos, zo_alloc(PIECE_ELEMS, sizeof(float),
                                     "a piece of a tensor", &source.masters));
    ZO_TRY_GOTO(free_masters, zo_alloc(1, sizeof(*source.piece),
                                       "a piece of a tensor", &source.piece));
    status = zo_model_dir_write(&options, notes, written_out);
    zo_free(source.piece);
free_masters:
    zo_free(source.masters);
free_infos:
    zo_free(infos);
    return status;
}
