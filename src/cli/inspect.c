/*
 * zero-offload inspect: what is in a model or a data file.
 *
 *   --data FILE --model DIR   rows as training sees them
 *   --text S --model DIR      the ids of a text, [gMASK] sop in front, as the
 *                             model's own tokenizer encodes it
 *   --model DIR               the tensors of a model: inspect_model.c
 */
#include <string.h>
#include <unistd.h>

#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/cli/inputs.h"
#include "src/checkpoint/state_reader.h"
#include "src/cli/inspect.h"

#define TOKEN_COLUMNS 48
#define ROW_HEAD      "    line  tokens  labels  "
/* Of a row's text: where no terminal says how much has room, and at least. */
#define TEXT_COLUMNS 120
#define TEXT_LEAST   48

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
        zo_cli_print_text(file, spelling, strlen(spelling), TOKEN_COLUMNS);
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
    ZO_TRY_GOTO(free_ids, zo_tokenizer_encode(tokenizer, options->text,
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

/* What a line of the table has room for, behind the numbers. */
static int text_columns(FILE *file)
{
    const int columns = zo_cli_columns(file);
    const int room = columns - (int)strlen(ROW_HEAD);

    return columns == 0 ? TEXT_COLUMNS : room < TEXT_LEAST ? TEXT_LEAST : room;
}

/* *is_cut is set where the text had no room; it stays as it is else. */
static enum zo_status print_row(FILE *file, const struct zo_dataset *dataset,
                                const struct zo_tokenizer *tokenizer,
                                int64_t index, bool *is_cut)
{
    const struct zo_row_view row = zo_dataset_row(dataset, index);
    size_t text_bytes = 0;
    char *text = NULL;

    ZO_TRY(zo_tokenizer_decode(tokenizer, row.ids, (size_t)row.count, &text,
                               &text_bytes));
    (void)fprintf(file, "%8lld %7d %7d  ", (long long)row.line, (int)row.count,
                  (int)row.label_count);
    *is_cut |= !zo_cli_print_text(file, text, text_bytes, text_columns(file));
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
    bool is_cut = false;

    status = zo_cli_dataset(options, options->data, options->rows, config,
                            tokenizer, &cli->notes, &dataset);
    zo_cli_print_notes(cli);
    ZO_TRY(status);
    if (!options->json) {
        (void)fputs(ROW_HEAD "text\n", cli->out);
    }
    for (int64_t i = 0; i < zo_dataset_count(dataset); i++) {
        ZO_TRY_GOTO(close_dataset,
                    options->json
                        ? print_row_json(cli->out, dataset, tokenizer, i)
                        : print_row(cli->out, dataset, tokenizer, i, &is_cut));
    }
    if (is_cut) {
        status = zo_note_add(&cli->notes, ZO_NOTE_INFO,
                             "texts that end in ... are cut to fit the line; "
                             "--json prints them whole, with every token");
    }

close_dataset:
    zo_dataset_close(dataset);
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
    if (options->model == NULL) {
        return ZO_FAIL(ZO_E_USAGE, "inspect needs --model DIR");
    }
    if (options->data == NULL && options->text == NULL) {
        if (access(options->model, F_OK) != 0) { /* says how to get one */
            ZO_TRY(zo_cli_model_config(options, false, &cli->notes, &config));
        }
        return zo_state_is_one(options->model) ? zo_inspect_state(cli, options)
                                               : zo_inspect_model(cli, options);
    }
    ZO_TRY(zo_cli_model_config(options, false, &cli->notes, &config));
    zo_cli_print_notes(cli);
    ZO_TRY(zo_cli_tokenizer(options, &config, &tokenizer));
    status = options->text != NULL
                 ? inspect_text(cli, options, tokenizer)
                 : inspect_data(cli, options, &config, tokenizer);
    zo_tokenizer_close(tokenizer);
    return status;
}
