#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/hash.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/cli/saving.h"

/* ---- settings --------------------------------------------------------------
 */

static void add(struct zo_saving_settings *settings, const char *name,
                const char *value)
{
    ZO_ASSERT(settings->count < ZO_SAVING_SETTINGS_MAX);
    char *text = settings->texts[settings->count];

    (void)snprintf(text, sizeof(settings->texts[0]), "%s", value);
    settings->items[settings->count++] = (struct zo_state_setting){name, text};
}

static void add_real(struct zo_saving_settings *settings, const char *name,
                     double value)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%.15g", value);
    add(settings, name, text);
}

static void add_int(struct zo_saving_settings *settings, const char *name,
                    int64_t value)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%" PRId64, value);
    add(settings, name, text);
}

static void add_bytes(struct zo_saving_settings *settings, const char *name,
                      uint64_t bytes)
{
    char text[64];

    add(settings, name,
        bytes == 0 ? "what is free" : zo_text_gib(text, sizeof(text), bytes));
}

static void add_numbers(struct zo_saving_settings *settings,
                        const struct zo_run_config *config)
{
    const struct zo_run_optimizer *optimizer = &config->optimizer;
    const struct zo_run_schedule *schedule = &config->schedule;

    add_real(settings, "learning_rate", optimizer->learning_rate);
    add_real(settings, "weight_decay", optimizer->weight_decay);
    add_real(settings, "adam_beta1", optimizer->beta1);
    add_real(settings, "adam_beta2", optimizer->beta2);
    add_real(settings, "adam_epsilon", optimizer->epsilon);
    add_real(settings, "gradient_clipping", config->gradient_clipping);
    add(settings, "schedule", zo_schedule_type_name(schedule->type));
    add_real(settings, "schedule_learning_rate", schedule->learning_rate);
    add_int(settings, "warmup_steps", schedule->warmup_steps);
    add_int(settings, "total_steps", schedule->total_steps);
    add(settings, "dtype", zo_dtype_name(config->dtype));
    add(settings, "moment_dtype", zo_dtype_name(optimizer->moment_dtype));
    add(settings, "loss_reduction",
        zo_loss_reduction_name(config->loss_reduction));
}

void zo_saving_settings(const struct zo_setup *setup,
                        struct zo_saving_settings *settings)
{
    const struct zo_run_config *config = &setup->config;
    const struct zo_options *options = setup->options;

    settings->count = 0;
    add_numbers(settings, config);
    add_int(settings, "devices", config->num_devices);
    add_int(settings, "micro_batch_rows", config->micro_batch_rows);
    add_int(settings, "gradient_accumulation_steps",
            config->gradient_accumulation_steps);
    add_int(settings, "zero_stage", config->zero.stage);
    add(settings, "offload_optimizer",
        zo_home_limit_name(config->zero.optimizer.limit));
    add(settings, "offload_param",
        zo_home_limit_name(config->zero.param.limit));
    add_bytes(settings, "gpu_memory", options->gpu_memory_bytes);
    add_bytes(settings, "host_memory", options->host_memory_bytes);
    add_real(settings, "save_minutes", options->save_minutes);
    add_int(settings, "save_steps", options->save_steps);
    add_int(settings, "eval_steps", options->eval_steps);
}

/* ---- fingerprints ----------------------------------------------------------
 */

/* What a parameter means; not in which type files hold it, nor its name. */
static enum zo_status model_fingerprint(const struct zo_setup *setup,
                                        uint64_t *hash_out)
{
    struct zo_model_config config = setup->model;
    char *text = NULL;

    config.dtype = ZO_F32;
    memset(config.name, 0, sizeof(config.name));
    ZO_TRY(zo_model_config_json(&config, &text));
    *hash_out = zo_hash64(text, strlen(text));
    zo_free(text);
    return ZO_OK;
}

enum zo_status zo_saving_run(const struct zo_setup *setup,
                             struct zo_state_run *run)
{
    *run = (struct zo_state_run){
        .seed = (uint64_t)setup->config.seed,
        .shuffles = setup->options->shuffle,
        .step_rows = setup->config.train_batch_rows,
        .data_fingerprint = zo_dataset_fingerprint(setup->data),
    };
    return model_fingerprint(setup, &run->model_fingerprint);
}

/* ---- is it ours? -----------------------------------------------------------
 */

static enum zo_status check_rows(const struct zo_state *state,
                                 const struct zo_state_run *saved,
                                 const struct zo_state_run *now)
{
    const char *path = zo_state_path(state);

    if (saved->step_rows != now->step_rows) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "%s: its steps have %" PRId64
                       " rows, and those of this run %" PRId64
                       ": want the same train_batch_size, so that each row is "
                       "seen once (micro batch, accumulation and devices may "
                       "change)",
                       path, saved->step_rows, now->step_rows);
    }
    if (saved->seed != now->seed || saved->shuffles != now->shuffles) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "%s: its rows come in another order (--seed %" PRIu64
                       "%s): want the same --seed and --no-shuffle",
                       path, saved->seed,
                       saved->shuffles != 0 ? "" : ", --no-shuffle");
    }
    return ZO_OK;
}

static enum zo_status note_changes(const struct zo_setup *setup,
                                   const struct zo_state *state,
                                   struct zo_notes *notes)
{
    struct zo_saving_settings now;
    const struct zo_state_setting *saved;
    size_t count = 0;

    zo_saving_settings(setup, &now);
    saved = zo_state_settings(state, &count);
    for (size_t i = 0; i < now.count; i++) {
        for (size_t k = 0; k < count; k++) {
            if (strcmp(now.items[i].name, saved[k].name) == 0 &&
                strcmp(now.items[i].value, saved[k].value) != 0) {
                ZO_TRY(zo_note_add(notes, ZO_NOTE_INFO,
                                   "%s: %s now; %.80s when the state was saved",
                                   now.items[i].name, now.items[i].value,
                                   saved[k].value));
            }
        }
    }
    return ZO_OK;
}

enum zo_status zo_saving_check(const struct zo_setup *setup,
                               const struct zo_state *state,
                               struct zo_notes *notes)
{
    const struct zo_state_run *saved = zo_state_run(state);
    struct zo_state_run now;

    ZO_TRY(zo_saving_run(setup, &now));
    if (saved->model_fingerprint != now.model_fingerprint) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "%s: it is the state of another model than %s",
                       zo_state_path(state), setup->options->model);
    }
    if (saved->data_fingerprint != now.data_fingerprint) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "%s: its rows are not those of %s as it is now: they, "
                       "or how they are cut and read, have changed",
                       zo_state_path(state), setup->options->data);
    }
    ZO_TRY(check_rows(state, saved, &now));
    return notes == NULL ? ZO_OK : note_changes(setup, state, notes);
}
