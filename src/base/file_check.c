#include "src/base/file_check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"

#define START_BYTES 64

static enum zo_status fail(const char *path, const struct zo_file_check *check,
                           int error)
{
    return ZO_FAIL_NATIVE(ZO_E_USAGE, error, "cannot write %s %s: %s",
                          check->what, path, strerror(error));
}

static enum zo_status check_folder(const char *path,
                                   const struct zo_file_check *check)
{
    const char *slash = strrchr(path, '/');
    char *folder = NULL;
    bool may;

    if (slash == NULL) {
        may = access(".", W_OK | X_OK) == 0;
    } else {
        ZO_TRY(zo_strndup(path, (size_t)(slash - path) + 1, &folder));
        may = access(folder, W_OK | X_OK) == 0;
        zo_free(folder);
    }
    return may ? ZO_OK : fail(path, check, errno);
}

/* A slip of the pen must not cost a file that is something else. */
static enum zo_status check_start(const char *path,
                                  const struct zo_file_check *check)
{
    const size_t length = strlen(check->start);
    const int reader = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char start[START_BYTES];
    ssize_t got = -1;
    int error;

    ZO_ASSERT(length <= sizeof(start));
    if (reader >= 0) {
        got = pread(reader, start, length, 0);
    }
    error = errno;
    if (reader >= 0) {
        (void)close(reader);
    }
    if (got < 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, error, "cannot read %s %s: %s",
                              check->what, path, strerror(error));
    }
    return memcmp(start, check->start, (size_t)got) == 0
               ? ZO_OK
               : ZO_FAIL(ZO_E_USAGE, "%s is there and is no %s; name another",
                         path, check->what);
}

enum zo_status zo_file_check(const char *path,
                             const struct zo_file_check *check)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        if (errno != ENOENT) {
            return fail(path, check, errno);
        }
        return lstat(path, &info) != 0
                   ? check_folder(path, check)
                   : ZO_FAIL(ZO_E_USAGE,
                             "%s is a link that leads nowhere; want a file, or "
                             "nothing, where the %s is to be",
                             path, check->what);
    }
    if (S_ISDIR(info.st_mode)) {
        return fail(path, check, EISDIR);
    }
    if (check->is_regular && !S_ISREG(info.st_mode)) {
        return ZO_FAIL(ZO_E_USAGE,
                       "%s is a FIFO, a socket or a device; want a file, or "
                       "nothing, where the %s is to be",
                       path, check->what);
    }
    if (access(path, W_OK) != 0) {
        return fail(path, check, errno);
    }
    return S_ISREG(info.st_mode) && info.st_size > 0 ? check_start(path, check)
                                                     : ZO_OK;
}
