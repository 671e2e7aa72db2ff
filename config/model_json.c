/* The config.json that a model is written with.  Layer 1. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/model_config.h"
#include "src/base/memory.h"

#define TEXT_BYTES 4096 /* some 30 short lines */

static const char *const type_names[] = {
    [ZO_F32] = "float32", [ZO_BF16] = "bfloat16", [ZO_F16] = "float16"};

struct writer {
    char *text;
    size_t length;
};

static void put(struct writer *w, const char *format, ...) ZO_PRINTF(2, 3);

static void put(struct writer *w, const char *format, ...)
{
    va_list args;
    int added;

    va_start(args, format);
    added =
        vsnprintf(w->text + w->length, TEXT_BYTES - w->length, format, args);
    va_end(args);
    ZO_ASSERT(added >= 0 && (size_t)added < TEXT_BYTES - w->length);
    w->length += (size_t)added;
}

static void put_int(struct writer *w, const char *key, int64_t value)
{
    put(w, "  \"%s\": %lld,\n", key, (long long)value);
}

static void put_bool(struct writer *w, const char *key, bool value)
{
    put(w, "  \"%s\": %s,\n", key, value ? "true" : "false");
}

/* With as few digits as give the same number back. */
static void put_number(struct writer *w, const char *key, double value)
{
    char digits[32];

    for (int precision = 6; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof(digits), "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    put(w, "  \"%s\": %s,\n", key, digits);
}

static void put_sizes(struct writer *w, const struct zo_model_config *config)
{
    const double ratio = config->family == ZO_FAMILY_CHATGLM3
                             ? config->rope_base / 10000.0
                             : config->rope_position_divisor;

    put_int(w, "ffn_hidden_size", config->ffn_size);
    put_bool(w, "fp32_residual_connection", false);
    put_number(w, "hidden_dropout", 0.0);
    put_int(w, "hidden_size", config->hidden_size);
    put_int(w, "kv_channels", config->head_width);
    put_number(w, "layernorm_epsilon", config->norm_epsilon);
    if (ratio != 1.0) {
        put_number(w, "rope_ratio", ratio);
    }
    put_bool(w, "multi_query_attention", true);
    put_int(w, "multi_query_group_num", config->num_kv_groups);
    put_int(w, "num_attention_heads", config->num_heads);
    put_int(w, "num_layers", config->num_layers);
    put_bool(w, "original_rope", true);
    put_int(w, "padded_vocab_size", config->vocab_size);
    put_bool(w, "post_layer_norm", true);
    put_bool(w, "rmsnorm", true);
    put_int(w, "seq_length", config->seq_length);
}

/* A name that tells the family when the file is read again. */
static const char *honest_name(const struct zo_model_config *config)
{
    const char *family = zo_model_family_name(config->family);

    return strstr(config->name, family) != NULL ? config->name : family;
}

enum zo_status zo_model_config_json(const struct zo_model_config *config,
                                    char **text_out)
{
    struct writer w = {.text = NULL};

    ZO_TRY(zo_alloc(TEXT_BYTES, 1, "a config.json", &w.text));
    put(&w, "{\n  \"_name_or_path\": \"%s\",\n", honest_name(config));
    put(&w, "  \"model_type\": \"chatglm\",\n");
    put(&w, "  \"architectures\": [\n    \"ChatGLMModel\"\n  ],\n");
    put_bool(&w, "add_bias_linear", false);
    put_bool(&w, "add_qkv_bias", config->has_qkv_bias);
    put_bool(&w, "apply_query_key_layer_scaling", true);
    put_bool(&w, "apply_residual_connection_post_layernorm", false);
    put_number(&w, "attention_dropout", 0.0);
    put_bool(&w, "attention_softmax_in_fp32", true);
    put_bool(&w, "bias_dropout_fusion", true);
    put_sizes(&w, config);
    put_bool(&w, "use_cache", true);
    put(&w, "  \"torch_dtype\": \"%s\",\n", type_names[config->dtype]);
    put(&w, "  \"transformers_version\": \"%s\",\n",
        config->family == ZO_FAMILY_CHATGLM2 ? "4.27.1" : "4.30.2");
    if (config->eos_token_id != ZO_MODEL_ID_NONE) {
        put_int(&w, "eos_token_id", config->eos_token_id);
    }
    if (config->pad_token_id != ZO_MODEL_ID_NONE) {
        put_int(&w, "pad_token_id", config->pad_token_id);
    }
    put(&w, "  \"tie_word_embeddings\": false\n}\n");
    *text_out = w.text;
    return ZO_OK;
}

/* Its angles are always those of fp32, at positions / factor. */
static void put_glm_rotary(struct writer *w,
                           const struct zo_model_config *config)
{
    put_number(w, "partial_rotary_factor",
               (double)config->rotary_width / (double)config->head_width);
    put_number(w, "rope_theta", config->rope_base);
    if (config->rope_position_divisor != 1.0) {
        put(w, "  \"rope_scaling\": {\n");
        put(w, "  ");
        put_number(w, "factor", config->rope_position_divisor);
        put(w, "    \"rope_type\": \"linear\"\n  },\n");
    }
}

enum zo_status zo_model_config_glm_json(const struct zo_model_config *config,
                                        char **text_out)
{
    struct writer w = {.text = NULL};

    ZO_TRY(zo_alloc(TEXT_BYTES, 1, "a config.json", &w.text));
    put(&w, "{\n  \"architectures\": [\n    \"GlmForCausalLM\"\n  ],\n");
    put(&w, "  \"model_type\": \"glm\",\n");
    put_bool(&w, "attention_bias", config->has_qkv_bias);
    put_number(&w, "attention_dropout", 0.0);
    if (config->eos_token_id != ZO_MODEL_ID_NONE) {
        put_int(&w, "eos_token_id", config->eos_token_id);
    } else {
        put(&w, "  \"eos_token_id\": null,\n");
    }
    put_int(&w, "head_dim", config->head_width);
    put(&w, "  \"hidden_act\": \"silu\",\n");
    put_int(&w, "hidden_size", config->hidden_size);
    put_int(&w, "intermediate_size", config->ffn_size);
    put_int(&w, "max_position_embeddings", config->seq_length);
    put_int(&w, "num_attention_heads", config->num_heads);
    put_int(&w, "num_hidden_layers", config->num_layers);
    put_int(&w, "num_key_value_heads", config->num_kv_groups);
    /* Its default lies outside this vocabulary, and a real one would make
     * torch.nn.Embedding drop that row's gradient. */
    put(&w, "  \"pad_token_id\": null,\n");
    put_glm_rotary(&w, config);
    put_number(&w, "rms_norm_eps", config->norm_epsilon);
    put(&w, "  \"torch_dtype\": \"%s\",\n", type_names[config->dtype]);
    put_bool(&w, "use_cache", true);
    put_int(&w, "vocab_size", config->vocab_size);
    put(&w, "  \"tie_word_embeddings\": false\n}\n");
    *text_out = w.text;
    return ZO_OK;
}
