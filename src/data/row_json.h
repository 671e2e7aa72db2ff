/*
 * A strict JSON reader for one row of a data file.
 *
 * Layer 6.  RFC 8259 and nothing else; no recursion; bounds on depth and on
 * the number of values.  The result is a flat list of nodes in the order of
 * the text, and strings are unescaped inside the text itself, so a row costs
 * no allocation once the list is large enough.
 *
 * config/json.h reads configuration files: comments, repair notes, a tree.
 * Data files are large and none of ours: hence a second, smaller reader.
 */
#ifndef ZO_SRC_DATA_ROW_JSON_H
#define ZO_SRC_DATA_ROW_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_ROW_DEPTH_MAX 64                /* arrays and objects, nested */
#define ZO_ROW_NODES_MAX (4 * 1024 * 1024) /* values and keys of one row */
#define ZO_ROW_KEYS_MAX  1000              /* keys of an object we look into */

enum zo_row_type {
    ZO_ROW_NULL,
    ZO_ROW_BOOLEAN,
    ZO_ROW_NUMBER,
    ZO_ROW_STRING,
    ZO_ROW_ARRAY,
    ZO_ROW_OBJECT
};

/* A value, or the key of a member; a key is followed by its value. */
struct zo_row_node {
    enum zo_row_type type;
    bool has_escapes;      /* of a string; false once it is unescaped */
    uint32_t at;           /* of a string's content, a number's first digit */
    uint32_t size_bytes;   /* of a string or a number */
    uint32_t child_count;  /* elements or members */
    uint32_t next;         /* index of the node after this value */
    uint32_t line, column; /* where it begins; line from 0, in the text */
};

/* All zero is an empty reader; end with zo_row_json_fini(). */
struct zo_row_json {
    struct zo_row_node *nodes; /* owned; nodes[0] is the row */
    size_t count, capacity;
    char *text;       /* borrowed from the caller of parse */
    const char *path; /* borrowed: for messages */
    int64_t line;     /* of the text's first byte in the file, from 1 */
};

/*
 * Parses one value with blanks around it.  text is the caller's; strings in
 * it are unescaped in place.  (line, column), from 1, is where it begins in
 * the file.  size_bytes < 2^31.
 *
 *   ZO_E_DATA    malformed; the text names path:line:column and the bytes
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_row_json_parse(struct zo_row_json *json, char *text,
                                 size_t size_bytes, const char *path,
                                 int64_t line, uint32_t column) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_row_json_fini(struct zo_row_json *json);

/*
 * Fails unless object's keys are at most ZO_ROW_KEYS_MAX and all different.
 */
enum zo_status
zo_row_json_check_keys(const struct zo_row_json *json,
                       const struct zo_row_node *object) ZO_MUST_CHECK;

/* The value of a key, NULL when there is none. */
const struct zo_row_node *zo_row_json_find(const struct zo_row_json *json,
                                           const struct zo_row_node *object,
                                           const char *key);

/* First child of an array or object (of an object: its first key). */
const struct zo_row_node *zo_row_json_first(const struct zo_row_node *node);

/* The node after a value and all that is in it. */
const struct zo_row_node *zo_row_json_after(const struct zo_row_json *json,
                                            const struct zo_row_node *node);

/* A string's content, not terminated. */
const char *zo_row_json_string(const struct zo_row_json *json,
                               const struct zo_row_node *node);

/* True if node is a number without fraction or exponent that fits. */
bool zo_row_json_integer(const struct zo_row_json *json,
                         const struct zo_row_node *node, int64_t *value_out);

/* "null", "a boolean", "a number", "a string", "an array", "an object". */
const char *zo_row_type_name(enum zo_row_type type);

/* Line of a node in the file, from 1. */
int64_t zo_row_json_line(const struct zo_row_json *json,
                         const struct zo_row_node *node);

ZO_C_END

#endif
