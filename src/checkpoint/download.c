#include "src/checkpoint/download.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define LOOK_BYTES 512

static bool starts_with(const char *text, const char *prefix)
{
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* "size 13342" of a pointer file; empty if it has no such line. */
static const char *pointer_size(char *text)
{
    char *line = strstr(text, "\nsize ");

    if (line == NULL) {
        return "unknown";
    }
    line += strlen("\nsize ");
    line[strspn(line, "0123456789")] = '\0';
    return line;
}

enum zo_status zo_download_check(const struct zo_disk_file *file)
{
    const size_t seen =
        file->size_bytes < LOOK_BYTES ? (size_t)file->size_bytes : LOOK_BYTES;
    char head[LOOK_BYTES + 1] = {0}, tail[LOOK_BYTES];
    const char *text = head;

    if (seen == 0) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s is empty: a download that failed; fetch it again",
                       file->path);
    }
    ZO_TRY(zo_disk_read(file, 0, head, seen));
    if (starts_with(head, "version https://git-lfs")) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s is a Git LFS pointer of %llu bytes, not the file "
                       "of %s bytes it stands for; run \"git lfs pull\"",
                       file->path, (unsigned long long)file->size_bytes,
                       pointer_size(head));
    }
    while (isspace((unsigned char)*text)) {
        text++;
    }
    if (starts_with(text, "<!doctype html") || starts_with(text, "<html") ||
        starts_with(text, "<?xml") || starts_with(text, "<head")) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s is an HTML page, an answer of the server in place "
                       "of the file; fetch it again",
                       file->path);
    }
    if (is_zero(head, seen)) {
        ZO_TRY(zo_disk_read(file, file->size_bytes - seen, tail, seen));
        if (is_zero(tail, seen)) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s is zero bytes only at its start and end (%llu "
                           "bytes): a copy or download that was cut off; "
                           "fetch it again",
                           file->path, (unsigned long long)file->size_bytes);
        }
    }
    return ZO_OK;
}
