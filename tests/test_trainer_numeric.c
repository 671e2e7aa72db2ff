/*
 * Numbers that are not finite, and evaluation.
 *
 * A gradient is spoilt where a device casts its sums: one element of layer 0
 * becomes a NaN in chosen steps.
 */
#include "src/train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

#define CLOSE 1e-6
#define LAYER 1 /* the unit of layer 0 */

/* ---- spoilt gradients ---------------------------------------------------- */

static struct {
    zo_op_fn cast; /* what the operation does of its own */
    int step;      /* steps seen */
    int first_bad, last_bad;
} spoilt;

static enum zo_status cast_and_spoil(const struct zo_op_call *call)
{
    ZO_TRY(spoilt.cast(call));
    spoilt.step++;
    if (spoilt.step < spoilt.first_bad || spoilt.step > spoilt.last_bad) {
        return ZO_OK;
    }
    return call->machine->device_ops->fill(call->streams[0], call->at[0], 0xff,
                                           4); /* NaN in every type */
}

/* A run whose gradients are spoilt in steps first..last, on the last device. */
static enum zo_status train_spoilt(const struct tiny_knobs *knobs, int first,
                                   int last, struct tiny_result *result)
{
    struct tiny_run run;
    enum zo_status status = tiny_open(knobs, &run);
    struct zo_op *op;

    if (status == ZO_OK) {
        op = tiny_find_op(&run, 0, "gradient cast", LAYER,
                          run.knobs.devices - 1, 0);
        ZO_ASSERT(op != NULL);
        spoilt.cast = op->run;
        spoilt.step = 0;
        spoilt.first_bad = first;
        spoilt.last_bad = last;
        op->run = cast_and_spoil;
        status = tiny_start(&run);
    }
    if (status == ZO_OK) {
        status = tiny_train(&run, result);
    }
    tiny_close(&run);
    return status;
}

static bool stopped(enum zo_status status, const char *part, const char *other)
{
    const char *text = zo_err_last()->text;

    if (status != ZO_E_NUMERIC || zo_status_exit_code((int)status) != 5 ||
        strstr(text, part) == NULL || strstr(text, other) == NULL) {
        tap_fail(__FILE__, __LINE__, "status %d: %s", (int)status, text);
        return false;
    }
    return true;
}

/* ---- skipped steps ------------------------------------------------------- */

static const char bf16_checked[] =
    "\"bf16\": {\"enabled\": true, \"check_grad_overflow\": true}";
static const char fp16_low[] =
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8,"
    " \"hysteresis\": 1}";

/* Step 3 of 3 is bad: the states are those after 2. */
static void test_skip_is_bit_equal(void)
{
    const char *const types[] = {bf16_checked, fp16_low};

    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        for (int devices = 1; devices <= 2; devices++) {
            struct tiny_knobs knobs = {
                .devices = devices, .steps = 2, .json = types[t]};
            struct tiny_result before, after;

            TAP_CHECK_INT(tiny_whole(&knobs, &before), ZO_OK);
            knobs.steps = 3;
            TAP_CHECK_INT(train_spoilt(&knobs, 3, 3, &after), ZO_OK);
            TAP_CHECK_INT(after.step_count, 3);
            TAP_CHECK(after.state == before.state && after.devices_agree);
            TAP_CHECK(after.step[2].overflow);
            TAP_CHECK(isnan(after.step[2].grad_norm));
            TAP_CHECK(isfinite(after.step[2].loss));
            TAP_CHECK_INT(after.step[1].skipped_steps, 0);
            TAP_CHECK_INT(after.step[2].skipped_steps, 1);
        }
    }
}

static void test_run_goes_on(void)
{
    const char *const types[] = {bf16_checked, fp16_low};

    if (tap_skips_numbers()) {
        return;
    }
    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        const struct tiny_knobs knobs = {
            .devices = 2, .steps = 10, .json = types[t]};
        struct tiny_result result;

        TAP_CHECK_INT(train_spoilt(&knobs, 2, 3, &result), ZO_OK);
        TAP_CHECK_INT(result.steps_done, 10);
        for (int i = 0; i < 10; i++) {
            const int skipped = i < 1 ? 0 : i < 2 ? 1 : 2;

            TAP_CHECK(result.step[i].overflow == (i == 1 || i == 2));
            TAP_CHECK_INT(result.step[i].skipped_steps, skipped);
            TAP_CHECK(result.step[i].loss_scale == (t == 0   ? 1.0
                                                    : i <= 1 ? 256.0
                                                    : i == 2 ? 128.0
                                                             : 64.0));
        }
        TAP_CHECK(result.step[9].loss < result.step[0].loss - 0.05);
    }
}

/* The same rows in each step: a skipped one is as if it had not been. */
static void test_skip_does_not_count(void)
{
    const char *const types[] = {
        bf16_checked, "\"fp16\": {\"enabled\": true, \"loss_scale\": 256}"};

    if (tap_skips_numbers()) {
        return;
    }
    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        struct tiny_knobs knobs = {
            .rows = TINY_STEP_ROWS, .steps = 3, .json = types[t]};
        struct tiny_result plain, skipped;

        TAP_CHECK_INT(tiny_whole(&knobs, &plain), ZO_OK);
        knobs.steps = 5;
        TAP_CHECK_INT(train_spoilt(&knobs, 2, 3, &skipped), ZO_OK);
        TAP_CHECK(skipped.step[1].loss == plain.step[1].loss);
        TAP_CHECK(skipped.step[3].loss == plain.step[1].loss);
        TAP_CHECK(skipped.step[4].loss == plain.step[2].loss);
        TAP_CHECK(skipped.state == plain.state);
    }
}

static void test_scale_falls(void)
{
    struct tiny_knobs knobs = {
        .steps = 30,
        .json = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 32, "
                "\"hysteresis\": 1}"};
    struct tiny_result result, some;
    struct tiny_run run;
    uint64_t loaded = 0;
    int bad = 0;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK_INT(tiny_whole(&knobs, &result), ZO_OK);
    while (bad < 30 && result.step[bad].overflow) {
        TAP_CHECK(result.step[bad].loss_scale == ldexp(1.0, 32 - bad));
        bad++;
        TAP_CHECK_INT(result.step[bad - 1].skipped_steps, bad);
    }
    TAP_CHECK(bad >= 5 && bad < 25);
    TAP_CHECK(result.step[bad].loss_scale == ldexp(1.0, 32 - bad));
    TAP_CHECK(isfinite(result.step[bad].grad_norm));
    TAP_CHECK(result.step[29].loss < result.step[0].loss - 0.05);

    knobs.steps = bad; /* all of them skipped: nothing has changed */
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    TAP_CHECK_INT(tiny_state(&run, 0, &loaded), ZO_OK);
    TAP_CHECK_INT(tiny_train(&run, &some), ZO_OK);
    TAP_CHECK_INT(some.step[bad - 1].skipped_steps, bad);
    TAP_CHECK(some.state == loaded);
    tiny_close(&run);
}

static void test_scale_does_not_show(void)
{
    /* Powers of two scale exactly: above fp16's small numbers the same
     * gradients, and so the same run but for rounding at the small end. */
    struct tiny_result low, high;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK_INT(
        tiny_whole(&(struct tiny_knobs){.json = "\"fp16\": {\"enabled\": "
                                                "true, \"loss_scale\": 256}"},
                   &low),
        ZO_OK);
    TAP_CHECK_INT(
        tiny_whole(&(struct tiny_knobs){.json = "\"fp16\": {\"enabled\": "
                                                "true, \"loss_scale\": 4096}"},
                   &high),
        ZO_OK);
    TAP_CHECK(low.step[0].loss == high.step[0].loss);
    TAP_CHECK(fabs(low.step[0].grad_norm - high.step[0].grad_norm) <
              1e-4 * low.step[0].grad_norm);
    TAP_CHECK(tiny_loss_distance(&low, &high) < 1e-3);
}

static void test_too_many_skips(void)
{
    struct tiny_knobs knobs = {
        .steps = 10,
        .json = "\"fp16\": {\"enabled\": true, \"loss_scale\": 1e30}, "
                "\"zero_offload\": {\"max_skips\": 3}"};
    struct tiny_result result;

    TAP_CHECK(stopped(tiny_whole(&knobs, &result), "3 step", "static scale"));
    TAP_CHECK_INT(result.step_count, 2);
    TAP_CHECK_INT(result.step[1].skipped_steps, 2);

    knobs.json = "\"bf16\": {\"enabled\": true, \"check_grad_overflow\": true},"
                 " \"zero_offload\": {\"max_skips\": 4}";
    TAP_CHECK(stopped(train_spoilt(&knobs, 2, 100, &result), "4 step",
                      "without a loss scale"));
    TAP_CHECK_INT(result.step_count, 4); /* one good, three skipped */
    TAP_CHECK_INT(train_spoilt(&knobs, 2, 4, &result), ZO_OK);
}

/* ---- stops --------------------------------------------------------------- */

static void test_stop_names_unit_and_step(void)
{
    static const char *const types[] = {
        NULL, "\"bf16\": {\"enabled\": true}", "\"gradient_clipping\": 1",
        "\"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1"};

    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        const struct tiny_knobs knobs = {.devices = 1 + (int)t % 2,
                                         .json = types[t]};
        struct tiny_result result;

        TAP_CHECK(
            stopped(train_spoilt(&knobs, 3, 3, &result), "step 3:", "layer 0"));
        TAP_CHECK_INT(result.step_count, 2);
    }
}

/* The moments of layer 0 are lost just before an update. */
static enum zo_status spoil_and_update(const struct zo_op_call *call)
{
    ZO_TRY(call->machine->device_ops->fill(call->streams[0], call->at[4], 0xff,
                                           4));
    return spoilt.cast(call);
}

static enum zo_status train_bad_update(const struct tiny_knobs *knobs,
                                       int schedule, struct tiny_result *result)
{
    struct tiny_run run;
    enum zo_status status = tiny_open(knobs, &run);

    if (status == ZO_OK) {
        struct zo_op *op = tiny_find_op(&run, schedule, "AdamW", LAYER, 0, 0);

        ZO_ASSERT(op != NULL);
        spoilt.cast = op->run;
        op->run = spoil_and_update;
        status = tiny_start(&run);
    }
    if (status == ZO_OK) {
        status = tiny_train(&run, result);
    }
    tiny_close(&run);
    return status;
}

/* Where nothing is decided, an update stands in the list of its own step. */
static void test_weights_not_finite_at_once(void)
{
    static const char *const types[] = {NULL, "\"bf16\": {\"enabled\": true}"};

    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        const struct tiny_knobs knobs = {.steps = 3, .json = types[t]};
        struct tiny_result result;

        TAP_CHECK(stopped(train_bad_update(&knobs, 0, &result),
                          "step 1: its update made", "layer 0"));
        TAP_CHECK_INT(result.step_count, 0);
    }
}

static void test_weights_not_finite(void)
{
    static const char *const types[] = {fp16_low, "\"gradient_clipping\": 1"};

    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        struct tiny_knobs knobs = {.steps = 3, .json = types[t]};
        struct tiny_result result;

        TAP_CHECK(stopped(train_bad_update(&knobs, 0, &result),
                          "step 2: the update before it", "layer 0"));
        TAP_CHECK_INT(result.step_count, 1);
        /* Of the last one nobody decides. */
        TAP_CHECK(stopped(train_bad_update(&knobs, 1, &result),
                          "step 3: the update made", "layer 0"));
        TAP_CHECK_INT(result.step_count, 3);
        knobs.eval_rows = 3; /* the update runs with the evaluation */
        TAP_CHECK(stopped(train_bad_update(&knobs, 2, &result),
                          "step 3: the update made", "layer 0"));
    }
}

/* ---- evaluation ---------------------------------------------------------- */

static void test_evaluation_by_hand(void)
{
    static const char *const types[] = {NULL, "\"bf16\": {\"enabled\": true}"};

    if (tap_skips_numbers()) {
        return;
    }
    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        for (int devices = 1; devices <= 4; devices++) {
            struct tiny_knobs knobs = {.devices = devices,
                                       .json = types[t],
                                       .rows = TINY_STEP_ROWS,
                                       .eval_rows = TINY_STEP_ROWS,
                                       .steps = 1};
            struct zo_eval_metrics before, after;
            struct tiny_result result;
            struct tiny_run run;
            uint64_t loaded = 0, seen = 0;

            TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
            TAP_CHECK_INT(tiny_start(&run), ZO_OK);
            TAP_CHECK_INT(tiny_state(&run, 0, &loaded), ZO_OK);
            TAP_CHECK_INT(zo_trainer_evaluate(run.trainer, &before), ZO_OK);
            TAP_CHECK_INT(tiny_state(&run, 0, &seen), ZO_OK);
            TAP_CHECK(seen == loaded);
            TAP_CHECK_INT(tiny_train(&run, &result), ZO_OK);
            TAP_CHECK(fabs(result.step[0].loss - before.loss) <= CLOSE);
            TAP_CHECK_INT(before.rows, TINY_STEP_ROWS);
            TAP_CHECK_INT(before.tokens, result.step[0].tokens);
            TAP_CHECK_INT(before.label_tokens, result.step[0].label_tokens);
            TAP_CHECK_INT(zo_trainer_evaluate(run.trainer, &after), ZO_OK);
            TAP_CHECK(after.loss == result.eval[0].loss);
            TAP_CHECK(after.loss < before.loss);
            tiny_close(&run);
        }
    }
}

/* The loss of many rows is the mean over their labels, of any batches. */
static void test_evaluation_of_many(void)
{
    double sum = 0.0, labels = 0.0;
    struct zo_eval_metrics metrics;
    struct tiny_run run;

    if (tap_skips_numbers()) {
        return;
    }
    for (int row = 0; row < 14; row++) {
        struct tiny_knobs knobs = {.evaluates_only = true,
                                   .eval_rows = 1,
                                   .eval_first_row = row,
                                   .micro_rows = 1};

        TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
        TAP_CHECK_INT(tiny_start(&run), ZO_OK);
        TAP_CHECK_INT(zo_trainer_evaluate(run.trainer, &metrics), ZO_OK);
        sum += metrics.loss * (double)metrics.label_tokens;
        labels += (double)metrics.label_tokens;
        tiny_close(&run);
    }
    for (int devices = 1; devices <= 3; devices++) {
        struct tiny_knobs knobs = {.evaluates_only = true,
                                   .devices = devices,
                                   .eval_rows = 14,
                                   .micro_rows = 3};

        TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
        TAP_CHECK_INT(tiny_start(&run), ZO_OK);
        TAP_CHECK_INT(zo_trainer_evaluate(run.trainer, &metrics), ZO_OK);
        TAP_CHECK(fabs(metrics.loss - sum / labels) <= CLOSE);
        TAP_CHECK(metrics.label_tokens == (int64_t)labels);
        TAP_CHECK_INT(metrics.rows, 14);
        tiny_close(&run);
    }
}

static void test_evaluation_changes_nothing(void)
{
    static const char *const types[] = {NULL, "\"gradient_clipping\": 0.5",
                                        bf16_checked, fp16_low};
    const size_t count =
        tap_samples("clipping, bf16 and fp16") ? 1 : TAP_COUNT(types);

    for (size_t t = 0; t < count; t++) {
        for (int accumulation = 1; accumulation <= 2; accumulation++) {
            struct tiny_knobs knobs = {.devices = 2,
                                       .accumulation = accumulation,
                                       .steps = 6,
                                       .json = types[t]};
            struct tiny_result plain, evaluated;

            TAP_CHECK_INT(tiny_whole(&knobs, &plain), ZO_OK);
            knobs.eval_rows = 7;
            for (knobs.eval_every = 0; knobs.eval_every <= 2;
                 knobs.eval_every++) {
                TAP_CHECK_INT(tiny_whole(&knobs, &evaluated), ZO_OK);
                TAP_CHECK_INT(evaluated.eval_count,
                              knobs.eval_every == 0 ? 1 : 6 / knobs.eval_every);
                TAP_CHECK(tiny_same_bits(&plain, &evaluated));
            }
        }
    }
}

static void test_best_evaluation(void)
{
    const struct tiny_knobs knobs = {
        .steps = 6, .eval_rows = 7, .eval_every = 1};
    struct tiny_result result;
    double best = INFINITY;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK_INT(tiny_whole(&knobs, &result), ZO_OK);
    TAP_CHECK_INT(result.eval_count, 6);
    for (int i = 0; i < 6; i++) {
        TAP_CHECK_INT(result.eval[i].step, i + 1);
        TAP_CHECK(result.eval[i].is_best == (result.eval[i].loss < best));
        best = fmin(best, result.eval[i].loss);
    }
}

static const struct tap_case cases[] = {
    {"a bad step is skipped bit-equal, in fp16 and checked bf16",
     test_skip_is_bit_equal},
    {"a run goes on after skipped steps", test_run_goes_on},
    {"a skipped step counts for nothing", test_skip_does_not_count},
    {"the loss scale halves until gradients are finite", test_scale_falls},
    {"the loss scale does not show in norm and losses",
     test_scale_does_not_show},
    {"too many skips in a row stop the run", test_too_many_skips},
    {"without a check a bad gradient stops the run, naming unit and step",
     test_stop_names_unit_and_step},
    {"a weight that is not finite stops the run", test_weights_not_finite},
    {"and at once where nothing is decided", test_weights_not_finite_at_once},
    {"evaluation is the loss of the same rows in training",
     test_evaluation_by_hand},
    {"evaluation of many rows is the mean over their labels",
     test_evaluation_of_many},
    {"evaluation between steps changes no bit",
     test_evaluation_changes_nothing},
    {"the best evaluation so far is marked", test_best_evaluation},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
