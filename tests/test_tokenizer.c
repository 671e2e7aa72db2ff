#include "src/data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/data/row_json.h"
#include "src/data/row_source.h"
#include "tests/data_help.h"
#include "tests/tap.h"

#define CHECK_OK(call) TAP_CHECK_INT((call), ZO_OK)

/* ---- the files of expected ids ------------------------------------------- */

/* One row of a file at a time, parsed. */
struct cases {
    struct zo_row_source *source;
    struct zo_row_json json;
};

static bool next_case(struct cases *cases)
{
    struct zo_row_bytes row = {0};
    bool is_end = false;

    if (zo_row_source_next(cases->source, &row, &is_end) != ZO_OK ||
        (!is_end &&
         zo_row_json_parse(&cases->json, row.text, row.size_bytes, "cases",
                           row.line, row.column) != ZO_OK)) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    return !is_end;
}

static const struct zo_row_node *find(const struct cases *cases,
                                      const char *key)
{
    return zo_row_json_find(&cases->json, &cases->json.nodes[0], key);
}

static bool is_true(const struct cases *cases, const char *key)
{
    const struct zo_row_node *node = find(cases, key);

    return node != NULL && cases->json.text[node->at] == 't';
}

/* True if ids are those of a list; else the case fails, naming the row. */
static bool same_ids(const struct cases *cases, const struct zo_row_node *list,
                     const struct zo_ids *ids)
{
    const struct zo_row_node *node = zo_row_json_first(list);
    const long long line = cases->json.line;

    if (list->child_count != ids->count) {
        tap_fail(__FILE__, __LINE__, "line %lld: %zu ids, want %u", line,
                 ids->count, list->child_count);
        return false;
    }
    for (size_t i = 0; i < ids->count; i++) {
        int64_t want = -1;

        (void)zo_row_json_integer(&cases->json, node, &want);
        if (want != ids->items[i]) {
            tap_fail(__FILE__, __LINE__, "line %lld: id %zu is %d, want %lld",
                     line, i, ids->items[i], (long long)want);
            return false;
        }
        node = zo_row_json_after(&cases->json, node);
    }
    return true;
}

static bool encodes_to(const struct zo_tokenizer *tokenizer,
                       const struct cases *cases,
                       const struct zo_row_node *text, bool with_prefix,
                       const struct zo_row_node *want)
{
    struct zo_ids ids = {0};
    bool is_same = false;

    if ((with_prefix && zo_tokenizer_prefix(tokenizer, &ids) != ZO_OK) ||
        zo_tokenizer_encode(tokenizer, zo_row_json_string(&cases->json, text),
                            text->size_bytes, &ids) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    } else {
        is_same = same_ids(cases, want, &ids);
    }
    zo_ids_fini(&ids);
    return is_same;
}

/* True if the ids of a list decode to a text. */
static bool decodes_to(const struct zo_tokenizer *tokenizer,
                       const struct cases *cases,
                       const struct zo_row_node *list,
                       const struct zo_row_node *want)
{
    const struct zo_row_node *node = zo_row_json_first(list);
    struct zo_ids ids = {0};
    char *text = NULL;
    size_t size_bytes = 0;
    bool is_same = false;

    for (uint32_t i = 0; i < list->child_count; i++) {
        int64_t id = -1;

        (void)zo_row_json_integer(&cases->json, node, &id);
        if (zo_ids_push(&ids, (int32_t)id) != ZO_OK) {
            break;
        }
        node = zo_row_json_after(&cases->json, node);
    }
    if (zo_tokenizer_decode(tokenizer, ids.items, ids.count, &text,
                            &size_bytes) == ZO_OK) {
        is_same = size_bytes == want->size_bytes &&
                  memcmp(text, zo_row_json_string(&cases->json, want),
                         size_bytes) == 0;
    }
    if (!is_same) {
        tap_fail(__FILE__, __LINE__, "line %lld decodes to \"%s\"",
                 (long long)cases->json.line, text != NULL ? text : "");
    }
    zo_free(text);
    zo_ids_fini(&ids);
    return is_same;
}

static void close_cases(struct cases *cases)
{
    zo_row_source_close(cases->source);
    zo_row_json_fini(&cases->json);
}

static void check_published_cases(void)
{
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROUNDS);
    const char *path = help_shared("tokenizer-cases/chatglm2_cases.json");
    struct cases cases = {0};
    int count = 0;
    bool all_same = true;

    if (tokenizer == NULL || path == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    CHECK_OK(zo_row_source_open(path, &cases.source));
    while (all_same && next_case(&cases)) {
        const struct zo_row_node *ids = find(&cases, "ids");

        all_same = encodes_to(tokenizer, &cases, find(&cases, "text"),
                              is_true(&cases, "add_special_tokens"), ids);
        if (all_same && is_true(&cases, "check_decode")) {
            all_same = decodes_to(tokenizer, &cases, ids, find(&cases, "text"));
        }
        count++;
    }
    close_cases(&cases);
    zo_tokenizer_close(tokenizer);
    TAP_CHECK(all_same);
    TAP_CHECK_INT(count, 16);
}

static void check_fuzz_cases(void)
{
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROUNDS);
    const char *path = help_shared("tokenizer-cases/fuzz_spm_ids.jsonl");
    struct cases cases = {0};
    int count = 0;
    bool all_same = true;

    if (tokenizer == NULL || path == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    CHECK_OK(zo_row_source_open(path, &cases.source));
    while (all_same && next_case(&cases)) {
        const struct zo_row_node *ids = find(&cases, "ids");

        all_same =
            encodes_to(tokenizer, &cases, find(&cases, "text"), false, ids) &&
            decodes_to(tokenizer, &cases, ids, find(&cases, "decoded"));
        count++;
    }
    close_cases(&cases);
    zo_tokenizer_close(tokenizer);
    TAP_CHECK(all_same);
    TAP_CHECK_INT(count, 378);
}

/* Moves `rows` on to the row of an index; *at is the row it stands at. */
static bool seek_row(struct cases *rows, int64_t *at, int64_t index)
{
    while (*at < index) {
        if (!next_case(rows)) {
            return false;
        }
        (*at)++;
    }
    return true;
}

static void check_data_set(void)
{
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROUNDS);
    const char *path = help_shared("tokenizer-cases/dev_spm_ids.jsonl");
    const char *data = help_shared("advertisegen/dev.json");
    struct cases cases = {0}, rows = {0};
    int64_t at = -1;
    int count = 0;
    bool all_same = true;

    if (tokenizer == NULL || path == NULL || data == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    CHECK_OK(zo_row_source_open(path, &cases.source));
    CHECK_OK(zo_row_source_open(data, &rows.source));
    while (all_same && next_case(&cases)) {
        int64_t row = -1;

        (void)zo_row_json_integer(&cases.json, find(&cases, "row"), &row);
        all_same = seek_row(&rows, &at, row);
        /* `rows` has the text, `cases` the ids. */
        for (int i = 0; i < 2 && all_same; i++) {
            const struct zo_row_node *text =
                find(&rows, i == 0 ? "content" : "summary");
            struct zo_ids ids = {0};

            all_same =
                zo_tokenizer_encode(tokenizer,
                                    zo_row_json_string(&rows.json, text),
                                    text->size_bytes, &ids) == ZO_OK &&
                same_ids(&cases,
                         find(&cases, i == 0 ? "content_ids" : "summary_ids"),
                         &ids);
            zo_ids_fini(&ids);
        }
        count++;
    }
    close_cases(&cases);
    close_cases(&rows);
    zo_tokenizer_close(tokenizer);
    TAP_CHECK(all_same);
    TAP_CHECK_INT(count, 535);
}

static void check_role_template(void)
{
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROLES);
    const char *path = help_shared("tokenizer-cases/chatglm3_chat_cases.json");
    struct cases cases = {0};
    int count = 0;
    bool all_same = true;

    if (tokenizer == NULL || path == NULL) {
        zo_tokenizer_close(tokenizer);
        return;
    }
    CHECK_OK(zo_row_source_open(path, &cases.source));
    while (all_same && next_case(&cases)) {
        const struct zo_row_node *list = find(&cases, "messages");
        const struct zo_row_node *message = zo_row_json_first(list);
        struct zo_turn turns[8];
        struct zo_ids ids = {0};

        for (uint32_t i = 0; i < list->child_count; i++) {
            const struct zo_row_node *role = zo_row_json_first(message);
            const struct zo_row_node *text = role + 1;

            turns[i] = (struct zo_turn){
                cases.json.text[role->at] == 'u' ? ZO_ROLE_USER
                                                 : ZO_ROLE_ASSISTANT,
                zo_row_json_string(&cases.json, text), text->size_bytes};
            message = zo_row_json_after(&cases.json, message);
        }
        all_same = zo_tokenizer_prompt(tokenizer, turns, list->child_count,
                                       &ids) == ZO_OK &&
                   same_ids(&cases, find(&cases, "ids"), &ids);
        zo_ids_fini(&ids);
        count++;
    }
    close_cases(&cases);
    zo_tokenizer_close(tokenizer);
    TAP_CHECK(all_same);
    TAP_CHECK_INT(count, 2);
}

/* ---- templates ----------------------------------------------------------- */

static struct zo_turn turn(enum zo_role role, const char *text)
{
    return (struct zo_turn){role, text, strlen(text)};
}

/* [gMASK] sop and the ids of a text. */
static enum zo_status prefixed(const struct zo_tokenizer *tokenizer,
                               const char *text, struct zo_ids *ids)
{
    ZO_TRY(zo_tokenizer_prefix(tokenizer, ids));
    return zo_tokenizer_encode(tokenizer, text, strlen(text), ids);
}

static bool equal_ids(const struct zo_ids *a, const struct zo_ids *b)
{
    return a->count == b->count &&
           memcmp(a->items, b->items, a->count * sizeof(a->items[0])) == 0;
}

static void check_round_template(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    const struct zo_turn turns[] = {
        turn(ZO_ROLE_SYSTEM, "be"), turn(ZO_ROLE_USER, "ab"),
        turn(ZO_ROLE_ASSISTANT, "cd"), turn(ZO_ROLE_USER, "e")};
    struct zo_ids got = {0}, want = {0};

    TAP_CHECK(tokenizer != NULL);
    CHECK_OK(zo_tokenizer_prompt(tokenizer, turns + 1, 3, &got));
    CHECK_OK(prefixed(tokenizer,
                      "[Round 1]\n\n问：ab\n\n答：cd\n\n"
                      "[Round 2]\n\n问：e\n\n答：",
                      &want));
    TAP_CHECK(equal_ids(&got, &want));
    got.count = want.count = 0;
    CHECK_OK(zo_tokenizer_prompt(tokenizer, turns, 4, &got));
    CHECK_OK(prefixed(tokenizer,
                      "be\n\n[Round 1]\n\n问：ab\n\n答：cd\n\n"
                      "[Round 2]\n\n问：e\n\n答：",
                      &want));
    TAP_CHECK(equal_ids(&got, &want));
    zo_ids_fini(&got);
    zo_ids_fini(&want);
    zo_tokenizer_close(tokenizer);
}

static void check_plain_template(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_PLAIN);
    const struct zo_turn turns[] = {turn(ZO_ROLE_USER, "# ab\n")};
    struct zo_ids got = {0}, want = {0};

    TAP_CHECK(tokenizer != NULL);
    CHECK_OK(zo_tokenizer_prompt(tokenizer, turns, 1, &got));
    CHECK_OK(prefixed(tokenizer, "# ab\n", &want));
    TAP_CHECK(equal_ids(&got, &want));
    zo_ids_fini(&got);
    zo_ids_fini(&want);
    zo_tokenizer_close(tokenizer);
}

static void check_conversation_of_rounds(void)
{
    static const char *const parts[] = {"[Round 1]\n\n问：ab\n\n答：", "cd",
                                        "\n\n[Round 2]\n\n问：e\n\n答：", "ab"};
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    const struct zo_turn turns[] = {
        turn(ZO_ROLE_USER, "ab"), turn(ZO_ROLE_ASSISTANT, "cd"),
        turn(ZO_ROLE_USER, "e"), turn(ZO_ROLE_ASSISTANT, "ab")};
    struct zo_ids got = {0}, want = {0}, alone = {0};
    struct zo_spans answers = {0};
    int64_t ends[4];

    TAP_CHECK(tokenizer != NULL);
    CHECK_OK(zo_tokenizer_conversation(tokenizer, turns, 4, &got, &answers));
    CHECK_OK(zo_tokenizer_prefix(tokenizer, &want));
    for (size_t i = 0; i < 4; i++) {
        alone.count = 0;
        CHECK_OK(
            zo_tokenizer_encode(tokenizer, parts[i], strlen(parts[i]), &alone));
        /* The blank before "\n\n[Round 2]" would not be there at inference. */
        TAP_CHECK(i != 2 || alone.items[0] == HELP_TOY_BLANK);
        CHECK_OK(zo_ids_append(&want, alone.items + (i == 2),
                               alone.count - (i == 2)));
        ends[i] = (int64_t)want.count;
    }
    TAP_CHECK(equal_ids(&got, &want));
    TAP_CHECK_INT(answers.count, 2);
    TAP_CHECK_INT(answers.items[0].begin, ends[0]);
    TAP_CHECK_INT(answers.items[0].end, ends[1]);
    TAP_CHECK_INT(answers.items[1].begin, ends[2]);
    TAP_CHECK_INT(answers.items[1].end, ends[3]);
    zo_ids_fini(&got);
    zo_ids_fini(&want);
    zo_ids_fini(&alone);
    zo_spans_fini(&answers);
    zo_tokenizer_close(tokenizer);
}

/* Text that continues a row begins with its own blanks and no other. */
static void check_conversation_without_template(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_PLAIN);
    const struct zo_turn turns[] = {
        turn(ZO_ROLE_USER, "a"),  turn(ZO_ROLE_ASSISTANT, "b"),
        turn(ZO_ROLE_USER, "c"),  turn(ZO_ROLE_ASSISTANT, "d"),
        turn(ZO_ROLE_USER, " e"), turn(ZO_ROLE_ASSISTANT, "a")};
    const int32_t blank = HELP_TOY_BLANK, a = blank + 1;
    const int32_t want[] = {HELP_TOY_PIECES + 1,
                            HELP_TOY_PIECES + 3,
                            blank,
                            a,
                            blank,
                            a + 1,
                            a + 2,
                            blank,
                            a + 3,
                            blank,
                            a + 4,
                            blank,
                            a};
    struct zo_ids ids = {0};
    struct zo_spans answers = {0};

    TAP_CHECK(tokenizer != NULL);
    CHECK_OK(zo_tokenizer_conversation(tokenizer, turns, 6, &ids, &answers));
    TAP_CHECK_INT(ids.count, TAP_COUNT(want));
    TAP_CHECK(memcmp(ids.items, want, sizeof(want)) == 0);
    zo_ids_fini(&ids);
    zo_spans_fini(&answers);
    zo_tokenizer_close(tokenizer);
}

static void check_conversation_of_roles(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROLES);
    const struct zo_turn turns[] = {
        turn(ZO_ROLE_SYSTEM, "a"), turn(ZO_ROLE_USER, "b"),
        turn(ZO_ROLE_ASSISTANT, "c"), turn(ZO_ROLE_OBSERVATION, "d"),
        turn(ZO_ROLE_ASSISTANT, "e")};
    struct zo_ids ids = {0};
    struct zo_spans answers = {0};
    const int32_t base = HELP_TOY_PIECES;

    TAP_CHECK(tokenizer != NULL);
    CHECK_OK(zo_tokenizer_conversation(tokenizer, turns, 5, &ids, &answers));
    /* [gMASK] sop, then role, blank, "\n", blank, letter for every turn. */
    TAP_CHECK_INT(ids.count, 2 + 5 * 5);
    TAP_CHECK_INT(ids.items[2], base + 5);
    TAP_CHECK_INT(ids.items[7], base + 6);
    TAP_CHECK_INT(ids.items[12], base + 7);
    TAP_CHECK_INT(ids.items[17], base + 8);
    TAP_CHECK_INT(ids.items[22], base + 7);
    TAP_CHECK_INT(ids.items[14], 3 + '\n');
    TAP_CHECK_INT(answers.count, 2);
    TAP_CHECK_INT(answers.items[0].begin, 13);
    TAP_CHECK_INT(answers.items[0].end, 17);
    TAP_CHECK_INT(answers.items[1].end, 27);
    zo_ids_fini(&ids);
    zo_spans_fini(&answers);
    zo_tokenizer_close(tokenizer);
}

static void check_roles_are_refused(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    const struct zo_turn twice[] = {turn(ZO_ROLE_USER, "a"),
                                    turn(ZO_ROLE_USER, "b")};
    const struct zo_turn answer[] = {turn(ZO_ROLE_USER, "a"),
                                     turn(ZO_ROLE_ASSISTANT, "b")};
    struct zo_ids ids = {0};
    struct zo_spans answers = {0};

    TAP_CHECK(tokenizer != NULL);
    TAP_CHECK_INT(zo_tokenizer_prompt(tokenizer, twice, 2, &ids), ZO_E_DATA);
    TAP_CHECK(help_error_has("turn 2"));
    TAP_CHECK_INT(zo_tokenizer_prompt(tokenizer, answer, 2, &ids), ZO_E_DATA);
    TAP_CHECK_INT(zo_tokenizer_prompt(tokenizer, twice, 0, &ids), ZO_E_DATA);
    TAP_CHECK_INT(
        zo_tokenizer_conversation(tokenizer, twice, 1, &ids, &answers),
        ZO_E_DATA);
    TAP_CHECK_INT(zo_tokenizer_prompt(tokenizer, answer + 1, 0, &ids),
                  ZO_E_DATA);
    zo_ids_fini(&ids);
    zo_spans_fini(&answers);
    zo_tokenizer_close(tokenizer);
}

/* ---- special tokens and text --------------------------------------------- */

static void check_special_ids(void)
{
    struct zo_tokenizer *official = help_official_tokenizer(ZO_CHAT_ROLES);

    if (official == NULL) {
        return;
    }
    TAP_CHECK_INT(zo_tokenizer_piece_count(official), 64789);
    TAP_CHECK_INT(zo_tokenizer_id_count(official), 64798);
    TAP_CHECK_INT(zo_tokenizer_special(official, ZO_SPECIAL_GMASK), 64790);
    TAP_CHECK_INT(zo_tokenizer_special(official, ZO_SPECIAL_EOP), 64793);
    TAP_CHECK_INT(zo_tokenizer_special(official, ZO_SPECIAL_OBSERVATION),
                  64797);
    TAP_CHECK_INT(zo_tokenizer_eos(official), 2);
    TAP_CHECK_INT(zo_tokenizer_pad(official), 0);
    TAP_CHECK(strcmp(zo_tokenizer_spelling(official, 64792), "sop") == 0);
    zo_tokenizer_close(official);
}

static void check_small_vocabulary(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    struct zo_ids ids = {0};

    TAP_CHECK(tokenizer != NULL);
    TAP_CHECK_INT(zo_tokenizer_piece_count(tokenizer), HELP_TOY_PIECES);
    TAP_CHECK_INT(zo_tokenizer_id_count(tokenizer), HELP_TOY_PIECES + 5);
    TAP_CHECK_INT(zo_tokenizer_special(tokenizer, ZO_SPECIAL_USER), -1);
    CHECK_OK(prefixed(tokenizer, "abcd", &ids));
    TAP_CHECK_INT(ids.items[0], HELP_TOY_PIECES + 1);
    TAP_CHECK_INT(ids.items[1], HELP_TOY_PIECES + 3);
    TAP_CHECK(strcmp(zo_tokenizer_spelling(tokenizer, HELP_TOY_PIECES),
                     "[MASK]") == 0);
    TAP_CHECK(strcmp(zo_tokenizer_spelling(tokenizer, -1), "<?>") == 0);
    TAP_CHECK(strcmp(zo_tokenizer_spelling(tokenizer, HELP_TOY_PIECES + 5),
                     "<?>") == 0);
    zo_ids_fini(&ids);
    zo_tokenizer_close(tokenizer);
}

static void check_spelled_specials(void)
{
    static const char text[] =
        "[gMASK] sop </s> 64790 [MASK] <unk> <s> eop <|user|> 150000";
    struct zo_tokenizer *tokenizer = help_official_tokenizer(ZO_CHAT_ROLES);
    struct zo_ids ids = {0};
    char *back = NULL;
    size_t size_bytes = 0;

    if (tokenizer == NULL) {
        return;
    }
    CHECK_OK(zo_tokenizer_encode(tokenizer, text, strlen(text), &ids));
    for (size_t i = 0; i < ids.count; i++) {
        TAP_CHECK(ids.items[i] > 2 && ids.items[i] < 64789);
    }
    CHECK_OK(zo_tokenizer_decode(tokenizer, ids.items, ids.count, &back,
                                 &size_bytes));
    TAP_CHECK(strcmp(back, text) == 0);
    zo_free(back);
    zo_ids_fini(&ids);
    zo_tokenizer_close(tokenizer);
}

static void check_decode_skips(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    /* gMASK, sop, <s>, "ab", pad, eos, ids without a token. */
    const int32_t ids[] = {HELP_TOY_PIECES + 1,
                           HELP_TOY_PIECES + 3,
                           1,
                           HELP_TOY_BLANK + 9,
                           0,
                           2,
                           HELP_TOY_PIECES + 5,
                           100000,
                           -1};
    const int32_t half[] = {HELP_TOY_BLANK, 3 + 0xe4, 3 + 0xbd}; /* 你 cut */
    char *text = NULL;
    size_t size_bytes = 0;

    TAP_CHECK(tokenizer != NULL);
    CHECK_OK(zo_tokenizer_decode(tokenizer, ids, TAP_COUNT(ids), &text,
                                 &size_bytes));
    TAP_CHECK(strcmp(text, "ab") == 0);
    zo_free(text);
    CHECK_OK(zo_tokenizer_decode(tokenizer, half, 3, &text, &size_bytes));
    TAP_CHECK(strstr(text, "\xef\xbf\xbd") != NULL);
    zo_free(text);
    CHECK_OK(zo_tokenizer_decode(tokenizer, NULL, 0, &text, &size_bytes));
    TAP_CHECK_INT(size_bytes, 0);
    zo_free(text);
    zo_tokenizer_close(tokenizer);
}

static void check_odd_text(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    struct zo_ids ids = {0};
    char *text = NULL;
    size_t size_bytes = 0;

    TAP_CHECK(tokenizer != NULL);
    TAP_CHECK_INT(zo_tokenizer_encode(tokenizer, "a\xff", 2, &ids), ZO_E_DATA);
    TAP_CHECK_INT(ids.count, 0);
    CHECK_OK(zo_tokenizer_encode(tokenizer, "", 0, &ids));
    TAP_CHECK_INT(ids.count, 0);
    CHECK_OK(zo_tokenizer_encode(tokenizer, "a\0b", 3, &ids));
    CHECK_OK(zo_tokenizer_decode(tokenizer, ids.items, ids.count, &text,
                                 &size_bytes));
    TAP_CHECK_INT(size_bytes, 3);
    TAP_CHECK(memcmp(text, "a\0b", 3) == 0);
    zo_free(text);
    zo_ids_fini(&ids);
    zo_tokenizer_close(tokenizer);
}

/* ---- memory -------------------------------------------------------------- */

static enum zo_status use_all(const char *path)
{
    struct zo_tokenizer *tokenizer = NULL;
    const struct zo_turn turns[] = {turn(ZO_ROLE_USER, "ab"),
                                    turn(ZO_ROLE_ASSISTANT, "cd")};
    struct zo_ids ids = {0};
    struct zo_spans answers = {0};
    char *text = NULL;
    size_t size_bytes = 0;
    enum zo_status status;

    ZO_TRY(zo_tokenizer_open(path, ZO_CHAT_ROUNDS, &tokenizer));
    ZO_TRY_GOTO(free_all,
                zo_tokenizer_conversation(tokenizer, turns, 2, &ids, &answers));
    ZO_TRY_GOTO(free_all, zo_tokenizer_prompt(tokenizer, turns, 1, &ids));
    ZO_TRY_GOTO(free_all, zo_tokenizer_decode(tokenizer, ids.items, ids.count,
                                              &text, &size_bytes));

free_all:
    zo_free(text);
    zo_ids_fini(&ids);
    zo_spans_fini(&answers);
    zo_tokenizer_close(tokenizer);
    return status;
}

static void check_allocation_failures(void)
{
    const char *path = help_toy_model();
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth = 0;

    while (status == ZO_E_NOMEM && nth < 1000) {
        zo_memory_fail_at(++nth);
        status = use_all(path);
    }
    zo_memory_fail_at(0);
    CHECK_OK(status);
    TAP_CHECK(nth > 5);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"published texts encode to the published ids, and back",
         check_published_cases},
        {"378 odd texts encode and decode as SentencePiece does",
         check_fuzz_cases},
        {"AdvertiseGen's dev rows encode to the recorded ids", check_data_set},
        {"ChatGLM3's role template gives the recorded ids",
         check_role_template},
        {"ChatGLM2's prompt is its rounds as one text", check_round_template},
        {"without a template a prompt is its text", check_plain_template},
        {"answers of rounds are encoded alone, the rest continues",
         check_conversation_of_rounds},
        {"without a template the text is as long as it was",
         check_conversation_without_template},
        {"answers of roles begin after the role token",
         check_conversation_of_roles},
        {"turns that a template cannot take are refused",
         check_roles_are_refused},
        {"the official special ids follow 64,789 pieces", check_special_ids},
        {"a small model's special ids follow its pieces",
         check_small_vocabulary},
        {"text that spells a special token stays text", check_spelled_specials},
        {"special and unknown ids decode to nothing", check_decode_skips},
        {"text that is not UTF-8 is refused; NUL is text", check_odd_text},
        {"a failed allocation anywhere is a clean failure",
         check_allocation_failures},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
