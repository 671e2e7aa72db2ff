#include "config/config_resolve.h"

#include <math.h>
#include <string.h>

#include "config/cli_names.h"
#include "src/base/text.h"

/* ---- one value of two places ---- */

const char *zo_resolve_option_name(enum zo_option_id option)
{
    size_t count = 0;

    return zo_cli_options(&count)[option].name;
}

static const char *key_name(enum zo_config_key key)
{
    const char *path = zo_config_row(key)->path;
    const char *dot = strrchr(path, '.');

    return dot != NULL ? dot + 1 : path;
}

enum zo_status zo_resolve_number(struct zo_resolver *r, enum zo_config_key key,
                                 enum zo_option_id option, double option_value,
                                 double *out)
{
    const double value = r->values->items[key].number;

    if (zo_value_is_given(r->values, key)) {
        if (zo_option_given(r->options, option) && value != option_value) {
            return zo_value_fail(
                r->values, key,
                "%.10g, but --%s says %.10g; want one of them (\"auto\" here "
                "takes the option's)",
                value, zo_resolve_option_name(option), option_value);
        }
        *out = value;
        return ZO_OK;
    }
    *out = option_value;
    if (zo_value_is_auto(r->values, key)) {
        return zo_words_add(&r->from_auto, "%s %.10g", key_name(key),
                            option_value);
    }
    return ZO_OK;
}

enum zo_status zo_resolve_flag(struct zo_resolver *r, enum zo_config_key key,
                               enum zo_option_id option, bool option_value,
                               bool *out)
{
    const bool value = r->values->items[key].flag;

    if (zo_value_is_given(r->values, key)) {
        if (zo_option_given(r->options, option) && value != option_value) {
            return zo_value_fail(
                r->values, key,
                "%s, but --%s%s is given; want one of them (\"auto\" here "
                "takes the option's)",
                value ? "true" : "false", option_value ? "" : "no-",
                zo_resolve_option_name(option));
        }
        *out = value;
        return ZO_OK;
    }
    *out = option_value;
    if (zo_value_is_auto(r->values, key)) {
        return zo_words_add(&r->from_auto, "%s %s", zo_config_row(key)->path,
                            option_value ? "true" : "false");
    }
    return ZO_OK;
}

/* ---- batch ---- */

/* A batch number: 0 when neither the key nor a given option says it. */
static enum zo_status batch_number(struct zo_resolver *r,
                                   enum zo_config_key key,
                                   enum zo_option_id option,
                                   int64_t option_value, int64_t *out)
{
    double number = 0.0;

    if (zo_value_is_given(r->values, key)) {
        ZO_TRY(
            zo_resolve_number(r, key, option, (double)option_value, &number));
        *out = (int64_t)number;
        return ZO_OK;
    }
    *out = zo_option_given(r->options, option) ? option_value : 0;
    return ZO_OK;
}

static enum zo_status fail_batch(const struct zo_resolver *r, int64_t train,
                                 int64_t micro, int64_t gas)
{
    const int64_t devices = r->facts->num_devices;
    const int64_t others = micro * gas;

    if (others > 0 && train % others == 0 && train / others != devices &&
        train / others <= ZO_DEVICES_MAX) {
        return zo_value_fail(
            r->values, ZO_KEY_TRAIN_BATCH,
            "%lld is not micro batch %lld x accumulation %lld x %lld "
            "device%s; with %lld device%s it is (--num-devices)",
            (long long)train, (long long)micro, (long long)gas,
            (long long)devices, devices == 1 ? "" : "s",
            (long long)(train / others), train / others == 1 ? "" : "s");
    }
    return zo_value_fail(r->values, ZO_KEY_TRAIN_BATCH,
                         "%lld is not micro batch %lld x accumulation %lld x "
                         "%lld device%s",
                         (long long)train, (long long)micro, (long long)gas,
                         (long long)devices, devices == 1 ? "" : "s");
}

/* What is not said can be no number that makes the whole. */
static enum zo_status fail_share(const struct zo_resolver *r, int64_t train,
                                 const char *what, int64_t rows)
{
    const int64_t devices = r->facts->num_devices;

    return rows == 1
               ? zo_value_fail(r->values, ZO_KEY_TRAIN_BATCH,
                               "%lld is no multiple of %lld device%s",
                               (long long)train, (long long)devices,
                               devices == 1 ? "" : "s")
               : zo_value_fail(r->values, ZO_KEY_TRAIN_BATCH,
                               "%lld is no multiple of %s %lld x %lld device%s",
                               (long long)train, what, (long long)rows,
                               (long long)devices, devices == 1 ? "" : "s");
}

static enum zo_status tell_auto_batch(struct zo_resolver *r)
{
    const struct zo_run_config *config = r->config;
    const struct {
        enum zo_config_key key;
        int64_t value;
    } items[] = {{ZO_KEY_TRAIN_BATCH, config->train_batch_rows},
                 {ZO_KEY_MICRO_BATCH, config->micro_batch_rows},
                 {ZO_KEY_ACCUMULATION, config->gradient_accumulation_steps}};

    for (size_t i = 0; i < ZO_COUNT(items); i++) {
        if (zo_value_is_auto(r->values, items[i].key)) {
            ZO_TRY(zo_words_add(&r->from_auto, "%s %lld",
                                key_name(items[i].key),
                                (long long)items[i].value));
        }
    }
    return ZO_OK;
}

enum zo_status zo_resolve_batch(struct zo_resolver *r)
{
    struct zo_run_config *config = r->config;
    const struct zo_options *options = r->options;
    const int64_t devices = r->facts->num_devices;
    int64_t train = 0, micro = 0, gas = 0;

    ZO_ASSERT(devices >= 1);
    if (zo_value_is_given(r->values, ZO_KEY_TRAIN_BATCH)) {
        train = r->values->items[ZO_KEY_TRAIN_BATCH].integer;
    }
    ZO_TRY(batch_number(r, ZO_KEY_MICRO_BATCH, ZO_OPTION_MICRO_BATCH,
                        options->micro_batch_rows, &micro));
    ZO_TRY(batch_number(r, ZO_KEY_ACCUMULATION, ZO_OPTION_ACCUMULATION,
                        options->gradient_accumulation_steps, &gas));
    if (train == 0) { /* the options' defaults stand in */
        micro = micro > 0 ? micro : options->micro_batch_rows;
        gas = gas > 0 ? gas : options->gradient_accumulation_steps;
        train = micro * gas * devices;
    } else if (micro == 0) { /* as DeepSpeed: of what is left */
        gas = gas > 0 ? gas : 1;
        micro = train / (gas * devices);
        if (train % (gas * devices) != 0) {
            return fail_share(r, train, "accumulation", gas);
        }
    } else if (gas == 0) {
        gas = train / (micro * devices);
        if (train % (micro * devices) != 0) {
            return fail_share(r, train, "micro batch", micro);
        }
    }
    if (micro < 1 || gas < 1 || train != micro * gas * devices) {
        return fail_batch(r, train, micro, gas);
    }
    config->num_devices = devices;
    config->micro_batch_rows = micro;
    config->gradient_accumulation_steps = gas;
    config->train_batch_rows = train;
    config->eval_micro_batch_rows = options->eval_micro_batch_rows > 0
                                        ? options->eval_micro_batch_rows
                                        : micro;
    return tell_auto_batch(r);
}

/* ---- precision ---- */

static bool dtype_is_given(const struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;

    return zo_option_given(r->options, ZO_OPTION_FP16) ||
           zo_option_given(r->options, ZO_OPTION_BF16) ||
           zo_value_is_given(values, ZO_KEY_FP16_ENABLED) ||
           zo_value_is_given(values, ZO_KEY_BF16_ENABLED) ||
           zo_value_is_auto(values, ZO_KEY_FP16_ENABLED) ||
           zo_value_is_auto(values, ZO_KEY_BF16_ENABLED);
}

static enum zo_status resolve_dtype(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    bool fp16 = false, bf16 = false;

    ZO_TRY(zo_resolve_flag(r, ZO_KEY_FP16_ENABLED, ZO_OPTION_FP16,
                           r->options->fp16, &fp16));
    ZO_TRY(zo_resolve_flag(r, ZO_KEY_BF16_ENABLED, ZO_OPTION_BF16,
                           r->options->bf16, &bf16));
    if (fp16 && bf16) {
        const bool has_fp16 = values->items[ZO_KEY_FP16_ENABLED].node != NULL;
        const bool has_bf16 = values->items[ZO_KEY_BF16_ENABLED].node != NULL;

        return zo_value_fail(
            values, has_fp16 ? ZO_KEY_FP16_ENABLED : ZO_KEY_BF16_ENABLED,
            "fp16 (%s) and bf16 (%s) are both enabled; want one of them",
            has_fp16 ? "fp16.enabled" : "--fp16",
            has_bf16 ? "bf16.enabled" : "--bf16");
    }
    r->config->dtype_is_given = dtype_is_given(r);
    if (!r->config->dtype_is_given) {
        fp16 = r->facts->dtype == ZO_F16;
        bf16 = r->facts->dtype == ZO_BF16;
    }
    r->config->dtype = fp16 ? ZO_F16 : bf16 ? ZO_BF16 : ZO_F32;
    r->config->check_grad_overflow =
        fp16 || (bf16 && zo_value_flag(values, ZO_KEY_BF16_CHECK));
    return ZO_OK;
}

static enum zo_status resolve_loss_scale(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    struct zo_run_loss_scale *scale = &r->config->loss_scale;

    scale->static_scale = zo_value_number(values, ZO_KEY_FP16_LOSS_SCALE);
    scale->initial_scale_power =
        zo_value_integer(values, ZO_KEY_FP16_INITIAL_POWER);
    scale->window = zo_value_integer(values, ZO_KEY_FP16_WINDOW);
    scale->hysteresis = zo_value_integer(values, ZO_KEY_FP16_HYSTERESIS);
    scale->consecutive_hysteresis =
        zo_value_flag(values, ZO_KEY_FP16_CONSECUTIVE);
    scale->min_scale = zo_value_number(values, ZO_KEY_FP16_MIN_SCALE);
    if (r->config->dtype == ZO_F16 && scale->static_scale == 0.0 &&
        zo_value_is_given(values, ZO_KEY_FP16_MIN_SCALE) &&
        scale->min_scale > ldexp(1.0, (int)scale->initial_scale_power)) {
        return zo_value_fail(values, ZO_KEY_FP16_MIN_SCALE,
                             "%g is above the first scale, 2 to the %lld",
                             scale->min_scale,
                             (long long)scale->initial_scale_power);
    }
    return ZO_OK;
}

static enum zo_status resolve_clipping(struct zo_resolver *r)
{
    double norm = 0.0;

    ZO_TRY(zo_resolve_number(r, ZO_KEY_GRADIENT_CLIPPING,
                             ZO_OPTION_MAX_GRAD_NORM, r->options->max_grad_norm,
                             &norm));
    r->config->gradient_clipping = norm;
    if (zo_value_is_auto(r->values, ZO_KEY_GRADIENT_CLIPPING) &&
        !zo_option_given(r->options, ZO_OPTION_MAX_GRAD_NORM)) {
        return zo_value_note(
            r->values, ZO_KEY_GRADIENT_CLIPPING, ZO_NOTE_WARN,
            "\"auto\" without --max-grad-norm is off; Hugging Face's default "
            "would be 1.0");
    }
    return ZO_OK;
}

enum zo_status zo_resolve_precision(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    struct zo_run_config *config = r->config;

    ZO_TRY(resolve_dtype(r));
    ZO_TRY(resolve_loss_scale(r));
    ZO_TRY(resolve_clipping(r));
    config->communication_dtype =
        zo_value_is_given(values, ZO_KEY_COMM_DTYPE)
            ? (enum zo_dtype)zo_value_choice(values, ZO_KEY_COMM_DTYPE)
            : config->dtype;
    config->grad_accum_dtype =
        (enum zo_dtype)zo_value_choice(values, ZO_KEY_ACCUM_DTYPE);
    if (zo_value_is_given(values, ZO_KEY_ALLREDUCE_OP) &&
        zo_value_choice(values, ZO_KEY_ALLREDUCE_OP) != 0) {
        return zo_value_fail(values, ZO_KEY_ALLREDUCE_OP,
                             "want mean: the "
                             "loss is a mean over the label tokens of a step");
    }
    return ZO_OK;
}

/* ---- optimizer ---- */

static enum zo_status check_optimizer_type(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const char *type = zo_value_text(values, ZO_KEY_OPTIMIZER_TYPE);
    const bool is_adam = type != NULL && zo_word_index("Adam", type) == 0;

    if (type != NULL && zo_word_index("Adam AdamW", type) < 0) {
        return zo_value_fail(values, ZO_KEY_OPTIMIZER_TYPE,
                             "the optimizer is AdamW; found %s", type);
    }
    if (!zo_value_flag(values, ZO_KEY_ADAM_W_MODE)) {
        if (is_adam) {
            return zo_value_fail(values, ZO_KEY_ADAM_W_MODE,
                                 "want true: weight decay is always "
                                 "decoupled (AdamW)");
        }
        ZO_TRY(zo_value_note(values, ZO_KEY_ADAM_W_MODE, ZO_NOTE_WARN,
                             "ignored: it is read for type Adam only, as in "
                             "DeepSpeed"));
    }
    if (!zo_value_flag(values, ZO_KEY_BIAS_CORRECTION)) {
        return zo_value_fail(values, ZO_KEY_BIAS_CORRECTION,
                             "want true: AdamW's moments are always corrected "
                             "for their start at zero");
    }
    return ZO_OK;
}

/* betas against --adam-beta1 and --adam-beta2. */
static enum zo_status resolve_betas(struct zo_resolver *r)
{
    const struct zo_options *options = r->options;
    const struct zo_config_value *betas = &r->values->items[ZO_KEY_BETAS];
    struct zo_run_optimizer *optimizer = &r->config->optimizer;
    const double wanted[2] = {options->adam_beta1, options->adam_beta2};
    const enum zo_option_id ids[2] = {ZO_OPTION_ADAM_BETA1,
                                      ZO_OPTION_ADAM_BETA2};
    double result[2] = {wanted[0], wanted[1]};

    for (int i = 0; i < 2 && betas->state == ZO_VALUE_GIVEN; i++) {
        if (zo_option_given(options, ids[i]) && betas->pair[i] != wanted[i]) {
            return zo_value_fail(r->values, ZO_KEY_BETAS,
                                 "%g, but --%s says %g; want one of them",
                                 betas->pair[i], zo_resolve_option_name(ids[i]),
                                 wanted[i]);
        }
        result[i] = betas->pair[i];
    }
    optimizer->beta1 = result[0];
    optimizer->beta2 = result[1];
    if (betas->state == ZO_VALUE_AUTO) {
        return zo_words_add(&r->from_auto, "betas [%g, %g]", result[0],
                            result[1]);
    }
    return ZO_OK;
}

enum zo_status zo_resolve_optimizer(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const struct zo_options *options = r->options;
    struct zo_run_optimizer *optimizer = &r->config->optimizer;

    ZO_TRY(check_optimizer_type(r));
    ZO_TRY(zo_resolve_number(r, ZO_KEY_LR, ZO_OPTION_LEARNING_RATE,
                             options->learning_rate,
                             &optimizer->learning_rate));
    ZO_TRY(resolve_betas(r));
    ZO_TRY(zo_resolve_number(r, ZO_KEY_EPS, ZO_OPTION_ADAM_EPSILON,
                             options->adam_epsilon, &optimizer->epsilon));
    ZO_TRY(zo_resolve_number(r, ZO_KEY_WEIGHT_DECAY, ZO_OPTION_WEIGHT_DECAY,
                             options->weight_decay, &optimizer->weight_decay));
    optimizer->decay_all = zo_value_flag(values, ZO_KEY_DECAY_ALL);
    optimizer->moment_dtype =
        (enum zo_dtype)zo_value_choice(values, ZO_KEY_MOMENT_DTYPE);
    if (zo_value_is_given(values, ZO_KEY_OPTIMIZER_PARAMS) &&
        values->items[ZO_KEY_LR].node == NULL &&
        !zo_option_given(options, ZO_OPTION_LEARNING_RATE)) {
        return zo_value_note(values, ZO_KEY_OPTIMIZER_PARAMS, ZO_NOTE_WARN,
                             "has no lr: --learning-rate stands in, %g "
                             "(DeepSpeed would take 1e-3)",
                             optimizer->learning_rate);
    }
    return ZO_OK;
}

/* ---- the rest ---- */

/* A section of files.  NULL: in --output; the job has DeepSpeed's name. */
static void resolve_files(struct zo_resolver *r, enum zo_config_key enabled,
                          enum zo_config_key path, enum zo_config_key job,
                          struct zo_run_monitor *monitor)
{
    const char *folder = zo_value_text(r->values, path);
    const char *name = zo_value_text(r->values, job);

    monitor->is_enabled = zo_value_flag(r->values, enabled);
    monitor->output_path = folder != NULL && folder[0] != '\0' ? folder : NULL;
    monitor->job_name =
        name != NULL && name[0] != '\0' ? name : "DeepSpeedJobName";
}

static enum zo_status resolve_wandb(struct zo_resolver *r,
                                    struct zo_run_monitor *wandb)
{
    wandb->is_enabled = zo_value_flag(r->values, ZO_KEY_WANDB_ENABLED);
    wandb->group = zo_value_text(r->values, ZO_KEY_WANDB_GROUP);
    wandb->team = zo_value_text(r->values, ZO_KEY_WANDB_TEAM);
    wandb->project = zo_value_text(r->values, ZO_KEY_WANDB_PROJECT);
    return wandb->is_enabled
               ? zo_value_note(r->values, ZO_KEY_WANDB_ENABLED, ZO_NOTE_WARN,
                               "%s",
                               zo_config_row(ZO_KEY_WANDB_ENABLED)->meaning)
               : ZO_OK;
}

static enum zo_status resolve_recompute(struct zo_resolver *r)
{
    struct zo_run_activations *activations = &r->config->activations;
    const bool is_wanted = r->options->gradient_checkpointing;
    const enum zo_recompute option =
        is_wanted ? ZO_RECOMPUTE_LAYER : ZO_RECOMPUTE_NONE;

    activations->cpu_checkpointing =
        zo_value_flag(r->values, ZO_KEY_CPU_CHECKPOINTING);
    activations->recompute =
        (enum zo_recompute)zo_value_choice(r->values, ZO_KEY_RECOMPUTE);
    if (!zo_option_given(r->options, ZO_OPTION_GRADIENT_CHECKPOINTING)) {
        return ZO_OK;
    }
    if (zo_value_is_given(r->values, ZO_KEY_RECOMPUTE) &&
        activations->recompute != option) {
        return zo_value_fail(r->values, ZO_KEY_RECOMPUTE,
                             "contradicts --%sgradient-checkpointing, which "
                             "means %s",
                             is_wanted ? "" : "no-",
                             is_wanted ? "layer" : "none");
    }
    activations->recompute = option;
    return ZO_OK;
}

/* 0: it is not said. */
static int64_t asked_integer(const struct zo_config_values *values,
                             enum zo_config_key key)
{
    return zo_value_is_given(values, key) ? zo_value_integer(values, key) : 0;
}

static void resolve_aio(struct zo_resolver *r)
{
    struct zo_run_aio *aio = &r->config->aio;

    aio->block_size_bytes = asked_integer(r->values, ZO_KEY_AIO_BLOCK);
    aio->queue_depth = asked_integer(r->values, ZO_KEY_AIO_DEPTH);
    aio->intra_op_parallelism = asked_integer(r->values, ZO_KEY_AIO_PARALLEL);
}

static void resolve_own(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    struct zo_run_config *config = r->config;

    config->loss_reduction =
        (enum zo_loss_reduction)zo_value_choice(values, ZO_KEY_LOSS_REDUCTION);
    config->rope_precision =
        (enum zo_rope_precision)zo_value_choice(values, ZO_KEY_ROPE_PRECISION);
    config->fill = zo_value_flag(values, ZO_KEY_FILL);
    config->nvme_verify = zo_value_flag(values, ZO_KEY_NVME_VERIFY);
    config->nvme_allow_memory = zo_value_flag(values, ZO_KEY_NVME_ALLOW_MEMORY);
    config->max_skips = zo_value_integer(values, ZO_KEY_MAX_SKIPS);
}

enum zo_status zo_resolve_rest(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const struct zo_options *options = r->options;
    struct zo_run_config *config = r->config;
    const bool is_json = zo_value_is_given(values, ZO_KEY_STEPS_PER_PRINT) &&
                         !zo_option_given(options, ZO_OPTION_LOGGING_STEPS);

    resolve_own(r);
    resolve_aio(r);
    ZO_TRY(resolve_recompute(r));
    resolve_files(r, ZO_KEY_TENSORBOARD_ENABLED, ZO_KEY_TENSORBOARD_PATH,
                  ZO_KEY_TENSORBOARD_JOB, &config->tensorboard);
    resolve_files(r, ZO_KEY_CSV_ENABLED, ZO_KEY_CSV_PATH, ZO_KEY_CSV_JOB,
                  &config->csv_monitor);
    ZO_TRY(resolve_wandb(r, &config->wandb));
    config->steps_per_print =
        is_json ? values->items[ZO_KEY_STEPS_PER_PRINT].integer
                : options->logging_steps;
    config->drop_last = zo_value_flag(values, ZO_KEY_DROP_LAST);
    config->max_steps = options->max_steps;
    config->num_train_epochs = options->num_train_epochs;
    config->seed = options->seed;
    config->options = options;
    return ZO_OK;
}
