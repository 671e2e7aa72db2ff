#include "src/train/answer.h"

int zo_answer_stops(const struct zo_tokenizer *tokenizer,
                    int32_t stops[ZO_STOPS_MAX])
{
    int count = 0;

    stops[count++] = zo_tokenizer_eos(tokenizer);
    if (zo_tokenizer_chat(tokenizer) == ZO_CHAT_ROLES) {
        stops[count++] = zo_tokenizer_special(tokenizer, ZO_SPECIAL_USER);
        stops[count++] =
            zo_tokenizer_special(tokenizer, ZO_SPECIAL_OBSERVATION);
    }
    return count;
}

static bool is_stop(const struct zo_answer_options *options, int32_t id)
{
    for (int i = 0; i < options->stop_count; i++) {
        if (options->stops[i] == id) {
            return true;
        }
    }
    return false;
}

static bool is_asked_to_stop(const struct zo_answer_options *options)
{
    return options->wants_stop != NULL && options->wants_stop(options->context);
}

enum zo_status zo_answer_make(const struct zo_answer_options *options,
                              struct zo_ids *ids, enum zo_answer_end *end_out)
{
    const int32_t last = (int32_t)options->prompt_tokens - 1;
    const float *logits = NULL;

    *end_out = ZO_ANSWER_LENGTH;
    ZO_TRY(zo_decoder_prompt(options->decoder, options->prompt,
                             options->prompt_tokens, &last, 1, &logits));
    for (int64_t i = 0; i < options->tokens_max; i++) {
        int32_t id = 0;

        if (is_asked_to_stop(options)) {
            *end_out = ZO_ANSWER_ASKED;
            return ZO_OK;
        }
        ZO_TRY(zo_sampler_pick(options->sampler, logits, options->number,
                               (uint64_t)i, &id));
        if (is_stop(options, id)) {
            *end_out = ZO_ANSWER_STOPPED;
            return ZO_OK;
        }
        ZO_TRY(zo_ids_push(ids, id));
        if (options->on_token != NULL) {
            ZO_TRY(options->on_token(options->context, id));
        }
        if (i + 1 < options->tokens_max) {
            ZO_TRY(zo_decoder_next(options->decoder, id, &logits));
        }
    }
    return ZO_OK;
}
