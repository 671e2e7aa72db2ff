#include "tests/vector_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/checkpoint/safetensors.h"

#define TOKEN_MULTIPLE 64
#define ARGS_MAX       40

static void give_up(const char *what)
{
    (void)printf("Bail out! %s: %s\n", what, zo_err_last()->text);
    exit(EXIT_FAILURE);
}

static void must(enum zo_status status, const char *what)
{
    if (status != ZO_OK) {
        give_up(what);
    }
}

static void *allocate(size_t size_bytes)
{
    void *memory = calloc(1, size_bytes);

    if (memory == NULL) {
        give_up("no memory");
    }
    return memory;
}

bool tiny_has_gpu(void)
{
    int gpus = 0;

    if (getenv("ZERO_OFFLOAD_GPU") == NULL) {
        tap_skip("ZERO_OFFLOAD_GPU is not set");
        return false;
    }
    if (zo_device_cuda.count(&gpus) != ZO_OK || gpus == 0) {
        tap_skip("no CUDA device");
        return false;
    }
    return true;
}

/* ---- a run --------------------------------------------------------------- */

static void parse_options(struct vector_run *run,
                          const struct tiny_settings *settings)
{
    char steps[32];
    const char *args[ARGS_MAX] = {
        "--model",      settings->model, "--data",
        settings->rows, "--backend",     settings->on_gpu ? "cuda" : "host",
        "--no-shuffle", "--max-steps",   steps,
    };
    int count = 9;

    (void)snprintf(steps, sizeof(steps), "%" PRId64, settings->steps);
    for (int i = 0; settings->args != NULL && settings->args[i] != NULL; i++) {
        args[count++] = settings->args[i];
    }
    must(zo_options_parse(ZO_COMMAND_TRAIN, count, args, &run->options,
                          &run->notes),
         "the options");
}

static void read_config(struct vector_run *run,
                        const struct tiny_settings *settings)
{
    const struct zo_devices_options devices = {
        .backend = run->options.backend,
        .count =
            run->options.num_devices > 0 ? (int)run->options.num_devices : 1,
        .threads = 2,
    };
    struct zo_run_facts facts = {.hidden_size = run->model.hidden_size};

    must(zo_devices_open(&devices, &run->devices), "the devices");
    facts.num_devices = run->devices.machine.device_count;
    must(settings->json != NULL
             ? zo_run_config_parse("test.json", settings->json,
                                   strlen(settings->json), &run->options,
                                   &facts, &run->notes, &run->config)
             : zo_run_config_read(&run->options, &facts, &run->notes,
                                  &run->config),
         "the configuration");
    must(zo_run_config_finish(&run->config, settings->steps, &run->notes),
         "the configuration");
}

static void open_rows(struct vector_run *run,
                      const struct tiny_settings *settings)
{
    const struct zo_run_config *config = &run->config;
    const struct zo_dataset_options rows = {
        .path = settings->rows,
        .max_length = (int32_t)run->model.seq_length,
        .vocab_size = (int32_t)run->model.vocab_size,
    };
    struct zo_batches_options batches = {
        .seed = (uint64_t)config->seed,
        .shuffle = run->options.shuffle,
        .micro_batch_rows = (int32_t)config->micro_batch_rows,
        .accumulation_count = (int32_t)config->gradient_accumulation_steps,
        .device_count = run->devices.machine.device_count,
        .token_multiple = TOKEN_MULTIPLE,
    };

    must(zo_dataset_open(&rows, NULL, &run->notes, &run->data), "the rows");
    must(zo_batches_open(run->data, &batches, &run->batches), "the batches");
    batches.is_evaluation = true;
    batches.accumulation_count = 1;
    must(zo_batches_open(run->data, &batches, &run->eval_batches),
         "the batches to evaluate");
}

static void open_trainer(struct vector_run *run,
                         const struct tiny_settings *settings)
{
    struct zo_batches_plan plan, eval_plan;
    struct zo_trainer_options options = {
        .config = &run->config,
        .model = &run->model,
        .devices = &run->devices,
        .batches = run->batches,
        .eval_batches = run->eval_batches,
        .first_step = 1,
        .last_step = settings->steps,
        .is_serial = settings->is_serial,
        .poisons = settings->poisons,
        .keeps_gradients = true,
    };

    must(zo_batches_plan(run->batches, 0, settings->steps, &plan), "the plan");
    must(zo_batches_plan(run->eval_batches, 0,
                         zo_batches_steps_per_epoch(run->eval_batches),
                         &eval_plan),
         "the plan to evaluate");
    options.bounds = (struct zo_batches_bounds){
        .tokens =
            (int32_t)zo_max_i64(plan.bounds.tokens, eval_plan.bounds.tokens),
        .real_tokens = (int32_t)zo_max_i64(plan.bounds.real_tokens,
                                           eval_plan.bounds.real_tokens),
        .rows = (int32_t)zo_max_i64(plan.bounds.rows, eval_plan.bounds.rows),
        .labels =
            (int32_t)zo_max_i64(plan.bounds.labels, eval_plan.bounds.labels),
    };
    options.positions_max = zo_max_i64(plan.longest_tokens, TOKEN_MULTIPLE);
    must(zo_trainer_open(&options, &run->trainer), "the trainer");
    must(zo_trainer_start(run->trainer), "the trainer");
}

void tiny_start(struct vector_run *run, const struct tiny_settings *settings)
{
    *run = (struct vector_run){0};
    parse_options(run, settings);
    must(zo_model_config_read(settings->model, ZO_FAMILY_AUTO, NULL, 0,
                              &run->notes, &run->model),
         "the model");
    read_config(run, settings);
    open_rows(run, settings);
    open_trainer(run, settings);
}

enum zo_status tiny_load(struct vector_run *run, const char *model)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);
    struct zo_model_dir *dir = NULL;
    enum zo_status status;

    ZO_TRY(zo_model_dir_open(model, &run->notes, &dir));
    status = zo_weights_load(&weights, dir, &run->notes);
    zo_model_dir_close(dir);
    return status;
}

void tiny_open(struct vector_run *run, const struct tiny_settings *settings)
{
    tiny_start(run, settings);
    must(tiny_load(run, settings->model), "the weights");
}

static enum zo_status on_step(void *context,
                              const struct zo_step_metrics *metrics)
{
    struct vector_run *run = context;

    if (run->step_count == TINY_STEPS_MAX) {
        give_up("more steps than a test keeps");
    }
    run->steps[run->step_count++] = (struct tiny_step){
        .loss = metrics->loss,
        .grad_norm = metrics->grad_norm,
        .clip = metrics->clip_coefficient,
        .learning_rate = metrics->learning_rate,
        .loss_scale = metrics->loss_scale,
        .overflow = metrics->overflow,
    };
    return ZO_OK;
}

enum zo_status tiny_train(struct vector_run *run)
{
    const struct zo_trainer_watch watch = {.context = run, .on_step = on_step};
    int64_t steps = 0;

    return zo_trainer_run(run->trainer, &watch, &steps);
}

void tiny_close(struct vector_run *run)
{
    zo_trainer_close(run->trainer);
    zo_batches_close(run->batches);
    zo_batches_close(run->eval_batches);
    zo_dataset_close(run->data);
    zo_run_config_fini(&run->config);
    zo_devices_close(&run->devices);
    zo_options_fini(&run->options);
    zo_notes_fini(&run->notes);
    *run = (struct vector_run){0};
}

/* ---- files --------------------------------------------------------------- */

const char *tiny_model(const char *name, const char *config,
                       const char *weights)
{
    const char *folder = fx_path("%s", name);

    if (!fx_is_there(folder)) {
        fx_folder(folder);
        fx_link(config, fx_path("%s/config.json", name));
        fx_link(weights, fx_path("%s/model.safetensors", name));
    }
    return folder;
}

struct zo_tensor_source *tiny_vectors(const char *path)
{
    struct zo_tensor_source *source = NULL;

    must(zo_safetensors_open(path, &source), path);
    return source;
}

static const struct zo_tensor_info *find(const struct zo_tensor_source *source,
                                         const char *name, size_t *index_out)
{
    if (!zo_tensor_source_find(source, name, index_out)) {
        (void)printf("Bail out! %s: no %s\n", zo_tensor_source_path(source),
                     name);
        exit(EXIT_FAILURE);
    }
    return zo_tensor_source_info(source, *index_out);
}

struct tiny_floats *tiny_floats(const struct zo_tensor_source *source,
                                const char *name)
{
    size_t index = 0;
    const struct zo_tensor_info *info = find(source, name, &index);
    struct tiny_floats *floats =
        allocate(sizeof(*floats) + (size_t)info->elem_count * sizeof(float));

    memcpy(floats->shape, info->shape, sizeof(floats->shape));
    floats->count = (size_t)info->elem_count;
    must(zo_tensor_source_read_as(source, index, 0, info->elem_count, ZO_F32,
                                  floats->values, NULL),
         name);
    return floats;
}

struct tiny_ints *tiny_ints(const struct zo_tensor_source *source,
                            const char *name)
{
    size_t index = 0;
    const struct zo_tensor_info *info = find(source, name, &index);
    struct tiny_ints *ints = allocate(sizeof(*ints) + (size_t)info->size_bytes);

    memcpy(ints->shape, info->shape, sizeof(ints->shape));
    ints->count = (size_t)info->elem_count;
    must(zo_tensor_source_read(source, index, 0, (size_t)info->size_bytes,
                               ints->values),
         name);
    return ints;
}

static void write_numbers(FILE *file, const char *key, const int64_t *numbers,
                          int64_t count)
{
    (void)fprintf(file, "\"%s\":[", key);
    for (int64_t i = 0; i < count; i++) {
        (void)fprintf(file, "%s%" PRId64, i > 0 ? "," : "", numbers[i]);
    }
    (void)fputc(']', file);
}

const char *tiny_rows(const char *name, const struct zo_tensor_source *source)
{
    struct tiny_ints *ids = tiny_ints(source, "input_ids");
    struct tiny_ints *labels = tiny_ints(source, "labels");
    const int64_t width = ids->shape[1];
    const char *path = fx_path("%s", name);
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        give_up(path);
    }
    for (int64_t r = 0; r < ids->shape[0]; r++) {
        const int64_t *row = ids->values + r * width;
        int64_t count = width;

        while (count > 0 && row[count - 1] == 0) {
            count--; /* a pad */
        }
        (void)fputc('{', file);
        write_numbers(file, "input_ids", row, count);
        (void)fputc(',', file);
        write_numbers(file, "labels", labels->values + r * width, count);
        (void)fputs("}\n", file);
    }
    if (fclose(file) != 0) {
        give_up(path);
    }
    free(ids);
    free(labels);
    return path;
}

/* ---- the official models ----- */

bool tiny_open_fp32(struct tiny_case *vectors)
{
    const char *config = fx_shared("vectors/tiny_fp32/tiny_config.json");

    if (config == NULL) {
        tap_skip(TINY_NO_VECTORS);
        return false;
    }
    vectors->model = tiny_model(
        "fp32", config, fx_shared("vectors/tiny_fp32/tiny_model.safetensors"));
    vectors->train = tiny_vectors(
        fx_shared("vectors/tiny_fp32/tiny_train_case.safetensors"));
    vectors->rows = tiny_rows("fp32.jsonl", vectors->train);
    return true;
}

bool tiny_open_fp16_bin(struct tiny_case *vectors)
{
    vectors->model = fx_shared("vectors/tiny_fp16_bin");
    if (vectors->model == NULL) {
        tap_skip(TINY_NO_VECTORS);
        return false;
    }
    vectors->train =
        tiny_vectors(fx_shared("vectors/tiny_fp16_bin/train_case.safetensors"));
    vectors->rows = tiny_rows("fp16_bin.jsonl", vectors->train);
    return true;
}

void tiny_close_case(struct tiny_case *vectors)
{
    zo_tensor_source_close(vectors->train);
    *vectors = (struct tiny_case){0};
}

/* ---- comparing ----------------------------------------------------------- */

double tiny_largest_gap(const float *got, const float *want, size_t count)
{
    double largest = 0.0;

    for (size_t i = 0; i < count; i++) {
        const double gap = fabs((double)got[i] - (double)want[i]);

        if (!(gap <= largest)) { /* a NaN stays */
            largest = gap;
        }
    }
    return largest;
}

bool tiny_is_idle(const struct zo_model_config *model, const char *name,
                  int64_t elem)
{
    const int64_t first_key = model->num_heads * model->head_width;
    const int64_t first_value =
        first_key + model->num_kv_groups * model->head_width;

    return strstr(name, "query_key_value.bias") != NULL && elem >= first_key &&
           elem < first_value &&
           (elem - first_key) % model->head_width >= model->rotary_width;
}

enum zo_status tiny_read_weight(const struct vector_run *run, size_t parameter,
                                float *target)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);

    return zo_weights_read(
        &weights, parameter, 0,
        zo_glm_parameters(weights.glm)->items[parameter].elems, target);
}

enum zo_status tiny_read_gradient(const struct vector_run *run,
                                  size_t parameter, float *target)
{
    return zo_trainer_gradient(run->trainer, parameter, target);
}

/* Takes one parameter into account. */
static void widen_gap(struct tiny_gap *gap, const struct vector_run *run,
                      const struct zo_parameter *parameter, const float *got,
                      const float *want)
{
    double error = 0.0, norm = 0.0, relative;

    for (int64_t i = 0; i < parameter->elems; i++) {
        const double difference = (double)got[i] - (double)want[i];

        if (tiny_is_idle(&run->model, parameter->name, i)) {
            gap->idle = fmax(gap->idle, fabs((double)got[i]));
            continue;
        }
        error += difference * difference;
        norm += (double)want[i] * (double)want[i];
    }
    relative = sqrt(error) / sqrt(norm);
    if (!(relative <= gap->relative)) { /* a NaN stays */
        gap->relative = relative;
        (void)snprintf(gap->name, sizeof(gap->name), "%s", parameter->name);
    }
}

struct tiny_gap tiny_gap(const struct vector_run *run, tiny_read_fn read,
                         const struct zo_tensor_source *source,
                         const char *prefix)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(zo_trainer_glm(run->trainer));
    struct tiny_gap gap = {0};

    for (size_t p = 0; p < parameters->trained_count; p++) {
        const struct zo_parameter *parameter = &parameters->items[p];
        char name[2 * ZO_PARAMETER_NAME_BYTES];
        struct tiny_floats *want;
        float *got = allocate((size_t)parameter->elems * sizeof(float));

        (void)snprintf(name, sizeof(name), "%s%s", prefix, parameter->name);
        want = tiny_floats(source, name);
        must(read(run, p, got), name);
        widen_gap(&gap, run, parameter, got, want->values);
        free(want);
        free(got);
    }
    return gap;
}

bool tiny_same_weights(const struct vector_run *a, const struct vector_run *b)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(zo_trainer_glm(a->trainer));
    bool is_same = true;

    for (size_t p = 0; p < parameters->trained_count && is_same; p++) {
        const size_t bytes = (size_t)parameters->items[p].elems * sizeof(float);
        float *of_a = allocate(bytes), *of_b = allocate(bytes);

        must(tiny_read_weight(a, p, of_a), parameters->items[p].name);
        must(tiny_read_weight(b, p, of_b), parameters->items[p].name);
        is_same = memcmp(of_a, of_b, bytes) == 0;
        free(of_a);
        free(of_b);
    }
    return is_same;
}
