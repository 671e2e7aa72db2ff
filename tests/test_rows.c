#include "src/data/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/data/row_json.h"
#include "tests/data_help.h"
#include "tests/tap.h"

#define CHECK_OK(call) TAP_CHECK_INT((call), ZO_OK)

/* ---- JSON ---------------------------------------------------------------- */

static enum zo_status parse(struct zo_row_json *json, const char *text,
                            size_t size_bytes)
{
    static char copy[4096];

    memcpy(copy, text, size_bytes);
    return zo_row_json_parse(json, copy, size_bytes, "f", 7, 1);
}

static void check_json_accepted(void)
{
    static const char *const texts[] = {
        "{}",
        " [ ] ",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-12.5e+10",
        "1E5",
        "1.0",
        "\"\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"",
        "[1,[2,[3]],{\"a\":{}}]",
        "{\"a\":1,\"b\":[null,true]}\r\n",
        "\"\\ud83d\\ude00\"",
        "\"\\u0000\"",
        "\"\x7f\"",
        "{\"a\" : \"\\u4f60\" ,\"\\u0061b\":0}"};
    struct zo_row_json json = {0};

    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        if (parse(&json, texts[i], strlen(texts[i])) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%s: %s", texts[i],
                     zo_err_last()->text);
        }
    }
    zo_row_json_fini(&json);
}

static void check_json_refused(void)
{
    static const struct {
        const char *text;
        const char *error; /* place, then what was found */
    } cases[] = {
        {"", "f:7:1: the row ends here, want a JSON value"},
        {"{", "f:7:2: the row ends here, want a key"},
        {"{\"a\"", "f:7:5: the row ends here, want \":\""},
        {"{\"a\": ", "f:7:7: the row ends here, want a JSON value"},
        {"{\"a\": 1", "f:7:8: the row ends here, want \",\" or \"}\""},
        {"{\"a\": 1,}", "f:7:9: want a key in double quotes, found `}`"},
        {"{\"a\" 1}", "f:7:6: want \":\" after a key, found `1}`"},
        {"{a: 1}", "f:7:2: want a key"},
        {"{'a': 1}", "f:7:2: want a key"},
        {"[1,]", "f:7:4: want a JSON value, found `]`"},
        {"[1 2]", "f:7:4: want \",\" or \"]\", found `2]`"},
        {"[,1]", "f:7:2: want a JSON value"},
        {"[1}", "f:7:3: want \",\" or \"]\""},
        {"{} {}", "f:7:4: want the end of the row, found `{}`"},
        {"nul", "f:7:1: want a JSON value, found `nul`"},
        {"NaN", "f:7:1: want a JSON value"},
        {"Infinity", "f:7:1: want a JSON value"},
        {"+1", "f:7:1: want a JSON value"},
        {"01", "f:7:2: want the end of the row, found `1`"},
        {".5", "f:7:1: want a JSON value"},
        {"1.", "f:7:1: want digits after the point"},
        {"1e", "f:7:1: want digits in the exponent"},
        {"1e+", "f:7:1: want digits in the exponent"},
        {"-", "f:7:1: want a JSON value"},
        {"\"a", "f:7:3: the row ends here, want the closing quote"},
        {"\"\\", "f:7:3: the row ends here, want the rest of an escape"},
        {"\"\\x\"", "f:7:2: want an escape that JSON knows, found `\\x\"`"},
        {"\"\\u12g4\"", "f:7:2: want four hexadecimal digits"},
        {"\"\\u12", "f:7:2: want four hexadecimal digits"},
        {"\"\\ud83d\"", "f:7:2: want both halves of a surrogate pair"},
        {"\"\\ud83d\\u0041\"", "f:7:2: want both halves"},
        {"\"\\ude00\"", "f:7:2: want both halves"},
        {"\"\\ude00\\ude00\"", "f:7:2: want both halves"},
        {"\"a\tb\"", "f:7:3: want control characters in strings escaped"},
        {"\"你\n\"", "f:7:3: want control characters"},
        {"[\"你好\", x]", "f:7:8: want a JSON value, found `x]`"},
        {"[1,\n 2,\n x]", "f:9:2: want a JSON value"},
        {"\xd0\xce", "f:7:1: not UTF-8, found the bytes d0 ce;"},
        {"{\"a\": \"\xc0\x80\"}", "f:7:8: not UTF-8"},
        {"\"\xed\xa0\x80\"", "f:7:2: not UTF-8"},
    };
    struct zo_row_json json = {0};

    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        if (parse(&json, cases[i].text, strlen(cases[i].text)) != ZO_E_DATA ||
            !help_error_has(cases[i].error)) {
            tap_fail(__FILE__, __LINE__, "%s", cases[i].text);
        }
    }
    TAP_CHECK_INT(parse(&json, "\"a\0b\"", 5), ZO_E_DATA);
    TAP_CHECK(help_error_has("f:7:3: want control characters"));
    zo_row_json_fini(&json);
}

static void check_json_limits(void)
{
    char deep[2 * ZO_ROW_DEPTH_MAX + 4];
    const size_t size_bytes = 2 * (size_t)ZO_ROW_NODES_MAX + 1;
    char *many;
    struct zo_row_json json = {0};

    memset(deep, '[', ZO_ROW_DEPTH_MAX);
    memset(deep + ZO_ROW_DEPTH_MAX, ']', ZO_ROW_DEPTH_MAX);
    CHECK_OK(parse(&json, deep, 2 * ZO_ROW_DEPTH_MAX));
    memset(deep, '[', ZO_ROW_DEPTH_MAX + 1);
    memset(deep + ZO_ROW_DEPTH_MAX + 1, ']', ZO_ROW_DEPTH_MAX + 1);
    TAP_CHECK_INT(parse(&json, deep, 2 * ZO_ROW_DEPTH_MAX + 2), ZO_E_DATA);
    TAP_CHECK(help_error_has("f:7:65: nested deeper than 64 levels"));
    many = malloc(size_bytes);
    TAP_CHECK(many != NULL);
    memset(many, '0', size_bytes);
    for (size_t i = 2; i < size_bytes; i += 2) {
        many[i] = ',';
    }
    many[0] = '[';
    many[size_bytes - 1] = ']';
    TAP_CHECK_INT(zo_row_json_parse(&json, many, size_bytes, "f", 1, 1),
                  ZO_E_DATA);
    TAP_CHECK(help_error_has("more than 4194304 values in one row"));
    free(many);
    zo_row_json_fini(&json);
}

static void check_json_nodes(void)
{
    static const char text[] =
        "{\"a\": [1, \"x\\ny\"], \"\\u0062\": {\"c\": null}, \"d\": -7}";
    struct zo_row_json json = {0};
    const struct zo_row_node *root, *list, *node;
    int64_t value = 0;

    CHECK_OK(parse(&json, text, strlen(text)));
    root = &json.nodes[0];
    TAP_CHECK_INT(root->child_count, 3);
    list = zo_row_json_find(&json, root, "a");
    TAP_CHECK(list != NULL && list->type == ZO_ROW_ARRAY);
    TAP_CHECK_INT(list->child_count, 2);
    node = zo_row_json_first(list);
    TAP_CHECK(zo_row_json_integer(&json, node, &value) && value == 1);
    node = zo_row_json_after(&json, node);
    TAP_CHECK_INT(node->size_bytes, 3);
    TAP_CHECK(memcmp(zo_row_json_string(&json, node), "x\ny", 3) == 0);
    TAP_CHECK(!zo_row_json_integer(&json, node, &value));
    node = zo_row_json_find(&json, root, "b");
    TAP_CHECK(node != NULL && node->type == ZO_ROW_OBJECT);
    TAP_CHECK(zo_row_json_find(&json, node, "c")->type == ZO_ROW_NULL);
    node = zo_row_json_find(&json, root, "d");
    TAP_CHECK(zo_row_json_integer(&json, node, &value) && value == -7);
    TAP_CHECK(zo_row_json_find(&json, root, "c") == NULL);
    zo_row_json_fini(&json);
}

static void check_json_keys(void)
{
    struct zo_row_json json = {0};
    size_t size_bytes = 0;
    char *text;

    /* The same key, once spelled with an escape. */
    CHECK_OK(parse(&json, "{\"ab\": 1, \"\\u0061b\": 2}", 23));
    TAP_CHECK_INT(zo_row_json_check_keys(&json, &json.nodes[0]), ZO_E_DATA);
    TAP_CHECK(help_error_has("f:7:11: the key \"ab\" appears twice"));
    text = malloc(16 * (ZO_ROW_KEYS_MAX + 1) + 16);
    TAP_CHECK(text != NULL);
    for (int i = 0; i <= ZO_ROW_KEYS_MAX; i++) {
        size_bytes += (size_t)snprintf(text + size_bytes, 16, "%s\"%d\": 0",
                                       i == 0 ? "{" : ",", i);
    }
    text[size_bytes++] = '}';
    CHECK_OK(zo_row_json_parse(&json, text, size_bytes, "f", 1, 1));
    TAP_CHECK_INT(zo_row_json_check_keys(&json, &json.nodes[0]), ZO_E_DATA);
    TAP_CHECK(help_error_has("an object of 1001 keys"));
    free(text);
    zo_row_json_fini(&json);
}

/* Every beginning of a row, and every byte of it changed, is survived. */
static void check_json_hostile(void)
{
    static const char text[] =
        "{\"a\": [1.5e3, \"\\ud83d\\ude00\\n\", {}], \"b\": {\"c\": null}}";
    struct zo_row_json json = {0};
    char copy[sizeof(text)];

    for (size_t count = 0; count + 1 < sizeof(text); count++) {
        TAP_CHECK_INT(parse(&json, text, count), ZO_E_DATA);
    }
    for (size_t at = 0; at + 1 < sizeof(text); at++) {
        for (int byte = 0; byte < 256; byte++) {
            memcpy(copy, text, sizeof(text));
            copy[at] = (char)byte;
            (void)!parse(&json, copy, sizeof(text) - 1);
        }
    }
    zo_row_json_fini(&json);
}

/* ---- rows ---------------------------------------------------------------- */

/* What a file gives: its rows in short, and its first error. */
struct outcome {
    char rows[512]; /* "1 user:q assistant:a; 3 ..." */
    enum zo_status status;
    bool is_broken;
};

static void describe_row(const struct zo_row *row, char *target, size_t size)
{
    static const char *const roles[] = {"system", "user", "assistant",
                                        "observation"};
    size_t put = strlen(target);

    put += (size_t)snprintf(target + put, size - put, "%s%lld",
                            put > 0 ? "; " : "", (long long)row->line);
    if (row->is_empty) {
        put += (size_t)snprintf(target + put, size - put, " empty");
    }
    for (size_t i = 0; i < row->turn_count && !row->is_empty; i++) {
        put += (size_t)snprintf(
            target + put, size - put, " %s:%.*s", roles[row->turns[i].role],
            (int)row->turns[i].size_bytes, row->turns[i].text);
    }
    for (size_t i = 0; i < row->id_count; i++) {
        put += (size_t)snprintf(target + put, size - put, " %d", row->ids[i]);
        if (row->labels != NULL) {
            put += (size_t)snprintf(target + put, size - put, "/%d",
                                    row->labels[i]);
        }
    }
}

/* Reads a file; bad rows are stepped over when `goes_on`. */
static struct outcome read_rows(const struct zo_rows_options *options,
                                bool goes_on)
{
    struct outcome outcome = {.status = ZO_OK};
    struct zo_rows *rows = NULL;
    bool is_end = false;

    outcome.status = zo_rows_open(options, &rows);
    while (outcome.status == ZO_OK && !is_end) {
        struct zo_row row = {0};

        outcome.status = zo_rows_next(rows, &row, &is_end);
        if (outcome.status == ZO_OK && !is_end) {
            describe_row(&row, outcome.rows, sizeof(outcome.rows));
        }
        if (outcome.status == ZO_E_DATA) {
            outcome.is_broken = zo_rows_is_broken(rows);
            if (goes_on && !outcome.is_broken) {
                outcome.status = ZO_OK;
            }
        }
    }
    zo_rows_close(rows);
    return outcome;
}

struct file_case {
    const char *text;
    const char *rows;  /* those before the first error */
    const char *error; /* NULL: there is none */
};

/* The case fails unless every file gives its rows and its error, with `bad`
 * as its status. */
static void check_status(enum zo_status bad, const struct file_case *cases,
                         size_t count, struct zo_rows_options options)
{
    for (size_t i = 0; i < count; i++) {
        struct outcome outcome;

        options.path = help_write_text("rows.jsonl", cases[i].text);
        options.vocab_size = 100;
        outcome = read_rows(&options, false);
        if (strcmp(outcome.rows, cases[i].rows) != 0) {
            tap_fail(__FILE__, __LINE__, "%s: rows %s, want %s", cases[i].text,
                     outcome.rows, cases[i].rows);
        }
        if ((outcome.status == ZO_OK) != (cases[i].error == NULL) ||
            (cases[i].error != NULL &&
             (outcome.status != bad || !help_error_has(cases[i].error)))) {
            tap_fail(__FILE__, __LINE__, "%s: status %d", cases[i].text,
                     outcome.status);
        }
    }
}

static void check_files(const struct file_case *cases, size_t count,
                        struct zo_rows_options options)
{
    check_status(ZO_E_DATA, cases, count, options);
}

#define QA "{\"content\": \"q\", \"summary\": \"a\"}"

static void check_layouts(void)
{
    static const struct file_case cases[] = {
        {QA "\n" QA "\n", "1 user:q assistant:a; 2 user:q assistant:a", NULL},
        {QA, "1 user:q assistant:a", NULL},
        {"\xef\xbb\xbf" QA "\r\n" QA "\r\n",
         "1 user:q assistant:a; 2 user:q assistant:a", NULL},
        {"\n \t\n" QA "\n\r\n\n" QA "\n\n",
         "3 user:q assistant:a; 6 user:q assistant:a", NULL},
        {"", "", NULL},
        {"\n\n", "", NULL},
        {"\xef\xbb\xbf", "", NULL},
        {"[]", "", NULL},
        {" [\n" QA ",\n" QA "\n]\n",
         "2 user:q assistant:a; 3 user:q assistant:a", NULL},
        {"[" QA "," QA "]", "1 user:q assistant:a; 1 user:q assistant:a", NULL},
        {"[{\"content\": \"q\\\\\", \"summary\": \"a\"}, " QA "]",
         "1 user:q\\ assistant:a; 1 user:q assistant:a", NULL},
        {"[\n{\n\"content\":\n\"q]}\\\"\",\n\"summary\": \"a\"}\n]",
         "2 user:q]}\" assistant:a", NULL},
        /* bad lines at the beginning, at the end, after blank lines */
        {"{\"content\": \"q\",\n" QA, "", "rows.jsonl:1:17: the row ends here"},
        {QA "\n\n\n\n{\"content\"}\n", "1 user:q assistant:a",
         "rows.jsonl:5:11: want \":\""},
        {QA "\nx", "1 user:q assistant:a",
         "rows.jsonl:2:1: want a JSON value, found `x`"},
        {"{\n  \"content\": \"q\",\n  \"summary\": \"a\"\n}\n", "",
         "one JSON object per line"},
        {QA QA, "", "want the end of the row"},
        {QA "\n[1]\n", "1 user:q assistant:a",
         "2:1: a row: want an object, found an array"},
        {"7\n", "", "1:1: a row: want an object, found a number"},
        {"\xff\xfe{", "", "1:1: not UTF-8, found the bytes ff fe 7b;"},
        /* arrays that are no arrays */
        {"[" QA, "1 user:q assistant:a", "found the end of the file"},
        {"[", "", "found the end of the file"},
        {"[" QA ",]", "1 user:q assistant:a", "want a row of the array"},
        {"[," QA "]", "", "want a row of the array"},
        {"[" QA " " QA "]", "1 user:q assistant:a", "want \",\" or \"]\""},
        {"[" QA "] x", "1 user:q assistant:a", "nothing after the end"},
        {"[\n{\"a\": \"", "", "2: the row that begins here is not closed"},
        {"[" QA ", 7]", "1 user:q assistant:a", "found a number"},
        {"[\n" QA ",\n{\"content\": }]", "2 user:q assistant:a",
         "3:13: want a JSON value, found `}`"},
        {"[" QA "}", "1 user:q assistant:a", "want \",\" or \"]\""},
    };

    check_files(cases, TAP_COUNT(cases), (struct zo_rows_options){0});
}

static void check_columns(void)
{
    static const struct file_case cases[] = {
        {QA "\n{\"content\": \"x\"}", "1 user:q assistant:a",
         "2:1: no \"summary\" in this row, which has \"content\""},
        {QA "\n{\"content\": \"q\", \"summary\": null}", "1 user:q assistant:a",
         "2:29: summary: want text, found null"},
        {"{\"content\": null, \"summary\": \"a\"}", "",
         "1:13: content: want text, found null"},
        {"{\"content\": \"\", \"summary\": \"a\"}", "",
         "1:13: content: want text, found an empty string"},
        {"{\"content\": \"q\", \"summary\": \"\"}", "",
         "1:29: summary: want text, found an empty string"},
        {"{\"content\": 7, \"summary\": \"a\"}", "",
         "1:13: content: want a string, found a number"},
        {"{\"content\": \"q\", \"summary\": [\"a\"]}", "",
         "1:29: summary: want a string, found an array"},
        {"{\"content\": \"a\", \"content\": \"b\", \"summary\": \"c\"}", "",
         "1:18: the key \"content\" appears twice"},
        {"{\"more\": [{}], \"summary\": \"a\", \"content\": \"q\"}",
         "1 user:q assistant:a", NULL},
    };
    /* In the first row: what was asked for is not there. */
    static const struct file_case unknown[] = {
        {"{\"content\": \"x\"}", "", "1:1: no \"summary\""},
        {"{\"summary\": \"x\"}", "", "1:1: no \"content\""},
        {"{\"q\": 1, \"a\\u001b[2J\": 2}", "",
         "this row has \"q\", \"a\\x1b[2J\"; want \"content\""},
        {"{}", "", "this row has no key"},
    };

    check_files(cases, TAP_COUNT(cases), (struct zo_rows_options){0});
    check_status(ZO_E_USAGE, unknown, TAP_COUNT(unknown),
                 (struct zo_rows_options){0});
}

static void check_named_columns(void)
{
    static const struct file_case joined[] = {
        {"{\"i\": \"do\", \"in\": \"x\", \"out\": \"y\", \"h\": "
         "[[\"q\", \"a\"]]}",
         "1 user:q assistant:a user:do\nx assistant:y", NULL},
        {"{\"i\": \"do\", \"in\": \"\", \"out\": \"y\", \"h\": null}",
         "1 user:do assistant:y", NULL},
        {"{\"i\": null, \"in\": \"x\", \"out\": \"y\", \"h\": []}",
         "1 user:x assistant:y", NULL},
        {"{\"i\": \"\", \"in\": \"\", \"out\": \"y\", \"h\": []}", "",
         "i: want text"},
        {"{\"i\": \"x\", \"in\": \"\", \"out\": \"y\", \"h\": [\"q\"]}", "",
         "a round of the history: want an array"},
        {"{\"i\": \"x\", \"in\": \"\", \"out\": \"y\", \"h\": [[\"q\"]]}", "",
         "want [question, answer], found 1 elements"},
        {"{\"i\": \"x\", \"in\": \"\", \"out\": \"y\", \"h\": [[\"q\", 1]]}",
         "", "an answer of the history: want a string"},
        {"{\"i\": \"x\", \"in\": \"\", \"out\": \"y\", \"h\": \"q\"}", "",
         "h: want an array"},
    };
    static const struct file_case lacking[] = {
        {"{\"i\": \"x\", \"out\": \"y\", \"h\": []}", "", "no \"in\""},
        {"{\"i\": \"x\", \"in\": \"\", \"out\": \"y\"}", "", "no \"h\""},
        {"{\"messages\": [], \"text\": \"x\"}", "", "no \"h\""},
    };
    const struct zo_rows_options names = {.prompt_column = "i,in",
                                          .response_column = "out",
                                          .history_column = "h"};
    static const char *const wrong[] = {"",   ",",    "a,",
                                        ",a", "a,,b", "1,2,3,4,5,6,7,8,9"};

    check_files(joined, TAP_COUNT(joined), names);
    check_status(ZO_E_USAGE, lacking, TAP_COUNT(lacking), names);
    for (size_t i = 0; i < TAP_COUNT(wrong); i++) {
        struct outcome outcome =
            read_rows(&(struct zo_rows_options){.path = help_path("rows.jsonl"),
                                                .prompt_column = wrong[i]},
                      false);

        TAP_CHECK_INT(outcome.status, ZO_E_USAGE);
    }
}

static void check_messages(void)
{
    static const struct file_case cases[] = {
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, "
         "{\"role\": \"user\", \"content\": \"q\"}, "
         "{\"role\": \"assistant\", \"content\": \"a\"}]}",
         "1 system:s user:q assistant:a", NULL},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, "
         "{\"from\": \"gpt\", \"value\": \"a\"}]}",
         "1 user:q assistant:a", NULL},
        {"{\"messages\": []}", "",
         "messages: want the last one from the "
         "assistant, found none"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}", "",
         "found another role"},
        {"{\"messages\": [{\"role\": \"root\", \"content\": \"q\"}]}", "",
         "1:24: role \"root\": want user"},
        {"{\"messages\": [{\"role\": \"use\", \"content\": \"q\"}]}", "",
         "role \"use\": want user"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "",
         "want \"role\" and \"content\" (or \"from\" and \"value\"), it has "
         "\"role\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": null}]}", "",
         "the content of a message: want a string, found null"},
        {"{\"messages\": [{\"role\": 1, \"content\": \"q\"}]}", "",
         "the role of a message: want a string"},
        {"{\"messages\": [{\"role\": \"user\", \"role\": \"user\", "
         "\"content\": \"q\"}]}",
         "", "the key \"role\" appears twice"},
        {"{\"messages\": [7]}", "", "a message: want an object"},
        {"{\"messages\": {}}", "", "messages: want an array"},
    };

    check_files(cases, TAP_COUNT(cases), (struct zo_rows_options){0});
}

static void check_text_and_ids(void)
{
    static const struct file_case cases[] = {
        {"{\"text\": \"t\"}\n{\"text\": \"u\", \"content\": \"c\"}",
         "1 user:t; 2 user:u", NULL},
        {"{\"text\": \"\"}", "", "text: want text, found an empty string"},
        {"{\"text\": 1}", "", "text: want a string, found a number"},
        {"{\"input_ids\": [0, 99]}", "1 0 99", NULL},
        {"{\"input_ids\": [1, 2], \"labels\": [-100, 2]}", "1 1/-100 2/2",
         NULL},
        {"{\"input_ids\": [1, 100]}", "",
         "1:19: input_ids[1] is 100: outside the vocabulary, want 0 to 99"},
        {"{\"input_ids\": [-1]}", "", "input_ids[0] is -1: outside"},
        {"{\"input_ids\": [-100]}", "", "input_ids[0] is -100: outside"},
        {"{\"input_ids\": [1], \"labels\": [-99]}", "",
         "labels[0] is -99: outside"},
        {"{\"input_ids\": [1], \"labels\": [100]}", "",
         "labels[0] is 100: outside"},
        {"{\"input_ids\": [1.0]}", "", "input_ids[0]: want a token id"},
        {"{\"input_ids\": [99999999999999999999]}", "",
         "input_ids[0]: want a token id"},
        {"{\"input_ids\": [\"1\"]}", "",
         "input_ids[0]: want a token id, found a string"},
        {"{\"input_ids\": []}", "", "input_ids: want token ids, found none"},
        {"{\"input_ids\": 1}", "", "input_ids: want an array"},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}", "",
         "labels: want as many as input_ids, 2, found 1"},
        {"{\"input_ids\": [1], \"labels\": null}", "",
         "labels: want an array, found null"},
        {"{\"input_ids\": [1]}\n{\"text\": \"t\"}", "1 1",
         "2:1: no \"input_ids\" in this row, which has \"text\""},
    };

    check_files(cases, TAP_COUNT(cases), (struct zo_rows_options){0});
}

/* The rules of rows.h, where a row could be of several kinds. */
static void check_kinds(void)
{
#define CONVERSATION \
    "\"messages\": [{\"role\": \"assistant\", \"content\": \"m\"}]"
    static const struct file_case silent[] = {
        {"{\"input_ids\": [1], " CONVERSATION ", \"text\": \"t\"}", "1 1",
         NULL},
        {"{" CONVERSATION ", \"content\": \"q\", \"summary\": \"a\"}",
         "1 assistant:m", NULL},
        {"{\"text\": \"t\", \"content\": \"q\", \"summary\": \"a\"}",
         "1 user:q assistant:a", NULL},
        {"{\"text\": \"t\", \"content\": \"q\"}", "1 user:t", NULL},
    };
    static const struct file_case named[] = {
        {"{\"input_ids\": [1], " CONVERSATION
         ", \"text\": \"t\", \"content\": \"q\", \"summary\": \"a\"}",
         "1 user:q assistant:t", NULL},
    };

    check_files(silent, TAP_COUNT(silent), (struct zo_rows_options){0});
    check_files(named, TAP_COUNT(named),
                (struct zo_rows_options){.response_column = "text"});
}

static void check_empty_allowed(void)
{
    static const struct file_case cases[] = {
        {"{\"content\": \"\", \"summary\": \"a\"}\n" QA
         "\n{\"content\": \"q\", \"summary\": null}\n",
         "1 empty; 2 user:q assistant:a; 3 empty", NULL},
        {"{\"content\": 1, \"summary\": \"a\"}", "", "want a string"},
    };

    check_files(cases, TAP_COUNT(cases),
                (struct zo_rows_options){.allow_empty = true});
}

static void check_going_on(void)
{
    struct zo_rows_options options = {.vocab_size = 10};
    struct outcome outcome;

    options.path = help_write_text(
        "rows.jsonl", "x\n" QA "\n{\"content\": 1}\n\n\xff\n" QA "\n{");
    outcome = read_rows(&options, true);
    CHECK_OK(outcome.status);
    TAP_CHECK(strcmp(outcome.rows,
                     "2 user:q assistant:a; 6 user:q assistant:a") == 0);
    options.path =
        help_write_text("rows.jsonl", "[7, " QA ", {\"a\" 1},\n" QA "]");
    outcome = read_rows(&options, true);
    CHECK_OK(outcome.status);
    TAP_CHECK(strcmp(outcome.rows,
                     "1 user:q assistant:a; 2 user:q assistant:a") == 0);
    options.path = help_write_text("rows.jsonl", "[" QA ", {\"a\": \"]");
    outcome = read_rows(&options, true);
    TAP_CHECK_INT(outcome.status, ZO_E_DATA);
    TAP_CHECK(outcome.is_broken);
}

/* Rows that end at and around the border of a chunk of 64 KiB. */
static void check_chunks(void)
{
    const size_t size_bytes = 3 * 65536;
    char *text = malloc(size_bytes + 256);

    TAP_CHECK(text != NULL);
    for (size_t pad = 65536 - 80; pad < 65536 + 3; pad++) {
        struct outcome outcome;
        size_t put = 0;

        memset(text, ' ', pad);
        put = pad;
        memcpy(text + put, QA "\r\n", strlen(QA "\r\n"));
        put += strlen(QA "\r\n");
        memcpy(text + put, QA, strlen(QA));
        put += strlen(QA);
        outcome =
            read_rows(&(struct zo_rows_options){.path = help_write(
                                                    "chunk.jsonl", text, put)},
                      false);
        if (outcome.status != ZO_OK ||
            strcmp(outcome.rows,
                   "1 user:q assistant:a; 2 user:q assistant:a") != 0) {
            tap_fail(__FILE__, __LINE__, "pad %zu: %s", pad, outcome.rows);
            break;
        }
    }
    free(text);
}

static void check_long_element(void)
{
    const char *path = help_path("element.json");
    FILE *file = fopen(path, "wb");
    struct zo_rows_options options = {.path = path};
    struct outcome outcome;

    TAP_CHECK(file != NULL);
    (void)fputs("[" QA ",\n{", file);
    TAP_CHECK_INT(fseek(file, ZO_ROW_BYTES_MAX, SEEK_CUR), 0);
    (void)fputs("}]", file);
    TAP_CHECK_INT(fclose(file), 0);
    outcome = read_rows(&options, true);
    TAP_CHECK_INT(outcome.status, ZO_E_DATA);
    TAP_CHECK(outcome.is_broken);
    TAP_CHECK(help_error_has("element.json:2: the row that begins here is too "
                             "long"));
    TAP_CHECK_INT(truncate(path, 0), 0);
}

/* A line above the limit is named and stepped over, in bounded memory. */
static void check_long_line(void)
{
    const char *path = help_path("long.jsonl");
    FILE *file = fopen(path, "wb");
    struct zo_rows_options options = {.path = path};
    struct outcome outcome;

    TAP_CHECK(file != NULL);
    (void)fputs(QA "\n", file);
    TAP_CHECK_INT(fseek(file, ZO_ROW_BYTES_MAX + 65536L - 20, SEEK_CUR), 0);
    (void)fputs("\n" QA "\n", file);
    TAP_CHECK_INT(fclose(file), 0);
    outcome = read_rows(&options, false);
    TAP_CHECK_INT(outcome.status, ZO_E_DATA);
    TAP_CHECK(help_error_has("long.jsonl:2: a line of more than"));
    outcome = read_rows(&options, true);
    TAP_CHECK(strcmp(outcome.rows,
                     "1 user:q assistant:a; 3 user:q assistant:a") == 0);
    TAP_CHECK_INT(truncate(path, 0), 0);
}

static void check_no_file(void)
{
    struct zo_rows_options options = {.path = help_path("none.jsonl")};
    const char *fifo = help_path("fifo.jsonl");

    TAP_CHECK_INT(read_rows(&options, false).status, ZO_E_USAGE);
    TAP_CHECK(help_error_has("none.jsonl: No such file"));
    options.path = ".";
    TAP_CHECK_INT(read_rows(&options, false).status, ZO_E_USAGE);
    TAP_CHECK(help_error_has("not a regular file"));
    TAP_CHECK_INT(mkfifo(fifo, 0600), 0);
    options.path = fifo;
    TAP_CHECK_INT(read_rows(&options, false).status, ZO_E_USAGE);
}

static void check_allocation_failures(void)
{
    static const char *const texts[] = {
        "{\"a\": \"q\", \"b\": \"r\", \"summary\": \"a\", \"h\": [[\"q\", "
        "\"a\"]]}",
        "{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, -100]}"};

    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        const struct zo_rows_options options = {
            .path = help_write_text("rows.jsonl", texts[i]),
            .prompt_column = i == 0 ? "a,b" : NULL,
            .history_column = i == 0 ? "h" : NULL,
            .vocab_size = 10,
        };
        enum zo_status status = ZO_E_NOMEM;
        uint64_t nth = 0;

        while (status == ZO_E_NOMEM && nth < 1000) {
            zo_memory_fail_at(++nth);
            status = read_rows(&options, false).status;
        }
        zo_memory_fail_at(0);
        CHECK_OK(status);
        TAP_CHECK(nth > 5);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"JSON of every form is accepted", check_json_accepted},
        {"JSON of no form is refused with line, column and bytes",
         check_json_refused},
        {"nesting is bounded", check_json_limits},
        {"nodes give types, numbers and unescaped strings", check_json_nodes},
        {"keys are counted and may not appear twice", check_json_keys},
        {"cut and changed JSON does no harm", check_json_hostile},
        {"lines and arrays give the same rows with physical lines",
         check_layouts},
        {"bad columns are named with file, line and column", check_columns},
        {"columns have the names that are given", check_named_columns},
        {"messages take both spellings, and nothing else", check_messages},
        {"text and input_ids are checked", check_text_and_ids},
        {"the first row decides the kind by the rules", check_kinds},
        {"empty prompts and answers are marked where allowed",
         check_empty_allowed},
        {"reading goes on after a bad row, not after a broken array",
         check_going_on},
        {"rows may lie across chunks", check_chunks},
        {"an array's row above the limit ends the reading", check_long_element},
        {"a line above the limit is named and stepped over", check_long_line},
        {"what is no file is refused without waiting", check_no_file},
        {"a failed allocation anywhere is a clean failure",
         check_allocation_failures},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
