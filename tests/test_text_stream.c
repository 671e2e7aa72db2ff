/* Text as tokens come: whole characters, and all of them at the end. */
#include "src/data/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"
#include "tests/data_help.h"
#include "tests/tap.h"

#define BYTE_PIECE 3 /* the id of byte 0 */

/* What a stream gave, piece after piece. */
struct pieces {
    char text[256];
    size_t text_bytes;
    size_t sizes[64];
    int count;
};

static bool add(struct pieces *pieces, const char *text, size_t size_bytes)
{
    if (pieces->text_bytes + size_bytes > sizeof(pieces->text)) {
        return false;
    }
    memcpy(pieces->text + pieces->text_bytes, text, size_bytes);
    pieces->text_bytes += size_bytes;
    pieces->sizes[pieces->count++] = size_bytes;
    return true;
}

/* Each byte of a text is a token of its own. */
static bool stream_bytes(const char *bytes, size_t size_bytes,
                         struct pieces *pieces)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    struct zo_text_stream stream;
    const char *text = NULL;
    size_t text_bytes = 0;
    bool is_done = tokenizer != NULL;

    *pieces = (struct pieces){0};
    zo_text_stream_init(&stream, tokenizer);
    for (size_t i = 0; is_done && i < size_bytes; i++) {
        is_done =
            zo_text_stream_add(&stream, BYTE_PIECE + (unsigned char)bytes[i],
                               &text, &text_bytes) == ZO_OK &&
            add(pieces, text, text_bytes);
    }
    if (is_done) {
        zo_text_stream_end(&stream, &text, &text_bytes);
        is_done = add(pieces, text, text_bytes);
    }
    zo_text_stream_fini(&stream);
    zo_tokenizer_close(tokenizer);
    return is_done;
}

static void test_characters(void)
{
    static const char text[] = "x\xe8\xa3\x99\xf0\x9f\x91\x97\xc3\xa9y";
    static const size_t sizes[] = {1, 0, 0, 3, 0, 0, 0, 4, 0, 2, 1, 0};
    struct pieces pieces;

    TAP_CHECK(stream_bytes(text, strlen(text), &pieces));
    TAP_CHECK_INT(pieces.text_bytes, strlen(text));
    TAP_CHECK(memcmp(pieces.text, text, strlen(text)) == 0);
    TAP_CHECK_INT(pieces.count, TAP_COUNT(sizes));
    for (size_t i = 0; i < TAP_COUNT(sizes); i++) {
        TAP_CHECK_INT(pieces.sizes[i], sizes[i]);
    }
}

/* Bytes that never become a character come as U+FFFD, at the latest when the
 * answer ends; nothing is lost and nothing comes twice. */
static void test_broken(void)
{
    static const struct {
        const char *bytes, *want;
    } rows[] = {
        {"a\xe8\xa3", "a\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xff\xff\xff\xff\xff"
         "b",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
         "b"},
        {"\xe8"
         "c\xc3\xa9",
         "\xef\xbf\xbd"
         "c\xc3\xa9"},
        {"", ""},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        struct pieces pieces;
        size_t bad = 0;

        TAP_CHECK(stream_bytes(rows[i].bytes, strlen(rows[i].bytes), &pieces));
        TAP_CHECK_INT(pieces.text_bytes, strlen(rows[i].want));
        TAP_CHECK(memcmp(pieces.text, rows[i].want, pieces.text_bytes) == 0);
        TAP_CHECK(zo_utf8_valid(pieces.text, pieces.text_bytes, &bad));
    }
}

/* The blank in front of the first word is not text; the others are. */
static void test_words(void)
{
    struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
    struct zo_text_stream stream;
    struct zo_ids ids = {0};
    struct pieces pieces = {0};
    const char *text = NULL;
    size_t text_bytes = 0;

    TAP_CHECK_INT(zo_tokenizer_encode(tokenizer, "ab abcd ab", 10, &ids),
                  ZO_OK);
    zo_text_stream_init(&stream, tokenizer);
    for (size_t i = 0; i < ids.count; i++) {
        TAP_CHECK_INT(
            zo_text_stream_add(&stream, ids.items[i], &text, &text_bytes),
            ZO_OK);
        TAP_CHECK(add(&pieces, text, text_bytes));
    }
    TAP_CHECK_INT(pieces.text_bytes, 10);
    TAP_CHECK(memcmp(pieces.text, "ab abcd ab", 10) == 0);
    zo_text_stream_fini(&stream);
    zo_text_stream_fini(NULL);
    zo_ids_fini(&ids);
    zo_tokenizer_close(tokenizer);
}

static void test_memory(void)
{
    struct pieces pieces;
    uint64_t nth = 0;
    bool is_done = false;

    while (!is_done && nth < 200) {
        struct zo_tokenizer *tokenizer = help_toy_tokenizer(ZO_CHAT_ROUNDS);
        struct zo_text_stream stream;
        const char *text = NULL;
        size_t text_bytes = 0;

        zo_text_stream_init(&stream, tokenizer);
        zo_memory_fail_at(++nth);
        is_done = true;
        for (int i = 0; is_done && i < 3; i++) {
            is_done = zo_text_stream_add(&stream, BYTE_PIECE + 'a', &text,
                                         &text_bytes) == ZO_OK;
        }
        zo_memory_fail_at(0);
        zo_text_stream_fini(&stream);
        zo_tokenizer_close(tokenizer);
    }
    TAP_CHECK(is_done && nth > 3);
    TAP_CHECK(stream_bytes("ab", 2, &pieces));
}

static const struct tap_case cases[] = {
    {"a character of several tokens comes whole", test_characters},
    {"bytes that are no character come in the end", test_broken},
    {"words come as they are written", test_words},
    {"a failed allocation is told", test_memory},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
