/* Files for json.c.  Layer 1. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/json.h"
#include "src/base/memory.h"

static enum zo_status read_all(int file, const char *path, char *bytes,
                               size_t wanted_bytes)
{
    size_t done = 0;

    while (done < wanted_bytes) {
        const ssize_t got = read(file, bytes + done, wanted_bytes - done);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return ZO_FAIL_NATIVE(ZO_E_IO, errno, "%s: reading failed: %s",
                                  path, strerror(errno));
        }
        if (got == 0) {
            return ZO_FAIL(ZO_E_IO, "%s: ended after %zu of %zu bytes", path,
                           done, wanted_bytes);
        }
        done += (size_t)got;
    }
    return ZO_OK;
}

static enum zo_status open_file(const char *path, size_t size_max_bytes,
                                enum zo_status status_too_large, int *file_out,
                                size_t *size_bytes_out)
{
    /* Non-blocking, so that a FIFO does not hang the open. */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    enum zo_status status;

    if (file < 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "%s: %s", path,
                              strerror(errno));
    }
    if (fstat(file, &info) != 0) {
        status =
            ZO_FAIL_NATIVE(ZO_E_IO, errno, "%s: %s", path, strerror(errno));
        goto close_file;
    }
    if (!S_ISREG(info.st_mode)) {
        status =
            ZO_FAIL(ZO_E_USAGE, "%s: is %s, want a file", path,
                    S_ISDIR(info.st_mode) ? "a directory" : "no regular file");
        goto close_file;
    }
    if ((uint64_t)info.st_size > size_max_bytes) {
        status = ZO_FAIL(status_too_large,
                         "%s: %llu bytes of JSON, want at most %zu", path,
                         (unsigned long long)info.st_size, size_max_bytes);
        goto close_file;
    }
    *file_out = file;
    *size_bytes_out = (size_t)info.st_size;
    return ZO_OK;

close_file:
    (void)close(file);
    return status;
}

enum zo_status zo_json_read(const char *path,
                            const struct zo_json_options *options,
                            struct zo_json_doc **doc_out)
{
    const struct zo_json_options defaults = {.status = ZO_OK};
    const struct zo_json_options *use = options != NULL ? options : &defaults;
    const size_t size_max_bytes =
        use->size_max_bytes > 0 ? use->size_max_bytes : ZO_JSON_SIZE_MAX;
    const enum zo_status refused =
        use->status != ZO_OK ? use->status : ZO_E_CONFIG;
    enum zo_status status;
    char *bytes = NULL;
    size_t size_bytes = 0;
    int file = -1;

    ZO_TRY(open_file(path, size_max_bytes, refused, &file, &size_bytes));
    if (size_bytes == 0) {
        status = ZO_FAIL(refused, "%s: is empty", path);
        goto close_file;
    }
    ZO_TRY_GOTO(close_file,
                zo_alloc(size_bytes, 1, "the text of a file", &bytes));
    ZO_TRY_GOTO(close_file, read_all(file, path, bytes, size_bytes));
    status = zo_json_parse(path, bytes, size_bytes, options, doc_out);

close_file:
    zo_free(bytes);
    (void)close(file);
    return status;
}
