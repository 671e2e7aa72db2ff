/*
 * The loss scale, and when to give up skipping steps.
 *
 * Layer 7.  DeepSpeed's dynamic scaler of its stages 1 to 3, used at every
 * stage; a static scale; and, at scale 1, the bookkeeping of skipped steps
 * for bf16 with check_grad_overflow.
 *
 * A step's gradients are unscaled by zo_loss_scaler.scale as it was when
 * their backward began: copy it into the step's record first, update after.
 * (DeepSpeed updates first and unscales by the new scale, so that on a step
 * where the scale doubles its gradients come out half as large.)
 *
 * Giving up: DeepSpeed stops at the first overflow at the minimum scale, and
 * with a static scale never.  Here a skip that cannot lower the scale counts,
 * and max_skips such skips without a good step between them stop the run: one
 * bad batch does not end it, and it cannot go on for ever without learning.
 */
#ifndef ZO_SRC_TRAIN_LOSS_SCALER_H
#define ZO_SRC_TRAIN_LOSS_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/run_config.h"
#include "src/base/status.h"

ZO_C_BEGIN

/* What a checkpoint holds of a scaler. */
struct zo_loss_scaler_state {
    double scale;            /* of the next backward */
    int64_t iteration;       /* updates so far */
    int64_t last_overflow;   /* iteration of the latest one; -1: none */
    int64_t hysteresis_left; /* overflows until one halves */
    int64_t futile_skips;    /* since the last good step */
    int64_t skipped_steps;   /* in all */
};

struct zo_loss_scaler {
    struct zo_loss_scaler_state state;
    struct zo_run_loss_scale settings;
    int64_t max_skips;
};

enum zo_loss_scale_event {
    ZO_LOSS_SCALE_KEPT,   /* a good step */
    ZO_LOSS_SCALE_RAISED, /* a good step, and the scale doubled */
    ZO_LOSS_SCALE_SKIP,   /* skip the step; the scale stays */
    ZO_LOSS_SCALE_LOWERED /* skip the step; the scale was halved */
};

/* The largest scale: it and its reciprocal are normal fp32 numbers. */
#define ZO_LOSS_SCALE_MAX 0x1p126

/*
 * Prepares a scaler; max_skips >= 1.  A first scale below the minimum starts
 * at the minimum.
 *
 *   ZO_E_CONFIG   a minimum of 0, a scale that is not positive and finite, a
 *                 window or a hysteresis below 1
 */
enum zo_status zo_loss_scaler_init(struct zo_loss_scaler *scaler,
                                   const struct zo_run_loss_scale *settings,
                                   int64_t max_skips) ZO_MUST_CHECK;

/*
 * Takes note of a step whose gradients were finite, or not (overflow).
 *
 *   ZO_E_NUMERIC   it is time to stop; the scaler stays as it was, but for
 *                  skipped_steps
 */
enum zo_status
zo_loss_scaler_update(struct zo_loss_scaler *scaler, bool overflow,
                      enum zo_loss_scale_event *event_out) ZO_MUST_CHECK;

/*
 * Continues from a checkpoint's state.  A static scale of the settings wins
 * over a saved one; a saved scale below the settings' minimum is raised to
 * it.
 *
 *   ZO_E_CORRUPT   no scaler can have been in this state
 */
enum zo_status
zo_loss_scaler_restore(struct zo_loss_scaler *scaler,
                       const struct zo_loss_scaler_state *state) ZO_MUST_CHECK;

ZO_C_END

#endif
