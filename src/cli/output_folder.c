#include "src/cli/output_folder.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"

static enum zo_status fail(const struct zo_output_folder *folder,
                           const char *output, int error)
{
    const bool is_whole = strcmp(folder->path, output) == 0;

    return ZO_FAIL_NATIVE(ZO_E_USAGE, error, "--output %s: %s%s%s", output,
                          is_whole ? "" : folder->path, is_whole ? "" : ": ",
                          strerror(error));
}

/* folder->path, as far as it is now terminated. */
static enum zo_status make_part(struct zo_output_folder *folder,
                                const char *output, size_t length)
{
    struct stat info;
    int error;

    if (mkdir(folder->path, 0777) == 0) {
        folder->made[folder->made_count++] = length;
        return ZO_OK;
    }
    error = errno;
    if (stat(folder->path, &info) != 0) {
        return fail(folder, output, error);
    }
    return S_ISDIR(info.st_mode) ? ZO_OK : fail(folder, output, ENOTDIR);
}

/* The first `length` bytes of `output`. */
static enum zo_status make_all(struct zo_output_folder *folder,
                               const char *output, size_t length)
{
    ZO_TRY(zo_strndup(output, length, &folder->path));
    ZO_TRY(zo_alloc(length + 1, sizeof(folder->made[0]), "a list of folders",
                    &folder->made));
    for (size_t at = 1; at <= length; at++) {
        const char kept = folder->path[at];
        enum zo_status status;

        if ((kept != '/' && kept != '\0') || folder->path[at - 1] == '/') {
            continue;
        }
        folder->path[at] = '\0';
        status = make_part(folder, output, at);
        folder->path[at] = kept;
        ZO_TRY(status);
    }
    return ZO_OK;
}

enum zo_status zo_output_folder_make(struct zo_output_folder *folder,
                                     const char *path)
{
    ZO_TRY(make_all(folder, path, strlen(path)));
    return access(path, W_OK | X_OK) == 0 ? ZO_OK : fail(folder, path, errno);
}

enum zo_status zo_output_folder_make_parents(struct zo_output_folder *folder,
                                             const char *path)
{
    size_t length = strlen(path);

    while (length > 0 && path[length - 1] == '/') {
        length--;
    }
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    return make_all(folder, path, length);
}

void zo_output_folder_end(struct zo_output_folder *folder)
{
    const int error = errno;

    while (folder->made_count > 0) {
        folder->path[folder->made[--folder->made_count]] = '\0';
        (void)rmdir(folder->path);
    }
    zo_free(folder->path);
    zo_free(folder->made);
    *folder = (struct zo_output_folder){0};
    errno = error;
}
