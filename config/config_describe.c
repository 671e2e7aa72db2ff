/* Lines that say what a run will do.  Layer 1. */
#include <stdio.h>
#include <string.h>

#include "config/run_config.h"
#include "src/base/arith.h"
#include "src/base/text.h"

const char *zo_home_limit_name(enum zo_home_limit limit)
{
    switch (limit) {
    case ZO_HOME_PLANNED:
        return "planned";
    case ZO_HOME_GPU:
        return "none";
    case ZO_HOME_CPU:
        return "cpu";
    case ZO_HOME_NVME:
        return "nvme";
    }
    return "";
}

const char *zo_loss_reduction_name(enum zo_loss_reduction reduction)
{
    return reduction == ZO_LOSS_PER_TOKEN ? "token" : "micro_batch";
}

static enum zo_status describe_batch(const struct zo_run_config *config,
                                     struct zo_notes *notes)
{
    return zo_note_add(
        notes, ZO_NOTE_INFO,
        "batch: %lld row%s a step = %lld a device x %lld accumulated x %lld "
        "device%s",
        (long long)config->train_batch_rows,
        zo_text_s((uint64_t)config->train_batch_rows),
        (long long)config->micro_batch_rows,
        (long long)config->gradient_accumulation_steps,
        (long long)config->num_devices,
        zo_text_s((uint64_t)config->num_devices));
}

static enum zo_status describe_numbers(const struct zo_run_config *config,
                                       struct zo_notes *notes)
{
    const struct zo_run_loss_scale *scale = &config->loss_scale;
    const char *check = config->check_grad_overflow
                            ? "on: a non-finite gradient skips the step"
                            : "off: a non-finite gradient stops the run";
    char clipping[48] = "off", scaling[96] = "";

    if (config->gradient_clipping > 0.0) {
        (void)snprintf(clipping, sizeof(clipping), "norm %g",
                       config->gradient_clipping);
    }
    if (config->dtype == ZO_F16 && scale->static_scale > 0.0) {
        (void)snprintf(scaling, sizeof(scaling), ", loss scale %g",
                       scale->static_scale);
    } else if (config->dtype == ZO_F16) {
        (void)snprintf(scaling, sizeof(scaling),
                       ", dynamic loss scale from 2^%lld",
                       (long long)scale->initial_scale_power);
    }
    return zo_note_add(notes, ZO_NOTE_INFO,
                       "numbers: compute in %s%s%s; gradient_clipping %s; "
                       "check_grad_overflow %s; the loss is the mean over %s",
                       zo_dtype_name(config->dtype),
                       config->dtype != ZO_F32 ? " with fp32 masters" : "",
                       scaling, clipping, check,
                       config->loss_reduction == ZO_LOSS_PER_TOKEN
                           ? "the label tokens of a step"
                           : "micro batches, as DeepSpeed does");
}

static enum zo_status describe_optimizer(const struct zo_run_config *config,
                                         struct zo_notes *notes)
{
    const struct zo_run_optimizer *o = &config->optimizer;

    return zo_note_add(
        notes, ZO_NOTE_INFO,
        "optimizer: AdamW, lr %g, betas %g and %g, eps %g, "
        "weight decay %g%s, moments in %s",
        o->learning_rate, o->beta1, o->beta2, o->epsilon, o->weight_decay,
        o->decay_all ? " on all weights" : " (not on norms and biases)",
        zo_dtype_name(o->moment_dtype));
}

/* DeepSpeed's warm-up types count fewer steps than 2 as 2. */
static int64_t warmup_steps(const struct zo_run_schedule *s)
{
    return s->type == ZO_SCHEDULE_WARMUP ||
                   s->type == ZO_SCHEDULE_WARMUP_DECAY ||
                   s->type == ZO_SCHEDULE_WARMUP_COSINE
               ? zo_max_i64(ZO_WARMUP_STEPS_MIN, s->warmup_steps)
               : s->warmup_steps;
}

static enum zo_status describe_schedule(const struct zo_run_config *config,
                                        struct zo_notes *notes)
{
    const struct zo_run_schedule *s = &config->schedule;
    char warmup[64] = "", total[48] = "";

    if (s->warmup_steps == ZO_STEPS_UNKNOWN) {
        (void)snprintf(warmup, sizeof(warmup), ", warm-up %g of all steps",
                       s->warmup_ratio);
    } else if (s->type != ZO_SCHEDULE_ONE_CYCLE &&
               s->type != ZO_SCHEDULE_CONSTANT) {
        (void)snprintf(warmup, sizeof(warmup), ", warm-up %lld step%s",
                       (long long)warmup_steps(s),
                       zo_text_s((uint64_t)warmup_steps(s)));
    }
    if (s->total_steps != ZO_STEPS_UNKNOWN) {
        (void)snprintf(total, sizeof(total), ", laid out for %lld step%s",
                       (long long)s->total_steps,
                       zo_text_s((uint64_t)s->total_steps));
    }
    return zo_note_add(notes, ZO_NOTE_INFO, "learning rate: %s%s%s",
                       zo_schedule_type_name(s->type), warmup, total);
}

static const char *home_text(enum zo_home_limit limit)
{
    switch (limit) {
    case ZO_HOME_PLANNED:
        return "where the planner places them";
    case ZO_HOME_GPU:
        return "on the GPU";
    case ZO_HOME_CPU:
        return "as far as host memory";
    case ZO_HOME_NVME:
        return "as far as NVMe";
    }
    return "";
}

/* What the stage splits over the devices. */
static const char *shares_text(const struct zo_run_config *config)
{
    static const char *const texts[] = {
        "", "; each device has its share of masters and moments",
        "; each device has its share of masters, moments and gradients",
        "; each device has its share of masters, moments, gradients and "
        "weights"};

    return config->num_devices > 1 ? texts[config->zero.stage] : "";
}

static enum zo_status describe_homes(const struct zo_run_config *config,
                                     struct zo_notes *notes)
{
    const bool can_leave = config->zero.optimizer.limit != ZO_HOME_GPU ||
                           config->zero.param.limit != ZO_HOME_GPU;

    return zo_note_add(
        notes, ZO_NOTE_INFO,
        "ZeRO stage %d%s: optimizer states %s, weights %s%s%s",
        config->zero.stage, config->has_config ? "" : " (no --config)",
        home_text(config->zero.optimizer.limit),
        home_text(config->zero.param.limit),
        config->fill && can_leave ? "; faster tiers are filled first" : "",
        shares_text(config));
}

enum zo_status zo_run_config_describe(const struct zo_run_config *config,
                                      struct zo_notes *notes)
{
    ZO_TRY(describe_batch(config, notes));
    ZO_TRY(describe_numbers(config, notes));
    ZO_TRY(describe_optimizer(config, notes));
    ZO_TRY(describe_schedule(config, notes));
    return describe_homes(config, notes);
}
