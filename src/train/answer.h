/*
 * An answer: tokens that a model adds to a prompt, until one ends it.
 *
 * Row 7.
 */
#ifndef ZO_SRC_TRAIN_ANSWER_H
#define ZO_SRC_TRAIN_ANSWER_H

#include "src/data/tokenizer.h"
#include "src/train/decoder.h"
#include "src/train/sampler.h"

ZO_C_BEGIN

#define ZO_STOPS_MAX 3

/*
 * The tokens that end an answer: the end token, and with ZO_CHAT_ROLES those
 * of the turns that may follow one.  Returns how many.
 */
int zo_answer_stops(const struct zo_tokenizer *tokenizer,
                    int32_t stops[ZO_STOPS_MAX]);

/* Told every token of the answer as it comes; a failure ends it. */
typedef enum zo_status (*zo_answer_fn)(void *context, int32_t id);

struct zo_answer_options {
    struct zo_decoder *decoder; /* borrowed; room for prompt and answer */
    struct zo_sampler *sampler; /* borrowed */
    const int32_t *stops;       /* borrowed */
    int stop_count;
    const int32_t *prompt; /* borrowed */
    int64_t prompt_tokens;
    uint64_t number;       /* of the answer, for the sampler */
    int64_t tokens_max;    /* of the answer */
    zo_answer_fn on_token; /* may be NULL */
    void *context;
    bool (*wants_stop)(void *context); /* may be NULL; asked before tokens */
};

enum zo_answer_end {
    ZO_ANSWER_STOPPED, /* by a stop token, which is not part of it */
    ZO_ANSWER_LENGTH,  /* tokens_max are there */
    ZO_ANSWER_ASKED    /* wants_stop */
};

/*
 * Appends the answer to ids.
 *
 *   ZO_E_NUMERIC   as zo_sampler_pick()
 *   and what the decoder and on_token return
 */
enum zo_status zo_answer_make(const struct zo_answer_options *options,
                              struct zo_ids *ids,
                              enum zo_answer_end *end_out) ZO_MUST_CHECK;

ZO_C_END

#endif
