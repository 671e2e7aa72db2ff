/*
 * zero-offload eval: loss and perplexity of a model on rows; with --generate
 * also what it answers to their prompts, and how close that comes.
 */
#include <inttypes.h>
#include <math.h>

#include "src/base/jsonl.h"
#include "src/base/text.h"
#include "src/cli/answers.h"
#include "src/cli/predict.h"
#include "src/cli/setup.h"

#define TELL_EVERY_SECONDS 10.0

/* What is known when all is done; predicted is NULL without --generate. */
static void print_plain(struct zo_cli *cli,
                        const struct zo_eval_metrics *metrics,
                        const struct zo_cli_predicted *predicted)
{
    (void)fprintf(cli->out,
                  "loss %.6f  perplexity %.4f  %" PRId64 " row%s, %" PRId64
                  " label token%s, %.1f s\n",
                  metrics->loss, zo_perplexity(metrics->loss), metrics->rows,
                  zo_text_s((uint64_t)metrics->rows), metrics->label_tokens,
                  zo_text_s((uint64_t)metrics->label_tokens), metrics->seconds);
    if (predicted != NULL) {
        const struct zo_scores *scores = &predicted->scores;

        (void)fprintf(cli->out,
                      "rouge-1 %.4f  rouge-2 %.4f  rouge-l %.4f  bleu-4 %.4f  "
                      "%" PRId64 " answer%s of %" PRId64 " token%s, %.1f s\n",
                      scores->rouge_1, scores->rouge_2, scores->rouge_l,
                      scores->bleu_4, predicted->rows,
                      zo_text_s((uint64_t)predicted->rows), predicted->tokens,
                      zo_text_s((uint64_t)predicted->tokens),
                      predicted->seconds);
    }
}

static enum zo_status print_json(struct zo_cli *cli,
                                 const struct zo_eval_metrics *metrics,
                                 const struct zo_cli_predicted *predicted)
{
    struct zo_jsonl json;
    char buffer[1024];

    zo_jsonl_init_file(&json, cli->out, "standard output", buffer,
                       sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_real(&json, "loss", metrics->loss);
    zo_jsonl_real(&json, "perplexity", zo_perplexity(metrics->loss));
    zo_jsonl_int(&json, "rows", metrics->rows);
    zo_jsonl_int(&json, "tokens", metrics->tokens);
    zo_jsonl_int(&json, "label_tokens", metrics->label_tokens);
    zo_jsonl_real(&json, "seconds", metrics->seconds);
    if (predicted != NULL) {
        zo_jsonl_real(&json, "rouge_1", predicted->scores.rouge_1);
        zo_jsonl_real(&json, "rouge_2", predicted->scores.rouge_2);
        zo_jsonl_real(&json, "rouge_l", predicted->scores.rouge_l);
        zo_jsonl_real(&json, "bleu_4", predicted->scores.bleu_4);
        zo_jsonl_int(&json, "answers", predicted->rows);
        zo_jsonl_int(&json, "answer_tokens", predicted->tokens);
        zo_jsonl_real(&json, "answer_seconds", predicted->seconds);
    }
    return zo_jsonl_end(&json);
}

static enum zo_status load(struct zo_cli *cli, const struct zo_setup *setup,
                           struct zo_trainer *trainer)
{
    const struct zo_weights weights = zo_trainer_weights(trainer);
    struct zo_model_dir *dir = NULL;
    enum zo_status status;

    ZO_TRY(zo_model_dir_open(setup->options->model, &cli->notes, &dir));
    status = zo_weights_load(&weights, dir, &cli->notes);
    zo_model_dir_close(dir);
    return status;
}

/* Everything that can be refused is, before memory is taken. */
static enum zo_status prepare(struct zo_cli *cli, struct zo_setup *setup,
                              struct zo_folders *output)
{
    const struct zo_options *options = setup->options;
    bool half_angles = false;

    ZO_TRY(zo_setup_open(options, &cli->notes, setup));
    ZO_TRY(zo_cli_half_angles(options, &setup->model, setup->config.dtype,
                              &cli->notes, &half_angles));
    if (zo_option_given(options, ZO_OPTION_ROPE)) {
        setup->config.rope_precision =
            half_angles ? ZO_ROPE_PRECISION_MODEL : ZO_ROPE_PRECISION_FP32;
    }
    return options->generate ? zo_cli_predict_check(setup, output) : ZO_OK;
}

/* Who is told how far the loss has come. */
struct listener {
    FILE *file;
    int64_t rows;
    double told_seconds;
};

/* A zo_evaluated_fn: a line now and then. */
static void tell(void *context, const struct zo_eval_metrics *so_far)
{
    struct listener *listener = context;

    if (so_far->seconds - listener->told_seconds < TELL_EVERY_SECONDS) {
        return;
    }
    listener->told_seconds = so_far->seconds;
    (void)fprintf(listener->file,
                  "evaluated %" PRId64 " of %" PRId64
                  " row%s, %.0f tokens/s, %.0f s left\n",
                  so_far->rows, listener->rows,
                  zo_text_s((uint64_t)listener->rows),
                  (double)so_far->tokens / so_far->seconds,
                  so_far->seconds / (double)so_far->rows *
                      (double)(listener->rows - so_far->rows));
}

static enum zo_status measure(struct zo_cli *cli, const struct zo_setup *setup,
                              struct zo_trainer **trainer,
                              struct zo_eval_metrics *metrics)
{
    struct listener listener = {.file = zo_cli_err(cli)};

    ZO_TRY(zo_setup_trainer(setup, false, trainer));
    ZO_TRY(zo_trainer_start(*trainer));
    ZO_TRY(load(cli, setup, *trainer));
    zo_cli_print_notes(cli);
    listener.rows = zo_dataset_count(setup->eval_data);
    return zo_trainer_evaluate_told(*trainer, tell, &listener, metrics);
}

static enum zo_status print_result(struct zo_cli *cli,
                                   const struct zo_setup *setup,
                                   const struct zo_eval_metrics *metrics,
                                   const struct zo_cli_predicted *predicted)
{
    if (setup->options->json) {
        ZO_TRY(print_json(cli, metrics, predicted));
    } else {
        print_plain(cli, metrics, predicted);
    }
    return isfinite(metrics->loss)
               ? ZO_OK
               : ZO_FAIL(ZO_E_NUMERIC,
                         "the loss of %s on %s is not finite; its weights "
                         "have diverged, or overflow in %s",
                         setup->options->model, setup->options->data,
                         zo_dtype_name(setup->config.dtype));
}

static enum zo_status evaluate(struct zo_cli *cli, struct zo_setup *setup,
                               struct zo_folders *output)
{
    struct zo_trainer *trainer = NULL;
    struct zo_eval_metrics metrics;
    struct zo_cli_predicted predicted;
    enum zo_status status;

    ZO_TRY(prepare(cli, setup, output));
    status = measure(cli, setup, &trainer, &metrics);
    zo_trainer_close(trainer); /* its memory is the answers' */
    ZO_TRY(status);
    if (!setup->options->generate || !isfinite(metrics.loss)) {
        return print_result(cli, setup, &metrics, NULL);
    }
    ZO_TRY(zo_cli_predict(cli, setup, &predicted));
    return print_result(cli, setup, &metrics, &predicted);
}

enum zo_status zo_cli_eval(struct zo_cli *cli, const struct zo_options *options)
{
    struct zo_setup setup = {.options = options};
    struct zo_folders output = {0}; /* of --generate */
    const enum zo_status status = evaluate(cli, &setup, &output);

    zo_output_folder_end(&output);
    zo_setup_close(&setup);
    return status;
}
