#include "src/cli/print_hints.h"

#include <inttypes.h>

#include "src/base/arith.h"

#define MICROS_MAX 64 /* more are seldom wanted, and take long to plan */

enum zo_status zo_cli_print_accumulation(FILE *file,
                                         const struct zo_setup *setup,
                                         const struct zo_trainer *trainer)
{
    const struct zo_place *place = zo_trainer_place(trainer);
    const int64_t here = setup->config.gradient_accumulation_steps;
    char text[256];
    int64_t micros = 0;

    if (place == NULL || place->resident_units ==
                             zo_trainer_build(trainer)->options.unit_count) {
        return ZO_OK;
    }
    ZO_TRY(zo_setup_largest_accumulation(setup, MICROS_MAX, &micros));
    if (micros > 1) {
        (void)snprintf(text, sizeof(text),
                       "this step has %" PRId64 " micro batch%s "
                       "(gradient_accumulation_steps); %s %" PRId64
                       " would share one pass of the weights over the bus",
                       here, here == 1 ? "" : "es",
                       micros < MICROS_MAX ? "up to" : "at least", micros);
        zo_cli_print_wrapped(file, "  accumulation: ", 4, text);
    }
    return ZO_OK;
}

/* ---- what would fit -------------------------------------------------------
 */

static bool drop_clipping(struct zo_run_config *config)
{
    const bool changes =
        config->gradient_clipping > 0.0 && config->dtype != ZO_F16;

    config->gradient_clipping = 0.0;
    return changes;
}

static bool drop_check(struct zo_run_config *config)
{
    const bool changes = config->check_grad_overflow && config->dtype != ZO_F16;

    config->check_grad_overflow = false;
    (void)drop_clipping(config);
    return changes;
}

static bool train_in_bf16(struct zo_run_config *config)
{
    const bool changes = config->dtype == ZO_F16;

    config->dtype = changes ? ZO_BF16 : config->dtype;
    config->check_grad_overflow = config->check_grad_overflow && !changes;
    return changes;
}

static bool halve_moments(struct zo_run_config *config)
{
    const bool changes = config->optimizer.moment_dtype == ZO_F32;

    config->optimizer.moment_dtype = ZO_BF16;
    return changes;
}

static bool recompute(struct zo_run_config *config)
{
    const bool changes = config->activations.recompute != ZO_RECOMPUTE_AUTO &&
                         config->activations.recompute != ZO_RECOMPUTE_LAYER;

    config->activations.recompute = ZO_RECOMPUTE_LAYER;
    return changes;
}

static bool offload(struct zo_run_config *config)
{
    struct zo_run_zero *zero = &config->zero;
    const bool changes = zero->stage < 3 ||
                         zero->optimizer.limit == ZO_HOME_GPU ||
                         zero->param.limit == ZO_HOME_GPU;

    zero->stage = 3;
    zero->optimizer.limit = zero->param.limit = ZO_HOME_CPU;
    return changes;
}

/* The folder's name does not matter for what fits. */
static bool spill(struct zo_run_config *config)
{
    struct zo_run_zero *zero = &config->zero;
    const bool changes = zero->optimizer.nvme_path == NULL;

    zero->stage = 3;
    zero->optimizer.limit = zero->param.limit = ZO_HOME_NVME;
    zero->optimizer.nvme_path = zero->param.nvme_path = ".";
    return changes;
}

static bool accumulate_less(struct zo_run_config *config)
{
    const bool changes = config->gradient_accumulation_steps > 1;

    config->gradient_accumulation_steps =
        zo_max_i64(1, config->gradient_accumulation_steps / 2);
    return changes;
}

/* The changes that are tried, each alone, in the order of what they cost. */
static const struct hint {
    bool (*change)(struct zo_run_config *config); /* false: is so already */
    const char *text;
} hints[] = {
    {offload, "ZeRO stage 3 with offload_optimizer and offload_param on cpu: "
              "states leave the devices, the results are the same"},
    {spill, "--nvme DIR at ZeRO stage 3: what host memory has no room for is "
            "kept on a disk, the results are the same"},
    {recompute,
     "zero_offload.recompute \"layer\": layers are computed again in "
     "backward, the results are the same"},
    {accumulate_less, "half of gradient_accumulation_steps"},
    {drop_clipping, "no gradient_clipping: gradients then need not wait for "
                    "their norm, 2 bytes a parameter less"},
    {drop_check, "neither gradient_clipping nor check_grad_overflow: gradients "
                 "then need not wait, 2 bytes a parameter less"},
    {train_in_bf16, "bf16 instead of fp16"},
    {halve_moments, "zero_offload.moment_dtype \"bf16\": 4 bytes a parameter "
                    "less; other results"},
};

static enum zo_status print_hints(FILE *file, const struct zo_setup *setup)
{
    int found = 0;

    for (size_t i = 0; i < ZO_COUNT(hints); i++) {
        struct zo_run_config config = setup->config;
        bool fits = false;

        if (!hints[i].change(&config)) {
            continue;
        }
        ZO_TRY(zo_setup_fits(setup, &config, &fits));
        if (fits) {
            zo_cli_print_wrapped(file, "  ", 4, hints[i].text);
            found++;
        }
    }
    if (found == 0) {
        zo_cli_print_wrapped(file, "  ", 4,
                             "no single change of the configuration: more "
                             "memory, or shorter rows or fewer of them in a "
                             "micro batch");
    }
    return ZO_OK;
}

enum zo_status zo_cli_print_cure(FILE *file, const struct zo_setup *setup)
{
    (void)fputs("it does not fit; what would:\n", file);
    return print_hints(file, setup);
}

enum zo_status zo_cli_fail_fit(const struct zo_cli *cli,
                               const struct zo_setup *setup,
                               const struct zo_trainer *trainer)
{
    const struct zo_err failure =
        *zo_err_last(); /* trying others replaces it */

    zo_cli_print_plan(zo_cli_err(cli), setup, trainer);
    ZO_TRY(zo_cli_print_cure(zo_cli_err(cli), setup));
    return zo_err_adopt(&failure);
}
