#include "src/train/place_config.h"

#include <string.h>

#include "src/base/arith.h"

/* ---- homes --------------------------------------------------------------- */

/* JSON that is silent lets the planner place, on NVMe where --nvme gives a
 * folder; the configuration has made that, and cpu, the GPU where the stage
 * does not let a state leave it. */
static enum zo_tier slowest(const struct zo_run_offload *offload)
{
    switch (offload->limit) {
    case ZO_HOME_GPU:
        return ZO_TIER_GPU;
    case ZO_HOME_PLANNED:
        return offload->nvme_path != NULL ? ZO_TIER_NVME : ZO_TIER_CPU;
    case ZO_HOME_NVME:
        return ZO_TIER_NVME;
    case ZO_HOME_CPU:
        break;
    }
    return ZO_TIER_CPU;
}

struct zo_place_limits zo_place_limits(const struct zo_run_config *config,
                                       int device_count, bool trains)
{
    const struct zo_run_zero *zero = &config->zero;
    struct zo_place_limits limits = {ZO_TIER_GPU, ZO_TIER_GPU};

    if (device_count > 1 && zero->stage == 0) {
        return limits; /* every device has all states: nothing to share */
    }
    limits.weights = slowest(&zero->param);
    if (trains) {
        limits.optimizer = slowest(&zero->optimizer);
    }
    if (trains && limits.optimizer == ZO_TIER_GPU) {
        limits.weights = ZO_TIER_GPU; /* weights stay with their masters */
    }
    return limits;
}

/* ---- rings --------------------------------------------------------------- */

/* Of the units whose weights would pass through the ring. */
static int64_t largest_unit(const struct zo_build_options *build)
{
    const struct zo_model_ops *ops = build->model_ops;
    int64_t elems = 1;

    for (int u = 0; u < build->unit_count; u++) {
        struct zo_unit_rows rows;

        if (ops == NULL || ops->rows == NULL ||
            !ops->rows(build->model, u, &rows)) {
            elems = zo_max_i64(elems, build->units[u].elems);
        }
    }
    return elems;
}

/* The deepest ring that the keys allow; two buffers are the least with which
 * one unit computes while the next is on its way. */
static int deepest_ring(const struct zo_run_zero *zero, int64_t unit_elems)
{
    int64_t depth = ZO_PLACE_RING_MAX;

    if (zero->asks_max_live) {
        depth = zo_min_i64(depth, zero->max_live_parameters / unit_elems);
    }
    if (zero->asks_prefetch && zero->prefetch_bucket_size > 0) {
        depth = zo_min_i64(depth, 1 + zero->prefetch_bucket_size / unit_elems);
    }
    return (int)zo_max_i64(depth, 2);
}

/* ---- the whole ----------------------------------------------------------- */

static void set_keep(enum zo_recompute recompute,
                     struct zo_place_options *options)
{
    switch (recompute) {
    case ZO_RECOMPUTE_AUTO:
        options->keep_most = ZO_KEEP_ALL;
        options->keep_least = ZO_KEEP_INPUT;
        return;
    case ZO_RECOMPUTE_NONE:
        options->keep_most = options->keep_least = ZO_KEEP_ALL;
        return;
    case ZO_RECOMPUTE_CHEAP:
        options->keep_most = options->keep_least = ZO_KEEP_COSTLY;
        return;
    case ZO_RECOMPUTE_LAYER:
        options->keep_most = options->keep_least = ZO_KEEP_INPUT;
        return;
    }
}

void zo_place_from_config(const struct zo_run_config *config,
                          struct zo_place_options *options)
{
    const struct zo_run_zero *zero = &config->zero;
    const struct zo_build_options *build = options->build;
    const struct zo_place_limits limits =
        zo_place_limits(config, build->device_count, !build->evaluates_only);

    options->weights_limit = limits.weights;
    options->optimizer_limit = limits.optimizer;
    options->fills = config->fill;
    options->optimizer_share = zero->optimizer.ratio;
    options->host_boundaries_always =
        config->activations.cpu_checkpointing && !build->evaluates_only;
    options->weight_ring_max = deepest_ring(zero, largest_unit(build));
    options->waits_to_fetch =
        zero->asks_prefetch && zero->prefetch_bucket_size == 0;
    /* 0 keeps nothing, where the builder's 0 keeps all. */
    options->reuse_max_elems =
        zero->asks_reuse ? zo_max_i64(zero->max_reuse_distance, 1) : 0;
    options->pageable_weights = !zero->param.pin_memory;
    options->pageable_optimizer = !zero->optimizer.pin_memory;
    set_keep(config->activations.recompute, options);
}

struct zo_nvme_options zo_place_nvme(const struct zo_run_config *config)
{
    const struct zo_run_zero *zero = &config->zero;

    return (struct zo_nvme_options){
        .directory = zero->optimizer.nvme_path != NULL
                         ? zero->optimizer.nvme_path
                         : zero->param.nvme_path,
        .depth = (int)config->aio.queue_depth,
        .block_bytes = (size_t)config->aio.block_size_bytes,
        .threads = (int)config->aio.intra_op_parallelism,
        .skips_verify = !config->nvme_verify,
        .allows_memory = config->nvme_allow_memory,
    };
}

/* ---- words --------------------------------------------------------------- */

static const char *name_of(const struct zo_run_config *config)
{
    return config->options != NULL && config->options->config != NULL
               ? config->options->config
               : "--set";
}

static bool asks_host(const struct zo_run_offload *offload)
{
    return offload->limit == ZO_HOME_CPU || offload->limit == ZO_HOME_NVME;
}

enum zo_status zo_place_check(const struct zo_run_config *config)
{
    const struct zo_run_zero *zero = &config->zero;
    const char *optimizer = zero->optimizer.nvme_path;
    const char *param = zero->param.nvme_path;

    if (optimizer != NULL && param != NULL && strcmp(optimizer, param) != 0) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%s: zero_optimization.offload_param.nvme_path: %s, but "
                       "offload_optimizer.nvme_path is %s; this version keeps "
                       "all that is on NVMe in one folder",
                       name_of(config), param, optimizer);
    }
    return ZO_OK;
}

/* One line: weights that are asked to leave, and may not. */
static enum zo_status note_weights(const struct zo_run_config *config,
                                   struct zo_notes *notes)
{
    return zo_note_add(
        notes, ZO_NOTE_WARN,
        "zero_optimization.offload_param.device: weights stay on the device, "
        "where offload_optimizer keeps their masters: %s",
        config->dtype == ZO_BF16 ? "a bf16 weight is half of its master"
                                 : "the update writes both");
}

enum zo_status zo_place_notes(const struct zo_run_config *config,
                              int device_count, struct zo_notes *notes)
{
    const struct zo_run_zero *zero = &config->zero;
    const struct zo_place_limits limits =
        zo_place_limits(config, device_count, true);
    const bool weights_stay = limits.weights == ZO_TIER_GPU;
    const bool all_stay = weights_stay && limits.optimizer == ZO_TIER_GPU;
    const struct {
        bool idles;
        const char *key;
    } idle[] = {
        {weights_stay && zero->asks_prefetch,
         "zero_optimization.stage3_prefetch_bucket_size"},
        {weights_stay && zero->asks_max_live,
         "zero_optimization.stage3_max_live_parameters"},
        {weights_stay && zero->asks_reuse,
         "zero_optimization.stage3_max_reuse_distance"},
        {weights_stay && !zero->param.pin_memory,
         "zero_optimization.offload_param.pin_memory"},
        {limits.optimizer == ZO_TIER_GPU && !zero->optimizer.pin_memory,
         "zero_optimization.offload_optimizer.pin_memory"},
        {limits.optimizer == ZO_TIER_GPU && zero->optimizer.ratio < 1.0,
         "zero_optimization.offload_optimizer.ratio"},
        {all_stay && !config->fill, "zero_offload.fill"},
    };

    if (asks_host(&zero->param) && weights_stay) {
        ZO_TRY(note_weights(config, notes));
    }
    for (size_t i = 0; i < ZO_COUNT(idle); i++) {
        if (idle[i].idles) {
            ZO_TRY(zo_note_add(notes, ZO_NOTE_INFO,
                               "%s: no effect: in this run what it is about "
                               "stays on the device",
                               idle[i].key));
        }
    }
    return ZO_OK;
}
