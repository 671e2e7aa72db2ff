/*
 * JSON text out of hostile files, read through cJSON.
 *
 * Layer 1.  json.c is the only file that includes cJSON.
 *
 * Before cJSON sees a byte, a scan without recursion proves that the text is
 * JSON: depth, UTF-8, numbers, escapes, one value and nothing behind it.  It
 * names what it refuses as NAME:LINE:COLUMN, and where the options allow it,
 * it blanks out comments and trailing commas without moving anything.
 *
 * Life cycle: parse or read, look, close.  Values and strings are borrowed
 * until the document is closed.
 *
 * Threads: a document belongs to one thread at a time.
 */
#ifndef ZO_CONFIG_JSON_H
#define ZO_CONFIG_JSON_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_JSON_DEPTH_MAX 64                 /* arrays and objects */
#define ZO_JSON_SIZE_MAX  (16 * 1024 * 1024) /* bytes of a file, default */
#define ZO_JSON_INT_MAX   INT64_C(9007199254740991) /* 2^53 - 1 */

struct zo_json_doc; /* opaque; owns everything below it */
struct zo_json;     /* opaque; one value, borrowed from its document */

enum zo_json_type {
    ZO_JSON_NULL,
    ZO_JSON_BOOL,
    ZO_JSON_NUMBER,
    ZO_JSON_STRING,
    ZO_JSON_ARRAY,
    ZO_JSON_OBJECT
};

/* All zero is strict JSON, as data rows and headers are. */
struct zo_json_options {
    enum zo_status status; /* of what the text is guilty of [ZO_E_CONFIG] */
    size_t size_max_bytes; /* [ZO_JSON_SIZE_MAX] */
    int64_t first_line;    /* line number of the first byte [1] */
    bool allow_comments;   /* #, //, block comments, trailing commas [false] */
    bool replace_lone_surrogates; /* by U+FFFD, else refused [false] */
};

/*
 * Parses one JSON value of size_bytes bytes.  A byte order mark in front is
 * skipped.  `name` stands for the text in messages and is copied; options may
 * be NULL.  On success the caller owns *doc_out: zo_json_close().
 *
 *   options->status  not JSON, or refused; the text says NAME:LINE:COLUMN
 *   ZO_E_NOMEM       no memory for the values
 */
enum zo_status zo_json_parse(const char *name, const char *text,
                             size_t size_bytes,
                             const struct zo_json_options *options,
                             struct zo_json_doc **doc_out) ZO_MUST_CHECK;

/*
 * Reads and parses a file.
 *
 *   ZO_E_USAGE       cannot be opened, or is no regular file
 *   ZO_E_IO          reading failed
 *   options->status  empty, too large, a Git LFS pointer, or as above
 */
enum zo_status zo_json_read(const char *path,
                            const struct zo_json_options *options,
                            struct zo_json_doc **doc_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_json_close(struct zo_json_doc *doc);

const struct zo_json *zo_json_root(const struct zo_json_doc *doc);
enum zo_json_type zo_json_type(const struct zo_json *value);

/* "null", "a boolean", "a number", "a string", "an array", "an object". */
const char *zo_json_type_name(const struct zo_json *value);

/* Members of an object or elements of an array in order; NULL at the end. */
const struct zo_json *zo_json_first(const struct zo_json *container);
const struct zo_json *zo_json_next(const struct zo_json *value);
size_t zo_json_count(const struct zo_json *container);

/* Name of an object's member; "" for the root and for elements. */
const char *zo_json_key(const struct zo_json *value);

/* The member of that name, or NULL; also NULL when object is no object. */
const struct zo_json *zo_json_get(const struct zo_json *object,
                                  const char *key);

/* The value must be of the type that the name says. */
bool zo_json_bool(const struct zo_json *value);
double zo_json_number(const struct zo_json *value);
/* UTF-8, without NUL inside. */
const char *zo_json_string(const struct zo_json *value);

/* True when value is a number, integral, and within +-(2^53 - 1). */
bool zo_json_int(const struct zo_json *value, int64_t *int_out);

/*
 * Typed members of an object.  An absent key leaves *out untouched (put the
 * default there) unless is_required.  A wrong type, or a number outside
 * [min, max], fails with NAME:LINE:COLUMN, the key path, what was wanted and
 * what is there; status as in the document's options.
 */
enum zo_status zo_json_get_bool(const struct zo_json_doc *doc,
                                const struct zo_json *object, const char *key,
                                bool is_required, bool *out) ZO_MUST_CHECK;
enum zo_status zo_json_get_int(const struct zo_json_doc *doc,
                               const struct zo_json *object, const char *key,
                               bool is_required, int64_t min, int64_t max,
                               int64_t *out) ZO_MUST_CHECK;
enum zo_status zo_json_get_number(const struct zo_json_doc *doc,
                                  const struct zo_json *object, const char *key,
                                  bool is_required, double min, double max,
                                  double *out) ZO_MUST_CHECK;
enum zo_status zo_json_get_string(const struct zo_json_doc *doc,
                                  const struct zo_json *object, const char *key,
                                  bool is_required,
                                  const char **out) ZO_MUST_CHECK;

/* Where a value (a member: its key) starts; from 1. */
int64_t zo_json_line(const struct zo_json_doc *doc,
                     const struct zo_json *value);
int64_t zo_json_column(const struct zo_json_doc *doc,
                       const struct zo_json *value);

/*
 * "optimizer.params.betas[0]" into target; "the top level" for the root.
 * Always terminated.  Returns target.
 */
const char *zo_json_path(const struct zo_json_doc *doc,
                         const struct zo_json *value, char *target,
                         size_t target_bytes);

/* The name given to parse or read. */
const char *zo_json_name(const struct zo_json_doc *doc);

/*
 * "NAME:LINE: key.path" of a value, or "--set KEY.PATH" when zo_json_set() put
 * it there; "--set KEY.PATH: key.path.x" of what is inside of that, or was made
 * on the way to it.  Into target; always terminated.  Returns target.
 */
const char *zo_json_where(const struct zo_json_doc *doc,
                          const struct zo_json *value, char *target,
                          size_t target_bytes);

/* True when zo_json_set() put the value there. */
bool zo_json_is_set(const struct zo_json *value);

/* Fails with "NAME:LINE:COLUMN: key.path: ...", or "--set KEY.PATH: ...", and
 * the document's status. */
enum zo_status zo_json_fail(const struct zo_json_doc *doc,
                            const struct zo_json *value, const char *format,
                            ...) ZO_PRINTF(3, 4) ZO_COLD ZO_MUST_CHECK;

/*
 * Sets the value at a dotted path, making objects on the way.  `text` is read
 * as JSON; when it is none, it is taken as a string, so that AdamW, cpu and
 * auto need no quotes.  Borrowed values at or below the path end here.
 *
 *   ZO_E_USAGE   the path is malformed, or leads through what is no object
 */
enum zo_status zo_json_set(struct zo_json_doc *doc, const char *path,
                           const char *text) ZO_MUST_CHECK;

ZO_C_END

#endif
