/*
 * zero-offload init: a model directory of random weights from a config.json.
 *
 * The numbers depend on --seed and the names of the tensors alone, so that a
 * model can be made again anywhere, and train --random-weights starts from
 * the same.  Tensors are streamed: a piece of one is all that is held.
 */
#include <string.h>

#include "src/base/memory.h"
#include "src/base/pool.h"
#include "src/base/text.h"
#include "src/checkpoint/model_dir_writer.h"
#include "src/cli/cli.h"
#include "src/cli/inputs.h"
#include "src/cli/output_folder.h"
#include "src/model/parameters.h"

/* Elements that a thread makes at a time; not part of the numbers. */
#define CHUNK_ELEMS 65536

/* The model that is being written. */
struct maker {
    const struct zo_model_config *config;
    struct zo_parameters parameters;
    struct zo_tensor_info *infos; /* owned; one a parameter */
    struct zo_pool *pool;         /* owned */
    enum zo_dtype dtype;
    uint64_t seed;
};

/* One piece of a tensor, for the pool. */
struct piece {
    const struct maker *maker;
    const struct zo_parameter *parameter;
    int64_t first_elem, elem_count;
    char *buffer;
};

static void make_chunk(void *work, int64_t index)
{
    const struct piece *piece = work;
    const struct maker *maker = piece->maker;
    const int64_t at = index * CHUNK_ELEMS;
    const int64_t count = piece->elem_count - at;

    zo_parameter_fill(
        piece->parameter, maker->config, maker->seed, piece->first_elem + at,
        count < CHUNK_ELEMS ? count : CHUNK_ELEMS, maker->dtype,
        piece->buffer + (size_t)at * zo_dtype_bytes(maker->dtype));
}

/* A zo_tensor_data_fn. */
static enum zo_status make_piece(void *context, size_t index,
                                 uint64_t offset_bytes, size_t size_bytes,
                                 void *buffer)
{
    struct maker *maker = context;
    const size_t elem_bytes = zo_dtype_bytes(maker->dtype);
    struct piece piece = {
        .maker = maker,
        .parameter = &maker->parameters.items[index],
        .first_elem = (int64_t)(offset_bytes / elem_bytes),
        .elem_count = (int64_t)(size_bytes / elem_bytes),
        .buffer = buffer,
    };

    zo_pool_run(maker->pool, make_chunk, &piece,
                (piece.elem_count + CHUNK_ELEMS - 1) / CHUNK_ELEMS);
    return ZO_OK;
}

static void maker_close(struct maker *maker)
{
    zo_pool_close(maker->pool);
    zo_free(maker->infos);
    zo_parameters_fini(&maker->parameters);
}

static enum zo_status maker_open(struct maker *maker,
                                 const struct zo_options *options,
                                 const struct zo_model_config *config)
{
    const int threads =
        options->threads > 0 ? (int)options->threads : zo_cpu_count();
    enum zo_status status;

    *maker = (struct maker){
        .config = config,
        .dtype = options->dtype,
        .seed = (uint64_t)options->seed,
    };
    ZO_TRY(zo_parameters_init(&maker->parameters, config));
    ZO_TRY_GOTO(close_maker,
                zo_alloc(maker->parameters.count, sizeof(maker->infos[0]),
                         "the list of tensors", &maker->infos));
    for (size_t i = 0; i < maker->parameters.count; i++) {
        const struct zo_parameter *item = &maker->parameters.items[i];

        maker->infos[i] = (struct zo_tensor_info){
            .name = item->name,
            .element = zo_element_of_dtype(options->dtype),
            .rank = item->dims,
            .shape = {item->shape[0], item->shape[1]},
        };
    }
    ZO_TRY_GOTO(close_maker, zo_pool_open(threads - 1, &maker->pool));
    return ZO_OK;

close_maker:
    maker_close(maker);
    return status;
}

static void report(struct zo_cli *cli, const struct zo_options *options,
                   const struct zo_model_config *config,
                   const struct zo_model_written *written)
{
    char size[16], path[1024];

    zo_text_escape(path, sizeof(path), options->output,
                   strlen(options->output));
    (void)fprintf(cli->out,
                  "%s: %lld parameters of seed %lld as %s, %s in %zu file%s, "
                  "and %zu other file%s\n",
                  path, (long long)config->parameter_count,
                  (long long)options->seed, zo_dtype_name(options->dtype),
                  zo_text_gib(size, sizeof(size), written->total_bytes),
                  written->shard_count, written->shard_count == 1 ? "" : "s",
                  written->file_count, written->file_count == 1 ? "" : "s");
}

/* --dry-run: what would be written. */
static void announce(struct zo_cli *cli, const struct zo_options *options,
                     const struct zo_model_config *config)
{
    const uint64_t bytes =
        (uint64_t)config->parameter_count * zo_dtype_bytes(options->dtype);
    char size[16], path[1024];

    zo_text_escape(path, sizeof(path), options->output,
                   strlen(options->output));
    (void)fprintf(cli->out, "%s: would hold %lld parameters as %s, %s\n", path,
                  (long long)config->parameter_count,
                  zo_dtype_name(options->dtype),
                  zo_text_gib(size, sizeof(size), bytes));
}

static enum zo_status write_model(struct zo_cli *cli,
                                  const struct zo_options *options,
                                  const struct zo_model_config *config,
                                  const char *source, const char *config_json)
{
    struct zo_model_written written = {0};
    struct zo_folders output = {0};
    struct maker maker;
    enum zo_status status;

    ZO_TRY(maker_open(&maker, options, config));
    ZO_TRY_GOTO(close_maker,
                zo_output_folder_make_parents(&output, options->output));
    status = zo_model_dir_write(
        &(struct zo_model_write_options){
            .path = options->output,
            .source_path = source,
            .config_json = config_json,
            .tensors = maker.infos,
            .tensor_count = maker.parameters.count,
            .data = make_piece,
            .context = &maker,
            .replace = options->overwrite,
        },
        &cli->notes, &written);

close_maker:
    zo_output_folder_end(&output);
    maker_close(&maker);
    zo_cli_print_notes(cli);
    ZO_TRY(status);
    report(cli, options, config, &written);
    zo_model_written_fini(&written);
    return ZO_OK;
}

/*
 * Is config.json in `source` the model's own, as it is to be written?  Then
 * it is copied, with keys that only other programs read.
 */
static bool config_is_copied(const struct zo_options *options,
                             const char *source)
{
    return options->tokenizer == NULL && options->set_count == 0 &&
           source != NULL && strcmp(source, options->model) == 0;
}

enum zo_status zo_cli_init(struct zo_cli *cli, const struct zo_options *options)
{
    struct zo_model_config config;
    char *source = NULL, *config_json = NULL;
    enum zo_status status = ZO_OK;

    if (options->output == NULL) {
        return ZO_FAIL(ZO_E_USAGE, "init needs --output DIR");
    }
    ZO_TRY(zo_cli_model_config(options, true, &cli->notes, &config));
    ZO_TRY(zo_cli_model_folder(options, &source));
    if (source == NULL) {
        ZO_TRY(zo_note_add(&cli->notes, ZO_NOTE_INFO,
                           "%s is the name of a preset and has no tokenizer; "
                           "--tokenizer DIR copies one, and without it only "
                           "rows of input_ids can be trained on",
                           options->model));
    }
    zo_cli_print_notes(cli);
    if (!config_is_copied(options, source)) {
        config.dtype = options->dtype;
        ZO_TRY_GOTO(free_texts, zo_model_config_json(&config, &config_json));
    }
    if (options->dry_run) {
        announce(cli, options, &config);
    } else {
        status = write_model(cli, options, &config, source, config_json);
    }

free_texts:
    zo_free(config_json);
    zo_free(source);
    return status;
}
