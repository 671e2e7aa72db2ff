/* The learning-rate schedule of the JSON, or of the options.  Layer 1. */
#include <math.h>
#include <string.h>

#include "config/cli_names.h"
#include "config/config_resolve.h"
#include "src/base/text.h"

/* Which schedules a parameter belongs to. */
#define OF_WARMUP 1u
#define OF_DECAY  2u
#define OF_COSINE 4u
#define OF_CYCLE  8u

static const struct {
    enum zo_config_key key;
    unsigned types;
} parameters[] = {
    {ZO_KEY_WARMUP_MIN_LR, OF_WARMUP | OF_DECAY},
    {ZO_KEY_WARMUP_MAX_LR, OF_WARMUP | OF_DECAY},
    {ZO_KEY_WARMUP_STEPS, OF_WARMUP | OF_DECAY | OF_COSINE},
    {ZO_KEY_WARMUP_TYPE, OF_WARMUP | OF_DECAY | OF_COSINE},
    {ZO_KEY_TOTAL_STEPS, OF_DECAY | OF_COSINE},
    {ZO_KEY_WARMUP_MIN_RATIO, OF_COSINE},
    {ZO_KEY_COS_MIN_RATIO, OF_COSINE},
    {ZO_KEY_CYCLE_MIN_LR, OF_CYCLE},
    {ZO_KEY_CYCLE_MAX_LR, OF_CYCLE},
    {ZO_KEY_DECAY_LR_RATE, OF_CYCLE},
    {ZO_KEY_CYCLE_FIRST, OF_CYCLE},
    {ZO_KEY_CYCLE_SECOND, OF_CYCLE},
    {ZO_KEY_CYCLE_FIRST_STAIRS, OF_CYCLE},
    {ZO_KEY_CYCLE_SECOND_STAIRS, OF_CYCLE},
    {ZO_KEY_DECAY_STEP_SIZE, OF_CYCLE},
    {ZO_KEY_CYCLE_MOMENTUM, OF_CYCLE},
    {ZO_KEY_CYCLE_MIN_MOM, OF_CYCLE},
    {ZO_KEY_CYCLE_MAX_MOM, OF_CYCLE},
    {ZO_KEY_DECAY_MOM_RATE, OF_CYCLE},
};

const char *zo_schedule_type_name(enum zo_schedule_type type)
{
    switch (type) {
    case ZO_SCHEDULE_WARMUP:
        return "WarmupLR";
    case ZO_SCHEDULE_WARMUP_DECAY:
        return "WarmupDecayLR";
    case ZO_SCHEDULE_WARMUP_COSINE:
        return "WarmupCosineLR";
    case ZO_SCHEDULE_ONE_CYCLE:
        return "OneCycle";
    case ZO_SCHEDULE_LINEAR:
        return "linear";
    case ZO_SCHEDULE_COSINE:
        return "cosine";
    case ZO_SCHEDULE_CONSTANT:
        return "constant";
    case ZO_SCHEDULE_CONSTANT_WITH_WARMUP:
        return "constant_with_warmup";
    }
    return "";
}

/* Without a scheduler in the JSON: the options'. */
static void schedule_from_options(struct zo_resolver *r)
{
    static const enum zo_schedule_type types[] = {
        [ZO_HF_LINEAR] = ZO_SCHEDULE_LINEAR,
        [ZO_HF_COSINE] = ZO_SCHEDULE_COSINE,
        [ZO_HF_CONSTANT] = ZO_SCHEDULE_CONSTANT,
        [ZO_HF_CONSTANT_WITH_WARMUP] = ZO_SCHEDULE_CONSTANT_WITH_WARMUP};
    const struct zo_options *options = r->options;
    struct zo_run_schedule *schedule = &r->config->schedule;

    schedule->type = types[options->schedule];
    schedule->total_steps = ZO_STEPS_UNKNOWN;
    schedule->warmup_steps = options->warmup_steps;
    if (options->warmup_steps == 0 && options->warmup_ratio > 0.0) {
        schedule->warmup_steps = ZO_STEPS_UNKNOWN;
        schedule->warmup_ratio = options->warmup_ratio;
    }
    if (schedule->type == ZO_SCHEDULE_CONSTANT) {
        schedule->warmup_steps = 0;
        schedule->warmup_ratio = 0.0;
    }
}

static enum zo_status find_type(struct zo_resolver *r,
                                enum zo_schedule_type *type_out)
{
    static const char *const names[] = {"WarmupLR", "WarmupDecayLR",
                                        "WarmupCosineLR", "OneCycle"};
    const struct zo_config_values *values = r->values;
    const char *type = zo_value_text(values, ZO_KEY_SCHEDULER_TYPE);
    const char *near;

    for (size_t i = 0; i < ZO_COUNT(names); i++) {
        if (zo_word_index(names[i], type) == 0) {
            *type_out = (enum zo_schedule_type)i;
            return ZO_OK;
        }
    }
    if (zo_word_index("LRRangeTest", type) == 0) {
        return zo_value_fail(values, ZO_KEY_SCHEDULER_TYPE,
                             "LRRangeTest searches a learning rate and trains "
                             "no model; it is not done here");
    }
    near = zo_text_nearest(type, names, ZO_COUNT(names));
    return zo_value_fail(values, ZO_KEY_SCHEDULER_TYPE,
                         "want WarmupLR, WarmupDecayLR, WarmupCosineLR or "
                         "OneCycle, found %s%s%s%s",
                         type, near != NULL ? "; did you mean " : "",
                         near != NULL ? near : "", near != NULL ? "?" : "");
}

static enum zo_status tell_foreign_parameters(struct zo_resolver *r)
{
    const enum zo_schedule_type type = r->config->schedule.type;

    for (size_t i = 0; i < ZO_COUNT(parameters); i++) {
        if (r->values->items[parameters[i].key].node != NULL &&
            (parameters[i].types & (1u << type)) == 0) {
            ZO_TRY(zo_value_note(r->values, parameters[i].key, ZO_NOTE_WARN,
                                 "ignored: it is no parameter of %s",
                                 zo_schedule_type_name(type)));
        }
    }
    return ZO_OK;
}

/* warmup_num_steps against --warmup-steps and --warmup-ratio. */
static enum zo_status resolve_warmup_steps(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const struct zo_options *options = r->options;
    struct zo_run_schedule *schedule = &r->config->schedule;
    const bool has_steps = zo_option_given(options, ZO_OPTION_WARMUP_STEPS);
    const bool has_ratio = zo_option_given(options, ZO_OPTION_WARMUP_RATIO);
    double steps = 0.0;

    if (zo_value_is_given(values, ZO_KEY_WARMUP_STEPS)) {
        if (has_ratio && !has_steps) {
            return zo_value_fail(values, ZO_KEY_WARMUP_STEPS,
                                 "is given, and so is --warmup-ratio; want "
                                 "one of them");
        }
        ZO_TRY(zo_resolve_number(r, ZO_KEY_WARMUP_STEPS, ZO_OPTION_WARMUP_STEPS,
                                 (double)options->warmup_steps, &steps));
        schedule->warmup_steps = (int64_t)steps;
        return ZO_OK;
    }
    if (!zo_value_is_auto(values, ZO_KEY_WARMUP_STEPS) && !has_steps &&
        !has_ratio) {
        schedule->warmup_steps = zo_value_integer(values, ZO_KEY_WARMUP_STEPS);
        return ZO_OK;
    }
    schedule->warmup_steps = options->warmup_steps;
    if (options->warmup_steps == 0 && options->warmup_ratio > 0.0) {
        schedule->warmup_steps = ZO_STEPS_UNKNOWN;
        schedule->warmup_ratio = options->warmup_ratio;
    }
    if (!zo_value_is_auto(values, ZO_KEY_WARMUP_STEPS)) {
        return ZO_OK;
    }
    return schedule->warmup_steps == ZO_STEPS_UNKNOWN
               ? zo_words_add(&r->from_auto, "warmup_num_steps %g of all",
                              schedule->warmup_ratio)
               : zo_words_add(&r->from_auto, "warmup_num_steps %lld",
                              (long long)schedule->warmup_steps);
}

static enum zo_status resolve_warmup_type(struct zo_resolver *r)
{
    const char *type = zo_value_text(r->values, ZO_KEY_WARMUP_TYPE);
    const int index = type != NULL ? zo_word_index("log linear", type) : 0;

    r->config->schedule.warmup_is_linear = index == 1;
    if (index >= 0) {
        return ZO_OK;
    }
    if (r->values->is_strict) {
        return zo_value_fail(r->values, ZO_KEY_WARMUP_TYPE,
                             "want log or linear, found %s", type);
    }
    return zo_value_note(r->values, ZO_KEY_WARMUP_TYPE, ZO_NOTE_WARN,
                         "%s is neither log nor linear; read as log, as "
                         "DeepSpeed does",
                         type);
}

static enum zo_status resolve_total_steps(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const struct zo_options *options = r->options;
    struct zo_run_schedule *schedule = &r->config->schedule;

    schedule->total_steps = ZO_STEPS_UNKNOWN;
    if (zo_value_is_given(values, ZO_KEY_TOTAL_STEPS)) {
        schedule->total_steps = values->items[ZO_KEY_TOTAL_STEPS].integer;
        if (options->max_steps > 0 &&
            options->max_steps != schedule->total_steps) {
            ZO_TRY(zo_value_note(values, ZO_KEY_TOTAL_STEPS, ZO_NOTE_WARN,
                                 "the schedule is laid out for %lld steps, "
                                 "the run is of %lld (--max-steps)",
                                 (long long)schedule->total_steps,
                                 (long long)options->max_steps));
        }
        if (schedule->warmup_steps > schedule->total_steps) {
            return zo_value_fail(values, ZO_KEY_TOTAL_STEPS,
                                 "%lld steps are fewer than the warm-up's "
                                 "%lld",
                                 (long long)schedule->total_steps,
                                 (long long)schedule->warmup_steps);
        }
        return ZO_OK;
    }
    if (zo_value_is_auto(values, ZO_KEY_TOTAL_STEPS)) {
        return zo_words_add(&r->from_auto,
                            "total_num_steps the steps of the run");
    }
    return zo_value_note(values, ZO_KEY_SCHEDULER_TYPE, ZO_NOTE_WARN,
                         "no total_num_steps: the steps of the run stand in "
                         "(DeepSpeed needs the key)");
}

static enum zo_status resolve_warmup_lr(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const double lr = r->config->optimizer.learning_rate;
    struct zo_run_schedule *schedule = &r->config->schedule;

    schedule->warmup_min_lr = zo_value_number(values, ZO_KEY_WARMUP_MIN_LR);
    schedule->warmup_max_lr = lr;
    if (zo_value_is_auto(values, ZO_KEY_WARMUP_MIN_LR)) {
        ZO_TRY(zo_words_add(&r->from_auto, "warmup_min_lr 0"));
    }
    if (zo_value_is_auto(values, ZO_KEY_WARMUP_MAX_LR)) {
        ZO_TRY(zo_words_add(&r->from_auto, "warmup_max_lr %.10g", lr));
    }
    if (zo_value_is_given(values, ZO_KEY_WARMUP_MAX_LR)) {
        schedule->warmup_max_lr = values->items[ZO_KEY_WARMUP_MAX_LR].number;
        if (zo_option_given(r->options, ZO_OPTION_LEARNING_RATE) &&
            schedule->warmup_max_lr != lr) {
            return zo_value_fail(values, ZO_KEY_WARMUP_MAX_LR,
                                 "%g, but --learning-rate says %g; want one "
                                 "of them",
                                 schedule->warmup_max_lr, lr);
        }
        if (schedule->warmup_max_lr != lr) {
            ZO_TRY(zo_value_note(values, ZO_KEY_WARMUP_MAX_LR, ZO_NOTE_WARN,
                                 "%g is the learning rate that counts, not "
                                 "the optimizer's %g",
                                 schedule->warmup_max_lr, lr));
        }
    }
    if (schedule->warmup_min_lr > schedule->warmup_max_lr &&
        zo_value_is_given(values, ZO_KEY_WARMUP_MIN_LR)) {
        return zo_value_fail(values, ZO_KEY_WARMUP_MIN_LR,
                             "%g is above the learning rate after the "
                             "warm-up, %g",
                             schedule->warmup_min_lr, schedule->warmup_max_lr);
    }
    return ZO_OK;
}

static enum zo_status resolve_warmups(struct zo_resolver *r)
{
    struct zo_run_schedule *schedule = &r->config->schedule;

    ZO_TRY(resolve_warmup_steps(r));
    ZO_TRY(resolve_warmup_type(r));
    schedule->warmup_min_ratio =
        zo_value_number(r->values, ZO_KEY_WARMUP_MIN_RATIO);
    schedule->cos_min_ratio = zo_value_number(r->values, ZO_KEY_COS_MIN_RATIO);
    if (schedule->type != ZO_SCHEDULE_WARMUP_COSINE) {
        ZO_TRY(resolve_warmup_lr(r));
    }
    if (schedule->type == ZO_SCHEDULE_WARMUP) {
        schedule->total_steps = ZO_STEPS_UNKNOWN;
        return ZO_OK;
    }
    return resolve_total_steps(r);
}

static enum zo_status require(struct zo_resolver *r, enum zo_config_key key)
{
    if (zo_value_is_given(r->values, key)) {
        return ZO_OK;
    }
    return zo_value_fail(r->values, ZO_KEY_SCHEDULER_TYPE,
                         "OneCycle needs the parameter %s",
                         strrchr(zo_config_row(key)->path, '.') + 1);
}

/* Steps of the second half default to those of the first. */
static int64_t integer_or(const struct zo_resolver *r, enum zo_config_key key,
                          int64_t other)
{
    return zo_value_is_given(r->values, key) ? zo_value_integer(r->values, key)
                                             : other;
}

static enum zo_status resolve_cycle(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    struct zo_run_schedule *s = &r->config->schedule;

    if (zo_option_given(r->options, ZO_OPTION_WARMUP_STEPS) ||
        zo_option_given(r->options, ZO_OPTION_WARMUP_RATIO)) {
        return zo_value_fail(values, ZO_KEY_SCHEDULER_TYPE,
                             "OneCycle has no warm-up, but --warmup-steps or "
                             "--warmup-ratio is given");
    }
    ZO_TRY(require(r, ZO_KEY_CYCLE_MIN_LR));
    ZO_TRY(require(r, ZO_KEY_CYCLE_MAX_LR));
    s->total_steps = ZO_STEPS_UNKNOWN;
    s->cycle_min_lr = zo_value_number(values, ZO_KEY_CYCLE_MIN_LR);
    s->cycle_max_lr = zo_value_number(values, ZO_KEY_CYCLE_MAX_LR);
    s->decay_lr_rate = zo_value_number(values, ZO_KEY_DECAY_LR_RATE);
    s->cycle_first_steps = zo_value_integer(values, ZO_KEY_CYCLE_FIRST);
    s->cycle_second_steps =
        integer_or(r, ZO_KEY_CYCLE_SECOND, s->cycle_first_steps);
    s->cycle_first_stairs = zo_value_integer(values, ZO_KEY_CYCLE_FIRST_STAIRS);
    s->cycle_second_stairs =
        integer_or(r, ZO_KEY_CYCLE_SECOND_STAIRS, s->cycle_first_stairs);
    s->decay_step_size = zo_value_integer(values, ZO_KEY_DECAY_STEP_SIZE);
    s->cycle_momentum = zo_value_flag(values, ZO_KEY_CYCLE_MOMENTUM);
    s->cycle_min_momentum = zo_value_number(values, ZO_KEY_CYCLE_MIN_MOM);
    s->cycle_max_momentum = zo_value_number(values, ZO_KEY_CYCLE_MAX_MOM);
    s->decay_momentum_rate = zo_value_number(values, ZO_KEY_DECAY_MOM_RATE);
    if (s->cycle_min_lr > s->cycle_max_lr) {
        return zo_value_fail(values, ZO_KEY_CYCLE_MIN_LR,
                             "%g is above cycle_max_lr, %g", s->cycle_min_lr,
                             s->cycle_max_lr);
    }
    if (s->cycle_min_momentum > s->cycle_max_momentum) {
        return zo_value_fail(values,
                             zo_value_is_given(values, ZO_KEY_CYCLE_MIN_MOM)
                                 ? ZO_KEY_CYCLE_MIN_MOM
                                 : ZO_KEY_CYCLE_MAX_MOM,
                             "the lowest beta1 %g is above the highest, %g",
                             s->cycle_min_momentum, s->cycle_max_momentum);
    }
    return ZO_OK;
}

enum zo_status zo_resolve_schedule(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    struct zo_run_schedule *schedule = &r->config->schedule;

    schedule->learning_rate = r->config->optimizer.learning_rate;
    if (!zo_value_is_given(values, ZO_KEY_SCHEDULER_TYPE)) {
        schedule_from_options(r);
        return ZO_OK;
    }
    if (zo_option_given(r->options, ZO_OPTION_LR_SCHEDULER_TYPE)) {
        return zo_value_fail(values, ZO_KEY_SCHEDULER_TYPE,
                             "is given, and so is --lr-scheduler-type %s; "
                             "want one of them",
                             zo_hf_schedule_name(r->options->schedule));
    }
    ZO_TRY(find_type(r, &schedule->type));
    ZO_TRY(tell_foreign_parameters(r));
    return schedule->type == ZO_SCHEDULE_ONE_CYCLE ? resolve_cycle(r)
                                                   : resolve_warmups(r);
}

enum zo_status zo_run_config_finish(struct zo_run_config *config,
                                    int64_t total_steps, struct zo_notes *notes)
{
    struct zo_run_schedule *s = &config->schedule;
    const bool has_end = s->type == ZO_SCHEDULE_WARMUP_DECAY ||
                         s->type == ZO_SCHEDULE_WARMUP_COSINE ||
                         s->type == ZO_SCHEDULE_LINEAR ||
                         s->type == ZO_SCHEDULE_COSINE;

    ZO_ASSERT(total_steps >= 0);
    if (s->total_steps == ZO_STEPS_UNKNOWN) {
        s->total_steps = total_steps;
    }
    if (s->warmup_steps == ZO_STEPS_UNKNOWN) { /* rounded up, as HF does */
        s->warmup_steps =
            (int64_t)ceil(s->warmup_ratio * (double)s->total_steps);
    }
    if (!has_end || s->warmup_steps <= s->total_steps) {
        return ZO_OK;
    }
    if (s->type == ZO_SCHEDULE_WARMUP_DECAY ||
        s->type == ZO_SCHEDULE_WARMUP_COSINE) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "%s: the warm-up of %lld steps is longer than the "
                       "schedule of %lld (scheduler.params.warmup_num_steps, "
                       "total_num_steps)",
                       zo_schedule_type_name(s->type),
                       (long long)s->warmup_steps, (long long)s->total_steps);
    }
    return zo_note_add(notes, ZO_NOTE_WARN,
                       "the warm-up of %lld steps is longer than the run of "
                       "%lld: the learning rate never reaches %g",
                       (long long)s->warmup_steps, (long long)s->total_steps,
                       s->learning_rate);
}
