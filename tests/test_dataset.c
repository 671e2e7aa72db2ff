#include "src/data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "tests/data_help.h"
#include "tests/tap.h"

#define CHECK_OK(call) TAP_CHECK_INT((call), ZO_OK)
#define IGNORED        (-100)

#define QA "{\"content\": \"ab\", \"summary\": \"cd\"}\n"

/* ---- rows in short, with the toy model ----------------------------------- */

/*
 * A row as text: "[gMASK] sop _ab* </s>*", a star behind every label, bytes
 * and the template's words left out; several rows joined by "; ".
 */
static void spell_row(const struct zo_dataset *dataset,
                      const struct zo_tokenizer *tokenizer, int64_t index,
                      char *target, size_t size)
{
    const struct zo_row_view row = zo_dataset_row(dataset, index);
    int32_t labels[1024];
    size_t put = strlen(target);

    help_labels(dataset, index, labels);
    put +=
        (size_t)snprintf(target + put, size - put, "%s", index > 0 ? "; " : "");
    for (int32_t i = 0; i < row.count; i++) {
        const char *name = zo_tokenizer_spelling(tokenizer, row.ids[i]);

        if (labels[i] == IGNORED && strncmp(name, "<0x", 3) == 0) {
            continue;
        }
        if (strncmp(name, "\xe2\x96\x81", 3) == 0) {
            put += (size_t)snprintf(target + put, size - put, "_%s", name + 3);
        } else {
            put += (size_t)snprintf(target + put, size - put, "%s", name);
        }
        put += (size_t)snprintf(
            target + put, size - put, "%s%s",
            labels[i] == IGNORED ? "" : (labels[i] == row.ids[i] ? "*" : "!"),
            i + 1 < row.count ? " " : "");
    }
}

/* Opens a text with the toy model and spells its rows, or the status. */
static enum zo_status open_text(const char *text, enum zo_chat_format chat,
                                struct zo_dataset_options options,
                                struct zo_dataset_counts *counts, char *rows,
                                size_t size)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(chat);
    struct zo_dataset *dataset = NULL;
    enum zo_status status;

    options.path = help_write_text("set.jsonl", text);
    options.max_length = options.max_length != 0 ? options.max_length : 1000;
    status = zo_dataset_open(&options, tokenizer, NULL, &dataset);
    rows[0] = '\0';
    if (status == ZO_OK) {
        *counts = *zo_dataset_counts(dataset);
        for (int64_t i = 0; i < zo_dataset_count(dataset); i++) {
            spell_row(dataset, tokenizer, i, rows, size);
        }
    }
    zo_dataset_close(dataset);
    zo_tokenizer_close(tokenizer);
    return status;
}

/* The case fails unless the rows of a text are spelled like this. */
#define CHECK_ROWS(text, chat, want, ...)                                 \
    do {                                                                  \
        char rows_[4096];                                                 \
        TAP_CHECK_INT(open_text((text), (chat),                           \
                                (struct zo_dataset_options){__VA_ARGS__}, \
                                &counts, rows_, sizeof(rows_)),           \
                      ZO_OK);                                             \
        if (strcmp(rows_, (want)) != 0) {                                 \
            tap_fail(__FILE__, __LINE__, "got  %s", rows_);               \
            (void)printf("# want %s\n", (want));                          \
            return;                                                       \
        }                                                                 \
    } while (0)

#define CHECK_REFUSED(text, chat, status, part, ...)                      \
    do {                                                                  \
        char rows_[4096];                                                 \
        TAP_CHECK_INT(open_text((text), (chat),                           \
                                (struct zo_dataset_options){__VA_ARGS__}, \
                                &counts, rows_, sizeof(rows_)),           \
                      (status));                                          \
        TAP_CHECK(help_error_has(part));                                  \
    } while (0)

static void check_kinds(void)
{
    struct zo_dataset_counts counts;

    CHECK_ROWS("{\"content\": \"e\", \"summary\": \"ab\"}", ZO_CHAT_PLAIN,
               "[gMASK] sop _ e _ab* </s>*", .max_length = 0);
    CHECK_ROWS("{\"text\": \"abcd\"}", ZO_CHAT_PLAIN,
               "[gMASK] sop _* abcd* </s>*", .max_length = 0);
    CHECK_ROWS("{\"input_ids\": [260, 261, 262]}", ZO_CHAT_PLAIN, "a* b* c*",
               .max_length = 0);
    TAP_CHECK_INT(counts.tokens, 3);
    TAP_CHECK_INT(counts.labels, 2); /* the first one is never predicted */
    CHECK_ROWS("{\"input_ids\": [260, 261, 262, 263], "
               "\"labels\": [-100, 261, -100, 260]}",
               ZO_CHAT_PLAIN, "a b* c d!", .max_length = 0);
    TAP_CHECK_INT(counts.labels, 2);
    CHECK_ROWS("{\"input_ids\": [260], \"labels\": [-100]}", ZO_CHAT_PLAIN, "a",
               .max_length = 0);
    TAP_CHECK_INT(counts.labels, 0);
}

static void check_conversations(void)
{
    static const char text[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"assistant\", \"content\": \"b\"}, "
        "{\"role\": \"user\", \"content\": \"c\"}, "
        "{\"role\": \"assistant\", \"content\": \"d\"}]}";
    struct zo_dataset_counts counts;

    CHECK_ROWS(text, ZO_CHAT_PLAIN, "[gMASK] sop _ a _* b* c _* d* </s>*",
               .max_length = 0);
    /* "[Round 1]" keeps its d; the other words are bytes. */
    CHECK_ROWS(text, ZO_CHAT_ROUNDS,
               "[gMASK] sop _ d _ a _* b* d _ c _* d* </s>*", .max_length = 0);
    CHECK_ROWS(text, ZO_CHAT_ROLES,
               "[gMASK] sop <|user|> _ _ a <|assistant|> _* <0x0A>* _* b* "
               "<|user|>* _ _ c <|assistant|> _* <0x0A>* _* d* </s>*",
               .max_length = 0);
    CHECK_ROWS("{\"content\": \"a\", \"summary\": \"b\"}", ZO_CHAT_ROLES,
               "[gMASK] sop <|user|> _ _ a <|assistant|> _* <0x0A>* _* b* "
               "</s>*",
               .max_length = 0);
    CHECK_REFUSED("{\"messages\": [{\"role\": \"assistant\", \"content\": "
                  "\"b\"}]}",
                  ZO_CHAT_ROUNDS, ZO_E_DATA,
                  "set.jsonl:1: turn 1 of the conversation is of role "
                  "assistant",
                  .max_length = 0);
}

static void check_cutting(void)
{
    static const char two[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"assistant\", \"content\": \"b\"}, "
        "{\"role\": \"user\", \"content\": \"c\"}, "
        "{\"role\": \"assistant\", \"content\": \"d\"}]}";
    static const char one[] = "{\"content\": \"e\", \"summary\": \"abe\"}";
    struct zo_dataset_counts counts;

    /* 4 prompt tokens, "_ab e", the end: 7. */
    CHECK_ROWS(one, ZO_CHAT_PLAIN, "[gMASK] sop _ e _ab* e* </s>*",
               .max_length = 7);
    TAP_CHECK_INT(counts.cut, 0);
    TAP_CHECK_INT(counts.longest_tokens, 7);
    CHECK_ROWS(one, ZO_CHAT_PLAIN, "[gMASK] sop _ e _ab* </s>*",
               .max_length = 6);
    TAP_CHECK_INT(counts.cut, 1);
    TAP_CHECK_INT(counts.longest_tokens, 7);
    CHECK_REFUSED(one, ZO_CHAT_PLAIN, ZO_E_DATA,
                  "no row to train on: 1 read, all left out, the first one: "
                  "",
                  .max_length = 5);
    TAP_CHECK(help_error_has("set.jsonl:1: the prompt alone leaves no room"));
    CHECK_REFUSED(one, ZO_CHAT_PLAIN, ZO_E_DATA,
                  "set.jsonl:1: a row of 7 tokens, above the limit of 6",
                  .max_length = 6, .on_long = ZO_ON_LONG_ERROR);
    CHECK_REFUSED(one, ZO_CHAT_PLAIN, ZO_E_DATA, "no row to train on",
                  .max_length = 6, .on_long = ZO_ON_LONG_SKIP);
    /* Conversations end after the last answer token that fits. */
    CHECK_ROWS(two, ZO_CHAT_PLAIN, "[gMASK] sop _ a _* b* c _* d* </s>*",
               .max_length = 10);
    CHECK_ROWS(two, ZO_CHAT_PLAIN, "[gMASK] sop _ a _* b* c _* </s>*",
               .max_length = 9);
    CHECK_ROWS(two, ZO_CHAT_PLAIN, "[gMASK] sop _ a _* b* </s>*",
               .max_length = 8);
    CHECK_ROWS(two, ZO_CHAT_PLAIN, "[gMASK] sop _ a _* b* </s>*",
               .max_length = 7);
    CHECK_ROWS(two, ZO_CHAT_PLAIN, "[gMASK] sop _ a _* </s>*", .max_length = 6);
    /* Text and ids do not end where they are cut. */
    CHECK_ROWS("{\"text\": \"eee\"}", ZO_CHAT_PLAIN, "[gMASK] sop _* e*",
               .max_length = 4);
    CHECK_ROWS("{\"input_ids\": [260, 261, 262, 263, 264], "
               "\"labels\": [-100, -100, -100, 263, 264]}",
               ZO_CHAT_PLAIN, "a b c d*", .max_length = 4);
    TAP_CHECK_INT(counts.labels, 1);
}

static void check_skipping(void)
{
    static const char text[] =
        "{\"input_ids\": [260, 261, 262]}\n{\"input_ids\": [1, 1, 1, 1, 1]}\n"
        "{\"input_ids\": [261]}\n{\"input_ids\": [9999]}\n"
        "{\"input_ids\": [2, 2, 2, 2, 2]}\n";
    struct zo_dataset_counts counts;

    CHECK_ROWS(text, ZO_CHAT_PLAIN, "a* b* c*; b*", .max_length = 4,
               .on_long = ZO_ON_LONG_SKIP, .skip_bad_rows = true);
    TAP_CHECK_INT(counts.read, 5);
    TAP_CHECK_INT(counts.kept, 2);
    TAP_CHECK_INT(counts.skipped_long, 2);
    TAP_CHECK_INT(counts.skipped_bad, 1);
    TAP_CHECK_INT(counts.longest_tokens, 5);
    TAP_CHECK_INT(counts.longest_line, 2);
    CHECK_ROWS(text, ZO_CHAT_PLAIN, "a* b* c*", .rows_max = 1);
    TAP_CHECK_INT(counts.read, 1);
}

static void check_official_rules(void)
{
    static const char text[] = "{\"content\": \"ee\", \"summary\": \"eee\"}\n"
                               "{\"content\": \"\", \"summary\": \"e\"}\n"
                               "{\"content\": \"e\", \"summary\": null}\n";
    struct zo_dataset_counts counts;

    CHECK_ROWS(text, ZO_CHAT_PLAIN, "[gMASK] sop _ _* e* </s>*",
               .max_source_length = 3, .max_target_length = 2);
    TAP_CHECK_INT(counts.cut, 1);
    TAP_CHECK_INT(counts.skipped_empty, 2);
    TAP_CHECK_INT(counts.longest_tokens, 10);
    CHECK_ROWS(text, ZO_CHAT_PLAIN, "[gMASK] sop _ e e _* e* e* e* </s>*",
               .max_source_length = 5, .max_target_length = 4);
    TAP_CHECK_INT(counts.cut, 0);
    CHECK_ROWS(text, ZO_CHAT_PLAIN, "[gMASK] sop _* </s>*",
               .max_source_length = 2, .max_target_length = 1);
    /* One limit brings the script's other one: 1024 + 4 + 1. */
    CHECK_ROWS(text, ZO_CHAT_PLAIN, "[gMASK] sop _ e e _* e* e* </s>*",
               .max_target_length = 3, .max_length = 1028);
    TAP_CHECK_INT(counts.cut, 1);
    CHECK_REFUSED(text, ZO_CHAT_PLAIN, ZO_E_USAGE,
                  "max_source_length 1024 + max_target_length 4 + 1 is 1029",
                  .max_target_length = 4, .max_length = 1028);
    CHECK_REFUSED(text, ZO_CHAT_PLAIN, ZO_E_DATA,
                  "set.jsonl:1: an answer of 4 tokens, above the limit of 3",
                  .max_source_length = 5, .max_target_length = 3,
                  .on_long = ZO_ON_LONG_ERROR);
    CHECK_REFUSED(text, ZO_CHAT_PLAIN, ZO_E_DATA,
                  "set.jsonl:1: a prompt of 5 tokens, above 4",
                  .max_source_length = 4, .max_target_length = 4,
                  .on_long = ZO_ON_LONG_SKIP);
    CHECK_REFUSED("{\"text\": \"a\"}", ZO_CHAT_PLAIN, ZO_E_USAGE,
                  "are for prompt and response columns",
                  .max_source_length = 4);
}

/*
 * A model without byte pieces knows some text only as the unknown piece, whose
 * id is the pad's.  The official script does not count it; otherwise padding
 * is masked by length, never by id.
 */
static void check_unknown_labels(void)
{
    struct zo_tokenizer *tokenizer = NULL;
    struct zo_dataset_options options = {.max_length = 100};
    const char *path = help_write_text(
        "unknown.jsonl", "{\"content\": \"e\", \"summary\": \"aza\"}");
    struct zo_dataset *dataset = NULL;
    struct zo_row_view row;
    int32_t labels[16];

    CHECK_OK(zo_tokenizer_open(
        help_toy_model_with("words.model", "</s>", "x", false), ZO_CHAT_PLAIN,
        &tokenizer));
    for (int official = 0; official < 2; official++) {
        options.path = path;
        options.max_source_length = official ? 10 : 0;
        options.max_target_length = official ? 10 : 0;
        CHECK_OK(zo_dataset_open(&options, tokenizer, NULL, &dataset));
        row = zo_dataset_row(dataset, 0);
        help_labels(dataset, 0, labels);
        /* [gMASK] sop _ e _ a <unk> a </s> */
        TAP_CHECK_INT(row.count, 9);
        TAP_CHECK_INT(row.ids[6], 0);
        TAP_CHECK_INT(labels[6], official ? IGNORED : 0);
        TAP_CHECK_INT(labels[3], IGNORED);
        TAP_CHECK_INT(labels[5], row.ids[5]);
        TAP_CHECK_INT(labels[7], row.ids[7]);
        TAP_CHECK_INT(labels[8], 2);
        TAP_CHECK_INT(row.label_count, official ? 4 : 5);
        zo_dataset_close(dataset);
    }
    zo_tokenizer_close(tokenizer);
}

static void check_options(void)
{
    struct zo_dataset_counts counts;

    CHECK_REFUSED(QA, ZO_CHAT_PLAIN, ZO_E_USAGE, "max_length is 3; want 4",
                  .max_length = 3);
    CHECK_REFUSED(QA, ZO_CHAT_PLAIN, ZO_E_USAGE, "max_length is -1",
                  .max_length = -1);
    CHECK_REFUSED(QA, ZO_CHAT_PLAIN, ZO_E_USAGE, "max_source_length is 1",
                  .max_source_length = 1);
    CHECK_REFUSED(QA, ZO_CHAT_PLAIN, ZO_E_USAGE, "max_target_length is -1",
                  .max_target_length = -1);
    CHECK_REFUSED(QA, ZO_CHAT_PLAIN, ZO_E_USAGE, "number of rows is negative",
                  .rows_max = -1);
    CHECK_REFUSED(QA, ZO_CHAT_PLAIN, ZO_E_CONFIG, "do not belong together",
                  .vocab_size = HELP_TOY_PIECES + 4);
    CHECK_ROWS("{\"input_ids\": [300]}", ZO_CHAT_PLAIN, "<?>*",
               .vocab_size = 301);
}

static void check_without_tokenizer(void)
{
    struct zo_dataset_options options = {.max_length = 10, .vocab_size = 10};
    struct zo_dataset *dataset = NULL;

    options.path = help_write_text("ids.jsonl", "{\"input_ids\": [9]}");
    CHECK_OK(zo_dataset_open(&options, NULL, NULL, &dataset));
    zo_dataset_close(dataset);
    options.path = help_write_text("ids.jsonl", QA);
    TAP_CHECK_INT(zo_dataset_open(&options, NULL, NULL, &dataset), ZO_E_USAGE);
    TAP_CHECK(help_error_has("need a tokenizer"));
}

/* ---- what the user sees -------------------------------------------------- */

static bool has_note(const struct zo_notes *notes, const char *part)
{
    for (size_t i = 0; i < notes->count; i++) {
        if (strstr(notes->items[i].text, part) != NULL) {
            return true;
        }
    }
    (void)printf("# no note has: %s\n", part);
    return false;
}

static void check_notes(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_PLAIN);
    struct zo_dataset_options options = {.max_length = 6,
                                         .skip_bad_rows = true};
    struct zo_dataset *dataset = NULL;
    struct zo_notes notes = {0};
    char text[1024] = QA "{\"content\": \"e\", \"summary\": \"eeeee\"}\n";

    for (int i = 0; i < 15; i++) {
        strncat(text, "no\n", sizeof(text) - strlen(text) - 1);
    }
    options.path = help_write_text("notes.jsonl", text);
    CHECK_OK(zo_dataset_open(&options, tokenizer, &notes, &dataset));
    TAP_CHECK(has_note(&notes, "prompt column content, response column "
                               "summary"));
    TAP_CHECK(has_note(&notes, "bad row skipped: "));
    TAP_CHECK(has_note(&notes, "notes.jsonl:3:1: want a JSON value"));
    TAP_CHECK(has_note(&notes, "(others are only counted)"));
    TAP_CHECK(has_note(&notes, "17 rows read, 1 cut, 15 skipped (15 bad, 0 "
                               "too long, 0 with an empty prompt or answer); "
                               "the longest has 11 tokens, at line 2"));
    TAP_CHECK_INT(notes.count, 12);
    for (size_t i = 0; i < notes.count; i++) { /* it is named already */
        TAP_CHECK(strstr(notes.items[i].text, "the first skipped") == NULL);
    }
    zo_notes_fini(&notes);
    zo_dataset_close(dataset);
    zo_tokenizer_close(tokenizer);
}

static void check_json(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_PLAIN);
    struct zo_dataset_options options = {.max_length = 100};
    struct zo_dataset *dataset = NULL;
    char *json = NULL;

    options.path = help_write_text(
        "json.jsonl", "{\"input_ids\": [270, 272, 268, 37, 95, 30, 130, 2], "
                      "\"labels\": [-100, -100, 268, -100, -100, 7, -100, 2]}");
    CHECK_OK(zo_dataset_open(&options, tokenizer, NULL, &dataset));
    CHECK_OK(zo_dataset_row_json(dataset, tokenizer, 0, &json));
    /* _ab is 268; then bytes: a quote, a backslash, 0x1B, 0x7F. */
    TAP_CHECK(strcmp(json,
                     "{\"input_ids\": [270, 272, 268, 37, 95, 30, 130, 2], "
                     "\"labels\": [-100, -100, 268, -100, -100, 7, -100, 2], "
                     "\"text\": \"ab\\\"\\\\\\u001b\\u007f\"}") == 0);
    zo_free(json);
    CHECK_OK(zo_dataset_row_json(dataset, NULL, 0, &json));
    TAP_CHECK(strstr(json, "\"text\": \"\"}") != NULL);
    zo_free(json);
    zo_dataset_close(dataset);
    zo_tokenizer_close(tokenizer);
}

static uint64_t fingerprint(const char *text)
{
    const struct zo_dataset_options options = {
        .path = help_write_text("print.jsonl", text),
        .max_length = 100,
        .vocab_size = 100};
    struct zo_dataset *dataset = NULL;
    uint64_t print = 0;

    if (zo_dataset_open(&options, NULL, NULL, &dataset) == ZO_OK) {
        print = zo_dataset_fingerprint(dataset);
    }
    zo_dataset_close(dataset);
    return print;
}

static void check_fingerprint(void)
{
    static const char *const texts[] = {
        "{\"input_ids\": [1, 2, 3]}",
        "{\"input_ids\": [1, 2, 4]}",
        "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3]}",
        "{\"input_ids\": [3]}\n{\"input_ids\": [1, 2]}",
        "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}",
        "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 4]}",
        "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, -100]}",
        "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}",
        "{\"input_ids\": [1], \"labels\": [-100]}\n"
        "{\"input_ids\": [2], \"labels\": [-100]}"};

    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        for (size_t j = 0; j < i; j++) {
            TAP_CHECK(fingerprint(texts[i]) != fingerprint(texts[j]));
        }
    }
    TAP_CHECK(fingerprint(texts[0]) ==
              fingerprint("\n [{\"input_ids\": [1,2,3], \"more\": 1}]"));
}

static enum zo_status use_all(const char *path,
                              const struct zo_tokenizer *tokenizer)
{
    const struct zo_dataset_options options = {
        .path = path, .max_length = 50, .skip_bad_rows = true};
    struct zo_dataset *dataset = NULL;
    struct zo_notes notes = {0};
    char *json = NULL;
    enum zo_status status;

    ZO_TRY_GOTO(free_all,
                zo_dataset_open(&options, tokenizer, &notes, &dataset));
    ZO_TRY_GOTO(free_all, zo_dataset_row_json(dataset, tokenizer, 0, &json));

free_all:
    zo_free(json);
    zo_notes_fini(&notes);
    zo_dataset_close(dataset);
    return status;
}

static void check_allocation_failures(void)
{
    static const char *const texts[] = {
        QA "x\n" QA,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"assistant\", \"content\": \"b\"}]}",
        "{\"input_ids\": [3, 4], \"labels\": [-100, 5]}"};
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);

    TAP_CHECK(tokenizer != NULL);
    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        const char *path = help_write_text("fail.jsonl", texts[i]);
        enum zo_status status = ZO_E_NOMEM;
        uint64_t nth = 0;

        while (status == ZO_E_NOMEM && nth < 1000) {
            zo_memory_fail_at(++nth);
            status = use_all(path, tokenizer);
        }
        zo_memory_fail_at(0);
        CHECK_OK(status);
        TAP_CHECK(nth > 10);
    }
    zo_tokenizer_close(tokenizer);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"each kind of row has its tokens and labels", check_kinds},
        {"conversations follow the template, every answer counts",
         check_conversations},
        {"rows that are too long are cut, skipped or refused", check_cutting},
        {"rows left out are counted, the longest is known", check_skipping},
        {"the two limits cut and drop as the official script",
         check_official_rules},
        {"an unknown piece counts, but not by the official script",
         check_unknown_labels},
        {"options out of range are refused", check_options},
        {"only rows of ids do without a tokenizer", check_without_tokenizer},
        {"notes name bad rows and sum up", check_notes},
        {"a row as JSON has ids, labels and text, escaped", check_json},
        {"the fingerprint sees every id, label and border", check_fingerprint},
        {"a failed allocation anywhere is a clean failure",
         check_allocation_failures},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
