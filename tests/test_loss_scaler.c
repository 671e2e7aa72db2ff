/*
 * The loss scaler against DeepSpeed's rules, event by event.
 *
 * A script is a string: o an overflow, g a good step.  What is wanted is the
 * scale after each, as a power of two.
 */
#include "src/train/loss_scaler.h"

#include <math.h>
#include <string.h>

#include "tests/tap.h"

#define MAX_SKIPS 5

static struct zo_run_loss_scale settings(int64_t power, int64_t window,
                                         int64_t hysteresis)
{
    return (struct zo_run_loss_scale){
        .initial_scale_power = power,
        .window = window,
        .hysteresis = hysteresis,
        .min_scale = 1.0,
    };
}

static void check_script(const struct zo_run_loss_scale *with,
                         const char *script, const int *want_powers)
{
    struct zo_loss_scaler scaler;
    enum zo_loss_scale_event event;

    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, with, MAX_SKIPS), ZO_OK);
    for (size_t i = 0; script[i] != '\0'; i++) {
        const double before = scaler.state.scale;
        const bool overflow = script[i] == 'o';

        TAP_CHECK_INT(zo_loss_scaler_update(&scaler, overflow, &event), ZO_OK);
        if (scaler.state.scale != ldexp(1.0, want_powers[i])) {
            tap_fail(__FILE__, __LINE__, "\"%s\"[%zu]: scale %g, want 2^%d",
                     script, i, scaler.state.scale, want_powers[i]);
            return;
        }
        TAP_CHECK_INT(event, before < scaler.state.scale ? ZO_LOSS_SCALE_RAISED
                             : before > scaler.state.scale
                                 ? ZO_LOSS_SCALE_LOWERED
                             : overflow ? ZO_LOSS_SCALE_SKIP
                                        : ZO_LOSS_SCALE_KEPT);
    }
}

/* Window 3: the first growth is at the 4th step, as the 1001st of 1000. */
static void test_growth(void)
{
    const struct zo_run_loss_scale with = settings(4, 3, 1);

    check_script(&with, "gggggggg", (const int[]){4, 4, 4, 5, 5, 5, 6, 6});
}

/* The window counts good steps since the last overflow. */
static void test_growth_after_overflow(void)
{
    const struct zo_run_loss_scale with = settings(4, 3, 1);

    check_script(&with, "gogggggog", (const int[]){4, 3, 3, 3, 3, 4, 4, 3, 3});
}

static void test_hysteresis(void)
{
    const struct zo_run_loss_scale with = settings(8, 3, 2);

    /* The first overflow is forgiven; then each halves; a growth refills. */
    check_script(&with, "oooggggoo", (const int[]){8, 7, 6, 6, 6, 6, 7, 7, 6});
    /* A good step in between does not refill it. */
    check_script(&with, "ogoo", (const int[]){8, 8, 7, 6});
}

static void test_consecutive_hysteresis(void)
{
    struct zo_run_loss_scale with = settings(8, 100, 2);

    with.consecutive_hysteresis = true;
    check_script(&with, "ogogoo", (const int[]){8, 8, 8, 8, 8, 7});
}

/* Halving stops at the minimum; there the number of skips is bounded. */
static void test_minimum(void)
{
    struct zo_run_loss_scale with = settings(3, 100, 1);
    struct zo_loss_scaler scaler;
    enum zo_loss_scale_event event;

    with.min_scale = 4.0;
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, MAX_SKIPS), ZO_OK);
    TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_OK);
    TAP_CHECK(scaler.state.scale == 4.0);
    for (int i = 1; i < MAX_SKIPS; i++) {
        TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_OK);
        TAP_CHECK_INT(event, ZO_LOSS_SCALE_SKIP);
        TAP_CHECK(scaler.state.scale == 4.0);
    }
    TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_E_NUMERIC);
    TAP_CHECK(strstr(zo_err_last()->text, "minimum scale (4)") != NULL);
    TAP_CHECK_INT(scaler.state.skipped_steps, MAX_SKIPS + 1);

    /* A minimum that no halving hits is still not passed. */
    with.min_scale = 3.0;
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, MAX_SKIPS), ZO_OK);
    TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_OK);
    TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_OK);
    TAP_CHECK(scaler.state.scale == 3.0);
}

static void test_good_step_forgives(void)
{
    struct zo_run_loss_scale with = settings(0, 100, 1);
    struct zo_loss_scaler scaler;
    enum zo_loss_scale_event event;

    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 2), ZO_OK);
    for (int i = 0; i < 10; i++) {
        TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_OK);
        TAP_CHECK_INT(zo_loss_scaler_update(&scaler, false, &event), ZO_OK);
    }
    TAP_CHECK_INT(scaler.state.skipped_steps, 10);
}

/* Sixteen halvings in a row are progress, not futile. */
static void test_falling_is_no_reason_to_stop(void)
{
    struct zo_run_loss_scale with = settings(16, 1000, 2);
    struct zo_loss_scaler scaler;
    enum zo_loss_scale_event event;

    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 3), ZO_OK);
    for (int i = 0; i < 17; i++) {
        TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_OK);
    }
    TAP_CHECK(scaler.state.scale == 1.0);
}

static void test_static(void)
{
    const struct zo_run_loss_scale with = {.static_scale = 128.0};
    struct zo_loss_scaler scaler;
    enum zo_loss_scale_event event;

    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, MAX_SKIPS), ZO_OK);
    for (int i = 0; i < 5000; i++) {
        TAP_CHECK_INT(zo_loss_scaler_update(&scaler, false, &event), ZO_OK);
        TAP_CHECK(scaler.state.scale == 128.0);
    }
    for (int i = 1; i < MAX_SKIPS; i++) {
        TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_OK);
    }
    TAP_CHECK_INT(zo_loss_scaler_update(&scaler, true, &event), ZO_E_NUMERIC);
    TAP_CHECK(strstr(zo_err_last()->text, "static scale") != NULL);
    TAP_CHECK_INT(zo_status_exit_code(zo_err_last()->status), 5);
    TAP_CHECK(scaler.state.scale == 128.0);
}

/* A scale that grows for ever would end as infinity. */
static void test_ceiling(void)
{
    struct zo_run_loss_scale with = settings(125, 1, 1);

    check_script(&with, "ggggg", (const int[]){125, 126, 126, 126, 126});
}

static void test_refusals(void)
{
    const double bad_scales[] = {-1.0, (double)NAN, (double)INFINITY, 1e300};
    struct zo_run_loss_scale with = settings(16, 1000, 2);
    struct zo_loss_scaler scaler;

    with.min_scale = 0.0;
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 1), ZO_E_CONFIG);
    TAP_CHECK(strstr(zo_err_last()->text, "fp16.min_loss_scale") != NULL);
    for (size_t i = 0; i < TAP_COUNT(bad_scales); i++) {
        with = settings(16, 1000, 2);
        with.min_scale = bad_scales[i];
        TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 1), ZO_E_CONFIG);
        with = (struct zo_run_loss_scale){.static_scale = bad_scales[i]};
        TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 1), ZO_E_CONFIG);
    }
    with = settings(127, 1000, 2);
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 1), ZO_E_CONFIG);
    with = settings(-1, 1000, 2);
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 1), ZO_E_CONFIG);
    with = settings(16, 0, 2);
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 1), ZO_E_CONFIG);
    with = settings(16, 1000, 0);
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, 1), ZO_E_CONFIG);
}

/* Saved anywhere and restored, the rest of the run is the same. */
static void test_restore(void)
{
    static const char script[] = "ggoggggoogggoggggggoogggggg";
    const struct zo_run_loss_scale with = settings(10, 3, 2);

    for (size_t cut = 0; cut < strlen(script); cut++) {
        struct zo_loss_scaler whole, resumed;
        enum zo_loss_scale_event event;

        TAP_CHECK_INT(zo_loss_scaler_init(&whole, &with, MAX_SKIPS), ZO_OK);
        for (size_t i = 0; script[i] != '\0'; i++) {
            if (i == cut) {
                TAP_CHECK_INT(zo_loss_scaler_init(&resumed, &with, MAX_SKIPS),
                              ZO_OK);
                TAP_CHECK_INT(zo_loss_scaler_restore(&resumed, &whole.state),
                              ZO_OK);
            }
            TAP_CHECK_INT(
                zo_loss_scaler_update(&whole, script[i] == 'o', &event), ZO_OK);
            if (i >= cut) {
                TAP_CHECK_INT(
                    zo_loss_scaler_update(&resumed, script[i] == 'o', &event),
                    ZO_OK);
            }
        }
        TAP_CHECK(memcmp(&whole.state, &resumed.state, sizeof(whole.state)) ==
                  0);
    }
}

static void test_restore_into_other_settings(void)
{
    struct zo_run_loss_scale with = settings(10, 3, 2);
    struct zo_loss_scaler scaler;
    struct zo_loss_scaler_state saved;

    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, MAX_SKIPS), ZO_OK);
    saved = scaler.state;
    with.static_scale = 8.0;
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, MAX_SKIPS), ZO_OK);
    TAP_CHECK_INT(zo_loss_scaler_restore(&scaler, &saved), ZO_OK);
    TAP_CHECK(scaler.state.scale == 8.0);
    with = settings(10, 3, 2);
    with.min_scale = 4096.0;
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, MAX_SKIPS), ZO_OK);
    TAP_CHECK_INT(zo_loss_scaler_restore(&scaler, &saved), ZO_OK);
    TAP_CHECK(scaler.state.scale == 4096.0);
}

static void test_restore_refuses_nonsense(void)
{
    const struct zo_run_loss_scale with = settings(10, 3, 2);
    const struct zo_loss_scaler_state good = {
        .scale = 1024.0,
        .iteration = 9,
        .last_overflow = 8,
        .hysteresis_left = 1,
    };
    struct zo_loss_scaler_state bad[7];
    struct zo_loss_scaler scaler;

    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        bad[i] = good;
    }
    bad[0].scale = (double)NAN;
    bad[1].scale = 0.0;
    bad[2].iteration = -1;
    bad[3].last_overflow = 9;
    bad[4].last_overflow = -2;
    bad[5].hysteresis_left = 0;
    bad[6].futile_skips = -1;
    TAP_CHECK_INT(zo_loss_scaler_init(&scaler, &with, MAX_SKIPS), ZO_OK);
    TAP_CHECK_INT(zo_loss_scaler_restore(&scaler, &good), ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        TAP_CHECK_INT(zo_loss_scaler_restore(&scaler, &bad[i]), ZO_E_CORRUPT);
        TAP_CHECK(memcmp(&scaler.state, &good, sizeof(good)) == 0);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the scale grows after window + 1 good steps", test_growth},
        {"an overflow restarts the window", test_growth_after_overflow},
        {"hysteresis forgives overflows until a growth", test_hysteresis},
        {"consecutive hysteresis is refilled by a good step",
         test_consecutive_hysteresis},
        {"skips at the minimum are bounded", test_minimum},
        {"a good step forgives the skips before it", test_good_step_forgives},
        {"a falling scale is no reason to stop",
         test_falling_is_no_reason_to_stop},
        {"a static scale stays, and its skips are bounded", test_static},
        {"the scale stays invertible in fp32", test_ceiling},
        {"settings without meaning are refused by name", test_refusals},
        {"a restored scaler continues the same", test_restore},
        {"settings win over a saved scale", test_restore_into_other_settings},
        {"a state that cannot be is refused", test_restore_refuses_nonsense},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
