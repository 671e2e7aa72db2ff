/*
 * zero-offload export: a model directory for other programs, out of a model
 * or a training state.
 *
 * Tensors are streamed: a piece of one is all that is held.
 */
#include <inttypes.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/file_hash.h"
#include "src/checkpoint/model_dir.h"
#include "src/checkpoint/model_dir_writer.h"
#include "src/checkpoint/state_reader.h"
#include "src/cli/cli.h"
#include "src/cli/inputs.h"
#include "src/cli/output_folder.h"
#include "src/model/export_layout.h"

struct job {
    struct zo_cli *cli;
    const struct zo_options *options;
    struct zo_model_config config;
    enum zo_export_layout layout;
    enum zo_dtype dtype;
    struct zo_model_dir *dir;
    struct zo_parameters parameters;
    struct zo_export_tensors tensors;
    size_t *sources;                /* owned; of a parameter, in dir */
    struct zo_tensor_info *infos;   /* owned; of tensors */
    struct zo_value_counts *counts; /* owned; of tensors */
    char *tokenizer;                /* owned; NULL: the model's own */
    char *config_json;              /* owned; NULL: copied */
    struct zo_model_written written;
    struct zo_folders output;
};

/* ---- what is written ----------------------------------------------------- */

static enum zo_status check_names(struct job *job)
{
    const struct zo_parameters *parameters = &job->parameters;
    struct zo_expected_tensor *expected = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(parameters->trained_count, sizeof(expected[0]),
                    "the list of tensors", &expected));
    for (size_t i = 0; i < parameters->trained_count; i++) {
        const struct zo_parameter *parameter = &parameters->items[i];

        expected[i] = (struct zo_expected_tensor){
            .name = parameter->name,
            .rank = parameter->dims,
            .shape = {parameter->shape[0], parameter->shape[1]},
        };
    }
    status = zo_model_dir_check_names(
        job->dir, expected, parameters->trained_count, &job->cli->notes);
    zo_free(expected);
    return status;
}

/* Where the parameters are, and whether inv_freq is among them (a state has
 * only what is trained, and may stem from official files). */
static enum zo_status find_sources(struct job *job, bool *has_inv_freq)
{
    const struct zo_parameters *parameters = &job->parameters;

    ZO_TRY(check_names(job));
    ZO_TRY(zo_alloc(parameters->count, sizeof(job->sources[0]),
                    "the list of tensors", &job->sources));
    *has_inv_freq = true;
    for (size_t i = 0; i < parameters->count; i++) {
        if (!zo_model_dir_find(job->dir, parameters->items[i].name,
                               &job->sources[i])) {
            ZO_ASSERT(i == parameters->trained_count);
            *has_inv_freq = zo_state_is_one(job->options->model);
        }
    }
    return ZO_OK;
}

static enum zo_status list_tensors(struct job *job)
{
    bool has_inv_freq = false;

    ZO_TRY(zo_parameters_init(&job->parameters, &job->config));
    ZO_TRY(find_sources(job, &has_inv_freq));
    ZO_TRY(zo_export_tensors_init(&job->tensors, job->layout, has_inv_freq,
                                  &job->config, &job->parameters));
    ZO_TRY(zo_alloc(job->tensors.count, sizeof(job->infos[0]),
                    "the list of tensors", &job->infos));
    ZO_TRY(zo_alloc(job->tensors.count, sizeof(job->counts[0]),
                    "what is counted of tensors", &job->counts));
    for (size_t i = 0; i < job->tensors.count; i++) {
        const struct zo_export_tensor *tensor = &job->tensors.items[i];

        job->infos[i] = (struct zo_tensor_info){
            .name = tensor->name,
            .element = zo_element_of_dtype(job->dtype),
            .rank = tensor->dims,
            .shape = {tensor->shape[0], tensor->shape[1]},
        };
        if (!zo_tensor_info_measure(&job->infos[i])) {
            return ZO_FAIL(ZO_E_SHAPE, "tensor \"%s\": its size does not fit",
                           tensor->name);
        }
    }
    return ZO_OK;
}

/* A zo_tensor_data_fn. */
static enum zo_status give(void *context, size_t index, uint64_t offset_bytes,
                           size_t size_bytes, void *buffer)
{
    struct job *job = context;
    const struct zo_export_tensor *tensor = &job->tensors.items[index];
    const size_t elem_bytes = zo_dtype_bytes(job->dtype);
    const int64_t first =
        tensor->first_elem + (int64_t)(offset_bytes / elem_bytes);

    if (tensor->parameter >= job->parameters.trained_count) { /* inv_freq */
        zo_parameter_fill(
            &job->parameters.items[tensor->parameter], &job->config, 0, first,
            (int64_t)(size_bytes / elem_bytes), job->dtype, buffer);
        return ZO_OK;
    }
    return zo_model_dir_read_as(job->dir, job->sources[tensor->parameter],
                                (uint64_t)first, size_bytes / elem_bytes,
                                job->dtype, buffer, &job->counts[index]);
}

/* ---- what is said -------------------------------------------------------- */

/* Numbers that others will stumble over: the first tensor that has some. */
static enum zo_status note_counts(struct job *job)
{
    struct zo_value_counts all = {0};
    const char *first = NULL;

    for (size_t i = 0; i < job->tensors.count; i++) {
        const struct zo_value_counts *counts = &job->counts[i];

        all.non_finite += counts->non_finite;
        all.overflowed += counts->overflowed;
        if (first == NULL && counts->non_finite + counts->overflowed > 0) {
            first = job->tensors.items[i].name;
        }
    }
    if (first == NULL) {
        return ZO_OK;
    }
    return zo_note_add(
        &job->cli->notes, ZO_NOTE_WARN,
        "of the source %" PRIu64 " number%s not finite, and %" PRIu64
        " overflow%s in %s; the first tensor with some is %s",
        all.non_finite, all.non_finite == 1 ? " is" : "s are", all.overflowed,
        all.overflowed == 1 ? "s" : "", zo_dtype_name(job->dtype), first);
}

static enum zo_status note_angles(struct job *job)
{
    if (job->layout != ZO_LAYOUT_CHATGLM || job->dtype != ZO_BF16 ||
        job->config.rope_angles != ZO_ROPE_ANGLES_MODEL) {
        return ZO_OK;
    }
    return zo_note_add(
        &job->cli->notes, ZO_NOTE_WARN,
        "the official code of this family computes rotary angles in the "
        "model's number type; in bf16 their sines and cosines are wrong by "
        "0.5 at position 190 and by 1.6 at 510; have that code load the "
        "export in fp32 (.float()), or use --layout glm; eval "
        "--rope-precision model shows the loss with such angles");
}

/* Code came along that nobody here has read: which, exactly. */
static enum zo_status list_code(struct job *job)
{
    const struct zo_model_written *written = &job->written;

    for (size_t i = 0; i < written->py_count; i++) {
        char hash[ZO_SHA256_TEXT_BYTES], name[512];
        enum zo_status status;
        char *path = NULL;

        ZO_TRY(zo_disk_join(job->options->output, written->py_files[i], &path));
        status = zo_file_hash(path, hash);
        zo_free(path);
        ZO_TRY(status);
        zo_text_escape(name, sizeof(name), written->py_files[i],
                       strlen(written->py_files[i]));
        (void)fprintf(job->cli->out, "unchecked code, sha256 %s: %s\n", hash,
                      name);
    }
    return ZO_OK;
}

static void report(struct job *job)
{
    const struct zo_options *options = job->options;
    const struct zo_model_written *written = &job->written;
    uint64_t bytes = 0;
    char size[16], path[1024];

    for (size_t i = 0; i < job->tensors.count; i++) {
        bytes += job->infos[i].size_bytes;
    }
    zo_text_escape(path, sizeof(path), options->output,
                   strlen(options->output));
    (void)fprintf(job->cli->out, "%s: %s%zu tensors as %s, %s", path,
                  options->dry_run ? "would hold " : "", job->tensors.count,
                  zo_dtype_name(job->dtype),
                  zo_text_gib(size, sizeof(size), bytes));
    if (!options->dry_run) {
        (void)fprintf(job->cli->out, " in %zu file%s, and %zu other file%s",
                      written->shard_count,
                      written->shard_count == 1 ? "" : "s", written->file_count,
                      written->file_count == 1 ? "" : "s");
    }
    (void)fputc('\n', job->cli->out);
}

/* ---- the whole ----------------------------------------------------------- */

static enum zo_status choose_dtype(struct job *job)
{
    if (zo_option_given(job->options, ZO_OPTION_EXPORT_DTYPE)) {
        job->dtype = job->options->dtype;
        return ZO_OK;
    }
    if (zo_state_is_one(job->options->model)) {
        job->dtype = job->config.dtype; /* its numbers are masters */
        return ZO_OK;
    }
    return zo_model_dir_dtype(job->dir, &job->dtype)
               ? ZO_OK
               : ZO_FAIL(ZO_E_CORRUPT,
                         "%s: holds no tensor in fp32, bf16 or fp16",
                         job->options->model);
}

static enum zo_status open_all(struct job *job)
{
    const struct zo_options *options = job->options;
    struct zo_notes *notes = &job->cli->notes;

    if (options->output == NULL) {
        return ZO_FAIL(ZO_E_USAGE, "export needs --output DIR");
    }
    ZO_TRY(zo_cli_model_config(options, false, notes, &job->config));
    ZO_TRY(zo_model_dir_check_target(options->output, options->overwrite));
    ZO_TRY(zo_model_dir_open(options->model, notes, &job->dir));
    ZO_TRY(choose_dtype(job));
    ZO_TRY(list_tensors(job));
    if (options->tokenizer != NULL) {
        ZO_TRY(zo_cli_model_folder(options, &job->tokenizer));
    }
    job->config.dtype = job->dtype;
    return job->layout == ZO_LAYOUT_GLM
               ? zo_model_config_glm_json(&job->config, &job->config_json)
               : ZO_OK;
}

static enum zo_status write_all(struct job *job)
{
    const struct zo_options *options = job->options;
    const struct zo_model_write_options write = {
        .path = options->output,
        .source_path = options->model,
        .tokenizer_path = job->tokenizer,
        .config_json = job->config_json,
        .tensors = job->infos,
        .tensor_count = job->tensors.count,
        .data = give,
        .context = job,
        .shard_bytes = options->max_shard_bytes,
        .replace = options->overwrite,
    };

    ZO_TRY(zo_output_folder_make_parents(&job->output, options->output));
    ZO_TRY(zo_model_dir_write(&write, &job->cli->notes, &job->written));
    ZO_TRY(note_counts(job));
    return note_angles(job);
}

static enum zo_status run(struct job *job)
{
    ZO_TRY(open_all(job));
    zo_cli_print_notes(job->cli);
    if (!job->options->dry_run) {
        ZO_TRY(write_all(job));
    }
    report(job);
    return list_code(job);
}

enum zo_status zo_cli_export(struct zo_cli *cli,
                             const struct zo_options *options)
{
    struct job job = {
        .cli = cli,
        .options = options,
        .layout = (enum zo_export_layout)options->layout,
    };
    const enum zo_status status = run(&job);

    zo_output_folder_end(&job.output);
    zo_model_written_fini(&job.written);
    zo_export_tensors_fini(&job.tensors);
    zo_parameters_fini(&job.parameters);
    zo_model_dir_close(job.dir);
    zo_free(job.sources);
    zo_free(job.infos);
    zo_free(job.counts);
    zo_free(job.tokenizer);
    zo_free(job.config_json);
    return status;
}
