/*
 * A model's config.json as a checked struct, and presets by name.
 *
 * Layer 1.  Knows the ChatGLM2 architecture: pre-norm blocks with RMSNorm,
 * grouped-query attention, rotary embedding of the first half of each head,
 * SwiGLU, an untied head.  Any sizes are fine; a flag that would change the
 * architecture is refused with the key, what is wanted and what was found.
 */
#ifndef ZO_CONFIG_MODEL_CONFIG_H
#define ZO_CONFIG_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/notes.h"
#include "src/base/status.h"

ZO_C_BEGIN

/* Which of the siblings a model is: they share block and loss. */
enum zo_model_family {
    ZO_FAMILY_AUTO, /* only as an argument: tell from the config */
    ZO_FAMILY_CHATGLM2,
    ZO_FAMILY_CHATGLM3,
    ZO_FAMILY_CODEGEEX2
};

/* How the official code of the family computes the rotary angles. */
enum zo_rope_angles {
    ZO_ROPE_ANGLES_MODEL, /* in the model's type: ChatGLM2, CodeGeeX2 */
    ZO_ROPE_ANGLES_FP32   /* ChatGLM3 */
};

enum zo_chat_format {
    ZO_CHAT_ROUNDS, /* [Round 1] with question and answer: ChatGLM2 */
    ZO_CHAT_ROLES,  /* <|user|>, <|assistant|> tokens: ChatGLM3 */
    ZO_CHAT_PLAIN   /* the text alone: CodeGeeX2 */
};

#define ZO_MODEL_NAME_MAX 64
#define ZO_MODEL_ID_NONE  (-1)

struct zo_model_config {
    char name[ZO_MODEL_NAME_MAX]; /* "chatglm2-6b", or "" when unnamed */
    enum zo_model_family family;  /* never ZO_FAMILY_AUTO */

    int64_t hidden_size;   /* C, a multiple of 8 */
    int64_t num_layers;    /* L, >= 1 */
    int64_t num_heads;     /* H, query heads; a multiple of num_kv_groups */
    int64_t num_kv_groups; /* G, key and value heads */
    int64_t head_width;    /* D, kv_channels: a multiple of 4 */
    int64_t ffn_size;      /* F, one of the two halves of dense_h_to_4h */
    int64_t vocab_size;    /* V, padded: rows of the embedding */
    int64_t seq_length;    /* positions that the model was made for */
    double norm_epsilon;
    bool has_qkv_bias;

    int64_t rotary_width;         /* first dimensions of a head, D / 2 */
    double rope_base;             /* 10000, or scaled: ChatGLM3-32k */
    double rope_position_divisor; /* 1, or the ratio: ChatGLM2-32k */
    enum zo_rope_angles rope_angles;

    enum zo_dtype dtype;  /* torch_dtype: of the files */
    bool names_dtype;     /* config.json has that key; else dtype is fp16 */
    int64_t eos_token_id; /* ZO_MODEL_ID_NONE when the config has none */
    int64_t pad_token_id; /* likewise */
    enum zo_chat_format chat_format;

    int64_t parameter_count; /* of all units; without rotary buffers */
};

/*
 * Reads the configuration of `model`: a directory with a config.json, such a
 * file itself, or the name of a preset where no such path exists.  `family`
 * other than ZO_FAMILY_AUTO overrides what the file suggests.  overrides
 * (count of them, may be 0) are "key=value" and replace keys of the file.
 * Notes say how the family was told when that is not certain.
 *
 *   ZO_E_USAGE    no such directory, file or preset
 *   ZO_E_CONFIG   not JSON, not this architecture, or sizes out of range
 */
enum zo_status
zo_model_config_read(const char *model, enum zo_model_family family,
                     const char *const *overrides, size_t override_count,
                     struct zo_notes *notes,
                     struct zo_model_config *config_out) ZO_MUST_CHECK;

/* The same from text; `name` is for messages and hints at the family. */
enum zo_status
zo_model_config_parse(const char *name, const char *text, size_t size_bytes,
                      enum zo_model_family family, struct zo_notes *notes,
                      struct zo_model_config *config_out) ZO_MUST_CHECK;

/* The same model with fewer (or more) layers, at least 1. */
void zo_model_config_cut(struct zo_model_config *config, int64_t layers);

/* "chatglm2-6b", "chatglm2-6b-32k", "chatglm3-6b", "codegeex2-6b". */
bool zo_model_preset(const char *name, struct zo_model_config *config_out);

/* Names of the presets; ends with NULL. */
const char *const *zo_model_preset_names(void);

/* "chatglm2", "chatglm3", "codegeex2"; "auto" for ZO_FAMILY_AUTO. */
const char *zo_model_family_name(enum zo_model_family family);

/* False when no family has that name. */
bool zo_model_family_parse(const char *name, enum zo_model_family *family_out);

/*
 * The config.json of a model, as a new one is written with; owned by the
 * caller, ended with zo_free().
 */
enum zo_status zo_model_config_json(const struct zo_model_config *config,
                                    char **text_out) ZO_MUST_CHECK;

/*
 * The config.json with which the transformers library loads the same model as
 * its own GlmForCausalLM, without code from the model; owned likewise.
 */
enum zo_status zo_model_config_glm_json(const struct zo_model_config *config,
                                        char **text_out) ZO_MUST_CHECK;

ZO_C_END

#endif
