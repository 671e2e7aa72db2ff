/*
 * Rows of a data file, one at a time, as text or ids.
 *
 * Layer 6.  Life cycle: open, next until the end, close.  One thread.
 *
 * The file is UTF-8, with or without a byte order mark: one JSON object a
 * line (blank lines are ignored, \r\n is fine, the last line may lack its
 * end), or one JSON array of objects.  Lines are physical lines, from 1.
 *
 * The first good row decides the kind of all rows of the file:
 *   1. prompt_column or response_column was given: columns;
 *   2. it has `input_ids`: ids;
 *   3. it has `messages` or `conversations`: messages;
 *   4. it has both default columns (content, summary): columns;
 *   5. it has `text`: text;
 *   6. it has one of the default columns: columns, and the other is missed.
 * Keys that the kind has no use for are ignored.
 *
 * Several prompt columns ("instruction,input") are joined by \n, without
 * those that are empty or null.  A history column holds a list of [question,
 * answer] pairs, or null.  Messages have role or from (user/human,
 * assistant/gpt, system, observation/tool) and content or value.
 */
#ifndef ZO_SRC_DATA_ROWS_H
#define ZO_SRC_DATA_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"
#include "src/data/ids.h"
#include "src/data/tokenizer.h"

ZO_C_BEGIN

/* One row of a data file: far above any model's context, and what
 * SentencePiece encodes within a gigabyte. */
#define ZO_ROW_BYTES_MAX (16 * 1024 * 1024)

struct zo_rows; /* opaque */

enum zo_row_kind {
    ZO_ROWS_COLUMNS,
    ZO_ROWS_MESSAGES,
    ZO_ROWS_TEXT,
    ZO_ROWS_IDS
};

/* Fields left at 0 take the default in brackets. */
struct zo_rows_options {
    const char *path;            /* required; copied */
    const char *prompt_column;   /* ["content"]; copied, as the others */
    const char *response_column; /* ["summary"] */
    const char *history_column;  /* [none] */
    int32_t vocab_size;          /* input_ids and labels must be below it */
    bool allow_empty; /* an empty or null prompt or answer is no error */
};

/* One row; everything borrowed until the next call on these rows. */
struct zo_row {
    enum zo_row_kind kind;
    int64_t line;  /* where it begins */
    bool is_empty; /* no prompt or no answer; only with allow_empty */
    /*
     * columns: the history, the question, the answer (user, assistant, ...)
     * messages: as they are; text: one turn of role user.
     */
    const struct zo_turn *turns;
    size_t turn_count;
    const int32_t *ids; /* input_ids, and labels or NULL: id_count each */
    const int32_t *labels;
    size_t id_count;
};

/*
 * Opens a file.  The caller owns *rows_out and ends it with zo_rows_close().
 *
 *   ZO_E_USAGE   cannot be opened, is no regular file; a column has no name
 *   ZO_E_IO      reading failed; native is errno
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_rows_open(const struct zo_rows_options *options,
                            struct zo_rows **rows_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_rows_close(struct zo_rows *rows);

/*
 * Reads the next row, or sets *is_end_out.
 *
 *   ZO_E_DATA    the row is bad; the text names file, line and column.  The
 *                next call goes on after it, unless zo_rows_is_broken().
 *   ZO_E_USAGE   likewise, and no row before it was good: it lacks a column
 *                that was asked for, or is of no kind
 *   ZO_E_IO      reading failed; native is errno
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_rows_next(struct zo_rows *rows, struct zo_row *row_out,
                            bool *is_end_out) ZO_MUST_CHECK;

/* True after an error behind which no further row can be found. */
bool zo_rows_is_broken(const struct zo_rows *rows);

/* False where the file begins as neither an object nor an array does. */
bool zo_rows_looks_json(const struct zo_rows *rows);

/*
 * What the rows are, for the user: "prompt and response columns (content;
 * summary)".  Borrowed until close; meaningful after the first good row.
 */
const char *zo_rows_describe(const struct zo_rows *rows);

ZO_C_END

#endif
