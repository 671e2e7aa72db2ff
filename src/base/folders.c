#include "src/base/folders.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"

/* folders->path, as far as it is now terminated. */
static enum zo_status make_part(struct zo_folders *folders, size_t length,
                                enum zo_status failure)
{
    struct stat info;
    int error;

    if (mkdir(folders->path, 0777) == 0) {
        folders->made[folders->made_count++] = length;
        return ZO_OK;
    }
    error = errno;
    if (stat(folders->path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) {
            return ZO_OK;
        }
        error = ENOTDIR;
    }
    return ZO_FAIL_NATIVE(failure, error, "cannot make folder %s: %s",
                          folders->path, strerror(error));
}

static enum zo_status make_parts(struct zo_folders *folders, const char *path,
                                 size_t length, enum zo_status failure)
{
    ZO_TRY(zo_strndup(path, length, &folders->path));
    ZO_TRY(zo_alloc(length + 1, sizeof(folders->made[0]), "a list of folders",
                    &folders->made));
    for (size_t at = 1; at <= length; at++) {
        const char kept = folders->path[at];
        enum zo_status status;

        if ((kept != '/' && kept != '\0') || folders->path[at - 1] == '/') {
            continue;
        }
        folders->path[at] = '\0';
        status = make_part(folders, at, failure);
        folders->path[at] = kept;
        ZO_TRY(status);
    }
    return ZO_OK;
}

/* The first `length` bytes of `path`. */
static enum zo_status make_all(struct zo_folders *folders, const char *path,
                               size_t length, enum zo_status failure)
{
    struct zo_folders own = {0};
    const enum zo_status status =
        make_parts(folders != NULL ? folders : &own, path, length, failure);

    zo_folders_fini(&own);
    return status;
}

enum zo_status zo_folders_make(struct zo_folders *folders, const char *path,
                               enum zo_status failure)
{
    return make_all(folders, path, strlen(path), failure);
}

/* Bytes of a path before its last part, the slash included. */
static size_t parents_length(const char *path)
{
    size_t length = strlen(path);

    while (length > 0 && path[length - 1] == '/') {
        length--;
    }
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    return length;
}

enum zo_status zo_folders_make_parents(struct zo_folders *folders,
                                       const char *path, enum zo_status failure)
{
    return make_all(folders, path, parents_length(path), failure);
}

enum zo_status zo_folders_check(const char *path, enum zo_status failure)
{
    char *part = NULL;
    const char *there;
    struct stat info;
    int error = 0;
    enum zo_status status = ZO_OK;

    ZO_TRY(zo_strndup(path, strlen(path), &part));
    while (stat(part, &info) != 0 && errno == ENOENT && part[0] != '\0') {
        if (lstat(part, &info) == 0) { /* a link that leads nowhere */
            break;
        }
        part[parents_length(part)] = '\0';
    }
    there = part[0] != '\0' ? part : ".";
    if (stat(there, &info) == 0 && !S_ISDIR(info.st_mode)) {
        error = ENOTDIR;
    } else if (access(there, W_OK | X_OK) != 0) {
        error = errno;
    }
    if (error != 0) {
        status = ZO_FAIL_NATIVE(failure, error, "cannot make folder %s: %s",
                                path, strerror(error));
    }
    zo_free(part);
    return status;
}

void zo_folders_remove(struct zo_folders *folders)
{
    const int error = errno;

    while (folders->made_count > 0) {
        folders->path[folders->made[--folders->made_count]] = '\0';
        (void)rmdir(folders->path);
    }
    errno = error;
}

void zo_folders_fini(struct zo_folders *folders)
{
    zo_free(folders->path);
    zo_free(folders->made);
    *folders = (struct zo_folders){0};
}
