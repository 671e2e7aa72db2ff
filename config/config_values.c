#include "config/config_values.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli_names.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define HINT_MAX_BYTES  160
#define WHERE_MAX_BYTES 1024
#define UNKNOWN_MAX     100 /* then it is no DeepSpeed configuration */

/* A walk over the document. */
struct walk {
    struct zo_config_values *values;
    struct zo_words at_rest; /* keys without meaning that ask for nothing */
    int unknown_count;
};

/* ---- words ---- */

enum zo_status zo_words_add(struct zo_words *words, const char *format, ...)
{
    char word[256];
    size_t length;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(word, sizeof(word), format, args);
    va_end(args);
    length = strlen(word) + (words->length_bytes > 0 ? 2 : 0);
    while (words->length_bytes + length >= words->capacity) {
        ZO_TRY(zo_grow(&words->text, words->capacity, &words->capacity, 1,
                       "a list of words"));
    }
    (void)snprintf(words->text + words->length_bytes,
                   words->capacity - words->length_bytes, "%s%s",
                   words->length_bytes > 0 ? ", " : "", word);
    words->length_bytes += length;
    return ZO_OK;
}

void zo_words_fini(struct zo_words *words)
{
    zo_free(words->text);
    memset(words, 0, sizeof(*words));
}

/* ---- rows ---- */

static const struct zo_config_option *rows(size_t *count_out)
{
    return zo_config_options(count_out);
}

const struct zo_config_option *zo_config_row(enum zo_config_key key)
{
    size_t count = 0;

    return &rows(&count)[key];
}

static const char *last_name(const struct zo_config_option *row)
{
    const char *dot = strrchr(row->path, '.');

    return dot != NULL ? dot + 1 : row->path;
}

/* True when the row's key stands in the section of that path. */
static bool is_in(const struct zo_config_option *row, const char *section)
{
    const char *name = last_name(row);
    const size_t length = strlen(section);

    if (length == 0) {
        return name == row->path;
    }
    return (size_t)(name - row->path) == length + 1 &&
           strncmp(row->path, section, length) == 0;
}

/* Keys are case-sensitive, unlike the words of zo_word_index(). */
static bool is_alias(const struct zo_config_option *row, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = row->aliases; at != NULL && *at != '\0';) {
        const size_t step = strcspn(at, " ");

        if (step == length && strncmp(at, name, length) == 0) {
            return true;
        }
        at += step;
        at += strspn(at, " ");
    }
    return false;
}

static bool is_named(const struct zo_config_option *row, const char *name)
{
    return strcmp(last_name(row), name) == 0 || is_alias(row, name);
}

static const struct zo_config_option *find_row(const char *section,
                                               const char *name)
{
    size_t count = 0;
    const struct zo_config_option *table = rows(&count);

    for (size_t i = 0; i < count; i++) {
        if (is_in(&table[i], section) && is_named(&table[i], name)) {
            return &table[i];
        }
    }
    return NULL;
}

/* ---- notes ---- */

static enum zo_status note_node(const struct zo_config_values *values,
                                enum zo_note_level level,
                                const struct zo_json *node, const char *format,
                                ...) ZO_PRINTF(4, 5) ZO_MUST_CHECK;

static enum zo_status note_node(const struct zo_config_values *values,
                                enum zo_note_level level,
                                const struct zo_json *node, const char *format,
                                ...)
{
    char where[WHERE_MAX_BYTES], text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return zo_note_add(values->notes, level, "%s: %s",
                       zo_json_where(values->doc, node, where, sizeof(where)),
                       text);
}

enum zo_status zo_value_note(const struct zo_config_values *values,
                             enum zo_config_key key, enum zo_note_level level,
                             const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return note_node(values, level, values->items[key].node, "%s", text);
}

enum zo_status zo_value_fail(const struct zo_config_values *values,
                             enum zo_config_key key, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return zo_json_fail(values->doc, values->items[key].node, "%s", text);
}

/* ---- keys that no row has ---- */

/* The nearest name of the section's rows, or NULL. */
static const char *nearest_key(const char *section, const char *name)
{
    const char *names[ZO_KEY_COUNT];
    size_t count = 0, found = 0;
    const struct zo_config_option *table = rows(&count);

    for (size_t i = 0; i < count; i++) {
        if (is_in(&table[i], section) && table[i].use != ZO_USE_REFUSED) {
            names[found++] = last_name(&table[i]);
        }
    }
    return zo_text_nearest(name, names, found);
}

/* The path of a row of that very name in another section, or NULL. */
static const char *other_place(const char *name)
{
    static const char *const common[] = {"enabled", "type", "params"};
    size_t count = 0;
    const struct zo_config_option *table = rows(&count);

    for (size_t i = 0; i < ZO_COUNT(common); i++) {
        if (strcmp(name, common[i]) == 0) {
            return NULL; /* says nothing about the section */
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (is_named(&table[i], name) && table[i].use != ZO_USE_REFUSED) {
            return table[i].path;
        }
    }
    return NULL;
}

static enum zo_status unknown_key(struct walk *w, const char *section,
                                  const struct zo_json *node)
{
    const struct zo_config_values *values = w->values;
    const char *name = zo_json_key(node);
    const char *place = other_place(name);
    const char *near = place != NULL ? place : nearest_key(section, name);
    char hint[HINT_MAX_BYTES] = "";

    if (near != NULL) {
        (void)snprintf(hint, sizeof(hint), "; did you mean %s?", near);
    }
    if (zo_config_section_is_strict(section) || values->is_strict ||
        zo_json_is_set(node)) {
        return zo_json_fail(values->doc, node, "unknown key%s", hint);
    }
    if (++w->unknown_count > UNKNOWN_MAX) {
        return zo_json_fail(values->doc, node,
                            "more than %d unknown keys: this is no DeepSpeed "
                            "configuration",
                            UNKNOWN_MAX);
    }
    return note_node(values, ZO_NOTE_WARN, node, "unknown key, ignored%s",
                     hint);
}

/* ---- values ---- */

static enum zo_status fail_kind(const struct walk *w,
                                const struct zo_json *node, const char *wanted)
{
    if (zo_json_type(node) == ZO_JSON_STRING) {
        return zo_json_fail(w->values->doc, node, "want %s, found \"%s\"",
                            wanted, zo_json_string(node));
    }
    return zo_json_fail(w->values->doc, node, "want %s, found %s", wanted,
                        zo_json_type_name(node));
}

/* A string stands for a boolean or number: told, or refused if strict. */
static enum zo_status accept_string(const struct walk *w,
                                    const struct zo_json *node,
                                    const char *wanted)
{
    if (w->values->is_strict) {
        return zo_json_fail(w->values->doc, node,
                            "want %s, found the string \"%s\"", wanted,
                            zo_json_string(node));
    }
    return note_node(w->values, ZO_NOTE_WARN, node,
                     "the string \"%s\" is taken for %s", zo_json_string(node),
                     wanted);
}

static enum zo_status convert_bool(struct walk *w, const struct zo_json *node,
                                   struct zo_config_value *value)
{
    int index;

    if (zo_json_type(node) == ZO_JSON_BOOL) {
        value->flag = zo_json_bool(node);
        return ZO_OK;
    }
    index = zo_json_type(node) == ZO_JSON_STRING
                ? zo_word_index("false true", zo_json_string(node))
                : -1;
    if (index < 0) {
        return fail_kind(w, node, "true or false");
    }
    value->flag = index == 1;
    return accept_string(w, node, "a boolean");
}

/* A number, or a string that is one. */
static enum zo_status convert_plain(struct walk *w, const struct zo_json *node,
                                    const char *wanted, double *number_out)
{
    const char *text;
    char *end = NULL;
    double number;

    if (zo_json_type(node) == ZO_JSON_NUMBER) {
        *number_out = zo_json_number(node);
        return ZO_OK;
    }
    if (zo_json_type(node) != ZO_JSON_STRING) {
        return fail_kind(w, node, wanted);
    }
    text = zo_json_string(node);
    number = strtod(text, &end);
    if (text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0' ||
        *end != '\0' || !isfinite(number)) {
        return fail_kind(w, node, wanted);
    }
    *number_out = number;
    return accept_string(w, node, "a number");
}

/* The range of a row; all of what is >= 0 when it names none. */
static void range_of(const struct zo_config_option *row, double *min,
                     double *max)
{
    *min = row->min;
    *max = row->max > row->min ? row->max : (double)ZO_JSON_INT_MAX;
}

static enum zo_status convert_number(struct walk *w,
                                     const struct zo_config_option *row,
                                     const struct zo_json *node,
                                     struct zo_config_value *value)
{
    const bool is_whole = row->kind != ZO_KIND_NUMBER;
    double min, max, number = 0.0;

    range_of(row, &min, &max);
    ZO_TRY(
        convert_plain(w, node, is_whole ? "an integer" : "a number", &number));
    if (row->use == ZO_USE_OFF_ONLY) {
        max = (double)ZO_JSON_INT_MAX; /* too much is refused with a reason */
    }
    if (row->kind == ZO_KIND_SIZE && number >= 0.0 && number != floor(number)) {
        ZO_TRY(note_node(w->values, ZO_NOTE_WARN, node,
                         "%.17g is rounded down to %.0f", number,
                         floor(number)));
        number = floor(number);
    }
    if (number < min || number > max || (is_whole && number != floor(number))) {
        return zo_json_fail(
            w->values->doc, node,
            is_whole ? "want an integer from %.0f to %.0f, found %.17g"
                     : "want a number from %.10g to %.10g, found %.17g",
            min, max, number);
    }
    value->number = number;
    value->integer = is_whole ? (int64_t)number : 0;
    return ZO_OK;
}

static enum zo_status convert_pair(struct walk *w,
                                   const struct zo_config_option *row,
                                   const struct zo_json *node,
                                   struct zo_config_value *value)
{
    const struct zo_json *item = zo_json_first(node);

    if (zo_json_type(node) != ZO_JSON_ARRAY || zo_json_count(node) != 2) {
        return fail_kind(w, node, "an array of two numbers");
    }
    for (int i = 0; i < 2; i++, item = zo_json_next(item)) {
        ZO_TRY(convert_plain(w, item, "a number", &value->pair[i]));
        if (value->pair[i] < row->min || value->pair[i] > row->max) {
            return zo_json_fail(
                w->values->doc, item,
                "want a number from %.10g to %.10g, found %.17g", row->min,
                row->max, value->pair[i]);
        }
    }
    return ZO_OK;
}

static enum zo_status convert_choice(struct walk *w,
                                     const struct zo_config_option *row,
                                     const struct zo_json *node,
                                     struct zo_config_value *value)
{
    char wanted[64];

    value->choice = zo_json_type(node) == ZO_JSON_STRING
                        ? zo_word_index(row->choices, zo_json_string(node))
                        : -1;
    if (value->choice < 0) {
        (void)snprintf(wanted, sizeof(wanted), "one of: %s", row->choices);
        return fail_kind(w, node, wanted);
    }
    return ZO_OK;
}

static enum zo_status convert(struct walk *w,
                              const struct zo_config_option *row,
                              const struct zo_json *node,
                              struct zo_config_value *value)
{
    switch (row->kind) {
    case ZO_KIND_BOOL:
        return convert_bool(w, node, value);
    case ZO_KIND_COUNT:
    case ZO_KIND_SIZE:
    case ZO_KIND_NUMBER:
        return convert_number(w, row, node, value);
    case ZO_KIND_STRING:
        if (zo_json_type(node) != ZO_JSON_STRING) {
            return fail_kind(w, node, "a string");
        }
        value->text = zo_json_string(node);
        return ZO_OK;
    case ZO_KIND_CHOICE:
        return convert_choice(w, row, node, value);
    case ZO_KIND_PAIR:
        return convert_pair(w, row, node, value);
    case ZO_KIND_OBJECT:
        return zo_json_type(node) == ZO_JSON_OBJECT
                   ? ZO_OK
                   : fail_kind(w, node, "an object");
    case ZO_KIND_ANY:
        return ZO_OK;
    }
    return ZO_OK;
}

/* ---- keys without meaning ---- */

/* Whether a section says "enabled": false, or nothing at all. */
static bool is_switched_off(const struct zo_json *node)
{
    const struct zo_json *enabled = zo_json_get(node, "enabled");

    if (zo_json_type(node) == ZO_JSON_NULL) {
        return true;
    }
    if (zo_json_type(node) == ZO_JSON_BOOL) {
        return !zo_json_bool(node);
    }
    if (zo_json_type(node) != ZO_JSON_OBJECT) {
        return false;
    }
    return enabled != NULL
               ? zo_json_type(enabled) == ZO_JSON_BOOL && !zo_json_bool(enabled)
               : zo_json_first(node) == NULL;
}

/* Whether a key asks for nothing but the default. */
static bool is_at_rest(const struct zo_config_option *row,
                       const struct zo_config_value *value)
{
    if (value->state != ZO_VALUE_GIVEN) {
        return true;
    }
    switch (row->kind) {
    case ZO_KIND_BOOL:
        return row->default_text != NULL &&
               value->flag == (strcmp(row->default_text, "true") == 0);
    case ZO_KIND_COUNT:
    case ZO_KIND_SIZE:
    case ZO_KIND_NUMBER:
        return row->default_text != NULL &&
               value->number == strtod(row->default_text, NULL);
    case ZO_KIND_OBJECT:
    case ZO_KIND_ANY:
        return is_switched_off(value->node);
    case ZO_KIND_STRING:
    case ZO_KIND_CHOICE:
    case ZO_KIND_PAIR:
        break;
    }
    return false;
}

bool zo_value_asks(const struct zo_config_values *values,
                   enum zo_config_key key)
{
    return !is_at_rest(zo_config_row(key), &values->items[key]);
}

static enum zo_status tell_idle(struct walk *w,
                                const struct zo_config_option *row,
                                const struct zo_config_value *value)
{
    if (is_at_rest(row, value)) {
        return zo_words_add(&w->at_rest, "%s", last_name(row));
    }
    return note_node(w->values, ZO_NOTE_INFO, value->node,
                     "accepted, no meaning here: %s", row->meaning);
}

static enum zo_status check_off(struct walk *w,
                                const struct zo_config_option *row,
                                const struct zo_config_value *value)
{
    const bool is_off =
        row->kind == ZO_KIND_BOOL ? !value->flag : value->number <= row->max;

    if (value->state == ZO_VALUE_GIVEN && !is_off) {
        return zo_json_fail(w->values->doc, value->node, "%s", row->meaning);
    }
    return ZO_OK;
}

/* ---- the walk ---- */

static enum zo_status read_auto(struct walk *w,
                                const struct zo_config_option *row,
                                const struct zo_json *node,
                                struct zo_config_value *value)
{
    if (zo_config_auto_text(row) == NULL) {
        return zo_json_fail(w->values->doc, node,
                            "\"auto\" stands for nothing here; want a value");
    }
    value->state = ZO_VALUE_AUTO;
    value->node = node;
    return ZO_OK;
}

/* "auto" as Hugging Face means it, not as one of a key's own choices. */
static bool is_auto(const struct zo_config_option *row,
                    const struct zo_json *node)
{
    return row->kind != ZO_KIND_ANY &&
           zo_word_index(row->choices, "auto") < 0 &&
           zo_json_type(node) == ZO_JSON_STRING &&
           strcmp(zo_json_string(node), "auto") == 0;
}

static enum zo_status read_value(struct walk *w,
                                 const struct zo_config_option *row,
                                 const struct zo_json *node,
                                 struct zo_config_value *value)
{
    const enum zo_json_type type = zo_json_type(node);

    if (value->node != NULL) {
        return zo_json_fail(w->values->doc, node,
                            "is another name of a key that is there: %s",
                            zo_json_key(value->node));
    }
    if (type == ZO_JSON_NULL && row->is_nullable) {
        return ZO_OK;
    }
    if (row->use == ZO_USE_REFUSED) {
        return zo_json_fail(w->values->doc, node, "%s", row->meaning);
    }
    if (is_auto(row, node)) {
        ZO_TRY(read_auto(w, row, node, value));
    } else if (row->kind == ZO_KIND_OBJECT && type == ZO_JSON_BOOL &&
               strcmp(row->path, "zero_optimization") == 0) {
        value->flag = zo_json_bool(node); /* an old form: stage 1, or 0 */
        value->state = ZO_VALUE_GIVEN;
        value->node = node;
    } else {
        ZO_TRY(convert(w, row, node, value));
        value->state = ZO_VALUE_GIVEN;
        value->node = node;
    }
    switch (row->use) {
    case ZO_USE_IDLE: /* a section may hold a key that is refused */
        return row->kind == ZO_KIND_OBJECT ? ZO_OK : tell_idle(w, row, value);
    case ZO_USE_OFF_ONLY:
        return check_off(w, row, value);
    case ZO_USE_READ:
    case ZO_USE_LEGACY:
    case ZO_USE_REFUSED:
        break;
    }
    return ZO_OK;
}

/* The members of one section; those of sections in it have their turn. */
static enum zo_status read_section(struct walk *w, const char *section,
                                   const struct zo_json *object, bool is_idle)
{
    size_t count = 0;
    const struct zo_config_option *table = rows(&count);

    for (const struct zo_json *node = zo_json_first(object); node != NULL;
         node = zo_json_next(node)) {
        const char *name = zo_json_key(node);
        const struct zo_config_option *row = find_row(section, name);

        if (name[0] == '_') {
            continue; /* a comment, by convention */
        }
        if (row != NULL) {
            ZO_TRY(read_value(w, row, node, &w->values->items[row - table]));
        } else if (!is_idle) {
            ZO_TRY(unknown_key(w, section, node));
        }
    }
    return ZO_OK;
}

static enum zo_status read_sections(struct walk *w)
{
    size_t count = 0;
    const struct zo_config_option *table = rows(&count);

    ZO_TRY(read_section(w, "", zo_json_root(w->values->doc), false));
    for (size_t i = 0; i < count; i++) {
        const struct zo_config_value *value = &w->values->items[i];

        if (table[i].kind == ZO_KIND_OBJECT && value->node != NULL) {
            const bool is_idle = table[i].use == ZO_USE_IDLE;

            ZO_TRY(read_section(w, table[i].path, value->node, is_idle));
            ZO_TRY(is_idle ? tell_idle(w, &table[i], value) : ZO_OK);
        }
    }
    return ZO_OK;
}

enum zo_status zo_config_values_read(const struct zo_json_doc *doc,
                                     bool is_strict, struct zo_notes *notes,
                                     struct zo_config_values *values_out)
{
    struct zo_config_values *values = values_out;
    struct walk w = {.values = values};
    enum zo_status status;

    memset(values, 0, sizeof(*values));
    values->doc = doc;
    values->notes = notes;
    values->is_strict = is_strict;
    if (zo_json_type(zo_json_root(doc)) != ZO_JSON_OBJECT) {
        return zo_json_fail(doc, zo_json_root(doc),
                            "want an object in braces, found %s",
                            zo_json_type_name(zo_json_root(doc)));
    }
    ZO_TRY_GOTO(free_words, read_sections(&w));
    if (w.at_rest.length_bytes > 0) {
        status = zo_note_add(notes, ZO_NOTE_INFO,
                             "%s: accepted at their defaults, without meaning "
                             "here: %s",
                             zo_json_name(doc), w.at_rest.text);
    }

free_words:
    zo_words_fini(&w.at_rest);
    return status;
}

/* ---- what a key says ---- */

bool zo_value_is_given(const struct zo_config_values *values,
                       enum zo_config_key key)
{
    return values->items[key].state == ZO_VALUE_GIVEN;
}

bool zo_value_is_auto(const struct zo_config_values *values,
                      enum zo_config_key key)
{
    return values->items[key].state == ZO_VALUE_AUTO;
}

bool zo_value_flag(const struct zo_config_values *values,
                   enum zo_config_key key)
{
    const char *text = zo_config_row(key)->default_text;

    if (zo_value_is_given(values, key)) {
        return values->items[key].flag;
    }
    return text != NULL && strcmp(text, "true") == 0;
}

double zo_value_number(const struct zo_config_values *values,
                       enum zo_config_key key)
{
    const char *text = zo_config_row(key)->default_text;

    if (zo_value_is_given(values, key)) {
        return values->items[key].number;
    }
    return text != NULL ? strtod(text, NULL) : 0.0;
}

int64_t zo_value_integer(const struct zo_config_values *values,
                         enum zo_config_key key)
{
    return (int64_t)zo_value_number(values, key);
}

int zo_value_choice(const struct zo_config_values *values,
                    enum zo_config_key key)
{
    const struct zo_config_option *row = zo_config_row(key);

    if (zo_value_is_given(values, key)) {
        return values->items[key].choice;
    }
    return zo_word_index(row->choices, row->default_text);
}

const char *zo_value_text(const struct zo_config_values *values,
                          enum zo_config_key key)
{
    return zo_value_is_given(values, key) ? values->items[key].text : NULL;
}
