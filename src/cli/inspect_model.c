/*
 * The tensors of a model directory, or of one file of weights, in groups or
 * one by one.
 *
 * Every tensor of a float type is read once: weights that are not finite are
 * named, since nobody wants to learn of them from a loss.
 */
#include <string.h>

#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/model_dir.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/state_reader.h"
#include "src/checkpoint/torch_bin.h"
#include "src/cli/inspect.h"

#define PIECE_ELEMS (1 << 20)

/* What is listed: a directory or a file; the other is NULL. */
struct weights {
    struct zo_model_dir *dir;
    struct zo_tensor_source *file;
};

static size_t tensor_count(const struct weights *weights)
{
    return weights->dir != NULL ? zo_model_dir_count(weights->dir)
                                : zo_tensor_source_count(weights->file);
}

static const struct zo_tensor_info *tensor_info(const struct weights *weights,
                                                size_t index)
{
    return weights->dir != NULL ? zo_model_dir_info(weights->dir, index)
                                : zo_tensor_source_info(weights->file, index);
}

static const char *file_name(const struct weights *weights, size_t index)
{
    const char *path, *slash;

    if (weights->dir != NULL) {
        return zo_model_dir_shard_name(
            weights->dir, zo_model_dir_shard_of(weights->dir, index));
    }
    path = zo_tensor_source_path(weights->file);
    slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static enum zo_status read_piece(const struct weights *weights, size_t index,
                                 uint64_t first_elem, uint64_t elem_count,
                                 float *piece, struct zo_value_counts *counts)
{
    return weights->dir != NULL
               ? zo_model_dir_read_as(weights->dir, index, first_elem,
                                      elem_count, ZO_F32, piece, counts)
               : zo_tensor_source_read_as(weights->file, index, first_elem,
                                          elem_count, ZO_F32, piece, counts);
}

/* How many numbers of a float tensor are not finite. */
static enum zo_status count_bad(const struct weights *weights, size_t index,
                                float *piece, uint64_t *bad_out)
{
    const struct zo_tensor_info *info = tensor_info(weights, index);
    struct zo_value_counts counts = {0};
    enum zo_dtype dtype;

    *bad_out = 0;
    if (!zo_element_dtype(info->element, &dtype)) {
        return ZO_OK;
    }
    for (uint64_t at = 0; at < info->elem_count; at += PIECE_ELEMS) {
        const uint64_t rest = info->elem_count - at;

        ZO_TRY(read_piece(weights, index, at,
                          rest < PIECE_ELEMS ? rest : PIECE_ELEMS, piece,
                          &counts));
    }
    *bad_out = counts.non_finite;
    return ZO_OK;
}

static enum zo_status print_json(FILE *file, const struct weights *weights,
                                 size_t index, uint64_t bad)
{
    const struct zo_tensor_info *info = tensor_info(weights, index);
    char buffer[4096];
    struct zo_jsonl json;

    zo_jsonl_init_file(&json, file, "standard output", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_text(&json, "name", info->name);
    zo_jsonl_text(&json, "dtype", zo_element_name(info->element));
    zo_jsonl_array_begin(&json, "shape");
    for (int i = 0; i < info->rank; i++) {
        zo_jsonl_int(&json, NULL, info->shape[i]);
    }
    zo_jsonl_array_end(&json);
    zo_jsonl_uint(&json, "bytes", info->size_bytes);
    zo_jsonl_text(&json, "file", file_name(weights, index));
    zo_jsonl_uint(&json, "non_finite", bad);
    return zo_jsonl_end(&json);
}

static void print_plain(FILE *file, const struct weights *weights, size_t index,
                        uint64_t bad)
{
    const struct zo_tensor_info *info = tensor_info(weights, index);
    const char *name = file_name(weights, index);
    char shape[ZO_SHAPE_TEXT_MAX], size[16];

    (void)fprintf(file, "%-5s %-16s %10s  ", zo_element_name(info->element),
                  zo_shape_text(shape, sizeof(shape), info->shape, info->rank),
                  zo_text_gib(size, sizeof(size), info->size_bytes));
    zo_cli_print_text(file, info->name, strlen(info->name), 200);
    (void)fputs("  ", file);
    zo_cli_print_text(file, name, strlen(name), 200);
    if (bad > 0) {
        (void)fprintf(file, "  %llu not finite", (unsigned long long)bad);
    }
    (void)fputc('\n', file);
}

/* Reads every tensor; a line each with --tensors, an object with --json. */
static enum zo_status print_tensors(struct zo_cli *cli,
                                    const struct zo_options *options,
                                    const struct weights *weights)
{
    struct zo_inspect_list groups = {0};
    enum zo_status status;
    float *piece = NULL;

    ZO_TRY(
        zo_alloc(PIECE_ELEMS, sizeof(*piece), "a piece of a tensor", &piece));
    for (size_t i = 0; i < tensor_count(weights); i++) {
        uint64_t bad = 0;

        ZO_TRY_GOTO(free_piece, count_bad(weights, i, piece, &bad));
        if (options->json) {
            ZO_TRY_GOTO(free_piece, print_json(cli->out, weights, i, bad));
        } else if (options->tensors) {
            print_plain(cli->out, weights, i, bad);
        } else {
            ZO_TRY_GOTO(free_piece, zo_inspect_list_add(
                                        &groups, tensor_info(weights, i), ""));
        }
        if (bad > 0) {
            ZO_TRY_GOTO(free_piece,
                        zo_note_add(&cli->notes, ZO_NOTE_WARN,
                                    "%s: tensor \"%s\" has %llu number%s not "
                                    "finite",
                                    file_name(weights, i),
                                    tensor_info(weights, i)->name,
                                    (unsigned long long)bad,
                                    bad == 1 ? " that is" : "s that are"));
        }
    }
    status = zo_inspect_list_print(&groups, cli->out);

free_piece:
    zo_inspect_list_fini(&groups);
    zo_free(piece);
    return status;
}

static void print_totals(FILE *file, const struct weights *weights)
{
    const size_t files =
        weights->dir != NULL ? zo_model_dir_shard_count(weights->dir) : 1;
    uint64_t elems = 0, bytes = 0;
    char size[16];

    for (size_t i = 0; i < tensor_count(weights); i++) {
        elems += tensor_info(weights, i)->elem_count;
        bytes += tensor_info(weights, i)->size_bytes;
    }
    (void)fprintf(file, "%zu tensor%s, %llu number%s, %s in %zu file%s\n",
                  tensor_count(weights), zo_text_s(tensor_count(weights)),
                  (unsigned long long)elems, zo_text_s(elems),
                  zo_text_gib(size, sizeof(size), bytes), files,
                  zo_text_s(files));
}

static void print_config(FILE *file, const struct zo_model_config *config)
{
    char name[4 * ZO_MODEL_NAME_MAX + 1];

    zo_text_escape(name, sizeof(name), config->name, strlen(config->name));
    (void)fprintf(
        file,
        "family %s%s%s: %lld layer%s, hidden size %lld, %lld head%s (%lld of "
        "keys and values), inner width %lld, vocabulary %lld, rows up to "
        "%lld tokens\n",
        zo_model_family_name(config->family), name[0] != '\0' ? ", " : "", name,
        (long long)config->num_layers, zo_text_s((uint64_t)config->num_layers),
        (long long)config->hidden_size, (long long)config->num_heads,
        zo_text_s((uint64_t)config->num_heads),
        (long long)config->num_kv_groups, (long long)config->ffn_size,
        (long long)config->vocab_size, (long long)config->seq_length);
}

/*
 * Weights can be looked at whatever they belong to: a config.json that train
 * would refuse is a warning here.
 */
static enum zo_status print_family(struct zo_cli *cli,
                                   const struct zo_options *options)
{
    struct zo_model_config config;
    const enum zo_status status = zo_model_config_read(
        options->model, options->model_family, NULL, 0, &cli->notes, &config);

    if (status == ZO_OK) {
        print_config(cli->out, &config);
        return zo_inspect_tokenizer(cli, options, &config);
    }
    if (zo_status_exit_code(status) != zo_status_exit_code(ZO_E_CONFIG)) {
        return status;
    }
    return zo_note_add(&cli->notes, ZO_NOTE_WARN, "cannot be trained: %s",
                       zo_err_last()->text);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);

    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static enum zo_status open_weights(struct zo_cli *cli, const char *path,
                                   struct weights *weights)
{
    if (ends_with(path, ".safetensors")) {
        return zo_safetensors_open(path, &weights->file);
    }
    if (ends_with(path, ".bin") || ends_with(path, ".pt")) {
        return zo_torch_bin_open(path, &weights->file);
    }
    return zo_model_dir_open(path, &cli->notes, &weights->dir);
}

/* Of every file; the pieces of a state have checksums of their own. */
static enum zo_status print_checksums(struct zo_cli *cli, const char *model,
                                      const struct weights *weights,
                                      bool as_json)
{
    if (weights->dir == NULL) {
        return zo_inspect_checksum(cli, model, file_name(weights, 0), as_json);
    }
    if (zo_state_is_one(model)) {
        return ZO_OK;
    }
    for (size_t i = 0; i < zo_model_dir_shard_count(weights->dir); i++) {
        const char *name = zo_model_dir_shard_name(weights->dir, i);
        enum zo_status status;
        char *path = NULL;

        ZO_TRY(zo_disk_join(model, name, &path));
        status = zo_inspect_checksum(cli, path, name, as_json);
        zo_free(path);
        ZO_TRY(status);
    }
    return ZO_OK;
}

enum zo_status zo_inspect_model(struct zo_cli *cli,
                                const struct zo_options *options)
{
    struct weights weights = {0};
    enum zo_status status;

    ZO_TRY(open_weights(cli, options->model, &weights));
    zo_cli_print_notes(cli);
    ZO_TRY_GOTO(close_weights, print_tensors(cli, options, &weights));
    if (options->checksums) {
        ZO_TRY_GOTO(close_weights, print_checksums(cli, options->model,
                                                   &weights, options->json));
    }
    if (!options->json) {
        print_totals(cli->out, &weights);
        if (weights.dir != NULL) {
            ZO_TRY_GOTO(close_weights, print_family(cli, options));
        }
    }

close_weights:
    zo_model_dir_close(weights.dir);
    zo_tensor_source_close(weights.file);
    return status;
}
