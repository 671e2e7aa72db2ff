#include "src/train/weights.h"

#include <string.h>

#include "offload/unit.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

#define PIECE_ELEMS 4194304 /* on its way to a device */
#define PART_ELEMS  131072  /* of a piece that a thread makes at a time */
#define PARTS       (PIECE_ELEMS / PART_ELEMS)

/* Room for one piece, in every form that it takes. */
struct piece {
    float master[PIECE_ELEMS];
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
    uint64_t seed;                  /* of the ones that invent */
};

/* A piece of a parameter that is being made, or is on its way. */
struct stretch {
    struct piece *piece;
    size_t parameter;
    int64_t first, count; /* elements of the parameter; count 0: none */
};

/*
 * One round: the stretch before goes to the devices while the pool makes the
 * next one, so that the disk, the processor and the bus are busy together.
 */
struct round {
    const struct maker *maker;
    struct stretch before, next;
    struct zo_value_counts counts[PARTS]; /* a part each */
    enum zo_status statuses[PARTS + 1];
    struct zo_err errors[PARTS + 1];
};

/* Splits masters into what the type stores. */
static void split(const struct zo_weights *weights, struct piece *piece,
                  int64_t first, int64_t count)
{
    const bool has_remainder = home_of(weights, 0, 0).remainder != ZO_NO_BUFFER;

    for (int64_t i = first; i < first + count; i++) {
        const float master = piece->master[i];

        if (weights->type == ZO_F16) {
            piece->weight[i] = zo_f32_to_f16(master);
        } else if (has_remainder) {
            piece->weight[i] = zo_pair_weight(master);
            piece->remainder[i] = zo_pair_remainder(master);
        } else {
            piece->weight[i] = zo_f32_to_bf16(master);
        }
    }
}

static enum zo_status upload_to(const struct zo_weights *weights,
                                const struct zo_weight_home *home,
                                const struct piece *piece, uint64_t offset,
                                size_t elems)
{
    if (weights->type == ZO_F32) {
        return zo_executor_upload(weights->executor, home->weights, 4 * offset,
                                  piece->master, 4 * elems);
    }
    if (home->remainder != ZO_NO_BUFFER) {
        ZO_TRY(zo_executor_upload(weights->executor, home->remainder,
                                  2 * offset, piece->remainder, 2 * elems));
    }
    if (home->master != ZO_NO_BUFFER) {
        ZO_TRY(zo_executor_upload(weights->executor, home->master, 4 * offset,
                                  piece->master, 4 * elems));
    }
    return home->weights == ZO_NO_BUFFER
               ? ZO_OK
               : zo_executor_upload(weights->executor, home->weights,
                                    2 * offset, piece->weight, 2 * elems);
}

static enum zo_status upload(const struct zo_weights *weights,
                             const struct stretch *stretch)
{
    const struct zo_unit_tensor *tensor =
        &zo_glm_tensors(weights->glm)[stretch->parameter];
    const int unit =
        zo_glm_parameters(weights->glm)->items[stretch->parameter].unit;

    for (int d = 0; stretch->count > 0 && d < weights->device_count; d++) {
        const struct zo_weight_home home = home_of(weights, unit, d);

        ZO_TRY(upload_to(weights, &home, stretch->piece,
                         (uint64_t)(tensor->offset_elems + stretch->first),
                         (size_t)stretch->count));
    }
    return ZO_OK;
}

/* Finite masters that the type cannot hold. */
static uint64_t count_overflows(const struct zo_weights *weights,
                                const struct piece *piece, int64_t first,
                                int64_t count)
{
    uint64_t overflows = 0;

    for (int64_t i = first; weights->type == ZO_F16 && i < first + count; i++) {
        overflows += (piece->weight[i] & 0x7fff) == 0x7c00 &&
                     piece->master[i] - piece->master[i] == 0.0f;
    }
    return overflows;
}

static enum zo_status make_part(struct round *round, int64_t part)
{
    const struct stretch *next = &round->next;
    const struct zo_weights *weights = round->maker->weights;
    const int64_t first = part * PART_ELEMS;
    const int64_t count = zo_min_i64(PART_ELEMS, next->count - first);

    ZO_TRY(round->maker->make(
        round->maker, next->parameter, next->first + first, count,
        next->piece->master + first, &round->counts[part]));
    if (weights->type != ZO_F32) {
        split(weights, next->piece, first, count);
    }
    round->counts[part].overflowed +=
        count_overflows(weights, next->piece, first, count);
    return ZO_OK;
}

/* Index 0 sends the stretch before; the others make a part of the next. */
static void work(void *argument, int64_t index)
{
    struct round *round = argument;

    round->statuses[index] = index == 0
                                 ? upload(round->maker->weights, &round->before)
                                 : make_part(round, index - 1);
    if (round->statuses[index] != ZO_OK) {
        round->errors[index] = *zo_err_last();
    }
}

/* Runs a round; adds what its parts counted. */
static enum zo_status run_round(struct round *round, struct zo_pool *pool,
                                struct zo_value_counts *counts)
{
    const int64_t parts = zo_div_ceil(round->next.count, PART_ELEMS);

    memset(round->counts, 0, sizeof(round->counts));
    zo_pool_run(pool, work, round, parts + 1);
    for (int64_t i = 0; i <= parts; i++) {
        if (round->statuses[i] != ZO_OK) {
            return zo_err_adopt(&round->errors[i]);
        }
    }
    for (int64_t i = 0; i < parts; i++) {
        counts->non_finite += round->counts[i].non_finite;
        counts->overflowed += round->counts[i].overflowed;
    }
    return ZO_OK;
}

/* What is made becomes what is sent; its room is for the next. */
static void turn(struct round *round)
{
    struct piece *free_piece = round->before.piece;

    round->before = round->next;
    round->next = (struct stretch){.piece = free_piece};
}

/* Fills one parameter; its last stretch may still be on its way. */
static enum zo_status fill_tensor(struct round *round, struct zo_pool *pool,
                                  size_t parameter,
                                  struct zo_value_counts *counts)
{
    const int64_t elems =
        zo_glm_tensors(round->maker->weights->glm)[parameter].elems;

    for (int64_t at = 0; at < elems; at += PIECE_ELEMS) {
        round->next.parameter = parameter;
        round->next.first = at;
        round->next.count = zo_min_i64(PIECE_ELEMS, elems - at);
        ZO_TRY(run_round(round, pool, counts));
        turn(round);
    }
    return ZO_OK;
}

static enum zo_status judge(const struct maker *maker, size_t parameter,
                            const struct zo_value_counts *counts,
                            struct zo_notes *notes)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(maker->weights->glm);
    size_t index = 0;

    if (maker->dir == NULL) {
        return ZO_OK;
    }
    ZO_ASSERT(zo_model_dir_find(maker->dir, parameters->items[parameter].name,
                                &index));
    return zo_model_dir_check_values(maker->dir, index, maker->weights->type,
                                     counts, ZO_VALUES_REFUSE, notes);
}

static enum zo_status fill_all(const struct maker *maker, struct round *round,
                               struct zo_pool *pool, struct zo_notes *notes)
{
    const size_t count = zo_glm_parameters(maker->weights->glm)->trained_count;
    struct zo_value_counts none = {0};

    for (size_t i = 0; i < count; i++) {
        struct zo_value_counts counts = {0};

        ZO_TRY(fill_tensor(round, pool, i, &counts));
        ZO_TRY(judge(maker, i, &counts, notes));
    }
    return run_round(round, pool, &none); /* sends the last stretch */
}

static enum zo_status fill(const struct maker *maker, struct zo_pool *pool,
                           struct zo_notes *notes)
{
    enum zo_status status;
    struct round *round = NULL;
    struct piece *pieces = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*round), "the filling of weights", &round));
    ZO_TRY_GOTO(free_round,
                zo_alloc(2, sizeof(*pieces), "pieces of a tensor", &pieces));
    round->maker = maker;
    round->before.piece = &pieces[0];
    round->next.piece = &pieces[1];
    status = fill_all(maker, round, pool, notes);
    zo_free(pieces);
free_round:
    zo_free(round);
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
    return fill(&maker, weights->pool, notes);
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

    return fill(&maker, weights->pool, NULL);
}

/* ---- writing ------------------------------------------------------------- */

static enum zo_status download(const struct zo_weights *weights, void *target,
                               zo_buffer_id source, int64_t at, int64_t count,
                               size_t elem_bytes)
{
    return zo_executor_download(weights->executor, target, source,
                                (uint64_t)at * elem_bytes,
                                (size_t)count * elem_bytes);
}

/* The masters of `count` (at most a piece) elements of a unit, from `at`. */
static enum zo_status read_masters(const struct zo_weights *weights,
                                   const struct zo_weight_home *home,
                                   int64_t at, int64_t count,
                                   struct piece *piece, float *target)
{
    if (weights->type == ZO_F32) {
        return download(weights, target, home->weights, at, count, 4);
    }
    if (home->master != ZO_NO_BUFFER) {
        return download(weights, target, home->master, at, count, 4);
    }
    ZO_TRY(download(weights, piece->weight, home->weights, at, count, 2));
    if (home->remainder != ZO_NO_BUFFER) {
        ZO_TRY(
            download(weights, piece->remainder, home->remainder, at, count, 2));
    }
    for (int64_t i = 0; i < count; i++) {
        target[i] = home->remainder != ZO_NO_BUFFER
                        ? zo_pair_master(piece->weight[i], piece->remainder[i])
                        : zo_load(piece->weight, weights->type, i);
    }
    return ZO_OK;
}

enum zo_status zo_weights_read(const struct zo_weights *weights,
                               size_t parameter, int64_t first_elem,
                               int64_t elem_count, float *target)
{
    const struct zo_parameter *named =
        &zo_glm_parameters(weights->glm)->items[parameter];
    const struct zo_unit_tensor *tensor =
        &zo_glm_tensors(weights->glm)[parameter];
    const struct zo_weight_home home = home_of(weights, named->unit, 0);
    enum zo_status status = ZO_OK;
    struct piece *piece = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*piece), "a piece of a tensor", &piece));
    for (int64_t at = 0; at < elem_count && status == ZO_OK;
         at += PIECE_ELEMS) {
        status = read_masters(
            weights, &home, tensor->offset_elems + first_elem + at,
            zo_min_i64(PIECE_ELEMS, elem_count - at), piece, target + at);
    }
    zo_free(piece);
    return status;
}

/* What the writer's callback needs. */
struct source {
    const struct zo_weights *weights;
    enum zo_dtype dtype;
    float *masters; /* of the largest piece asked for */
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
    ZO_TRY(
        zo_weights_read(source->weights, index, first, count, source->masters));
    for (int64_t i = 0; i < count; i++) {
        zo_store(buffer, source->dtype, i, source->masters[i]);
    }
    return ZO_OK;
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
    status = zo_model_dir_write(&options, notes, written_out);
    zo_free(source.masters);
free_infos:
    zo_free(infos);
    return status;
}
