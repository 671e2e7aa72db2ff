#include "src/model/parameters.h"

#include <math.h>
#include <stdio.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/random.h"

#define INITIAL_DEVIATION 0.02 /* initializer_range of the official config */
#define FILL_ELEMS        2048 /* at a time, on the stack */
#define LAYER_PARAMETERS  7    /* with a bias of q, k and v */

static void add(struct zo_parameters *list, enum zo_parameter_kind kind,
                int unit, const char *name, int64_t rows, int64_t cols)
{
    struct zo_parameter *item = &list->items[list->count++];
    const int length =
        snprintf(item->name, sizeof(item->name), "transformer.%s", name);

    ZO_ASSERT(length > 0 && (size_t)length < sizeof(item->name));
    item->kind = kind;
    item->unit = unit;
    item->dims = cols > 0 ? 2 : 1;
    item->shape[0] = rows;
    item->shape[1] = cols > 0 ? cols : 1;
    item->elems = item->shape[0] * item->shape[1];
}

static void add_layer(struct zo_parameters *list,
                      const struct zo_model_config *config, int64_t layer)
{
    const int64_t width = config->hidden_size, inner = config->ffn_size;
    const int64_t heads_width = config->num_heads * config->head_width;
    const int64_t qkv =
        heads_width + 2 * config->num_kv_groups * config->head_width;
    const struct {
        enum zo_parameter_kind kind;
        const char *name;
        int64_t rows, cols;
        bool is_there;
    } rows[LAYER_PARAMETERS] = {
        {ZO_PARAMETER_NORM, "input_layernorm.weight", width, 0, true},
        {ZO_PARAMETER_WEIGHT, "self_attention.query_key_value.weight", qkv,
         width, true},
        {ZO_PARAMETER_BIAS, "self_attention.query_key_value.bias", qkv, 0,
         config->has_qkv_bias},
        {ZO_PARAMETER_WEIGHT, "self_attention.dense.weight", width, heads_width,
         true},
        {ZO_PARAMETER_NORM, "post_attention_layernorm.weight", width, 0, true},
        {ZO_PARAMETER_WEIGHT, "mlp.dense_h_to_4h.weight", 2 * inner, width,
         true},
        {ZO_PARAMETER_WEIGHT, "mlp.dense_4h_to_h.weight", width, inner, true},
    };
    char name[ZO_PARAMETER_NAME_BYTES];

    for (size_t i = 0; i < LAYER_PARAMETERS; i++) {
        if (rows[i].is_there) {
            (void)snprintf(name, sizeof(name), "encoder.layers.%lld.%s",
                           (long long)layer, rows[i].name);
            add(list, rows[i].kind, (int)layer + 1, name, rows[i].rows,
                rows[i].cols);
        }
    }
}

enum zo_status zo_parameters_init(struct zo_parameters *parameters,
                                  const struct zo_model_config *config)
{
    const int64_t layers = config->num_layers;
    const int head = (int)layers + 1;
    struct zo_parameters list = {0};

    ZO_TRY(zo_alloc((size_t)layers * LAYER_PARAMETERS + 4,
                    sizeof(list.items[0]), "the list of parameters",
                    &list.items));
    add(&list, ZO_PARAMETER_WEIGHT, 0, "embedding.word_embeddings.weight",
        config->vocab_size, config->hidden_size);
    for (int64_t layer = 0; layer < layers; layer++) {
        add_layer(&list, config, layer);
    }
    add(&list, ZO_PARAMETER_NORM, head, "encoder.final_layernorm.weight",
        config->hidden_size, 0);
    add(&list, ZO_PARAMETER_WEIGHT, head, "output_layer.weight",
        config->vocab_size, config->hidden_size);
    list.trained_count = list.count;
    add(&list, ZO_PARAMETER_ROTARY, 0, "rotary_pos_emb.inv_freq",
        config->rotary_width / 2, 0);
    *parameters = list;
    return ZO_OK;
}

void zo_parameters_fini(struct zo_parameters *parameters)
{
    if (parameters == NULL) {
        return;
    }
    zo_free(parameters->items);
    *parameters = (struct zo_parameters){0};
}

float zo_rotary_frequency(const struct zo_model_config *config, int64_t pair,
                          enum zo_dtype dtype)
{
    const float width = (float)config->rotary_width;
    const float exponent =
        zo_round(zo_round((float)(2 * pair), dtype) / width, dtype);
    const float power =
        zo_round((float)pow(config->rope_base, (double)exponent), dtype);

    return zo_round(1.0f / power, dtype);
}

static double initial_value(const struct zo_parameter *parameter,
                            const struct zo_model_config *config, int64_t index,
                            enum zo_dtype dtype)
{
    switch (parameter->kind) {
    case ZO_PARAMETER_WEIGHT: /* fill_weights() */
        break;
    case ZO_PARAMETER_NORM:
        return 1.0;
    case ZO_PARAMETER_BIAS:
        return 0.0;
    case ZO_PARAMETER_ROTARY:
        return (double)zo_rotary_frequency(config, index, dtype);
    }
    return 0.0;
}

static void fill_weights(uint64_t key, int64_t first_elem, int64_t elem_count,
                         enum zo_dtype dtype, void *target)
{
    double normals[FILL_ELEMS];

    for (int64_t at = 0; at < elem_count; at += FILL_ELEMS) {
        const int64_t count = zo_min_i64(FILL_ELEMS, elem_count - at);

        zo_random_normals(key, (uint64_t)(first_elem + at), (size_t)count,
                          normals);
        for (int64_t i = 0; i < count; i++) {
            zo_store(target, dtype, at + i,
                     (float)(INITIAL_DEVIATION * normals[i]));
        }
    }
}

void zo_parameter_fill(const struct zo_parameter *parameter,
                       const struct zo_model_config *config, uint64_t seed,
                       int64_t first_elem, int64_t elem_count,
                       enum zo_dtype dtype, void *target)
{
    const uint64_t key = zo_random_key(seed, parameter->name);

    ZO_ASSERT(first_elem >= 0 && elem_count >= 0 &&
              elem_count <= parameter->elems - first_elem);
    if (parameter->kind == ZO_PARAMETER_WEIGHT) {
        fill_weights(key, first_elem, elem_count, dtype, target);
        return;
    }
    for (int64_t i = 0; i < elem_count; i++) {
        const double value =
            initial_value(parameter, config, first_elem + i, dtype);

        zo_store(target, dtype, i, (float)value);
    }
}
