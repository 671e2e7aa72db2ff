#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/json.h"
#include "src/base/memory.h"
#include "tests/tap.h"

static const struct zo_json_options lenient = {.allow_comments = true};

static enum zo_status parse(const char *text,
                            const struct zo_json_options *options,
                            struct zo_json_doc **doc_out)
{
    return zo_json_parse("t.json", text, strlen(text), options, doc_out);
}

static bool said(const char *piece)
{
    if (strstr(zo_err_last()->text, piece) != NULL) {
        return true;
    }
    printf("# the message was: %s\n", zo_err_last()->text);
    return false;
}

/* Refused with the document's status and a message that holds `piece`. */
static bool refused(const char *text, const struct zo_json_options *options,
                    const char *piece)
{
    struct zo_json_doc *doc = NULL;
    const enum zo_status status = parse(text, options, &doc);

    zo_json_close(doc);
    if (status != ZO_E_CONFIG) {
        printf("# status %d for: %.60s\n", status, text);
        return false;
    }
    return said(piece);
}

static void test_values(void)
{
    struct zo_json_doc *doc = NULL;
    const struct zo_json *root, *list;
    int64_t number = 0;

    TAP_CHECK(parse("{\"a\": [1, 2.5, true, null, \"x\\u00e9\\ud83d\\ude00\"],"
                    " \"b\": {}, \"c\": -3e2}",
                    NULL, &doc) == ZO_OK);
    root = zo_json_root(doc);
    TAP_CHECK(zo_json_type(root) == ZO_JSON_OBJECT);
    TAP_CHECK_INT((long long)zo_json_count(root), 3);
    list = zo_json_first(zo_json_get(root, "a"));
    TAP_CHECK(zo_json_int(list, &number) && number == 1);
    list = zo_json_next(list);
    TAP_CHECK(!zo_json_int(list, &number) && zo_json_number(list) == 2.5);
    list = zo_json_next(list);
    TAP_CHECK(zo_json_type(list) == ZO_JSON_BOOL && zo_json_bool(list));
    list = zo_json_next(list);
    TAP_CHECK(zo_json_type(list) == ZO_JSON_NULL);
    list = zo_json_next(list);
    TAP_CHECK(strcmp(zo_json_string(list), "x\xc3\xa9\xf0\x9f\x98\x80") == 0);
    TAP_CHECK(zo_json_next(list) == NULL);
    TAP_CHECK(zo_json_int(zo_json_get(root, "c"), &number) && number == -300);
    TAP_CHECK(strcmp(zo_json_key(zo_json_get(root, "c")), "c") == 0);
    TAP_CHECK(zo_json_get(root, "d") == NULL);
    zo_json_close(doc);
}

static void test_positions(void)
{
    static const char text[] = "{\"a\": 1,\n"
                               "  \"b\": [\n"
                               "    {\"\xc3\xa9\": 1, \"x\": 2}]}";
    const struct zo_json_options options = {.first_line = 10};
    struct zo_json_doc *doc = NULL;
    const struct zo_json *b, *x;
    char path[64];

    TAP_CHECK(parse(text, &options, &doc) == ZO_OK);
    b = zo_json_get(zo_json_root(doc), "b");
    x = zo_json_get(zo_json_first(b), "x");
    TAP_CHECK_INT(zo_json_line(doc, b), 11);
    TAP_CHECK_INT(zo_json_column(doc, b), 3);
    TAP_CHECK_INT(zo_json_line(doc, x), 12);
    TAP_CHECK_INT(zo_json_column(doc, x), 14); /* characters, not bytes */
    TAP_CHECK(strcmp(zo_json_path(doc, x, path, sizeof(path)), "b[0].x") == 0);
    TAP_CHECK(zo_json_fail(doc, x, "no") == ZO_E_CONFIG);
    TAP_CHECK(said("t.json:12:14: b[0].x: no"));
    zo_json_close(doc);
}

static void test_comments(void)
{
    static const char text[] = "# first\n"
                               "{ // second\n"
                               "  \"a\": 1, /* third\n"
                               "  fourth */ \"b\": [1, 2, ], # \"c\": 3,\n"
                               "  \"url\": \"http://x#y /* z */\",\n"
                               "}\n"
                               "// \xb0 not UTF-8";
    struct zo_json_doc *doc = NULL;
    const struct zo_json *root;

    TAP_CHECK(parse(text, &lenient, &doc) == ZO_OK);
    root = zo_json_root(doc);
    TAP_CHECK_INT((long long)zo_json_count(root), 3);
    TAP_CHECK_INT(zo_json_line(doc, zo_json_get(root, "b")), 4);
    TAP_CHECK_INT(zo_json_column(doc, zo_json_get(root, "b")), 13);
    TAP_CHECK(strcmp(zo_json_string(zo_json_get(root, "url")),
                     "http://x#y /* z */") == 0);
    zo_json_close(doc);
    TAP_CHECK(refused("{} // x", NULL, "t.json:1:4: comments are not JSON"));
    TAP_CHECK(refused("{} /* x", &lenient, "t.json:1:4: the comment"));
    TAP_CHECK(refused("{\"a\": 1,}", NULL, "t.json:1:8: a comma before }"));
    TAP_CHECK(refused("[1,,]", &lenient, "t.json:1:4:"));
    TAP_CHECK(refused("{,}", &lenient, "t.json:1:2:"));
}

static void test_hjson(void)
{
    TAP_CHECK(refused("{a: 1}", &lenient,
                      "1:2: a has no quotes: an unquoted "
                      "key is Hjson"));
    TAP_CHECK(refused("{\"a\": cpu}", &lenient, "unquoted string is Hjson"));
    TAP_CHECK(refused("{\"a\": '''x'''}", &lenient, "1:7: ''' strings"));
    TAP_CHECK(refused("{'a': 1}", &lenient, "1:2: single-quoted"));
    TAP_CHECK(
        refused("{\"a\": 1\n \"b\": 2}", &lenient, "2:2: a comma is missing"));
    TAP_CHECK(refused("{\"a\": @$ZERO_STAGE}", &lenient,
                      "1:7: @$ZERO_STAGE is a placeholder"));
    TAP_CHECK(refused("{\"a\": $X,}", &lenient, "$X is a placeholder"));
    TAP_CHECK(refused("{\"a\": {{ x }}}", &lenient, "is a placeholder"));
    TAP_CHECK(refused("{\"a\": <stage>}", &lenient, "is a placeholder"));
    TAP_CHECK(refused("{\"a\": True}", &lenient, "write true"));
    TAP_CHECK(refused("{\"a\": None}", &lenient, "write null"));
    TAP_CHECK(refused("{\"a\": NaN}", &lenient, "a finite number"));
    TAP_CHECK(refused("{\"a\": -Infinity}", &lenient, "a finite number"));
}

static void test_numbers(void)
{
    static const char *const bad[] = {"01",    "+1",  ".5",  "5.",
                                      "5e8.5", "1e",  "-",   "0x1",
                                      "1_000", "--1", "1e+", "1a"};
    struct zo_json_doc *doc = NULL;
    int64_t number = 0;

    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        TAP_CHECK(refused(bad[i], &lenient, "is not a JSON number"));
    }
    TAP_CHECK(refused("1e400", NULL, "too large for a double"));
    TAP_CHECK(refused("[-1e999]", NULL, "[0]"));
    TAP_CHECK(refused("1111111111111111111111111111111111111111"
                      "1111111111111111111111111",
                      NULL, "a number of 65 characters"));
    TAP_CHECK(parse("[9007199254740991, 9007199254740993, 5E+8, 1.0e9]", NULL,
                    &doc) == ZO_OK);
    {
        const struct zo_json *at = zo_json_first(zo_json_root(doc));

        TAP_CHECK(zo_json_int(at, &number) && number == ZO_JSON_INT_MAX);
        at = zo_json_next(at);
        TAP_CHECK(!zo_json_int(at, &number)); /* not exact in a double */
        at = zo_json_next(at);
        TAP_CHECK(zo_json_int(at, &number) && number == 500000000);
        at = zo_json_next(at);
        TAP_CHECK(zo_json_int(at, &number) && number == 1000000000);
    }
    zo_json_close(doc);
}

static void test_strings(void)
{
    const struct zo_json_options mend = {.replace_lone_surrogates = true};
    struct zo_json_doc *doc = NULL;

    TAP_CHECK(refused("[\"a\\u0000b\"]", NULL, "1:4: \\u0000 inside"));
    TAP_CHECK(refused("[\"\\ud83d\"]", NULL, "1:3: \\ud83d is half"));
    TAP_CHECK(refused("[\"\\ude00x\"]", NULL, "1:3: \\ude00 is half"));
    TAP_CHECK(refused("[\"\\ud83d\\ud83d\"]", NULL, "is half"));
    TAP_CHECK(parse("[\"a\\ud83db\\ude00\"]", &mend, &doc) == ZO_OK);
    TAP_CHECK(strcmp(zo_json_string(zo_json_first(zo_json_root(doc))),
                     "a\xef\xbf\xbd"
                     "b\xef\xbf\xbd") == 0);
    zo_json_close(doc);
    TAP_CHECK(refused("[\"\\x\"]", NULL, "1:3: \\ must be followed"));
    TAP_CHECK(refused("[\"\\u12g4\"]", NULL, "four hexadecimal digits"));
    TAP_CHECK(refused("[\"\\u12", NULL, "four hexadecimal digits"));
    TAP_CHECK(refused("[\"a\tb\"]", NULL, "1:4: control character 0x09"));
    TAP_CHECK(refused("[\"a\nb\"]", NULL, "no closing quote on its line"));
    TAP_CHECK(refused("[\"a", NULL, "never closed"));
    TAP_CHECK(refused("[\"a\\", NULL, "\\ must be followed"));
    TAP_CHECK(refused("[\"\xb0\xa1\"]", NULL, "byte 0xb0 is not UTF-8"));
}

static void test_shape(void)
{
    static char deep[200001];
    const struct zo_json_options small = {.size_max_bytes = 8};
    struct zo_json_doc *doc = NULL;

    TAP_CHECK(refused("{\"a\": 1} trailing", NULL,
                      "1:10: found trailing after the end"));
    TAP_CHECK(refused("{} {}", NULL, "after the end"));
    TAP_CHECK(refused("", NULL, "t.json: holds no value"));
    TAP_CHECK(refused("  \n ", NULL, "t.json: holds no value"));
    TAP_CHECK(refused("{\"a\": [1,\n", NULL, "inside the array"));
    TAP_CHECK(refused("{\"a\"", NULL, "inside the object"));
    TAP_CHECK(refused("{\"a\": 1]", NULL, "found ] where { is open"));
    TAP_CHECK(refused("]", NULL, "1:1:"));
    TAP_CHECK(refused("{\"a\" 1}", NULL, "want : after a key"));
    TAP_CHECK(refused("{\"a\": }", NULL, "found }, want a value"));
    TAP_CHECK(refused("{1: 2}", NULL, "1:2:"));
    memset(deep, '[', sizeof(deep) - 1);
    TAP_CHECK(refused(deep, NULL, "1:65: nested deeper than 64"));
    deep[64] = '1';
    memset(deep + 65, ']', 64);
    deep[129] = '\0';
    TAP_CHECK(parse(deep, NULL, &doc) == ZO_OK);
    zo_json_close(doc);
    TAP_CHECK(refused("[1, 2, 3]", &small, "9 bytes of JSON, want at most 8"));
    TAP_CHECK(zo_json_parse("t", "[1\0]", 4, NULL, &doc) == ZO_E_CONFIG);
    TAP_CHECK(said("a NUL byte"));
    TAP_CHECK(zo_json_parse("t", "{}\0", 3, NULL, &doc) == ZO_E_CONFIG);
    TAP_CHECK(zo_json_parse("t", "\xef\xbb\xbf{}", 5, NULL, &doc) == ZO_OK);
    zo_json_close(doc);
    TAP_CHECK(refused("\xff\xfe{", NULL, "is UTF-16"));
    TAP_CHECK(refused("version https://git-lfs.github.com/spec/v1\n", NULL,
                      "is a Git LFS pointer"));
    TAP_CHECK(refused("<!DOCTYPE html>", NULL, "is a web page"));
}

static void test_duplicates(void)
{
    TAP_CHECK(refused("{\"a\": 1, \"b\": {\n\"x\": 1,\n\"y\": 2,\n\"x\": 1}}",
                      NULL,
                      "t.json:4:1: b.x: the key is there twice: lines "
                      "2 and 4"));
    TAP_CHECK(refused("{\"a\": 1, \"\\u0061\": 1}", NULL, "twice"));
    TAP_CHECK(refused("[{}, {\"a\": 1, \"b\": 1, \"a\": 1}]", NULL,
                      "[1].a: the key is there twice"));
}

static void test_getters(void)
{
    struct zo_json_doc *doc = NULL;
    const struct zo_json *root;
    const char *text = NULL;
    bool flag = false;
    int64_t number = 7;
    double real = 0.0;

    TAP_CHECK(parse("{\"i\": 3, \"r\": 0.5, \"s\": \"x\", \"b\": true}", NULL,
                    &doc) == ZO_OK);
    root = zo_json_root(doc);
    TAP_CHECK(zo_json_get_int(doc, root, "i", true, 0, 3, &number) == ZO_OK);
    TAP_CHECK_INT(number, 3);
    TAP_CHECK(zo_json_get_int(doc, root, "i", true, 0, 2, &number) ==
              ZO_E_CONFIG);
    TAP_CHECK(said("i: want an integer from 0 to 2, found 3"));
    TAP_CHECK(zo_json_get_int(doc, root, "r", true, 0, 2, &number) ==
              ZO_E_CONFIG);
    TAP_CHECK(said("found 0.5"));
    TAP_CHECK(zo_json_get_int(doc, root, "none", false, 0, 2, &number) ==
              ZO_OK);
    TAP_CHECK_INT(number, 3);
    TAP_CHECK(zo_json_get_int(doc, root, "none", true, 0, 2, &number) ==
              ZO_E_CONFIG);
    TAP_CHECK(said("has no key none"));
    TAP_CHECK(zo_json_get_bool(doc, root, "b", true, &flag) == ZO_OK && flag);
    TAP_CHECK(zo_json_get_bool(doc, root, "i", true, &flag) == ZO_E_CONFIG);
    TAP_CHECK(said("want true or false, found a number"));
    TAP_CHECK(zo_json_get_number(doc, root, "r", true, 0, 1, &real) == ZO_OK);
    TAP_CHECK(zo_json_get_number(doc, root, "i", true, 0, 1, &real) ==
              ZO_E_CONFIG);
    TAP_CHECK(zo_json_get_string(doc, root, "s", true, &text) == ZO_OK);
    TAP_CHECK(zo_json_get_string(doc, root, "b", true, &text) == ZO_E_CONFIG);
    zo_json_close(doc);
}

static void test_set(void)
{
    struct zo_json_doc *doc = NULL;
    const struct zo_json *stage, *betas;
    char where[64];
    int64_t number = 0;

    TAP_CHECK(parse("{\"z\": {\"stage\": 2}, \"t\": true}", NULL, &doc) ==
              ZO_OK);
    TAP_CHECK(zo_json_set(doc, "z.stage", "3") == ZO_OK);
    TAP_CHECK(zo_json_set(doc, "o.params.betas", "[0.9, 0.95]") == ZO_OK);
    TAP_CHECK(zo_json_set(doc, "o.type", "AdamW") == ZO_OK);
    stage = zo_json_get(zo_json_get(zo_json_root(doc), "z"), "stage");
    TAP_CHECK(zo_json_int(stage, &number) && number == 3);
    TAP_CHECK(strcmp(zo_json_where(doc, stage, where, sizeof(where)),
                     "--set z.stage") == 0);
    TAP_CHECK(strcmp(zo_json_string(zo_json_get(
                         zo_json_get(zo_json_root(doc), "o"), "type")),
                     "AdamW") == 0);
    betas = zo_json_get(
        zo_json_get(zo_json_get(zo_json_root(doc), "o"), "params"), "betas");
    TAP_CHECK(zo_json_fail(doc, zo_json_next(zo_json_first(betas)), "no") ==
              ZO_E_CONFIG);
    TAP_CHECK(strcmp(zo_err_last()->text, "--set o.params.betas[1]: no") == 0);
    TAP_CHECK(zo_json_fail(doc, zo_json_get(zo_json_root(doc), "o"), "no") ==
              ZO_E_CONFIG);
    TAP_CHECK(said("o, made by --set o.params.betas: no"));
    TAP_CHECK(zo_json_set(doc, "t.x", "1") == ZO_E_USAGE);
    TAP_CHECK(said("--set t.x: what x belongs to is a boolean"));
    TAP_CHECK(zo_json_set(doc, "a..b", "1") == ZO_E_USAGE);
    TAP_CHECK(zo_json_set(doc, "", "1") == ZO_E_USAGE);
    TAP_CHECK(zo_json_set(doc, "a.", "1") == ZO_E_USAGE);
    TAP_CHECK(zo_json_set(doc, "a", "{\"x\": ") == ZO_E_USAGE);
    TAP_CHECK(zo_json_fail(doc, stage, "no") == ZO_E_CONFIG);
    TAP_CHECK(said("--set z.stage: no"));
    TAP_CHECK(zo_json_set(doc, "p", "{\"x\": 3}") == ZO_OK);
    TAP_CHECK(
        zo_json_fail(doc, zo_json_get(zo_json_get(zo_json_root(doc), "p"), "x"),
                     "no") == ZO_E_CONFIG);
    TAP_CHECK(strcmp(zo_err_last()->text, "--set p.x: no") == 0);
    zo_json_close(doc);
}

static void test_files(void)
{
    char folder[] = "zo-json-XXXXXX", path[64];
    struct zo_json_doc *doc = NULL;
    FILE *file;

    TAP_CHECK(mkdtemp(folder) != NULL);
    TAP_CHECK(zo_json_read(folder, NULL, &doc) == ZO_E_USAGE);
    TAP_CHECK(said("is a directory, want a file"));
    TAP_CHECK(zo_json_read("/dev/null", NULL, &doc) == ZO_E_USAGE);
    TAP_CHECK(said("no regular file"));
    (void)snprintf(path, sizeof(path), "%s/x.json", folder);
    TAP_CHECK(zo_json_read(path, NULL, &doc) == ZO_E_USAGE);
    TAP_CHECK(said("No such file"));
    TAP_CHECK(mkfifo(path, 0600) == 0);
    TAP_CHECK(zo_json_read(path, NULL, &doc) == ZO_E_USAGE);
    TAP_CHECK(unlink(path) == 0);
    file = fopen(path, "w");
    TAP_CHECK(file != NULL && fclose(file) == 0);
    TAP_CHECK(zo_json_read(path, NULL, &doc) == ZO_E_CONFIG);
    TAP_CHECK(said("is empty"));
    TAP_CHECK(truncate(path, 1 << 30) == 0); /* a sparse gigabyte */
    TAP_CHECK(zo_json_read(path, NULL, &doc) == ZO_E_CONFIG);
    TAP_CHECK(said("1073741824 bytes of JSON, want at most"));
    file = fopen(path, "w");
    TAP_CHECK(file != NULL && fputs("{\"a\": 1}", file) >= 0 &&
              fclose(file) == 0);
    TAP_CHECK(zo_json_read(path, NULL, &doc) == ZO_OK);
    zo_json_close(doc);
    TAP_CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* Mutations of a text: never a crash, and cJSON agrees with the scan. */
static void test_mutations(void)
{
    static const char seed_text[] =
        "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\", true, null],"
        " \"b\": {\"c\": {}}, \"d\": \"\xe4\xbd\xa0\"} // y";
    unsigned state = 12345;

    for (int round = 0; round < 20000; round++) {
        char text[sizeof(seed_text)];
        const size_t size = sizeof(seed_text) - 1;
        struct zo_json_doc *doc = NULL;
        enum zo_status status;

        memcpy(text, seed_text, sizeof(text));
        for (int i = 0; i < 3; i++) {
            state = state * 1664525u + 1013904223u;
            text[(state >> 8) % size] =
                (state & 1) != 0 ? "{}[],:\"\\/#0eu-.n"[(state >> 24) % 16]
                                 : (char)(state >> 24);
        }
        status = zo_json_parse("m", text, size, &lenient, &doc);
        TAP_CHECK(status == ZO_OK || status == ZO_E_CONFIG);
        zo_json_close(doc);
    }
}

static void test_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct zo_json_doc *doc = NULL;

        zo_memory_fail_at(nth);
        status = parse("{\"a\": [1, \"x\"], \"b\": {\"c\": true}}", NULL, &doc);
        if (status == ZO_OK) {
            status = zo_json_set(doc, "b.d.e", "[1, 2]");
        }
        zo_memory_fail_at(0);
        zo_json_close(doc);
        failures += status == ZO_E_NOMEM;
    }
    TAP_CHECK(status == ZO_OK);
    TAP_CHECK(failures > 15);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"values of every type are read", test_values},
        {"lines, columns and paths are those of the text", test_positions},
        {"comments and trailing commas are blanked without moving anything",
         test_comments},
        {"other Hjson, Python words and placeholders are refused by name",
         test_hjson},
        {"numbers are JSON's, finite, and integers exact", test_numbers},
        {"NUL, lone surrogates and bad escapes in strings are seen",
         test_strings},
        {"text that is cut, deep, doubled or no JSON is refused in place",
         test_shape},
        {"a key that is there twice is named with both lines", test_duplicates},
        {"typed members name what was wanted and found", test_getters},
        {"--set replaces and makes values, and is named in messages", test_set},
        {"what is no file, or too large a one, is refused unread", test_files},
        {"mutated text never crashes", test_mutations},
        {"every failing allocation is clean", test_memory},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
