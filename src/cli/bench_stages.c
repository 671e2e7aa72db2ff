/*
 * zero-offload bench stages: the classic experiment, run: ZeRO's stages and
 * offloads, literally as asked, and one last row of the planner's choice.
 */
#include <string.h>

#include "src/base/arith.h"
#include "src/base/text.h"
#include "src/cli/bench_run.h"

/* ---- how many layers -----------------------------------------------------
 */

static enum zo_status layers_fit(const struct zo_setup *setup, int64_t layers,
                                 bool *fits_out)
{
    struct zo_setup cut = *setup;

    zo_model_config_cut(&cut.model, layers);
    cut.batches = NULL; /* planned alone */
    return zo_setup_fits(&cut, &cut.config, fits_out);
}

/* The most layers that stage 0 has room for, at least 1. */
static enum zo_status largest_layers(const struct zo_setup *setup,
                                     int64_t *layers_out)
{
    int64_t low = 1, high = setup->model.num_layers + 1;
    bool fits = false;

    ZO_TRY(layers_fit(setup, high - 1, &fits));
    if (fits) {
        *layers_out = high - 1;
        return ZO_OK;
    }
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        ZO_TRY(layers_fit(setup, middle, &fits));
        if (fits) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *layers_out = low;
    return ZO_OK;
}

/* Opens stage 0 to see; layers of the whole model, and of the run. */
static enum zo_status choose_layers(const struct zo_options *options,
                                    int64_t *all_out, int64_t *layers_out)
{
    struct zo_variant variant;
    struct zo_setup setup = {0};
    struct zo_notes notes = {0}; /* the first row tells them */
    size_t count = 0;
    enum zo_status status;

    ZO_TRY(zo_variant_init(options, &variant));
    variant.options.layers = 0;
    ZO_TRY_GOTO(close_all, zo_variant_stage(&variant, zo_stage_rows(&count)));
    ZO_TRY_GOTO(close_all, zo_setup_open(&variant.options, &notes, &setup));
    *all_out = setup.model.num_layers;
    *layers_out = options->layers;
    if (options->layers == 0) {
        status = largest_layers(&setup, layers_out);
    }

close_all:
    zo_setup_close(&setup);
    zo_notes_fini(&notes);
    zo_variant_fini(&variant);
    return status;
}

/* ---- rows ----------------------------------------------------------------
 */

/* What ZeRO's arithmetic says a device holds, state by state. */
static void print_formula(FILE *out, const struct zo_bench_row *row)
{
    char all[32], text[32];

    if (row->formula_bytes == 0) {
        return;
    }
    (void)fprintf(out, "      by the stage's formula %s: weights %s",
                  zo_text_gib(all, sizeof(all), row->formula_bytes),
                  zo_text_gib(text, sizeof(text), row->formula_weight_bytes));
    if (row->formula_optimizer_bytes == 0) {
        (void)fputs(", all else on the host\n", out);
        return;
    }
    (void)fprintf(out, ",\n        gradients %s",
                  zo_text_gib(text, sizeof(text), row->formula_gradient_bytes));
    (void)fprintf(
        out, ", masters and moments %s\n",
        zo_text_gib(text, sizeof(text), row->formula_optimizer_bytes));
}

static void print_row(struct zo_bench *bench, const struct zo_bench_row *row,
                      const struct zo_bench_row *whole)
{
    FILE *out = bench->cli->out;
    char gpu[32], host[32];

    zo_bench_print_row(bench, row);
    (void)fprintf(out, "\n      %s\n", row->note);
    print_formula(out, row);
    zo_bench_print_purposes(out, bench->device, row->gpu_purposes);
    if (row->host_bytes * 100 > row->gpu_bytes) {
        zo_bench_print_purposes(out, "host", row->host_purposes);
    }
    if (whole != NULL) {
        (void)fprintf(out, "      all %lld layers: %s %s, host %s%s",
                      (long long)whole->layers, bench->device,
                      zo_text_gib(gpu, sizeof(gpu), whole->gpu_bytes),
                      zo_text_gib(host, sizeof(host), whole->host_bytes),
                      whole->state == ZO_BENCH_UNFIT ? ", does not fit" : "");
        if (whole->predicted_seconds > 0.0) {
            (void)fprintf(out, ", predicted %.4g s", whole->predicted_seconds);
        }
        (void)fputc('\n', out);
    }
    (void)fflush(out);
}

/* As many layers as are run; then, planned, all of them. */
static enum zo_status run_row(struct zo_bench *bench,
                              const struct zo_stage_row *stage, int64_t all,
                              int64_t layers)
{
    struct zo_bench_row row, whole;
    struct zo_variant variant;
    char label[64];
    struct zo_bench_ask ask = {.label = label, .note = stage->purpose};
    enum zo_status status;

    (void)snprintf(label, sizeof(label), "%d, %s", stage->stage,
                   stage->offload);
    ZO_TRY(zo_variant_init(bench->options, &variant));
    ZO_TRY_GOTO(close_variant, zo_variant_stage(&variant, stage));
    variant.options.layers = layers;
    ZO_TRY_GOTO(close_variant,
                zo_bench_row(bench, &variant.options, &ask, &row));
    if (layers < all) {
        ask.plans_only = true;
        variant.options.layers = 0;
        ZO_TRY_GOTO(close_variant,
                    zo_bench_row(bench, &variant.options, &ask, &whole));
    }
    if (!bench->options->json) {
        print_row(bench, &row, layers < all ? &whole : NULL);
    }

close_variant:
    zo_variant_fini(&variant);
    return status;
}

static enum zo_status run_rows(struct zo_bench *bench, int64_t all,
                               int64_t layers)
{
    size_t count = 0;
    const struct zo_stage_row *rows = zo_stage_rows(&count);

    bench->total = (int)count * (layers < all ? 2 : 1);
    for (size_t i = 0; i < count; i++) {
        if (!zo_stage_row_uses_nvme(&rows[i]) ||
            bench->options->nvme_path != NULL) {
            ZO_TRY(run_row(bench, &rows[i], all, layers));
        }
    }
    return ZO_OK;
}

enum zo_status zo_bench_stages(struct zo_cli *cli,
                               const struct zo_options *options)
{
    struct zo_bench bench;
    int64_t all = 0, layers = 0;
    enum zo_status status;

    ZO_TRY(choose_layers(options, &all, &layers));
    ZO_TRY(zo_bench_open(cli, options, "stages", "stage, offload", &bench));
    if (!options->json) {
        (void)fprintf(cli->out,
                      "%lld of %lld layer%s, literally as asked for; the last "
                      "row is the planner's choice.\n"
                      "The stage's formula counts the gradients of the whole "
                      "model; a device here holds\n"
                      "fewer where each is used up before the next is made.\n",
                      (long long)layers, (long long)all,
                      zo_text_s((uint64_t)all));
    }
    status = run_rows(&bench, all, layers);
    status = status == ZO_OK ? zo_bench_verdict(&bench) : status;
    zo_bench_close(&bench);
    return status;
}
