#include "tests/tiny_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/checkpoint/model_dir_writer.h"
#include "src/model/parameters.h"
#include "tests/model_fixtures.h"

#define VOCAB           64
#define PARAMETER_SCALE 6.0f /* deviation 0.12: gradients one can see */

/* clang-format off */
static const char model_json[] =
    "{\"model_type\": \"chatglm\", \"num_layers\": 2, \"hidden_size\": 16,"
    " \"num_attention_heads\": 4, \"kv_channels\": 4,"
    " \"multi_query_attention\": true, \"multi_query_group_num\": 2,"
    " \"ffn_hidden_size\": 24, \"padded_vocab_size\": 64, \"seq_length\": 64,"
    " \"layernorm_epsilon\": 1e-5, \"rmsnorm\": true,"
    " \"post_layer_norm\": true, \"add_qkv_bias\": true,"
    " \"add_bias_linear\": false, \"original_rope\": true,"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"float32\","
    " \"eos_token_id\": 2, \"pad_token_id\": 0}";
/* clang-format on */

/* ---- files --------------------------------------------------------------- */

static enum zo_status give_weights(void *context, size_t index,
                                   uint64_t offset_bytes, size_t size_bytes,
                                   void *buffer)
{
    const struct zo_parameters *parameters = context;
    const struct zo_parameter *parameter = &parameters->items[index];
    const int64_t count = (int64_t)(size_bytes / sizeof(float));
    float *values = buffer;

    zo_parameter_fill(parameter, NULL, 7,
                      (int64_t)(offset_bytes / sizeof(float)), count, ZO_F32,
                      buffer);
    for (int64_t i = 0; i < count; i++) {
        values[i] *=
            parameter->kind == ZO_PARAMETER_WEIGHT ? PARAMETER_SCALE : 1.0f;
    }
    return ZO_OK;
}

static enum zo_status read_model_config(struct zo_notes *notes,
                                        struct zo_model_config *config_out)
{
    return zo_model_config_parse("tiny", model_json, strlen(model_json),
                                 ZO_FAMILY_CHATGLM2, notes, config_out);
}

static enum zo_status write_model(const char *path)
{
    struct zo_model_config config;
    struct zo_parameters parameters = {0};
    struct zo_tensor_info infos[64] = {{0}};
    struct zo_notes notes = {0};
    enum zo_status status;

    ZO_TRY(read_model_config(&notes, &config));
    ZO_TRY(zo_parameters_init(&parameters, &config));
    ZO_ASSERT(parameters.trained_count <= ZO_COUNT(infos));
    for (size_t i = 0; i < parameters.trained_count; i++) {
        infos[i] = (struct zo_tensor_info){
            .name = parameters.items[i].name,
            .element = zo_element_of_dtype(ZO_F32),
            .rank = parameters.items[i].dims,
            .shape = {parameters.items[i].shape[0],
                      parameters.items[i].shape[1]},
        };
    }
    status = zo_model_dir_write(
        &(struct zo_model_write_options){
            .path = path,
            .config_json = model_json,
            .tensors = infos,
            .tensor_count = parameters.trained_count,
            .data = give_weights,
            .context = &parameters,
        },
        &notes, NULL);
    zo_parameters_fini(&parameters);
    zo_notes_fini(&notes);
    return status;
}

const char *tiny_model_path(void)
{
    static char path[1024];

    if (path[0] == '\0') {
        (void)snprintf(path, sizeof(path), "%s", fx_path("model"));
        if (write_model(path) != ZO_OK) {
            (void)printf("Bail out! %s\n", zo_err_last()->text);
            exit(EXIT_FAILURE);
        }
    }
    return path;
}

/* A number in 0 .. below - 1 that looks random and never changes. */
static int mixed(int row, int token, int below)
{
    uint32_t bits = (uint32_t)row * 2654435761u + (uint32_t)token * 40503u;

    bits ^= bits >> 15;
    bits *= 2246822519u;
    bits ^= bits >> 13;
    return (int)(bits % (uint32_t)below);
}

/* Row i has an odd number of tokens; how many have a label, depends on i. */
static void print_row(FILE *file, int row)
{
    const int tokens = 3 + 2 * mixed(row, 1000, 15);

    (void)fprintf(file, "{\"input_ids\": [");
    for (int t = 0; t < tokens; t++) {
        (void)fprintf(file, "%s%d", t > 0 ? ", " : "", mixed(row, t, VOCAB));
    }
    (void)fprintf(file, "], \"labels\": [");
    for (int t = 0; t < tokens; t++) {
        const bool counts = t == tokens - 1 || mixed(row, t + 100, 4) > row % 4;

        (void)fprintf(file, "%s%d", t > 0 ? ", " : "",
                      counts ? mixed(row, t, VOCAB) : -100);
    }
    (void)fprintf(file, "]}\n");
}

/* The file of some rows; borrowed as fx_path() does. */
static const char *rows_path(int first, int count)
{
    const char *path = fx_path("rows-%d-%d.jsonl", first, count);
    FILE *file;

    if (fx_is_there(path)) {
        return path;
    }
    file = fopen(path, "w");
    if (file == NULL) {
        (void)printf("Bail out! cannot write %s\n", path);
        exit(EXIT_FAILURE);
    }
    for (int row = first; row < first + count; row++) {
        print_row(file, row);
    }
    (void)fclose(file);
    return path;
}

/* ---- opening ------------------------------------------------------------- */

bool tiny_wants_gpu(void)
{
    return getenv("ZERO_OFFLOAD_GPU") != NULL;
}

void tiny_share_gpus(int devices)
{
    char text[16];
    int count = 0;

    if (tiny_wants_gpu() && zo_device_cuda.count(&count) == ZO_OK &&
        count > 0 && count < devices) {
        (void)snprintf(text, sizeof(text), "%d", (devices + count - 1) / count);
        (void)setenv("ZERO_OFFLOAD_DEVICES_PER_GPU", text, 1);
    }
}

const char *tiny_lacks(int devices)
{
    int count = 0;

    return tiny_wants_gpu() &&
                   (zo_device_cuda.count(&count) != ZO_OK || count < devices)
               ? "too few GPUs"
               : NULL;
}

static void fill_knobs(struct tiny_run *run, const struct tiny_knobs *knobs)
{
    struct tiny_knobs *k = &run->knobs;

    *k = *knobs;
    k->devices = k->devices > 0 ? k->devices : 1;
    k->accumulation = k->accumulation > 0 ? k->accumulation : 1;
    k->micro_rows = k->micro_rows > 0
                        ? k->micro_rows
                        : TINY_STEP_ROWS / (k->devices * k->accumulation);
    k->threads = k->threads > 0 ? k->threads : 2;
    k->rows = k->rows > 0 ? k->rows : 29;
    k->steps = k->steps > 0 ? k->steps : 8;
}

static enum zo_status parse_options(struct tiny_run *run)
{
    const struct tiny_knobs *k = &run->knobs;
    const char *argv[] = {
        "--model",
        tiny_model_path(),
        "--backend",
        "host",
        "--num-devices",
        run->texts[0],
        "--threads",
        run->texts[1],
        "--max-steps",
        run->texts[2],
        "--learning-rate",
        k->learning_rate != NULL ? k->learning_rate : "1e-3",
        "--lr-scheduler-type",
        "constant",
        "--weight-decay",
        "0.1",
        k->shuffles ? "--shuffle" : "--no-shuffle",
    };

    (void)snprintf(run->texts[0], sizeof(run->texts[0]), "%d", k->devices);
    (void)snprintf(run->texts[1], sizeof(run->texts[1]), "%d", k->threads);
    (void)snprintf(run->texts[2], sizeof(run->texts[2]), "%d", k->steps);
    ZO_TRY(zo_options_parse(ZO_COMMAND_TRAIN, (int)ZO_COUNT(argv), argv,
                            &run->options, &run->notes));
    run->has_options = true;
    return ZO_OK;
}

static enum zo_status parse_config(struct tiny_run *run)
{
    const struct tiny_knobs *k = &run->knobs;
    const struct zo_run_facts facts = {
        .num_devices = k->devices,
        .hidden_size = run->model.hidden_size,
    };
    char json[2048], stage[160] = "";
    int size_bytes;

    if (k->stage > 0) {
        (void)snprintf(stage, sizeof(stage),
                       ", \"zero_optimization\": {\"stage\": %d, "
                       "\"reduce_bucket_size\": %lld, \"overlap_comm\": %s}",
                       k->stage,
                       k->bucket_elems > 0 ? (long long)k->bucket_elems
                                           : 500000000,
                       k->waits_for_comm ? "false" : "true");
    }
    size_bytes =
        snprintf(json, sizeof(json),
                 "{\"train_micro_batch_size_per_gpu\": %d,"
                 " \"gradient_accumulation_steps\": %d%s%s%s}",
                 k->micro_rows, k->accumulation, stage,
                 k->json != NULL ? ", " : "", k->json != NULL ? k->json : "");

    ZO_ASSERT(size_bytes < (int)sizeof(json));
    return zo_run_config_parse("tiny.json", json, (size_t)size_bytes,
                               &run->options, &facts, &run->notes,
                               &run->config);
}

/* One file of rows as batches; the run's bounds grow to hold them. */
static enum zo_status open_rows(struct tiny_run *run, const char *path,
                                bool evaluates, struct zo_dataset **data,
                                struct zo_batches **batches)
{
    const struct tiny_knobs *k = &run->knobs;
    const struct zo_dataset_options rows = {
        .path = path,
        .max_length = (int32_t)run->model.seq_length,
        .vocab_size = (int32_t)run->model.vocab_size,
    };
    const struct zo_batches_options options = {
        .seed = (uint64_t)run->config.seed,
        .shuffle = k->shuffles && !evaluates,
        .is_evaluation = evaluates,
        .micro_batch_rows = (int32_t)run->config.micro_batch_rows,
        .accumulation_count = evaluates ? 1 : k->accumulation,
        .device_count = k->devices,
    };
    struct zo_batches_bounds *bounds = &run->bounds;
    struct zo_batches_plan plan;

    ZO_TRY(zo_dataset_open(&rows, NULL, &run->notes, data));
    ZO_TRY(zo_batches_open(*data, &options, batches));
    ZO_TRY(zo_batches_plan(
        *batches, 0,
        evaluates ? zo_batches_steps_per_epoch(*batches) : k->steps, &plan));
    bounds->tokens = (int32_t)zo_max_i64(bounds->tokens, plan.bounds.tokens);
    bounds->rows = (int32_t)zo_max_i64(bounds->rows, plan.bounds.rows);
    bounds->labels = (int32_t)zo_max_i64(bounds->labels, plan.bounds.labels);
    run->positions_max =
        zo_max_i64(run->positions_max, zo_max_i64(plan.longest_tokens, 64));
    return ZO_OK;
}

static enum zo_status open_machine(struct tiny_run *run)
{
    const struct tiny_knobs *k = &run->knobs;
    static const int first_gpus[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const struct zo_devices_options devices = {
        .backend = k->on_gpu ? ZO_BACKEND_CUDA : ZO_BACKEND_HOST,
        .indices = k->on_gpu ? first_gpus : NULL, /* whoever else uses them */
        .count = k->devices,
        .threads = k->threads,
        .delay_seed = k->delay_seed,
        .delay_us_max = k->delay_us_max,
    };

    ZO_TRY(read_model_config(&run->notes, &run->model));
    ZO_TRY(parse_options(run));
    ZO_TRY(parse_config(run));
    ZO_TRY(zo_devices_open(&devices, &run->devices));
    if (!k->evaluates_only) {
        ZO_TRY(open_rows(run, rows_path(k->first_row, k->rows), false,
                         &run->data, &run->batches));
    }
    if (k->eval_rows > 0) {
        ZO_TRY(open_rows(run, rows_path(k->eval_first_row, k->eval_rows), true,
                         &run->eval_data, &run->eval_batches));
    }
    return zo_run_config_finish(&run->config, k->steps, &run->notes);
}

enum zo_status tiny_open_machine(const struct tiny_knobs *knobs,
                                 struct tiny_run *run)
{
    *run = (struct tiny_run){0};
    fill_knobs(run, knobs);
    return open_machine(run);
}

const char *tiny_lacks_poison(void)
{
#ifdef __SANITIZE_THREAD__
    return getenv("ZERO_OFFLOAD_LONG") == NULL
               ? "no poison under ThreadSanitizer: it takes minutes, and one "
                 "operation at a time races with none"
               : NULL;
#else
    return NULL;
#endif
}

/* Says once what is left out. */
static bool may_poison(const struct tiny_knobs *knobs)
{
    static bool is_told;
    const char *why = tiny_lacks_poison();

    if (knobs->poisons && why != NULL && !is_told) {
        (void)printf("# %s\n", why);
        is_told = true;
    }
    return knobs->poisons && why == NULL;
}

enum zo_status tiny_open_trainer(struct tiny_run *run)
{
    const struct tiny_knobs *k = &run->knobs;
    const struct zo_trainer_options options = {
        .config = &run->config,
        .model = &run->model,
        .devices = &run->devices,
        .batches = run->batches,
        .eval_batches = run->eval_batches,
        .bounds = run->bounds,
        .positions_max = run->positions_max,
        .first_step = 1,
        .last_step = k->steps,
        .eval_every = k->eval_every,
        .evaluates_only = k->evaluates_only,
        .gpu_memory_bytes = k->gpu_memory_bytes,
        .host_memory_bytes = k->host_memory_bytes,
        .nvme_bytes = k->nvme_bytes,
        .nvme = k->nvme,
        .is_serial = k->is_serial || k->poisons,
        .poisons = may_poison(k),
        .fail_at_op = k->fail_at_op,
        .placement = k->placement,
        .simd = k->simd,
        .cpu_threads = k->cpu_threads,
        .keeps_gradients = k->keeps_gradients,
        .records_times = k->records_times,
        .trace = k->trace,
    };

    return zo_trainer_open(&options, &run->trainer);
}

enum zo_status tiny_open(const struct tiny_knobs *knobs, struct tiny_run *run)
{
    ZO_TRY(tiny_open_machine(knobs, run));
    return tiny_open_trainer(run);
}

enum zo_status tiny_start(struct tiny_run *run)
{
    struct zo_weights weights;

    ZO_TRY(zo_trainer_start(run->trainer));
    weights = zo_trainer_weights(run->trainer);
    if (run->dir == NULL) {
        ZO_TRY(zo_model_dir_open(tiny_model_path(), &run->notes, &run->dir));
    }
    return zo_weights_load(&weights, run->dir, &run->notes);
}

void tiny_close_trainer(struct tiny_run *run)
{
    zo_trainer_close(run->trainer);
    run->trainer = NULL;
    zo_model_dir_close(run->dir);
    run->dir = NULL;
}

void tiny_close(struct tiny_run *run)
{
    tiny_close_trainer(run);
    zo_batches_close(run->batches);
    zo_batches_close(run->eval_batches);
    zo_dataset_close(run->data);
    zo_dataset_close(run->eval_data);
    zo_run_config_fini(&run->config);
    zo_devices_close(&run->devices);
    if (run->has_options) {
        zo_options_fini(&run->options);
    }
    zo_notes_fini(&run->notes);
    *run = (struct tiny_run){0};
}

/* ---- running ------------------------------------------------------------- */

static enum zo_status keep_step(void *context,
                                const struct zo_step_metrics *metrics)
{
    struct tiny_result *result = context;

    ZO_ASSERT(result->step_count < TINY_STEPS_MAX);
    result->step[result->step_count++] = *metrics;
    return ZO_OK;
}

static enum zo_status keep_eval(void *context,
                                const struct zo_eval_metrics *metrics)
{
    struct tiny_result *result = context;

    ZO_ASSERT(result->eval_count < TINY_STEPS_MAX);
    result->eval[result->eval_count++] = *metrics;
    return ZO_OK;
}

/* FNV-1a over the bytes of a part of a buffer. */
static enum zo_status hash_bytes(const struct tiny_run *run, zo_buffer_id id,
                                 uint64_t offset, uint64_t size_bytes,
                                 uint64_t *hash)
{
    enum zo_status status;
    unsigned char *bytes = malloc(size_bytes);

    ZO_ASSERT(bytes != NULL);
    status = zo_executor_download(zo_trainer_executor(run->trainer), bytes, id,
                                  offset, size_bytes);
    for (uint64_t i = 0; status == ZO_OK && i < size_bytes; i++) {
        *hash = (*hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    free(bytes);
    return status;
}

/* A unit's state, from `device` on, whose buffers may hold shards. */
static enum zo_status hash_state(const struct tiny_run *run, int unit,
                                 int device, size_t place, size_t elem_bytes,
                                 uint64_t *hash)
{
    const struct zo_build *build = zo_trainer_build(run->trainer);
    const int64_t end = build->options.units[unit].elems;
    int64_t at = 0;

    for (int d = device; d < build->options.device_count && at < end; d++) {
        zo_buffer_id id;
        struct zo_held held;

        memcpy(&id, (const char *)zo_build_unit(build, unit, d) + place,
               sizeof(id));
        if (id == ZO_NO_BUFFER) {
            return ZO_OK;
        }
        held = zo_build_held(build, unit, d, id, elem_bytes);
        if (held.first + held.count > at) {
            const int64_t to = held.first + held.count;

            ZO_TRY(hash_bytes(run, id, (uint64_t)(at - held.first) * elem_bytes,
                              (uint64_t)(to - at) * elem_bytes, hash));
            at = to;
        }
    }
    return ZO_OK;
}

enum zo_status tiny_state(const struct tiny_run *run, int device,
                          uint64_t *hash_out)
{
    const struct zo_build *build = zo_trainer_build(run->trainer);
    const size_t typed = zo_dtype_bytes(build->options.type);
    const size_t moment = build->options.moment_type == ZO_BF16 ? 2 : 4;
    uint64_t hash = UINT64_C(14695981039346656037);

    if (build->options.stage > 0) {
        device = 0; /* nobody has all of it alone */
    }
    for (int u = 0; u < build->options.unit_count; u++) {
#define HASH(state, bytes)                                                     \
    ZO_TRY(hash_state(run, u, device, offsetof(struct zo_unit_buffers, state), \
                      bytes, &hash))
        if (build->options.type != ZO_F16) { /* there they follow from it */
            HASH(weights, typed);
        }
        HASH(remainder, 2);
        HASH(master, 4);
        HASH(exp_avg, moment);
        HASH(exp_avg_sq, moment);
#undef HASH
    }
    *hash_out = hash;
    return ZO_OK;
}

enum zo_status tiny_train(struct tiny_run *run, struct tiny_result *result)
{
    const struct zo_trainer_watch watch = {
        .context = result,
        .on_step = keep_step,
        .on_eval = keep_eval,
    };

    *result = (struct tiny_result){.devices_agree = true};
    ZO_TRY(zo_trainer_run(run->trainer, &watch, &result->steps_done));
    ZO_TRY(tiny_state(run, 0, &result->state));
    for (int d = 1; d < run->knobs.devices; d++) {
        uint64_t state = 0;

        ZO_TRY(tiny_state(run, d, &state));
        result->devices_agree = result->devices_agree && state == result->state;
    }
    return ZO_OK;
}

static enum zo_status open_and_train(struct tiny_run *run,
                                     const struct tiny_knobs *knobs,
                                     struct tiny_result *result)
{
    ZO_TRY(tiny_open(knobs, run));
    ZO_TRY(tiny_start(run));
    return tiny_train(run, result);
}

enum zo_status tiny_whole(const struct tiny_knobs *knobs,
                          struct tiny_result *result)
{
    struct tiny_run run;
    const enum zo_status status = open_and_train(&run, knobs, result);

    tiny_close(&run);
    return status;
}

/*
 * A key's bias in a dimension that is not rotated moves every score of a row
 * by the same amount: its gradient is zero but for rounding, which AdamW
 * makes large.  Such entries are left out, as 0.
 */
static void clear_idle_bias(const struct tiny_run *run,
                            const struct zo_parameter *parameter, float *values)
{
    const struct zo_model_config *c = &run->model;

    if (parameter->kind != ZO_PARAMETER_BIAS) {
        return;
    }
    for (int64_t i = 0; i < c->num_kv_groups * c->head_width; i++) {
        if (i % c->head_width >= c->rotary_width) {
            values[c->num_heads * c->head_width + i] = 0.0f;
        }
    }
}

enum zo_status tiny_weights(const struct tiny_run *run, float *target)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);
    const struct zo_parameters *parameters =
        zo_glm_parameters(zo_trainer_glm(run->trainer));

    for (size_t i = 0; i < parameters->trained_count; i++) {
        const struct zo_parameter *parameter = &parameters->items[i];

        ZO_TRY(zo_weights_read(&weights, i, 0, parameter->elems, target));
        clear_idle_bias(run, parameter, target);
        target += parameter->elems;
    }
    return ZO_OK;
}

enum zo_status tiny_gradients(const struct tiny_run *run, float *target)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(zo_trainer_glm(run->trainer));

    for (size_t i = 0; i < parameters->trained_count; i++) {
        ZO_TRY(zo_trainer_gradient(run->trainer, i, target));
        target += parameters->items[i].elems;
    }
    return ZO_OK;
}

enum zo_status tiny_whole_numbers(const struct tiny_knobs *knobs,
                                  struct tiny_result *result,
                                  struct tiny_numbers *numbers)
{
    struct tiny_run run;
    struct tiny_knobs kept = *knobs;
    enum zo_status status;

    kept.keeps_gradients = true;
    status = open_and_train(&run, &kept, result);
    ZO_ASSERT(run.model.parameter_count == TINY_PARAMETERS);
    if (status == ZO_OK) {
        status = tiny_weights(&run, numbers->weights);
    }
    if (status == ZO_OK) {
        status = tiny_gradients(&run, numbers->gradients);
    }
    tiny_close(&run);
    return status;
}

/* ---- comparing ----------------------------------------------------------- */

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

bool tiny_same_bits(const struct tiny_result *a, const struct tiny_result *b)
{
    bool same = a->step_count == b->step_count && a->state == b->state &&
                a->devices_agree && b->devices_agree;

    for (int i = 0; same && i < a->step_count; i++) {
        same = same_double(a->step[i].loss, b->step[i].loss) &&
               same_double(a->step[i].grad_norm, b->step[i].grad_norm) &&
               same_double(a->step[i].clip_coefficient,
                           b->step[i].clip_coefficient);
    }
    return same;
}

double tiny_loss_distance(const struct tiny_result *a,
                          const struct tiny_result *b)
{
    double most = a->step_count == b->step_count ? 0.0 : INFINITY;

    for (int i = 0; i < a->step_count && i < b->step_count; i++) {
        most = fmax(most, fabs(a->step[i].loss - b->step[i].loss));
        if (isnan(a->step[i].loss) || isnan(b->step[i].loss)) {
            most = INFINITY;
        }
    }
    return most;
}

double tiny_distance(const float *a, const float *b)
{
    double most = 0.0;

    for (int64_t i = 0; i < TINY_PARAMETERS; i++) {
        const double distance = fabs((double)a[i] - (double)b[i]);

        most = isnan(distance) ? INFINITY : fmax(most, distance);
    }
    return most;
}

struct zo_op *tiny_find_op(const struct tiny_run *run, int schedule,
                           const char *name, int unit, int device, int nth)
{
    const struct zo_schedule *list =
        &zo_trainer_build(run->trainer)->program.schedules[schedule];

    for (size_t i = 0; i < list->op_count; i++) {
        struct zo_op *op = &list->ops[i];

        if (strcmp(op->name, name) == 0 && (unit < 0 || op->unit == unit) &&
            (device < 0 || op->device == device) && nth-- == 0) {
            return op;
        }
    }
    return NULL;
}
