#include "config/model_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "config/cli_names.h"
#include "config/json.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define PARAMETERS_MAX (UINT64_C(1) << 50) /* bytes of them fit in 63 bits */
#define ROPE_BASE      10000.0

/* The config.json being read. */
struct source {
    const struct zo_json_doc *doc;
    const struct zo_json *root;
    const char *name_or_path; /* "" when absent */
};

/* ---- families ---- */

const char *zo_model_family_name(enum zo_model_family family)
{
    switch (family) {
    case ZO_FAMILY_AUTO:
        return "auto";
    case ZO_FAMILY_CHATGLM2:
        return "chatglm2";
    case ZO_FAMILY_CHATGLM3:
        return "chatglm3";
    case ZO_FAMILY_CODEGEEX2:
        return "codegeex2";
    }
    return "";
}

bool zo_model_family_parse(const char *name, enum zo_model_family *family_out)
{
    const int index = zo_word_index("auto chatglm2 chatglm3 codegeex2", name);

    if (index < 0) {
        return false;
    }
    *family_out = (enum zo_model_family)index;
    return true;
}

/* The last component of a path, without a / at its end. */
static void last_component(const char *path, char name[ZO_MODEL_NAME_MAX])
{
    size_t end = strlen(path), start, put = 0;

    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    for (size_t i = start; i < end && put + 1 < ZO_MODEL_NAME_MAX; i++) {
        const unsigned char c = (unsigned char)path[i];

        name[put++] = isalnum(c) || strchr("._-", c) != NULL ? (char)c : '_';
    }
    name[put] = '\0';
}

static bool contains(const char *text, const char *word)
{
    const size_t length = strlen(word);

    for (; *text != '\0'; text++) {
        if (strncasecmp(text, word, length) == 0) {
            return true;
        }
    }
    return false;
}

/* The family that a path names, its last component first. */
static enum zo_model_family family_of_path(const char *path)
{
    char name[ZO_MODEL_NAME_MAX];
    const char *const places[] = {name, path};

    last_component(path, name);
    for (size_t i = 0; i < ZO_COUNT(places); i++) {
        for (int f = ZO_FAMILY_CHATGLM2; f <= ZO_FAMILY_CODEGEEX2; f++) {
            const enum zo_model_family family = (enum zo_model_family)f;

            if (contains(places[i], zo_model_family_name(family))) {
                return family;
            }
        }
    }
    return ZO_FAMILY_AUTO;
}

/*
 * What tells the siblings apart when nobody names them: CodeGeeX2's config
 * alone has rotary_percent and interleaved_qkv; ChatGLM3's, of a later
 * transformers, has a quarter of ChatGLM2's positions.
 */
static enum zo_model_family family_of_shape(const struct source *source,
                                            int64_t seq_length)
{
    const struct zo_json *version =
        zo_json_get(source->root, "transformers_version");

    if (zo_json_get(source->root, "rotary_percent") != NULL ||
        zo_json_get(source->root, "interleaved_qkv") != NULL) {
        return ZO_FAMILY_CODEGEEX2;
    }
    if (seq_length == 8192 && version != NULL &&
        zo_json_type(version) == ZO_JSON_STRING &&
        strncmp(zo_json_string(version), "4.27", 4) != 0) {
        return ZO_FAMILY_CHATGLM3;
    }
    return ZO_FAMILY_CHATGLM2;
}

static enum zo_status tell_family(const struct source *source,
                                  enum zo_model_family wanted,
                                  struct zo_notes *notes,
                                  struct zo_model_config *config)
{
    const char *name = zo_json_name(source->doc);

    if (wanted == ZO_FAMILY_AUTO) {
        wanted = family_of_path(source->name_or_path);
    }
    if (wanted == ZO_FAMILY_AUTO) {
        wanted = family_of_path(name);
    }
    if (wanted == ZO_FAMILY_AUTO) {
        wanted = family_of_shape(source, config->seq_length);
        ZO_TRY(zo_note_add(notes, ZO_NOTE_WARN,
                           "%s: neither _name_or_path nor the path names the "
                           "model; it is taken for %s (--model-family says "
                           "otherwise)",
                           name, zo_model_family_name(wanted)));
    }
    config->family = wanted;
    config->rope_angles = wanted == ZO_FAMILY_CHATGLM3 ? ZO_ROPE_ANGLES_FP32
                                                       : ZO_ROPE_ANGLES_MODEL;
    config->chat_format = wanted == ZO_FAMILY_CHATGLM3    ? ZO_CHAT_ROLES
                          : wanted == ZO_FAMILY_CODEGEEX2 ? ZO_CHAT_PLAIN
                                                          : ZO_CHAT_ROUNDS;
    return ZO_OK;
}

/* ---- what is refused by name ---- */

static bool is_true_number(const struct zo_json *value)
{
    return value != NULL && zo_json_type(value) == ZO_JSON_NUMBER &&
           zo_json_number(value) != 0.0;
}

static bool is_something(const struct zo_json *value)
{
    return value != NULL && zo_json_type(value) != ZO_JSON_NULL;
}

static enum zo_status refuse(const struct source *source,
                             const struct zo_json *value, const char *what)
{
    return zo_json_fail(source->doc, value,
                        "%s; want ChatGLM2-6B or a sibling of its "
                        "architecture (ChatGLM3-6B, CodeGeeX2-6B)",
                        what);
}

static bool is_glm4_size(const struct zo_json *vocab)
{
    return is_true_number(vocab) && zo_json_number(vocab) == 151552.0;
}

static enum zo_status refuse_glm4(const struct source *source)
{
    const struct zo_json *root = source->root;
    const struct zo_json *eos = zo_json_get(root, "eos_token_id");
    const struct zo_json *vocab = zo_json_get(root, "padded_vocab_size");

    if (eos != NULL && zo_json_type(eos) == ZO_JSON_ARRAY) {
        return refuse(source, eos, "this is GLM-4, with a list of end tokens");
    }
    if (is_glm4_size(vocab)) {
        return refuse(source, vocab, "this is GLM-4, with its tokenizer");
    }
    if (contains(source->name_or_path, "glm-4")) {
        return refuse(source, zo_json_get(root, "_name_or_path"),
                      "this is GLM-4");
    }
    return ZO_OK;
}

static enum zo_status refuse_quantized(const struct source *source)
{
    const struct zo_json *root = source->root;
    const struct zo_json *bits = zo_json_get(root, "quantization_bit");
    const struct zo_json *method = zo_json_get(root, "quantization_config");
    const struct zo_json *prefix = zo_json_get(root, "pre_seq_len");

    if (is_true_number(bits)) {
        return zo_json_fail(source->doc, bits,
                            "this is an int%.0f checkpoint; quantized weights "
                            "cannot be trained: take the 16-bit model",
                            zo_json_number(bits));
    }
    if (is_something(method)) {
        return zo_json_fail(source->doc, method,
                            "quantized weights cannot "
                            "be trained: take the 16-bit model");
    }
    if (contains(source->name_or_path, "-int4") ||
        contains(source->name_or_path, "-int8")) {
        return zo_json_fail(source->doc, zo_json_get(root, "_name_or_path"),
                            "%s is quantized; its weights cannot be trained: "
                            "take the 16-bit model",
                            source->name_or_path);
    }
    if (is_true_number(prefix)) {
        return zo_json_fail(source->doc, prefix,
                            "this is a P-Tuning model; "
                            "want one without a prefix encoder");
    }
    return ZO_OK;
}

static enum zo_status refuse_by_name(const struct source *source)
{
    const struct zo_json *root = source->root;
    const struct zo_json *type = zo_json_get(root, "model_type");
    const struct zo_json *first = zo_json_get(root, "position_encoding_2d");
    char what[128];

    if (first == NULL) {
        first = zo_json_get(root, "inner_hidden_size");
    }
    if (first != NULL) {
        return refuse(source, first,
                      "this is ChatGLM-6B of the first "
                      "generation, which has another architecture");
    }
    if (type != NULL && zo_json_type(type) == ZO_JSON_STRING &&
        strcmp(zo_json_string(type), "glm") == 0 &&
        !is_glm4_size(zo_json_get(root, "vocab_size"))) {
        return zo_json_fail(source->doc, type,
                            "this is the glm layout, for transformers' "
                            "GlmForCausalLM; want the chatglm layout: the "
                            "model or state that it was exported from, or an "
                            "export of that with --layout chatglm");
    }
    if (type != NULL && zo_json_type(type) == ZO_JSON_STRING &&
        strcmp(zo_json_string(type), "chatglm") != 0) {
        (void)snprintf(
            what, sizeof(what), "this is a %.60s model%s", zo_json_string(type),
            strncmp(zo_json_string(type), "glm", 3) == 0 ? " (GLM-4)" : "");
        return refuse(source, type, what);
    }
    ZO_TRY(refuse_glm4(source));
    return refuse_quantized(source);
}

/* ---- flags that would change the architecture ---- */

/* The official class' default, and what this program computes. */
static const struct {
    const char *key;
    bool is_default, is_wanted;
} flags[] = {
    {"add_bias_linear", false, false},
    {"rmsnorm", true, true},
    {"tie_word_embeddings", false, false},
    {"apply_residual_connection_post_layernorm", false, false},
    {"post_layer_norm", true, true},
    {"fp32_residual_connection", false, false},
    {"interleaved_qkv", false, false},
    {"prefix_projection", false, false},
};

static enum zo_status check_flags(const struct source *source)
{
    static const char *const rates[] = {"hidden_dropout", "attention_dropout"};
    double percent = 0.5;

    for (size_t i = 0; i < ZO_COUNT(flags); i++) {
        bool flag = flags[i].is_default;

        ZO_TRY(zo_json_get_bool(source->doc, source->root, flags[i].key, false,
                                &flag));
        if (flag != flags[i].is_wanted) {
            return zo_json_fail(
                source->doc, zo_json_get(source->root, flags[i].key),
                "want %s, found %s: it would be another architecture",
                flags[i].is_wanted ? "true" : "false", flag ? "true" : "false");
        }
    }
    for (size_t i = 0; i < ZO_COUNT(rates); i++) {
        const struct zo_json *rate = zo_json_get(source->root, rates[i]);

        if (is_true_number(rate)) {
            return zo_json_fail(source->doc, rate,
                                "want 0, found %g: there is no dropout here",
                                zo_json_number(rate));
        }
    }
    ZO_TRY(zo_json_get_number(source->doc, source->root, "rotary_percent",
                              false, 0.0, 1.0, &percent));
    if (percent != 0.5) {
        return zo_json_fail(source->doc,
                            zo_json_get(source->root, "rotary_percent"),
                            "want 0.5, found %g", percent);
    }
    return ZO_OK;
}

/* ---- sizes ---- */

static enum zo_status get_size(const struct source *source, const char *key,
                               int64_t min, int64_t max, int64_t multiple,
                               int64_t *out)
{
    ZO_TRY(
        zo_json_get_int(source->doc, source->root, key, true, min, max, out));
    if (*out % multiple != 0) {
        return zo_json_fail(source->doc, zo_json_get(source->root, key),
                            "want a multiple of %lld, found %lld",
                            (long long)multiple, (long long)*out);
    }
    return ZO_OK;
}

static enum zo_status read_groups(const struct source *source,
                                  struct zo_model_config *config)
{
    bool has_groups = false;
    int64_t groups = 1;

    ZO_TRY(zo_json_get_bool(source->doc, source->root, "multi_query_attention",
                            false, &has_groups));
    if (!has_groups) {
        config->num_kv_groups = config->num_heads; /* one for each head */
        return ZO_OK;
    }
    ZO_TRY(zo_json_get_int(source->doc, source->root, "multi_query_group_num",
                           false, 1, config->num_heads, &groups));
    if (config->num_heads % groups != 0) {
        return zo_json_fail(
            source->doc, zo_json_get(source->root, "multi_query_group_num"),
            "want a divisor of num_attention_heads, %lld; found %lld",
            (long long)config->num_heads, (long long)groups);
    }
    config->num_kv_groups = groups;
    return ZO_OK;
}

static enum zo_status read_sizes(const struct source *source,
                                 struct zo_model_config *config)
{
    ZO_TRY(
        get_size(source, "hidden_size", 8, 1 << 20, 8, &config->hidden_size));
    ZO_TRY(get_size(source, "num_layers", 1, 4096, 1, &config->num_layers));
    ZO_TRY(get_size(source, "num_attention_heads", 1, 1 << 16, 1,
                    &config->num_heads));
    ZO_TRY(get_size(source, "kv_channels", 4, 1024, 4, &config->head_width));
    ZO_TRY(
        get_size(source, "ffn_hidden_size", 8, 1 << 22, 8, &config->ffn_size));
    ZO_TRY(get_size(source, "padded_vocab_size", 8, 1 << 24, 1,
                    &config->vocab_size));
    ZO_TRY(get_size(source, "seq_length", 1, 1 << 24, 1, &config->seq_length));
    ZO_TRY(read_groups(source, config));
    config->rotary_width = config->head_width / 2;
    config->norm_epsilon = 1e-5;
    ZO_TRY(zo_json_get_number(source->doc, source->root, "layernorm_epsilon",
                              false, 1e-12, 0.1, &config->norm_epsilon));
    return zo_json_get_bool(source->doc, source->root, "add_qkv_bias", false,
                            &config->has_qkv_bias);
}

/* Parameters of all units; false on overflow. */
static bool count_parameters(const struct zo_model_config *config,
                             uint64_t *count_out)
{
    const uint64_t width = (uint64_t)config->hidden_size;
    const uint64_t query =
        (uint64_t)config->num_heads * (uint64_t)config->head_width;
    const uint64_t qkv = query + 2 * (uint64_t)config->num_kv_groups *
                                     (uint64_t)config->head_width;
    /* At most 3 * 2^26 + 3 * 2^22 rows of 2^20: no overflow so far. */
    const uint64_t layer =
        2 * width + (qkv + query + 3 * (uint64_t)config->ffn_size) * width +
        (config->has_qkv_bias ? qkv : 0);
    const uint64_t ends = (2 * (uint64_t)config->vocab_size + 1) * width;
    uint64_t count = 0;

    if (!zo_mul_u64(layer, (uint64_t)config->num_layers, &count) ||
        !zo_add_u64(count, ends, &count)) {
        return false;
    }
    *count_out = count;
    return true;
}

void zo_model_config_cut(struct zo_model_config *config, int64_t layers)
{
    uint64_t count = 0;

    ZO_ASSERT(layers >= 1);
    config->num_layers = layers;
    ZO_ASSERT(count_parameters(config, &count) && count <= INT64_MAX);
    config->parameter_count = (int64_t)count;
}

/* ---- the other values ---- */

static enum zo_status read_dtype(const struct source *source,
                                 struct zo_model_config *config)
{
    const struct zo_json *value = zo_json_get(source->root, "torch_dtype");
    int index;

    if (value == NULL) {
        value = zo_json_get(source->root, "dtype"); /* since 2025 */
    }
    config->dtype = ZO_F16; /* as the official code without the key */
    if (!is_something(value)) {
        return ZO_OK;
    }
    index =
        zo_json_type(value) == ZO_JSON_STRING
            ? zo_word_index("float32 bfloat16 float16", zo_json_string(value))
            : -1;
    if (index < 0) {
        return zo_json_fail(
            source->doc, value, "want float32, bfloat16 or float16, found %s",
            zo_json_type(value) == ZO_JSON_STRING ? zo_json_string(value)
                                                  : zo_json_type_name(value));
    }
    config->dtype = (enum zo_dtype)index;
    config->names_dtype = true;
    return ZO_OK;
}

static enum zo_status read_id(const struct source *source, const char *key,
                              int64_t vocab_size, int64_t *out)
{
    *out = ZO_MODEL_ID_NONE;
    if (!is_something(zo_json_get(source->root, key))) {
        return ZO_OK;
    }
    return zo_json_get_int(source->doc, source->root, key, false, 0,
                           vocab_size - 1, out);
}

/* rope_ratio stretches positions in ChatGLM2-32k, the base in ChatGLM3's. */
static enum zo_status read_rope(const struct source *source,
                                struct zo_model_config *config)
{
    double ratio = 1.0;

    ZO_TRY(zo_json_get_number(source->doc, source->root, "rope_ratio", false,
                              1e-3, 1e6, &ratio));
    config->rope_base = ROPE_BASE;
    config->rope_position_divisor = 1.0;
    if (config->family == ZO_FAMILY_CHATGLM3) {
        config->rope_base = ROPE_BASE * ratio;
    } else {
        config->rope_position_divisor = ratio;
    }
    return ZO_OK;
}

static void set_name(const struct source *source,
                     struct zo_model_config *config)
{
    const bool is_hub = family_of_path(source->name_or_path) != ZO_FAMILY_AUTO;
    char path[512];
    const char *name = zo_json_name(source->doc);
    const size_t length = strlen(name), tail = strlen("/config.json");

    (void)snprintf(path, sizeof(path), "%s", name);
    if (length > tail && length < sizeof(path) &&
        strcmp(name + length - tail, "/config.json") == 0) {
        path[length - tail] = '\0'; /* the directory names the model */
    }
    last_component(is_hub ? source->name_or_path : path, config->name);
}

static enum zo_status read_source(const struct zo_json_doc *doc,
                                  enum zo_model_family family,
                                  struct zo_notes *notes,
                                  struct zo_model_config *config)
{
    struct source source = {
        .doc = doc, .root = zo_json_root(doc), .name_or_path = ""};
    uint64_t count = 0;

    if (zo_json_type(source.root) != ZO_JSON_OBJECT) {
        return zo_json_fail(doc, source.root, "want an object, found %s",
                            zo_json_type_name(source.root));
    }
    ZO_TRY(zo_json_get_string(doc, source.root, "_name_or_path", false,
                              &source.name_or_path));
    ZO_TRY(refuse_by_name(&source));
    ZO_TRY(read_sizes(&source, config));
    ZO_TRY(check_flags(&source));
    ZO_TRY(tell_family(&source, family, notes, config));
    ZO_TRY(read_rope(&source, config));
    ZO_TRY(read_dtype(&source, config));
    ZO_TRY(read_id(&source, "eos_token_id", config->vocab_size,
                   &config->eos_token_id));
    ZO_TRY(read_id(&source, "pad_token_id", config->vocab_size,
                   &config->pad_token_id));
    if (!count_parameters(config, &count) || count > PARAMETERS_MAX) {
        return zo_json_fail(doc, source.root,
                            "the sizes make more than 2^50 parameters");
    }
    config->parameter_count = (int64_t)count;
    set_name(&source, config);
    return ZO_OK;
}

/* Keys of config.json that are read, here or by the official code. */
static const char *const known_keys[] = {
    "model_type",
    "torch_dtype",
    "num_layers",
    "num_hidden_layers",
    "hidden_size",
    "ffn_hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "kv_channels",
    "head_dim",
    "multi_query_attention",
    "multi_query_group_num",
    "padded_vocab_size",
    "vocab_size",
    "seq_length",
    "max_position_embeddings",
    "layernorm_epsilon",
    "rms_norm_eps",
    "rmsnorm",
    "post_layer_norm",
    "add_bias_linear",
    "add_qkv_bias",
    "attention_bias",
    "original_rope",
    "rope_ratio",
    "rope_theta",
    "tie_word_embeddings",
    "eos_token_id",
    "pad_token_id",
    "hidden_dropout",
    "attention_dropout",
    "use_cache",
    "pre_seq_len",
    "prefix_projection",
    "quantization_bit",
    "interleaved_qkv",
    "fp32_residual_connection",
    "apply_residual_connection_post_layernorm",
    "apply_query_key_layer_scaling",
    "attention_softmax_in_fp32",
    "bias_dropout_fusion",
    "position_encoding_2d",
    "inner_hidden_size",
    "partial_rotary_factor",
    "rotary_percent",
    "rope_scaling",
    "rope_parameters",
    "quantization_config",
    "_name_or_path",
    "transformers_version",
};

/* A key that the file has not and nobody reads is a slip of the pen. */
static enum zo_status check_key(const struct zo_json_doc *doc, const char *path)
{
    const char *near;
    char key[96];

    (void)snprintf(key, sizeof(key), "%.*s", (int)strcspn(path, "."), path);
    if (zo_json_get(zo_json_root(doc), key) != NULL) {
        return ZO_OK;
    }
    for (size_t i = 0; i < ZO_COUNT(known_keys); i++) {
        if (strcmp(known_keys[i], key) == 0) {
            return ZO_OK;
        }
    }
    near = zo_text_nearest(key, known_keys, ZO_COUNT(known_keys));
    return ZO_FAIL(ZO_E_USAGE, "--set %s: config.json has no such key%s%s%s",
                   path, near != NULL ? "; did you mean " : "",
                   near != NULL ? near : "", near != NULL ? "?" : "");
}

/* Takes the document over in every case. */
static enum zo_status read_doc(struct zo_json_doc *doc,
                               enum zo_model_family family,
                               const char *const *overrides,
                               size_t override_count, struct zo_notes *notes,
                               struct zo_model_config *config_out)
{
    struct zo_model_config config = {.family = ZO_FAMILY_AUTO};
    enum zo_status status = ZO_OK;

    for (size_t i = 0; i < override_count; i++) {
        const char *equals = strchr(overrides[i], '=');
        char key[96];

        if (equals == NULL || (size_t)(equals - overrides[i]) >= sizeof(key)) {
            status =
                ZO_FAIL(ZO_E_USAGE, "--set %s: want KEY=VALUE", overrides[i]);
            goto close_doc;
        }
        memcpy(key, overrides[i], (size_t)(equals - overrides[i]));
        key[equals - overrides[i]] = '\0';
        ZO_TRY_GOTO(close_doc, check_key(doc, key));
        ZO_TRY_GOTO(close_doc, zo_json_set(doc, key, equals + 1));
    }
    ZO_TRY_GOTO(close_doc, read_source(doc, family, notes, &config));
    *config_out = config;

close_doc:
    zo_json_close(doc);
    return status;
}

enum zo_status zo_model_config_parse(const char *name, const char *text,
                                     size_t size_bytes,
                                     enum zo_model_family family,
                                     struct zo_notes *notes,
                                     struct zo_model_config *config_out)
{
    struct zo_json_doc *doc = NULL;

    ZO_TRY(zo_json_parse(name, text, size_bytes, NULL, &doc));
    return read_doc(doc, family, NULL, 0, notes, config_out);
}

/* What is nowhere on disk: a name of the hub, a run that is not done, ... */
static enum zo_status fail_missing(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash != NULL ? slash + 1 : name;

    for (const char *const *preset = zo_model_preset_names(); *preset != NULL;
         preset++) {
        if (slash != NULL && slash == strchr(name + 1, '/') &&
            strcasecmp(last, *preset) == 0) {
            return ZO_FAIL(ZO_E_USAGE,
                           "%s: no such directory here, and nothing is "
                           "downloaded; get it with: hf download %s "
                           "--local-dir %s, then say --model %s",
                           name, name, last, last);
        }
    }
    return ZO_FAIL(ZO_E_USAGE,
                   "%s: no such directory or file, nor a preset (chatglm2-6b, "
                   "chatglm2-6b-32k, chatglm3-6b, codegeex2-6b); %s",
                   name,
                   slash != NULL && strcmp(last, "model") == 0
                       ? "train writes OUTPUT/model when it ends"
                       : "the official one: hf download THUDM/chatglm2-6b "
                         "--local-dir chatglm2-6b");
}

static enum zo_status open_preset(const char *name, struct zo_json_doc **doc)
{
    struct zo_model_config preset;
    enum zo_status status;
    char *text = NULL;

    if (!zo_model_preset(name, &preset)) {
        return fail_missing(name);
    }
    ZO_TRY(zo_model_config_json(&preset, &text));
    status = zo_json_parse(name, text, strlen(text), NULL, doc);
    zo_free(text);
    return status;
}

static enum zo_status open_model(const char *model, struct zo_json_doc **doc)
{
    struct stat info;
    enum zo_status status;
    char *path = NULL;
    const size_t bytes = strlen(model) + sizeof("/config.json");

    if (stat(model, &info) != 0) {
        return errno == ENOENT ? open_preset(model, doc)
                               : ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "%s: %s",
                                                model, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return zo_json_read(model, NULL, doc);
    }
    ZO_TRY(zo_alloc(bytes, 1, "a path", &path));
    (void)snprintf(path, bytes, "%s/config.json", model);
    if (stat(path, &info) != 0 && errno == ENOENT) {
        (void)snprintf(path, bytes, "%s/model", model); /* of train's output */
        status =
            ZO_FAIL(ZO_E_USAGE,
                    "%s: has no config.json, so it is no model directory%s%s",
                    model, stat(path, &info) == 0 ? "; want " : "",
                    stat(path, &info) == 0 ? path : "");
    } else {
        status = zo_json_read(path, NULL, doc);
    }
    zo_free(path);
    return status;
}

enum zo_status
zo_model_config_read(const char *model, enum zo_model_family family,
                     const char *const *overrides, size_t override_count,
                     struct zo_notes *notes, struct zo_model_config *config_out)
{
    struct zo_json_doc *doc = NULL;

    ZO_TRY(open_model(model, &doc));
    return read_doc(doc, family, overrides, override_count, notes, config_out);
}

/* ---- presets ---- */

static const char *const preset_names[] = {"chatglm2-6b", "chatglm2-6b-32k",
                                           "chatglm3-6b", "codegeex2-6b", NULL};

const char *const *zo_model_preset_names(void)
{
    return preset_names;
}

/* The public numbers of the four models, which share all sizes. */
bool zo_model_preset(const char *name, struct zo_model_config *config_out)
{
    struct zo_model_config config = {.family = ZO_FAMILY_CHATGLM2,
                                     .hidden_size = 4096,
                                     .num_layers = 28,
                                     .num_heads = 32,
                                     .num_kv_groups = 2,
                                     .head_width = 128,
                                     .ffn_size = 13696,
                                     .vocab_size = 65024,
                                     .seq_length = 32768,
                                     .norm_epsilon = 1e-5,
                                     .has_qkv_bias = true,
                                     .rotary_width = 64,
                                     .rope_base = ROPE_BASE,
                                     .rope_position_divisor = 1.0,
                                     .rope_angles = ZO_ROPE_ANGLES_MODEL,
                                     .dtype = ZO_F16,
                                     .eos_token_id = 2,
                                     .pad_token_id = 0,
                                     .chat_format = ZO_CHAT_ROUNDS,
                                     .parameter_count = 6243584000};

    if (strcmp(name, "chatglm2-6b-32k") == 0) {
        config.rope_position_divisor = 16.0;
    } else if (strcmp(name, "chatglm3-6b") == 0) {
        config.family = ZO_FAMILY_CHATGLM3;
        config.seq_length = 8192;
        config.rope_angles = ZO_ROPE_ANGLES_FP32;
        config.chat_format = ZO_CHAT_ROLES;
    } else if (strcmp(name, "codegeex2-6b") == 0) {
        config.family = ZO_FAMILY_CODEGEEX2;
        config.seq_length = 8192;
        config.dtype = ZO_BF16;
        config.pad_token_id = ZO_MODEL_ID_NONE;
        config.chat_format = ZO_CHAT_PLAIN;
    } else if (strcmp(name, "chatglm2-6b") != 0) {
        return false;
    }
    (void)snprintf(config.name, sizeof(config.name), "%s", name);
    *config_out = config;
    return true;
}
