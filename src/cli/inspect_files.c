/*
 * The files of a model beside its tensors: tokenizer, checksums.
 */
#include <string.h>
#include <sys/stat.h>

#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/file_hash.h"
#include "src/checkpoint/zip_archive.h"
#include "src/cli/inputs.h"
#include "src/cli/inspect.h"

static const char *chat_name(enum zo_chat_format chat)
{
    return chat == ZO_CHAT_ROUNDS  ? "rounds ([Round 1])"
           : chat == ZO_CHAT_ROLES ? "roles (<|user|>)"
                                   : "none";
}

enum zo_status zo_inspect_tokenizer(struct zo_cli *cli,
                                    const struct zo_options *options,
                                    const struct zo_model_config *config)
{
    struct zo_tokenizer *tokenizer = NULL;
    const enum zo_status status = zo_cli_tokenizer(options, config, &tokenizer);

    if (status == ZO_E_NOMEM) {
        return status;
    }
    if (status != ZO_OK) {
        return zo_note_add(&cli->notes, ZO_NOTE_WARN, "no tokenizer: %s",
                           zo_err_last()->text);
    }
    (void)fprintf(cli->out,
                  "tokenizer: %d pieces, %d ids with the special ones; end "
                  "token %d; chat template: %s\n",
                  (int)zo_tokenizer_piece_count(tokenizer),
                  (int)zo_tokenizer_id_count(tokenizer),
                  (int)zo_tokenizer_eos(tokenizer),
                  chat_name(zo_tokenizer_chat(tokenizer)));
    zo_tokenizer_close(tokenizer);
    return ZO_OK;
}

static enum zo_status print_json(FILE *file, const char *name, const char *hash,
                                 bool is_verified)
{
    char buffer[1024];
    struct zo_jsonl json;

    zo_jsonl_init_file(&json, file, "standard output", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_text(&json, "file", name);
    zo_jsonl_text(&json, "sha256", hash);
    zo_jsonl_bool(&json, "verified", is_verified);
    return zo_jsonl_end(&json);
}

/* The sums inside a .bin file; *verified_out is set when it has some. */
static enum zo_status check_archive(const char *path, bool *verified_out)
{
    struct zo_zip_archive archive = {0};
    struct zo_disk_file file;
    size_t checked = 0;
    enum zo_status status;

    ZO_TRY(zo_disk_open(path, &file));
    ZO_TRY_GOTO(close_file, zo_zip_archive_open(&file, &archive));
    ZO_TRY_GOTO(close_file, zo_zip_archive_check(&file, &archive, &checked));
    *verified_out = *verified_out || checked > 0;

close_file:
    zo_zip_archive_close(&archive);
    zo_disk_close(&file);
    return status;
}

static bool is_archive(const char *name)
{
    const size_t length = strlen(name);

    return (length > 4 && strcmp(name + length - 4, ".bin") == 0) ||
           (length > 3 && strcmp(name + length - 3, ".pt") == 0);
}

enum zo_status zo_inspect_checksum(struct zo_cli *cli, const char *path,
                                   const char *name, bool as_json)
{
    char hash[ZO_SHA256_TEXT_BYTES], expected[ZO_SHA256_TEXT_BYTES];
    bool is_expected = false, is_verified;

    ZO_TRY(zo_file_hash(path, hash));
    zo_file_hash_expected(path, expected, &is_expected);
    if (is_expected && strcmp(hash, expected) != 0) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: its SHA-256 is %s, but the cache names it %s; "
                       "download it again",
                       path, hash, expected);
    }
    is_verified = is_expected;
    if (is_archive(name)) {
        ZO_TRY(check_archive(path, &is_verified));
    }
    if (as_json) {
        return print_json(cli->out, name, hash, is_verified);
    }
    (void)fprintf(cli->out, "sha256 %s  ", hash);
    zo_cli_print_text(cli->out, name, strlen(name), 200);
    (void)fprintf(cli->out, "%s%s\n",
                  is_expected ? "  as the cache names it" : "",
                  is_verified && is_archive(name) ? "  its CRC-32s agree" : "");
    return ZO_OK;
}
