#include "src/train/decide.h"

#include <inttypes.h>
#include <math.h>

#include "src/base/text.h"
#include "src/train/lr_schedule.h"

bool zo_run_decides(const struct zo_run_config *config)
{
    return config->gradient_clipping > 0.0 || config->check_grad_overflow ||
           config->dtype == ZO_F16;
}

enum zo_status zo_decider_init(struct zo_decider *decider,
                               const struct zo_run_config *config)
{
    /* Without fp16 the scaler only counts skipped steps, at scale 1. */
    const struct zo_run_loss_scale unscaled = {
        .static_scale = 1.0, .window = 1, .hysteresis = 1, .min_scale = 1.0};

    *decider = (struct zo_decider){.config = config};
    return zo_loss_scaler_init(&decider->scaler,
                               config->dtype == ZO_F16 ? &config->loss_scale
                                                       : &unscaled,
                               config->max_skips);
}

struct zo_adamw_scalars zo_update_scalars(const struct zo_run_config *config,
                                          int64_t t, double grad_scale)
{
    const struct zo_run_optimizer *optimizer = &config->optimizer;
    const struct zo_betas betas =
        zo_betas_at(&config->schedule, t,
                    (struct zo_betas){optimizer->beta1, optimizer->beta2});
    const double lr = zo_lr_at(&config->schedule, t);
    const double bias1 = 1.0 - pow(betas.beta1, (double)t);
    const double bias2 = 1.0 - pow(betas.beta2, (double)t);

    return (struct zo_adamw_scalars){
        .grad_scale = (float)grad_scale,
        .beta1 = (float)betas.beta1,
        .one_minus_beta1 = (float)(1.0 - betas.beta1),
        .beta2 = (float)betas.beta2,
        .one_minus_beta2 = (float)(1.0 - betas.beta2),
        .inverse_root2 = (float)(1.0 / sqrt(bias2)),
        .epsilon = (float)optimizer->epsilon,
        .decay = (float)(lr * optimizer->weight_decay),
        .step_size = (float)(lr / bias1),
        .step = (uint32_t)t,
    };
}

/* The weighted sum of the losses, in (micro batch, device, label) order. */
static double sum_losses(const struct zo_measured *measured)
{
    const struct zo_build_options *options = measured->options;
    const int devices = options->device_count;
    double loss = 0.0;

    for (int m = 0; m < options->micros; m++) {
        for (int d = 0; d < devices; d++) {
            const struct zo_micro_counts *counts =
                &measured->record->counts[m * devices + d];
            const float *losses = zo_measured_losses(measured, m, d);
            double sum = 0.0;

            for (int32_t l = 0; l < counts->labels; l++) {
                sum += (double)losses[l];
            }
            loss += sum * counts->loss_weight;
        }
    }
    return loss;
}

/* Squares of all gradients, in (unit, rank) order. */
static double sum_squares(const struct zo_measured *measured,
                          struct zo_step_result *result)
{
    const struct zo_build_options *options = measured->options;
    double sum = 0.0;

    for (int u = 0; u < options->unit_count; u++) {
        for (int d = 0; d < options->device_count; d++) {
            const struct zo_norm_result *norm =
                &measured->norms[d * options->unit_count + u];

            sum += norm->square_sum;
            if (norm->bad_count > 0 && result->bad_unit < 0) {
                result->bad_unit = u;
            }
            result->bad_count += norm->bad_count;
        }
    }
    return sum;
}

static enum zo_status check_masters(const struct zo_measured *measured)
{
    const struct zo_build_options *options = measured->options;

    for (int u = 0; u < options->unit_count; u++) {
        for (int d = 0; d < options->device_count; d++) {
            const int at = d * options->unit_count + u;

            if (measured->bad[at] != 0 || measured->host_bad[at] != 0) {
                return ZO_FAIL(
                    ZO_E_NUMERIC,
                    "step %" PRId64 ": %s made a weight of the %s "
                    "that is not finite; lower the learning rate%s",
                    measured->record->step,
                    options->decides ? "the update before it" : "its update",
                    options->units[u].name,
                    options->type == ZO_F16 ? ", or train in bf16" : "");
            }
        }
    }
    return ZO_OK;
}

static enum zo_status stop_for_gradient(const struct zo_measured *measured,
                                        const struct zo_step_result *result)
{
    return ZO_FAIL(
        ZO_E_NUMERIC,
        "step %" PRId64 ": %" PRIu64 " element%s of the gradient %s "
        "not finite, the first in the %s (loss %g); lower the "
        "learning rate, or set bf16.check_grad_overflow to skip "
        "such steps",
        result->step, result->bad_count, zo_text_s(result->bad_count),
        result->bad_count == 1 ? "is" : "are",
        measured->options->units[result->bad_unit].name, result->loss);
}

static double clip_coefficient(const struct zo_run_config *config, double norm)
{
    const double limit = config->gradient_clipping;

    return limit > 0.0 && norm + 1e-6 > limit ? limit / (norm + 1e-6) : 1.0;
}

enum zo_status zo_decide(void *context, const struct zo_measured *measured,
                         struct zo_control *control,
                         struct zo_step_result *result_out)
{
    struct zo_decider *decider = context;
    const struct zo_run_config *config = decider->config;
    struct zo_step_result result = {
        .step = measured->record->step,
        .loss = sum_losses(measured),
        .loss_scale = decider->scaler.state.scale,
        .clip = 1.0,
        .bad_unit = -1,
    };
    const double squares = sum_squares(measured, &result);
    enum zo_loss_scale_event event;

    if (measured->options->decides) { /* a bad weight makes bad gradients */
        ZO_TRY(check_masters(measured));
    }
    result.overflowed = result.bad_count > 0;
    result.grad_norm =
        result.overflowed ? NAN : sqrt(squares) / result.loss_scale;
    if (result.overflowed && !config->check_grad_overflow) {
        return stop_for_gradient(measured, &result);
    }
    ZO_TRY(check_masters(measured)); /* a bad gradient makes bad weights */
    ZO_TRY(zo_loss_scaler_update(&decider->scaler, result.overflowed, &event));
    if (!result.overflowed) {
        decider->optimizer_steps++;
        result.clip = clip_coefficient(config, result.grad_norm);
        control->update = zo_update_scalars(config, decider->optimizer_steps,
                                            result.clip / result.loss_scale);
    }
    result.learning_rate =
        zo_lr_at(&config->schedule,
                 decider->optimizer_steps + (result.overflowed ? 1 : 0));
    result.skipped_steps = decider->scaler.state.skipped_steps;
    control->skips = result.overflowed;
    control->loss_scale = decider->scaler.state.scale;
    decider->behind[result.step & 1] =
        (struct zo_decided){decider->optimizer_steps, decider->scaler.state};
    *result_out = result;
    return ZO_OK;
}
