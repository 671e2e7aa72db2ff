/*
 * The one writer of JSON lines: metrics, traces, bench records and --json.
 *
 * Layer 0.  Life cycle: init with a buffer, then for each line begin, values,
 * end; there is nothing to finish, since end hands the whole line over.
 * Threads: one at a time.
 *
 * Nothing is allocated: a line is built in the caller's buffer and leaves it
 * in one write where it fits, so that a reader of a growing file sees whole
 * lines; a longer line leaves in pieces.  Functions that add a value cannot
 * fail; a failure of the file is kept and returned by zo_jsonl_end().
 *
 * What is written is always valid JSON in UTF-8: control characters are
 * escaped, a byte that is not UTF-8 becomes U+FFFD, and a number that is not
 * finite becomes null.
 */
#ifndef ZO_SRC_BASE_JSONL_H
#define ZO_SRC_BASE_JSONL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_JSONL_BUFFER_MIN 64 /* bytes; a number and its key in pieces */
#define ZO_JSONL_DEPTH_MAX  32 /* objects and arrays inside one another */

/* The fields belong to the writer. */
struct zo_jsonl {
    const char *name; /* borrowed; of the file, for messages */
    FILE *file;       /* borrowed; NULL when fd is written */
    int fd;           /* borrowed; -1 when file is written */
    char *buffer;     /* lent by the caller */
    size_t buffer_bytes, used_bytes;
    int error; /* errno of the first failure since the last end; 0 */
    uint32_t depth;
    uint32_t object_mask; /* bit d: level d is an object, not an array */
    bool has_value;       /* a comma comes before the next value */
};

/*
 * Prepares a writer to a stream or to a file descriptor.  file or fd, name
 * and buffer are borrowed until the last call; buffer_bytes is at least
 * ZO_JSONL_BUFFER_MIN.
 */
void zo_jsonl_init_file(struct zo_jsonl *json, FILE *file, const char *name,
                        char *buffer, size_t buffer_bytes);
void zo_jsonl_init_fd(struct zo_jsonl *json, int fd, const char *name,
                      char *buffer, size_t buffer_bytes);

/* Starts a line: its outermost object. */
void zo_jsonl_begin(struct zo_jsonl *json);

/*
 * Ends the line's outermost object, adds \n and writes the line out (a stream
 * is flushed).
 *
 *   ZO_E_IO   some part of the line could not be written; native is errno
 */
enum zo_status zo_jsonl_end(struct zo_jsonl *json) ZO_MUST_CHECK;

/*
 * Values.  `key` is the name of a member inside an object, and NULL inside an
 * array.  Keys and text are escaped alike.
 */
void zo_jsonl_object_begin(struct zo_jsonl *json, const char *key);
void zo_jsonl_object_end(struct zo_jsonl *json);
void zo_jsonl_array_begin(struct zo_jsonl *json, const char *key);
void zo_jsonl_array_end(struct zo_jsonl *json);
void zo_jsonl_text(struct zo_jsonl *json, const char *key, const char *text);
void zo_jsonl_bytes(struct zo_jsonl *json, const char *key, const char *text,
                    size_t text_bytes);
void zo_jsonl_int(struct zo_jsonl *json, const char *key, int64_t value);
void zo_jsonl_uint(struct zo_jsonl *json, const char *key, uint64_t value);
void zo_jsonl_bool(struct zo_jsonl *json, const char *key, bool value);
void zo_jsonl_null(struct zo_jsonl *json, const char *key);

/*
 * With the fewest of 15, 16 or 17 significant digits that read back as the
 * same number; null when it is not finite.
 */
void zo_jsonl_real(struct zo_jsonl *json, const char *key, double value);

/* Arrays of numbers. */
void zo_jsonl_ints(struct zo_jsonl *json, const char *key,
                   const int32_t *values, size_t count);
void zo_jsonl_uints(struct zo_jsonl *json, const char *key,
                    const uint64_t *values, size_t count);

ZO_C_END

#endif
