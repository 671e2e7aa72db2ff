#include "src/cli/setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/text.h"
#include "src/base/memory.h"
#include "src/base/system.h"
#include "src/cli/inputs.h"
#include "src/cli/print_time.h"
#include "src/train/place_config.h"

#define PLAN_ROW_TOKENS    512 /* of plan, when nothing says how long */
#define BENCH_STEPS        13  /* of bench step, the first 3 to warm up */
#define TOKEN_MULTIPLE     64
#define GPU_RESERVE_BYTES  ((uint64_t)512 << 20)
#define DISPLAY_BYTES      ((uint64_t)1 << 30)   /* more, for a desktop */
#define UNEQUAL_BYTES      ((uint64_t)256 << 20) /* less is no difference */
#define HOST_RESERVE_BYTES ((uint64_t)2 << 30)
/* Of a GPU that is not here: what its context and its libraries would take. */
#define ABSENT_OWN_BYTES ((uint64_t)512 << 20)

/* ---- budgets ------------------------------------------------------------- */

static uint64_t less(uint64_t bytes, uint64_t reserve)
{
    return bytes > reserve ? bytes - reserve : 1;
}

/*
 * What was free before this process opened the device, less the reserve: the
 * plan counts what the context and the libraries have taken of it since.
 */
enum zo_status zo_setup_gpu_room(const struct zo_machine *machine, int device,
                                 uint64_t *bytes_out)
{
    const struct zo_device_info *info =
        machine->device_ops->info(machine->devices[device]);
    uint64_t bytes = 0;

    ZO_TRY(
        machine->device_ops->mem_free_bytes(machine->devices[device], &bytes));
    bytes += info->context_bytes +
             machine->kernel_ops->own_device_bytes(machine->kernels[device]) +
             zo_devices_comm_bytes(machine, device);
    *bytes_out = less(bytes, GPU_RESERVE_BYTES +
                                 (info->has_display ? DISPLAY_BYTES : 0));
    return ZO_OK;
}

/* A shipped machine: its GPU's memory, and as much on the host as is asked
 * for. */
static enum zo_status set_budgets_elsewhere(struct zo_setup *setup,
                                            struct zo_notes *notes)
{
    const struct zo_options *options = setup->options;
    const struct zo_profile *profile = zo_profile_find(options->profile);
    char asked[32], has[32];

    setup->host_room_bytes = ZO_SYSTEM_NO_LIMIT;
    setup->host_memory_bytes = options->host_memory_bytes;
    setup->gpu_memory_bytes =
        options->gpu_memory_bytes > 0
            ? options->gpu_memory_bytes
            : less(profile->device_bytes, GPU_RESERVE_BYTES);
    return setup->gpu_memory_bytes <= profile->device_bytes
               ? ZO_OK
               : zo_note_add(
                     notes, ZO_NOTE_WARN, "--gpu-memory %s: a %s has %s",
                     zo_text_gib(asked, sizeof(asked), setup->gpu_memory_bytes),
                     profile->name,
                     zo_text_gib(has, sizeof(has), profile->device_bytes));
}

enum zo_status zo_setup_note_budgets(const char *const *names,
                                     const uint64_t *bytes, int count,
                                     struct zo_notes *notes)
{
    char least_text[32], most_text[32];
    int least = 0, most = 0;

    for (int d = 1; d < count; d++) {
        least = bytes[d] < bytes[least] ? d : least;
        most = bytes[d] > bytes[most] ? d : most;
    }
    return bytes[most] - bytes[least] <= UNEQUAL_BYTES
               ? ZO_OK
               : zo_note_add(
                     notes, ZO_NOTE_WARN,
                     "%s limits: %s of it can be used, and %s of %s; "
                     "every device is given as much as that one",
                     names[least],
                     zo_text_gib(least_text, sizeof(least_text), bytes[least]),
                     zo_text_gib(most_text, sizeof(most_text), bytes[most]),
                     names[most]);
}

/* The budget of each device: what all of them have free. */
static enum zo_status set_gpu_budget(struct zo_setup *setup,
                                     struct zo_notes *notes)
{
    const struct zo_machine *machine = &setup->devices.machine;
    const char *names[ZO_DEVICES_MAX];
    uint64_t bytes[ZO_DEVICES_MAX];

    for (int d = 0; d < machine->device_count; d++) {
        names[d] = machine->device_ops->info(machine->devices[d])->name;
        ZO_TRY(zo_setup_gpu_room(machine, d, &bytes[d]));
        if (d == 0 || bytes[d] < setup->gpu_memory_bytes) {
            setup->gpu_memory_bytes = bytes[d];
        }
    }
    return zo_setup_note_budgets(names, bytes, machine->device_count, notes);
}

static enum zo_status set_budgets(struct zo_setup *setup,
                                  struct zo_notes *notes)
{
    const struct zo_options *options = setup->options;
    const struct zo_machine *machine = &setup->devices.machine;
    struct zo_system system;
    uint64_t host;

    if (zo_setup_plans_elsewhere(setup)) {
        return set_budgets_elsewhere(setup, notes);
    }

    zo_system_read("", &system);
    host = zo_system_room(&system);
    setup->host_room_bytes = host;
    setup->gpu_memory_bytes = options->gpu_memory_bytes;
    setup->host_memory_bytes = options->host_memory_bytes;
    if (setup->host_memory_bytes == 0 && host != ZO_SYSTEM_NO_LIMIT) {
        setup->host_memory_bytes = less(host, HOST_RESERVE_BYTES);
    }
    return setup->gpu_memory_bytes == 0 &&
                   machine->device_ops != &zo_device_host
               ? set_gpu_budget(setup, notes)
               : ZO_OK;
}

/* ---- devices and configuration ------------------------------------------- */

static struct zo_devices_options
devices_options(const struct zo_options *options)
{
    return (struct zo_devices_options){
        .backend = options->backend,
        .indices = options->device_count > 0 ? options->devices : NULL,
        .count = options->device_count > 0 ? options->device_count
                                           : (int)options->num_devices,
        .threads = (int)options->threads,
        .copy_bytes_per_second = options->copy_bytes_per_second,
    };
}

static enum zo_status open_config(struct zo_setup *setup,
                                  struct zo_notes *notes)
{
    const struct zo_devices_options devices = devices_options(setup->options);
    struct zo_run_facts facts = {.hidden_size = setup->model.hidden_size};
    const struct zo_options *options = setup->options;
    const char *why = NULL;
    int count = 0;

    ZO_TRY(zo_devices_count(&devices, &count));
    facts.num_devices = count;
    if (options->command == ZO_COMMAND_EVAL) {
        ZO_TRY(zo_cli_saved_dtype(options->model, &setup->model, &facts.dtype,
                                  &why));
    }
    ZO_TRY(zo_run_config_read(options, &facts, notes, &setup->config));
    if (why != NULL && !setup->config.dtype_is_given) {
        ZO_TRY(zo_cli_note_dtype(facts.dtype, why, notes));
    }
    return zo_devices_open(&devices, &setup->devices);
}

static enum zo_status check_simd(const struct zo_setup *setup)
{
    const enum zo_simd simd = (enum zo_simd)setup->options->simd;

    return zo_simd_usable(simd)
               ? ZO_OK
               : ZO_FAIL(ZO_E_NOSUPPORT,
                         "--simd %s: this processor does not run it; the best "
                         "that it runs is %s",
                         zo_simd_name(simd), zo_simd_name(zo_simd_best()));
}

/* Wishes of the JSON that this version does not follow. */
static enum zo_status note_wishes(const struct zo_setup *setup,
                                  struct zo_notes *notes)
{
    const struct zo_run_config *config = &setup->config;

    if (config->drop_last) {
        ZO_TRY(zo_note_add(notes, ZO_NOTE_WARN,
                           "dataloader_drop_last: this version trains on the "
                           "last, smaller step of an epoch too"));
    }
    if (config->grad_accum_dtype != ZO_F32) {
        ZO_TRY(zo_note_add(notes, ZO_NOTE_WARN,
                           "data_types.grad_accum_dtype: gradients are summed "
                           "in fp32"));
    }
    return setup->options->command == ZO_COMMAND_EVAL
               ? ZO_OK
               : zo_place_notes(config, setup->devices.machine.device_count,
                                notes);
}

/* The library that carries, and what bends it: a user must see both. */
static enum zo_status note_collectives(const struct zo_setup *setup,
                                       struct zo_notes *notes)
{
    const struct zo_machine *machine = &setup->devices.machine;
    const char *text =
        machine->comm == NULL ? "" : machine->comm_ops->notes(machine->comm);

    return text[0] == '\0'
               ? ZO_OK
               : zo_note_add(notes, ZO_NOTE_INFO, "collectives: %s%s%s", text,
                             setup->devices.carrier[0] != '\0' ? "; " : "",
                             setup->devices.carrier);
}

bool zo_setup_lacks_gpu(const struct zo_options *options,
                        const struct zo_machine *machine)
{
    return options->backend == ZO_BACKEND_AUTO &&
           machine->device_ops == &zo_device_host;
}

enum zo_status zo_setup_note_processor(const struct zo_options *options,
                                       const struct zo_machine *machine,
                                       struct zo_notes *notes)
{
    return options->command == ZO_COMMAND_PLAN ||
                   !zo_setup_lacks_gpu(options, machine)
               ? ZO_OK
               : zo_note_add(notes, ZO_NOTE_WARN,
                             ZO_SETUP_NO_GPU ": running on the processor, as "
                                             "with --backend host");
}

static enum zo_status note_stage(const struct zo_setup *setup,
                                 struct zo_notes *notes)
{
    const enum zo_command command = setup->options->command;
    const int stage = setup->config.zero.stage;

    /* train says it among what it will do; eval has nothing but weights. */
    if (stage == 0 || command == ZO_COMMAND_TRAIN ||
        command == ZO_COMMAND_EVAL) {
        return ZO_OK;
    }
    if (setup->devices.machine.device_count > 1) {
        return zo_note_add(
            notes, ZO_NOTE_INFO,
            "ZeRO stage %d: each device keeps its share of %s; the "
            "results are those of every stage",
            stage,
            stage == 1   ? "masters and moments"
            : stage == 2 ? "masters, moments and gradients"
                         : "masters, moments, gradients and "
                           "weights");
    }
    return zo_note_add(notes, ZO_NOTE_INFO,
                       "ZeRO stage %d on one device: there is nobody to share "
                       "with; the stage lets %s live on the host",
                       stage,
                       stage == 3 ? "weights, masters and moments"
                                  : "masters and moments, but not weights,");
}

/* ---- rows ---------------------------------------------------------------- */

static struct zo_batches_options batches_options(const struct zo_setup *setup,
                                                 bool evaluates)
{
    const struct zo_run_config *config = &setup->config;
    const int32_t pad =
        setup->tokenizer != NULL ? zo_tokenizer_pad(setup->tokenizer) : 0;

    return (struct zo_batches_options){
        .seed = (uint64_t)config->seed,
        .shuffle = setup->options->shuffle && !evaluates,
        .is_evaluation = evaluates,
        .micro_batch_rows = (int32_t)(evaluates ? config->eval_micro_batch_rows
                                                : config->micro_batch_rows),
        .accumulation_count =
            evaluates ? 1 : (int32_t)config->gradient_accumulation_steps,
        .device_count = setup->devices.machine.device_count,
        .token_multiple = TOKEN_MULTIPLE,
        .pad_id = pad,
    };
}

/* Bounds grow to hold those of one more set of batches. */
static void widen(struct zo_setup *setup, const struct zo_batches_plan *plan)
{
    struct zo_batches_bounds *bounds = &setup->bounds;
    const struct zo_batches_bounds *more = &plan->bounds;

    bounds->tokens = (int32_t)zo_max_i64(bounds->tokens, more->tokens);
    bounds->real_tokens =
        (int32_t)zo_max_i64(bounds->real_tokens, more->real_tokens);
    bounds->rows = (int32_t)zo_max_i64(bounds->rows, more->rows);
    bounds->labels = (int32_t)zo_max_i64(bounds->labels, more->labels);
    setup->positions_max = zo_max_i64(
        setup->positions_max, zo_max_i64(plan->longest_tokens, TOKEN_MULTIPLE));
}

static int64_t steps_of_run(const struct zo_run_config *config,
                            int64_t steps_per_epoch)
{
    return config->max_steps > 0 ? config->max_steps
                                 : (int64_t)ceil(config->num_train_epochs *
                                                 (double)steps_per_epoch);
}

static enum zo_status open_training_rows(struct zo_setup *setup,
                                         struct zo_notes *notes)
{
    const struct zo_batches_options options = batches_options(setup, false);
    struct zo_batches_plan plan;

    ZO_TRY(zo_cli_dataset(setup->options, setup->options->data, 0,
                          &setup->model, setup->tokenizer, notes,
                          &setup->data));
    ZO_TRY(zo_batches_open(setup->data, &options, &setup->batches));
    setup->steps_per_epoch = zo_batches_steps_per_epoch(setup->batches);
    setup->total_steps = steps_of_run(&setup->config, setup->steps_per_epoch);
    ZO_TRY(zo_batches_plan(setup->batches, 0, setup->total_steps, &plan));
    widen(setup, &plan);
    return ZO_OK;
}

static enum zo_status open_evaluation_rows(struct zo_setup *setup,
                                           const char *path, int64_t rows_max,
                                           struct zo_notes *notes)
{
    const struct zo_batches_options options = batches_options(setup, true);
    struct zo_batches_plan plan;

    ZO_TRY(zo_cli_dataset(setup->options, path, rows_max, &setup->model,
                          setup->tokenizer, notes, &setup->eval_data));
    ZO_TRY(zo_batches_open(setup->eval_data, &options, &setup->eval_batches));
    ZO_TRY(zo_batches_plan(setup->eval_batches, 0,
                           zo_batches_steps_per_epoch(setup->eval_batches),
                           &plan));
    if (plan.bounds.labels == 0) {
        return ZO_FAIL(ZO_E_DATA,
                       "%s: no label in the %" PRId64
                       " rows to evaluate on, so no loss",
                       path, zo_dataset_count(setup->eval_data));
    }
    widen(setup, &plan);
    return ZO_OK;
}

/* plan without rows: every micro batch is full. */
static enum zo_status assume_rows(struct zo_setup *setup,
                                  struct zo_notes *notes)
{
    const struct zo_options *options = setup->options;
    const int64_t rows = setup->config.micro_batch_rows;
    const int64_t tokens =
        options->max_source_length > 0 && options->max_target_length > 0
            ? options->max_source_length + options->max_target_length + 1
        : options->max_length > 0 ? options->max_length
                                  : PLAN_ROW_TOKENS;
    int64_t padded = 0;

    if (!zo_mul_i64(rows, tokens, &padded) ||
        padded > INT32_MAX - TOKEN_MULTIPLE) {
        return ZO_FAIL(ZO_E_FIT,
                       "%" PRId64 " rows of %" PRId64
                       " tokens in a micro batch are too many",
                       rows, tokens);
    }
    padded = (int64_t)zo_round_up((uint64_t)padded, TOKEN_MULTIPLE);
    setup->bounds = (struct zo_batches_bounds){
        .tokens = (int32_t)padded,
        .real_tokens = (int32_t)(rows * tokens),
        .rows = (int32_t)rows + 1,
        .labels = (int32_t)(rows * (tokens - 1)),
    };
    setup->positions_max = zo_max_i64(tokens, TOKEN_MULTIPLE);
    setup->total_steps =
        setup->config.max_steps > 0 ? setup->config.max_steps : 1000;
    return zo_note_add(notes, ZO_NOTE_INFO,
                       "no --data: planned for %" PRId64 " row%s of %" PRId64
                       " tokens in a micro batch, every token labelled",
                       rows, rows == 1 ? "" : "s", tokens);
}

/* As generate is warned: positions beyond those that the model has seen. */
static enum zo_status note_length(const struct zo_setup *setup,
                                  struct zo_notes *notes)
{
    const struct zo_options *options = setup->options;
    const int64_t both =
        options->max_source_length > 0 && options->max_target_length > 0
            ? options->max_source_length + options->max_target_length + 1
            : 0;
    const int64_t tokens = zo_max_i64(options->max_length, both);

    return tokens <= setup->model.seq_length
               ? ZO_OK
               : zo_note_add(notes, ZO_NOTE_WARN,
                             "rows may have %" PRId64
                             " tokens; the model was made for %" PRId64,
                             tokens, setup->model.seq_length);
}

static bool needs_tokenizer(const struct zo_setup *setup)
{
    return setup->options->data != NULL || setup->options->eval_data != NULL;
}

/* Rows of input_ids need none; zo_dataset_open() asks for it by others. */
static enum zo_status open_tokenizer(struct zo_setup *setup,
                                     struct zo_notes *notes)
{
    const enum zo_status status =
        zo_cli_tokenizer(setup->options, &setup->model, &setup->tokenizer);

    if (status != ZO_E_USAGE || setup->options->tokenizer != NULL) {
        return status;
    }
    return zo_note_add(
        notes, ZO_NOTE_INFO,
        "%s; without a tokenizer only rows of input_ids can be read",
        zo_err_last()->text);
}

/* bench: full rows of random ids, two steps of them. */
static enum zo_status make_rows(struct zo_setup *setup)
{
    const struct zo_options *options = setup->options;
    const int64_t tokens =
        options->max_length > 0 ? options->max_length : PLAN_ROW_TOKENS;
    struct zo_batches_options batches;
    struct zo_batches_plan plan;

    ZO_TRY(zo_dataset_synthetic(2 * setup->config.train_batch_rows,
                                (int32_t)tokens,
                                (int32_t)setup->model.vocab_size,
                                (uint64_t)setup->config.seed, &setup->data));
    batches = batches_options(setup, false);
    ZO_TRY(zo_batches_open(setup->data, &batches, &setup->batches));
    setup->steps_per_epoch = zo_batches_steps_per_epoch(setup->batches);
    setup->total_steps =
        setup->config.max_steps > 0 ? setup->config.max_steps : BENCH_STEPS;
    ZO_TRY(zo_batches_plan(setup->batches, 0, setup->total_steps, &plan));
    widen(setup, &plan);
    return ZO_OK;
}

static enum zo_status open_rows(struct zo_setup *setup, struct zo_notes *notes)
{
    const struct zo_options *options = setup->options;
    const bool evaluates = options->command == ZO_COMMAND_EVAL;

    if (options->command == ZO_COMMAND_BENCH) {
        return make_rows(setup);
    }
    if (options->data == NULL && options->command != ZO_COMMAND_PLAN) {
        return ZO_FAIL(ZO_E_USAGE, "%s needs --data FILE",
                       zo_command_name(options->command));
    }
    if (needs_tokenizer(setup)) {
        ZO_TRY(open_tokenizer(setup, notes));
    }
    if (evaluates) {
        setup->total_steps = 1;
        return open_evaluation_rows(setup, options->data, options->rows, notes);
    }
    ZO_TRY(options->data != NULL ? open_training_rows(setup, notes)
                                 : assume_rows(setup, notes));
    return options->eval_data == NULL
               ? ZO_OK
               : open_evaluation_rows(setup, options->eval_data,
                                      options->eval_rows, notes);
}

/* ---- the whole ----------------------------------------------------------- */

enum zo_status zo_setup_open(const struct zo_options *options,
                             struct zo_notes *notes, struct zo_setup *setup)
{
    *setup = (struct zo_setup){.options = options};
    ZO_TRY(zo_cli_model_config(options, false, notes, &setup->model));
    if (options->layers > 0) {
        zo_model_config_cut(&setup->model, options->layers);
    }
    ZO_TRY(zo_cli_model_folder(options, &setup->model_folder));
    ZO_TRY(open_config(setup, notes));
    ZO_TRY(zo_place_check(&setup->config));
    ZO_TRY(options->command == ZO_COMMAND_TRAIN
               ? zo_cli_profile_check_run(setup)
               : ZO_OK);
    ZO_TRY(zo_setup_check_nvme(setup, notes));
    ZO_TRY(check_simd(setup));
    ZO_TRY(zo_setup_note_processor(options, &setup->devices.machine, notes));
    ZO_TRY(note_stage(setup, notes));
    ZO_TRY(note_collectives(setup, notes));
    ZO_TRY(note_wishes(setup, notes));
    ZO_TRY(note_length(setup, notes));
    ZO_TRY(open_rows(setup, notes));
    ZO_TRY(zo_run_config_finish(&setup->config, setup->total_steps, notes));
    ZO_TRY(set_budgets(setup, notes));
    return zo_setup_open_nvme(setup);
}

void zo_setup_close(struct zo_setup *setup)
{
    if (setup == NULL) {
        return;
    }
    zo_batches_close(setup->batches);
    zo_batches_close(setup->eval_batches);
    zo_dataset_close(setup->data);
    zo_dataset_close(setup->eval_data);
    zo_tokenizer_close(setup->tokenizer);
    zo_run_config_fini(&setup->config);
    zo_devices_close(&setup->devices);
    zo_free(setup->model_folder);
    *setup = (struct zo_setup){0};
}

enum zo_status zo_setup_vary(const struct zo_setup *setup,
                             const struct zo_options *options,
                             struct zo_notes *notes,
                             struct zo_setup *varied_out)
{
    const struct zo_run_facts facts = {
        .hidden_size = setup->model.hidden_size,
        .num_devices = setup->devices.machine.device_count,
    };
    struct zo_setup varied = *setup;
    enum zo_status status;

    varied.options = options;
    ZO_TRY(zo_run_config_read(options, &facts, notes, &varied.config));
    ZO_TRY_GOTO(close_config, zo_place_check(&varied.config));
    ZO_TRY_GOTO(close_config, zo_run_config_finish(&varied.config,
                                                   setup->total_steps, notes));
    *varied_out = varied;
    return ZO_OK;

close_config:
    zo_run_config_fini(&varied.config);
    return status;
}

void zo_setup_vary_end(struct zo_setup *varied)
{
    zo_run_config_fini(&varied->config);
}

static int64_t eval_interval(const struct zo_setup *setup)
{
    const int64_t steps = setup->options->eval_steps;

    return steps == ZO_EVAL_EVERY_EPOCH ? setup->steps_per_epoch : steps;
}

/*
 * Rates to choose a placement by: named or cached ones, which plan makes; else
 * those of the shipped machine whose name the device bears, else of the first,
 * which is the most modest.
 */
static enum zo_status find_profile(const struct zo_setup *setup,
                                   struct zo_profile *profile)
{
    const struct zo_machine *machine = &setup->devices.machine;
    const char *device =
        machine->device_ops->info(machine->devices[0])->description;
    const bool measures = setup->options->command == ZO_COMMAND_PLAN;
    bool found = false;
    const enum zo_status status =
        zo_cli_profile(setup, measures, profile, &found);

    if (status == ZO_E_USAGE || status == ZO_E_NOMEM) {
        return status;
    }
    found = found && status == ZO_OK;
    if (!found) {
        *profile = *zo_profile_shipped(0);
    }
    for (int i = 0; !found && zo_profile_shipped(i) != NULL; i++) {
        const struct zo_profile *shipped = zo_profile_shipped(i);

        found = strcasestr(device, shipped->name) != NULL;
        *profile = found ? *shipped : *profile;
    }
    zo_setup_nvme_rates(setup, profile);
    return ZO_OK;
}

bool zo_setup_plans_elsewhere(const struct zo_setup *setup)
{
    return setup->options->command == ZO_COMMAND_PLAN &&
           setup->options->profile != NULL &&
           zo_profile_find(setup->options->profile) != NULL;
}

/* Virtual devices in the place of GPUs, unless --backend asks for such. */
static bool stands_in(const struct zo_setup *setup)
{
    return zo_setup_plans_elsewhere(setup) &&
           setup->devices.machine.device_ops == &zo_device_host &&
           !zo_option_given(setup->options, ZO_OPTION_BACKEND);
}

const char *zo_setup_device_word(const struct zo_setup *setup)
{
    return stands_in(setup) ||
                   setup->devices.machine.device_ops != &zo_device_host
               ? "GPU"
               : "device";
}

static struct zo_trainer_options
trainer_options(const struct zo_setup *setup, bool times_ops,
                const struct zo_profile *profile)
{
    return (struct zo_trainer_options){
        .profile = profile,
        .plans_elsewhere = zo_setup_plans_elsewhere(setup),
        .absent_context_bytes = stands_in(setup) ? ABSENT_OWN_BYTES : 0,
        .cpu_threads = setup->options->threads > 0 || profile == NULL ||
                               !zo_setup_plans_elsewhere(setup)
                           ? 0
                           : profile->threads,
        .simd = (enum zo_simd)setup->options->simd,
        .avoids_locking = setup->avoids_locking,
        .is_serial = times_ops,
        .times_ops = times_ops,
        .config = &setup->config,
        .model = &setup->model,
        .devices = &setup->devices,
        .batches = setup->batches,
        .eval_batches = setup->eval_batches,
        .evaluates_only = setup->options->command == ZO_COMMAND_EVAL,
        .records_times = true,
        .trace = setup->trace,
        .bounds = setup->bounds,
        .positions_max = setup->positions_max,
        .first_step = 1,
        .last_step = setup->total_steps,
        .eval_every = eval_interval(setup),
        .gpu_memory_bytes = setup->gpu_memory_bytes,
        .host_memory_bytes = setup->host_memory_bytes,
        .nvme_bytes = setup->nvme_bytes,
    };
}

/* What the processor has no memory for may be meant for a GPU. */
static enum zo_status fail_fit(const struct zo_setup *setup)
{
    const struct zo_err failure = *zo_err_last();

    return zo_setup_lacks_gpu(setup->options, &setup->devices.machine)
               ? ZO_FAIL(ZO_E_FIT, "%s; " ZO_SETUP_NO_GPU, failure.text)
               : ZO_E_FIT;
}

enum zo_status zo_setup_trainer(const struct zo_setup *setup, bool times_ops,
                                struct zo_trainer **trainer_out)
{
    struct zo_profile profile;
    struct zo_trainer_options options;
    enum zo_status status;

    ZO_TRY(find_profile(setup, &profile));
    options = trainer_options(setup, times_ops, &profile);
    status = zo_trainer_open(&options, trainer_out);
    return status == ZO_E_FIT ? fail_fit(setup) : status;
}

enum zo_status zo_setup_fits(const struct zo_setup *setup,
                             const struct zo_run_config *config, bool *fits_out)
{
    struct zo_trainer_options options = trainer_options(setup, false, NULL);

    options.config = config;
    return zo_trainer_fits(&options, fits_out);
}

enum zo_status zo_setup_largest_accumulation(const struct zo_setup *setup,
                                             int64_t most, int64_t *micros_out)
{
    const struct zo_trainer_options options =
        trainer_options(setup, false, NULL);

    return zo_trainer_largest_accumulation(&options, most, micros_out);
}
