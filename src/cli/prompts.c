#include "src/cli/prompts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"

#define INPUT_BYTES_MAX ((size_t)16 << 20)
#define READ_BYTES      65536

/* Earlier rounds, two turns each, and room for the question. */
struct history {
    struct zo_json_doc *doc; /* owned; that the turns borrow from */
    struct zo_turn *turns;   /* owned */
    size_t count;
};

static void history_fini(struct history *history)
{
    zo_json_close(history->doc);
    zo_free(history->turns);
}

static enum zo_status add_round(const char *path, struct history *history,
                                const struct zo_json *round)
{
    static const enum zo_role roles[] = {ZO_ROLE_USER, ZO_ROLE_ASSISTANT};
    const bool is_array = zo_json_type(round) == ZO_JSON_ARRAY;
    const struct zo_json *text = is_array ? zo_json_first(round) : NULL;

    if (!is_array || zo_json_count(round) != 2) {
        return ZO_FAIL(ZO_E_DATA,
                       "--history %s: round %zu is %s; want an array of "
                       "[question, answer]",
                       path, history->count / 2 + 1, zo_json_type_name(round));
    }
    for (int i = 0; i < 2; i++, text = zo_json_next(text)) {
        if (zo_json_type(text) != ZO_JSON_STRING) {
            return ZO_FAIL(ZO_E_DATA,
                           "--history %s: round %zu holds %s; want two "
                           "strings, question and answer",
                           path, history->count / 2 + 1,
                           zo_json_type_name(text));
        }
        history->turns[history->count + (size_t)i] = (struct zo_turn){
            roles[i], zo_json_string(text), strlen(zo_json_string(text))};
    }
    history->count += 2;
    return ZO_OK;
}

static enum zo_status read_history(const char *path, struct history *history)
{
    const struct zo_json_options options = {.status = ZO_E_DATA};
    const struct zo_json *root = NULL;

    if (path != NULL) {
        ZO_TRY(zo_json_read(path, &options, &history->doc));
        root = zo_json_root(history->doc);
        if (zo_json_type(root) != ZO_JSON_ARRAY) {
            return ZO_FAIL(ZO_E_DATA,
                           "--history %s: holds %s; want an array of "
                           "[question, answer]",
                           path, zo_json_type_name(root));
        }
    }
    ZO_TRY(zo_alloc(2 * (root != NULL ? zo_json_count(root) : 0) + 1,
                    sizeof(history->turns[0]), "the history", &history->turns));
    for (const struct zo_json *round = root != NULL ? zo_json_first(root)
                                                    : NULL;
         round != NULL; round = zo_json_next(round)) {
        ZO_TRY(add_round(path, history, round));
    }
    return ZO_OK;
}

/* Where prompts go, and how they are encoded. */
struct reader {
    const struct zo_options *options;
    const struct zo_tokenizer *tokenizer;
    struct history history;
    struct zo_cli_prompts *prompts;
};

static enum zo_status encode(const struct reader *reader,
                             struct zo_cli_prompt *prompt)
{
    const struct history *history = &reader->history;

    if (reader->options->raw) {
        ZO_TRY(zo_tokenizer_prefix(reader->tokenizer, &prompt->ids));
        return zo_tokenizer_encode(reader->tokenizer, prompt->text,
                                   prompt->text_bytes, &prompt->ids);
    }
    history->turns[history->count] =
        (struct zo_turn){ZO_ROLE_USER, prompt->text, prompt->text_bytes};
    return zo_tokenizer_prompt(reader->tokenizer, history->turns,
                               history->count + 1, &prompt->ids);
}

static enum zo_status add_prompt(const struct reader *reader, const char *text,
                                 size_t text_bytes)
{
    struct zo_cli_prompts *prompts = reader->prompts;
    struct zo_cli_prompt *prompt;
    size_t bad = 0;

    if (!zo_utf8_valid(text, text_bytes, &bad)) {
        return ZO_FAIL(ZO_E_DATA, "prompt %zu: byte %zu, \\x%02x, is not UTF-8",
                       prompts->count + 1, bad + 1,
                       (unsigned)(unsigned char)text[bad]);
    }
    ZO_TRY(zo_grow(&prompts->items, prompts->count, &prompts->capacity,
                   sizeof(prompts->items[0]), "the prompts"));
    prompt = &prompts->items[prompts->count];
    *prompt = (struct zo_cli_prompt){.text_bytes = text_bytes};
    ZO_TRY(zo_strndup(text, text_bytes, &prompt->text));
    prompts->count++;
    return encode(reader, prompt);
}

static enum zo_status add_lines(const struct reader *reader, const char *text,
                                size_t text_bytes)
{
    for (size_t at = 0; at < text_bytes;) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', text_bytes - at);
        const size_t whole =
            end != NULL ? (size_t)(end - line) : text_bytes - at;
        size_t length = whole;

        if (length > 0 && line[length - 1] == '\r') {
            length--;
        }
        if (length > 0) {
            ZO_TRY(add_prompt(reader, line, length));
        }
        at += whole + 1;
    }
    return ZO_OK;
}

static enum zo_status add_file(const struct reader *reader, const char *path)
{
    size_t size_bytes = 0;
    char *text = NULL;
    enum zo_status status;

    ZO_TRY(zo_disk_read_all(path, INPUT_BYTES_MAX, &text, &size_bytes));
    status = add_lines(reader, text, size_bytes);
    zo_free(text);
    return status;
}

/* Standard input, to its end. */
static enum zo_status read_input(char **text, size_t *size_bytes)
{
    for (;;) {
        size_t got;

        if (*size_bytes > INPUT_BYTES_MAX) {
            return ZO_FAIL(ZO_E_DATA,
                           "standard input holds more than %zu bytes",
                           INPUT_BYTES_MAX);
        }
        ZO_TRY(zo_realloc(text, *size_bytes + READ_BYTES, 1, "the prompts"));
        got = fread(*text + *size_bytes, 1, READ_BYTES, stdin);
        *size_bytes += got;
        if (got == 0) {
            return ferror(stdin) == 0
                       ? ZO_OK
                       : ZO_FAIL_NATIVE(ZO_E_IO, errno,
                                        "cannot read standard input: %s",
                                        strerror(errno));
        }
    }
}

static enum zo_status add_input(const struct reader *reader)
{
    size_t size_bytes = 0;
    char *text = NULL;
    enum zo_status status = read_input(&text, &size_bytes);

    if (status == ZO_OK) {
        status = add_lines(reader, text, size_bytes);
    }
    zo_free(text);
    return status;
}

static enum zo_status read_all(struct reader *reader)
{
    const struct zo_options *options = reader->options;

    ZO_TRY(read_history(options->history, &reader->history));
    for (size_t i = 0; i < options->prompt_count; i++) {
        ZO_TRY(add_prompt(reader, options->prompts[i],
                          strlen(options->prompts[i])));
    }
    if (options->prompt_file != NULL) {
        ZO_TRY(add_file(reader, options->prompt_file));
    } else if (options->prompt_count == 0) {
        ZO_TRY(add_input(reader));
    }
    if (reader->prompts->count == 0) {
        return ZO_FAIL(ZO_E_USAGE,
                       "generate found no prompt; want --prompt TEXT, or a "
                       "line in --prompt-file or on standard input");
    }
    return ZO_OK;
}

enum zo_status zo_cli_prompts_read(const struct zo_options *options,
                                   const struct zo_tokenizer *tokenizer,
                                   struct zo_cli_prompts *prompts)
{
    struct reader reader = {
        .options = options, .tokenizer = tokenizer, .prompts = prompts};
    const enum zo_status status = read_all(&reader);

    history_fini(&reader.history);
    return status;
}

void zo_cli_prompts_fini(struct zo_cli_prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++) {
        zo_free(prompts->items[i].text);
        zo_ids_fini(&prompts->items[i].ids);
    }
    zo_free(prompts->items);
    *prompts = (struct zo_cli_prompts){0};
}

int64_t zo_cli_prompts_longest(const struct zo_cli_prompts *prompts)
{
    int64_t longest = 1;

    for (size_t i = 0; i < prompts->count; i++) {
        longest = zo_max_i64(longest, (int64_t)prompts->items[i].ids.count);
    }
    return longest;
}
