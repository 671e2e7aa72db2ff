/*
 * The strict JSON scanner: what it takes, what it refuses and where, and
 * that it never reads past the text (each text is a heap block of its own
 * size, so that AddressSanitizer sees one byte too many).
 */
#include <stdlib.h>
#include <string.h>

#include "src/checkpoint/json_scan.h"
#include "src/checkpoint/json_text.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

/* A scanner over a copy of exactly the bytes of text. */
static enum zo_status begin(struct zo_json_scan *scan, const char *text,
                            size_t size_bytes)
{
    char *copy = malloc(size_bytes > 0 ? size_bytes : 1);

    memcpy(copy, text, size_bytes);
    return zo_json_scan_begin(scan, "f.json", copy, size_bytes);
}

static enum zo_status skip_all(const char *text, size_t size_bytes)
{
    struct zo_json_scan scan;
    enum zo_status status = begin(&scan, text, size_bytes);

    if (status == ZO_OK) {
        status = zo_json_scan_skip(&scan);
    }
    if (status == ZO_OK) {
        status = zo_json_scan_end(&scan);
    }
    free(scan.text);
    return status;
}

static void test_takes_json(void)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "0",
        "-0.5e+10",
        "1E5",
        "true",
        " [ null , false ] ",
        "{\"a\":{\"b\":[1,2,{\"c\":\"\"}]},\"d\":[[]]}",
        "\"\\u00e9\\ud83d\\ude00\\n\"",
        "\"\xe4\xbd\xa0\"",
        "\t{\"a\"\r\n:1}",
    };

    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        if (skip_all(texts[i], strlen(texts[i])) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%s: %s", texts[i],
                     zo_err_last()->text);
        }
    }
}

static void test_refuses_other_texts(void)
{
    static const char *const texts[] = {
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":1,}",
        "{1:2}",
        "[1]]",
        "nul",
        "truex",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "0x10",
        "NaN",
        "Infinity",
        "'a'",
        "\"a",
        "\"\\\"",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\t\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "{\"a\":1}{}",
        "\xff",
        "\"\xc0\x80\"",
        "\xef\xbb\xbf{}",
        "[1}",
        "{\"a\":1]",
        "//x\n1",
        "\"\\u{41}\"",
    };

    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        if (skip_all(texts[i], strlen(texts[i])) != ZO_E_CORRUPT) {
            tap_fail(__FILE__, __LINE__, "taken: %s", texts[i]);
        }
    }
    TAP_CHECK_INT(skip_all("1\0", 2), ZO_E_CORRUPT);
}

static void test_names_the_place(void)
{
    TAP_CHECK(fx_refused(skip_all("{\"a\": [1, x]}", 13), ZO_E_CORRUPT,
                         "f.json: byte 10: want a value", "found x]}"));
    TAP_CHECK(fx_refused(skip_all("[1", 2), ZO_E_CORRUPT,
                         "byte 2: want ',' or ']', found the end", ""));
    TAP_CHECK(fx_refused(skip_all("[\x1b[31m", 6), ZO_E_CORRUPT,
                         "found \\x1b[31m", ""));
}

static void test_limits_depth(void)
{
    char text[2 * (ZO_JSON_SCAN_DEPTH_MAX + 1)];
    const size_t deep = ZO_JSON_SCAN_DEPTH_MAX;
    char *many = malloc(1000000);

    memset(text, '[', deep);
    memset(text + deep, ']', deep);
    TAP_CHECK_INT(skip_all(text, 2 * deep), ZO_OK);
    memset(text, '[', deep + 1);
    memset(text + deep + 1, ']', deep + 1);
    TAP_CHECK(fx_refused(skip_all(text, 2 * (deep + 1)), ZO_E_CORRUPT,
                         "at most 64 levels", ""));
    memset(many, '[', 1000000);
    TAP_CHECK_INT(skip_all(many, 1000000), ZO_E_CORRUPT);
    free(many);
}

static void test_integers_are_plain(void)
{
    static const struct {
        const char *text;
        bool is_taken;
        uint64_t value;
    } rows[] = {
        {"0", true, 0},
        {" 42 ", true, 42},
        {"9007199254740991", true, UINT64_C(9007199254740991)},
        {"9007199254740992", false, 0},
        {"99999999999999999999999", false, 0},
        {"18446744073709551616", false, 0},
        {"007", false, 0},
        {"-1", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"\"1\"", false, 0},
        {"0x1", false, 0},
        {"", false, 0},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        struct zo_json_scan scan;
        uint64_t value = 7;
        enum zo_status status =
            begin(&scan, rows[i].text, strlen(rows[i].text));

        if (status == ZO_OK) {
            status = zo_json_scan_uint(&scan, &value);
        }
        free(scan.text);
        if ((status == ZO_OK) != rows[i].is_taken ||
            value != (rows[i].is_taken ? rows[i].value : 7)) {
            tap_fail(__FILE__, __LINE__, "%s gave %llu", rows[i].text,
                     (unsigned long long)value);
        }
    }
}

static void test_decodes_strings(void)
{
    static const char text[] =
        "{\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u4f60\\ud83d\\ude00\":\"\"}";
    struct zo_json_scan scan;
    char *key = NULL, *value = NULL;
    bool more = false;

    TAP_CHECK_INT(begin(&scan, text, sizeof(text) - 1), ZO_OK);
    TAP_CHECK_INT(zo_json_scan_open(&scan, '{'), ZO_OK);
    TAP_CHECK_INT(zo_json_scan_more(&scan, '}', &more), ZO_OK);
    TAP_CHECK(more);
    TAP_CHECK_INT(zo_json_scan_key(&scan, &key), ZO_OK);
    TAP_CHECK(strcmp(key, "a\"\\/\b\f\n\r\tA\xe4\xbd\xa0\xf0\x9f\x98\x80") ==
              0);
    TAP_CHECK_INT(zo_json_scan_string(&scan, &value), ZO_OK);
    TAP_CHECK(value[0] == '\0');
    TAP_CHECK_INT(zo_json_scan_more(&scan, '}', &more), ZO_OK);
    TAP_CHECK(!more);
    TAP_CHECK_INT(zo_json_scan_end(&scan), ZO_OK);
    free(scan.text);
}

/* What is quoted is read back as it was. */
static void test_quotes_strings(void)
{
    static const char string[] = "a\"b\\c\x01\x1f\n/\x7f\xe4\xbd\xa0";
    struct zo_json_text json = {0};
    struct zo_json_scan scan;
    char *back = NULL;

    TAP_CHECK_INT(zo_json_text_quote(&json, string), ZO_OK);
    TAP_CHECK(strcmp(json.text, "\"a\\\"b\\\\c\\u0001\\u001f\\u000a/\x7f"
                                "\xe4\xbd\xa0\"") == 0);
    TAP_CHECK_INT(begin(&scan, json.text, json.size_bytes), ZO_OK);
    TAP_CHECK_INT(zo_json_scan_string(&scan, &back), ZO_OK);
    TAP_CHECK(strcmp(back, string) == 0);
    free(scan.text);
    zo_json_text_fini(&json);
}

/* Every prefix and every flipped byte: an answer, and no byte too far. */
static void test_survives_damage(void)
{
    static const char text[] =
        "{\"metadata\": {\"n\": -1.5e3, \"s\": \"\\ud83d\\ude00\\n\"},"
        " \"l\": [true, null, [[]], {\"\": 0}]}";
    const size_t size_bytes = sizeof(text) - 1;
    unsigned seed = 12345;
    char copy[sizeof(text)];

    TAP_CHECK_INT(skip_all(text, size_bytes), ZO_OK);
    for (size_t i = 0; i < size_bytes; i++) {
        TAP_CHECK_INT(skip_all(text, i), ZO_E_CORRUPT);
    }
    for (int i = 0; i < 20000; i++) {
        enum zo_status status;

        memcpy(copy, text, sizeof(text));
        seed = seed * 1664525u + 1013904223u;
        copy[(seed >> 8) % size_bytes] ^= (char)(1u << (seed >> 29));
        status = skip_all(copy, size_bytes);
        TAP_CHECK(status == ZO_OK || status == ZO_E_CORRUPT);
    }
}

/* A message is one line, whatever the file holds. */
static void test_messages_are_one_line(void)
{
    static const char text[] = "{\n\t,\n\n\"a\":1}";

    TAP_CHECK_INT(skip_all(text, strlen(text)), ZO_E_CORRUPT);
    TAP_CHECK(strstr(zo_err_last()->text, "found ,  \"a\":1}") != NULL);
    TAP_CHECK_INT(skip_all("[1", 2), ZO_E_CORRUPT);
    TAP_CHECK(strstr(zo_err_last()->text, "found the end") != NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"JSON texts are taken", test_takes_json},
        {"texts that are no JSON are refused", test_refuses_other_texts},
        {"a refusal names byte, want and found", test_names_the_place},
        {"brackets nest 64 deep and no deeper", test_limits_depth},
        {"a message is one line", test_messages_are_one_line},
        {"integers are plain and below 2^53", test_integers_are_plain},
        {"strings are decoded in place", test_decodes_strings},
        {"quoted strings read back", test_quotes_strings},
        {"cut and flipped texts get an answer", test_survives_damage},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
