/*
 * Twenty steps of torch.optim.AdamW on tiny models, as the official code
 * trained them in fp32: every loss, norm and learning rate, and the weights
 * behind them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/vector_run.h"

#define STEPS 20

/* A recorded run, and the options and JSON that ask for the same. */
struct trajectory {
    bool (*open)(struct tiny_case *vectors);
    const char *path; /* below the shared folder */
    const char *json;
    const char *const *args;
    bool has_rates;
};

static const char *const linear_args[] = {"--per-device-train-batch-size", "3",
                                          "--learning-rate", "1e-3", NULL};
static const struct trajectory linear = {
    .open = tiny_open_fp32,
    .path = "vectors/tiny_fp32/"
            "tiny_adamw_wd0_noclip_linear_20steps.safetensors",
    .args = linear_args,
    .has_rates = true,
};

/* torch decays every parameter that it is given. */
static const char *const clipped_args[] = {"--per-device-train-batch-size",
                                           "3",
                                           "--learning-rate",
                                           "1e-3",
                                           "--weight-decay",
                                           "0.1",
                                           "--max-grad-norm",
                                           "1",
                                           "--lr-scheduler-type",
                                           "constant",
                                           "--set",
                                           "zero_offload.decay_all=true",
                                           NULL};
static const struct trajectory clipped = {
    .open = tiny_open_fp32,
    .path = "vectors/tiny_fp32/"
            "tiny_adamw_wd0.1_clip1_const_20steps.safetensors",
    .args = clipped_args,
    .has_rates = true,
};

/* All of it from DeepSpeed's JSON. */
static const struct trajectory accumulated = {
    .open = tiny_open_fp16_bin,
    .path = "vectors/tiny_fp16_bin/adamw_trajectory.safetensors",
    .json = "{\"train_batch_size\": 4,"
            " \"train_micro_batch_size_per_gpu\": 2,"
            " \"optimizer\": {\"type\": \"AdamW\", \"params\": {"
            "  \"lr\": 1e-3, \"betas\": [0.9, 0.95], \"eps\": 1e-8,"
            "  \"weight_decay\": 0.1}},"
            " \"gradient_clipping\": 1.0,"
            " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {"
            "  \"warmup_min_lr\": 1e-3, \"warmup_max_lr\": 1e-3,"
            "  \"warmup_num_steps\": 2}},"
            " \"zero_offload\": {\"decay_all\": true}}",
};

/* The largest differences from what was recorded. */
struct gaps {
    double loss;      /* of a step */
    double grad_norm; /* relative */
    double rate;      /* relative */
    struct tiny_gap weights;
};

static struct tiny_settings settings_of(const struct trajectory *trajectory,
                                        const struct tiny_case *vectors,
                                        bool on_gpu)
{
    return (struct tiny_settings){
        .model = vectors->model,
        .rows = vectors->rows,
        .json = trajectory->json,
        .args = trajectory->args,
        .steps = STEPS,
        .on_gpu = on_gpu,
    };
}

static void widen(double *gap, double got, double want, double scale)
{
    const double more = fabs(got - want) / scale;

    if (!(more <= *gap)) { /* a NaN stays */
        *gap = more;
    }
}

static struct gaps compare(const struct trajectory *trajectory,
                           const struct vector_run *run)
{
    struct zo_tensor_source *source =
        tiny_vectors(fx_shared("%s", trajectory->path));
    struct tiny_floats *loss = tiny_floats(source, "loss_per_step");
    struct tiny_floats *norm = tiny_floats(source, "grad_norm_per_step");
    struct tiny_floats *rate =
        trajectory->has_rates ? tiny_floats(source, "lr_per_step") : NULL;
    struct gaps gaps = {0};

    for (int i = 0; i < STEPS; i++) {
        const struct tiny_step *step = &run->steps[i];
        const double want_norm = (double)norm->values[i];
        const double want_rate = rate != NULL ? (double)rate->values[i] : 1e-3;

        widen(&gaps.loss, step->loss, (double)loss->values[i], 1.0);
        widen(&gaps.grad_norm, step->grad_norm, want_norm, want_norm);
        widen(&gaps.rate, step->learning_rate, want_rate, want_rate);
    }
    gaps.weights = tiny_gap(run, tiny_read_weight, source, "");
    free(loss);
    free(norm);
    free(rate);
    zo_tensor_source_close(source);
    return gaps;
}

static void check_trajectory(const struct trajectory *trajectory, bool on_gpu)
{
    struct tiny_case vectors;
    struct tiny_settings settings;
    struct vector_run run;
    struct gaps gaps;

    if ((on_gpu && !tiny_has_gpu()) || !trajectory->open(&vectors)) {
        return;
    }
    settings = settings_of(trajectory, &vectors, on_gpu);
    tiny_open(&run, &settings);
    TAP_CHECK_INT(tiny_train(&run), ZO_OK);
    TAP_CHECK_INT(run.step_count, STEPS);
    gaps = compare(trajectory, &run);
    tiny_close(&run);
    tiny_close_case(&vectors);
    TINY_CHECK_WITHIN(gaps.loss, 1e-5);
    TINY_CHECK_WITHIN(gaps.grad_norm, 1e-5);
    TINY_CHECK_WITHIN(gaps.rate, 1e-7); /* they are stored as fp32 */
    TINY_CHECK_WITHIN(gaps.weights.relative, 1e-5);
}

static void linear_schedule(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    check_trajectory(&linear, false);
}

static void linear_schedule_on_a_gpu(void)
{
    check_trajectory(&linear, true);
}

static void decay_and_clipping(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    check_trajectory(&clipped, false);
}

static void decay_and_clipping_on_a_gpu(void)
{
    check_trajectory(&clipped, true);
}

static void shards_and_accumulation(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    check_trajectory(&accumulated, false);
}

static void shards_and_accumulation_on_a_gpu(void)
{
    check_trajectory(&accumulated, true);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a linear schedule without decay: losses and weights within 1e-5",
         linear_schedule},
        {"decay of every parameter and clipping: within 1e-5",
         decay_and_clipping},
        {"torch shards, two micro batches, DeepSpeed's JSON: within 1e-5",
         shards_and_accumulation},
        {"a GPU follows the linear schedule within the same bounds",
         linear_schedule_on_a_gpu},
        {"and decays and clips within them", decay_and_clipping_on_a_gpu},
        {"and accumulates torch shards within them",
         shards_and_accumulation_on_a_gpu},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
