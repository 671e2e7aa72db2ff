#include "config/json_check.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"

/* cJSON copies a number into 64 bytes; no honest number is longer. */
#define NUMBER_MAX_BYTES 60
#define TOKEN_MAX_BYTES  40

enum expectation {
    WANT_VALUE,
    WANT_VALUE_OR_END, /* just after [ */
    WANT_KEY,
    WANT_KEY_OR_END, /* just after { */
    WANT_COMMA_OR_END,
    WANT_NOTHING /* the value is complete */
};

struct scanner {
    struct zo_json_scan *scan;
    char *text;
    size_t size, at;
    size_t comma_at; /* of the latest comma, for a trailing one */
    size_t opened[ZO_JSON_DEPTH_MAX]; /* offsets of [ and { still open */
    int depth;
};

void zo_json_position(const struct zo_json_scan *scan, size_t offset,
                      int64_t *line_out, int64_t *column_out)
{
    int64_t line = scan->options->first_line, column = 1;

    for (size_t i = 0; i < offset && i < scan->size_bytes; i++) {
        if (scan->text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)scan->text[i] & 0xc0) != 0x80) {
            column++; /* characters count, not bytes */
        }
    }
    *line_out = line;
    *column_out = column;
}

static enum zo_status fail_at(const struct scanner *s, size_t offset,
                              const char *format, ...)
    ZO_PRINTF(3, 4) ZO_COLD ZO_MUST_CHECK;

static enum zo_status fail_at(const struct scanner *s, size_t offset,
                              const char *format, ...)
{
    char message[512];
    int64_t line = 0, column = 0;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    zo_json_position(s->scan, offset, &line, &column);
    return ZO_FAIL(s->scan->options->status, "%s:%lld:%lld: %s", s->scan->name,
                   (long long)line, (long long)column, message);
}

static bool is_delimiter(char c)
{
    return c == '\0' || strchr(" \t\r\n,:]}[{\"", c) != NULL;
}

/* The word at `at`, for a message. */
static void copy_token(const struct scanner *s, char *target,
                       size_t target_bytes)
{
    size_t length = 1;

    while (s->at + length < s->size && length < TOKEN_MAX_BYTES &&
           !is_delimiter(s->text[s->at + length])) {
        length++;
    }
    zo_text_escape(target, target_bytes, s->text + s->at, length);
}

static bool starts_with(const struct scanner *s, const char *word)
{
    const size_t length = strlen(word);

    return s->size - s->at >= length &&
           memcmp(s->text + s->at, word, length) == 0;
}

static const char *wanted_text(enum expectation want)
{
    switch (want) {
    case WANT_VALUE:
        return "a value";
    case WANT_VALUE_OR_END:
        return "a value or ]";
    case WANT_KEY:
        return "a key in double quotes";
    case WANT_KEY_OR_END:
        return "a key in double quotes or }";
    case WANT_COMMA_OR_END:
        return "a comma or the end of the list";
    case WANT_NOTHING:
        return "the end of the text";
    }
    return "";
}

/* What Python or JavaScript write where JSON has another word. */
static const char *foreign_word(const struct scanner *s)
{
    static const char *const words[][2] = {
        {"True", "true"},     {"False", "false"},  {"None", "null"},
        {"NaN", NULL},        {"nan", NULL},       {"Infinity", NULL},
        {"inf", NULL},        {"-Infinity", NULL}, {"-inf", NULL},
        {"undefined", "null"}};

    for (size_t i = 0; i < ZO_COUNT(words); i++) {
        const size_t end = s->at + strlen(words[i][0]);

        if (starts_with(s, words[i][0]) &&
            (end >= s->size || is_delimiter(s->text[end]))) {
            return words[i][1] != NULL ? words[i][1] : "a finite number";
        }
    }
    return NULL;
}

/* The text at `at` is not what is wanted: says what it looks like. */
static enum zo_status fail_token(const struct scanner *s, enum expectation want)
{
    const char *wanted = wanted_text(want);
    const char *instead = foreign_word(s);
    const char c = s->text[s->at];
    const bool is_key = want == WANT_KEY || want == WANT_KEY_OR_END;
    char token[4 * TOKEN_MAX_BYTES + 8];

    copy_token(s, token, sizeof(token));
    if (starts_with(s, "'''")) {
        return fail_at(s, s->at,
                       "''' strings are Hjson, which is not read; "
                       "write the string in double quotes");
    }
    if (c == '\'') {
        return fail_at(s, s->at,
                       "single-quoted strings are Hjson, which is "
                       "not read; write double quotes");
    }
    if (c == '\0') {
        return fail_at(s, s->at, "a NUL byte, want %s", wanted);
    }
    if (strchr("@$%<", c) != NULL || starts_with(s, "{{")) {
        return fail_at(s, s->at,
                       "%s is a placeholder that was not filled in; "
                       "want %s",
                       c == '{' ? "{{...}}" : token, wanted);
    }
    if (want == WANT_NOTHING) {
        return fail_at(s, s->at, "found %s after the end of the value", token);
    }
    if (instead != NULL && !is_key) {
        return fail_at(s, s->at, "%s is not JSON; write %s", token, instead);
    }
    if (want == WANT_COMMA_OR_END && (c == '"' || isalnum((unsigned char)c))) {
        return fail_at(s, s->at,
                       "a comma is missing before %s (leaving it "
                       "out is Hjson, which is not read)",
                       token);
    }
    if (c == '+' || c == '.' || c == '-' || isdigit((unsigned char)c)) {
        return fail_at(s, s->at, "%s is not a JSON number", token);
    }
    if (isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80) {
        return fail_at(s, s->at,
                       "%s has no quotes: an unquoted %s is Hjson, "
                       "which is not read; write \"%s\"",
                       token, is_key ? "key" : "string", token);
    }
    return fail_at(s, s->at, "found %s, want %s", token, wanted);
}

static enum zo_status fail_end(const struct scanner *s)
{
    int64_t line = 0, column = 0;

    if (s->depth == 0) {
        return ZO_FAIL(s->scan->options->status, "%s: holds no value",
                       s->scan->name);
    }
    zo_json_position(s->scan, s->opened[s->depth - 1], &line, &column);
    return fail_at(s, s->size,
                   "the text ends inside the %s that starts on "
                   "line %lld",
                   s->text[s->opened[s->depth - 1]] == '{' ? "object" : "array",
                   (long long)line);
}

/* Replaces a comment by spaces; line ends stay, so that nothing moves. */
static enum zo_status skip_comment(struct scanner *s)
{
    const size_t start = s->at;
    const bool is_block = starts_with(s, "/*");
    size_t end = start + (is_block ? 2 : 1);

    if (!s->scan->options->allow_comments) {
        return fail_at(s, start, "comments are not JSON");
    }
    while (end < s->size) {
        if (is_block ? s->text[end] == '*' && end + 1 < s->size &&
                           s->text[end + 1] == '/'
                     : s->text[end] == '\n') {
            break;
        }
        end++;
    }
    if (is_block && end >= s->size) {
        return fail_at(s, start, "the comment that starts here has no */");
    }
    end += is_block ? 2 : 0;
    for (size_t i = start; i < end; i++) {
        s->text[i] = s->text[i] == '\n' ? '\n' : ' ';
    }
    s->at = end;
    return ZO_OK;
}

static enum zo_status skip_space(struct scanner *s)
{
    while (s->at < s->size) {
        const char c = s->text[s->at];

        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            s->at++;
        } else if (c == '#' || starts_with(s, "//") || starts_with(s, "/*")) {
            ZO_TRY(skip_comment(s));
        } else {
            break;
        }
    }
    return ZO_OK;
}

/* Four hexadecimal digits at `at`, or -1. */
static int hex_digits(const struct scanner *s, size_t at)
{
    int value = 0;

    if (at + 4 > s->size) {
        return -1;
    }
    for (size_t i = 0; i < 4; i++) {
        const char c = s->text[at + i];

        if (!isxdigit((unsigned char)c)) {
            return -1;
        }
        value = value * 16 + (isdigit((unsigned char)c)
                                  ? c - '0'
                                  : tolower((unsigned char)c) - 'a' + 10);
    }
    return value;
}

/* \uXXXX at `at`; leaves `at` behind it, and behind its second half. */
static enum zo_status scan_unicode_escape(struct scanner *s)
{
    const size_t start = s->at;
    const int code = hex_digits(s, start + 2);
    int low = -1;

    if (code < 0) {
        return fail_at(s, start, "\\u wants four hexadecimal digits");
    }
    s->at += 6;
    if (code == 0) {
        return fail_at(s, start, "\\u0000 inside a string");
    }
    if (code < 0xd800 || code > 0xdfff) {
        return ZO_OK;
    }
    if (code < 0xdc00 && starts_with(s, "\\u")) {
        low = hex_digits(s, s->at + 2);
    }
    if (low >= 0xdc00 && low <= 0xdfff) {
        s->at += 6;
        return ZO_OK;
    }
    if (!s->scan->options->replace_lone_surrogates) {
        return fail_at(s, start, "\\u%04x is half of a surrogate pair", code);
    }
    memcpy(s->text + start, "\\ufffd", 6); /* same length: nothing moves */
    return ZO_OK;
}

/* The string whose opening quote is at `at`. */
static enum zo_status scan_string(struct scanner *s)
{
    const size_t start = s->at++;

    while (s->at < s->size) {
        const unsigned char c = (unsigned char)s->text[s->at];
        size_t length;

        if (c == '"') {
            s->at++;
            return ZO_OK;
        }
        if (c == '\n') {
            return fail_at(s, start,
                           "the string that starts here has no "
                           "closing quote on its line");
        }
        if (c < 0x20) {
            return fail_at(s, s->at,
                           "control character 0x%02x inside a "
                           "string; write \\u%04x",
                           c, c);
        }
        if (c == '\\') {
            const char next = s->at + 1 < s->size ? s->text[s->at + 1] : '\0';

            if (next == 'u') {
                ZO_TRY(scan_unicode_escape(s));
                continue;
            }
            if (next == '\0' || strchr("\"\\/bfnrt", next) == NULL) {
                return fail_at(s, s->at,
                               "\\ must be followed by one of "
                               "\" \\ / b f n r t u");
            }
            s->at += 2;
            continue;
        }
        length = zo_utf8_decode(s->text + s->at, s->size - s->at, NULL);
        if (length == 0) {
            return fail_at(s, s->at, "byte 0x%02x is not UTF-8", c);
        }
        s->at += length;
    }
    return fail_at(s, start, "the string that starts here is never closed");
}

static size_t skip_digits(const struct scanner *s, size_t at)
{
    while (at < s->size && isdigit((unsigned char)s->text[at])) {
        at++;
    }
    return at;
}

/* Length of the JSON number at `at`, 0 when it is none. */
static size_t number_length(const struct scanner *s)
{
    size_t at = s->at, digits;

    at += s->text[at] == '-';
    digits = skip_digits(s, at);
    if (digits == at || (s->text[at] == '0' && digits - at > 1)) {
        return 0;
    }
    at = digits;
    if (at < s->size && s->text[at] == '.') {
        digits = skip_digits(s, at + 1);
        if (digits == at + 1) {
            return 0;
        }
        at = digits;
    }
    if (at < s->size && (s->text[at] == 'e' || s->text[at] == 'E')) {
        at++;
        at += at < s->size && (s->text[at] == '+' || s->text[at] == '-');
        digits = skip_digits(s, at);
        if (digits == at) {
            return 0;
        }
        at = digits;
    }
    return at - s->at;
}

/* A number or one of the three words at `at`. */
static enum zo_status scan_atom(struct scanner *s, enum expectation want)
{
    static const char *const words[] = {"true", "false", "null"};
    const char c = s->text[s->at];
    size_t length = 0;

    if (c == '-' || isdigit((unsigned char)c)) {
        length = number_length(s);
        if (length > NUMBER_MAX_BYTES) {
            return fail_at(s, s->at,
                           "a number of %zu characters; want at "
                           "most %d",
                           length, NUMBER_MAX_BYTES);
        }
    }
    for (size_t i = 0; i < ZO_COUNT(words); i++) {
        if (starts_with(s, words[i])) {
            length = strlen(words[i]);
        }
    }
    if (length == 0 ||
        (s->at + length < s->size && s->text[s->at + length] != '/' &&
         s->text[s->at + length] != '#' &&
         !is_delimiter(s->text[s->at + length]))) {
        return fail_token(s, want);
    }
    s->at += length;
    return ZO_OK;
}

static enum zo_status note_value(struct scanner *s, size_t offset)
{
    struct zo_json_scan *scan = s->scan;

    ZO_TRY(zo_grow(&scan->offsets, scan->count, &scan->capacity,
                   sizeof(*scan->offsets), "the places of JSON values"));
    scan->offsets[scan->count++] = offset;
    return ZO_OK;
}

static enum expectation after_value(const struct scanner *s)
{
    return s->depth == 0 ? WANT_NOTHING : WANT_COMMA_OR_END;
}

/* The value at `at`; `offset` is where it, or its key, starts. */
static enum zo_status scan_value(struct scanner *s, size_t offset,
                                 enum expectation *want)
{
    const char c = s->text[s->at];

    if (c == '{' || c == '[') {
        if (starts_with(s, "{{")) {
            return fail_token(s, *want);
        }
        if (s->depth == ZO_JSON_DEPTH_MAX) {
            return fail_at(s, s->at, "nested deeper than %d levels",
                           ZO_JSON_DEPTH_MAX);
        }
        ZO_TRY(note_value(s, offset));
        s->opened[s->depth++] = s->at++;
        *want = c == '{' ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
        return ZO_OK;
    }
    if (c == '"') {
        ZO_TRY(scan_string(s));
    } else {
        ZO_TRY(scan_atom(s, *want));
    }
    ZO_TRY(note_value(s, offset));
    *want = after_value(s);
    return ZO_OK;
}

/* A member: its key, the colon, and its value. */
static enum zo_status scan_member(struct scanner *s, enum expectation *want)
{
    const size_t offset = s->at;

    if (s->text[s->at] != '"') {
        return fail_token(s, *want);
    }
    ZO_TRY(scan_string(s));
    ZO_TRY(skip_space(s));
    if (s->at >= s->size) {
        return fail_end(s);
    }
    if (s->text[s->at] != ':') {
        return fail_at(s, s->at, "want : after a key");
    }
    s->at++;
    ZO_TRY(skip_space(s));
    if (s->at >= s->size) {
        return fail_end(s);
    }
    *want = WANT_VALUE;
    return scan_value(s, offset, want);
}

/* The } or ] at `at`; with *want WANT_KEY or _VALUE, after a comma. */
static enum zo_status scan_end(struct scanner *s, enum expectation *want)
{
    const char open = s->text[s->opened[s->depth - 1]];

    if (s->text[s->at] != (open == '{' ? '}' : ']')) {
        return fail_at(s, s->at, "found %c where %c is open", s->text[s->at],
                       open);
    }
    if (*want == WANT_KEY || *want == WANT_VALUE) {
        if (!s->scan->options->allow_comments) {
            return fail_at(s, s->comma_at, "a comma before %c", s->text[s->at]);
        }
        s->text[s->comma_at] = ' ';
    }
    s->at++;
    s->depth--;
    *want = after_value(s);
    return ZO_OK;
}

static enum zo_status scan_comma(struct scanner *s, enum expectation *want)
{
    s->comma_at = s->at++;
    *want = s->text[s->opened[s->depth - 1]] == '{' ? WANT_KEY : WANT_VALUE;
    return ZO_OK;
}

static enum zo_status scan_one(struct scanner *s, enum expectation *want)
{
    const char c = s->text[s->at];

    if ((c == '}' || c == ']') && s->depth > 0) {
        return scan_end(s, want);
    }
    switch (*want) {
    case WANT_VALUE:
    case WANT_VALUE_OR_END:
        return scan_value(s, s->at, want);
    case WANT_KEY:
    case WANT_KEY_OR_END:
        return scan_member(s, want);
    case WANT_COMMA_OR_END:
        return c == ',' ? scan_comma(s, want) : fail_token(s, *want);
    case WANT_NOTHING:
        break;
    }
    return fail_token(s, WANT_NOTHING);
}

/* Files that are commonly found in place of JSON. */
static enum zo_status check_kind(const struct scanner *s)
{
    if (starts_with(s, "version https://git-lfs")) {
        return ZO_FAIL(s->scan->options->status,
                       "%s: is a Git LFS pointer, not the file itself; fetch "
                       "it with git lfs pull",
                       s->scan->name);
    }
    if (starts_with(s, "<!") || starts_with(s, "<html") ||
        starts_with(s, "<HTML")) {
        return ZO_FAIL(s->scan->options->status, "%s: is a web page, not JSON",
                       s->scan->name);
    }
    if (starts_with(s, "\xff\xfe") || starts_with(s, "\xfe\xff")) {
        return ZO_FAIL(s->scan->options->status,
                       "%s: is UTF-16; save it as UTF-8", s->scan->name);
    }
    return ZO_OK;
}

enum zo_status zo_json_scan(struct zo_json_scan *scan)
{
    struct scanner s = {
        .scan = scan, .text = scan->text, .size = scan->size_bytes};
    enum expectation want = WANT_VALUE;

    ZO_TRY(check_kind(&s));
    for (;;) {
        ZO_TRY(skip_space(&s));
        if (s.at >= s.size) {
            return want == WANT_NOTHING ? ZO_OK : fail_end(&s);
        }
        ZO_TRY(scan_one(&s, &want));
    }
}
