/*
 * A growing JSON text: the header of a safetensors file, an index.
 *
 * Layer 6.
 */
#ifndef ZO_SRC_CHECKPOINT_JSON_TEXT_H
#define ZO_SRC_CHECKPOINT_JSON_TEXT_H

#include <stddef.h>

#include "src/base/status.h"

ZO_C_BEGIN

/* All zero is empty; ended with zo_json_text_fini(). */
struct zo_json_text {
    char *text; /* owned; terminated once something was added */
    size_t size_bytes, capacity;
};

/* Adds what printf would print.  ZO_E_NOMEM. */
enum zo_status zo_json_text_add(struct zo_json_text *json, const char *format,
                                ...) ZO_PRINTF(2, 3) ZO_MUST_CHECK;

/* Adds a string in quotes, escaped as JSON needs it. */
enum zo_status zo_json_text_quote(struct zo_json_text *json,
                                  const char *string) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_json_text_fini(struct zo_json_text *json);

ZO_C_END

#endif
