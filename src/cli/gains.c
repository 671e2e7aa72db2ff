#include "src/cli/gains.h"

#include <string.h>

#include "src/base/arith.h"

#define LEAST_RATIO 1.02
#define MICROS_MAX  16 /* more take long to plan */
#define MORE_GPU    ((uint64_t)8 << 30)

/* What is changed: a copy of the setup, with rates of its own. */
struct change {
    struct zo_setup setup;
    struct zo_profile rates;
    bool is_resident; /* of the plan: nothing lives on the host */
};

/* Each returns false where it would change nothing. */

static bool drop_clipping(struct change *c)
{
    struct zo_run_config *config = &c->setup.config;
    const bool changes = config->gradient_clipping > 0.0 &&
                         config->dtype != ZO_F16 &&
                         !config->check_grad_overflow;

    config->gradient_clipping = 0.0;
    return changes;
}

static bool halve_moments(struct change *c)
{
    struct zo_run_optimizer *optimizer = &c->setup.config.optimizer;
    const bool changes = optimizer->moment_dtype == ZO_F32;

    optimizer->moment_dtype = ZO_BF16;
    return changes;
}

static bool fill(struct change *c)
{
    const bool changes = !c->setup.config.fill && !c->is_resident;

    c->setup.config.fill = true;
    return changes;
}

static bool recompute_less(struct change *c)
{
    struct zo_run_activations *activations = &c->setup.config.activations;
    const bool changes = activations->recompute != ZO_RECOMPUTE_AUTO ||
                         activations->cpu_checkpointing;

    activations->recompute = ZO_RECOMPUTE_AUTO;
    activations->cpu_checkpointing = false;
    return changes;
}

static bool prefetch(struct change *c)
{
    struct zo_run_zero *zero = &c->setup.config.zero;
    const bool changes =
        zero->asks_prefetch || zero->asks_max_live || zero->asks_reuse;

    zero->asks_prefetch = zero->asks_max_live = zero->asks_reuse = false;
    return changes && !c->is_resident;
}

static bool pin(struct change *c)
{
    struct zo_run_zero *zero = &c->setup.config.zero;
    const bool changes = !zero->optimizer.pin_memory || !zero->param.pin_memory;

    zero->optimizer.pin_memory = zero->param.pin_memory = true;
    return changes && !c->is_resident;
}

static bool accumulate(struct change *c)
{
    c->setup.config.gradient_accumulation_steps *= 2;
    return c->setup.config.gradient_accumulation_steps <= MICROS_MAX;
}

static bool widen(struct change *c)
{
    struct zo_batches_bounds *bounds = &c->setup.bounds;

    if (bounds->tokens > (1 << 20)) {
        return false;
    }
    c->setup.config.micro_batch_rows *= 2;
    bounds->tokens *= 2;
    bounds->real_tokens *= 2;
    bounds->rows *= 2;
    bounds->labels *= 2;
    return true;
}

static bool add_gpu_memory(struct change *c)
{
    const bool changes = c->setup.gpu_memory_bytes > 0;

    c->setup.gpu_memory_bytes += MORE_GPU;
    return changes;
}

static bool double_bus(struct change *c)
{
    c->rates.h2d *= 2.0;
    c->rates.d2h *= 2.0;
    c->rates.duplex *= 2.0;
    return !c->is_resident;
}

static void double_dram(struct zo_dram *dram)
{
    dram->rate *= 2.0;
}

static bool double_host(struct change *c)
{
    double_dram(&c->rates.dram);
    double_dram(&c->rates.dram_h2d);
    double_dram(&c->rates.dram_d2h);
    c->rates.cpu *= 2.0;
    c->rates.cpu_thread *= 2.0;
    return !c->is_resident && !c->rates.is_host;
}

static const struct {
    bool (*change)(struct change *change);
    const char *text;
} changes[] = {
    {fill, "zero_offload.fill true: the same results"},
    {recompute_less,
     "recompute as memory allows (zero_offload.recompute \"auto\", no "
     "cpu_checkpointing): the same results"},
    {prefetch, "no stage3_prefetch_bucket_size, stage3_max_live_parameters, "
               "stage3_max_reuse_distance: the same results"},
    {pin, "pin_memory true: the same results"},
    {drop_clipping, "no gradient_clipping: updates need not wait for the norm"},
    {halve_moments, "zero_offload.moment_dtype \"bf16\": other results"},
    {accumulate, "twice the gradient_accumulation_steps: larger steps"},
    {widen, "twice the rows in a micro batch: larger steps"},
    {add_gpu_memory, "8 GiB more memory on each device"},
    {double_bus, "a bus twice as fast"},
    {double_host, "host memory, and AdamW on it, twice as fast"},
};

/* Tokens a second of what is changed; 0 where it does not fit. */
static enum zo_status rate_of(const struct change *change, double *rate_out)
{
    struct zo_trainer *trainer = NULL;
    struct zo_cli_time time;
    bool found = false;
    enum zo_status status = zo_setup_trainer(&change->setup, false, &trainer);

    *rate_out = 0.0;
    if (status == ZO_OK) {
        status = zo_cli_time(&change->setup, trainer, false, &time, &found);
    }
    if (status == ZO_OK && found) {
        *rate_out = time.tokens_per_second;
        zo_cli_time_fini(&time);
    }
    zo_trainer_close(trainer);
    return status == ZO_E_NOMEM ? status : ZO_OK; /* else it is no help */
}

static void insert(struct zo_gains *gains, struct zo_gain gain)
{
    int at = gains->count;

    while (at > 0 && gains->items[at - 1].ratio < gain.ratio) {
        at--;
    }
    if (at == ZO_GAINS_MAX) {
        return;
    }
    gains->count += gains->count < ZO_GAINS_MAX ? 1 : 0;
    memmove(&gains->items[at + 1], &gains->items[at],
            (size_t)(gains->count - 1 - at) * sizeof(gain));
    gains->items[at] = gain;
}

enum zo_status zo_gains_find(const struct zo_setup *setup,
                             const struct zo_trainer *trainer,
                             const struct zo_cli_time *time,
                             struct zo_gains *gains_out)
{
    const struct zo_place *place = zo_trainer_place(trainer);
    struct zo_gains gains = {.count = 0};

    for (size_t i = 0; i < ZO_COUNT(changes); i++) {
        struct change change = {
            .setup = *setup,
            .rates = time->profile,
            .is_resident = place != NULL &&
                           place->resident_units ==
                               zo_trainer_build(trainer)->options.unit_count,
        };
        double rate = 0.0;

        change.setup.rates = &change.rates;
        change.setup.batches = NULL; /* planned alone */
        if (!changes[i].change(&change)) {
            continue;
        }
        ZO_TRY(rate_of(&change, &rate));
        if (rate >= LEAST_RATIO * time->tokens_per_second) {
            insert(&gains, (struct zo_gain){changes[i].text,
                                            rate / time->tokens_per_second});
        }
    }
    *gains_out = gains;
    return ZO_OK;
}

void zo_gains_print(FILE *file, const struct zo_gains *gains)
{
    char first[32];

    if (gains->count > 0) {
        (void)fputs("changes that would help most, in tokens/s:\n", file);
    }
    for (int i = 0; i < gains->count; i++) {
        (void)snprintf(first, sizeof(first), "  +%4.0f %%  ",
                       100.0 * (gains->items[i].ratio - 1.0));
        zo_cli_print_wrapped(file, first, (int)strlen(first),
                             gains->items[i].change);
    }
}

void zo_gains_json(struct zo_jsonl *json, const char *key,
                   const struct zo_gains *gains)
{
    zo_jsonl_array_begin(json, key);
    for (int i = 0; i < gains->count; i++) {
        zo_jsonl_object_begin(json, NULL);
        zo_jsonl_text(json, "change", gains->items[i].change);
        zo_jsonl_real(json, "tokens_per_second_ratio", gains->items[i].ratio);
        zo_jsonl_object_end(json);
    }
    zo_jsonl_array_end(json);
}
