/*
 * What generate, and eval with --generate, answer with: a decoder that fits
 * the budgets, filled with the model's weights, and a sampler.
 *
 * Layer 8.
 */
#ifndef ZO_SRC_CLI_ANSWERS_H
#define ZO_SRC_CLI_ANSWERS_H

#include "src/cli/cli.h"
#include "src/data/tokenizer.h"
#include "src/train/answer.h"

ZO_C_BEGIN

/* All zero is empty; ended with zo_cli_answers_close() at any point. */
struct zo_cli_answers {
    struct zo_decoder *decoder;
    struct zo_sampler *sampler;
    int32_t stops[ZO_STOPS_MAX];
    int stop_count;
};

struct zo_cli_answers_options {
    struct zo_cli *cli;                   /* borrowed for the call */
    const struct zo_options *options;     /* likewise */
    const struct zo_model_config *model;  /* borrowed until close */
    const struct zo_devices *devices;     /* likewise; the first is used */
    const struct zo_tokenizer *tokenizer; /* borrowed for the call */
    enum zo_dtype dtype;
    bool half_angles;                      /* see zo_cli_half_angles() */
    int64_t prompt_tokens_max, tokens_max; /* as the decoder's */
};

/*
 * Opens and loads; a note says what of the weights stays on the host, and
 * that answers go past the model's seq_length.  As zo_decoder_open() and
 * zo_decoder_load().
 */
enum zo_status
zo_cli_answers_open(const struct zo_cli_answers_options *options,
                    struct zo_cli_answers *answers) ZO_MUST_CHECK;
void zo_cli_answers_close(struct zo_cli_answers *answers);

/*
 * Whether angles are rounded as --rope-precision asks; a note where the
 * official code of the family has exact ones, or the run's type is fp32.
 */
enum zo_status zo_cli_half_angles(const struct zo_options *options,
                                  const struct zo_model_config *model,
                                  enum zo_dtype dtype, struct zo_notes *notes,
                                  bool *half_out) ZO_MUST_CHECK;

ZO_C_END

#endif
