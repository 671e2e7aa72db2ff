/*
 * Training steps: devices, accumulation, number types and clipping.
 */
#include "src/train/trainer.h"

#include <math.h>
#include <stdio.h>

#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

#define CLOSE      1e-6
#define CLOSE_BF16 1e-3

static const char bf16[] = "\"bf16\": {\"enabled\": true}";
static const char fp16[] =
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}";

/* Runs, and marks the case as failed if that fails. */
static bool ran(const struct tiny_knobs *knobs, struct tiny_result *result)
{
    const enum zo_status status = tiny_whole(knobs, result);

    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* "type, clipping": members of the JSON; static, one at a time. */
static const char *json_of(const char *type, bool clips, const char *more)
{
    static char json[512];

    (void)snprintf(json, sizeof(json), "%s%s\"gradient_clipping\": %s%s%s",
                   type, type[0] != '\0' ? ", " : "", clips ? "0.5" : "0",
                   more[0] != '\0' ? ", " : "", more);
    return json;
}

/* ---- devices ------------------------------------------------------------- */

static void test_devices_agree(void)
{
    struct tiny_result alone, other;

    TAP_CHECK(ran(&(struct tiny_knobs){.steps = 10, .shuffles = true}, &alone));
    TAP_CHECK_INT(alone.step_count, 10);
    TAP_CHECK_INT(alone.step[2].rows, 5); /* the last of an epoch */
    TAP_CHECK(alone.step[9].loss < alone.step[0].loss - 0.1);
    for (int devices = 2; devices <= 4; devices++) {
        TAP_CHECK(ran(&(struct tiny_knobs){.steps = 10,
                                           .shuffles = true,
                                           .devices = devices},
                      &other));
        TAP_CHECK(other.devices_agree);
        TAP_CHECK(tiny_loss_distance(&alone, &other) <= CLOSE);
        for (int i = 0; i < 10; i++) {
            TAP_CHECK_INT(other.step[i].rows, alone.step[i].rows);
            TAP_CHECK_INT(other.step[i].label_tokens,
                          alone.step[i].label_tokens);
        }
    }
}

/* In bf16 each device rounds what it sends: README's bound. */
static void test_rounding_devices(void)
{
    static const char bf16_json[] = "\"bf16\": {\"enabled\": true}";
    struct tiny_knobs knobs = {.steps = 10, .json = bf16_json};
    struct tiny_result alone, other;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK(ran(&knobs, &alone));
    for (knobs.devices = 2; knobs.devices <= 4; knobs.devices++) {
        TAP_CHECK(ran(&knobs, &other));
        TAP_CHECK(other.devices_agree);
        if (!(tiny_loss_distance(&alone, &other) <= CLOSE_BF16)) {
            tap_fail(__FILE__, __LINE__, "%d devices: losses are %g off",
                     knobs.devices, tiny_loss_distance(&alone, &other));
        }
    }
    knobs.devices = 1;
    knobs.accumulation = 4;
    TAP_CHECK(ran(&knobs, &other));
    TAP_CHECK(tiny_loss_distance(&alone, &other) <= CLOSE_BF16);
}

static void test_many_devices(void)
{
    struct tiny_knobs knobs = {
        .micro_rows = 64, .rows = 70, .threads = 1, .steps = 2};
    struct tiny_result alone, other;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK(ran(&knobs, &alone));
    knobs.devices = 64;
    knobs.micro_rows = 1;
    TAP_CHECK(ran(&knobs, &other));
    TAP_CHECK(other.devices_agree);
    TAP_CHECK(tiny_loss_distance(&alone, &other) <= CLOSE);
}

static void test_devices_without_rows(void)
{
    /* Epochs of 12, 12 and 2 rows; then a file of fewer rows than devices. */
    static const int files[] = {26, 3};
    struct tiny_result alone, other;

    for (size_t f = 0; f < TAP_COUNT(files); f++) {
        struct tiny_knobs knobs = {.rows = files[f], .steps = 6};

        TAP_CHECK(ran(&knobs, &alone));
        TAP_CHECK_INT(alone.step[2].rows, f == 0 ? 2 : 3);
        knobs.devices = 4;
        TAP_CHECK(ran(&knobs, &other));
        TAP_CHECK(other.devices_agree);
        TAP_CHECK(tiny_loss_distance(&alone, &other) <= CLOSE);
        knobs.accumulation = 3; /* and micro batches without rows */
        TAP_CHECK(ran(&knobs, &other));
        TAP_CHECK(other.devices_agree);
        TAP_CHECK(tiny_loss_distance(&alone, &other) <= CLOSE);
    }
}

/* ---- accumulation -------------------------------------------------------- */

static struct tiny_numbers whole_numbers, part_numbers;

static void test_accumulation(void)
{
    static const int counts[] = {2, 3, 4, 6, 12};
    struct tiny_knobs knobs = {.steps = 5, .json = json_of("", true, "")};
    struct tiny_result whole, parts;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK_INT(tiny_whole_numbers(&knobs, &whole, &whole_numbers), ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(counts); i++) {
        knobs.accumulation = counts[i];
        TAP_CHECK_INT(tiny_whole_numbers(&knobs, &parts, &part_numbers), ZO_OK);
        TAP_CHECK(tiny_loss_distance(&whole, &parts) <= CLOSE);
        TAP_CHECK(tiny_distance(whole_numbers.weights, part_numbers.weights) <=
                  CLOSE);
        TAP_CHECK(tiny_distance(whole_numbers.gradients,
                                part_numbers.gradients) <= CLOSE);
    }
}

/* Logits are made for ZO_GLM_LOGIT_ROWS labels at a time. */
static void test_chunks_of_logits(void)
{
    struct tiny_knobs knobs = {.rows = 180, .micro_rows = 180, .steps = 2};
    struct tiny_result whole, parts, poisoned;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK_INT(tiny_whole_numbers(&knobs, &whole, &whole_numbers), ZO_OK);
    TAP_CHECK(whole.step[0].label_tokens > ZO_GLM_LOGIT_ROWS);
    knobs.poisons = true;
    TAP_CHECK(ran(&knobs, &poisoned));
    TAP_CHECK(tiny_same_bits(&whole, &poisoned));
    knobs.poisons = false;
    knobs.micro_rows = 45;
    knobs.accumulation = 4;
    TAP_CHECK_INT(tiny_whole_numbers(&knobs, &parts, &part_numbers), ZO_OK);
    TAP_CHECK(parts.step[0].label_tokens < 4 * ZO_GLM_LOGIT_ROWS);
    TAP_CHECK(tiny_loss_distance(&whole, &parts) <= CLOSE);
    TAP_CHECK(tiny_distance(whole_numbers.gradients, part_numbers.gradients) <=
              CLOSE);
    TAP_CHECK(tiny_distance(whole_numbers.weights, part_numbers.weights) <=
              CLOSE);
}

/* The first step of each row by itself: their mean is the mean of means. */
static bool mean_of_rows(int rows, double *loss_out, struct tiny_numbers *mean)
{
    static struct tiny_numbers one;
    struct tiny_result result;

    *loss_out = 0.0;
    *mean = (struct tiny_numbers){{0}, {0}};
    for (int row = 0; row < rows; row++) {
        const struct tiny_knobs knobs = {
            .rows = 1, .first_row = row, .micro_rows = 1, .steps = 1};

        if (tiny_whole_numbers(&knobs, &result, &one) != ZO_OK) {
            return false;
        }
        *loss_out += result.step[0].loss / rows;
        for (int i = 0; i < TINY_PARAMETERS; i++) {
            mean->gradients[i] += one.gradients[i] / (float)rows;
        }
    }
    return true;
}

static void test_mean_of_means(void)
{
    static const int rows[] = {TINY_STEP_ROWS, 5}; /* 7 have none */

    if (tap_skips_numbers()) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        double loss = 0.0, token_loss;

        TAP_CHECK(mean_of_rows(rows[i], &loss, &whole_numbers));
        for (int devices = 1; devices <= 4; devices++) {
            struct tiny_knobs knobs = {.devices = devices,
                                       .accumulation = TINY_STEP_ROWS / devices,
                                       .micro_rows = 1,
                                       .rows = rows[i],
                                       .steps = 1};
            struct tiny_result result;

            TAP_CHECK(ran(&knobs, &result));
            token_loss = result.step[0].loss;
            knobs.json = "\"zero_offload\": {\"loss_reduction\": "
                         "\"micro_batch\"}";
            TAP_CHECK_INT(tiny_whole_numbers(&knobs, &result, &part_numbers),
                          ZO_OK);
            TAP_CHECK(fabs(result.step[0].loss - loss) <= CLOSE);
            TAP_CHECK(fabs(result.step[0].loss - token_loss) > 1e-4);
            TAP_CHECK(tiny_distance(whole_numbers.gradients,
                                    part_numbers.gradients) <= CLOSE);
        }
    }
}

/* ---- numbers ---- */

static void test_types_follow(void)
{
    /* 16-bit runs stay near the fp32 one, and learn. */
    const char *const types[] = {bf16, fp16};
    struct tiny_result exact, got;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK(ran(&(struct tiny_knobs){.steps = 10}, &exact));
    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        TAP_CHECK(
            ran(&(struct tiny_knobs){.steps = 10, .json = types[t]}, &got));
        TAP_CHECK(tiny_loss_distance(&exact, &got) <= 0.02);
        TAP_CHECK(got.step[9].loss < got.step[0].loss - 0.1);
    }
}

static void test_clipping(void)
{
    struct tiny_result free_run, clipped;
    static struct tiny_numbers numbers;

    TAP_CHECK(ran(&(struct tiny_knobs){.steps = 1}, &free_run));
    TAP_CHECK(free_run.step[0].clip_coefficient == 1.0);
    TAP_CHECK(free_run.step[0].grad_norm > 0.1);
    TAP_CHECK_INT(tiny_whole_numbers(
                      &(struct tiny_knobs){
                          .steps = 1, .json = "\"gradient_clipping\": 0.05"},
                      &clipped, &numbers),
                  ZO_OK);
    TAP_CHECK(clipped.step[0].grad_norm == free_run.step[0].grad_norm);
    TAP_CHECK(fabs(clipped.step[0].clip_coefficient -
                   0.05 / (clipped.step[0].grad_norm + 1e-6)) < 1e-12);
    TAP_CHECK(clipped.state != free_run.state);
    /* A norm below the limit is left alone. */
    TAP_CHECK(ran(
        &(struct tiny_knobs){.steps = 1, .json = "\"gradient_clipping\": 50"},
        &clipped));
    TAP_CHECK(clipped.step[0].clip_coefficient == 1.0);
    TAP_CHECK(clipped.state == free_run.state);
}

static void test_norm_by_hand(void)
{
    struct tiny_result result;
    double squares = 0.0;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK_INT(tiny_whole_numbers(&(struct tiny_knobs){.steps = 1}, &result,
                                     &whole_numbers),
                  ZO_OK);
    for (int i = 0; i < TINY_PARAMETERS; i++) {
        squares += (double)whole_numbers.gradients[i] *
                   (double)whole_numbers.gradients[i];
    }
    TAP_CHECK(fabs(sqrt(squares) - result.step[0].grad_norm) <=
              1e-9 * result.step[0].grad_norm);
}

/* ---- stopping ------------------------------------------------------------ */

static int asked, stop_at;

static bool wants_stop(void *context)
{
    (void)context;
    return ++asked > stop_at;
}

/* Asked to, a run ends in good order: its last update has run. */
static void test_stops_early(void)
{
    const struct zo_trainer_watch watch = {.wants_stop = wants_stop};
    struct tiny_knobs knobs = {.devices = 2, .steps = 8};
    struct tiny_run run;

    for (stop_at = 0; stop_at <= 3; stop_at++) {
        uint64_t state = 0, want = 0;
        int64_t steps = -1;
        struct tiny_result result;

        asked = 0;
        knobs.steps = 8;
        TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
        TAP_CHECK_INT(tiny_start(&run), ZO_OK);
        TAP_CHECK_INT(tiny_state(&run, 0, &want), ZO_OK);
        TAP_CHECK_INT(zo_trainer_run(run.trainer, &watch, &steps), ZO_OK);
        TAP_CHECK_INT(steps, stop_at);
        TAP_CHECK_INT(tiny_state(&run, 0, &state), ZO_OK);
        tiny_close(&run);
        if (stop_at > 0) {
            knobs.steps = stop_at;
            TAP_CHECK(ran(&knobs, &result));
            want = result.state;
        }
        TAP_CHECK(state == want);
    }
}

static const struct tap_case cases[] = {
    {"1 to 4 devices give the same losses within 1e-6", test_devices_agree},
    {"in bf16 within 1e-3, as does accumulation", test_rounding_devices},
    {"64 devices do", test_many_devices},
    {"devices and micro batches without rows add nothing",
     test_devices_without_rows},
    {"accumulation gives the losses, gradients and weights of the one batch",
     test_accumulation},
    {"more labels than are looked at at once are the same as several batches",
     test_chunks_of_logits},
    {"loss_reduction micro_batch is the mean of the micro batches' means",
     test_mean_of_means},
    {"bf16 and fp16 follow fp32", test_types_follow},
    {"clipping scales by the limit over the norm, above the limit",
     test_clipping},
    {"the norm is that of all gradients", test_norm_by_hand},
    {"a run that is asked to stop ends in good order", test_stops_early},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
