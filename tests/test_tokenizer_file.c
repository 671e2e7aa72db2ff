#include "src/data/tokenizer_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "tests/data_help.h"
#include "tests/tap.h"

#define CHECK_OK(call) TAP_CHECK_INT((call), ZO_OK)

/* Expects opening a file to fail with a status and a text. */
static bool refused(const char *path, enum zo_status want, const char *part)
{
    struct zo_tokenizer *tokenizer = NULL;
    const enum zo_status got =
        zo_tokenizer_open(path, ZO_CHAT_ROUNDS, &tokenizer);

    if (got == ZO_OK) {
        zo_tokenizer_close(tokenizer);
    }
    if (got != want) {
        (void)printf("# %s: status %d, want %d\n", path, got, want);
    }
    return got == want && help_error_has(path) && help_error_has(part);
}

static void check_wrong_files(void)
{
    const char *fifo = help_path("fifo.model");

    TAP_CHECK(refused(help_path("none.model"), ZO_E_USAGE, "No such file"));
    TAP_CHECK(refused(".", ZO_E_USAGE, "not a regular file"));
    TAP_CHECK_INT(mkfifo(fifo, 0600), 0);
    TAP_CHECK(refused(fifo, ZO_E_USAGE, "not a regular file"));
    TAP_CHECK(refused(help_write_text("t.model", ""), ZO_E_CORRUPT, "empty"));
    TAP_CHECK(
        refused(help_write_text("t.model", "version https://git-lfs.github.com/"
                                           "spec/v1\noid sha256:0\nsize 5\n"),
                ZO_E_CORRUPT, "Git LFS pointer"));
    TAP_CHECK(refused(help_write_text("t.model", "\n<!DOCTYPE html><html>"),
                      ZO_E_CORRUPT, "web page"));
    TAP_CHECK(refused(help_write_text("t.model", "{\"a\": 1}"), ZO_E_CORRUPT,
                      "not a SentencePiece model"));
    TAP_CHECK(refused(help_write("t.model", "\0\0\0\0", 4), ZO_E_CORRUPT,
                      "not a SentencePiece model"));
    /* A length of 2^64 - 1, which must not be added to anything. */
    TAP_CHECK(
        refused(help_write("t.model",
                           "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11),
                ZO_E_CORRUPT, "not a SentencePiece model"));
}

static void check_large_file(void)
{
    const char *path = help_write_text("large.model", "x");
    const uint64_t count = zo_memory_count();

    TAP_CHECK_INT(truncate(path, ZO_TOKENIZER_FILE_BYTES_MAX + 1), 0);
    TAP_CHECK(refused(path, ZO_E_CORRUPT, "at most"));
    TAP_CHECK_INT(zo_memory_count(), count);
    TAP_CHECK_INT(truncate(path, 0), 0);
}

static void check_every_prefix(void)
{
    size_t size_bytes = 0;
    char *model = help_read(help_toy_model(), &size_bytes);

    /* A piece whose text passes the piece's end, not the file's. */
    static const unsigned char inner[] = "\x0a\x02\x0a\x05\x12\x00\x1a\x00";

    TAP_CHECK(model != NULL);
    TAP_CHECK_INT(zo_tokenizer_check("m", inner, sizeof(inner) - 1),
                  ZO_E_CORRUPT);
    for (size_t count = 0; count < size_bytes; count++) {
        if (zo_tokenizer_check("m", (unsigned char *)model, count) !=
            ZO_E_CORRUPT) {
            tap_fail(__FILE__, __LINE__, "%zu of %zu bytes pass", count,
                     size_bytes);
            break;
        }
    }
    CHECK_OK(zo_tokenizer_check("m", (unsigned char *)model, size_bytes));
    free(model);
}

/* Damaged models are refused or used, but nothing else happens. */
static void check_flipped_bits(void)
{
    size_t size_bytes = 0;
    char *model = help_read(help_toy_model(), &size_bytes);
    uint64_t random = 88172645463325252u;

    TAP_CHECK(model != NULL);
    for (int i = 0; i < 300; i++) {
        struct zo_tokenizer *tokenizer = NULL;
        struct zo_ids ids = {0};
        size_t at;
        char bit;

        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        at = (size_t)(random % size_bytes);
        bit = (char)(1 << (random >> 60 & 7));
        model[at] ^= bit;
        if (zo_tokenizer_open(help_write("flip.model", model, size_bytes),
                              ZO_CHAT_ROLES, &tokenizer) == ZO_OK) {
            (void)!zo_tokenizer_encode(tokenizer, "ab cd\n你", 9, &ids);
            zo_tokenizer_close(tokenizer);
        }
        zo_ids_fini(&ids);
        model[at] ^= bit;
    }
    free(model);
}

static void check_other_models(void)
{
    TAP_CHECK(refused(help_toy_model_with("v1.model", "</s>", "[gMASK]", true),
                      ZO_E_CORRUPT, "first version"));
    TAP_CHECK(refused(help_toy_model_with("end.model", "<e>", "x", true),
                      ZO_E_CORRUPT, "no </s> piece"));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"files that are no model are refused, each by name",
         check_wrong_files},
        {"a file above the limit is refused unread", check_large_file},
        {"every beginning of a model is refused as cut off",
         check_every_prefix},
        {"damaged models do no harm", check_flipped_bits},
        {"a model without an end token or with [gMASK] is refused",
         check_other_models},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
