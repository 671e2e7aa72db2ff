#include "src/train/place_config.h"

static bool may_leave(enum zo_home_limit limit, int stage, int least_stage)
{
    return stage >= least_stage && limit != ZO_HOME_GPU;
}

void zo_place_from_config(const struct zo_run_config *config,
                          struct zo_place_options *options)
{
    const struct zo_run_zero *zero = &config->zero;
    const bool optimizer = may_leave(zero->optimizer.limit, zero->stage, 1);
    const bool weights =
        optimizer && may_leave(zero->param.limit, zero->stage, 3);

    options->optimizer_limit = optimizer ? ZO_TIER_CPU : ZO_TIER_GPU;
    options->weights_limit = weights ? ZO_TIER_CPU : ZO_TIER_GPU;
    options->fills = config->fill;
    options->optimizer_share = 1.0;
    options->keep_most = ZO_KEEP_ALL;
    options->keep_least = ZO_KEEP_INPUT;
    if (config->activations.recompute != ZO_RECOMPUTE_AUTO) {
        options->keep_most = options->keep_least =
            (enum zo_keep)(config->activations.recompute - ZO_RECOMPUTE_NONE);
    }
    options->weight_ring_max = 8;
    options->host_boundaries_always = config->activations.cpu_checkpointing;
    options->pageable_weights = !zero->param.pin_memory;
    options->pageable_optimizer = !zero->optimizer.pin_memory;
}
