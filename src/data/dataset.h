/*
 * A data file as rows of token ids, tokenised once, at the start.
 *
 * Layer 6.  Life cycle: open reads the whole file; after it everything is
 * read-only, and any number of threads may look at rows.
 *
 * Rows are kept without padding.  A label is the id that a position should
 * have been predicted as; positions outside every label stretch are not
 * counted (-100 in Hugging Face's terms).  Labels are not shifted here.
 *
 * Kinds of rows, see rows.h:
 *   columns    prompt, answer, end token; the answer and the end token count.
 *   messages   zo_tokenizer_conversation(), end token; every answer counts,
 *              and the token that follows it: the end token, with
 *              ZO_CHAT_ROLES also the next role token, which stops an answer.
 *              With ZO_CHAT_ROUNDS and _PLAIN an end token follows only the
 *              last answer, as at inference.
 *   text       [gMASK] sop, the text, end token; text and end token count.
 *   input_ids  as they are; labels of -100 do not count; without `labels`
 *              every token counts.
 *
 * Rows that are too long: without max_source_length and max_target_length a
 * row may have max_length tokens, end token included.  ZO_ON_LONG_CUT keeps
 * the beginning of the row.  A row of columns or messages still ends with the
 * end token, right after the last answer token that fits; where no answer
 * token fits the row is left out, and counted.  Text and input_ids are only
 * cut, since they do not end there.
 *
 * With max_source_length and max_target_length (rows of columns only) rows
 * are as THUDM/ChatGLM2-6B's ptuning/main.py makes them, but for the padding:
 * the prompt with [gMASK] sop is cut on the right to max_source_length, which
 * may take "\n\n答：" away, the answer to max_target_length; the end token
 * follows.  A row with an empty prompt or answer is left out, and counted.
 * A label equal to the pad id does not count.
 */
#ifndef ZO_SRC_DATA_DATASET_H
#define ZO_SRC_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/cli_options.h"
#include "src/base/notes.h"
#include "src/base/status.h"
#include "src/data/tokenizer.h"

ZO_C_BEGIN

struct zo_dataset; /* opaque */

/* Fields left at 0 take the default in brackets. */
struct zo_dataset_options {
    const char *path;            /* required; borrowed for the call */
    const char *prompt_column;   /* "content[,more]" ["content"] */
    const char *response_column; /* ["summary"] */
    const char *history_column;  /* list of [question, answer] pairs [none] */
    int32_t max_length;          /* tokens of a row, 4 or more; required */
    /* One given and the other not: the script's own 1024 and 128. */
    int32_t max_source_length; /* 2 or more [not cut as the script does] */
    int32_t max_target_length; /* 1 or more [not cut as the script does] */
    enum zo_on_long on_long;
    bool skip_bad_rows; /* count and name bad rows instead of failing */
    int32_t vocab_size; /* ids must be below [the tokenizer's id count] */
    int64_t rows_max;   /* stop after this many rows kept [all] */
};

/* What happened to the rows of the file. */
struct zo_dataset_counts {
    int64_t read;           /* rows in the file, bad ones included */
    int64_t kept;           /* rows that training sees */
    int64_t cut;            /* of those, shortened */
    int64_t skipped_long;   /* left out: too long (skip, or no answer left) */
    int64_t skipped_bad;    /* left out: skip_bad_rows */
    int64_t skipped_empty;  /* left out as the official script does */
    int64_t tokens;         /* of the rows kept */
    int64_t labels;         /* of those, counted in the loss */
    int64_t longest_tokens; /* of any row read, before it was cut */
    int64_t longest_line;   /* its line in the file, from 1 */
};

/* [begin, end) of a row has labels, labels[0] the one of begin. */
struct zo_label_span {
    int32_t begin, end;
    const int32_t *labels; /* borrowed from the data set */
};

/* One row; everything borrowed until the data set is closed. */
struct zo_row_view {
    const int32_t *ids;
    int32_t count;       /* tokens, 1 or more */
    int32_t label_count; /* tokens with a label, but for a row's first one */
    int32_t span_count;  /* for zo_dataset_span() */
    int64_t line;        /* physical line where the row begins, from 1 */
};

/*
 * Reads and tokenises a file.  tokenizer may be NULL when all rows are
 * input_ids; it is borrowed for the call only.  notes (may be NULL) get one
 * line about the kind of rows, one for each bad row that was skipped (the
 * first ten), and one summary: rows read, cut, skipped, the longest with its
 * line.
 *
 * On success the caller owns *dataset_out and ends it with
 * zo_dataset_close().
 *
 *   ZO_E_USAGE   the file cannot be opened, is no regular file, or an option
 *                is out of its range or does not go with the kind of rows, or
 *                names a column that they have not
 *   ZO_E_DATA    a row is bad: file, line and column are named; or no row is
 *                left
 *   ZO_E_IO      reading failed; native is errno
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_dataset_open(const struct zo_dataset_options *options,
                               const struct zo_tokenizer *tokenizer,
                               struct zo_notes *notes,
                               struct zo_dataset **dataset_out) ZO_MUST_CHECK;

/*
 * Rows without a file, for measurements: `rows` of `tokens` random ids below
 * vocab_size each, every token labelled; the same for the same seed.
 *
 *   ZO_E_ARG     rows, tokens or vocab_size below 1, tokens above 2^24
 *   ZO_E_NOMEM   no memory
 */
enum zo_status
zo_dataset_synthetic(int64_t rows, int32_t tokens, int32_t vocab_size,
                     uint64_t seed,
                     struct zo_dataset **dataset_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_dataset_close(struct zo_dataset *dataset);

/* Rows kept: 1 or more. */
int64_t zo_dataset_count(const struct zo_dataset *dataset);
const struct zo_dataset_counts *
zo_dataset_counts(const struct zo_dataset *dataset);
const char *zo_dataset_path(const struct zo_dataset *dataset);

/* Depends on every id and label of every row: two data sets that agree are
 * the same to training. */
uint64_t zo_dataset_fingerprint(const struct zo_dataset *dataset);

/* 0 <= index < zo_dataset_count(). */
struct zo_row_view zo_dataset_row(const struct zo_dataset *dataset,
                                  int64_t index);

/* 0 <= span < span_count of that row; stretches ascend and do not touch
 * unless their labels are foreign. */
struct zo_label_span zo_dataset_span(const struct zo_dataset *dataset,
                                     int64_t index, int32_t span);

/*
 * A row as one line of JSON, without \n at its end:
 * {"input_ids": [...], "labels": [...], "text": "..."}, labels -100 where
 * nothing is counted, text what the ids decode to ("" without tokenizer).
 * *json_out is owned and ended with zo_free().
 */
enum zo_status zo_dataset_row_json(const struct zo_dataset *dataset,
                                   const struct zo_tokenizer *tokenizer,
                                   int64_t index,
                                   char **json_out) ZO_MUST_CHECK;

ZO_C_END

#endif
