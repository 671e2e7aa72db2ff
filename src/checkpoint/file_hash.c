#include "src/checkpoint/file_hash.h"

#include <string.h>
#include <unistd.h>

#include "src/checkpoint/disk_file.h"

#define PIECE_BYTES 65536
#define LINK_BYTES  4096

enum zo_status zo_file_hash(const char *path, char text[ZO_SHA256_TEXT_BYTES])
{
    struct zo_disk_file file;
    struct zo_sha256 hash;
    char piece[PIECE_BYTES];
    enum zo_status status = ZO_OK;

    ZO_TRY(zo_disk_open(path, &file));
    zo_sha256_init(&hash);
    for (uint64_t at = 0; at < file.size_bytes; at += sizeof(piece)) {
        const uint64_t rest = file.size_bytes - at;
        const size_t now = rest < sizeof(piece) ? (size_t)rest : sizeof(piece);

        ZO_TRY_GOTO(close_file, zo_disk_read(&file, at, piece, now));
        zo_sha256_add(&hash, piece, now);
    }
    zo_sha256_end(&hash, text);

close_file:
    zo_disk_close(&file);
    return status;
}

void zo_file_hash_expected(const char *path, char text[ZO_SHA256_TEXT_BYTES],
                           bool *expected_out)
{
    const size_t digits = ZO_SHA256_TEXT_BYTES - 1;
    char link[LINK_BYTES];
    const ssize_t length = readlink(path, link, sizeof(link) - 1);
    const char *name;

    *expected_out = false;
    if (length < 0) {
        return;
    }
    link[length] = '\0';
    name = strrchr(link, '/');
    name = name != NULL ? name + 1 : link;
    if (strlen(name) == digits && strspn(name, "0123456789abcdef") == digits) {
        memcpy(text, name, ZO_SHA256_TEXT_BYTES);
        *expected_out = true;
    }
}
