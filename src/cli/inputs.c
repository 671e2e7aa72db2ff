#include "src/cli/inputs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/state_reader.h"

static bool needs_weights(const struct zo_options *options)
{
    return (options->command == ZO_COMMAND_TRAIN && !options->random_weights) ||
           options->command == ZO_COMMAND_EVAL ||
           options->command == ZO_COMMAND_GENERATE ||
           options->command == ZO_COMMAND_EXPORT ||
           (options->command == ZO_COMMAND_INSPECT && options->data == NULL &&
            options->text == NULL);
}

/* A name of a shape where the model's folder is wanted: it is not here. */
static enum zo_status check_weights(const struct zo_options *options)
{
    struct zo_model_config shape;

    if (!needs_weights(options) || access(options->model, F_OK) == 0 ||
        !zo_model_preset(options->model, &shape)) {
        return ZO_OK;
    }
    return ZO_FAIL(ZO_E_USAGE,
                   "--model %s: no such folder here, and the name stands for a "
                   "shape alone; %s needs weights and tokenizer: hf download "
                   "THUDM/%s --local-dir %s",
                   options->model, zo_command_name(options->command),
                   options->model, options->model);
}

enum zo_status zo_cli_model_config(const struct zo_options *options,
                                   bool takes_sets, struct zo_notes *notes,
                                   struct zo_model_config *config_out)
{
    if (options->model == NULL) {
        return ZO_FAIL(ZO_E_USAGE, "%s needs --model DIR",
                       zo_command_name(options->command));
    }
    ZO_TRY(check_weights(options));
    return zo_model_config_read(
        options->model, options->model_family, options->sets,
        takes_sets ? options->set_count : 0, notes, config_out);
}

enum zo_status zo_cli_model_folder(const struct zo_options *options,
                                   char **folder_out)
{
    const char *model =
        options->tokenizer != NULL ? options->tokenizer : options->model;
    const char *slash = strrchr(model, '/');
    struct stat info;

    if (stat(model, &info) != 0) {
        if (options->tokenizer != NULL) {
            return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "--tokenizer %s: %s",
                                  model, strerror(errno));
        }
        *folder_out = NULL; /* a preset: it has no files */
        return ZO_OK;
    }
    if (S_ISDIR(info.st_mode)) {
        return zo_strndup(model, strlen(model), folder_out);
    }
    if (slash == NULL) {
        return zo_strndup(".", 1, folder_out);
    }
    return zo_strndup(model, slash == model ? 1 : (size_t)(slash - model),
                      folder_out);
}

static enum zo_status open_in(const char *folder,
                              const struct zo_model_config *config,
                              struct zo_tokenizer **tokenizer_out)
{
    struct zo_tokenizer *tokenizer = NULL;
    enum zo_status status;
    char *path = NULL;
    int32_t id_count;

    ZO_TRY(zo_disk_join(folder, "tokenizer.model", &path));
    ZO_TRY_GOTO(free_path,
                zo_tokenizer_open(path, config->chat_format, &tokenizer));
    id_count = zo_tokenizer_id_count(tokenizer);
    if (id_count > config->vocab_size) {
        status = ZO_FAIL(ZO_E_CORRUPT,
                         "%s has %d ids, but the model's vocabulary has %lld "
                         "rows: they do not belong together",
                         path, (int)id_count, (long long)config->vocab_size);
        zo_tokenizer_close(tokenizer);
        goto free_path;
    }
    *tokenizer_out = tokenizer;

free_path:
    zo_free(path);
    return status;
}

enum zo_status zo_cli_tokenizer(const struct zo_options *options,
                                const struct zo_model_config *config,
                                struct zo_tokenizer **tokenizer_out)
{
    char *folder = NULL;
    enum zo_status status;

    ZO_TRY(zo_cli_model_folder(options, &folder));
    if (folder == NULL) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--model %s: no such folder here, and the name stands "
                       "for a shape alone, without a tokenizer; want "
                       "--tokenizer DIR with a tokenizer.model, or the model "
                       "itself: hf download THUDM/%s --local-dir %s",
                       options->model, options->model, options->model);
    }
    status = open_in(folder, config, tokenizer_out);
    zo_free(folder);
    return status;
}

/* Of the run that saved a state; false when it does not say. */
static bool find_state_dtype(const struct zo_state *state,
                             enum zo_dtype *dtype_out)
{
    size_t count = 0;
    const struct zo_state_setting *settings = zo_state_settings(state, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(settings[i].name, "dtype") != 0) {
            continue;
        }
        for (int type = ZO_F32; type <= ZO_F16; type++) {
            if (strcmp(settings[i].value, zo_dtype_name((enum zo_dtype)type)) ==
                0) {
                *dtype_out = (enum zo_dtype)type;
                return true;
            }
        }
    }
    return false;
}

enum zo_status zo_cli_saved_dtype(const char *model,
                                  const struct zo_model_config *config,
                                  enum zo_dtype *dtype_out,
                                  const char **why_out)
{
    *dtype_out = config->names_dtype ? config->dtype : ZO_F32;
    *why_out = config->names_dtype ? "torch_dtype of its config.json"
                                   : "since its config.json names no type";
    if (zo_state_is_one(model)) {
        struct zo_state *state = NULL;

        ZO_TRY(zo_state_open(model, &state));
        if (find_state_dtype(state, dtype_out)) {
            *why_out = "the type that it was trained in";
        }
        zo_state_close(state);
    }
    return ZO_OK;
}

enum zo_status zo_cli_note_dtype(enum zo_dtype dtype, const char *why,
                                 struct zo_notes *notes)
{
    return zo_note_add(
        notes, ZO_NOTE_INFO,
        "computing in %s, %s (--bf16 and --fp16 choose; --no-fp16 is fp32)",
        zo_dtype_name(dtype), why);
}

enum zo_status zo_cli_nvme_folder(const char *folder)
{
    struct stat info;

    if (stat(folder, &info) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "NVMe folder %s: %s%s", folder,
                              strerror(errno),
                              errno == ENOENT ? "; make it first" : "");
    }
    if (!S_ISDIR(info.st_mode)) {
        return ZO_FAIL(ZO_E_USAGE, "NVMe folder %s: not a folder", folder);
    }
    return access(folder, W_OK | X_OK) == 0
               ? ZO_OK
               : ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "NVMe folder %s: %s", folder,
                                strerror(errno));
}

/* NULL for a default: columns that the user names rule out other kinds. */
static const char *given(const struct zo_options *options, enum zo_option_id id,
                         const char *value)
{
    return zo_option_given(options, id) ? value : NULL;
}

enum zo_status zo_cli_dataset(const struct zo_options *options,
                              const char *path, int64_t rows_max,
                              const struct zo_model_config *config,
                              const struct zo_tokenizer *tokenizer,
                              struct zo_notes *notes,
                              struct zo_dataset **dataset_out)
{
    const int64_t max_length =
        options->max_length != 0 ? options->max_length : config->seq_length;
    const struct zo_dataset_options rows = {
        .path = path,
        .prompt_column =
            given(options, ZO_OPTION_PROMPT_COLUMN, options->prompt_column),
        .response_column =
            given(options, ZO_OPTION_RESPONSE_COLUMN, options->response_column),
        .history_column = options->history_column,
        .max_length = (int32_t)zo_min_i64(max_length, INT32_MAX),
        .max_source_length = (int32_t)options->max_source_length,
        .max_target_length = (int32_t)options->max_target_length,
        .on_long = options->on_long,
        .skip_bad_rows = options->skip_bad_rows,
        .vocab_size = (int32_t)zo_min_i64(config->vocab_size, INT32_MAX),
        .rows_max = rows_max,
    };

    if (options->source_prefix != NULL && options->source_prefix[0] != '\0') {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "--source-prefix: no text can be put in front of "
                       "prompts; write it into the rows");
    }
    return zo_dataset_open(&rows, tokenizer, notes, dataset_out);
}
