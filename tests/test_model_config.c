#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/model_config.h"
#include "src/base/memory.h"
#include "tests/tap.h"

/* A small model of the architecture; %s takes more keys. */
#define SMALL                                                                \
    "{\"model_type\": \"chatglm\", \"num_layers\": 2, \"hidden_size\": 64, " \
    "\"num_attention_heads\": 4, \"kv_channels\": 16, "                      \
    "\"multi_query_attention\": true, \"multi_query_group_num\": 2, "        \
    "\"ffn_hidden_size\": 96, \"padded_vocab_size\": 256, "                  \
    "\"seq_length\": 512, \"add_qkv_bias\": true%s}"

static struct zo_model_config config;

/* SMALL with more keys (", \"a\": 1"), which may repeat none of its own. */
static enum zo_status small(const char *more, const char *name,
                            enum zo_model_family family, struct zo_notes *notes)
{
    char text[1024];

    (void)snprintf(text, sizeof(text), SMALL, more);
    return zo_model_config_parse(name, text, strlen(text), family, notes,
                                 &config);
}

/* SMALL with `old` replaced. */
static enum zo_status changed(const char *old, const char *new)
{
    struct zo_notes notes = {.count = 0};
    char plain[1024], text[1024];
    const char *at;
    enum zo_status status;

    (void)snprintf(plain, sizeof(plain), SMALL, "");
    at = strstr(plain, old);
    if (at == NULL) {
        return ZO_OK;
    }
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - plain), plain,
                   new, at + strlen(old));
    status = zo_model_config_parse("chatglm2", text, strlen(text),
                                   ZO_FAMILY_AUTO, &notes, &config);
    zo_notes_fini(&notes);
    return status;
}

static bool said(const char *piece)
{
    if (strstr(zo_err_last()->text, piece) != NULL) {
        return true;
    }
    printf("# %s\n", zo_err_last()->text);
    return false;
}

static bool refused(const char *more, const char *piece)
{
    struct zo_notes notes = {.count = 0};
    const enum zo_status status =
        small(more, "chatglm2", ZO_FAMILY_AUTO, &notes);

    zo_notes_fini(&notes);
    if (status != ZO_E_CONFIG) {
        printf("# %s: status %d\n", more, (int)status);
        return false;
    }
    return said(piece);
}

static bool accepted(const char *more)
{
    struct zo_notes notes = {.count = 0};
    const enum zo_status status =
        small(more, "chatglm2", ZO_FAMILY_AUTO, &notes);

    zo_notes_fini(&notes);
    return status == ZO_OK || (printf("# %s\n", zo_err_last()->text), false);
}

static void test_small(void)
{
    TAP_CHECK(accepted(", \"eos_token_id\": 2, \"pad_token_id\": 0, "
                       "\"layernorm_epsilon\": 1e-6"));
    TAP_CHECK_INT(config.hidden_size, 64);
    TAP_CHECK_INT(config.num_layers, 2);
    TAP_CHECK_INT(config.num_heads, 4);
    TAP_CHECK_INT(config.num_kv_groups, 2);
    TAP_CHECK_INT(config.head_width, 16);
    TAP_CHECK_INT(config.rotary_width, 8);
    TAP_CHECK_INT(config.ffn_size, 96);
    TAP_CHECK_INT(config.vocab_size, 256);
    TAP_CHECK_INT(config.seq_length, 512);
    TAP_CHECK(config.norm_epsilon == 1e-6 && config.has_qkv_bias);
    TAP_CHECK_INT(config.eos_token_id, 2);
    TAP_CHECK_INT(config.pad_token_id, 0);
    TAP_CHECK(config.dtype == ZO_F16);
    TAP_CHECK(config.rope_base == 10000.0);
    TAP_CHECK(config.rope_position_divisor == 1.0);
    TAP_CHECK(strcmp(config.name, "chatglm2") == 0);
    /* 2 layers of 2*64 + 128*64+128 + 64*64 + 192*64 + 64*96, and ends. */
    TAP_CHECK_INT(config.parameter_count,
                  2 * (128 + 8192 + 128 + 4096 + 12288 + 6144) + 2 * 256 * 64 +
                      64);
    TAP_CHECK(accepted(", \"torch_dtype\": \"bfloat16\""));
    TAP_CHECK(config.dtype == ZO_BF16);
    TAP_CHECK_INT(config.eos_token_id, ZO_MODEL_ID_NONE);
    TAP_CHECK(accepted(", \"dtype\": \"float32\", \"pad_token_id\": null"));
    TAP_CHECK(config.dtype == ZO_F32);
}

static void test_groups(void)
{
    TAP_CHECK(changed("\"multi_query_attention\": true",
                      "\"multi_query_attention\": false") == ZO_OK);
    TAP_CHECK_INT(config.num_kv_groups, 4); /* one for each head */
    TAP_CHECK(changed("group_num\": 2", "group_num\": 3") == ZO_E_CONFIG);
    TAP_CHECK(said("want a divisor of num_attention_heads, 4; found 3"));
    TAP_CHECK(changed("group_num\": 2", "group_num\": 8") == ZO_E_CONFIG);
    TAP_CHECK(changed("group_num\": 2", "group_num\": 0") == ZO_E_CONFIG);
}

static void test_sizes(void)
{
    static const char *const cases[][3] = {
        {"\"hidden_size\": 64", "\"hidden_size\": 0", "from 8"},
        {"\"hidden_size\": 64", "\"hidden_size\": 60", "a multiple of 8"},
        {"\"hidden_size\": 64", "\"hidden_size\": 64.5", "found 64.5"},
        {"\"hidden_size\": 64", "\"hidden_size\": \"64\"", "an integer"},
        {"\"hidden_size\": 64", "\"hidden_size\": 1e18", "from 8"},
        {"\"hidden_size\": 64, ", "", "has no key hidden_size"},
        {"\"num_layers\": 2", "\"num_layers\": 0", "num_layers"},
        {"\"num_layers\": 2", "\"num_layers\": -1", "num_layers"},
        {"\"kv_channels\": 16", "\"kv_channels\": 6", "a multiple of 4"},
        {"\"kv_channels\": 16, ", "", "has no key kv_channels"},
        {"\"ffn_hidden_size\": 96", "\"ffn_hidden_size\": 97",
         "a multiple of 8"},
        {"\"padded_vocab_size\": 256", "\"padded_vocab_size\": 0",
         "padded_vocab_size"},
        {"\"seq_length\": 512", "\"seq_length\": 0", "seq_length"},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": 1e9",
         "num_attention_heads"},
    };

    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        TAP_CHECK(changed(cases[i][0], cases[i][1]) == ZO_E_CONFIG);
        TAP_CHECK(said(cases[i][2]));
    }
    TAP_CHECK(refused(", \"eos_token_id\": 256", "eos_token_id"));
    TAP_CHECK(refused(", \"pad_token_id\": -1", "pad_token_id"));
    TAP_CHECK(refused(", \"layernorm_epsilon\": 0", "layernorm_epsilon"));
    TAP_CHECK(refused(", \"torch_dtype\": \"int8\"", "found int8"));
}

/* All sizes at their largest: the count is checked, and refused. */
static void test_overflow(void)
{
    static const char text[] =
        "{\"num_layers\": 4096, \"hidden_size\": 1048576, "
        "\"num_attention_heads\": 65536, \"kv_channels\": 1024, "
        "\"ffn_hidden_size\": 4194304, \"padded_vocab_size\": 16777216, "
        "\"seq_length\": 1}";
    struct zo_notes notes = {.count = 0};

    TAP_CHECK(zo_model_config_parse("chatglm2", text, strlen(text),
                                    ZO_FAMILY_AUTO, &notes,
                                    &config) == ZO_E_CONFIG);
    TAP_CHECK(said("more than 2^50 parameters"));
    zo_notes_fini(&notes);
}

static void test_flags(void)
{
    static const char *const keys[][2] = {
        {"add_bias_linear", "true"},
        {"rmsnorm", "false"},
        {"tie_word_embeddings", "true"},
        {"apply_residual_connection_post_layernorm", "true"},
        {"post_layer_norm", "false"},
        {"fp32_residual_connection", "true"},
        {"interleaved_qkv", "true"}};

    for (size_t i = 0; i < TAP_COUNT(keys); i++) {
        const char *good = strcmp(keys[i][1], "true") == 0 ? "false" : "true";
        char more[96], piece[96];

        (void)snprintf(more, sizeof(more), ", \"%s\": %s", keys[i][0],
                       keys[i][1]);
        (void)snprintf(piece, sizeof(piece), "%s: want %s, found %s",
                       keys[i][0], good, keys[i][1]);
        TAP_CHECK(refused(more, piece));
        (void)snprintf(more, sizeof(more), ", \"%s\": %s", keys[i][0], good);
        TAP_CHECK(accepted(more));
    }
    TAP_CHECK(refused(", \"hidden_dropout\": 0.1", "there is no dropout"));
    TAP_CHECK(refused(", \"rotary_percent\": 1.0", "want 0.5, found 1"));
    TAP_CHECK(refused(", \"pre_seq_len\": 128", "a P-Tuning model"));
    TAP_CHECK(accepted(", \"pre_seq_len\": null, \"quantization_bit\": 0"));
}

static void test_refused_by_name(void)
{
    struct zo_notes notes = {.count = 0};
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\n"
                              "oid sha256:00\nsize 1318\n";

    TAP_CHECK(refused(", \"position_encoding_2d\": true",
                      "this is ChatGLM-6B of the first generation"));
    TAP_CHECK(refused(", \"inner_hidden_size\": 16384",
                      "this is ChatGLM-6B of the first generation"));
    TAP_CHECK(refused(", \"eos_token_id\": [151329, 151336]", "this is GLM-4"));
    TAP_CHECK(changed("vocab_size\": 256", "vocab_size\": 151552") ==
              ZO_E_CONFIG);
    TAP_CHECK(said("this is GLM-4"));
    TAP_CHECK(refused(", \"_name_or_path\": \"THUDM/glm-4-9b-chat\"",
                      "this is GLM-4"));
    TAP_CHECK(changed("\"chatglm\"", "\"glm4\"") == ZO_E_CONFIG);
    TAP_CHECK(said("this is a glm4 model (GLM-4)"));
    /* An export of ours, and a GLM-4 that has the same model_type. */
    TAP_CHECK(changed("\"chatglm\"", "\"glm\"") == ZO_E_CONFIG);
    TAP_CHECK(said("this is the glm layout") && said("--layout chatglm"));
    TAP_CHECK(changed("\"chatglm\"", "\"glm\", \"vocab_size\": 151552") ==
              ZO_E_CONFIG);
    TAP_CHECK(said("this is a glm model (GLM-4)"));
    TAP_CHECK(changed("\"chatglm\"", "\"llama\"") == ZO_E_CONFIG);
    TAP_CHECK(said("this is a llama model; want ChatGLM2-6B"));
    TAP_CHECK(
        refused(", \"quantization_bit\": 4", "this is an int4 checkpoint"));
    TAP_CHECK(refused(", \"quantization_config\": {\"bits\": 8}",
                      "quantized weights cannot be trained"));
    TAP_CHECK(refused(", \"_name_or_path\": \"THUDM/chatglm2-6b-int4\"",
                      "chatglm2-6b-int4 is quantized"));
    TAP_CHECK(zo_model_config_parse("config.json", lfs, strlen(lfs),
                                    ZO_FAMILY_AUTO, &notes,
                                    &config) == ZO_E_CONFIG);
    TAP_CHECK(said("config.json: is a Git LFS pointer"));
    TAP_CHECK(zo_model_config_parse("config.json", "[]", 2, ZO_FAMILY_AUTO,
                                    &notes, &config) == ZO_E_CONFIG);
    TAP_CHECK(zo_model_config_parse("config.json", "{}", 2, ZO_FAMILY_AUTO,
                                    &notes, &config) == ZO_E_CONFIG);
    TAP_CHECK(said("has no key hidden_size"));
    zo_notes_fini(&notes);
}

static void test_families(void)
{
    static const char later[] =
        "{\"num_layers\": 1, \"hidden_size\": 8, \"kv_channels\": 4, "
        "\"num_attention_heads\": 1, \"ffn_hidden_size\": 8, "
        "\"padded_vocab_size\": 8, \"seq_length\": 8192, "
        "\"transformers_version\": \"4.30.2\"}";
    struct zo_notes notes = {.count = 0};

    TAP_CHECK(small(", \"_name_or_path\": \"THUDM/chatglm3-6b\"", "x",
                    ZO_FAMILY_AUTO, &notes) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM3);
    TAP_CHECK(config.rope_angles == ZO_ROPE_ANGLES_FP32);
    TAP_CHECK(config.chat_format == ZO_CHAT_ROLES);
    TAP_CHECK(strcmp(config.name, "chatglm3-6b") == 0);
    TAP_CHECK(small(", \"_name_or_path\": \"/data/CodeGeeX2-6b/\"", "x",
                    ZO_FAMILY_AUTO, &notes) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CODEGEEX2);
    TAP_CHECK(config.chat_format == ZO_CHAT_PLAIN);
    TAP_CHECK(small("", "models/chatglm3-6b/config.json", ZO_FAMILY_AUTO,
                    &notes) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM3);
    TAP_CHECK(strcmp(config.name, "chatglm3-6b") == 0);
    TAP_CHECK(small(", \"_name_or_path\": \"THUDM/chatglm2-6b\"",
                    "chatglm3/config.json", ZO_FAMILY_AUTO, &notes) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM2);
    TAP_CHECK_INT((long long)notes.count, 0);
    TAP_CHECK(small(", \"_name_or_path\": \"THUDM/chatglm2-6b\"", "x",
                    ZO_FAMILY_CHATGLM3, &notes) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM3);
    TAP_CHECK_INT((long long)notes.count, 0);
    /* Nobody names it: guessed, and told. */
    TAP_CHECK(small("", "x", ZO_FAMILY_AUTO, &notes) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM2);
    TAP_CHECK_INT((long long)notes.count, 1);
    TAP_CHECK(strstr(notes.items[0].text, "it is taken for chatglm2") != NULL);
    TAP_CHECK(small(", \"rotary_percent\": 0.5", "x", ZO_FAMILY_AUTO, &notes) ==
              ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CODEGEEX2);
    zo_notes_fini(&notes);
    TAP_CHECK(zo_model_config_parse("x", later, strlen(later), ZO_FAMILY_AUTO,
                                    &notes, &config) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM3);
    zo_notes_fini(&notes);
    TAP_CHECK(changed("\"seq_length\": 512",
                      "\"transformers_version\": \"4.30.2\", "
                      "\"_name_or_path\": \"\", \"seq_length\": 8192") ==
              ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM2); /* the path says so */
}

static void test_rope(void)
{
    struct zo_notes notes = {.count = 0};

    TAP_CHECK(accepted(", \"rope_ratio\": 16"));
    TAP_CHECK(config.rope_position_divisor == 16.0);
    TAP_CHECK(config.rope_base == 10000.0);
    TAP_CHECK(small(", \"rope_ratio\": 50", "chatglm3-6b-32k", ZO_FAMILY_AUTO,
                    &notes) == ZO_OK);
    TAP_CHECK(config.rope_position_divisor == 1.0);
    TAP_CHECK(config.rope_base == 500000.0);
    zo_notes_fini(&notes);
    TAP_CHECK(refused(", \"rope_ratio\": 0", "rope_ratio"));
}

static bool is_same(const struct zo_model_config *a,
                    const struct zo_model_config *b)
{
    return strcmp(a->name, b->name) == 0 && a->family == b->family &&
           a->hidden_size == b->hidden_size && a->num_layers == b->num_layers &&
           a->num_heads == b->num_heads &&
           a->num_kv_groups == b->num_kv_groups &&
           a->head_width == b->head_width && a->ffn_size == b->ffn_size &&
           a->vocab_size == b->vocab_size && a->seq_length == b->seq_length &&
           a->norm_epsilon == b->norm_epsilon &&
           a->has_qkv_bias == b->has_qkv_bias &&
           a->rotary_width == b->rotary_width && a->rope_base == b->rope_base &&
           a->rope_position_divisor == b->rope_position_divisor &&
           a->rope_angles == b->rope_angles && a->dtype == b->dtype &&
           a->eos_token_id == b->eos_token_id &&
           a->pad_token_id == b->pad_token_id &&
           a->chat_format == b->chat_format &&
           a->parameter_count == b->parameter_count;
}

/* A preset, written as config.json and read again, is itself. */
static void test_presets(void)
{
    const char *const *names = zo_model_preset_names();
    struct zo_model_config preset;
    int count = 0;

    for (; names[count] != NULL; count++) {
        struct zo_notes notes = {.count = 0};

        TAP_CHECK(zo_model_preset(names[count], &preset));
        TAP_CHECK(zo_model_config_read(names[count], ZO_FAMILY_AUTO, NULL, 0,
                                       &notes, &config) == ZO_OK);
        TAP_CHECK(is_same(&preset, &config));
        TAP_CHECK_INT(config.parameter_count, 6243584000);
        TAP_CHECK_INT((long long)notes.count, 0);
        zo_notes_fini(&notes);
    }
    TAP_CHECK_INT(count, 4);
    TAP_CHECK(!zo_model_preset("chatglm4", &preset));
}

/* The presets are the official files. */
static void test_official(void)
{
    static const char *const files[][2] = {
        {"chatglm2-6b", "chatglm2-6b"},
        {"siblings/chatglm2-6b-32k.config.json", "chatglm2-6b-32k"},
        {"siblings/chatglm3-6b.config.json", "chatglm3-6b"},
        {"siblings/codegeex2-6b.config.json", "codegeex2-6b"}};
    const char *shared = getenv("ZERO_OFFLOAD_SHARED");
    struct zo_model_config preset;

    if (shared == NULL || access(shared, R_OK) != 0) {
        tap_skip("ZERO_OFFLOAD_SHARED names no folder");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(files); i++) {
        struct zo_notes notes = {.count = 0};
        char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s", shared, files[i][0]);
        TAP_CHECK(zo_model_config_read(path, ZO_FAMILY_AUTO, NULL, 0, &notes,
                                       &config) == ZO_OK);
        TAP_CHECK(zo_model_preset(files[i][1], &preset));
        TAP_CHECK(is_same(&preset, &config));
        TAP_CHECK_INT((long long)notes.count, 0);
        zo_notes_fini(&notes);
    }
}

static void test_read(void)
{
    static const char *const sets[] = {"num_layers=4", "hidden_size=128"};
    static const char *const wrong[] = {"num_layers=0"};
    char folder[] = "zo-model-XXXXXX", path[64];
    struct zo_notes notes = {.count = 0};
    FILE *file;
    char *text = NULL;

    TAP_CHECK(zo_model_config_read("chatglm2-6b", ZO_FAMILY_AUTO, sets, 2,
                                   &notes, &config) == ZO_OK);
    TAP_CHECK_INT(config.num_layers, 4);
    TAP_CHECK_INT(config.hidden_size, 128);
    TAP_CHECK(zo_model_config_read("chatglm2-6b", ZO_FAMILY_AUTO, wrong, 1,
                                   &notes, &config) == ZO_E_CONFIG);
    TAP_CHECK(said("--set num_layers: want an integer"));
    TAP_CHECK(zo_model_config_read("no-such-model", ZO_FAMILY_AUTO, NULL, 0,
                                   &notes, &config) == ZO_E_USAGE);
    TAP_CHECK(said("nor a preset (chatglm2-6b"));
    TAP_CHECK(said("hf download THUDM/chatglm2-6b --local-dir chatglm2-6b"));
    TAP_CHECK(zo_model_config_read("zai-org/ChatGLM3-6B", ZO_FAMILY_AUTO, NULL,
                                   0, &notes, &config) == ZO_E_USAGE);
    TAP_CHECK(said("hf download zai-org/ChatGLM3-6B --local-dir ChatGLM3-6B"));
    TAP_CHECK(zo_model_config_read("no-such-run/model", ZO_FAMILY_AUTO, NULL, 0,
                                   &notes, &config) == ZO_E_USAGE);
    TAP_CHECK(said("train writes OUTPUT/model when"));
    TAP_CHECK(mkdtemp(folder) != NULL);
    TAP_CHECK(zo_model_config_read(folder, ZO_FAMILY_AUTO, NULL, 0, &notes,
                                   &config) == ZO_E_USAGE);
    TAP_CHECK(said("has no config.json, so it is no model directory"));
    TAP_CHECK(strstr(zo_err_last()->text, "; want ") == NULL);
    (void)snprintf(path, sizeof(path), "%s/model", folder);
    TAP_CHECK(mkdir(path, 0777) == 0);
    TAP_CHECK(zo_model_config_read(folder, ZO_FAMILY_AUTO, NULL, 0, &notes,
                                   &config) == ZO_E_USAGE);
    TAP_CHECK(said(path));
    TAP_CHECK(rmdir(path) == 0);
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    TAP_CHECK(zo_model_preset("chatglm3-6b", &config));
    TAP_CHECK(zo_model_config_json(&config, &text) == ZO_OK);
    file = fopen(path, "w");
    TAP_CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    zo_free(text);
    TAP_CHECK(zo_model_config_read(folder, ZO_FAMILY_AUTO, NULL, 0, &notes,
                                   &config) == ZO_OK);
    TAP_CHECK(config.family == ZO_FAMILY_CHATGLM3);
    TAP_CHECK(zo_model_config_read(path, ZO_FAMILY_AUTO, NULL, 0, &notes,
                                   &config) == ZO_OK);
    zo_notes_fini(&notes);
    TAP_CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

static void test_glm(void)
{
    static const struct {
        const char *preset;
        const char *there[6]; /* ends with NULL */
        const char *not_there;
    } rows[] = {
        {"chatglm2-6b",
         {"\"rope_theta\": 10000,", "\"rms_norm_eps\": 1e-05,",
          "\"num_key_value_heads\": 2,", "\"pad_token_id\": null,",
          "\"eos_token_id\": 2,"},
         "rope_scaling"},
        {"chatglm2-6b-32k",
         {"\"rope_scaling\": {\n    \"factor\": 16,\n"
          "    \"rope_type\": \"linear\"\n  },",
          "\"rope_theta\": 10000,"},
         "auto_map"},
        {"codegeex2-6b", {"\"torch_dtype\": \"bfloat16\""}, "chatglm"},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        char *text = NULL;

        TAP_CHECK(zo_model_preset(rows[i].preset, &config));
        TAP_CHECK(zo_model_config_glm_json(&config, &text) == ZO_OK);
        TAP_CHECK(strstr(text, "\"GlmForCausalLM\"") != NULL);
        TAP_CHECK(strstr(text, "\"partial_rotary_factor\": 0.5,") != NULL);
        for (size_t k = 0; rows[i].there[k] != NULL; k++) {
            TAP_CHECK(strstr(text, rows[i].there[k]) != NULL);
        }
        TAP_CHECK(strstr(text, rows[i].not_there) == NULL);
        zo_free(text);
    }
}

static void test_memory(void)
{
    static const char *const sets[] = {"num_layers=4"};
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct zo_notes notes = {.count = 0};

        zo_memory_fail_at(nth);
        status = zo_model_config_read("chatglm2-6b", ZO_FAMILY_AUTO, sets, 1,
                                      &notes, &config);
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        zo_notes_fini(&notes);
    }
    TAP_CHECK(status == ZO_OK);
    TAP_CHECK(failures > 30);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a model of any sizes is read", test_small},
        {"key and value groups divide the heads", test_groups},
        {"sizes out of range are refused with the key", test_sizes},
        {"products of sizes do not overflow", test_overflow},
        {"flags of another architecture are refused", test_flags},
        {"models of other kinds are refused by name", test_refused_by_name},
        {"the family is told by name, by shape, or by the user", test_families},
        {"rope_ratio divides positions, or scales ChatGLM3's base", test_rope},
        {"presets survive being written and read", test_presets},
        {"presets are the official configurations", test_official},
        {"a directory, a file, a preset, and overrides are read", test_read},
        {"the config of GlmForCausalLM has its keys", test_glm},
        {"every failing allocation is clean", test_memory},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
