/*
 * What may not change a bit of a run, or only the order of a sum: what
 * backward recomputes, overlap, and over how many devices and micro batches
 * the rows of a step are spread.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/vector_run.h"

/* Both slots are used, and an update stands in a list and in the tail. */
#define STEPS 2

/* A run of the official fp32 or .bin rows; trained, not closed. */
static enum zo_status train(const struct tiny_case *vectors, const char *json,
                            const char *recompute, bool is_serial, bool on_gpu,
                            struct vector_run *run)
{
    char set[64];
    const char *const args[] = {"--learning-rate", "1e-3", "--set", set, NULL};
    const struct tiny_settings settings = {
        .model = vectors->model,
        .rows = vectors->rows,
        .json = json,
        .args = args,
        .steps = STEPS,
        .on_gpu = on_gpu,
        .is_serial = is_serial,
        /* Poison is written by the host. */
        .poisons = is_serial && !on_gpu,
    };

    (void)snprintf(set, sizeof(set), "zero_offload.recompute=%s", recompute);
    tiny_open(run, &settings);
    return tiny_train(run);
}

/* Compares with `same`, and closes `run`. */
static bool is_same(struct vector_run *run, const struct vector_run *same)
{
    bool all =
        tiny_same_weights(run, same) && run->step_count == same->step_count;

    for (int64_t i = 0; all && i < run->step_count; i++) {
        all = run->steps[i].loss == same->steps[i].loss &&
              run->steps[i].grad_norm == same->steps[i].grad_norm;
    }
    tiny_close(run);
    return all;
}

/* A poisoned run takes its time: of all `recomputes` only where asked for. */
static void check_bits(const char *json, bool poisons_all, bool on_gpu)
{
    static const char *const recomputes[] = {"none", "cheap", "layer"};
    const bool samples = tap_samples("one operation at a time");
    struct tiny_case vectors;
    struct vector_run first, other;

    if ((on_gpu && !tiny_has_gpu()) || !tiny_open_fp16_bin(&vectors)) {
        return;
    }
    TAP_CHECK_INT(train(&vectors, json, "none", false, on_gpu, &first), ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(recomputes); i++) {
        const char *recompute = recomputes[i];

        if (i > 0) {
            TAP_CHECK_INT(
                train(&vectors, json, recompute, false, on_gpu, &other), ZO_OK);
            TAP_CHECK(is_same(&other, &first));
        }
        if (!samples && (poisons_all || strcmp(recompute, "layer") == 0)) {
            TAP_CHECK_INT(
                train(&vectors, json, recompute, true, on_gpu, &other), ZO_OK);
            TAP_CHECK(is_same(&other, &first));
        }
    }
    tiny_close(&first);
    tiny_close_case(&vectors);
}

#define BATCH "\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 2"

#define FP32 "{" BATCH "}"
#define BF16 "{" BATCH ", \"bf16\": {\"enabled\": true}}"
#define FP16                                     \
    "{" BATCH ", \"fp16\": {\"enabled\": true}," \
    " \"gradient_clipping\": 1}"

static void bits_in_fp32(void)
{
    check_bits(FP32, true, false);
}

static void bits_in_bf16(void)
{
    check_bits(BF16, false, false);
}

static void bits_in_fp16(void)
{
    check_bits(FP16, false, false);
}

static void bits_in_fp32_on_a_gpu(void)
{
    check_bits(FP32, true, true);
}

static void bits_in_bf16_on_a_gpu(void)
{
    check_bits(BF16, true, true);
}

static void bits_in_fp16_on_a_gpu(void)
{
    check_bits(FP16, true, true);
}

/* ---- devices and micro batches
 * ------------------------------------------------ */

/* The rows of a step, spread over devices and micro batches. */
struct spread {
    const char *devices, *micro_rows, *micros;
};

#define SPREAD_STEPS 3

static enum zo_status train_spread(const struct tiny_case *vectors,
                                   const struct spread *spread,
                                   struct vector_run *run)
{
    const char *const args[] = {"--num-devices",
                                spread->devices,
                                "--per-device-train-batch-size",
                                spread->micro_rows,
                                "--gradient-accumulation-steps",
                                spread->micros,
                                "--learning-rate",
                                "1e-3",
                                "--max-grad-norm",
                                "1",
                                NULL};
    const struct tiny_settings settings = {
        .model = vectors->model,
        .rows = vectors->rows,
        .args = args,
        .steps = SPREAD_STEPS,
    };

    tiny_open(run, &settings);
    return tiny_train(run);
}

/* Each spread trains as the first one does, and twice with the same bits. */
static void check_spreads(const struct tiny_case *vectors,
                          const struct spread *spreads, size_t count)
{
    struct vector_run first, run, again;
    double gap = 0.0;

    TAP_CHECK_INT(train_spread(vectors, &spreads[0], &first), ZO_OK);
    for (size_t i = 1; i < count; i++) {
        TAP_CHECK_INT(train_spread(vectors, &spreads[i], &run), ZO_OK);
        TAP_CHECK_INT(train_spread(vectors, &spreads[i], &again), ZO_OK);
        TAP_CHECK_INT(run.step_count, SPREAD_STEPS);
        for (int s = 0; s < SPREAD_STEPS; s++) {
            gap = fmax(gap, fabs(run.steps[s].loss - first.steps[s].loss));
            TAP_CHECK(!isnan(run.steps[s].loss));
        }
        TAP_CHECK(is_same(&again, &run));
        tiny_close(&run);
    }
    tiny_close(&first);
    TINY_CHECK_WITHIN(gap, 1e-6);
}

static void spread_of_three_rows(void)
{
    static const struct spread spreads[] = {
        {"1", "3", "1"}, {"1", "1", "3"}, {"3", "1", "1"}};
    struct tiny_case vectors;

    if (tap_skips_numbers()) {
        return;
    }
    if (tiny_open_fp32(&vectors)) {
        check_spreads(&vectors, spreads, TAP_COUNT(spreads));
        tiny_close_case(&vectors);
    }
}

/* On 3 devices one has two rows; of 6 devices two have none. */
static void spread_of_four_rows(void)
{
    static const struct spread spreads[] = {{"1", "4", "1"}, {"1", "1", "4"},
                                            {"2", "1", "2"}, {"4", "1", "1"},
                                            {"3", "2", "1"}, {"6", "1", "1"}};
    struct tiny_case vectors;

    if (tiny_open_fp16_bin(&vectors)) {
        check_spreads(&vectors, spreads, TAP_COUNT(spreads));
        tiny_close_case(&vectors);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"in fp32 recomputing, and one operation at a time with everything "
         "else poisoned, change no bit",
         bits_in_fp32},
        {"nor in bf16", bits_in_bf16},
        {"nor in fp16, clipped and scaled", bits_in_fp16},
        {"on a GPU in fp32 recomputing, and one operation at a time, change no "
         "bit",
         bits_in_fp32_on_a_gpu},
        {"nor in bf16 on a GPU", bits_in_bf16_on_a_gpu},
        {"nor in fp16 on a GPU, clipped and scaled", bits_in_fp16_on_a_gpu},
        {"three rows on 1 and 3 devices, in 1 and 3 micro batches, give the "
         "same losses within 1e-6",
         spread_of_three_rows},
        {"four rows on 1, 2, 3, 4 and 6 devices, in 1, 2 and 4 micro "
         "batches, give the same losses within 1e-6",
         spread_of_four_rows},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
