/*
 * Greedy answers of the official tiny model, token by token.
 *
 * The tokens are those of transformers' GlmForCausalLM 5.24 (torch 2.15, fp32
 * on the processor) from `export --layout glm` of the official vectors'
 * weights, for the three prompts of the left-padded case as one batch, with
 * the end token out of use; the likeliest token is always at least 0.0085
 * above the next.  tests/parity.py makes them again.
 */
#include <stdlib.h>

#include "src/train/answer.h"
#include "tests/vector_run.h"

#define PROMPTS       3
#define PROMPT_TOKENS 15
#define ANSWER        64

static const int32_t wants[PROMPTS][ANSWER] = {
    {80,  124, 136, 80,  13,  39,  58,  51,  51,  29,  140, 24,  52,
     7,   22,  136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136,
     136, 136, 139, 51,  50,  46,  24,  52,  24,  52,  12,  33,  7,
     106, 11,  7,   154, 91,  148, 24,  52,  22,  6,   14,  5,   79,
     7,   131, 26,  52,  23,  107, 153, 132, 140, 148, 5,   79},
    {97,  86, 43, 11,  8,  148, 5,   132, 102, 14, 52,  107, 11,  38,  52, 35,
     127, 11, 62, 155, 51, 105, 12,  64,  121, 50, 43,  47,  156, 43,  12, 64,
     96,  94, 58, 29,  12, 64,  96,  94,  58,  69, 12,  47,  20,  11,  38, 5,
     43,  12, 47, 100, 79, 153, 132, 153, 132, 47, 100, 79,  153, 132, 47, 60},
    {79,  155, 129, 35, 79, 12, 153, 87, 79,  50,  53,  43, 135,
     96,  12,  47,  12, 47, 60, 98,  47, 82,  153, 107, 56, 153,
     107, 79,  12,  47, 60, 54, 79,  79, 79,  102, 5,   34, 53,
     75,  79,  102, 5,  34, 53, 75,  79, 102, 5,   43,  43, 43,
     43,  43,  43,  43, 43, 43, 43,  43, 43,  107, 153, 107}};

struct greedy {
    struct tiny_case vectors;
    struct zo_notes notes;
    struct zo_model_config model;
    struct zo_devices devices;
    struct zo_decoder *decoder;
    struct zo_sampler *sampler;
    struct tiny_ints *ids, *mask;
};

static enum zo_status open_decoder(struct greedy *greedy, int host_units)
{
    const struct zo_devices_options devices = {
        .backend = ZO_BACKEND_HOST, .count = 1, .threads = 2};
    const struct zo_decoder_options decoder = {
        .model = &greedy->model,
        .devices = &greedy->devices,
        .dtype = ZO_F32,
        .prompt_tokens_max = PROMPT_TOKENS,
        .tokens_max = PROMPT_TOKENS + ANSWER,
        .labels_max = 1,
        .host_units = host_units,
    };
    struct zo_model_dir *dir = NULL;
    enum zo_status status;

    ZO_TRY(zo_model_config_read(greedy->vectors.model, ZO_FAMILY_AUTO, NULL, 0,
                                &greedy->notes, &greedy->model));
    ZO_TRY(zo_devices_open(&devices, &greedy->devices));
    ZO_TRY(zo_sampler_open(
        &(struct zo_sampler_options){.vocab = greedy->model.vocab_size},
        &greedy->sampler));
    ZO_TRY(zo_decoder_open(&decoder, &greedy->decoder));
    ZO_TRY(zo_model_dir_open(greedy->vectors.model, &greedy->notes, &dir));
    status = zo_decoder_load(greedy->decoder, dir, &greedy->notes);
    zo_model_dir_close(dir);
    return status;
}

static void greedy_close(struct greedy *greedy)
{
    zo_decoder_close(greedy->decoder);
    zo_sampler_close(greedy->sampler);
    zo_devices_close(&greedy->devices);
    zo_notes_fini(&greedy->notes);
    free(greedy->ids);
    free(greedy->mask);
    tiny_close_case(&greedy->vectors);
}

/* The answer to a row without its pads. */
static enum zo_status answer_row(const struct greedy *greedy, int row,
                                 struct zo_ids *answer)
{
    const int64_t *ids = greedy->ids->values + row * PROMPT_TOKENS;
    const int64_t *mask = greedy->mask->values + row * PROMPT_TOKENS;
    enum zo_answer_end end;
    int32_t prompt[PROMPT_TOKENS];
    int64_t count = 0;

    for (int t = 0; t < PROMPT_TOKENS; t++) {
        if (mask[t] != 0) {
            prompt[count++] = (int32_t)ids[t];
        }
    }
    return zo_answer_make(
        &(struct zo_answer_options){.decoder = greedy->decoder,
                                    .sampler = greedy->sampler,
                                    .prompt = prompt,
                                    .prompt_tokens = count,
                                    .tokens_max = ANSWER},
        answer, &end);
}

static void check_answers(int host_units)
{
    struct greedy greedy = {0};
    struct zo_tensor_source *source;

    if (!tiny_open_fp32(&greedy.vectors)) {
        return;
    }
    source = tiny_vectors(
        fx_shared("vectors/tiny_fp32/tiny_eval_leftpad_case.safetensors"));
    greedy.ids = tiny_ints(source, "input_ids");
    greedy.mask = tiny_ints(source, "attention_mask");
    zo_tensor_source_close(source);
    TAP_CHECK_INT(greedy.ids->shape[0], PROMPTS);
    TAP_CHECK_INT(greedy.ids->shape[1], PROMPT_TOKENS);
    TAP_CHECK_INT(open_decoder(&greedy, host_units), ZO_OK);
    for (int row = 0; row < PROMPTS; row++) {
        struct zo_ids answer = {0};

        TAP_CHECK_INT(answer_row(&greedy, row, &answer), ZO_OK);
        TAP_CHECK_INT(answer.count, ANSWER);
        for (int t = 0; t < ANSWER; t++) {
            TAP_CHECK_INT(answer.items[t], wants[row][t]);
        }
        zo_ids_fini(&answer);
    }
    greedy_close(&greedy);
}

static void test_resident(void)
{
    check_answers(0);
}

static void test_streamed(void)
{
    check_answers(5);
}

static const struct tap_case cases[] = {
    {"greedy answers are the reference's, 64 tokens of 3 prompts",
     test_resident},
    {"and with the weights on the host", test_streamed},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
