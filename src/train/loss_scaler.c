#include "src/train/loss_scaler.h"

#include <math.h>

#include "src/base/arith.h"

#define FACTOR 2.0

static bool is_scale(double scale)
{
    return scale > 0.0 && scale <= ZO_LOSS_SCALE_MAX;
}

static bool is_dynamic(const struct zo_loss_scaler *scaler)
{
    return scaler->settings.static_scale == 0.0;
}

static enum zo_status check(const struct zo_run_loss_scale *settings)
{
    if (settings->static_scale != 0.0) {
        if (!is_scale(settings->static_scale)) {
            return ZO_FAIL(ZO_E_CONFIG,
                           "fp16.loss_scale: %g; want 0 (dynamic) or a "
                           "positive number up to 2^126",
                           settings->static_scale);
        }
        return ZO_OK;
    }
    if (!is_scale(settings->min_scale)) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "fp16.min_loss_scale: %g; want a positive number up to "
                       "2^126 (a scale of 0 would erase every gradient)",
                       settings->min_scale);
    }
    if (settings->initial_scale_power < 0 ||
        settings->initial_scale_power > 126) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "fp16.initial_scale_power: %lld; want 0 to 126",
                       (long long)settings->initial_scale_power);
    }
    if (settings->window < 1 || settings->hysteresis < 1) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "fp16.loss_scale_window is %lld and hysteresis %lld; "
                       "want both to be at least 1",
                       (long long)settings->window,
                       (long long)settings->hysteresis);
    }
    return ZO_OK;
}

static double first_scale(const struct zo_run_loss_scale *settings)
{
    if (settings->static_scale != 0.0) {
        return settings->static_scale;
    }
    return fmax(ldexp(1.0, (int)settings->initial_scale_power),
                settings->min_scale);
}

enum zo_status zo_loss_scaler_init(struct zo_loss_scaler *scaler,
                                   const struct zo_run_loss_scale *settings,
                                   int64_t max_skips)
{
    ZO_ASSERT(max_skips >= 1);
    ZO_TRY(check(settings));
    *scaler = (struct zo_loss_scaler){
        .state =
            {
                .scale = first_scale(settings),
                .last_overflow = -1,
                .hysteresis_left = zo_max_i64(1, settings->hysteresis),
            },
        .settings = *settings,
        .max_skips = max_skips,
    };
    return ZO_OK;
}

/* An overflow that leaves the scale as it is: bounded in number. */
static enum zo_status futile_skip(struct zo_loss_scaler *scaler)
{
    const struct zo_loss_scaler_state *state = &scaler->state;
    const char *why = "with a static scale";

    if (state->futile_skips + 1 < scaler->max_skips) {
        scaler->state.futile_skips++;
        return ZO_OK;
    }
    if (is_dynamic(scaler)) {
        why = state->scale <= scaler->settings.min_scale
                  ? "at the minimum scale"
                  : "before the hysteresis let the scale fall";
    } else if (scaler->settings.static_scale == 1.0) {
        why = "without a loss scale";
    }
    return ZO_FAIL(ZO_E_NUMERIC,
                   "gradients were not finite, %s (%g), in %lld step(s) "
                   "without a good one between: training has diverged, or "
                   "the weights are not finite; try a lower learning rate, "
                   "gradient_clipping, or bf16",
                   why, state->scale, (long long)scaler->max_skips);
}

static enum zo_status overflowed(struct zo_loss_scaler *scaler,
                                 enum zo_loss_scale_event *event_out)
{
    struct zo_loss_scaler_state *state = &scaler->state;
    const double lowest = scaler->settings.min_scale;
    const bool may_lower = is_dynamic(scaler) && state->hysteresis_left == 1;
    enum zo_loss_scale_event event = ZO_LOSS_SCALE_SKIP;

    state->skipped_steps++;
    if (may_lower && state->scale > lowest) {
        state->scale = fmax(state->scale / FACTOR, lowest);
        event = ZO_LOSS_SCALE_LOWERED;
    } else {
        ZO_TRY(futile_skip(scaler));
        state->hysteresis_left -= state->hysteresis_left > 1 ? 1 : 0;
    }
    state->last_overflow = state->iteration;
    state->iteration++;
    *event_out = event;
    return ZO_OK;
}

enum zo_status zo_loss_scaler_update(struct zo_loss_scaler *scaler,
                                     bool overflow,
                                     enum zo_loss_scale_event *event_out)
{
    const struct zo_run_loss_scale *settings = &scaler->settings;
    struct zo_loss_scaler_state *state = &scaler->state;
    const int64_t good = state->iteration - state->last_overflow - 1;

    if (overflow) {
        return overflowed(scaler, event_out);
    }
    *event_out = ZO_LOSS_SCALE_KEPT;
    state->futile_skips = 0;
    if (is_dynamic(scaler)) {
        if (settings->consecutive_hysteresis) {
            state->hysteresis_left = settings->hysteresis;
        }
        /* The first growth without an overflow is at step window + 1. */
        if (good > 0 && good % settings->window == 0) {
            state->hysteresis_left = settings->hysteresis;
            if (state->scale * FACTOR <= ZO_LOSS_SCALE_MAX) {
                state->scale *= FACTOR;
                *event_out = ZO_LOSS_SCALE_RAISED;
            }
        }
    }
    state->iteration++;
    return ZO_OK;
}

enum zo_status zo_loss_scaler_restore(struct zo_loss_scaler *scaler,
                                      const struct zo_loss_scaler_state *state)
{
    if (!is_scale(state->scale) || state->iteration < 0 ||
        state->last_overflow < -1 || state->last_overflow >= state->iteration ||
        state->hysteresis_left < 1 || state->futile_skips < 0 ||
        state->skipped_steps < 0) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "loss scaler: a saved scale of %g after %lld updates, "
                       "the last overflow at %lld, is not a state it can be in",
                       state->scale, (long long)state->iteration,
                       (long long)state->last_overflow);
    }
    scaler->state = *state;
    scaler->state.scale = is_dynamic(scaler)
                              ? fmax(state->scale, scaler->settings.min_scale)
                              : scaler->settings.static_scale;
    return ZO_OK;
}
