/*
 * The tiny model in bf16 and fp16: losses near those of fp32, what is written
 * behind a run, and what becomes of numbers that are not finite.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/checkpoint/safetensors_writer.h"
#include "tests/vector_run.h"

#define STEPS 20
#define LINEAR_RUN                                            \
    "vectors/tiny_fp32/tiny_adamw_wd0_noclip_linear_20steps." \
    "safetensors"

#define BF16 "\"bf16\": {\"enabled\": true}"
#define FP16 "\"fp16\": {\"enabled\": true}"

static const char *const linear_args[] = {"--per-device-train-batch-size", "3",
                                          "--learning-rate", "1e-3", NULL};

/* ---- losses -------------------------------------------------------------- */

/* The largest differences from the fp32 run. */
struct gaps {
    double loss, norm; /* the norm's is relative */
};

static struct gaps gaps_to_fp32(const struct vector_run *run)
{
    struct zo_tensor_source *source = tiny_vectors(fx_shared(LINEAR_RUN));
    struct tiny_floats *loss = tiny_floats(source, "loss_per_step");
    struct tiny_floats *norm = tiny_floats(source, "grad_norm_per_step");
    struct gaps gaps = {0.0, 0.0};

    for (int i = 0; i < STEPS; i++) {
        const struct tiny_step *step = &run->steps[i];
        const double want = (double)norm->values[i];
        const double off = fabs(step->loss - (double)loss->values[i]);
        const double norm_off = fabs(step->grad_norm - want) / want;

        gaps.loss = off <= gaps.loss ? gaps.loss : off; /* a NaN stays */
        gaps.norm = norm_off <= gaps.norm ? gaps.norm : norm_off;
    }
    free(loss);
    free(norm);
    zo_tensor_source_close(source);
    return gaps;
}

/*
 * Losses and norms lie near those recorded in fp32: the types round by 2^-9
 * and 2^-12 of a value, and what is observed is a third of the bounds.
 */
static void check_losses(const char *json, const struct gaps *bounds,
                         double last_scale, bool on_gpu)
{
    struct tiny_case vectors;
    struct tiny_settings settings = {
        .json = json, .args = linear_args, .steps = STEPS, .on_gpu = on_gpu};
    struct vector_run run;
    struct gaps gaps;

    if ((on_gpu && !tiny_has_gpu()) || !tiny_open_fp32(&vectors)) {
        return;
    }
    settings.model = vectors.model;
    settings.rows = vectors.rows;
    tiny_open(&run, &settings);
    TAP_CHECK_INT(tiny_train(&run), ZO_OK);
    TAP_CHECK_INT(run.step_count, STEPS);
    gaps = gaps_to_fp32(&run);
    TAP_CHECK(run.steps[STEPS - 1].loss_scale == last_scale);
    tiny_close(&run);
    tiny_close_case(&vectors);
    TINY_CHECK_WITHIN(gaps.loss, bounds->loss);
    TINY_CHECK_WITHIN(gaps.norm, bounds->norm);
}

static const struct gaps fp16_bounds = {0.0025, 0.006};

static const struct gaps bf16_bounds = {0.02, 0.03};

/* The scale doubles behind every second step, the last step's not included. */
#define RISING                                                  \
    "{\"fp16\": {\"enabled\": true, \"loss_scale_window\": 2, " \
    "\"initial_scale_power\": 5}}"

static void bf16_losses(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    check_losses("{" BF16 "}", &bf16_bounds, 1.0, false);
}

static void fp16_losses(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    check_losses("{" FP16 "}", &fp16_bounds, 0x1p16, false);
}

static void rising_scale(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    check_losses(RISING, &fp16_bounds, 0x1p14, false);
}

static void bf16_losses_on_a_gpu(void)
{
    check_losses("{" BF16 "}", &bf16_bounds, 1.0, true);
}

static void fp16_losses_on_a_gpu(void)
{
    check_losses("{" FP16 "}", &fp16_bounds, 0x1p16, true);
}

static void rising_scale_on_a_gpu(void)
{
    check_losses(RISING, &fp16_bounds, 0x1p14, true);
}

/* ---- what is written
 * ---------------------------------------------------------- */

/* The directory holds the run's masters, rounded once to `dtype`. */
static bool holds_masters(const struct zo_model_dir *dir,
                          const struct vector_run *run, enum zo_dtype dtype)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(zo_trainer_glm(run->trainer));
    bool is_right = zo_model_dir_count(dir) == parameters->count;

    for (size_t p = 0; p < parameters->trained_count && is_right; p++) {
        const struct zo_parameter *parameter = &parameters->items[p];
        const size_t count = (size_t)parameter->elems;
        float *masters = calloc(count, sizeof(float));
        float *got = calloc(count, sizeof(float));
        size_t index = 0;
        enum zo_dtype written = ZO_F32;

        is_right = masters != NULL && got != NULL &&
                   tiny_read_weight(run, p, masters) == ZO_OK &&
                   zo_model_dir_find(dir, parameter->name, &index) &&
                   zo_element_dtype(zo_model_dir_info(dir, index)->element,
                                    &written) &&
                   written == dtype &&
                   zo_model_dir_read_as(dir, index, 0, count, ZO_F32, got,
                                        NULL) == ZO_OK;
        for (size_t i = 0; i < count && is_right; i++) {
            is_right =
                zo_f32_bits(got[i]) == zo_f32_bits(zo_round(masters[i], dtype));
        }
        free(masters);
        free(got);
    }
    return is_right;
}

/* Writes, reads, compares; and the directory is one to train from. */
static bool writes_masters(struct vector_run *run, const char *source_path,
                           enum zo_dtype dtype)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);
    const struct zo_weights_export export_ = {
        .path = fx_path("written-%s-%s", zo_dtype_name(run->config.dtype),
                        zo_dtype_name(dtype)),
        .source_path = source_path,
        .dtype = dtype,
        .has_inv_freq = true,
    };
    struct zo_model_dir *dir = NULL;
    bool is_right;

    is_right =
        zo_weights_write(&weights, &export_, &run->notes, NULL) == ZO_OK &&
        zo_model_dir_open(export_.path, &run->notes, &dir) == ZO_OK &&
        holds_masters(dir, run, dtype) &&
        tiny_load(run, export_.path) == ZO_OK && holds_masters(dir, run, dtype);
    zo_model_dir_close(dir);
    return is_right;
}

static void check_writing(const char *json)
{
    static const enum zo_dtype dtypes[] = {ZO_F32, ZO_BF16, ZO_F16};
    struct tiny_case vectors;
    struct tiny_settings settings = {
        .json = json, .args = linear_args, .steps = 2};
    struct vector_run run;

    if (!tiny_open_fp32(&vectors)) {
        return;
    }
    settings.model = vectors.model;
    settings.rows = vectors.rows;
    tiny_open(&run, &settings);
    TAP_CHECK_INT(tiny_train(&run), ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(dtypes); i++) {
        TAP_CHECK(writes_masters(&run, vectors.model, dtypes[i]));
    }
    tiny_close(&run);
    tiny_close_case(&vectors);
}

static void written_models(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    check_writing("{}");
    check_writing("{" BF16 "}");
    check_writing("{" FP16 "}");
}

/* ---- fp16: a first scale that is too large
 * -------------------------------------- */

/* A run with the first scale 2^power; trained, not closed. */
static enum zo_status train_scaled(const struct tiny_case *vectors, int power,
                                   int64_t steps, struct vector_run *run)
{
    static const char *const args[] = {"--per-device-train-batch-size",
                                       "3",
                                       "--learning-rate",
                                       "1e-3",
                                       "--lr-scheduler-type",
                                       "constant",
                                       NULL};
    char json[128];
    const struct tiny_settings settings = {
        .model = vectors->model,
        .rows = vectors->rows,
        .json = json,
        .args = args,
        .steps = steps,
    };

    (void)snprintf(json, sizeof(json),
                   "{\"fp16\": {\"enabled\": true, "
                   "\"initial_scale_power\": %d}}",
                   power);
    tiny_open(run, &settings);
    return tiny_train(run);
}

/* As many steps at the start as do not change the weights. */
static int64_t leading_skips(const struct vector_run *run)
{
    int64_t skips = 0;

    while (skips < run->step_count && run->steps[skips].overflow) {
        skips++;
    }
    return skips;
}

static void check_recovery(const struct tiny_case *vectors, int power)
{
    struct vector_run late, early;
    int64_t skips;
    int settled;

    TAP_CHECK_INT(train_scaled(vectors, power, STEPS, &late), ZO_OK);
    skips = leading_skips(&late);
    TAP_CHECK(skips > 1 && skips < STEPS - 4);
    for (int64_t i = 0; i < skips; i++) { /* the weights are as they were */
        TAP_CHECK(late.steps[i].loss == late.steps[0].loss);
        TAP_CHECK(isnan(late.steps[i].grad_norm));
    }
    for (int64_t i = skips; i < STEPS; i++) {
        TAP_CHECK(!late.steps[i].overflow);
    }
    settled = (int)log2(late.steps[STEPS - 1].loss_scale);
    /* The second overflow halves, as hysteresis 2 has it. */
    TAP_CHECK_INT(settled, power - (skips - 1));
    TAP_CHECK_INT(train_scaled(vectors, settled, STEPS - skips, &early), ZO_OK);
    for (int64_t i = 0; i < STEPS - skips; i++) {
        TAP_CHECK(!early.steps[i].overflow);
        TAP_CHECK(early.steps[i].loss == late.steps[skips + i].loss);
        TAP_CHECK(early.steps[i].grad_norm == late.steps[skips + i].grad_norm);
    }
    TAP_CHECK(tiny_same_weights(&early, &late));
    tiny_close(&late);
    tiny_close(&early);
}

static void scales_that_overflow(void)
{
    struct tiny_case vectors;

    if (!tiny_open_fp32(&vectors)) {
        return;
    }
    check_recovery(&vectors, 24);
    check_recovery(&vectors, 30);
    tiny_close_case(&vectors);
}

/* ---- fp16: weights out of its range
 * ------------------------------------------- */

/* A learning rate that leads out of fp16, within `steps` steps. */
static enum zo_status train_out_of_range(const struct tiny_case *vectors,
                                         int64_t steps)
{
    static const char *const args[] = {"--learning-rate", "1e6", NULL};
    const struct tiny_settings settings = {
        .model = vectors->model,
        .rows = vectors->rows,
        .json = "{" FP16 "}",
        .args = args,
        .steps = steps,
    };
    struct vector_run run;
    enum zo_status status;

    tiny_open(&run, &settings);
    status = tiny_train(&run);
    tiny_close(&run);
    return status;
}

static void updates_out_of_range(void)
{
    struct tiny_case vectors;

    if (!tiny_open_fp32(&vectors)) {
        return;
    }
    TAP_CHECK(fx_refused(train_out_of_range(&vectors, 1), ZO_E_NUMERIC,
                         "step 1", "the embedding"));
    TAP_CHECK(fx_refused(train_out_of_range(&vectors, 3), ZO_E_NUMERIC,
                         "step 2: the update before it", "the embedding"));
    tiny_close_case(&vectors);
}

/* ---- bf16: one bad gradient
 * ----------------------------------------------------- */

/*
 * A token, alone, whose rows give a gradient that is not finite, in layer 0
 * and nowhere else, with a loss that is finite: its queries are huge, but all
 * keys are zero; so scores are zero and only the gradient of the key weights
 * shows it.
 */
#define BAD_TOKEN "157"
#define BAD_ROW   157
#define LAYER     "transformer.encoder.layers.0."

static void plant_token(const struct zo_model_config *config, const char *name,
                        struct tiny_floats *tensor)
{
    const int64_t width = config->hidden_size;
    const int64_t first_key = config->num_heads * config->head_width;
    const int64_t first_value =
        first_key + config->num_kv_groups * config->head_width;
    float *values = tensor->values;

    if (strcmp(name, "transformer.embedding.word_embeddings.weight") == 0) {
        for (int64_t id = 0; id < config->vocab_size; id++) {
            values[id * width] = 0.0f;
        }
        memset(values + BAD_ROW * width, 0, (size_t)width * sizeof(float));
        values[BAD_ROW * width] = 1.0f;
    } else if (strcmp(name, LAYER "input_layernorm.weight") == 0) {
        values[0] = 0x1p20f;
    } else if (strcmp(name, LAYER "self_attention.query_key_value.weight") ==
               0) {
        for (int64_t row = 0; row < tensor->shape[0]; row++) {
            values[row * width] = row < first_key ? 0x1p100f : 0.0f;
        }
        memset(values + first_key * width, 0,
               (size_t)((first_value - first_key) * width) * sizeof(float));
    } else if (strcmp(name, LAYER "self_attention.query_key_value.bias") == 0) {
        memset(values + first_key, 0,
               (size_t)(first_value - first_key) * sizeof(float));
    }
}

/* Logits of token 0 overflow: nothing behind them is finite. */
static void plant_overflow(const struct zo_model_config *config,
                           const char *name, struct tiny_floats *tensor)
{
    if (strcmp(name, "transformer.output_layer.weight") == 0) {
        for (int64_t i = 0; i < config->hidden_size; i++) {
            tensor->values[i] = 3e38f;
        }
    }
}

typedef void (*plant_fn)(const struct zo_model_config *config, const char *name,
                         struct tiny_floats *tensor);

/* The fp32 model with that in it: the directory `name`; NULL if it failed. */
static const char *plant_model(const char *name, plant_fn plant)
{
    const char *weights = fx_shared("vectors/tiny_fp32/tiny_model.safetensors");
    const char *folder = fx_path("%s", name);
    struct zo_tensor_source *source = tiny_vectors(weights);
    const size_t count = zo_tensor_source_count(source);
    struct zo_tensor_info infos[64];
    struct zo_safetensors_writer *writer = NULL;
    struct zo_model_config config;
    enum zo_status status = ZO_OK;

    if (fx_is_there(folder)) {
        zo_tensor_source_close(source);
        return folder;
    }
    fx_folder(folder);
    fx_link(fx_shared("vectors/tiny_fp32/tiny_config.json"),
            fx_path("%s/config.json", name));
    for (size_t i = 0; i < count && i < TAP_COUNT(infos); i++) {
        infos[i] = *zo_tensor_source_info(source, i);
    }
    ZO_TRY_GOTO(done, zo_model_config_read(folder, ZO_FAMILY_AUTO, NULL, 0,
                                           NULL, &config));
    ZO_TRY_GOTO(
        done, zo_safetensors_writer_open(fx_path("%s/model.safetensors", name),
                                         infos, count, &writer));
    for (size_t i = 0; i < count; i++) {
        struct tiny_floats *tensor = tiny_floats(source, infos[i].name);

        plant(&config, infos[i].name, tensor);
        status = zo_safetensors_writer_append(writer, tensor->values,
                                              tensor->count * sizeof(float));
        free(tensor);
        ZO_TRY_GOTO(done, status);
    }
    status = zo_safetensors_writer_finish(writer);
done:
    zo_safetensors_writer_close(writer);
    zo_tensor_source_close(source);
    return status == ZO_OK ? folder : NULL;
}

#define ROW(a, b, c)                                                    \
    "{\"input_ids\": [150, 152, " a ", " b ", " c ", 2], \"labels\": [" \
    "-100, -100, " a ", " b ", " c ", 2]}\n"
#define GOOD_ROWS ROW("40", "5", "112") ROW("70", "39", "41") ROW("9", "8", "7")
#define BAD       ROW("17", BAD_TOKEN, "36")

#define TOKEN_MODEL plant_model("planted", plant_token)

/* A run of one row a step over a planted model. */
static void open_planted(const char *model, const char *rows, const char *json,
                         const char *learning_rate, int64_t steps,
                         struct vector_run *run)
{
    const char *const args[] = {"--learning-rate", learning_rate,
                                "--lr-scheduler-type", "constant", NULL};
    const struct tiny_settings settings = {
        .model = model,
        .rows = fx_path("planted.jsonl"),
        .json = json,
        .args = args,
        .steps = steps,
    };

    fx_write_text(settings.rows, rows);
    tiny_open(run, &settings);
}

static bool has_no_vectors(void)
{
    if (fx_shared("vectors") != NULL) {
        return false;
    }
    tap_skip(TINY_NO_VECTORS);
    return true;
}

static void bad_gradients_stop(void)
{
    struct vector_run run;

    if (has_no_vectors()) {
        return;
    }
    /* Nothing is learned: the third step meets the weights as planted. */
    open_planted(TOKEN_MODEL,
                 ROW("40", "5", "112") ROW("9", "8", "7") BAD GOOD_ROWS,
                 "{" BF16 "}", "0", 6, &run);
    TAP_CHECK(
        fx_refused(tiny_train(&run), ZO_E_NUMERIC, "step 3:", "the layer 0 "));
    TAP_CHECK_INT(run.step_count, 2);
    TAP_CHECK(isfinite(run.steps[1].loss) && isfinite(run.steps[1].grad_norm));
    tiny_close(&run);
    open_planted(plant_model("overflowing", plant_overflow), GOOD_ROWS,
                 "{" BF16 "}", "1e-6", 3, &run);
    TAP_CHECK(fx_refused(tiny_train(&run), ZO_E_NUMERIC,
                         "step 1:", "the first in the embedding (loss"));
    TAP_CHECK_INT(run.step_count, 0);
    tiny_close(&run);
}

#define CHECKED "{\"bf16\": {\"enabled\": true, \"check_grad_overflow\": true}"

static void checked_gradients_skip(void)
{
    struct vector_run skipping, plain;

    if (has_no_vectors()) {
        return;
    }
    open_planted(TOKEN_MODEL, BAD BAD GOOD_ROWS, CHECKED "}", "1e-6", 5,
                 &skipping);
    open_planted(TOKEN_MODEL, GOOD_ROWS, CHECKED "}", "1e-6", 3, &plain);
    TAP_CHECK_INT(tiny_train(&skipping), ZO_OK);
    TAP_CHECK_INT(tiny_train(&plain), ZO_OK);
    TAP_CHECK_INT(leading_skips(&skipping), 2);
    for (int i = 0; i < 3; i++) {
        TAP_CHECK(!plain.steps[i].overflow);
        TAP_CHECK(!skipping.steps[i + 2].overflow);
        TAP_CHECK(skipping.steps[i + 2].loss == plain.steps[i].loss);
    }
    TAP_CHECK(tiny_same_weights(&skipping, &plain));
    tiny_close(&skipping);
    tiny_close(&plain);
}

static void skipped_runs_change_nothing(void)
{
    struct vector_run loaded, skipped, trained;

    if (tap_skips_numbers()) {
        return;
    }
    if (has_no_vectors()) {
        return;
    }
    open_planted(TOKEN_MODEL, BAD, CHECKED "}", "1e-6", 2, &loaded);
    open_planted(TOKEN_MODEL, BAD, CHECKED "}", "1e-6", 2, &skipped);
    TAP_CHECK_INT(tiny_train(&skipped), ZO_OK);
    TAP_CHECK(tiny_same_weights(&loaded, &skipped));
    open_planted(TOKEN_MODEL, GOOD_ROWS, CHECKED "}", "1e-6", 1, &trained);
    TAP_CHECK_INT(tiny_train(&trained), ZO_OK);
    TAP_CHECK(!tiny_same_weights(&loaded, &trained));
    tiny_close(&loaded);
    tiny_close(&skipped);
    tiny_close(&trained);
}

static void endless_skips_stop(void)
{
    struct vector_run run;

    if (has_no_vectors()) {
        return;
    }
    open_planted(TOKEN_MODEL, BAD,
                 CHECKED ", \"zero_offload\": {\"max_skips\": 3}}", "1e-6", 9,
                 &run);
    TAP_CHECK(fx_refused(tiny_train(&run), ZO_E_NUMERIC, "3 step(s)",
                         "without a good one"));
    TAP_CHECK_INT(run.step_count, 2);
    tiny_close(&run);
}

static void weights_too_large_for_fp16(void)
{
    struct tiny_settings settings = {.json = "{" FP16 "}", .steps = 1};
    struct vector_run run;

    if (has_no_vectors()) {
        return;
    }
    settings.model = TOKEN_MODEL;
    settings.rows = fx_path("planted.jsonl");
    fx_write_text(settings.rows, GOOD_ROWS);
    tiny_start(&run, &settings);
    TAP_CHECK(fx_refused(tiny_load(&run, settings.model), ZO_E_NUMERIC,
                         LAYER "input_layernorm.weight", "fp16"));
    tiny_close(&run);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"losses and norms in bf16 stay near those in fp32", bf16_losses},
        {"losses and norms in fp16 stay near those in fp32", fp16_losses},
        {"a loss scale that rises changes neither losses nor norms",
         rising_scale},
        {"on a GPU losses and norms in bf16 stay near those in fp32",
         bf16_losses_on_a_gpu},
        {"and in fp16", fp16_losses_on_a_gpu},
        {"and with a loss scale that rises", rising_scale_on_a_gpu},
        {"written models hold the masters, rounded once", written_models},
        {"a first loss scale that overflows is lowered, and costs no bit",
         scales_that_overflow},
        {"an update out of fp16's range stops the run", updates_out_of_range},
        {"weights out of fp16's range are not loaded",
         weights_too_large_for_fp16},
        {"a bad gradient in bf16 stops the run, named by step and unit",
         bad_gradients_stop},
        {"with check_grad_overflow such a step changes no bit",
         checked_gradients_skip},
        {"a run whose steps are all skipped leaves the weights as they were",
         skipped_runs_change_nothing},
        {"skipped steps without end stop the run", endless_skips_stop},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
