/*
 * zero-offload inspect: what is in a model or a data file.
 *
 *   --data FILE --model DIR   rows as training sees them
 *   --text S --model DIR      the ids of a text, [gMASK] sop in front, as the
 *                             model's own tokenizer encodes it
 *   --model DIR               the tensors of a model directory
 */
#include <string.h>

#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/model_dir.h"
#include "src/cli/cli.h"
#include "src/cli/inputs.h"

#define TEXT_COLUMNS 48

/* ---- --text ---- */

static enum zo_status print_ids_json(FILE *file, const struct zo_ids *ids)
{
    char buffer[4096];
    struct zo_jsonl json;

    zo_jsonl_init_file(&json, file, "standard output", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_ints(&json, "input_ids", ids->items, ids->count);
    return zo_jsonl_end(&json);
}

static void print_ids(FILE *file, const struct zo_tokenizer *tokenizer,
                      const struct zo_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        const char *spelling = zo_tokenizer_spelling(tokenizer, ids->items[i]);

        (void)fprintf(file, "%8d  ", (int)ids->items[i]);
        zo_cli_print_text(file, spelling, strlen(spelling), TEXT_COLUMNS);
        (void)fputc('\n', file);
    }
}

static enum zo_status inspect_text(struct zo_cli *cli,
                                   const struct zo_options *options,
                                   const struct zo_tokenizer *tokenizer)
{
    struct zo_ids ids = {0};
    enum zo_status status;

    ZO_TRY_GOTO(free_ids, zo_tokenizer_prefix(tokenizer, &ids));
    ZO_TRY_GOTO(free_ids,
                zo_tokenizer_encode(tokenizer, options->text,
                                    strlen(options->text), &ids));
    if (options->json) {
        status = print_ids_json(cli->out, &ids);
    } else {
        print_ids(cli->out, tokenizer, &ids);
    }

free_ids:
    zo_ids_fini(&ids);
    return status;
}

/* ---- --data ---- */

static enum zo_status print_row(FILE *file, const struct zo_dataset *dataset,
                                const struct zo_tokenizer *tokenizer,
                                int64_t index)
{
    const struct zo_row_view row = zo_dataset_row(dataset, index);
    size_t text_bytes = 0;
    char *text = NULL;

    ZO_TRY(zo_tokenizer_decode(tokenizer, row.ids, (size_t)row.count, &text,
                               &text_bytes));
    (void)fprintf(file, "%8lld %7d %7d  ", (long long)row.line, (int)row.count,
                  (int)row.label_count);
    zo_cli_print_text(file, text, text_bytes, TEXT_COLUMNS);
    (void)fputc('\n', file);
    zo_free(text);
    return ZO_OK;
}

static enum zo_status print_row_json(FILE *file,
                                     const struct zo_dataset *dataset,
                                     const struct zo_tokenizer *tokenizer,
                                     int64_t index)
{
    char *json = NULL;

    ZO_TRY(zo_dataset_row_json(dataset, tokenizer, index, &json));
    (void)fprintf(file, "%s\n", json);
    zo_free(json);
    return ZO_OK;
}

static enum zo_status inspect_data(struct zo_cli *cli,
                                   const struct zo_options *options,
                                   const struct zo_model_config *config,
                                   const struct zo_tokenizer *tokenizer)
{
    struct zo_dataset *dataset = NULL;
    enum zo_status status;

    status = zo_cli_dataset(options, options->data, options->rows, config,
                            tokenizer, &cli->notes, &dataset);
    zo_cli_print_notes(cli);
    ZO_TRY(status);
    if (!options->json) {
        (void)fputs("    line  tokens  labels  text\n", cli->out);
    }
    for (int64_t i = 0; i < zo_dataset_count(dataset); i++) {
        ZO_TRY_GOTO(close_dataset,
                    options->json
                        ? print_row_json(cli->out, dataset, tokenizer, i)
                        : print_row(cli->out, dataset, tokenizer, i));
    }

close_dataset:
    zo_dataset_close(dataset);
    return status;
}

/* ---- --model ---- */

static enum zo_status print_tensor_json(FILE *file,
                                        const struct zo_model_dir *dir,
                                        size_t index)
{
    const struct zo_tensor_info *info = zo_model_dir_info(dir, index);
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
    zo_jsonl_text(&json, "file",
                  zo_model_dir_shard_name(dir,
                                          zo_model_dir_shard_of(dir, index)));
    return zo_jsonl_end(&json);
}

static void print_tensor(FILE *file, const struct zo_model_dir *dir,
                         size_t index)
{
    const struct zo_tensor_info *info = zo_model_dir_info(dir, index);
    const char *shard =
        zo_model_dir_shard_name(dir, zo_model_dir_shard_of(dir, index));
    char shape[ZO_SHAPE_TEXT_MAX], size[16];

    (void)fprintf(
        file, "%-5s %-16s %10s  ", zo_element_name(info->element),
        zo_shape_text(shape, sizeof(shape), info->shape, info->rank),
        zo_text_gib(size, sizeof(size), info->size_bytes));
    zo_cli_print_text(file, info->name, strlen(info->name), 200);
    (void)fputs("  ", file);
    zo_cli_print_text(file, shard, strlen(shard), 200);
    (void)fputc('\n', file);
}

static void print_family(FILE *file, const struct zo_model_config *config)
{
    char name[4 * ZO_MODEL_NAME_MAX + 1];

    zo_text_escape(name, sizeof(name), config->name, strlen(config->name));
    (void)fprintf(
        file,
        "family %s%s%s, %lld layers, hidden size %lld, %lld heads (%lld key "
        "and value), inner width %lld, vocabulary %lld, up to %lld tokens\n",
        zo_model_family_name(config->family), name[0] != '\0' ? ", " : "",
        name, (long long)config->num_layers, (long long)config->hidden_size,
        (long long)config->num_heads, (long long)config->num_kv_groups,
        (long long)config->ffn_size, (long long)config->vocab_size,
        (long long)config->seq_length);
}

static void print_totals(FILE *file, const struct zo_model_dir *dir)
{
    char size[16];
    uint64_t elems = 0;

    for (size_t i = 0; i < zo_model_dir_count(dir); i++) {
        elems += zo_model_dir_info(dir, i)->elem_count;
    }
    (void)fprintf(file, "%zu tensors, %llu numbers, %s in %zu file%s\n",
                  zo_model_dir_count(dir), (unsigned long long)elems,
                  zo_text_gib(size, sizeof(size),
                              zo_model_dir_total_bytes(dir)),
                  zo_model_dir_shard_count(dir),
                  zo_model_dir_shard_count(dir) == 1 ? "" : "s");
}

static enum zo_status inspect_model(struct zo_cli *cli,
                                    const struct zo_options *options,
                                    const struct zo_model_config *config)
{
    struct zo_model_dir *dir = NULL;
    enum zo_status status =
        zo_model_dir_open(options->model, &cli->notes, &dir);

    zo_cli_print_notes(cli);
    ZO_TRY(status);
    for (size_t i = 0; i < zo_model_dir_count(dir); i++) {
        if (options->json) {
            ZO_TRY_GOTO(close_dir, print_tensor_json(cli->out, dir, i));
        } else {
            print_tensor(cli->out, dir, i);
        }
    }
    if (!options->json) {
        print_totals(cli->out, dir);
        print_family(cli->out, config);
    }

close_dir:
    zo_model_dir_close(dir);
    return status;
}

enum zo_status zo_cli_inspect(struct zo_cli *cli,
                              const struct zo_options *options)
{
    struct zo_model_config config;
    struct zo_tokenizer *tokenizer = NULL;
    enum zo_status status;

    if (options->data != NULL && options->text != NULL) {
        return ZO_FAIL(ZO_E_USAGE, "--data and --text: want one of them");
    }
    status = zo_cli_model_config(options, false, &cli->notes, &config);
    zo_cli_print_notes(cli);
    ZO_TRY(status);
    if (options->data == NULL && options->text == NULL) {
        return inspect_model(cli, options, &config);
    }
    ZO_TRY(zo_cli_tokenizer(options, &config, &tokenizer));
    status = options->text != NULL
                 ? inspect_text(cli, options, tokenizer)
                 : inspect_data(cli, options, &config, tokenizer);
    zo_tokenizer_close(tokenizer);
    return status;
}
