/*
 * zero-offload generate: answers to prompts, token by token.
 *
 * Prompts come from --prompt and --prompt-file, else from the lines of
 * standard input.  All are known before the model is loaded, so that what is
 * allocated fits the longest.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/cli/answers.h"
#include "src/cli/inputs.h"
#include "src/cli/prompts.h"
#include "src/cli/setup.h"
#include "src/data/text_stream.h"

/* What is open; and the answer at hand. */
struct run {
    struct zo_cli *cli;
    const struct zo_options *options;
    struct zo_model_config model;
    struct zo_tokenizer *tokenizer;
    struct zo_cli_prompts prompts;
    struct zo_devices devices;
    struct zo_cli_answers answers;
    struct zo_text_stream stream;
    int64_t tokens; /* of all answers */
};

static enum zo_status choose_dtype(const struct run *run,
                                   enum zo_dtype *dtype_out)
{
    const struct zo_options *options = run->options;
    const char *why = NULL;

    if (zo_option_given(options, ZO_OPTION_BF16) ||
        zo_option_given(options, ZO_OPTION_FP16)) {
        *dtype_out = options->bf16 ? ZO_BF16 : options->fp16 ? ZO_F16 : ZO_F32;
        return ZO_OK;
    }
    ZO_TRY(zo_cli_saved_dtype(options->model, &run->model, dtype_out, &why));
    return zo_cli_note_dtype(*dtype_out, why, &run->cli->notes);
}

static enum zo_status open_model(struct run *run)
{
    const struct zo_options *options = run->options;
    const struct zo_devices_options devices = {
        .backend = options->backend,
        .indices = options->device_count > 0 ? options->devices : NULL,
        .count = 1,
        .threads = (int)options->threads,
    };
    struct zo_cli_answers_options answers = {
        .cli = run->cli,
        .options = options,
        .model = &run->model,
        .devices = &run->devices,
        .tokenizer = run->tokenizer,
        .prompt_tokens_max = zo_cli_prompts_longest(&run->prompts),
    };

    answers.tokens_max = answers.prompt_tokens_max + options->max_new_tokens;
    ZO_TRY(choose_dtype(run, &answers.dtype));
    ZO_TRY(zo_cli_half_angles(options, &run->model, answers.dtype,
                              &run->cli->notes, &answers.half_angles));
    ZO_TRY(zo_devices_open(&devices, &run->devices));
    ZO_TRY(zo_setup_note_processor(options, &run->devices.machine,
                                   &run->cli->notes));
    return zo_cli_answers_open(&answers, &run->answers);
}

/* Text for a terminal: control characters are shown, and not obeyed. */
static void print_escaped(FILE *out, const char *text, size_t size_bytes)
{
    char escaped[64];

    for (size_t at = 0; at < size_bytes;) {
        const size_t length = zo_utf8_decode(text + at, size_bytes - at, NULL);
        const size_t now = length > 0 ? length : 1;

        zo_text_escape(escaped, sizeof(escaped), text + at, now);
        (void)fputs(escaped, out);
        at += now;
    }
}

/* A zo_answer_fn. */
static enum zo_status on_token(void *context, int32_t id)
{
    struct run *run = context;
    const char *text = NULL;
    size_t size_bytes = 0;

    ZO_TRY(zo_text_stream_add(&run->stream, id, &text, &size_bytes));
    if (!run->options->json && size_bytes > 0) {
        print_escaped(run->cli->out, text, size_bytes);
        ZO_TRY(zo_cli_flush(run->cli->out, "standard output"));
    }
    return ZO_OK;
}

static enum zo_status print_json(struct run *run, size_t index,
                                 enum zo_answer_end end, double seconds)
{
    const struct zo_cli_prompt *prompt = &run->prompts.items[index];
    char buffer[4096];
    struct zo_jsonl json;

    zo_jsonl_init_file(&json, run->cli->out, "standard output", buffer,
                       sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_bytes(&json, "prompt", prompt->text, prompt->text_bytes);
    zo_jsonl_bytes(&json, "answer",
                   run->stream.text != NULL ? run->stream.text : "",
                   run->stream.text_bytes);
    zo_jsonl_text(&json, "end", end == ZO_ANSWER_STOPPED ? "stop" : "length");
    zo_jsonl_uint(&json, "prompt_tokens", prompt->ids.count);
    zo_jsonl_uint(&json, "tokens", run->stream.ids.count);
    zo_jsonl_real(&json, "seconds", seconds);
    return zo_jsonl_end(&json);
}

static void print_heading(struct run *run, size_t index)
{
    const struct zo_cli_prompt *prompt = &run->prompts.items[index];

    if (run->options->json || run->prompts.count == 1) {
        return;
    }
    (void)fputs("> ", run->cli->out);
    print_escaped(run->cli->out, prompt->text, prompt->text_bytes);
    (void)fputc('\n', run->cli->out);
}

static enum zo_status answer(struct run *run, size_t index)
{
    const struct zo_cli_prompt *prompt = &run->prompts.items[index];
    const int64_t started_ns = zo_clock_ns();
    const struct zo_answer_options options = {
        .decoder = run->answers.decoder,
        .sampler = run->answers.sampler,
        .stops = run->answers.stops,
        .stop_count = run->answers.stop_count,
        .prompt = prompt->ids.items,
        .prompt_tokens = (int64_t)prompt->ids.count,
        .number = index,
        .tokens_max = run->options->max_new_tokens,
        .on_token = on_token,
        .context = run,
    };
    enum zo_answer_end end = ZO_ANSWER_LENGTH;
    struct zo_ids ids = {0};
    const char *text = NULL;
    size_t size_bytes = 0;
    enum zo_status status;

    print_heading(run, index);
    status = zo_answer_make(&options, &ids, &end);
    zo_ids_fini(&ids);
    ZO_TRY(status);
    run->tokens += (int64_t)run->stream.ids.count;
    if (run->options->json) {
        return print_json(run, index, end,
                          zo_clock_seconds(started_ns, zo_clock_ns()));
    }
    zo_text_stream_end(&run->stream, &text, &size_bytes);
    print_escaped(run->cli->out, text, size_bytes);
    (void)fputc('\n', run->cli->out);
    return zo_cli_flush(run->cli->out, "standard output");
}

static enum zo_status answer_all(struct run *run)
{
    const int64_t started_ns = zo_clock_ns();
    double seconds, rate;
    char span[32];

    for (size_t i = 0; i < run->prompts.count; i++) {
        enum zo_status status;

        zo_text_stream_init(&run->stream, run->tokenizer);
        status = answer(run, i);
        zo_text_stream_fini(&run->stream);
        ZO_TRY(status);
    }
    seconds = zo_clock_seconds(started_ns, zo_clock_ns());
    rate = seconds > 0.0 ? (double)run->tokens / seconds : 0.0;
    return zo_note_add(&run->cli->notes, ZO_NOTE_INFO,
                       "%" PRId64 " token%s in %s, %.*f tokens/s", run->tokens,
                       zo_text_s((uint64_t)run->tokens),
                       zo_text_seconds(span, sizeof(span), seconds),
                       rate >= 99.95   ? 0
                       : rate >= 9.995 ? 1
                                       : 2,
                       rate);
}

static enum zo_status generate(struct run *run)
{
    ZO_TRY(zo_cli_model_config(run->options, false, &run->cli->notes,
                               &run->model));
    ZO_TRY(zo_cli_tokenizer(run->options, &run->model, &run->tokenizer));
    ZO_TRY(zo_cli_prompts_read(run->options, run->tokenizer, &run->prompts));
    ZO_TRY(open_model(run));
    zo_cli_print_notes(run->cli);
    return answer_all(run);
}

enum zo_status zo_cli_generate(struct zo_cli *cli,
                               const struct zo_options *options)
{
    struct run run = {.cli = cli, .options = options};
    const enum zo_status status = generate(&run);

    zo_cli_answers_close(&run.answers);
    zo_devices_close(&run.devices);
    zo_cli_prompts_fini(&run.prompts);
    zo_tokenizer_close(run.tokenizer);
    return status;
}
