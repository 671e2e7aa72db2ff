#include "src/data/row_json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"

#define EXCERPT_BYTES 24
#define BYTES_SHOWN   8 /* of text that is not UTF-8 */
#define KEY_SHOWN     60

/* Where the parser stands.  Columns count characters, not bytes. */
struct cursor {
    struct zo_row_json *json;
    const char *text;
    size_t size_bytes;
    size_t at;
    size_t counted_at; /* line and column are those of this byte */
    uint32_t line, column;
    uint32_t open[ZO_ROW_DEPTH_MAX]; /* nodes of the containers around us */
    size_t depth;
};

/* What may come next. */
enum expected {
    WANT_VALUE,
    WANT_VALUE_OR_END, /* after [ */
    WANT_KEY,
    WANT_KEY_OR_END, /* after { */
    WANT_COMMA_OR_END,
    WANT_NOTHING /* the row is complete */
};

const char *zo_row_type_name(enum zo_row_type type)
{
    switch (type) {
    case ZO_ROW_NULL:
        return "null";
    case ZO_ROW_BOOLEAN:
        return "a boolean";
    case ZO_ROW_NUMBER:
        return "a number";
    case ZO_ROW_STRING:
        return "a string";
    case ZO_ROW_ARRAY:
        return "an array";
    case ZO_ROW_OBJECT:
        return "an object";
    }
    return "nothing";
}

/* Brings line and column up to the byte `at`. */
static void count_to(struct cursor *cursor, size_t at)
{
    for (; cursor->counted_at < at; cursor->counted_at++) {
        const unsigned char byte =
            (unsigned char)cursor->text[cursor->counted_at];

        if (byte == '\n') {
            cursor->line++;
            cursor->column = 1;
        } else if ((byte & 0xc0) != 0x80) {
            cursor->column++;
        }
    }
}

/* Copies what stands at `at`, up to the end of its line, for a message. */
static const char *excerpt(const struct cursor *cursor, size_t at, char *target)
{
    const size_t left = cursor->size_bytes - at;
    size_t count = left < EXCERPT_BYTES ? left : EXCERPT_BYTES;

    while (at + count < cursor->size_bytes && count > EXCERPT_BYTES - 4 &&
           ((unsigned char)cursor->text[at + count] & 0xc0) == 0x80) {
        count--; /* do not cut a character in two */
    }
    for (size_t i = 0; i < count; i++) {
        if (cursor->text[at + i] == '\n' || cursor->text[at + i] == '\r') {
            count = i;
        }
    }
    zo_text_escape(target, 4 * EXCERPT_BYTES + 8, cursor->text + at, count);
    return target;
}

/* Fails at byte `at`: "FILE:LINE:COLUMN: want WHAT, found `BYTES`". */
static enum zo_status fail_here(struct cursor *cursor, size_t at,
                                const char *what)
{
    char found[4 * EXCERPT_BYTES + 8];
    const long long line = cursor->json->line;

    count_to(cursor, at);
    if (at == cursor->size_bytes) {
        return ZO_FAIL(ZO_E_DATA,
                       "%s:%lld:%u: the row ends here, want %s; a data file "
                       "holds one JSON object per line, or one array of them",
                       cursor->json->path, line + cursor->line, cursor->column,
                       what);
    }
    return ZO_FAIL(ZO_E_DATA, "%s:%lld:%u: want %s, found `%s`",
                   cursor->json->path, line + cursor->line, cursor->column,
                   what, excerpt(cursor, at, found));
}

static enum zo_status check_utf8(struct cursor *cursor)
{
    char bytes[3 * BYTES_SHOWN + 1] = "";
    size_t bad = 0;

    if (zo_utf8_valid(cursor->text, cursor->size_bytes, &bad)) {
        return ZO_OK;
    }
    for (size_t i = 0; i < BYTES_SHOWN && bad + i < cursor->size_bytes; i++) {
        (void)snprintf(bytes + 3 * i, 4, " %02x",
                       (unsigned)(unsigned char)cursor->text[bad + i]);
    }
    count_to(cursor, bad);
    return ZO_FAIL(ZO_E_DATA,
                   "%s:%lld:%u: not UTF-8, found the bytes%s; save the file as "
                   "UTF-8 (from GBK: iconv -f GB18030 -t UTF-8)",
                   cursor->json->path,
                   (long long)cursor->json->line + cursor->line, cursor->column,
                   bytes);
}

/* Appends a node that begins at byte `at`. */
static enum zo_status add_node(struct cursor *cursor, enum zo_row_type type,
                               size_t at)
{
    struct zo_row_json *json = cursor->json;

    count_to(cursor, at);
    if (json->count == ZO_ROW_NODES_MAX) {
        return ZO_FAIL(ZO_E_DATA, "%s:%lld:%u: more than %d values in one row",
                       json->path, (long long)json->line + cursor->line,
                       cursor->column, ZO_ROW_NODES_MAX);
    }
    ZO_TRY(zo_grow(&json->nodes, json->count, &json->capacity,
                   sizeof(json->nodes[0]), "the values of a row"));
    json->nodes[json->count] = (struct zo_row_node){
        .type = type,
        .at = (uint32_t)at,
        .next = (uint32_t)json->count + 1,
        .line = cursor->line,
        .column = cursor->column,
    };
    json->count++;
    return ZO_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        return (c | 0x20) - 'a' + 10;
    }
    return -1;
}

/* The code unit of "\uXXXX" at text[at]; false if it is none. */
static bool code_unit(const char *text, size_t size_bytes, size_t at,
                      uint32_t *unit_out)
{
    uint32_t unit = 0;

    if (size_bytes - at < 6 || text[at] != '\\' || text[at + 1] != 'u') {
        return false;
    }
    for (size_t i = 2; i < 6; i++) {
        const int digit = hex_digit(text[at + i]);

        if (digit < 0) {
            return false;
        }
        unit = unit << 4 | (uint32_t)digit;
    }
    *unit_out = unit;
    return true;
}

/* Checks the escape at cursor->at and steps over it. */
static enum zo_status skip_escape(struct cursor *cursor)
{
    const size_t at = cursor->at;
    uint32_t unit = 0, low = 0;

    if (at + 1 == cursor->size_bytes) {
        return fail_here(cursor, at + 1, "the rest of an escape");
    }
    if (cursor->text[at + 1] != 'u') {
        if (memchr("\"\\/bfnrt", cursor->text[at + 1], 8) == NULL) {
            return fail_here(cursor, at, "an escape that JSON knows");
        }
        cursor->at += 2;
        return ZO_OK;
    }
    if (!code_unit(cursor->text, cursor->size_bytes, at, &unit)) {
        return fail_here(cursor, at, "four hexadecimal digits after \\u");
    }
    cursor->at += 6;
    if (unit < 0xd800 || unit > 0xdfff) {
        return ZO_OK;
    }
    if (unit >= 0xdc00 ||
        !code_unit(cursor->text, cursor->size_bytes, cursor->at, &low) ||
        low < 0xdc00 || low > 0xdfff) {
        return fail_here(cursor, at, "both halves of a surrogate pair");
    }
    cursor->at += 6;
    return ZO_OK;
}

/* A string at cursor->at, quotes included. */
static enum zo_status parse_string(struct cursor *cursor)
{
    const size_t begin = cursor->at;
    bool has_escapes = false;
    struct zo_row_node *node;

    ZO_TRY(add_node(cursor, ZO_ROW_STRING, begin));
    cursor->at++;
    for (;;) {
        const size_t at = cursor->at;

        if (at == cursor->size_bytes) {
            return fail_here(cursor, at, "the closing quote of a string");
        }
        if (cursor->text[at] == '"') {
            break;
        }
        if ((unsigned char)cursor->text[at] < 0x20) {
            return fail_here(cursor, at,
                             "control characters in strings escaped");
        }
        if (cursor->text[at] == '\\') {
            has_escapes = true;
            ZO_TRY(skip_escape(cursor));
        } else {
            cursor->at++;
        }
    }
    node = &cursor->json->nodes[cursor->json->count - 1];
    node->at = (uint32_t)begin + 1;
    node->size_bytes = (uint32_t)(cursor->at - begin - 1);
    node->has_escapes = has_escapes;
    cursor->at++;
    return ZO_OK;
}

static size_t skip_digits(const struct cursor *cursor, size_t at)
{
    while (at < cursor->size_bytes && cursor->text[at] >= '0' &&
           cursor->text[at] <= '9') {
        at++;
    }
    return at;
}

static bool has_byte(const struct cursor *cursor, size_t at, const char *set)
{
    return at < cursor->size_bytes && cursor->text[at] != '\0' &&
           strchr(set, cursor->text[at]) != NULL;
}

/* -? (0 | [1-9][0-9]*) (.[0-9]+)? ([eE][+-]?[0-9]+)? */
static enum zo_status parse_number(struct cursor *cursor)
{
    const size_t begin = cursor->at;
    size_t at = begin, after;

    at += has_byte(cursor, at, "-");
    after = has_byte(cursor, at, "0") ? at + 1 : skip_digits(cursor, at);
    if (after == at) {
        return fail_here(cursor, begin, "a JSON value");
    }
    at = after;
    if (has_byte(cursor, at, ".")) {
        after = skip_digits(cursor, at + 1);
        if (after == at + 1) {
            return fail_here(cursor, begin, "digits after the point");
        }
        at = after;
    }
    if (has_byte(cursor, at, "eE")) {
        at += has_byte(cursor, at + 1, "+-") ? 2 : 1;
        after = skip_digits(cursor, at);
        if (after == at) {
            return fail_here(cursor, begin, "digits in the exponent");
        }
        at = after;
    }
    ZO_TRY(add_node(cursor, ZO_ROW_NUMBER, begin));
    cursor->json->nodes[cursor->json->count - 1].size_bytes =
        (uint32_t)(at - begin);
    cursor->at = at;
    return ZO_OK;
}

static enum zo_status parse_word(struct cursor *cursor, const char *word,
                                 enum zo_row_type type)
{
    const size_t length = strlen(word);

    if (cursor->size_bytes - cursor->at < length ||
        memcmp(cursor->text + cursor->at, word, length) != 0) {
        return fail_here(cursor, cursor->at, "a JSON value");
    }
    ZO_TRY(add_node(cursor, type, cursor->at));
    cursor->at += length;
    return ZO_OK;
}

static enum zo_status open_container(struct cursor *cursor,
                                     enum zo_row_type type)
{
    if (cursor->depth == ZO_ROW_DEPTH_MAX) {
        count_to(cursor, cursor->at);
        return ZO_FAIL(ZO_E_DATA, "%s:%lld:%u: nested deeper than %d levels",
                       cursor->json->path,
                       (long long)cursor->json->line + cursor->line,
                       cursor->column, ZO_ROW_DEPTH_MAX);
    }
    ZO_TRY(add_node(cursor, type, cursor->at));
    cursor->open[cursor->depth++] = (uint32_t)cursor->json->count - 1;
    cursor->at++;
    return ZO_OK;
}

/* A value; containers are only opened. */
static enum zo_status parse_value(struct cursor *cursor)
{
    switch (cursor->text[cursor->at]) {
    case '"':
        return parse_string(cursor);
    case '{':
        return open_container(cursor, ZO_ROW_OBJECT);
    case '[':
        return open_container(cursor, ZO_ROW_ARRAY);
    case 'n':
        return parse_word(cursor, "null", ZO_ROW_NULL);
    case 't':
        return parse_word(cursor, "true", ZO_ROW_BOOLEAN);
    case 'f':
        return parse_word(cursor, "false", ZO_ROW_BOOLEAN);
    default:
        return parse_number(cursor);
    }
}

static void skip_blanks(struct cursor *cursor)
{
    while (has_byte(cursor, cursor->at, " \t\r\n")) {
        cursor->at++;
    }
}

static enum zo_status parse_key(struct cursor *cursor)
{
    if (!has_byte(cursor, cursor->at, "\"")) {
        return fail_here(cursor, cursor->at, "a key in double quotes");
    }
    ZO_TRY(parse_string(cursor));
    skip_blanks(cursor);
    if (!has_byte(cursor, cursor->at, ":")) {
        return fail_here(cursor, cursor->at, "\":\" after a key");
    }
    cursor->at++;
    return ZO_OK;
}

static struct zo_row_node *innermost(struct cursor *cursor)
{
    return &cursor->json->nodes[cursor->open[cursor->depth - 1]];
}

/* What may follow a value that has just ended. */
static enum expected after_value(struct cursor *cursor)
{
    if (cursor->depth == 0) {
        return WANT_NOTHING;
    }
    innermost(cursor)->child_count++;
    return WANT_COMMA_OR_END;
}

static enum expected close_container(struct cursor *cursor)
{
    innermost(cursor)->next = (uint32_t)cursor->json->count;
    cursor->depth--;
    cursor->at++;
    return after_value(cursor);
}

/* Parses a value and says what may come next. */
static enum zo_status value_step(struct cursor *cursor, enum expected *expected)
{
    const size_t depth = cursor->depth;

    if (cursor->at == cursor->size_bytes) {
        return fail_here(cursor, cursor->at, "a JSON value");
    }
    ZO_TRY(parse_value(cursor));
    if (cursor->depth == depth) {
        *expected = after_value(cursor);
    } else {
        *expected = innermost(cursor)->type == ZO_ROW_OBJECT
                        ? WANT_KEY_OR_END
                        : WANT_VALUE_OR_END;
    }
    return ZO_OK;
}

static enum zo_status comma_step(struct cursor *cursor, enum expected *expected)
{
    const bool in_object = innermost(cursor)->type == ZO_ROW_OBJECT;

    if (has_byte(cursor, cursor->at, ",")) {
        cursor->at++;
        *expected = in_object ? WANT_KEY : WANT_VALUE;
        return ZO_OK;
    }
    if (has_byte(cursor, cursor->at, in_object ? "}" : "]")) {
        *expected = close_container(cursor);
        return ZO_OK;
    }
    return fail_here(cursor, cursor->at,
                     in_object ? "\",\" or \"}\"" : "\",\" or \"]\"");
}

static enum zo_status parse_step(struct cursor *cursor, enum expected *expected)
{
    switch (*expected) {
    case WANT_VALUE_OR_END:
        if (has_byte(cursor, cursor->at, "]")) {
            *expected = close_container(cursor);
            return ZO_OK;
        }
        return value_step(cursor, expected);
    case WANT_VALUE:
        return value_step(cursor, expected);
    case WANT_KEY_OR_END:
        if (has_byte(cursor, cursor->at, "}")) {
            *expected = close_container(cursor);
            return ZO_OK;
        }
        *expected = WANT_VALUE;
        return parse_key(cursor);
    case WANT_KEY:
        *expected = WANT_VALUE;
        return parse_key(cursor);
    case WANT_COMMA_OR_END:
        return comma_step(cursor, expected);
    case WANT_NOTHING:
        break;
    }
    return ZO_OK;
}

/* Replaces the escapes of a checked string inside the text. */
static void unescape(char *text, struct zo_row_node *node)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const size_t end = node->at + node->size_bytes;
    size_t put = node->at;

    for (size_t at = node->at; at < end;) {
        uint32_t code = 0, low = 0;

        if (text[at] != '\\') {
            text[put++] = text[at++];
        } else if (text[at + 1] != 'u') {
            text[put++] = values[strchr(names, text[at + 1]) - names];
            at += 2;
        } else {
            (void)code_unit(text, end, at, &code);
            at += 6;
            if (code >= 0xd800 && code <= 0xdbff) {
                (void)code_unit(text, end, at, &low);
                at += 6;
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            }
            put += zo_utf8_encode(code, text + put);
        }
    }
    node->size_bytes = (uint32_t)(put - node->at);
    node->has_escapes = false;
}

enum zo_status zo_row_json_parse(struct zo_row_json *json, char *text,
                                 size_t size_bytes, const char *path,
                                 int64_t line, uint32_t column)
{
    struct cursor cursor = {
        .json = json,
        .text = text,
        .size_bytes = size_bytes,
        .column = column,
    };
    enum expected expected = WANT_VALUE;

    ZO_ASSERT(size_bytes <= INT32_MAX);
    json->count = 0;
    json->text = text;
    json->path = path;
    json->line = line;
    ZO_TRY(check_utf8(&cursor));
    do {
        skip_blanks(&cursor);
        ZO_TRY(parse_step(&cursor, &expected));
    } while (expected != WANT_NOTHING);
    skip_blanks(&cursor);
    if (cursor.at != size_bytes) {
        return fail_here(&cursor, cursor.at, "the end of the row");
    }
    /* Only now: until here places are counted in the text as it was read. */
    for (size_t i = 0; i < json->count; i++) {
        if (json->nodes[i].has_escapes) {
            unescape(text, &json->nodes[i]);
        }
    }
    return ZO_OK;
}

void zo_row_json_fini(struct zo_row_json *json)
{
    if (json == NULL) {
        return;
    }
    zo_free(json->nodes);
    *json = (struct zo_row_json){0};
}

const struct zo_row_node *zo_row_json_first(const struct zo_row_node *node)
{
    return node + 1;
}

const struct zo_row_node *zo_row_json_after(const struct zo_row_json *json,
                                            const struct zo_row_node *node)
{
    return &json->nodes[node->next];
}

const char *zo_row_json_string(const struct zo_row_json *json,
                               const struct zo_row_node *node)
{
    return json->text + node->at;
}

int64_t zo_row_json_line(const struct zo_row_json *json,
                         const struct zo_row_node *node)
{
    return json->line + node->line;
}

static bool same_string(const struct zo_row_json *json,
                        const struct zo_row_node *a,
                        const struct zo_row_node *b)
{
    return a->size_bytes == b->size_bytes &&
           memcmp(json->text + a->at, json->text + b->at, a->size_bytes) == 0;
}

enum zo_status zo_row_json_check_keys(const struct zo_row_json *json,
                                      const struct zo_row_node *object)
{
    const struct zo_row_node *key = zo_row_json_first(object);

    if (object->child_count > ZO_ROW_KEYS_MAX) {
        return ZO_FAIL(ZO_E_DATA,
                       "%s:%lld:%u: an object of %u keys; want %d "
                       "at most",
                       json->path, (long long)zo_row_json_line(json, object),
                       object->column, object->child_count, ZO_ROW_KEYS_MAX);
    }
    for (uint32_t i = 0; i < object->child_count; i++) {
        const struct zo_row_node *other = zo_row_json_first(object);

        for (uint32_t j = 0; j < i; j++) {
            if (same_string(json, key, other)) {
                return ZO_FAIL(
                    ZO_E_DATA, "%s:%lld:%u: the key \"%.*s\" appears twice",
                    json->path, (long long)zo_row_json_line(json, key),
                    key->column,
                    (int)(key->size_bytes < KEY_SHOWN ? key->size_bytes
                                                      : KEY_SHOWN),
                    json->text + key->at);
            }
            other = zo_row_json_after(json, other + 1);
        }
        key = zo_row_json_after(json, key + 1);
    }
    return ZO_OK;
}

const struct zo_row_node *zo_row_json_find(const struct zo_row_json *json,
                                           const struct zo_row_node *object,
                                           const char *key)
{
    const struct zo_row_node *member = zo_row_json_first(object);
    const size_t length = strlen(key);

    for (uint32_t i = 0; i < object->child_count; i++) {
        if (member->size_bytes == length &&
            memcmp(json->text + member->at, key, length) == 0) {
            return member + 1;
        }
        member = zo_row_json_after(json, member + 1);
    }
    return NULL;
}

bool zo_row_json_integer(const struct zo_row_json *json,
                         const struct zo_row_node *node, int64_t *value_out)
{
    const char *digits = json->text + node->at;
    const bool is_negative = node->size_bytes > 0 && digits[0] == '-';
    int64_t value = 0;

    if (node->type != ZO_ROW_NUMBER || node->size_bytes > 18) {
        return false; /* 18 digits always fit */
    }
    for (uint32_t i = is_negative; i < node->size_bytes; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return false;
        }
        value = value * 10 + (digits[i] - '0');
    }
    *value_out = is_negative ? -value : value;
    return true;
}
