/*
 * Learning-rate schedules against tables.
 *
 * The tables were made by restating the state machines of DeepSpeed 0.19.6
 * (construct, then step() after every step) and the lambdas of transformers'
 * get_scheduler() in Python; the code under test uses closed forms.
 */
#include "src/train/lr_schedule.h"

#include <math.h>

#include "tests/tap.h"

static void check_table(const char *what,
                        const struct zo_run_schedule *schedule,
                        const double *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double got = zo_lr_at(schedule, (int64_t)i + 1);

        if (!(fabs(got - want[i]) <= 1e-14 * fabs(want[i]) + 1e-20)) {
            tap_fail(__FILE__, __LINE__, "%s, step %zu: got %.17g, want %.17g",
                     what, i + 1, got, want[i]);
        }
    }
}

#define CHECK_TABLE(what, schedule, want) \
    check_table((what), (schedule), (want), TAP_COUNT(want))

static void test_warmup(void)
{
    static const double logarithmic[] = {1e-6,
                                         1e-6,
                                         4.3636979249265911e-05,
                                         6.8578013254112549e-05,
                                         8.6273958498531825e-05,
                                         1e-4,
                                         1e-4,
                                         1e-4};
    static const double linear[] = {1e-6,     1e-6, 2.575e-5, 5.05e-5,
                                    7.525e-5, 1e-4, 1e-4,     1e-4};
    struct zo_run_schedule schedule = {
        .type = ZO_SCHEDULE_WARMUP,
        .warmup_steps = 5,
        .warmup_min_lr = 1e-6,
        .warmup_max_lr = 1e-4,
        .total_steps = ZO_STEPS_UNKNOWN,
    };

    CHECK_TABLE("logarithmic", &schedule, logarithmic);
    schedule.warmup_steps = 4;
    schedule.warmup_is_linear = true;
    CHECK_TABLE("linear", &schedule, linear);
}

/* W = max(2, steps): 0, 1 and 2 are one schedule, and finite. */
static void test_warmup_of_nearly_nothing(void)
{
    static const double logarithmic[] = {0.0, 0.0, 1.0, 1.0, 1.0};
    static const double linear[] = {0.0, 0.0, 0.5, 1.0, 1.0};

    for (int64_t steps = 0; steps <= 2; steps++) {
        struct zo_run_schedule schedule = {
            .type = ZO_SCHEDULE_WARMUP,
            .warmup_steps = steps,
            .warmup_max_lr = 1.0,
        };

        CHECK_TABLE("logarithmic", &schedule, logarithmic);
        schedule.warmup_is_linear = true;
        CHECK_TABLE("linear", &schedule, linear);
    }
}

static void test_warmup_decay(void)
{
    static const double want[] = {0.0,  0.0,  0.00063092975357145742,
                                  1e-3, 1e-3, 8e-4,
                                  6e-4, 4e-4, 2e-4,
                                  0.0,  0.0,  0.0};
    const struct zo_run_schedule schedule = {
        .type = ZO_SCHEDULE_WARMUP_DECAY,
        .warmup_steps = 3,
        .total_steps = 8,
        .warmup_max_lr = 1e-3,
    };

    CHECK_TABLE("decay", &schedule, want);
}

static void test_warmup_cosine(void)
{
    static const double want[] = {0.0,
                                  2e-4,
                                  6.5e-4,
                                  1.1e-3,
                                  1.55e-3,
                                  0.0018673651497465944,
                                  0.0015049999999999998,
                                  1.01e-3,
                                  0.00051500000000000027,
                                  0.00015263485025340568,
                                  2e-5,
                                  2e-5,
                                  2e-5,
                                  2e-5};
    static const double tiny[] = {0.0, 0.0, 2e-3, 2e-7, 2e-7};
    const struct zo_run_schedule schedule = {
        .type = ZO_SCHEDULE_WARMUP_COSINE,
        .learning_rate = 2e-3,
        .warmup_steps = 4,
        .total_steps = 10,
        .warmup_is_linear = true,
        .warmup_min_ratio = 0.1,
        .cos_min_ratio = 0.01,
    };
    const struct zo_run_schedule all_warmup = {
        .type = ZO_SCHEDULE_WARMUP_COSINE,
        .learning_rate = 2e-3,
        .warmup_steps = 0,
        .total_steps = 2,
        .cos_min_ratio = 1e-4,
    };

    CHECK_TABLE("cosine", &schedule, want);
    CHECK_TABLE("cosine of two steps", &all_warmup, tiny);
}

static const struct zo_run_schedule one_cycle = {
    .type = ZO_SCHEDULE_ONE_CYCLE,
    .cycle_min_lr = 1e-5,
    .cycle_max_lr = 3e-5,
    .decay_lr_rate = 0.5,
    .cycle_first_steps = 4,
    .cycle_second_steps = 2,
    .decay_step_size = 2,
    .cycle_momentum = true,
    .cycle_min_momentum = 0.8,
    .cycle_max_momentum = 0.9,
};

static void test_one_cycle(void)
{
    static const double want[] = {1e-5,
                                  1.5e-5,
                                  2e-5,
                                  2.5e-5,
                                  3e-5,
                                  2e-5,
                                  1e-5,
                                  8e-6,
                                  6.6666666666666675e-06,
                                  5.7142857142857145e-06,
                                  5e-6};
    static const double no_decay[] = {1e-5, 1.5e-5, 2e-5, 2.5e-5, 3e-5,
                                      2e-5, 1e-5,   1e-5, 1e-5};
    struct zo_run_schedule schedule = one_cycle;

    CHECK_TABLE("one cycle", &schedule, want);
    schedule.decay_step_size = 0;
    CHECK_TABLE("one cycle, no decay", &schedule, no_decay);
}

/* A half of no steps divides by nothing. */
static void test_one_cycle_of_one_half(void)
{
    static const double falling[] = {1e-5, 2e-5, 1e-5, 1e-5};
    struct zo_run_schedule schedule = one_cycle;

    schedule.decay_step_size = 0;
    schedule.cycle_first_steps = 0;
    CHECK_TABLE("falling", &schedule, falling);
    schedule.cycle_second_steps = 0;
    for (int64_t step = 1; step < 5; step++) {
        TAP_CHECK(zo_lr_at(&schedule, step) == 1e-5);
    }
}

static void test_momentum(void)
{
    static const double want[] = {0.8,  0.875, 0.85, 0.825, 0.8,
                                  0.85, 0.9,   0.9,  0.9,   0.9};
    const struct zo_betas own = {0.9, 0.95};
    struct zo_run_schedule schedule = one_cycle;
    struct zo_betas got;

    for (size_t i = 0; i < TAP_COUNT(want); i++) {
        got = zo_betas_at(&schedule, (int64_t)i + 1, own);
        TAP_CHECK(fabs(got.beta1 - want[i]) < 1e-15);
        TAP_CHECK(got.beta2 == 0.99);
    }
    schedule.decay_momentum_rate = 0.01; /* two steps on: one interval */
    got = zo_betas_at(&schedule, 9, own);
    TAP_CHECK(fabs(got.beta1 - 0.9 * 1.01) < 1e-15);
    schedule.decay_momentum_rate = 1e9; /* and it never reaches 1 */
    TAP_CHECK(zo_betas_at(&schedule, 1000, own).beta1 == 0.9999);

    schedule.cycle_momentum = false;
    got = zo_betas_at(&schedule, 3, own);
    TAP_CHECK(got.beta1 == 0.9 && got.beta2 == 0.95);
    schedule = (struct zo_run_schedule){.type = ZO_SCHEDULE_WARMUP,
                                        .cycle_momentum = true};
    got = zo_betas_at(&schedule, 3, own);
    TAP_CHECK(got.beta1 == 0.9 && got.beta2 == 0.95);
}

static void test_hugging_face(void)
{
    static const double linear[] = {0.0,
                                    1.6666666666666667e-05,
                                    3.3333333333333335e-05,
                                    5e-5,
                                    4.1666666666666672e-05,
                                    3.3333333333333335e-05,
                                    2.5e-5,
                                    1.6666666666666667e-05,
                                    8.3333333333333337e-06,
                                    0.0,
                                    0.0};
    static const double cosine[] = {0.0,
                                    1.6666666666666667e-05,
                                    3.3333333333333335e-05,
                                    5e-5,
                                    4.6650635094610971e-05,
                                    3.75e-5,
                                    2.5e-5,
                                    1.25e-5,
                                    3.3493649053890326e-06,
                                    0.0, /* and stays there */
                                    0.0,
                                    0.0};
    static const double constant[] = {5e-5, 5e-5, 5e-5, 5e-5, 5e-5};
    static const double with_warmup[] = {0.0, 1.6666666666666667e-05,
                                         3.3333333333333335e-05, 5e-5, 5e-5};
    struct zo_run_schedule schedule = {
        .type = ZO_SCHEDULE_LINEAR,
        .learning_rate = 5e-5,
        .warmup_steps = 3,
        .total_steps = 9,
    };

    CHECK_TABLE("linear", &schedule, linear);
    schedule.type = ZO_SCHEDULE_COSINE;
    CHECK_TABLE("cosine", &schedule, cosine);
    schedule.type = ZO_SCHEDULE_CONSTANT;
    CHECK_TABLE("constant", &schedule, constant);
    schedule.type = ZO_SCHEDULE_CONSTANT_WITH_WARMUP;
    CHECK_TABLE("constant_with_warmup", &schedule, with_warmup);
}

/* The official recipe: 1e-4 over 5000 steps, no warm-up: 1e-4 at step 1. */
static void test_official_recipe(void)
{
    const struct zo_run_schedule schedule = {
        .type = ZO_SCHEDULE_LINEAR,
        .learning_rate = 1e-4,
        .total_steps = 5000,
    };

    TAP_CHECK(zo_lr_at(&schedule, 1) == 1e-4);
    TAP_CHECK(fabs(zo_lr_at(&schedule, 2501) - 5e-5) < 1e-19);
    TAP_CHECK(fabs(zo_lr_at(&schedule, 5000) - 2e-8) < 1e-19);
    TAP_CHECK(zo_lr_at(&schedule, 5001) == 0.0);
}

/* Warm-up of 0, 1, 2 and as long as the run, for each type: no NaN. */
static void test_edges_are_finite(void)
{
    static const int64_t warmups[] = {0, 1, 2, 7};

    for (int type = ZO_SCHEDULE_WARMUP;
         type <= ZO_SCHEDULE_CONSTANT_WITH_WARMUP; type++) {
        for (size_t i = 0; i < TAP_COUNT(warmups); i++) {
            struct zo_run_schedule schedule = one_cycle;

            schedule.type = (enum zo_schedule_type)type;
            schedule.learning_rate = schedule.warmup_max_lr = 1.0;
            schedule.warmup_steps = schedule.total_steps = warmups[i];
            for (int64_t step = 1; step < 20; step++) {
                const double lr = zo_lr_at(&schedule, step);

                TAP_CHECK(lr >= 0.0 && lr <= 1.0);
            }
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"WarmupLR trains steps 1 and 2 with its minimum", test_warmup},
        {"a warm-up of 0, 1 or 2 steps is defined",
         test_warmup_of_nearly_nothing},
        {"WarmupDecayLR falls to 0 and stays", test_warmup_decay},
        {"WarmupCosineLR falls to its minimum and stays", test_warmup_cosine},
        {"OneCycle rises, falls and decays", test_one_cycle},
        {"OneCycle may lack a half", test_one_cycle_of_one_half},
        {"OneCycle moves beta1 against the rate", test_momentum},
        {"Hugging Face's four are get_scheduler()'s", test_hugging_face},
        {"the official recipe starts at its full rate", test_official_recipe},
        {"no length of warm-up gives a NaN", test_edges_are_finite},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
