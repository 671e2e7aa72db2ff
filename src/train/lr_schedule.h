/*
 * The learning rate (and OneCycle's momentum) of an optimizer step.
 *
 * Layer 7.  Pure functions of the step number, in double: nothing to save,
 * nothing to advance, so a resumed run cannot shift its curve.
 *
 * `step` counts optimizer steps from 1.  A step that was skipped for an
 * overflow is no optimizer step: the next one has the same number.  Every
 * schedule holds its last value for ever after its end.
 *
 * DeepSpeed's schedules are those of its 0.19.6, with i = step - 2: they set
 * their minimum when they are made and only move after a step, so the warm-up
 * types train steps 1 and 2 with the minimum.  W = max(2, warmup_steps) and
 * T = total_steps.
 *
 *   WarmupLR        min + (max - min) g; g = ln(i+1) / ln(W) or i / W while
 *                   i < W, then 1
 *   WarmupDecayLR   the same warm-up, then g = (T - i) / max(1, T - W)
 *   WarmupCosineLR  lr * ratio; ratio = 0 at step 1, then wmin + (1-wmin) g,
 *                   then cmin + (1-cmin) (1 + cos(pi p)) / 2 with
 *                   p = (i - W + 1) / max(1, T - W)
 *   OneCycle        min at step 1; min + (max - min) s with s rising over
 *                   the first steps and falling over the second; after them
 *                   min / (1 + rate * n / decay_step_size), n from 1
 *
 * OneCycle with cycle_momentum, its default, replaces the optimizer's betas
 * as DeepSpeed does: beta1 moves against the rate, beta2 is 0.99.  DeepSpeed
 * stores stair counts and never reads them; they have no effect here either.
 *
 * Hugging Face's four are transformers' get_scheduler() with s = step - 1:
 * s / max(1, warmup) while s < warmup, then constant, linear to 0 at T, or
 * half a cosine to 0 at T.
 */
#ifndef ZO_SRC_TRAIN_LR_SCHEDULE_H
#define ZO_SRC_TRAIN_LR_SCHEDULE_H

#include <stdint.h>

#include "config/run_config.h"

ZO_C_BEGIN

/*
 * The learning rate of optimizer step `step` >= 1.  total_steps must be known
 * (zo_run_config_finish()) for the types that end.
 */
double zo_lr_at(const struct zo_run_schedule *schedule, int64_t step);

struct zo_betas {
    double beta1, beta2;
};

/*
 * The betas of optimizer step `step` >= 1: `betas`, the optimizer's own, but
 * for OneCycle with cycle_momentum.  Bias correction uses the step's betas to
 * the power of step.  Where DeepSpeed's growing momentum would pass 1, where
 * AdamW has no meaning, it stops at 0.9999.
 */
struct zo_betas zo_betas_at(const struct zo_run_schedule *schedule,
                            int64_t step, struct zo_betas betas);

ZO_C_END

#endif
