#include "src/model/glm_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

#define LAYER_PREFIX "transformer.encoder.layers."

const struct zo_model_ops zo_glm_ops = {
    .prepare = zo_glm_prepare,
    .forward = zo_glm_forward,
    .turn = zo_glm_turn,
    .backward = zo_glm_backward,
};

/* ---- units ---------------------------------------------------------------- */

struct tensor_shape {
    const char *name;
    int dims;
    int64_t rows, cols;
};

/* Appends a unit of the given tensors; names follow `prefix`. */
static void add_unit(struct zo_glm *glm, const char *unit_name,
                     const char *prefix, const struct tensor_shape *shapes,
                     int count)
{
    struct zo_unit *unit = &glm->units[glm->unit_count];
    struct zo_unit_tensor *first =
        glm->unit_count == 0
            ? glm->tensors
            : unit[-1].tensors + unit[-1].tensor_count;

    (void)snprintf(glm->unit_names[glm->unit_count], ZO_GLM_NAME_MAX, "%s",
                   unit_name);
    *unit = (struct zo_unit){
        .name = glm->unit_names[glm->unit_count],
        .tensors = first,
        .tensor_count = count,
    };
    for (int i = 0; i < count; i++) {
        char *name = glm->names[first - glm->tensors + i];

        (void)snprintf(name, ZO_GLM_NAME_MAX, "%s%s", prefix, shapes[i].name);
        first[i] = (struct zo_unit_tensor){
            .name = name,
            .dims = shapes[i].dims,
            .shape = {shapes[i].rows, shapes[i].cols},
            .decays = shapes[i].dims > 1 || glm->options.decay_all,
        };
    }
    glm->unit_count++;
}

static void add_layer(struct zo_glm *glm, int64_t layer)
{
    const struct zo_model_config *c = &glm->config;
    const struct tensor_shape shapes[ZO_GLM_LAYER_TENSORS] = {
        [ZO_GLM_NORM1] = {"input_layernorm.weight", 1, c->hidden_size, 1},
        [ZO_GLM_QKV] = {"self_attention.query_key_value.weight", 2,
                        glm->qkv_width, c->hidden_size},
        [ZO_GLM_DENSE] = {"self_attention.dense.weight", 2, c->hidden_size,
                          glm->head_total},
        [ZO_GLM_NORM2] = {"post_attention_layernorm.weight", 1,
                          c->hidden_size, 1},
        [ZO_GLM_UP] = {"mlp.dense_h_to_4h.weight", 2, 2 * c->ffn_size,
                       c->hidden_size},
        [ZO_GLM_DOWN] = {"mlp.dense_4h_to_h.weight", 2, c->hidden_size,
                         c->ffn_size},
        [ZO_GLM_QKV_BIAS] = {"self_attention.query_key_value.bias", 1,
                             glm->qkv_width, 1},
    };
    char name[ZO_GLM_NAME_MAX], prefix[ZO_GLM_NAME_MAX];

    (void)snprintf(name, sizeof(name), "layer %lld", (long long)layer);
    (void)snprintf(prefix, sizeof(prefix), LAYER_PREFIX "%lld.",
                   (long long)layer);
    add_unit(glm, name, prefix, shapes,
             c->has_qkv_bias ? ZO_GLM_LAYER_TENSORS
                             : ZO_GLM_LAYER_TENSORS - 1);
}

static enum zo_status make_units(struct zo_glm *glm)
{
    const struct zo_model_config *c = &glm->config;
    const size_t units = (size_t)c->num_layers + 2;
    const size_t tensors = units * ZO_GLM_LAYER_TENSORS;
    const struct tensor_shape embedding = {"word_embeddings.weight", 2,
                                           c->vocab_size, c->hidden_size};
    const struct tensor_shape head[ZO_GLM_HEAD_TENSORS] = {
        [ZO_GLM_FINAL_NORM] = {"encoder.final_layernorm.weight", 1,
                               c->hidden_size, 1},
        [ZO_GLM_OUTPUT] = {"output_layer.weight", 2, c->vocab_size,
                           c->hidden_size},
    };

    ZO_TRY(zo_alloc(units, sizeof(glm->units[0]), "the units", &glm->units));
    ZO_TRY(zo_alloc(tensors, sizeof(glm->tensors[0]), "the units",
                    &glm->tensors));
    ZO_TRY(zo_alloc(tensors, sizeof(glm->names[0]), "the units", &glm->names));
    ZO_TRY(zo_alloc(units, sizeof(glm->unit_names[0]), "the units",
                    &glm->unit_names));
    add_unit(glm, "embedding", "transformer.embedding.", &embedding, 1);
    for (int64_t layer = 0; layer < c->num_layers; layer++) {
        add_layer(glm, layer);
    }
    add_unit(glm, "head", "transformer.", head, ZO_GLM_HEAD_TENSORS);
    for (int i = 0; i < glm->unit_count; i++) {
        ZO_TRY(zo_unit_layout(&glm->units[i], glm->options.device_count));
    }
    return ZO_OK;
}

const struct zo_unit *zo_glm_units(const struct zo_glm *glm, int *count_out)
{
    *count_out = glm->unit_count;
    return glm->units;
}

/* ---- opening and closing -------------------------------------------------- */

enum zo_status zo_glm_open(const struct zo_glm_options *options,
                           struct zo_glm **glm_out)
{
    enum zo_status status;
    struct zo_glm *glm = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*glm), "the model", &glm));
    glm->options = *options;
    glm->config = *options->config;
    glm->head_total = glm->config.num_heads * glm->config.head_width;
    glm->qkv_width =
        glm->head_total +
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
    zo_free(glm->names);
    zo_free(glm->unit_names);
    zo_free(glm->saved);
    zo_free(glm);
}

/* ---- batches and the cache ------------------------------------------------ */

struct zo_glm_batch zo_glm_batch_layout(int64_t tokens_max, int64_t rows_max,
                                        int64_t labels_max)
{
    const uint64_t tokens = (uint64_t)tokens_max, rows = (uint64_t)rows_max;
    const uint64_t labels = (uint64_t)labels_max;
    struct zo_glm_batch batch = {0};
    const struct {
        uint64_t *offset, count;
    } arrays[] = {
        {&batch.ids, tokens},          {&batch.positions, tokens},
        {&batch.row_start, rows + 1},  {&batch.label_index, labels},
        {&batch.label_id, labels},     {&batch.order, tokens},
        {&batch.segment_start, tokens + 1},
        {&batch.segment_id, tokens},   {&batch.kv_start, rows},
        {&batch.kv_length, rows},
    };

    for (size_t i = 0; i < ZO_COUNT(arrays); i++) {
        *arrays[i].offset = batch.bytes;
        batch.bytes += zo_round_up(arrays[i].count * sizeof(int32_t),
                                   ZO_ALIGN_BYTES);
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

/* ---- the rotary table ----------------------------------------------------- */

static float rounded(float value, enum zo_dtype type)
{
    uint16_t bits;

    switch (type) {
    case ZO_F32:
        return value;
    case ZO_BF16:
        bits = zo_f32_to_bf16(value);
        return zo_bf16_to_f32(bits);
    case ZO_F16:
        bits = zo_f32_to_f16(value);
        return zo_f16_to_f32(bits);
    }
    return value;
}

void zo_glm_rope_table(const struct zo_model_config *config,
                       enum zo_dtype type, bool half_angles, int64_t positions,
                       float *table_out)
{
    const enum zo_dtype step = half_angles ? type : ZO_F32;
    const int64_t pairs = config->rotary_width / 2;

    for (int64_t i = 0; i < pairs; i++) {
        const float exponent = rounded(
            rounded((float)(2 * i), step) / (float)config->rotary_width, step);
        const float power = rounded(
            (float)pow(config->rope_base, (double)exponent), step);
        const float theta = rounded(1.0f / power, step);

        for (int64_t p = 0; p < positions; p++) {
            const float position =
                rounded(rounded((float)p, step) /
                            (float)config->rope_position_divisor,
                        step);
            const double angle = (double)rounded(position * theta, step);
            float *entry = table_out + 2 * (p * pairs + i);

            entry[0] = rounded((float)cos(angle), step);
            entry[1] = rounded((float)sin(angle), step);
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
    zo_glm_rope_table(&glm->config, glm->options.type,
                      glm->options.half_angles, glm->options.positions_max,
                      table);
    for (int d = 0; d < glm->options.device_count && status == ZO_OK; d++) {
        status = zo_executor_upload(executor, glm->rope_table[d], 0, table,
                                    bytes);
    }
    zo_free(table);
    return status;
}
