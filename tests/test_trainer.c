/*
 * Training steps: what may change the numbers, and what may not change a bit.
 */
#include "src/train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

#define CLOSE 1e-6

/* Runs, and marks the case as failed if that fails. */
static bool ran(const struct tiny_knobs *knobs, struct tiny_result *result)
{
    const enum zo_status status = tiny_whole(knobs, result);

    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* ---- devices --------------------------------------------------------------
 */

static void test_devices_agree(void)
{
    struct tiny_result alone, other;

    TAP_CHECK(ran(&(struct tiny_knobs){.steps = 10}, &alone));
    TAP_CHECK_INT(alone.step_count, 10);
    TAP_CHECK_INT(alone.step[2].rows, 5); /* the last of an epoch */
    TAP_CHECK(alone.step[9].loss < alone.step[0].loss);
    for (int devices = 2; devices <= 4; devices++) {
        TAP_CHECK(
            ran(&(struct tiny_knobs){.steps = 10, .devices = devices}, &other));
        TAP_CHECK(other.devices_agree);
        TAP_CHECK(tiny_loss_distance(&alone, &other) <= CLOSE);
        for (int i = 0; i < 10; i++) {
            TAP_CHECK_INT(other.step[i].rows, alone.step[i].rows);
            TAP_CHECK_INT(other.step[i].label_tokens,
                          alone.step[i].label_tokens);
        }
    }
}

static const struct tap_case cases[] = {
    {"1 to 4 devices give the same losses within 1e-6", test_devices_agree},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
