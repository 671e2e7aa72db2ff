#include "src/cli/predict.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/json_text.h"
#include "src/cli/answers.h"

#define NAME          "generated_predictions.txt"
#define PROMPT_MIN    3 /* [gMASK] sop alone asks nothing */
#define TELL_EVERY_NS INT64_C(10000000000)

struct prediction {
    struct zo_cli *cli;
    const struct zo_setup *setup;
    struct zo_cli_answers answers;
    struct zo_disk_file file;
    char *path, *partial; /* owned */
    struct zo_cli_predicted sums;
    int64_t started_ns, told_ns;
};

/* A row as a question: what stands in front of its last answer. */
struct question {
    const int32_t *ids;
    int64_t prompt_tokens;
    struct zo_label_span reference;
};

static enum zo_status question_of(const struct zo_setup *setup, int64_t index,
                                  struct question *question_out)
{
    const struct zo_dataset *data = setup->eval_data;
    const struct zo_row_view row = zo_dataset_row(data, index);
    struct question question = {.ids = row.ids};

    if (row.span_count > 0) {
        question.reference = zo_dataset_span(data, index, row.span_count - 1);
        question.prompt_tokens = question.reference.begin;
    }
    if (question.prompt_tokens < PROMPT_MIN) {
        return ZO_FAIL(ZO_E_DATA,
                       "%s:%" PRId64 ": no prompt stands in front of the "
                       "answer; --generate needs rows of columns or of "
                       "conversations",
                       zo_dataset_path(data), row.line);
    }
    *question_out = question;
    return ZO_OK;
}

/*
 * The longest answer: as asked; else, with both lengths of the official
 * script, what its max_length leaves, which counts the prompt; else 256.
 */
static int64_t tokens_of(const struct zo_options *options,
                         int64_t prompt_tokens)
{
    const int64_t source = options->max_source_length;
    const int64_t target = options->max_target_length;

    if (zo_option_given(options, ZO_OPTION_MAX_NEW_TOKENS) || source == 0 ||
        target == 0) {
        return options->max_new_tokens;
    }
    return zo_max_i64(1, source + target + 1 - prompt_tokens);
}

static enum zo_status find_longest(const struct zo_setup *setup,
                                   int64_t *prompt_out, int64_t *all_out)
{
    *prompt_out = 1;
    *all_out = 1;
    for (int64_t i = 0; i < zo_dataset_count(setup->eval_data); i++) {
        struct question question;

        ZO_TRY(question_of(setup, i, &question));
        *prompt_out = zo_max_i64(*prompt_out, question.prompt_tokens);
        *all_out = zo_max_i64(
            *all_out, question.prompt_tokens +
                          tokens_of(setup->options, question.prompt_tokens));
    }
    return ZO_OK;
}

/* ---- the file ------------------------------------------------------------ */

static const char *folder_of(const struct zo_setup *setup)
{
    return setup->options->output != NULL ? setup->options->output : ".";
}

enum zo_status zo_cli_predict_check(const struct zo_setup *setup,
                                    struct zo_folders *folder)
{
    int64_t prompt, all;

    if (setup->tokenizer == NULL) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--generate needs the model's tokenizer, to write and "
                       "score answers");
    }
    ZO_TRY(find_longest(setup, &prompt, &all));
    return zo_output_folder_make(folder, folder_of(setup));
}

static enum zo_status open_file(struct prediction *prediction)
{
    const char *folder = folder_of(prediction->setup);

    ZO_TRY(zo_disk_join(folder, NAME, &prediction->path));
    ZO_TRY(zo_disk_join(folder, "." NAME ".partial", &prediction->partial));
    return zo_disk_create(prediction->partial, &prediction->file);
}

static enum zo_status close_file(struct prediction *prediction)
{
    ZO_TRY(zo_disk_finish(&prediction->file));
    return zo_disk_rename(prediction->partial, prediction->path);
}

/* A text as scores see it, and as the file has it: terminated. */
struct text {
    char *owned;
    const char *begin; /* in owned */
    size_t size_bytes;
};

static enum zo_status decode(const struct zo_setup *setup, const int32_t *ids,
                             size_t count, struct text *text)
{
    size_t size_bytes = 0;

    ZO_TRY(zo_tokenizer_decode(setup->tokenizer, ids, count, &text->owned,
                               &size_bytes));
    for (size_t i = 0; i < size_bytes; i++) {
        if (text->owned[i] == '\0') {
            text->owned[i] = ' '; /* a string of C ends there */
        }
    }
    text->begin = text->owned;
    text->size_bytes = size_bytes;
    zo_scores_strip(&text->begin, &text->size_bytes);
    text->owned[text->begin - text->owned + (ptrdiff_t)text->size_bytes] = '\0';
    return ZO_OK;
}

static enum zo_status write_line(struct prediction *prediction,
                                 const struct text *reference,
                                 const struct text *answer)
{
    struct zo_json_text json = {0};
    enum zo_status status;

    ZO_TRY_GOTO(free_json, zo_json_text_add(&json, "{\"labels\": "));
    ZO_TRY_GOTO(free_json, zo_json_text_quote(&json, reference->begin));
    ZO_TRY_GOTO(free_json, zo_json_text_add(&json, ", \"predict\": "));
    ZO_TRY_GOTO(free_json, zo_json_text_quote(&json, answer->begin));
    ZO_TRY_GOTO(free_json, zo_json_text_add(&json, "}\n"));
    status = zo_disk_append(&prediction->file, json.text, json.size_bytes);

free_json:
    zo_json_text_fini(&json);
    return status;
}

/* ---- answers ------------------------------------------------------------- */

static enum zo_status judge(struct prediction *prediction,
                            const struct question *question,
                            const struct zo_ids *ids)
{
    const struct zo_label_span *span = &question->reference;
    struct zo_scores *sums = &prediction->sums.scores;
    struct text reference = {0}, answer = {0};
    struct zo_scores scores;
    enum zo_status status;

    ZO_TRY_GOTO(free_texts,
                decode(prediction->setup, span->labels,
                       (size_t)(span->end - span->begin), &reference));
    ZO_TRY_GOTO(free_texts,
                decode(prediction->setup, ids->items, ids->count, &answer));
    ZO_TRY_GOTO(free_texts,
                zo_scores_of(answer.begin, answer.size_bytes, reference.begin,
                             reference.size_bytes, &scores));
    sums->rouge_1 += scores.rouge_1;
    sums->rouge_2 += scores.rouge_2;
    sums->rouge_l += scores.rouge_l;
    sums->bleu_4 += scores.bleu_4;
    status = write_line(prediction, &reference, &answer);

free_texts:
    zo_free(reference.owned);
    zo_free(answer.owned);
    return status;
}

static enum zo_status answer_row(struct prediction *prediction, int64_t index)
{
    const struct zo_cli_answers *answers = &prediction->answers;
    struct zo_answer_options options = {
        .decoder = answers->decoder,
        .sampler = answers->sampler,
        .stops = answers->stops,
        .stop_count = answers->stop_count,
        .number = (uint64_t)index,
    };
    struct question question;
    struct zo_ids ids = {0};
    enum zo_answer_end end;
    enum zo_status status;

    ZO_TRY(question_of(prediction->setup, index, &question));
    options.prompt = question.ids;
    options.prompt_tokens = question.prompt_tokens;
    options.tokens_max =
        tokens_of(prediction->setup->options, question.prompt_tokens);
    status = zo_answer_make(&options, &ids, &end);
    if (status == ZO_OK) {
        prediction->sums.rows++;
        prediction->sums.tokens += (int64_t)ids.count;
        status = judge(prediction, &question, &ids);
    }
    zo_ids_fini(&ids);
    return status;
}

/* A line now and then: a model of 6B takes hours for a file of thousands. */
static void tell(struct prediction *prediction, int64_t count)
{
    const struct zo_cli_predicted *sums = &prediction->sums;
    const int64_t now_ns = zo_clock_ns();
    const double seconds = zo_clock_seconds(prediction->started_ns, now_ns);

    if (now_ns - prediction->told_ns < TELL_EVERY_NS) {
        return;
    }
    prediction->told_ns = now_ns;
    (void)fprintf(zo_cli_err(prediction->cli),
                  "answered %" PRId64 " of %" PRId64
                  " row%s, %.1f tokens/s, %.0f s left\n",
                  sums->rows, count, zo_text_s((uint64_t)count),
                  (double)sums->tokens / seconds,
                  seconds / (double)sums->rows * (double)(count - sums->rows));
}

static enum zo_status answer_rows(struct prediction *prediction)
{
    const int64_t count = zo_dataset_count(prediction->setup->eval_data);

    prediction->started_ns = zo_clock_ns();
    prediction->told_ns = prediction->started_ns;
    for (int64_t i = 0; i < count; i++) {
        ZO_TRY(answer_row(prediction, i));
        tell(prediction, count);
    }
    prediction->sums.seconds =
        zo_clock_seconds(prediction->started_ns, zo_clock_ns());
    return ZO_OK;
}

static enum zo_status predict(struct prediction *prediction)
{
    const struct zo_setup *setup = prediction->setup;
    struct zo_cli_answers_options options = {
        .cli = prediction->cli,
        .options = setup->options,
        .model = &setup->model,
        .devices = &setup->devices,
        .tokenizer = setup->tokenizer,
        .dtype = setup->config.dtype,
        .half_angles = setup->config.rope_precision == ZO_ROPE_PRECISION_MODEL,
    };

    ZO_TRY(
        find_longest(setup, &options.prompt_tokens_max, &options.tokens_max));
    ZO_TRY(zo_cli_answers_open(&options, &prediction->answers));
    zo_cli_print_notes(prediction->cli);
    ZO_TRY(open_file(prediction));
    ZO_TRY(answer_rows(prediction));
    ZO_TRY(close_file(prediction));
    return zo_note_add(&prediction->cli->notes, ZO_NOTE_INFO,
                       "answers and references are in %s", prediction->path);
}

enum zo_status zo_cli_predict(struct zo_cli *cli, const struct zo_setup *setup,
                              struct zo_cli_predicted *predicted_out)
{
    struct prediction prediction = {
        .cli = cli, .setup = setup, .file = {.fd = -1}};
    struct zo_cli_predicted *sums = &prediction.sums;
    const enum zo_status status = predict(&prediction);

    if (status != ZO_OK && prediction.partial != NULL) {
        (void)unlink(prediction.partial);
    }
    zo_disk_close(&prediction.file);
    zo_cli_answers_close(&prediction.answers);
    zo_free(prediction.path);
    zo_free(prediction.partial);
    ZO_TRY(status);
    sums->scores.rouge_1 /= (double)sums->rows;
    sums->scores.rouge_2 /= (double)sums->rows;
    sums->scores.rouge_l /= (double)sums->rows;
    sums->scores.bleu_4 /= (double)sums->rows;
    *predicted_out = *sums;
    return ZO_OK;
}
