/*
 * The official code's own numbers: logits, losses and gradients of tiny
 * models in fp32, through the trainer and the decoder.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/decoder.h"
#include "tests/vector_run.h"

/* ---- the rotary table
 * --------------------------------------------------------- */

#define ROPE_POSITIONS 1024
#define ROPE_PAIRS     32
#define ROPE_ENTRIES   ((size_t)(ROPE_POSITIONS * ROPE_PAIRS * 2))

/* Ours (of the real model's sizes) and the official table; both freed. */
static bool open_tables(const char *name, enum zo_dtype type, float **got_out,
                        struct tiny_floats **want_out)
{
    const char *path =
        fx_shared("vectors/tiny_fp32/rope_cache_1024.safetensors");
    struct zo_tensor_source *source;
    struct zo_model_config config;

    if (path == NULL) {
        tap_skip(TINY_NO_VECTORS);
        return false;
    }
    source = tiny_vectors(path);
    *want_out = tiny_floats(source, name);
    zo_tensor_source_close(source);
    *got_out = calloc(ROPE_ENTRIES, sizeof(float));
    if (*got_out == NULL || (*want_out)->count != ROPE_ENTRIES ||
        !zo_model_preset("chatglm2-6b", &config)) {
        tap_fail(__FILE__, __LINE__, "no table to compare");
        return false;
    }
    zo_glm_rope_table(&config, type, true, ROPE_POSITIONS, *got_out);
    return true;
}

static void half_table_is_the_official_one(void)
{
    struct tiny_floats *want;
    float *got;

    if (!open_tables("fp16", ZO_F16, &got, &want)) {
        return;
    }
    for (size_t i = 0; i < ROPE_ENTRIES; i++) {
        TAP_CHECK_INT(zo_f32_to_f16(got[i]), zo_f32_to_f16(want->values[i]));
    }
    free(want);
    free(got);
}

static void fp32_table_is_the_official_one(void)
{
    struct tiny_floats *want;
    float *got;

    if (!open_tables("fp32", ZO_F32, &got, &want)) {
        return;
    }
    /* Of the same fp32 angles ours are the nearest numbers, the official ones
     * within an ulp: neighbours, which below 1 are at most 2^-24 apart. */
    TINY_CHECK_WITHIN(tiny_largest_gap(got, want->values, ROPE_ENTRIES),
                      0x1p-24);
    free(want);
    free(got);
}

/* A constant that is written for the official code to find. */
static bool same_frequencies(const struct zo_model_config *config,
                             enum zo_dtype type, const char *path,
                             const char *name)
{
    struct zo_tensor_source *source = tiny_vectors(path);
    struct tiny_floats *want = tiny_floats(source, name);
    struct zo_parameters parameters;
    const struct zo_parameter *constant;
    char got[ROPE_PAIRS * sizeof(float)];
    bool is_same = zo_parameters_init(&parameters, config) == ZO_OK;

    constant = &parameters.items[parameters.trained_count];
    zo_parameter_fill(constant, config, 0, 0, constant->elems, type, got);
    is_same = is_same && constant->elems == (int64_t)want->count;
    for (int64_t i = 0; is_same && i < constant->elems; i++) {
        is_same = zo_load(got, type, i) == want->values[i];
    }
    zo_parameters_fini(&parameters);
    zo_tensor_source_close(source);
    free(want);
    return is_same;
}

static void frequencies_are_the_official_ones(void)
{
    const char *half =
        fx_shared("vectors/tiny_fp32/rope_cache_1024.safetensors");
    struct tiny_case vectors = {0};
    struct zo_model_config config;

    if (!tiny_open_fp32(&vectors)) {
        return;
    }
    TAP_CHECK(zo_model_preset("chatglm2-6b", &config));
    TAP_CHECK(same_frequencies(&config, ZO_F16, half, "inv_freq_fp16"));
    TAP_CHECK_INT(zo_model_config_read(vectors.model, ZO_FAMILY_AUTO, NULL, 0,
                                       NULL, &config),
                  ZO_OK);
    TAP_CHECK(same_frequencies(
        &config, ZO_F32, fx_shared("vectors/tiny_fp32/tiny_model.safetensors"),
        "transformer.rotary_pos_emb.inv_freq"));
    tiny_close_case(&vectors);
}

/* ---- logits -------------------------------------------------------------- */

static enum zo_status open_decoder(const char *model, bool on_gpu,
                                   int64_t tokens_max,
                                   struct zo_model_config *config,
                                   struct zo_devices *devices,
                                   struct zo_decoder **decoder_out)
{
    const struct zo_devices_options machine = {
        .backend = on_gpu ? ZO_BACKEND_CUDA : ZO_BACKEND_HOST,
        .count = 1,
        .threads = 2,
    };
    const struct zo_decoder_options options = {
        .model = config,
        .devices = devices,
        .dtype = ZO_F32,
        .prompt_tokens_max = tokens_max,
        .tokens_max = tokens_max + 1,
        .labels_max = tokens_max,
    };
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    enum zo_status status;

    ZO_TRY_GOTO(done, zo_model_config_read(model, ZO_FAMILY_AUTO, NULL, 0,
                                           &notes, config));
    ZO_TRY_GOTO(done, zo_devices_open(&machine, devices));
    ZO_TRY_GOTO(done, zo_model_dir_open(model, &notes, &dir));
    ZO_TRY_GOTO(done, zo_decoder_open(&options, decoder_out));
    status = zo_decoder_load(*decoder_out, dir, &notes);
done:
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
    return status;
}

/* Reads a row of `count` ids and gives the logits of each. */
static enum zo_status read_row(struct zo_decoder *decoder, const int64_t *row,
                               int64_t count, const float **logits_out)
{
    int32_t ids[64], positions[64];

    ZO_ASSERT(count <= 64);
    for (int64_t t = 0; t < count; t++) {
        ids[t] = (int32_t)row[t];
        positions[t] = (int32_t)t;
    }
    return zo_decoder_prompt(decoder, ids, count, positions, count, logits_out);
}

/* The largest gap over the rows of a case with labels, pads left out. */
static double training_gap(struct zo_decoder *decoder, int64_t vocab,
                           const struct zo_tensor_source *source)
{
    struct tiny_ints *ids = tiny_ints(source, "input_ids");
    struct tiny_floats *want = tiny_floats(source, "logits");
    const int64_t width = ids->shape[1];
    double gap = 0.0;

    for (int64_t r = 0; r < ids->shape[0]; r++) {
        const float *got = NULL;
        int64_t count = width;

        while (ids->values[r * width + count - 1] == 0) {
            count--;
        }
        if (read_row(decoder, ids->values + r * width, count, &got) != ZO_OK) {
            gap = NAN;
            break;
        }
        gap = fmax(gap, tiny_largest_gap(got, want->values + r * width * vocab,
                                         (size_t)(count * vocab)));
    }
    free(ids);
    free(want);
    return gap;
}

static void check_training_logits(bool (*open)(struct tiny_case *), bool on_gpu)
{
    struct tiny_case vectors = {0};
    struct zo_model_config config;
    struct zo_devices devices = {0};
    struct zo_decoder *decoder = NULL;
    double gap = NAN;

    if ((on_gpu && !tiny_has_gpu()) || !open(&vectors)) {
        return;
    }
    if (open_decoder(vectors.model, on_gpu, 32, &config, &devices, &decoder) ==
        ZO_OK) {
        gap = training_gap(decoder, config.vocab_size, vectors.train);
    }
    zo_decoder_close(decoder);
    zo_devices_close(&devices);
    tiny_close_case(&vectors);
    TINY_CHECK_WITHIN(gap, 2e-5);
}

static void logits_of_training_rows(void)
{
    check_training_logits(tiny_open_fp32, false);
}

static void logits_of_training_rows_on_a_gpu(void)
{
    check_training_logits(tiny_open_fp32, true);
}

static void logits_of_training_rows_from_bin(void)
{
    check_training_logits(tiny_open_fp16_bin, false);
}

static void logits_of_training_rows_from_bin_on_a_gpu(void)
{
    check_training_logits(tiny_open_fp16_bin, true);
}

struct answer_gaps {
    double prompt, next;
};

static struct answer_gaps answer_gaps(struct zo_decoder *decoder, int64_t vocab,
                                      const struct zo_tensor_source *source)
{
    struct tiny_ints *ids = tiny_ints(source, "input_ids");
    struct tiny_ints *mask = tiny_ints(source, "attention_mask");
    struct tiny_ints *next = tiny_ints(source, "next_input_ids");
    struct tiny_floats *want = tiny_floats(source, "logits");
    struct tiny_floats *want_next = tiny_floats(source, "next_logits");
    const int64_t width = ids->shape[1];
    struct answer_gaps gaps = {0};

    for (int64_t r = 0; r < ids->shape[0]; r++) {
        const float *got = NULL;
        int64_t pads = 0;

        while (mask->values[r * width + pads] == 0) {
            pads++;
        }
        if (read_row(decoder, ids->values + r * width + pads, width - pads,
                     &got) != ZO_OK) {
            gaps = (struct answer_gaps){NAN, NAN};
            break;
        }
        gaps.prompt = fmax(
            gaps.prompt,
            tiny_largest_gap(got, want->values + (r * width + pads) * vocab,
                             (size_t)((width - pads) * vocab)));
        if (zo_decoder_next(decoder, (int32_t)next->values[r], &got) != ZO_OK) {
            gaps.next = NAN;
            break;
        }
        gaps.next =
            fmax(gaps.next, tiny_largest_gap(got, want_next->values + r * vocab,
                                             (size_t)vocab));
    }
    free(ids);
    free(mask);
    free(next);
    free(want);
    free(want_next);
    return gaps;
}

static void check_answer_logits(bool on_gpu)
{
    struct tiny_case vectors = {0};
    struct zo_model_config config;
    struct zo_devices devices = {0};
    struct zo_decoder *decoder = NULL;
    struct zo_tensor_source *source;
    struct answer_gaps gaps = {NAN, NAN};

    if ((on_gpu && !tiny_has_gpu()) || !tiny_open_fp32(&vectors)) {
        return;
    }
    source = tiny_vectors(
        fx_shared("vectors/tiny_fp32/tiny_eval_leftpad_case.safetensors"));
    if (open_decoder(vectors.model, on_gpu, 15, &config, &devices, &decoder) ==
        ZO_OK) {
        gaps = answer_gaps(decoder, config.vocab_size, source);
    }
    zo_decoder_close(decoder);
    zo_devices_close(&devices);
    zo_tensor_source_close(source);
    tiny_close_case(&vectors);
    TINY_CHECK_WITHIN(gaps.prompt, 2e-5);
    TINY_CHECK_WITHIN(gaps.next, 2e-5);
}

static void logits_of_prompts_and_a_cached_token(void)
{
    check_answer_logits(false);
}

static void logits_of_prompts_and_a_cached_token_on_a_gpu(void)
{
    check_answer_logits(true);
}

/* ---- loss and gradients
 * ------------------------------------------------------- */

/* What one step of a case gave, against what the official code gave. */
struct step_gaps {
    double eval_loss, loss;
    struct tiny_gap gradient;
};

static struct step_gaps step_gaps(const struct tiny_case *vectors,
                                  const char *const *args, bool on_gpu)
{
    const struct tiny_settings settings = {
        .model = vectors->model,
        .rows = vectors->rows,
        .args = args,
        .steps = 1,
        .on_gpu = on_gpu,
    };
    struct tiny_floats *loss = tiny_floats(vectors->train, "loss");
    const double want = (double)loss->values[0];
    struct step_gaps gaps = {NAN, NAN, {.relative = NAN}};
    struct zo_eval_metrics eval;
    struct vector_run run;

    tiny_open(&run, &settings);
    if (zo_trainer_evaluate(run.trainer, &eval) == ZO_OK) {
        gaps.eval_loss = fabs(eval.loss - want);
    }
    if (tiny_train(&run) == ZO_OK && run.step_count == 1) {
        gaps.loss = fabs(run.steps[0].loss - want);
        gaps.gradient =
            tiny_gap(&run, tiny_read_gradient, vectors->train, "grad.");
    }
    tiny_close(&run);
    free(loss);
    return gaps;
}

static void check_step(bool (*open)(struct tiny_case *),
                       const char *const *args, bool on_gpu)
{
    struct tiny_case vectors = {0};
    struct step_gaps gaps;

    if ((on_gpu && !tiny_has_gpu()) || !open(&vectors)) {
        return;
    }
    gaps = step_gaps(&vectors, args, on_gpu);
    tiny_close_case(&vectors);
    TINY_CHECK_WITHIN(gaps.eval_loss, 1e-6);
    TINY_CHECK_WITHIN(gaps.loss, 1e-6);
    TINY_CHECK_WITHIN(gaps.gradient.relative, 1e-5);
    TINY_CHECK_WITHIN(gaps.gradient.idle, 1e-6);
}

static const char *const whole_args[] = {"--per-device-train-batch-size", "3",
                                         NULL};
static const char *const rowwise_args[] = {"--gradient-accumulation-steps", "3",
                                           NULL};
static const char *const pairs_args[] = {"--per-device-train-batch-size", "2",
                                         "--gradient-accumulation-steps", "2",
                                         NULL};

static void loss_and_gradients(void)
{
    check_step(tiny_open_fp32, whole_args, false);
}

static void loss_and_gradients_row_by_row(void)
{
    check_step(tiny_open_fp32, rowwise_args, false);
}

static void loss_and_gradients_from_bin(void)
{
    check_step(tiny_open_fp16_bin, pairs_args, false);
}

static void loss_and_gradients_on_a_gpu(void)
{
    check_step(tiny_open_fp32, whole_args, true);
}

static void loss_and_gradients_row_by_row_on_a_gpu(void)
{
    check_step(tiny_open_fp32, rowwise_args, true);
}

static void loss_and_gradients_from_bin_on_a_gpu(void)
{
    check_step(tiny_open_fp16_bin, pairs_args, true);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"half-precision rotary tables are the official ones, bit for bit",
         half_table_is_the_official_one},
        {"fp32 rotary tables are the official ones to the last place",
         fp32_table_is_the_official_one},
        {"the frequencies that are written are the official ones, bit for bit",
         frequencies_are_the_official_ones},
        {"logits of training rows are within 2e-5", logits_of_training_rows},
        {"logits of a model of torch shards are within 2e-5",
         logits_of_training_rows_from_bin},
        {"logits of left-padded prompts and of one cached token are within "
         "2e-5",
         logits_of_prompts_and_a_cached_token},
        {"loss is within 1e-6, every gradient within 1e-5", loss_and_gradients},
        {"so they are with each row a micro batch",
         loss_and_gradients_row_by_row},
        {"so they are from torch shards in two micro batches",
         loss_and_gradients_from_bin},
        {"a GPU gives the logits of training rows within 2e-5",
         logits_of_training_rows_on_a_gpu},
        {"and those of a model of torch shards",
         logits_of_training_rows_from_bin_on_a_gpu},
        {"and those of left-padded prompts and of one cached token",
         logits_of_prompts_and_a_cached_token_on_a_gpu},
        {"and the loss within 1e-6, every gradient within 1e-5",
         loss_and_gradients_on_a_gpu},
        {"and so with each row a micro batch",
         loss_and_gradients_row_by_row_on_a_gpu},
        {"and so from torch shards in two micro batches",
         loss_and_gradients_from_bin_on_a_gpu},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
