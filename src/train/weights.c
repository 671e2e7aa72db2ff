#include "src/train/weights.h"

#include <string.h>

#include "offload/unit.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

#define PIECE_ELEMS 262144

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

/* ---- loading ------------------------------------------------------------- */

/* Splits the masters of a piece into what the type stores. */
static void split(const struct zo_weights *weights, struct piece *piece,
                  int64_t count, bool has_remainder)
{
    for (int64_t i = 0; i < count; i++) {
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

static enum zo_status upload(const struct zo_weights *weights,
                             const struct zo_weight_home *home,
                             const struct piece *piece, int64_t at,
                             int64_t count)
{
    const uint64_t offset = (uint64_t)at;
    const size_t elems = (size_t)count;

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
    return zo_executor_upload(weights->executor, home->weights, 2 * offset,
                              piece->weight, 2 * elems);
}

static enum zo_status load_tensor(const struct zo_weights *weights,
                                  const struct zo_model_dir *dir,
                                  size_t parameter, struct piece *piece,
                                  struct zo_notes *notes)
{
    const struct zo_parameter *named =
        &zo_glm_parameters(weights->glm)->items[parameter];
    const struct zo_unit_tensor *tensor =
        &zo_glm_tensors(weights->glm)[parameter];
    struct zo_value_counts counts = {0};
    size_t index = 0;

    ZO_ASSERT(zo_model_dir_find(dir, named->name, &index));
    for (int64_t at = 0; at < tensor->elems; at += PIECE_ELEMS) {
        const int64_t count = zo_min_i64(PIECE_ELEMS, tensor->elems - at);

        ZO_TRY(zo_model_dir_read_as(dir, index, (uint64_t)at, (uint64_t)count,
                                    ZO_F32, piece->master, &counts));
        for (int64_t i = 0; weights->type == ZO_F16 && i < count; i++) {
            const uint16_t bits = zo_f32_to_f16(piece->master[i]);

            counts.overflowed += (bits & 0x7fff) == 0x7c00 &&
                                 piece->master[i] - piece->master[i] == 0.0f;
        }
        for (int d = 0; d < weights->device_count; d++) {
            const struct zo_weight_home home = home_of(weights, named->unit, d);

            split(weights, piece, count, home.remainder != ZO_NO_BUFFER);
            ZO_TRY(upload(weights, &home, piece, tensor->offset_elems + at,
                          count));
        }
    }
    return zo_model_dir_check_values(dir, index, weights->type, &counts,
                                     ZO_VALUES_REFUSE, notes);
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
    const struct zo_parameters *parameters = zo_glm_parameters(weights->glm);
    enum zo_status status = ZO_OK;
    struct piece *piece = NULL;

    ZO_TRY(check_names(weights, dir, notes));
    ZO_TRY(zo_alloc(1, sizeof(*piece), "a piece of a tensor", &piece));
    for (size_t i = 0; i < parameters->trained_count && status == ZO_OK; i++) {
        status = load_tensor(weights, dir, i, piece, notes);
    }
    zo_free(piece);
    return status;
}

/* ---- random weights ------------------------------------------------------ */

#define FILL_ELEMS 8192 /* of a piece that a thread makes at a time */

struct filling {
    const struct zo_parameter *parameter;
    const struct zo_model_config *config;
    uint64_t seed;
    int64_t first, count;
    float *target;
};

static void fill_part(void *work, int64_t index)
{
    const struct filling *filling = work;
    const int64_t at = index * FILL_ELEMS;

    zo_parameter_fill(filling->parameter, filling->config, filling->seed,
                      filling->first + at,
                      zo_min_i64(FILL_ELEMS, filling->count - at), ZO_F32,
                      filling->target + at);
}

static enum zo_status randomize_tensor(const struct zo_weights *weights,
                                       size_t parameter, uint64_t seed,
                                       struct zo_pool *pool,
                                       struct piece *piece)
{
    const struct zo_unit_tensor *tensor =
        &zo_glm_tensors(weights->glm)[parameter];
    struct filling filling = {
        .parameter = &zo_glm_parameters(weights->glm)->items[parameter],
        .config = zo_glm_config(weights->glm),
        .seed = seed,
        .target = piece->master,
    };

    for (int64_t at = 0; at < tensor->elems; at += PIECE_ELEMS) {
        filling.first = at;
        filling.count = zo_min_i64(PIECE_ELEMS, tensor->elems - at);
        zo_pool_run(pool, fill_part, &filling,
                    zo_div_ceil(filling.count, FILL_ELEMS));
        for (int d = 0; d < weights->device_count; d++) {
            const struct zo_weight_home home =
                home_of(weights, filling.parameter->unit, d);

            split(weights, piece, filling.count,
                  home.remainder != ZO_NO_BUFFER);
            ZO_TRY(upload(weights, &home, piece, tensor->offset_elems + at,
                          filling.count));
        }
    }
    return ZO_OK;
}

enum zo_status zo_weights_randomize(const struct zo_weights *weights,
                                    uint64_t seed, struct zo_pool *pool)
{
    const struct zo_parameters *parameters = zo_glm_parameters(weights->glm);
    enum zo_status status = ZO_OK;
    struct piece *piece = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*piece), "a piece of a tensor", &piece));
    for (size_t i = 0; i < parameters->trained_count && status == ZO_OK; i++) {
        status = randomize_tensor(weights, i, seed, pool, piece);
    }
    zo_free(piece);
    return status;
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
