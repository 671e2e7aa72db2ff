/* The data set on the files of the shared folder, and on others like them. */
#include "src/data/dataset.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/data/row_json.h"
#include "src/data/row_source.h"
#include "tests/data_help.h"
#include "tests/tap.h"

#define CHECK_OK(call) TAP_CHECK_INT((call), ZO_OK)
#define IGNORED        (-100)

/* ---- AdvertiseGen as the official script prepares it --------------------- */

/* Reads a list of numbers; returns how many. */
static size_t read_list(const struct zo_row_json *json,
                        const struct zo_row_node *list, int32_t *numbers,
                        size_t most)
{
    const struct zo_row_node *node = zo_row_json_first(list);

    for (uint32_t i = 0; i < list->child_count && i < most; i++) {
        int64_t number = 0;

        (void)zo_row_json_integer(json, node, &number);
        numbers[i] = (int32_t)number;
        node = zo_row_json_after(json, node);
    }
    return list->child_count;
}

/* True if a row is an expected one without its padding. */
static bool same_row(const struct zo_dataset *dataset, int64_t index,
                     const struct zo_row_json *json)
{
    const struct zo_row_node *root = &json->nodes[0];
    const struct zo_row_view row = zo_dataset_row(dataset, index);
    int32_t ids[512], labels[512], mine[512];
    const size_t count =
        read_list(json, zo_row_json_find(json, root, "input_ids"), ids, 512);

    if (count > 512 || (size_t)row.count > count ||
        read_list(json, zo_row_json_find(json, root, "labels"), labels, 512) !=
            count) {
        return false;
    }
    help_labels(dataset, index, mine);
    for (size_t i = 0; i < count; i++) {
        const bool is_pad = i >= (size_t)row.count;

        if (ids[i] != (is_pad ? 0 : row.ids[i]) ||
            labels[i] != (is_pad ? IGNORED : mine[i])) {
            return false;
        }
    }
    return true;
}

/* Compares the expected rows of one file and pair of limits. */
static int compare_expected(const struct zo_dataset *dataset,
                            const char *expected, const char *file)
{
    struct zo_row_source *source = NULL;
    struct zo_row_json json = {0};
    struct zo_row_bytes bytes = {0};
    bool is_end = false;
    int count = 0;

    if (zo_row_source_open(expected, &source) != ZO_OK) {
        return -1;
    }
    while (zo_row_source_next(source, &bytes, &is_end) == ZO_OK && !is_end) {
        const struct zo_row_node *name;
        int64_t row = -1;

        if (zo_row_json_parse(&json, bytes.text, bytes.size_bytes, expected,
                              bytes.line, bytes.column) != ZO_OK) {
            count = -1;
            break;
        }
        name = zo_row_json_find(&json, &json.nodes[0], "file");
        if ((name != NULL) != (file != NULL)) {
            continue;
        }
        (void)zo_row_json_integer(
            &json, zo_row_json_find(&json, &json.nodes[0], "row"), &row);
        if (!same_row(dataset, row, &json)) {
            (void)printf("# row %lld differs\n", (long long)row);
            count = -1;
            break;
        }
        count++;
    }
    zo_row_json_fini(&json);
    zo_row_source_close(source);
    return count;
}

static void check_official(void)
{
    static const struct {
        const char *file;
        int32_t target;
        int count;
        int64_t rows;
    } sets[] = {{"advertisegen/dev.json", 64, 25, 1070},
                {"advertisegen/train_first5000.json", 128, 3, 5000}};
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROUNDS);
    const char *expected =
        help_shared("tokenizer-cases/adgen_preprocess_expected.json");

    if (tokenizer == NULL || expected == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(sets); i++) {
        const struct zo_dataset_options options = {
            .path = help_shared(sets[i].file),
            .max_length = 32768,
            .max_source_length = 64,
            .max_target_length = sets[i].target,
        };
        struct zo_dataset *dataset = NULL;

        TAP_CHECK(options.path != NULL);
        CHECK_OK(zo_dataset_open(&options, tokenizer, NULL, &dataset));
        TAP_CHECK_INT(zo_dataset_count(dataset), sets[i].rows);
        TAP_CHECK_INT(compare_expected(dataset, expected,
                                       i == 0 ? NULL : "train_first5000"),
                      sets[i].count);
        zo_dataset_close(dataset);
    }
    zo_tokenizer_close(tokenizer);
}

/* ---- the shared fixtures ------------------------------------------------- */

struct verdict {
    const char *name;
    const char *error; /* NULL: accepted */
    int64_t rows;
    int64_t skipped; /* with skip_bad_rows */
};

/* True if a file gets its verdict, with and without skip_bad_rows. */
static bool judge(const char *path, const struct verdict *want,
                  const struct zo_tokenizer *tokenizer)
{
    struct zo_dataset_options options = {.path = path, .max_length = 32768};
    struct zo_dataset *dataset = NULL;
    enum zo_status status =
        zo_dataset_open(&options, tokenizer, NULL, &dataset);
    bool is_right;

    if (want->error == NULL) {
        is_right = status == ZO_OK && zo_dataset_count(dataset) == want->rows;
    } else {
        is_right = status == ZO_E_DATA && help_error_has(want->name) &&
                   help_error_has(want->error);
    }
    zo_dataset_close(dataset);
    dataset = NULL;
    options.skip_bad_rows = true;
    status = zo_dataset_open(&options, tokenizer, NULL, &dataset);
    if (want->rows == 0) {
        is_right = is_right && status == ZO_E_DATA;
    } else {
        is_right = is_right && status == ZO_OK &&
                   zo_dataset_count(dataset) == want->rows &&
                   zo_dataset_counts(dataset)->skipped_bad == want->skipped;
    }
    zo_dataset_close(dataset);
    if (!is_right) {
        tap_fail(__FILE__, __LINE__, "%s: status %d, %s", path, status,
                 zo_err_last()->text);
    }
    return is_right;
}

static const struct verdict fixtures[] = {
    {"d_array.json", NULL, 2, 0},
    {"d_bad_line.jsonl", ":2:29: the row ends here", 2, 1},
    {"d_bom.jsonl", NULL, 2, 0},
    {"d_crlf.jsonl", NULL, 2, 0},
    {"d_deep.jsonl", ":1: the row that begins here is too deep", 0, 0},
    {"d_dup_key.jsonl", ":1:22: the key \"content\" appears twice", 0, 1},
    {"d_gbk.jsonl", ":1:14: not UTF-8, found the bytes d0 ce 23 d4 b2", 0, 2},
    {"d_long.jsonl", NULL, 2, 0},
    {"d_missing.jsonl",
     ":2:1: no \"summary\" in this row, which has "
     "\"content\"",
     1, 1},
    {"d_no_final_newline.jsonl", NULL, 2, 0},
    {"d_null.jsonl", ":2:29: summary: want text, found null", 1, 1},
    {"d_ok.jsonl", NULL, 2, 0},
    {"d_specials.jsonl", NULL, 1, 0},
    {"d_surrogate.jsonl", ":1:14: want both halves of a surrogate pair", 0, 1},
    {"d_zero.jsonl", "no row to train on: 0 read, the file holds none", 0, 0},
};

static void check_fixtures(void)
{
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROUNDS);
    const char *folder = help_shared("fixtures");
    DIR *files;
    const struct dirent *file;
    size_t seen = 0;

    if (tokenizer == NULL || folder == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    files = opendir(folder);
    TAP_CHECK(files != NULL);
    while ((file = readdir(files)) != NULL) {
        const struct verdict *want = NULL;
        char path[512];

        for (size_t i = 0; i < TAP_COUNT(fixtures); i++) {
            want = strcmp(fixtures[i].name, file->d_name) == 0 ? &fixtures[i]
                                                               : want;
        }
        if (strncmp(file->d_name, "d_", 2) != 0) {
            continue;
        }
        if (want == NULL) {
            tap_fail(__FILE__, __LINE__, "%s has no verdict", file->d_name);
            break;
        }
        (void)snprintf(path, sizeof(path), "%s/%s", folder, file->d_name);
        if (!judge(path, want, tokenizer)) {
            break;
        }
        seen++;
    }
    (void)closedir(files);
    zo_tokenizer_close(tokenizer);
    TAP_CHECK_INT(seen, TAP_COUNT(fixtures));
}

#define QA "{\"content\": \"ab\", \"summary\": \"cd\"}\n"

/* The fixtures that users' reports ask for and the shared folder lacks. */
static void check_made_fixtures(void)
{
    static const struct {
        struct verdict want;
        const char *text;
    } made[] = {
        {{"d_blank.jsonl", NULL, 2, 0}, QA "\n \n\t\n" QA "\n"},
        {{"d_blank_bad.jsonl", ":5:1: want a JSON value, found `x`", 1, 1},
         QA "\n\n\nx\n"},
        {{"d_first_bad.jsonl", ":1:1: want a JSON value", 1, 1}, "x\n" QA},
        {{"d_table.csv",
          ":1:1: want a JSON value, found `content,summary`; CSV and plain "
          "text are not read: want JSON objects, one a line",
          0, 0},
         "content,summary\nab,cd\n"},
        {{"d_first_of.jsonl",
          ":2:1: want a JSON value, found `x`; --skip-bad-rows leaves such", 2,
          1},
         QA "x\n" QA},
        {{"d_only_bad.jsonl", ":1:1: want a JSON value, found `no`", 0, 0},
         "no\nno\n"},
        {{"d_empty_str.jsonl", ":2:30: summary: want text, found an empty", 1,
          1},
         QA "{\"content\": \"ab\", \"summary\": \"\"}\n"},
        {{"d_wrong_type.jsonl", ":2:13: content: want a string, found a num", 1,
          1},
         QA "{\"content\": 5, \"summary\": \"cd\"}\n"},
        {{"d_pretty.jsonl",
          ":1:2: the row ends here, want a key in double "
          "quotes; a data file holds one JSON object per "
          "line",
          0, 0},
         "{\n  \"content\": \"ab\",\n  \"summary\": \"cd\"\n}\n"},
        {{"d_ids.jsonl", ":2:16: input_ids[0] is 500: outside the vocabulary",
          1, 1},
         "{\"input_ids\": [4]}\n{\"input_ids\": [500]}\n"},
        {{"d_escape.jsonl", "which has \"content\", \"\\x1b]0;x\\x07\"", 1, 1},
         QA "{\"content\": \"ab\", \"\\u001b]0;x\\u0007\": 1}\n"},
        {{"d_nul.jsonl", NULL, 1, 0},
         "{\"content\": \"a\\u0000b\", \"summary\": \"c\\u0000\"}\n"},
    };
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);

    TAP_CHECK(tokenizer != NULL);
    for (size_t i = 0; i < TAP_COUNT(made); i++) {
        (void)judge(help_write_text(made[i].want.name, made[i].text),
                    &made[i].want, tokenizer);
    }
    zo_tokenizer_close(tokenizer);
}

static void check_specials_in_text(void)
{
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROUNDS);
    const struct zo_dataset_options options = {
        .path = help_shared("fixtures/d_specials.jsonl"), .max_length = 1000};
    struct zo_dataset *dataset = NULL;
    struct zo_row_view row;

    if (tokenizer == NULL || options.path == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    CHECK_OK(zo_dataset_open(&options, tokenizer, NULL, &dataset));
    row = zo_dataset_row(dataset, 0);
    TAP_CHECK_INT(row.ids[0], 64790);
    TAP_CHECK_INT(row.ids[1], 64792);
    TAP_CHECK_INT(row.ids[row.count - 1], 2);
    for (int32_t i = 2; i + 1 < row.count; i++) {
        TAP_CHECK(row.ids[i] > 2 && row.ids[i] < 64789);
    }
    zo_dataset_close(dataset);
    zo_tokenizer_close(tokenizer);
}

static void check_long_fixture(void)
{
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROUNDS);
    struct zo_dataset_options options = {
        .path = help_shared("fixtures/d_long.jsonl"), .max_length = 40018};
    struct zo_dataset *dataset = NULL;

    if (tokenizer == NULL || options.path == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    /* 40,000 characters, each a token, and 18 of the template: no room. */
    options.on_long = ZO_ON_LONG_ERROR;
    TAP_CHECK_INT(zo_dataset_open(&options, tokenizer, NULL, &dataset),
                  ZO_E_DATA);
    TAP_CHECK(help_error_has(
        "d_long.jsonl:2: a row of 40019 tokens, above the limit of 40018"));
    for (int policy = 0; policy < 2; policy++) {
        options.on_long = policy == 0 ? ZO_ON_LONG_CUT : ZO_ON_LONG_SKIP;
        options.max_length = 512;
        CHECK_OK(zo_dataset_open(&options, tokenizer, NULL, &dataset));
        TAP_CHECK_INT(zo_dataset_counts(dataset)->kept, 2);
        TAP_CHECK_INT(zo_dataset_counts(dataset)->skipped_long, 1);
        TAP_CHECK_INT(zo_dataset_counts(dataset)->longest_tokens, 40019);
        TAP_CHECK_INT(zo_dataset_counts(dataset)->longest_line, 2);
        zo_dataset_close(dataset);
    }
    options.max_length = 40019;
    CHECK_OK(zo_dataset_open(&options, tokenizer, NULL, &dataset));
    TAP_CHECK_INT(zo_dataset_counts(dataset)->kept, 3);
    zo_dataset_close(dataset);
    zo_tokenizer_close(tokenizer);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"AdvertiseGen rows are as the official script makes them",
         check_official},
        {"every shared data fixture gets its verdict", check_fixtures},
        {"the other reported kinds of bad files get theirs",
         check_made_fixtures},
        {"special names in the text give no special ids",
         check_specials_in_text},
        {"a row of 40,000 tokens is named by its line under each policy",
         check_long_fixture},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
