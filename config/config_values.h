/*
 * The keys of a DeepSpeed JSON, each looked up in the table, checked and
 * converted; what they mean together is config_resolve.c's affair.
 *
 * Layer 1; used within config alone.
 */
#ifndef ZO_CONFIG_CONFIG_VALUES_H
#define ZO_CONFIG_CONFIG_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config_options.h"
#include "config/json.h"
#include "src/base/notes.h"
#include "src/base/status.h"

ZO_C_BEGIN

enum zo_value_state { ZO_VALUE_ABSENT, ZO_VALUE_AUTO, ZO_VALUE_GIVEN };

/* By the kind of its key, one of the middle fields is set when given. */
struct zo_config_value {
    enum zo_value_state state;
    bool flag;
    int choice; /* index into the key's choices */
    int64_t integer;
    double number; /* also of integers */
    double pair[2];
    const char *text;           /* borrowed from the document */
    const struct zo_json *node; /* NULL when absent */
};

struct zo_config_values {
    const struct zo_json_doc *doc; /* borrowed */
    struct zo_notes *notes;        /* borrowed */
    bool is_strict;
    struct zo_config_value items[ZO_KEY_COUNT];
};

/* A list of words for one line of notes; all zero is empty. */
struct zo_words {
    char *text; /* owned; NULL when empty */
    size_t length_bytes, capacity;
};

enum zo_status zo_words_add(struct zo_words *words, const char *format, ...)
    ZO_PRINTF(2, 3) ZO_MUST_CHECK;
void zo_words_fini(struct zo_words *words);

/*
 * Walks the document's root, which must be an object.  Notes tell what was
 * converted, ignored, or has no meaning here.
 *
 *   ZO_E_CONFIG   a key or value is refused
 */
enum zo_status
zo_config_values_read(const struct zo_json_doc *doc, bool is_strict,
                      struct zo_notes *notes,
                      struct zo_config_values *values_out) ZO_MUST_CHECK;

/* The row of a key. */
const struct zo_config_option *zo_config_row(enum zo_config_key key);

/* Of a key: its value when given, else the table's default. */
bool zo_value_flag(const struct zo_config_values *values,
                   enum zo_config_key key);
int64_t zo_value_integer(const struct zo_config_values *values,
                         enum zo_config_key key);
double zo_value_number(const struct zo_config_values *values,
                       enum zo_config_key key);
int zo_value_choice(const struct zo_config_values *values,
                    enum zo_config_key key);
const char *zo_value_text(const struct zo_config_values *values,
                          enum zo_config_key key); /* NULL when absent */

bool zo_value_is_given(const struct zo_config_values *values,
                       enum zo_config_key key);
bool zo_value_is_auto(const struct zo_config_values *values,
                      enum zo_config_key key);
/* A value is given, and it is not the default. */
bool zo_value_asks(const struct zo_config_values *values,
                   enum zo_config_key key);

/* Adds "NAME:LINE: key.path: ..." for a key that is there. */
enum zo_status zo_value_note(const struct zo_config_values *values,
                             enum zo_config_key key, enum zo_note_level level,
                             const char *format, ...)
    ZO_PRINTF(4, 5) ZO_MUST_CHECK;

/* Fails with "NAME:LINE:COLUMN: key.path: ..." for a key that is there. */
enum zo_status zo_value_fail(const struct zo_config_values *values,
                             enum zo_config_key key, const char *format, ...)
    ZO_PRINTF(3, 4) ZO_COLD ZO_MUST_CHECK;

ZO_C_END

#endif
