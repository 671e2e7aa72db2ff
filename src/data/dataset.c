#include "src/data/dataset_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/data/rows.h"

#define LENGTH_MIN         4    /* prefix, one token, end token */
#define OFFICIAL_SOURCE    1024 /* arguments.py of ChatGLM2-6B's ptuning */
#define OFFICIAL_TARGET    128
#define PREFIX_TOKENS      2  /* [gMASK] sop */
#define BAD_ROWS_NAMED_MAX 10 /* notes about skipped rows */
#define IGNORED            (-100)

/* What only reading needs. */
struct reader {
    struct zo_dataset *dataset;
    const struct zo_dataset_options *options;
    const struct zo_tokenizer *tokenizer; /* NULL: input_ids only */
    struct zo_notes *notes;               /* NULL: none wanted */
    struct zo_rows *rows;                 /* owned */
    struct zo_ids ids;                    /* owned: the row in the making */
    struct zo_spans answers;              /* owned: its labelled stretches */
    int32_t source_max, target_max;       /* 0: not the official script */
    char first_skip[ZO_ERR_TEXT_MAX];     /* why the first row was left out */
    bool first_is_told;                   /* in a note of its own, instead */
};

/* How a row in the making ends. */
enum verdict { KEEP, KEEP_CUT, DROP };

/* ---- rows kept ----------------------------------------------------------- */

/*
 * Adds the stretches of [begin, end) whose labels are not `ignored`.  labels
 * has one for every token of the row; they are kept at pool[labels_at].
 */
static enum zo_status add_labels(struct zo_dataset *dataset,
                                 struct zo_data_record *record, int64_t begin,
                                 int64_t end, const int32_t *labels,
                                 int32_t ignored, int64_t labels_at)
{
    for (int64_t at = begin; at < end;) {
        int64_t stop = at;

        while (stop < end && labels[stop] != ignored) {
            stop++;
        }
        if (stop > at) {
            ZO_TRY(zo_dataset_add_labels(dataset, record, at, stop,
                                         labels_at + at));
        }
        at = stop + 1;
    }
    return ZO_OK;
}

/* Keeps reader->ids as a row whose labels are its own ids in the answers. */
static enum zo_status keep_answers(struct reader *reader, int64_t line)
{
    struct zo_dataset *dataset = reader->dataset;
    struct zo_data_record record = {
        .ids_at = (int64_t)dataset->pool.count,
        .spans_at = (int64_t)dataset->span_count,
        .line = line,
        .count = (int32_t)reader->ids.count,
    };
    /* The official script does not count labels equal to the pad id. */
    const int32_t ignored =
        reader->source_max > 0 ? zo_tokenizer_pad(reader->tokenizer) : IGNORED;

    ZO_TRY(zo_ids_append(&dataset->pool, reader->ids.items, reader->ids.count));
    for (size_t i = 0; i < reader->answers.count; i++) {
        ZO_TRY(add_labels(dataset, &record, reader->answers.items[i].begin,
                          reader->answers.items[i].end, reader->ids.items,
                          ignored, record.ids_at));
    }
    return zo_dataset_add_record(dataset, &record);
}

/* Keeps an input_ids row; labels are stored only where they are foreign. */
static enum zo_status keep_ids(struct reader *reader, const struct zo_row *row,
                               size_t count)
{
    struct zo_dataset *dataset = reader->dataset;
    struct zo_data_record record = {
        .ids_at = (int64_t)dataset->pool.count,
        .spans_at = (int64_t)dataset->span_count,
        .line = row->line,
        .count = (int32_t)count,
    };
    bool is_foreign = false;
    int64_t labels_at = record.ids_at;

    ZO_TRY(zo_ids_append(&dataset->pool, row->ids, count));
    if (row->labels == NULL) {
        ZO_TRY(zo_dataset_add_labels(dataset, &record, 0, record.count,
                                     labels_at));
        return zo_dataset_add_record(dataset, &record);
    }
    for (size_t i = 0; i < count; i++) {
        is_foreign = is_foreign || (row->labels[i] != IGNORED &&
                                    row->labels[i] != row->ids[i]);
    }
    if (is_foreign) {
        labels_at = (int64_t)dataset->pool.count;
        ZO_TRY(zo_ids_append(&dataset->pool, row->labels, count));
    }
    ZO_TRY(add_labels(dataset, &record, 0, record.count, row->labels, IGNORED,
                      labels_at));
    return zo_dataset_add_record(dataset, &record);
}

/* ---- rows that are too long ---------------------------------------------- */

/* Remembers why a row was left out, in case none remains. */
static void remember_skip(struct reader *reader, const char *reason)
{
    if (reader->first_skip[0] == '\0' && !reader->first_is_told) {
        (void)snprintf(reader->first_skip, sizeof(reader->first_skip), "%s",
                       reason);
    }
}

static void drop_long(struct reader *reader, const struct zo_row *row,
                      const char *why)
{
    char reason[ZO_ERR_TEXT_MAX];

    reader->dataset->counts.skipped_long++;
    (void)snprintf(reason, sizeof(reason), "%s:%lld: %s", reader->dataset->path,
                   (long long)row->line, why);
    remember_skip(reader, reason);
}

/* What --on-long says about a row of `tokens`, whose limit is `limit`. */
static enum zo_status judge_long(struct reader *reader,
                                 const struct zo_row *row, int64_t tokens,
                                 int64_t limit, const char *what,
                                 enum verdict *verdict)
{
    char why[128];

    *verdict = KEEP;
    if (tokens <= limit) {
        return ZO_OK;
    }
    switch (reader->options->on_long) {
    case ZO_ON_LONG_CUT:
        *verdict = KEEP_CUT;
        return ZO_OK;
    case ZO_ON_LONG_SKIP:
        (void)snprintf(why, sizeof(why), "%s of %lld tokens, above %lld", what,
                       (long long)tokens, (long long)limit);
        drop_long(reader, row, why);
        *verdict = DROP;
        return ZO_OK;
    case ZO_ON_LONG_ERROR:
        break;
    }
    return ZO_FAIL(ZO_E_DATA, "%s of %lld tokens, above the limit of %lld",
                   what, (long long)tokens, (long long)limit);
}

/* Tokens of a row, before anything is cut. */
static void count_longest(struct reader *reader, const struct zo_row *row,
                          int64_t tokens)
{
    struct zo_dataset_counts *counts = &reader->dataset->counts;

    if (tokens > counts->longest_tokens) {
        counts->longest_tokens = tokens;
        counts->longest_line = row->line;
    }
}

/*
 * Shortens a row of answers so that `limit` tokens hold it with its end
 * token: it ends after the last answer token that fits.  False if none fits.
 */
static bool cut_after_answer(struct reader *reader, int64_t limit)
{
    struct zo_spans *answers = &reader->answers;

    while (answers->count > 0) {
        struct zo_span *last = &answers->items[answers->count - 1];

        last->end = last->end < limit - 1 ? last->end : limit - 1;
        if (last->end > last->begin) {
            reader->ids.count = (size_t)last->end;
            return true;
        }
        answers->count--;
    }
    return false;
}

/* ---- one row of each kind ------------------------------------------------ */

/* The end token, and what stops an answer, count with the answers. */
static enum zo_status finish_answers(struct reader *reader,
                                     const struct zo_row *row)
{
    struct zo_spans *answers = &reader->answers;
    const bool by_role = zo_tokenizer_chat(reader->tokenizer) == ZO_CHAT_ROLES;

    ZO_TRY(zo_ids_push(&reader->ids, zo_tokenizer_eos(reader->tokenizer)));
    for (size_t i = 0; i < answers->count; i++) {
        answers->items[i].end += by_role || i + 1 == answers->count;
    }
    return keep_answers(reader, row->line);
}

/* Columns and messages: answers, then the end token. */
static enum zo_status read_answers(struct reader *reader,
                                   const struct zo_row *row)
{
    const int64_t limit = reader->options->max_length;
    const int64_t tokens = (int64_t)reader->ids.count + 1;
    enum verdict verdict = KEEP;

    count_longest(reader, row, tokens);
    ZO_TRY(judge_long(reader, row, tokens, limit, "a row", &verdict));
    if (verdict == KEEP_CUT && !cut_after_answer(reader, limit)) {
        char why[128];

        (void)snprintf(why, sizeof(why),
                       "the prompt alone leaves no room for an answer in "
                       "%lld tokens",
                       (long long)limit);
        drop_long(reader, row, why);
        verdict = DROP;
    }
    if (verdict == DROP) {
        return ZO_OK;
    }
    reader->dataset->counts.cut += verdict == KEEP_CUT;
    return finish_answers(reader, row);
}

static enum zo_status one_answer(struct reader *reader, size_t begin)
{
    struct zo_spans *answers = &reader->answers;

    ZO_TRY(zo_grow(&answers->items, answers->count, &answers->capacity,
                   sizeof(answers->items[0]), "the answers of a row"));
    answers->items[answers->count++] =
        (struct zo_span){(int64_t)begin, (int64_t)reader->ids.count};
    return ZO_OK;
}

/* The official script: prompt and answer each cut to a limit of its own. */
static enum zo_status cut_as_official(struct reader *reader,
                                      const struct zo_row *row,
                                      size_t prompt_tokens,
                                      enum verdict *verdict)
{
    struct zo_ids *ids = &reader->ids;
    const size_t answer_tokens = ids->count - prompt_tokens;
    const size_t source_max = (size_t)reader->source_max;
    const size_t target_max = (size_t)reader->target_max;
    const size_t prompt_kept =
        prompt_tokens < source_max ? prompt_tokens : source_max;
    const size_t answer_kept =
        answer_tokens < target_max ? answer_tokens : target_max;
    enum verdict answer_verdict = KEEP;

    count_longest(reader, row, (int64_t)ids->count + 1);
    ZO_TRY(judge_long(reader, row, (int64_t)prompt_tokens, reader->source_max,
                      "a prompt", verdict));
    if (*verdict == DROP) {
        return ZO_OK;
    }
    ZO_TRY(judge_long(reader, row, (int64_t)answer_tokens, reader->target_max,
                      "an answer", &answer_verdict));
    *verdict = answer_verdict == KEEP ? *verdict : answer_verdict;
    memmove(ids->items + prompt_kept, ids->items + prompt_tokens,
            answer_kept * sizeof(ids->items[0]));
    ids->count = prompt_kept + answer_kept;
    return one_answer(reader, prompt_kept);
}

static enum zo_status read_columns(struct reader *reader,
                                   const struct zo_row *row)
{
    const size_t last = row->turn_count - 1;
    const struct zo_turn *answer = &row->turns[last];
    enum verdict verdict = KEEP;
    size_t prompt_tokens;

    ZO_TRY(
        zo_tokenizer_prompt(reader->tokenizer, row->turns, last, &reader->ids));
    prompt_tokens = reader->ids.count;
    ZO_TRY(zo_tokenizer_answer(reader->tokenizer, answer->text,
                               answer->size_bytes, &reader->ids));
    if (reader->source_max == 0) {
        ZO_TRY(one_answer(reader, prompt_tokens));
        return read_answers(reader, row);
    }
    ZO_TRY(cut_as_official(reader, row, prompt_tokens, &verdict));
    if (verdict == DROP) {
        return ZO_OK;
    }
    reader->dataset->counts.cut += verdict == KEEP_CUT;
    return finish_answers(reader, row);
}

static enum zo_status read_messages(struct reader *reader,
                                    const struct zo_row *row)
{
    ZO_TRY(zo_tokenizer_conversation(reader->tokenizer, row->turns,
                                     row->turn_count, &reader->ids,
                                     &reader->answers));
    return read_answers(reader, row);
}

static enum zo_status read_text(struct reader *reader, const struct zo_row *row)
{
    const int64_t limit = reader->options->max_length;
    enum verdict verdict = KEEP;

    ZO_TRY(zo_tokenizer_prefix(reader->tokenizer, &reader->ids));
    ZO_TRY(zo_tokenizer_encode(reader->tokenizer, row->turns[0].text,
                               row->turns[0].size_bytes, &reader->ids));
    ZO_TRY(zo_ids_push(&reader->ids, zo_tokenizer_eos(reader->tokenizer)));
    count_longest(reader, row, (int64_t)reader->ids.count);
    ZO_TRY(judge_long(reader, row, (int64_t)reader->ids.count, limit, "a row",
                      &verdict));
    if (verdict == DROP) {
        return ZO_OK;
    }
    if (verdict == KEEP_CUT) {
        reader->ids.count = (size_t)limit;
        reader->dataset->counts.cut++;
    }
    ZO_TRY(one_answer(reader, PREFIX_TOKENS));
    return keep_answers(reader, row->line);
}

static enum zo_status read_ids(struct reader *reader, const struct zo_row *row)
{
    const size_t limit = (size_t)reader->options->max_length;
    enum verdict verdict = KEEP;

    count_longest(reader, row, (int64_t)row->id_count);
    ZO_TRY(judge_long(reader, row, (int64_t)row->id_count, (int64_t)limit,
                      "a row", &verdict));
    if (verdict == DROP) {
        return ZO_OK;
    }
    reader->dataset->counts.cut += verdict == KEEP_CUT;
    return keep_ids(reader, row, verdict == KEEP_CUT ? limit : row->id_count);
}

/* Options that do not go with the kind of rows. */
static enum zo_status check_kind(const struct reader *reader,
                                 enum zo_row_kind kind)
{
    if (kind != ZO_ROWS_IDS && reader->tokenizer == NULL) {
        return ZO_FAIL(ZO_E_USAGE,
                       "%s: rows of text (%s) need a tokenizer; the model has "
                       "none, and only rows of input_ids do without",
                       reader->dataset->path, zo_rows_describe(reader->rows));
    }
    if (kind != ZO_ROWS_COLUMNS && reader->source_max > 0) {
        return ZO_FAIL(ZO_E_USAGE,
                       "%s: max_source_length and max_target_length are for "
                       "prompt and response columns, found %s; use max_length",
                       reader->dataset->path, zo_rows_describe(reader->rows));
    }
    return ZO_OK;
}

static enum zo_status read_row(struct reader *reader, const struct zo_row *row)
{
    reader->ids.count = 0;
    reader->answers.count = 0;
    if (row->is_empty) {
        char reason[ZO_ERR_TEXT_MAX];

        reader->dataset->counts.skipped_empty++;
        (void)snprintf(reason, sizeof(reason),
                       "%s:%lld: an empty prompt or answer",
                       reader->dataset->path, (long long)row->line);
        remember_skip(reader, reason);
        return ZO_OK;
    }
    switch (row->kind) {
    case ZO_ROWS_COLUMNS:
        return read_columns(reader, row);
    case ZO_ROWS_MESSAGES:
        return read_messages(reader, row);
    case ZO_ROWS_TEXT:
        return read_text(reader, row);
    case ZO_ROWS_IDS:
        return read_ids(reader, row);
    }
    return ZO_OK;
}

/* ---- the file ------------------------------------------------------------ */

/* A bad row stops the reading: what would go on, or what the file must be. */
static enum zo_status advise(const struct reader *reader)
{
    const struct zo_err failure = *zo_err_last();
    const char *advice =
        !zo_rows_looks_json(reader->rows)
            ? "; CSV and plain text are not read: want JSON objects, one a "
              "line, or a JSON array of them"
        : zo_rows_is_broken(reader->rows)
            ? ""
            : "; --skip-bad-rows leaves such rows out";

    return advice[0] == '\0' ? zo_err_adopt(&failure)
                             : ZO_FAIL(ZO_E_DATA, "%s%s", failure.text, advice);
}

/* Decides about a failed row: ZO_OK when it is left out. */
static enum zo_status skip_bad(struct reader *reader, enum zo_status status)
{
    struct zo_dataset_counts *counts = &reader->dataset->counts;
    char text[ZO_ERR_TEXT_MAX];

    if (status != ZO_E_DATA) {
        return status;
    }
    if (!reader->options->skip_bad_rows || zo_rows_is_broken(reader->rows)) {
        return advise(reader);
    }
    (void)snprintf(text, sizeof(text), "%s", zo_err_last()->text);
    counts->skipped_bad++;
    if (reader->notes == NULL) {
        remember_skip(reader, text);
    } else if (reader->first_skip[0] == '\0') {
        reader->first_is_told = true;
    }
    if (reader->notes != NULL && counts->skipped_bad <= BAD_ROWS_NAMED_MAX) {
        return zo_note_add(reader->notes, ZO_NOTE_WARN, "bad row skipped: %s%s",
                           text,
                           counts->skipped_bad == BAD_ROWS_NAMED_MAX
                               ? " (others are only counted)"
                               : "");
    }
    return ZO_OK;
}

/* Errors about a row's text or length do not know where it stands. */
static enum zo_status name_row(const struct reader *reader,
                               const struct zo_row *row, enum zo_status status)
{
    if (status != ZO_E_DATA) {
        return status;
    }
    return ZO_FAIL(ZO_E_DATA, "%s:%lld: %s", reader->dataset->path,
                   (long long)row->line, zo_err_last()->text);
}

static enum zo_status read_file(struct reader *reader)
{
    const int64_t rows_max = reader->options->rows_max;
    struct zo_dataset_counts *counts = &reader->dataset->counts;
    bool is_end = false, kind_is_checked = false;

    while (rows_max == 0 || counts->kept < rows_max) {
        struct zo_row row = {0};
        enum zo_status status = zo_rows_next(reader->rows, &row, &is_end);

        if (status == ZO_OK && is_end) {
            break;
        }
        counts->read++;
        if (status == ZO_E_USAGE && reader->options->skip_bad_rows) {
            status = ZO_E_DATA; /* the rows behind it may be of a kind */
        }
        if (status == ZO_OK && !kind_is_checked) {
            ZO_TRY(check_kind(reader, row.kind));
            kind_is_checked = true;
        }
        if (status == ZO_OK) {
            status = name_row(reader, &row, read_row(reader, &row));
        }
        if (status != ZO_OK) {
            ZO_TRY(skip_bad(reader, status));
        }
    }
    if (counts->kept == 0) {
        return ZO_FAIL(ZO_E_DATA, "%s: no row to train on: %lld read%s%s%s",
                       reader->dataset->path, (long long)counts->read,
                       counts->read > 0 ? ", all left out"
                                        : ", the file holds none",
                       reader->first_skip[0] != '\0' ? ", the first one: " : "",
                       reader->first_skip);
    }
    return ZO_OK;
}

static enum zo_status summarise(const struct reader *reader)
{
    const struct zo_dataset_counts *counts = &reader->dataset->counts;
    char skipped[160] = "";
    const long long all =
        counts->skipped_bad + counts->skipped_long + counts->skipped_empty;

    if (reader->notes == NULL) {
        return ZO_OK;
    }
    if (all > 0) {
        (void)snprintf(skipped, sizeof(skipped),
                       " (%lld bad, %lld too long, %lld with an empty prompt "
                       "or answer)",
                       (long long)counts->skipped_bad,
                       (long long)counts->skipped_long,
                       (long long)counts->skipped_empty);
    }
    ZO_TRY(zo_note_add(reader->notes, ZO_NOTE_INFO, "%s: rows are %s",
                       reader->dataset->path, zo_rows_describe(reader->rows)));
    return zo_note_add(
        reader->notes, all > 0 ? ZO_NOTE_WARN : ZO_NOTE_INFO,
        "%s: %lld row%s read, %lld cut, %lld skipped%s; the "
        "longest has %lld token%s, at line %lld%s%s",
        reader->dataset->path, (long long)counts->read,
        zo_text_s((uint64_t)counts->read), (long long)counts->cut, all, skipped,
        (long long)counts->longest_tokens,
        zo_text_s((uint64_t)counts->longest_tokens),
        (long long)counts->longest_line,
        reader->first_skip[0] != '\0' ? "; the first skipped: " : "",
        reader->first_skip);
}

static enum zo_status check_options(const struct zo_dataset_options *options)
{
    const int32_t source = options->max_source_length;
    const int32_t target = options->max_target_length;

    if (options->max_length < LENGTH_MIN) {
        return ZO_FAIL(ZO_E_USAGE,
                       "max_length is %d; want %d or more: [gMASK], sop, a "
                       "token, the end token",
                       options->max_length, LENGTH_MIN);
    }
    if (source != 0 && source < PREFIX_TOKENS) {
        return ZO_FAIL(ZO_E_USAGE,
                       "max_source_length is %d; want %d or more, which "
                       "[gMASK] and sop take",
                       source, PREFIX_TOKENS);
    }
    if (target < 0) {
        return ZO_FAIL(ZO_E_USAGE, "max_target_length is %d; want 1 or more",
                       target);
    }
    if (options->vocab_size < 0 || options->rows_max < 0) {
        return ZO_FAIL(ZO_E_USAGE, "%s is negative",
                       options->rows_max < 0 ? "the number of rows"
                                             : "the vocabulary's size");
    }
    return ZO_OK;
}

/* Resolves the official script's two limits. */
static enum zo_status set_limits(struct reader *reader)
{
    const struct zo_dataset_options *options = reader->options;
    const int32_t source = options->max_source_length;
    const int32_t target = options->max_target_length;
    int64_t most;

    if (source == 0 && target == 0) {
        return ZO_OK;
    }
    reader->source_max = source > 0 ? source : OFFICIAL_SOURCE;
    reader->target_max = target > 0 ? target : OFFICIAL_TARGET;
    most = (int64_t)reader->source_max + reader->target_max + 1;
    if (most > options->max_length) {
        return ZO_FAIL(ZO_E_USAGE,
                       "max_source_length %d + max_target_length %d + 1 is "
                       "%lld tokens, above max_length %d",
                       reader->source_max, reader->target_max, (long long)most,
                       options->max_length);
    }
    return ZO_OK;
}

static enum zo_status open_rows(struct reader *reader)
{
    const struct zo_dataset_options *options = reader->options;
    const int32_t id_count = reader->tokenizer != NULL
                                 ? zo_tokenizer_id_count(reader->tokenizer)
                                 : INT32_MAX;
    const struct zo_rows_options rows = {
        .path = options->path,
        .prompt_column = options->prompt_column,
        .response_column = options->response_column,
        .history_column = options->history_column,
        .vocab_size = options->vocab_size > 0 ? options->vocab_size : id_count,
        .allow_empty = reader->source_max > 0,
    };

    if (reader->tokenizer != NULL && options->vocab_size > 0 &&
        id_count > options->vocab_size) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "the tokenizer has %d ids, the model's vocabulary only "
                       "%d: they do not belong together",
                       id_count, options->vocab_size);
    }
    return zo_rows_open(&rows, &reader->rows);
}

enum zo_status zo_dataset_open(const struct zo_dataset_options *options,
                               const struct zo_tokenizer *tokenizer,
                               struct zo_notes *notes,
                               struct zo_dataset **dataset_out)
{
    struct reader reader = {
        .options = options, .tokenizer = tokenizer, .notes = notes};
    enum zo_status status;

    ZO_TRY(check_options(options));
    ZO_TRY(set_limits(&reader));
    ZO_TRY(
        zo_alloc(1, sizeof(*reader.dataset), "the data set", &reader.dataset));
    ZO_TRY_GOTO(fini_reader, zo_strndup(options->path, strlen(options->path),
                                        &reader.dataset->path));
    ZO_TRY_GOTO(fini_reader, open_rows(&reader));
    ZO_TRY_GOTO(fini_reader, read_file(&reader));
    ZO_TRY_GOTO(fini_reader, summarise(&reader));
    reader.dataset->fingerprint = zo_dataset_hash(reader.dataset);

fini_reader:
    zo_rows_close(reader.rows);
    zo_ids_fini(&reader.ids);
    zo_spans_fini(&reader.answers);
    if (status != ZO_OK) {
        zo_dataset_close(reader.dataset);
        return status;
    }
    *dataset_out = reader.dataset;
    return ZO_OK;
}

void zo_dataset_close(struct zo_dataset *dataset)
{
    if (dataset == NULL) {
        return;
    }
    zo_ids_fini(&dataset->pool);
    zo_free(dataset->path);
    zo_free(dataset->records);
    zo_free(dataset->spans);
    zo_free(dataset);
}

int64_t zo_dataset_count(const struct zo_dataset *dataset)
{
    return (int64_t)dataset->record_count;
}

const struct zo_dataset_counts *
zo_dataset_counts(const struct zo_dataset *dataset)
{
    return &dataset->counts;
}

const char *zo_dataset_path(const struct zo_dataset *dataset)
{
    return dataset->path;
}

uint64_t zo_dataset_fingerprint(const struct zo_dataset *dataset)
{
    return dataset->fingerprint;
}

struct zo_row_view zo_dataset_row(const struct zo_dataset *dataset,
                                  int64_t index)
{
    const struct zo_data_record *record = &dataset->records[index];

    return (struct zo_row_view){
        .ids = dataset->pool.items + record->ids_at,
        .count = record->count,
        .label_count = record->label_count,
        .span_count = record->span_count,
        .line = record->line,
    };
}

struct zo_label_span zo_dataset_span(const struct zo_dataset *dataset,
                                     int64_t index, int32_t span)
{
    const struct zo_data_labels *record =
        &dataset->spans[dataset->records[index].spans_at + span];

    return (struct zo_label_span){record->begin, record->end,
                                  dataset->pool.items + record->labels_at};
}
