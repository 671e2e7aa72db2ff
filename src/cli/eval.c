/*
 * zero-offload eval: loss and perplexity of a model on rows.
 */
#include <inttypes.h>
#include <math.h>

#include "src/base/jsonl.h"
#include "src/cli/cli.h"
#include "src/cli/setup.h"

static enum zo_status print_result(struct zo_cli *cli,
                                   const struct zo_setup *setup,
                                   const struct zo_eval_metrics *metrics)
{
    struct zo_jsonl json;
    char buffer[1024];

    if (!setup->options->json) {
        (void)fprintf(cli->out,
                      "loss %.6f  perplexity %.4f  %" PRId64 " rows, %" PRId64
                      " label tokens, %.1f s\n",
                      metrics->loss, zo_perplexity(metrics->loss),
                      metrics->rows, metrics->label_tokens, metrics->seconds);
        return ZO_OK;
    }
    zo_jsonl_init_file(&json, cli->out, "standard output", buffer,
                       sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_real(&json, "loss", metrics->loss);
    zo_jsonl_real(&json, "perplexity", zo_perplexity(metrics->loss));
    zo_jsonl_int(&json, "rows", metrics->rows);
    zo_jsonl_int(&json, "tokens", metrics->tokens);
    zo_jsonl_int(&json, "label_tokens", metrics->label_tokens);
    zo_jsonl_real(&json, "seconds", metrics->seconds);
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

static enum zo_status evaluate(struct zo_cli *cli, struct zo_setup *setup,
                               struct zo_trainer **trainer)
{
    struct zo_eval_metrics metrics;

    ZO_TRY(zo_setup_open(setup->options, &cli->notes, setup));
    ZO_TRY(zo_setup_trainer(setup, false, trainer));
    ZO_TRY(zo_trainer_start(*trainer));
    ZO_TRY(load(cli, setup, *trainer));
    zo_cli_print_notes(cli);
    ZO_TRY(zo_trainer_evaluate(*trainer, &metrics));
    ZO_TRY(print_result(cli, setup, &metrics));
    return isfinite(metrics.loss)
               ? ZO_OK
               : ZO_FAIL(ZO_E_NUMERIC,
                         "the loss of %s on %s is not finite; its weights "
                         "have diverged, or overflow in %s",
                         setup->options->model, setup->options->data,
                         zo_dtype_name(setup->config.dtype));
}

enum zo_status zo_cli_eval(struct zo_cli *cli, const struct zo_options *options)
{
    struct zo_setup setup = {.options = options};
    struct zo_trainer *trainer = NULL;
    const enum zo_status status = evaluate(cli, &setup, &trainer);

    zo_trainer_close(trainer);
    zo_setup_close(&setup);
    return status;
}
