/*
 * A strict scanner of JSON texts whose shape is known: the caller asks for
 * what must come next, and anything else is an error that names file, object
 * and byte.
 *
 * Layer 6.  No tree, no allocation, no recursion.  Strings are decoded in
 * place, so that names live in the text that was read; the text is spoilt
 * for other uses.  Duplicate keys are the caller's to find.
 */
#ifndef ZO_SRC_CHECKPOINT_JSON_SCAN_H
#define ZO_SRC_CHECKPOINT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_JSON_SCAN_DEPTH_MAX 64

struct zo_json_scan {
    const char *path; /* borrowed; for messages */
    const char *kind; /* borrowed: "tensor ", or NULL; for messages */
    const char *name; /* borrowed: what is being read, or NULL; likewise */
    char *text;       /* borrowed */
    size_t size_bytes, at;
    bool is_start; /* just after an opening bracket */
};

/* ZO_E_CORRUPT: the text is not UTF-8.  All others below: not as asked. */
enum zo_status zo_json_scan_begin(struct zo_json_scan *scan, const char *path,
                                  char *text, size_t size_bytes) ZO_MUST_CHECK;

/* '{' or '['. */
enum zo_status zo_json_scan_open(struct zo_json_scan *scan,
                                 char bracket) ZO_MUST_CHECK;

/*
 * Inside brackets: is there one more element?  Takes the comma before it, or
 * the closing bracket ('}' or ']').
 */
enum zo_status zo_json_scan_more(struct zo_json_scan *scan, char bracket,
                                 bool *more_out) ZO_MUST_CHECK;

/*
 * A key and its colon; a string.  Terminated, without NUL inside, borrowed
 * from the text.
 */
enum zo_status zo_json_scan_key(struct zo_json_scan *scan,
                                char **key_out) ZO_MUST_CHECK;
enum zo_status zo_json_scan_string(struct zo_json_scan *scan,
                                   char **string_out) ZO_MUST_CHECK;

/* A plain non-negative integer below 2^53: no sign, point or exponent. */
enum zo_status zo_json_scan_uint(struct zo_json_scan *scan,
                                 uint64_t *value_out) ZO_MUST_CHECK;

/* Any value, checked but for duplicate keys; depth is limited. */
enum zo_status zo_json_scan_skip(struct zo_json_scan *scan) ZO_MUST_CHECK;

/* Nothing but white space is left. */
enum zo_status zo_json_scan_end(struct zo_json_scan *scan) ZO_MUST_CHECK;

/* The next byte that is not white space, not taken; 0 at the end. */
char zo_json_scan_peek(struct zo_json_scan *scan);

/* Records that `want` was wanted here. */
enum zo_status zo_json_scan_fail(const struct zo_json_scan *scan,
                                 const char *want) ZO_COLD ZO_MUST_CHECK;

ZO_C_END

#endif
