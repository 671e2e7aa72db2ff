#include "src/model/glm_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

/* Forward reads the embedding by the rows of the batch. */
static bool rows_of(void *model, int unit, struct zo_unit_rows *rows_out)
{
    const struct zo_glm *glm = model;

    if (unit != 0) {
        return false;
    }
    *rows_out = (struct zo_unit_rows){
        .row_bytes = (uint64_t)glm->config.hidden_size *
                     zo_dtype_bytes(glm->options.type),
        .rows_max = (uint64_t)zo_min_i64(glm->options.tokens_max,
                                         glm->config.vocab_size + 1),
        .gather = zo_glm_run_gather_rows,
    };
    return true;
}

const struct zo_model_ops zo_glm_ops = {
    .prepare = zo_glm_prepare,
    .rows = rows_of,
    .forward = zo_glm_forward,
    .turn = zo_glm_turn,
    .backward = zo_glm_backward,
};

/* ---- units --------------------------------------------------------------- */

/* Parameters come in the order of units, so a unit's lie together. */
static void add_tensor(struct zo_glm *glm, size_t index)
{
    const struct zo_parameter *parameter = &glm->parameters.items[index];
    struct zo_unit *unit = &glm->units[parameter->unit];

    glm->tensors[index] = (struct zo_unit_tensor){
        .name = parameter->name,
        .dims = parameter->dims,
        .shape = {parameter->shape[0], parameter->shape[1]},
        .decays =
            parameter->kind == ZO_PARAMETER_WEIGHT || glm->options.decay_all,
    };
    if (unit->tensor_count++ == 0) {
        unit->tensors = &glm->tensors[index];
    }
}

static void name_unit(struct zo_glm *glm, int unit)
{
    char *name = glm->unit_names[unit];

    if (unit == 0) {
        (void)snprintf(name, ZO_GLM_NAME_MAX, "embedding");
    } else if (unit + 1 == glm->unit_count) {
        (void)snprintf(name, ZO_GLM_NAME_MAX, "head");
    } else {
        (void)snprintf(name, ZO_GLM_NAME_MAX, "layer %d", unit - 1);
    }
    glm->units[unit].name = name;
}

static enum zo_status make_units(struct zo_glm *glm)
{
    const size_t units = (size_t)glm->config.num_layers + 2;

    ZO_TRY(zo_parameters_init(&glm->parameters, &glm->config));
    ZO_TRY(zo_alloc(units, sizeof(glm->units[0]), "the units", &glm->units));
    ZO_TRY(zo_alloc(glm->parameters.count, sizeof(glm->tensors[0]), "the units",
                    &glm->tensors));
    ZO_TRY(zo_alloc(units, sizeof(glm->unit_names[0]), "the units",
                    &glm->unit_names));
    glm->unit_count = (int)units;
    for (size_t i = 0; i < glm->parameters.trained_count; i++) {
        add_tensor(glm, i);
    }
    for (int u = 0; u < glm->unit_count; u++) {
        name_unit(glm, u);
        ZO_TRY(zo_unit_layout(&glm->units[u], glm->options.device_count));
    }
    return ZO_OK;
}

const struct zo_unit *zo_glm_units(const struct zo_glm *glm, int *count_out)
{
    *count_out = glm->unit_count;
    return glm->units;
}

const struct zo_model_config *zo_glm_config(const struct zo_glm *glm)
{
    return &glm->config;
}

const struct zo_parameters *zo_glm_parameters(const struct zo_glm *glm)
{
    return &glm->parameters;
}

const struct zo_unit_tensor *zo_glm_tensors(const struct zo_glm *glm)
{
    return glm->tensors;
}

/* ---- opening and closing ------------------------------------------------- */

enum zo_status zo_glm_open(const struct zo_glm_options *options,
                           struct zo_glm **glm_out)
{
    enum zo_status status;
    struct zo_glm *glm = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*glm), "the model", &glm));
    glm->options = *options;
    glm->config = *options->config;
    glm->head_total = glm->config.num_heads * glm->config.head_width;
    glm->qkv_width = glm->head_total +
                     2 * glm->config.num_kv_groups * glm->config.head_width;
    glm->pairs = glm->config.rotary_width / 2;
    glm->batch = zo_glm_batch_layout(options->tokens_max, options->rows_max,
                                     options->labels_max);
    ZO_TRY_GOTO(close_glm, make_units(glm));
    ZO_TRY_GOTO(close_glm,
                zo_alloc((size_t)glm->unit_count * (size_t)options->micros *
                             (size_t)options->device_count,
                         sizeof(glm->saved[0]), "the model", &glm->saved));
    *glm_out = glm;
    return ZO_OK;

close_glm:
    zo_glm_close(glm);
    return status;
}

void zo_glm_close(struct zo_glm *glm)
{
    if (glm == NULL) {
        return;
    }
    zo_free(glm->units);
    zo_free(glm->tensors);
    zo_parameters_fini(&glm->parameters);
    zo_free(glm->unit_names);
    zo_free(glm->saved);
    zo_free(glm);
}

/* ---- batches and the cache ----------------------------------------------- */

struct zo_glm_batch zo_glm_batch_layout(int64_t tokens_max, int64_t rows_max,
                                        int64_t labels_max)
{
    const uint64_t tokens = (uint64_t)tokens_max, rows = (uint64_t)rows_max;
    const uint64_t labels = (uint64_t)labels_max;
    struct zo_glm_batch batch = {0};
    const struct {
        uint64_t *offset, count;
    } arrays[] = {
        {&batch.ids, tokens},
        {&batch.positions, tokens},
        {&batch.row_start, rows + 1},
        {&batch.label_index, labels},
        {&batch.label_id, labels},
        {&batch.order, tokens},
        {&batch.segment_start, tokens + 1},
        {&batch.segment_id, tokens},
        {&batch.table_row, tokens},
        {&batch.kv_start, rows},
        {&batch.kv_length, rows},
    };

    for (size_t i = 0; i < ZO_COUNT(arrays); i++) {
        *arrays[i].offset = batch.bytes;
        batch.bytes +=
            zo_round_up(arrays[i].count * sizeof(int32_t), ZO_ALIGN_BYTES);
    }
    return batch;
}

uint64_t zo_glm_cache_bytes(const struct zo_model_config *config,
                            enum zo_dtype type, int64_t positions)
{
    return (uint64_t)positions *
           (uint64_t)((config->num_heads + 2 * config->num_kv_groups) *
                      config->head_width) *
           zo_dtype_bytes(type);
}

/* ---- the rotary table ---------------------------------------------------- */

void zo_glm_rope_table(const struct zo_model_config *config, enum zo_dtype type,
                       bool half_angles, int64_t positions, float *table_out)
{
    const enum zo_dtype step = half_angles ? type : ZO_F32;
    const int64_t pairs = config->rotary_width / 2;

    for (int64_t i = 0; i < pairs; i++) {
        const float theta = zo_rotary_frequency(config, i, step);

        for (int64_t p = 0; p < positions; p++) {
            const float position = zo_round(
                zo_round((float)p, step) / (float)config->rope_position_divisor,
                step);
            const double angle = (double)zo_round(position * theta, step);
            float *entry = table_out + 2 * (p * pairs + i);

            entry[0] = zo_round((float)cos(angle), step);
            entry[1] = zo_round((float)sin(angle), step);
        }
    }
}

enum zo_status zo_glm_upload_tables(struct zo_glm *glm,
                                    struct zo_executor *executor)
{
    enum zo_status status = ZO_OK;
    const size_t bytes = (size_t)glm->options.positions_max *
                         (size_t)glm->pairs * 2 * sizeof(float);
    float *table = NULL;

    ZO_TRY(zo_alloc(1, bytes, "the rotary table", &table));
    zo_glm_rope_table(&glm->config, glm->options.type, glm->options.half_angles,
                      glm->options.positions_max, table);
    for (int d = 0; d < glm->options.device_count && status == ZO_OK; d++) {
        status =
            zo_executor_upload(executor, glm->rope_table[d], 0, table, bytes);
    }
    zo_free(table);
    return status;
}
