#include "src/checkpoint/state_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/hash.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/model_files.h"

static enum zo_status hash_file(const char *folder, const char *name,
                                uint64_t *hash_out)
{
    char *path = NULL, *bytes = NULL;
    size_t size_bytes = 0;
    enum zo_status status;

    ZO_TRY(zo_disk_join(folder, name, &path));
    status =
        zo_disk_read_all(path, ZO_MODEL_FILE_BYTES_MAX, &bytes, &size_bytes);
    zo_free(path);
    ZO_TRY(status);
    *hash_out = zo_hash64(bytes, size_bytes);
    zo_free(bytes);
    return ZO_OK;
}

static enum zo_status add_file(const char *folder, const char *name,
                               struct zo_state_manifest *manifest)
{
    struct zo_state_file file = {0};
    char *own = NULL;

    ZO_TRY(hash_file(folder, name, &file.hash));
    ZO_TRY(zo_grow(&manifest->files, manifest->file_count,
                   &manifest->file_capacity, sizeof(manifest->files[0]),
                   "a list of files"));
    ZO_TRY(zo_strndup(name, strlen(name), &own));
    file.name = own;
    manifest->files[manifest->file_count++] = file;
    return ZO_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct zo_state_file *left = a, *right = b;

    return strcmp(left->name, right->name);
}

enum zo_status zo_state_files_list(const char *folder,
                                   struct zo_state_manifest *manifest)
{
    enum zo_status status = ZO_OK;
    const struct dirent *entry;
    DIR *stream = opendir(folder);

    if (stream == NULL) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot read folder %s: %s",
                              folder, strerror(errno));
    }
    while (status == ZO_OK && (errno = 0, entry = readdir(stream)) != NULL) {
        if (entry->d_name[0] != '.') {
            status = add_file(folder, entry->d_name, manifest);
        }
    }
    if (status == ZO_OK && errno != 0) {
        status = ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot read folder %s: %s",
                                folder, strerror(errno));
    }
    (void)closedir(stream);
    if (manifest->file_count > 1) {
        qsort(manifest->files, manifest->file_count, sizeof(manifest->files[0]),
              compare_names);
    }
    return status;
}

void zo_state_files_fini(struct zo_state_manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        zo_free((void *)(uintptr_t)manifest->files[i].name);
    }
    manifest->file_count = 0;
}

enum zo_status zo_state_files_check(const char *folder,
                                    const struct zo_state_manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        const struct zo_state_file *file = &manifest->files[i];
        uint64_t hash = 0;
        enum zo_status status = hash_file(folder, file->name, &hash);

        if (status == ZO_E_USAGE) { /* it is not there */
            const struct zo_err why = *zo_err_last();

            return ZO_FAIL(ZO_E_CORRUPT, "state %s is damaged: %s", folder,
                           why.text);
        }
        ZO_TRY(status);
        if (hash != file->hash) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s/%s is damaged: it is not as the state was saved "
                           "with it",
                           folder, file->name);
        }
    }
    return ZO_OK;
}
