#include "src/checkpoint/json_scan.h"

#include <stdio.h>
#include <string.h>

#include "src/base/text.h"

#define FOUND_BYTES 24 /* as much of the text as a message shows */

enum zo_status zo_json_scan_fail(const struct zo_json_scan *scan,
                                 const char *want)
{
    const size_t rest = scan->size_bytes - scan->at;
    const int shown = (int)(rest < FOUND_BYTES ? rest : FOUND_BYTES);
    char name[300] = "", found[FOUND_BYTES + 1] = "the end";

    for (int i = 0; i < shown; i++) {
        const char c = scan->text[scan->at + (size_t)i];

        found[i] = c == '\n' || c == '\t' ? ' ' : c; /* one line */
        found[i + 1] = '\0';
    }
    if (scan->name != NULL) {
        (void)snprintf(name, sizeof(name), "%s\"%.200s\", ",
                       scan->kind != NULL ? scan->kind : "", scan->name);
    }
    return ZO_FAIL(ZO_E_CORRUPT, "%s: %sbyte %zu: want %s, found %s",
                   scan->path, name, scan->at, want, found);
}

enum zo_status zo_json_scan_begin(struct zo_json_scan *scan, const char *path,
                                  char *text, size_t size_bytes)
{
    size_t bad = 0;

    *scan = (struct zo_json_scan){
        .path = path, .text = text, .size_bytes = size_bytes};
    if (!zo_utf8_valid(text, size_bytes, &bad)) {
        scan->at = bad;
        return zo_json_scan_fail(scan, "JSON in UTF-8");
    }
    return ZO_OK;
}

char zo_json_scan_peek(struct zo_json_scan *scan)
{
    while (scan->at < scan->size_bytes &&
           memchr(" \t\r\n", scan->text[scan->at], 4) != NULL) {
        scan->at++;
    }
    return scan->at < scan->size_bytes ? scan->text[scan->at] : '\0';
}

static enum zo_status take(struct zo_json_scan *scan, char wanted)
{
    const char want[] = {'\'', wanted, '\'', '\0'};

    if (zo_json_scan_peek(scan) != wanted) {
        return zo_json_scan_fail(scan, want);
    }
    scan->at++;
    return ZO_OK;
}

enum zo_status zo_json_scan_open(struct zo_json_scan *scan, char bracket)
{
    ZO_TRY(take(scan, bracket));
    scan->is_start = true;
    return ZO_OK;
}

enum zo_status zo_json_scan_more(struct zo_json_scan *scan, char bracket,
                                 bool *more_out)
{
    const char next = zo_json_scan_peek(scan);

    if (next == bracket) {
        scan->at++;
        scan->is_start = false;
        *more_out = false;
        return ZO_OK;
    }
    if (!scan->is_start) {
        if (next != ',') {
            return zo_json_scan_fail(scan, bracket == '}' ? "',' or '}'"
                                                          : "',' or ']'");
        }
        scan->at++;
    }
    scan->is_start = false;
    *more_out = true;
    return ZO_OK;
}

/* Four hexadecimal digits. */
static bool take_hex(struct zo_json_scan *scan, uint32_t *code_out)
{
    uint32_t code = 0;

    if (scan->size_bytes - scan->at < 4) {
        return false;
    }
    for (size_t i = 0; i < 4; i++) {
        const char c = scan->text[scan->at + i];
        const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                               : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                               : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                      : 16;

        if (digit == 16) {
            return false;
        }
        code = code * 16 + digit;
    }
    scan->at += 4;
    *code_out = code;
    return true;
}

/* After "\u": one code point, of a surrogate pair if need be. */
static enum zo_status take_unicode(struct zo_json_scan *scan, char **put)
{
    static const char want[] = "four hex digits of a code point above 0";
    uint32_t code, low;

    if (!take_hex(scan, &code) || code == 0) {
        return zo_json_scan_fail(scan, want);
    }
    if (code >= 0xd800 && code < 0xdc00) {
        if (scan->size_bytes - scan->at < 6 ||
            memcmp(scan->text + scan->at, "\\u", 2) != 0) {
            return zo_json_scan_fail(scan, "the second half of a surrogate");
        }
        scan->at += 2;
        if (!take_hex(scan, &low) || low < 0xdc00 || low >= 0xe000) {
            return zo_json_scan_fail(scan, "the second half of a surrogate");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return zo_json_scan_fail(scan, "a surrogate pair");
    }
    *put += zo_utf8_encode(code, *put);
    return ZO_OK;
}

/* After a backslash.  What it stands for is shorter than what was read. */
static enum zo_status take_escape(struct zo_json_scan *scan, char **put)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = scan->at < scan->size_bytes ? scan->text[scan->at] : '\0';
    const char *found = c != '\0' ? strchr(from, c) : NULL;

    if (c == 'u') {
        scan->at++;
        return take_unicode(scan, put);
    }
    if (found == NULL) {
        return zo_json_scan_fail(scan, "a known escape");
    }
    scan->at++;
    *(*put)++ = to[found - from];
    return ZO_OK;
}

enum zo_status zo_json_scan_string(struct zo_json_scan *scan, char **string_out)
{
    char *start, *put;

    if (zo_json_scan_peek(scan) != '"') {
        return zo_json_scan_fail(scan, "a string");
    }
    scan->at++;
    start = put = scan->text + scan->at;
    for (;;) {
        unsigned char c;

        if (scan->at == scan->size_bytes) {
            return zo_json_scan_fail(scan, "the end of a string");
        }
        c = (unsigned char)scan->text[scan->at];
        if (c < 0x20) {
            return zo_json_scan_fail(scan, "control characters as escapes");
        }
        scan->at++;
        if (c == '"') {
            *put = '\0'; /* on the quote, or before it */
            *string_out = start;
            return ZO_OK;
        }
        if (c == '\\') {
            ZO_TRY(take_escape(scan, &put));
        } else {
            *put++ = (char)c;
        }
    }
}

enum zo_status zo_json_scan_key(struct zo_json_scan *scan, char **key_out)
{
    char *key;

    ZO_TRY(zo_json_scan_string(scan, &key));
    ZO_TRY(take(scan, ':'));
    *key_out = key;
    return ZO_OK;
}

static char byte_at(const struct zo_json_scan *scan, size_t at)
{
    return at < scan->size_bytes ? scan->text[at] : '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

enum zo_status zo_json_scan_uint(struct zo_json_scan *scan, uint64_t *value_out)
{
    static const char want[] = "a plain integer from 0 to 2^53 - 1";
    const uint64_t limit = UINT64_C(1) << 53;
    size_t at;
    uint64_t value = 0;

    (void)zo_json_scan_peek(scan);
    for (at = scan->at; is_digit(byte_at(scan, at)) && value < limit; at++) {
        value = value * 10 + (uint64_t)(scan->text[at] - '0');
    }
    if (at == scan->at || value >= limit ||
        (scan->text[scan->at] == '0' && at - scan->at > 1) ||
        (byte_at(scan, at) != '\0' &&
         strchr(" \t\r\n,]}", byte_at(scan, at)) == NULL)) {
        return zo_json_scan_fail(scan, want);
    }
    scan->at = at;
    *value_out = value;
    return ZO_OK;
}

/* Digits, at least one. */
static bool skip_digits(struct zo_json_scan *scan)
{
    const size_t start = scan->at;

    while (is_digit(byte_at(scan, scan->at))) {
        scan->at++;
    }
    return scan->at > start;
}

static enum zo_status skip_number(struct zo_json_scan *scan)
{
    if (byte_at(scan, scan->at) == '-') {
        scan->at++;
    }
    if (byte_at(scan, scan->at) == '0') {
        scan->at++;
    } else if (!skip_digits(scan)) {
        return zo_json_scan_fail(scan, "a value");
    }
    if (byte_at(scan, scan->at) == '.') {
        scan->at++;
        if (!skip_digits(scan)) {
            return zo_json_scan_fail(scan, "a digit");
        }
    }
    if (byte_at(scan, scan->at) == 'e' || byte_at(scan, scan->at) == 'E') {
        scan->at++;
        if (byte_at(scan, scan->at) == '+' || byte_at(scan, scan->at) == '-') {
            scan->at++;
        }
        if (!skip_digits(scan)) {
            return zo_json_scan_fail(scan, "a digit");
        }
    }
    return ZO_OK;
}

static enum zo_status skip_scalar(struct zo_json_scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    char *ignored;

    if (zo_json_scan_peek(scan) == '"') {
        return zo_json_scan_string(scan, &ignored);
    }
    for (size_t i = 0; i < ZO_COUNT(words); i++) {
        const size_t length = strlen(words[i]);

        if (scan->size_bytes - scan->at >= length &&
            memcmp(scan->text + scan->at, words[i], length) == 0) {
            scan->at += length;
            return ZO_OK;
        }
    }
    return skip_number(scan);
}

enum zo_status zo_json_scan_skip(struct zo_json_scan *scan)
{
    char closing[ZO_JSON_SCAN_DEPTH_MAX];
    size_t depth = 0;

    do {
        const char next = zo_json_scan_peek(scan);
        bool more = false;

        if (next == '{' || next == '[') {
            if (depth == ZO_JSON_SCAN_DEPTH_MAX) {
                return zo_json_scan_fail(scan, "at most 64 levels of brackets");
            }
            closing[depth++] = next == '{' ? '}' : ']';
            ZO_TRY(zo_json_scan_open(scan, next));
        } else {
            ZO_TRY(skip_scalar(scan));
        }
        while (depth > 0 && !more) {
            ZO_TRY(zo_json_scan_more(scan, closing[depth - 1], &more));
            if (!more) {
                depth--;
            } else if (closing[depth - 1] == '}') {
                char *ignored;

                ZO_TRY(zo_json_scan_key(scan, &ignored));
            }
        }
    } while (depth > 0);
    return ZO_OK;
}

enum zo_status zo_json_scan_end(struct zo_json_scan *scan)
{
    (void)zo_json_scan_peek(scan);
    if (scan->at != scan->size_bytes) {
        return zo_json_scan_fail(scan, "the end");
    }
    return ZO_OK;
}
