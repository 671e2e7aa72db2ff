#include "src/train/lr_schedule.h"

#include <math.h>

#include "src/base/arith.h"

#define PI             3.14159265358979323846
#define CYCLE_BETA2    0.99 /* DeepSpeed's, whatever the optimizer says */
#define MOMENTUM_LIMIT 0.9999

/* a / b, where b below 1 counts as 1. */
static double over(int64_t a, int64_t b)
{
    return (double)a / (double)zo_max_i64(1, b);
}

/* ---- DeepSpeed's warm-up types; i = step - 2 ---- */

static int64_t warmup_length(const struct zo_run_schedule *schedule)
{
    return zo_max_i64(ZO_WARMUP_STEPS_MIN, schedule->warmup_steps);
}

/* From 0 to below 1 while 0 <= i < W. */
static double warmup_gamma(const struct zo_run_schedule *schedule, int64_t i)
{
    const double length = (double)warmup_length(schedule);

    return schedule->warmup_is_linear ? (double)i / length
                                      : log((double)(i + 1)) / log(length);
}

static double between(double low, double high, double gamma)
{
    return low + (high - low) * gamma;
}

static double warmup_at(const struct zo_run_schedule *schedule, int64_t i)
{
    const int64_t warmup = warmup_length(schedule);
    double gamma = 1.0;

    if (i < 0) {
        gamma = 0.0;
    } else if (i < warmup) {
        gamma = warmup_gamma(schedule, i);
    } else if (schedule->type == ZO_SCHEDULE_WARMUP_DECAY) {
        gamma = fmax(0.0, over(schedule->total_steps - i,
                               schedule->total_steps - warmup));
    }
    return between(schedule->warmup_min_lr, schedule->warmup_max_lr, gamma);
}

static double warmup_cosine_at(const struct zo_run_schedule *schedule,
                               int64_t i)
{
    const int64_t warmup = warmup_length(schedule);
    double part;

    if (i < 0) {
        return 0.0;
    }
    if (i < warmup) {
        return schedule->learning_rate * between(schedule->warmup_min_ratio,
                                                 1.0,
                                                 warmup_gamma(schedule, i));
    }
    part = fmin(1.0, over(i - warmup + 1, schedule->total_steps - warmup));
    return schedule->learning_rate *
           between(schedule->cos_min_ratio, 1.0, (1.0 + cos(PI * part)) / 2.0);
}

/* ---- DeepSpeed's OneCycle ---- */

static int64_t cycle_length(const struct zo_run_schedule *schedule)
{
    return schedule->cycle_first_steps + schedule->cycle_second_steps;
}

/* Height in the cycle, 0 to 1, while i < cycle_length(). */
static double cycle_height(const struct zo_run_schedule *schedule, int64_t i)
{
    const int64_t at = (i + 1) % cycle_length(schedule);
    const int64_t first = schedule->cycle_first_steps;

    if (at <= first) {
        return over(at, first);
    }
    return over(cycle_length(schedule) - at, schedule->cycle_second_steps);
}

/* How many decay intervals have passed; i >= cycle_length(). */
static double cycle_decays(const struct zo_run_schedule *schedule, int64_t i)
{
    if (schedule->decay_step_size == 0) {
        return 0.0;
    }
    return (double)(i - cycle_length(schedule) + 1) /
           (double)schedule->decay_step_size;
}

static double one_cycle_at(const struct zo_run_schedule *schedule, int64_t i)
{
    const double low = schedule->cycle_min_lr, high = schedule->cycle_max_lr;

    if (i < 0) {
        return low;
    }
    if (i < cycle_length(schedule)) {
        return between(low, high, cycle_height(schedule, i));
    }
    return low / (1.0 + schedule->decay_lr_rate * cycle_decays(schedule, i));
}

struct zo_betas zo_betas_at(const struct zo_run_schedule *schedule,
                            int64_t step, struct zo_betas betas)
{
    const double low = schedule->cycle_min_momentum;
    const double high = schedule->cycle_max_momentum;
    const int64_t i = step - 2;
    double momentum;

    if (schedule->type != ZO_SCHEDULE_ONE_CYCLE || !schedule->cycle_momentum) {
        return betas;
    }
    if (i < 0) {
        momentum = low; /* as DeepSpeed leaves it when it makes the cycle */
    } else if (i < cycle_length(schedule)) {
        momentum = between(high, low, cycle_height(schedule, i));
    } else {
        momentum = high * (1.0 + schedule->decay_momentum_rate *
                                     cycle_decays(schedule, i));
    }
    return (struct zo_betas){fmin(momentum, MOMENTUM_LIMIT), CYCLE_BETA2};
}

/* ---- Hugging Face's; s = step - 1 ---- */

static double hugging_face_factor(const struct zo_run_schedule *schedule,
                                  int64_t s)
{
    const int64_t warmup = schedule->warmup_steps;
    const int64_t total = schedule->total_steps;

    if (schedule->type == ZO_SCHEDULE_CONSTANT) {
        return 1.0;
    }
    if (s < warmup) {
        return over(s, warmup);
    }
    if (schedule->type == ZO_SCHEDULE_CONSTANT_WITH_WARMUP) {
        return 1.0;
    }
    if (schedule->type == ZO_SCHEDULE_LINEAR) {
        return fmax(0.0, over(total - s, total - warmup));
    }
    /* Cosine.  Past the end it would rise again; it stays. */
    return fmax(
        0.0,
        0.5 * (1.0 + cos(PI * fmin(1.0, over(s - warmup, total - warmup)))));
}

double zo_lr_at(const struct zo_run_schedule *schedule, int64_t step)
{
    ZO_ASSERT(step >= 1);
    switch (schedule->type) {
    case ZO_SCHEDULE_WARMUP:
    case ZO_SCHEDULE_WARMUP_DECAY:
        return warmup_at(schedule, step - 2);
    case ZO_SCHEDULE_WARMUP_COSINE:
        return warmup_cosine_at(schedule, step - 2);
    case ZO_SCHEDULE_ONE_CYCLE:
        return one_cycle_at(schedule, step - 2);
    case ZO_SCHEDULE_LINEAR:
    case ZO_SCHEDULE_COSINE:
    case ZO_SCHEDULE_CONSTANT:
    case ZO_SCHEDULE_CONSTANT_WITH_WARMUP:
        return schedule->learning_rate *
               hugging_face_factor(schedule, step - 1);
    }
    return 0.0;
}
