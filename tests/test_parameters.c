/*
 * The list of parameters, and a new model's values.
 *
 * The sizes of ChatGLM2-6B are those of its model card: 200 tensors with
 * inv_freq, 6,243,584,000 trained numbers.
 */
#include "src/model/parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/random.h"
#include "src/model/glm.h"
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

static const struct zo_model_config tiny = {
    .hidden_size = 16,
    .num_layers = 1,
    .num_heads = 2,
    .num_kv_groups = 1,
    .head_width = 8,
    .ffn_size = 24,
    .vocab_size = 40,
    .has_qkv_bias = true,
    .rotary_width = 4,
    .rope_base = 10000.0,
};

static const struct zo_parameter *find(const struct zo_parameters *list,
                                       const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return &list->items[i];
        }
    }
    return NULL;
}

static void test_sizes(void)
{
    struct zo_parameters list;
    const struct zo_parameter *qkv, *last;
    int64_t elems = 0;

    TAP_CHECK_INT(zo_parameters_init(&list, &chatglm2_6b), ZO_OK);
    TAP_CHECK_INT(list.count, 200);
    TAP_CHECK_INT(list.trained_count, 199);
    for (size_t i = 0; i < list.trained_count; i++) {
        elems += list.items[i].elems;
        TAP_CHECK(list.items[i].kind != ZO_PARAMETER_ROTARY);
    }
    TAP_CHECK_INT(elems, 6243584000);
    qkv = find(&list, "transformer.encoder.layers.27.self_attention."
                      "query_key_value.weight");
    TAP_CHECK(qkv != NULL && qkv->unit == 28 && qkv->dims == 2);
    TAP_CHECK(qkv->shape[0] == 4608 && qkv->shape[1] == 4096);
    last = &list.items[199];
    TAP_CHECK(strcmp(last->name, "transformer.rotary_pos_emb.inv_freq") == 0);
    TAP_CHECK_INT(last->elems, 32);
    TAP_CHECK_INT(find(&list, "transformer.output_layer.weight")->unit, 29);
    zo_parameters_fini(&list);
    zo_parameters_fini(&list);
    zo_parameters_fini(NULL);
}

/* Against the table of the official checkpoint. */
static void test_official_table(void)
{
    const char *shared = getenv("ZERO_OFFLOAD_SHARED");
    struct zo_parameters list;
    char path[1024], line[256], name[128], shape[64], want[64];
    size_t matched = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/chatglm2-6b/parameters.tsv",
                   shared != NULL ? shared : ".");
    file = fopen(path, "r");
    if (file == NULL) {
        tap_skip("no chatglm2-6b/parameters.tsv in ZERO_OFFLOAD_SHARED");
        return;
    }
    TAP_CHECK_INT(zo_parameters_init(&list, &chatglm2_6b), ZO_OK);
    TAP_CHECK(fgets(line, sizeof(line), file) != NULL); /* the heading */
    while (fgets(line, sizeof(line), file) != NULL) {
        const struct zo_parameter *item;

        TAP_CHECK_INT(sscanf(line, "%127s %63s", name, shape), 2);
        TAP_CHECK((item = find(&list, name)) != NULL);
        (void)snprintf(want, sizeof(want),
                       item->dims == 2 ? "%lldx%lld" : "%lld",
                       (long long)item->shape[0], (long long)item->shape[1]);
        TAP_CHECK(strcmp(shape, want) == 0);
        matched++;
    }
    (void)fclose(file);
    TAP_CHECK_INT(matched, list.count);
    zo_parameters_fini(&list);
}

static void test_no_bias(void)
{
    struct zo_model_config config = tiny;
    struct zo_parameters list;

    config.has_qkv_bias = false;
    TAP_CHECK_INT(zo_parameters_init(&list, &config), ZO_OK);
    TAP_CHECK_INT(list.count, 10);
    zo_parameters_fini(&list);
    config.has_qkv_bias = true;
    TAP_CHECK_INT(zo_parameters_init(&list, &config), ZO_OK);
    TAP_CHECK_INT(list.count, 11);
    zo_parameters_fini(&list);
}

static void test_values(void)
{
    struct zo_parameters list;
    const struct zo_parameter *weight;
    float values[640];
    uint64_t key;

    TAP_CHECK_INT(zo_parameters_init(&list, &tiny), ZO_OK);
    for (size_t i = 0; i < list.count; i++) {
        const struct zo_parameter *item = &list.items[i];

        zo_parameter_fill(item, &tiny, 1, 0,
                          item->elems < 640 ? item->elems : 640, ZO_F32,
                          values);
        if (item->kind == ZO_PARAMETER_NORM) {
            TAP_CHECK(values[0] == 1.0f && values[15] == 1.0f);
        } else if (item->kind == ZO_PARAMETER_BIAS) {
            TAP_CHECK(values[0] == 0.0f && values[31] == 0.0f);
        } else if (item->kind == ZO_PARAMETER_ROTARY) {
            TAP_CHECK(values[0] == 1.0f && values[1] == 0.01f);
        }
    }
    weight = &list.items[0];
    key = zo_random_key(1, weight->name);
    zo_parameter_fill(weight, &tiny, 1, 0, 640, ZO_F32, values);
    for (int i = 0; i < 640; i++) {
        TAP_CHECK(values[i] ==
                  (float)(0.02 * zo_random_normal(key, (uint64_t)i)));
    }
    zo_parameters_fini(&list);
}

/* In pieces, in any order: the same bits; in 16 bits: rounded once more. */
static void test_pieces(void)
{
    struct zo_parameters list;
    const struct zo_parameter *weight;
    float whole[640], pieces[640];
    uint16_t halves[640];

    TAP_CHECK_INT(zo_parameters_init(&list, &tiny), ZO_OK);
    weight = find(&list, "transformer.output_layer.weight");
    zo_parameter_fill(weight, &tiny, 9, 0, 640, ZO_F32, whole);
    for (int64_t end = 640; end > 0; end -= 64) {
        zo_parameter_fill(weight, &tiny, 9, end - 64, 64, ZO_F32,
                          pieces + end - 64);
    }
    TAP_CHECK(memcmp(whole, pieces, sizeof(whole)) == 0);
    zo_parameter_fill(weight, &tiny, 9, 0, 640, ZO_BF16, halves);
    for (int i = 0; i < 640; i++) {
        TAP_CHECK_INT(halves[i], zo_f32_to_bf16(whole[i]));
    }
    zo_parameter_fill(weight, &tiny, 10, 0, 640, ZO_F32, pieces);
    TAP_CHECK(memcmp(whole, pieces, sizeof(whole)) != 0);
    zo_parameters_fini(&list);
}

/* What is trained is what the files hold: one list against the other. */
static void test_units_agree(void)
{
    const struct zo_glm_options options = {
        .config = &tiny,
        .device_count = 1,
        .micros = 1,
        .tokens_max = 64,
        .rows_max = 2,
        .labels_max = 64,
        .positions_max = 64,
    };
    const struct zo_unit *units;
    struct zo_parameters list;
    struct zo_glm *glm = NULL;
    size_t matched = 0;
    int unit_count = 0;

    TAP_CHECK_INT(zo_parameters_init(&list, &tiny), ZO_OK);
    TAP_CHECK_INT(zo_glm_open(&options, &glm), ZO_OK);
    units = zo_glm_units(glm, &unit_count);
    for (int u = 0; u < unit_count; u++) {
        for (int t = 0; t < units[u].tensor_count; t++) {
            const struct zo_unit_tensor *tensor = &units[u].tensors[t];
            const struct zo_parameter *item = find(&list, tensor->name);

            TAP_CHECK(item != NULL);
            TAP_CHECK_INT(item->unit, u);
            TAP_CHECK_INT(item->dims, tensor->dims);
            TAP_CHECK_INT(item->elems, tensor->elems);
            TAP_CHECK_INT(item->shape[0], tensor->shape[0]);
            TAP_CHECK_INT(item->kind == ZO_PARAMETER_WEIGHT, tensor->decays);
            matched++;
        }
    }
    TAP_CHECK_INT(matched, list.trained_count);
    zo_glm_close(glm);
    zo_parameters_fini(&list);
}

static void test_no_memory(void)
{
    struct zo_parameters list;

    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_parameters_init(&list, &tiny), ZO_E_NOMEM);
    zo_memory_fail_at(0);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"ChatGLM2-6B has 199 parameters of 6,243,584,000 numbers", test_sizes},
        {"names and shapes are those of the official checkpoint",
         test_official_table},
        {"a model without biases lists none", test_no_bias},
        {"weights are normal, norms 1, biases 0", test_values},
        {"values do not depend on pieces and order", test_pieces},
        {"the trained units hold the same tensors", test_units_agree},
        {"no memory is an error", test_no_memory},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
