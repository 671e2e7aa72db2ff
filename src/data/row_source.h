/*
 * The bytes of each row of a data file: the lines of a JSON lines file, or
 * the elements of one JSON array, found without parsing them.
 *
 * Layer 6.  Life cycle: open, next until the end, close.  One thread.
 */
#ifndef ZO_SRC_DATA_ROW_SOURCE_H
#define ZO_SRC_DATA_ROW_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_row_source; /* opaque */

/* A row as it stands in the file; the bytes are the caller's to change. */
struct zo_row_bytes {
    char *text; /* borrowed until the next call */
    size_t size_bytes;
    int64_t line; /* where it begins, from 1 */
    uint32_t column;
};

/*
 * Opens a file and skips a byte order mark.  The caller owns *source_out and
 * ends it with zo_row_source_close().
 *
 *   ZO_E_USAGE   cannot be opened, or is no regular file
 *   ZO_E_NOMEM   no memory
 */
enum zo_status
zo_row_source_open(const char *path,
                   struct zo_row_source **source_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_row_source_close(struct zo_row_source *source);

/*
 * Finds the next row that is not blank, or sets *is_end_out.
 *
 *   ZO_E_DATA    a row above ZO_ROW_BYTES_MAX, which is stepped over; or the
 *                array is malformed, and the source broken
 *   ZO_E_IO      reading failed; native is errno
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_row_source_next(struct zo_row_source *source,
                                  struct zo_row_bytes *row_out,
                                  bool *is_end_out) ZO_MUST_CHECK;

/* True after an error behind which no further row can be found. */
bool zo_row_source_is_broken(const struct zo_row_source *source);

/* False where the file begins as neither an object nor an array does. */
bool zo_row_source_looks_json(const struct zo_row_source *source);

const char *zo_row_source_path(const struct zo_row_source *source);

ZO_C_END

#endif
