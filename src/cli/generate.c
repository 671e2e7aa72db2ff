/*
 * zero-offload generate: an answer to one prompt, greedily, token by token.
 */
#include <inttypes.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/inputs.h"
#include "src/train/decoder.h"

struct answer {
    struct zo_cli *cli;
    const struct zo_options *options;
    struct zo_model_config model;
    struct zo_tokenizer *tokenizer;
    struct zo_devices devices;
    struct zo_decoder *decoder;
    struct zo_ids prompt, ids;
    char *text; /* owned; what the ids so far decode to */
    size_t text_bytes, printed_bytes;
};

static enum zo_status encode_prompt(struct answer *answer)
{
    const char *prompt = answer->options->prompt;
    const struct zo_turn turn = {ZO_ROLE_USER, prompt, strlen(prompt)};

    if (!answer->options->raw) {
        return zo_tokenizer_prompt(answer->tokenizer, &turn, 1,
                                   &answer->prompt);
    }
    ZO_TRY(zo_tokenizer_prefix(answer->tokenizer, &answer->prompt));
    return zo_tokenizer_encode(answer->tokenizer, prompt, strlen(prompt),
                               &answer->prompt);
}

static enum zo_status open_model(struct answer *answer)
{
    const struct zo_options *options = answer->options;
    const int64_t prompt = (int64_t)answer->prompt.count;
    const struct zo_devices_options devices = {
        .backend = options->backend,
        .indices = options->device_count > 0 ? options->devices : NULL,
        .count = 1,
        .threads = (int)options->threads,
    };
    const struct zo_decoder_options decoder = {
        .model = &answer->model,
        .devices = &answer->devices,
        .dtype = options->bf16   ? ZO_BF16
                 : options->fp16 ? ZO_F16
                                 : ZO_F32,
        .prompt_tokens_max = prompt,
        .tokens_max = prompt + options->max_new_tokens,
        .labels_max = 1,
    };
    struct zo_model_dir *dir = NULL;
    enum zo_status status;

    ZO_TRY(zo_devices_open(&devices, &answer->devices));
    ZO_TRY(zo_model_dir_open(options->model, &answer->cli->notes, &dir));
    ZO_TRY_GOTO(close_dir, zo_decoder_open(&decoder, &answer->decoder));
    status = zo_decoder_load(answer->decoder, dir, &answer->cli->notes);
close_dir:
    zo_model_dir_close(dir);
    return status;
}

static int32_t largest(const float *logits, int64_t count)
{
    int64_t best = 0;

    for (int64_t v = 1; v < count; v++) {
        if (logits[v] > logits[best]) {
            best = v;
        }
    }
    return (int32_t)best;
}

/*
 * Prints what is new.  A character that has not all its bytes yet decodes to
 * U+FFFD at the end: it waits for the next token, or for the end.
 */
static enum zo_status print_more(struct answer *answer, bool is_end)
{
    static const char waiting[] = "\xef\xbf\xbd";
    const size_t mark = sizeof(waiting) - 1;
    FILE *out = answer->cli->out;
    char escaped[256];
    size_t end;

    zo_free(answer->text);
    answer->text = NULL;
    ZO_TRY(zo_tokenizer_decode(answer->tokenizer, answer->ids.items,
                               answer->ids.count, &answer->text,
                               &answer->text_bytes));
    end = answer->text_bytes;
    while (!is_end && end >= mark &&
           memcmp(answer->text + end - mark, waiting, mark) == 0) {
        end -= mark;
    }
    while (answer->printed_bytes < end) {
        const char *at = answer->text + answer->printed_bytes;
        size_t length = zo_utf8_decode(at, end - answer->printed_bytes, NULL);

        length = length > 0 ? length : 1;
        zo_text_escape(escaped, sizeof(escaped), at, length);
        (void)fputs(escaped, out);
        answer->printed_bytes += length;
    }
    (void)fflush(out);
    return ZO_OK;
}

static enum zo_status generate(struct answer *answer)
{
    const int64_t vocab = answer->model.vocab_size;
    const int32_t last = (int32_t)answer->prompt.count - 1;
    const float *logits = NULL;

    ZO_TRY(zo_decoder_prompt(answer->decoder, answer->prompt.items,
                             (int64_t)answer->prompt.count, &last, 1, &logits));
    for (int64_t i = 0; i < answer->options->max_new_tokens; i++) {
        const int32_t id = largest(logits, vocab);

        if (id == zo_tokenizer_eos(answer->tokenizer)) {
            break;
        }
        ZO_TRY(zo_ids_push(&answer->ids, id));
        ZO_TRY(print_more(answer, false));
        if (i + 1 < answer->options->max_new_tokens) {
            ZO_TRY(zo_decoder_next(answer->decoder, id, &logits));
        }
    }
    ZO_TRY(print_more(answer, true));
    (void)fputc('\n', answer->cli->out);
    return ZO_OK;
}

static enum zo_status run(struct answer *answer)
{
    const struct zo_options *options = answer->options;

    if (options->prompt == NULL) {
        return ZO_FAIL(ZO_E_USAGE, "generate needs --prompt TEXT");
    }
    ZO_TRY(zo_cli_model_config(options, false, &answer->cli->notes,
                               &answer->model));
    ZO_TRY(zo_cli_tokenizer(options, &answer->model, &answer->tokenizer));
    ZO_TRY(encode_prompt(answer));
    ZO_TRY(open_model(answer));
    zo_cli_print_notes(answer->cli);
    return generate(answer);
}

enum zo_status zo_cli_generate(struct zo_cli *cli,
                               const struct zo_options *options)
{
    struct answer answer = {.cli = cli, .options = options};
    const enum zo_status status = run(&answer);

    zo_free(answer.text);
    zo_ids_fini(&answer.prompt);
    zo_ids_fini(&answer.ids);
    zo_decoder_close(answer.decoder);
    zo_devices_close(&answer.devices);
    zo_tokenizer_close(answer.tokenizer);
    return status;
}
