#include "src/model/export_layout.h"

#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"

#define PARTS_MAX 3 /* tensors of one parameter */

/* Our name behind "transformer." or "transformer.encoder.layers.N.". */
struct renamed {
    const char *ours, *theirs;
};

static const struct renamed outside[] = {
    {"embedding.word_embeddings.weight", "model.embed_tokens.weight"},
    {"encoder.final_layernorm.weight", "model.norm.weight"},
    {"output_layer.weight", "lm_head.weight"},
};

static const struct renamed inside[] = {
    {"input_layernorm.weight", "input_layernorm.weight"},
    {"self_attention.dense.weight", "self_attn.o_proj.weight"},
    {"post_attention_layernorm.weight", "post_attention_layernorm.weight"},
    {"mlp.dense_h_to_4h.weight", "mlp.gate_up_proj.weight"},
    {"mlp.dense_4h_to_h.weight", "mlp.down_proj.weight"},
};

static const char *rename_in(const struct renamed *names, size_t count,
                             const char *ours)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i].ours, ours) == 0) {
            return names[i].theirs;
        }
    }
    ZO_ASSERT(!"a parameter without a name in this layout");
    return NULL;
}

static void add(struct zo_export_tensors *list, const char *prefix,
                const char *name, size_t index,
                const struct zo_parameter *parameter, int64_t first_row,
                int64_t rows)
{
    struct zo_export_tensor *tensor = &list->items[list->count++];
    const int length =
        snprintf(tensor->name, sizeof(tensor->name), "%s%s", prefix, name);

    ZO_ASSERT(length > 0 && (size_t)length < sizeof(tensor->name));
    tensor->parameter = index;
    tensor->dims = parameter->dims;
    tensor->shape[0] = rows;
    tensor->shape[1] = parameter->shape[1];
    tensor->first_elem = first_row * parameter->shape[1];
}

/* Query, key and value: rows of one parameter, one behind the other. */
static void add_split(struct zo_export_tensors *list, const char *prefix,
                      const char *end, size_t index,
                      const struct zo_parameter *parameter,
                      const struct zo_model_config *config)
{
    const int64_t kv = config->num_kv_groups * config->head_width;
    const struct {
        const char *name;
        int64_t rows;
    } parts[PARTS_MAX] = {{"q_proj", config->num_heads * config->head_width},
                          {"k_proj", kv},
                          {"v_proj", kv}};
    char name[ZO_PARAMETER_NAME_BYTES];
    int64_t row = 0;

    for (int i = 0; i < PARTS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "self_attn.%s.%s", parts[i].name,
                       end);
        add(list, prefix, name, index, parameter, row, parts[i].rows);
        row += parts[i].rows;
    }
    ZO_ASSERT(row == parameter->shape[0]);
}

static void add_glm(struct zo_export_tensors *list, size_t index,
                    const struct zo_parameter *parameter,
                    const struct zo_model_config *config)
{
    static const char fused[] = "self_attention.query_key_value.";
    const char *name = parameter->name + strlen("transformer.");
    char prefix[64] = "";
    long long layer = 0;
    int length = 0;

    if (parameter->kind == ZO_PARAMETER_ROTARY) {
        return;
    }
    if (sscanf(name, "encoder.layers.%lld.%n", &layer, &length) != 1 ||
        length == 0) {
        add(list, prefix, rename_in(outside, ZO_COUNT(outside), name), index,
            parameter, 0, parameter->shape[0]);
        return;
    }
    (void)snprintf(prefix, sizeof(prefix), "model.layers.%lld.", layer);
    name += length;
    if (strncmp(name, fused, strlen(fused)) == 0) {
        add_split(list, prefix, name + strlen(fused), index, parameter, config);
        return;
    }
    add(list, prefix, rename_in(inside, ZO_COUNT(inside), name), index,
        parameter, 0, parameter->shape[0]);
}

enum zo_status zo_export_tensors_init(struct zo_export_tensors *tensors,
                                      enum zo_export_layout layout,
                                      bool has_inv_freq,
                                      const struct zo_model_config *config,
                                      const struct zo_parameters *parameters)
{
    struct zo_export_tensors list = {0};

    ZO_TRY(zo_alloc(parameters->count * PARTS_MAX, sizeof(list.items[0]),
                    "the list of tensors", &list.items));
    for (size_t i = 0; i < parameters->count; i++) {
        const struct zo_parameter *parameter = &parameters->items[i];

        if (layout == ZO_LAYOUT_GLM) {
            add_glm(&list, i, parameter, config);
        } else if (has_inv_freq || i < parameters->trained_count) {
            add(&list, "", parameter->name, i, parameter, 0,
                parameter->shape[0]);
        }
    }
    *tensors = list;
    return ZO_OK;
}

void zo_export_tensors_fini(struct zo_export_tensors *tensors)
{
    if (tensors == NULL) {
        return;
    }
    zo_free(tensors->items);
    *tensors = (struct zo_export_tensors){0};
}
