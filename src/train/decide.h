/*
 * decide(k): from norms and losses to the loss, the clip coefficient, the
 * next loss scale and the scalars of the update.
 *
 * Row 7.  Runs on a worker of the CPU engine, one step after the other; what
 * it changes is read by others only behind the step's list, and before the
 * next one, but for `behind`.
 */
#ifndef ZO_SRC_TRAIN_DECIDE_H
#define ZO_SRC_TRAIN_DECIDE_H

#include "config/run_config.h"
#include "offload/builder.h"
#include "src/train/loss_scaler.h"

ZO_C_BEGIN

/* Where a run stands behind a step. */
struct zo_decided {
    int64_t optimizer_steps;
    struct zo_loss_scaler_state scaler;
};

struct zo_decider {
    const struct zo_run_config *config; /* borrowed */
    struct zo_loss_scaler scaler;
    int64_t optimizer_steps; /* updates decided on so far */
    /* As it was behind a step, [its number's last bit]: it may be read while
     * the next one is decided on. */
    struct zo_decided behind[2];
};

/* As zo_loss_scaler_init(). */
enum zo_status
zo_decider_init(struct zo_decider *decider,
                const struct zo_run_config *config) ZO_MUST_CHECK;

/* Updates wait for decide(): clipping, a loss scale or a check asks for it. */
bool zo_run_decides(const struct zo_run_config *config);

/* AdamW's scalars of optimizer step t >= 1, for gradients to be multiplied by
 * grad_scale. */
struct zo_adamw_scalars zo_update_scalars(const struct zo_run_config *config,
                                          int64_t t, double grad_scale);

/*
 * The zo_decide_fn of a run; context is the zo_decider.
 *
 *   ZO_E_NUMERIC   a gradient is not finite and no check skips the step, a
 *                  weight is not finite, or too many steps were skipped;
 *                  names step and unit
 */
enum zo_status zo_decide(void *context, const struct zo_measured *measured,
                         struct zo_control *control,
                         struct zo_step_result *result_out);

ZO_C_END

#endif
