/*
 * The tensors of an export: every element of every parameter exactly once,
 * under the names that the other programs look for.
 */
#include "src/model/export_layout.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "tests/tap.h"

static const struct zo_model_config chatglm2_6b = {
    .hidden_size = 4096,
    .num_layers = 28,
    .num_heads = 32,
    .num_kv_groups = 2,
    .head_width = 128,
    .ffn_size = 13696,
    .vocab_size = 65024,
    .has_qkv_bias = true,
    .rotary_width = 64,
    .rope_base = 10000.0,
};

static const struct zo_export_tensor *
find(const struct zo_export_tensors *tensors, const char *name)
{
    for (size_t i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->items[i].name, name) == 0) {
            return &tensors->items[i];
        }
    }
    return NULL;
}

/* Tensors of a parameter follow each other and end where it ends. */
static bool covers(const struct zo_export_tensors *tensors,
                   const struct zo_parameters *parameters, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t elems = 0;

        while (at < tensors->count && tensors->items[at].parameter == i) {
            const struct zo_export_tensor *tensor = &tensors->items[at++];

            if (tensor->first_elem != elems ||
                tensor->dims != parameters->items[i].dims) {
                return false;
            }
            elems += tensor->shape[0] * tensor->shape[1];
        }
        if (elems != parameters->items[i].elems) {
            return false;
        }
    }
    return at == tensors->count;
}

static void test_official(void)
{
    struct zo_parameters parameters;
    struct zo_export_tensors tensors;

    TAP_CHECK_INT(zo_parameters_init(&parameters, &chatglm2_6b), ZO_OK);
    for (int has = 0; has < 2; has++) {
        TAP_CHECK_INT(zo_export_tensors_init(&tensors, ZO_LAYOUT_CHATGLM,
                                             has == 1, &chatglm2_6b,
                                             &parameters),
                      ZO_OK);
        TAP_CHECK_INT(tensors.count, 199 + has);
        TAP_CHECK(covers(&tensors, &parameters, (size_t)(199 + has)));
        for (size_t i = 0; i < tensors.count; i++) {
            TAP_CHECK(strcmp(tensors.items[i].name, parameters.items[i].name) ==
                      0);
        }
        zo_export_tensors_fini(&tensors);
    }
    zo_parameters_fini(&parameters);
}

static void test_glm(void)
{
    static const struct {
        const char *name;
        int64_t rows, cols, first_elem;
    } wants[] = {
        {"model.embed_tokens.weight", 65024, 4096, 0},
        {"model.norm.weight", 4096, 1, 0},
        {"lm_head.weight", 65024, 4096, 0},
        {"model.layers.27.input_layernorm.weight", 4096, 1, 0},
        {"model.layers.27.post_attention_layernorm.weight", 4096, 1, 0},
        {"model.layers.9.self_attn.q_proj.weight", 4096, 4096, 0},
        {"model.layers.9.self_attn.k_proj.weight", 256, 4096, 4096 * 4096},
        {"model.layers.9.self_attn.v_proj.weight", 256, 4096, 4352 * 4096},
        {"model.layers.0.self_attn.q_proj.bias", 4096, 1, 0},
        {"model.layers.0.self_attn.k_proj.bias", 256, 1, 4096},
        {"model.layers.0.self_attn.v_proj.bias", 256, 1, 4352},
        {"model.layers.0.self_attn.o_proj.weight", 4096, 4096, 0},
        {"model.layers.0.mlp.gate_up_proj.weight", 27392, 4096, 0},
        {"model.layers.0.mlp.down_proj.weight", 4096, 13696, 0},
    };
    struct zo_parameters parameters;
    struct zo_export_tensors tensors;

    TAP_CHECK_INT(zo_parameters_init(&parameters, &chatglm2_6b), ZO_OK);
    TAP_CHECK_INT(zo_export_tensors_init(&tensors, ZO_LAYOUT_GLM, true,
                                         &chatglm2_6b, &parameters),
                  ZO_OK);
    TAP_CHECK_INT(tensors.count, 3 + 28 * (7 + 4));
    TAP_CHECK(covers(&tensors, &parameters, parameters.trained_count));
    for (size_t i = 0; i < TAP_COUNT(wants); i++) {
        const struct zo_export_tensor *tensor = find(&tensors, wants[i].name);

        TAP_CHECK(tensor != NULL);
        TAP_CHECK_INT(tensor->shape[0], wants[i].rows);
        TAP_CHECK_INT(tensor->shape[1], wants[i].cols);
        TAP_CHECK_INT(tensor->first_elem, wants[i].first_elem);
    }
    zo_export_tensors_fini(&tensors);
    zo_export_tensors_fini(&tensors);
    zo_export_tensors_fini(NULL);
    zo_parameters_fini(&parameters);
}

/* A model without a bias of q, k and v has none in the export. */
static void test_no_bias(void)
{
    struct zo_model_config config = chatglm2_6b;
    struct zo_parameters parameters;
    struct zo_export_tensors tensors;

    config.has_qkv_bias = false;
    TAP_CHECK_INT(zo_parameters_init(&parameters, &config), ZO_OK);
    TAP_CHECK_INT(zo_export_tensors_init(&tensors, ZO_LAYOUT_GLM, true, &config,
                                         &parameters),
                  ZO_OK);
    TAP_CHECK_INT(tensors.count, 3 + 28 * (6 + 2));
    TAP_CHECK(find(&tensors, "model.layers.0.self_attn.q_proj.bias") == NULL);
    zo_export_tensors_fini(&tensors);
    zo_parameters_fini(&parameters);
}

static void test_memory(void)
{
    struct zo_parameters parameters;
    struct zo_export_tensors tensors = {0};

    TAP_CHECK_INT(zo_parameters_init(&parameters, &chatglm2_6b), ZO_OK);
    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_export_tensors_init(&tensors, ZO_LAYOUT_GLM, true,
                                         &chatglm2_6b, &parameters),
                  ZO_E_NOMEM);
    zo_memory_fail_at(0);
    TAP_CHECK(tensors.items == NULL && tensors.count == 0);
    zo_parameters_fini(&parameters);
}

static const struct tap_case cases[] = {
    {"the official layout is the list of parameters", test_official},
    {"the glm layout splits query, key and value by rows", test_glm},
    {"and has no bias where the model has none", test_no_bias},
    {"a failed allocation is told", test_memory},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
