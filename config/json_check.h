/*
 * The scan that proves a text to be JSON before cJSON sees it.
 *
 * Layer 1; used by json.c alone.
 */
#ifndef ZO_CONFIG_JSON_CHECK_H
#define ZO_CONFIG_JSON_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "config/json.h"
#include "src/base/status.h"

ZO_C_BEGIN

struct zo_json_scan {
    const char *name; /* for messages */
    char *text;       /* changed in place: what is blanked, becomes spaces */
    size_t size_bytes;
    const struct zo_json_options *options;

    /* Where each value starts (a member: its key), in document order. */
    size_t *offsets; /* owned by the caller, also after a failure */
    size_t count, capacity;
};

/*
 * Checks all of the text, fills offsets, blanks comments and trailing commas.
 *
 *   options->status   not JSON, or refused; the text says NAME:LINE:COLUMN
 *   ZO_E_NOMEM
 */
enum zo_status zo_json_scan(struct zo_json_scan *scan) ZO_MUST_CHECK;

/* Line (from options->first_line) and column (from 1) of an offset. */
void zo_json_position(const struct zo_json_scan *scan, size_t offset,
                      int64_t *line_out, int64_t *column_out);

ZO_C_END

#endif
