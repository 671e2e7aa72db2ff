#include "src/checkpoint/model_index.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/download.h"
#include "src/checkpoint/json_scan.h"

static bool is_plain_name(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL &&
           strstr(name, "..") == NULL;
}

static enum zo_status scan_weight_map(struct zo_model_index *index,
                                      struct zo_json_scan *scan)
{
    bool more = false;

    scan->name = "weight_map";
    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (;;) {
        char *name = NULL, *shard = NULL;

        scan->kind = NULL;
        scan->name = "weight_map";
        ZO_TRY(zo_json_scan_more(scan, '}', &more));
        if (!more) {
            return ZO_OK;
        }
        ZO_TRY(zo_json_scan_key(scan, &name));
        scan->kind = "tensor ";
        scan->name = name;
        ZO_TRY(zo_json_scan_string(scan, &shard));
        if (!is_plain_name(shard)) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: tensor \"%.200s\" is said to be in "
                           "\"%.200s\"; want the name of a file in the same "
                           "folder: refused",
                           scan->path, name, shard);
        }
        ZO_TRY(zo_grow(&index->entries, index->count, &index->capacity,
                       sizeof(index->entries[0]), "an index"));
        index->entries[index->count++] =
            (struct zo_model_index_entry){.name = name, .file = shard};
    }
}

/* total_size is only compared, so any other value is passed over. */
static enum zo_status scan_metadata(struct zo_model_index *index,
                                    struct zo_json_scan *scan)
{
    bool more = false;

    scan->kind = NULL;
    scan->name = "metadata";
    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (;;) {
        char *key = NULL, *digits;

        ZO_TRY(zo_json_scan_more(scan, '}', &more));
        if (!more) {
            return ZO_OK;
        }
        ZO_TRY(zo_json_scan_key(scan, &key));
        (void)zo_json_scan_peek(scan);
        digits = scan->text + scan->at;
        ZO_TRY(zo_json_scan_skip(scan));
        if (strcmp(key, "total_size") == 0) {
            struct zo_json_scan value = {
                .path = scan->path,
                .text = digits,
                .size_bytes = (size_t)(scan->text + scan->at - digits),
            };

            index->has_total =
                zo_json_scan_uint(&value, &index->total_bytes) == ZO_OK;
        }
    }
}

static enum zo_status scan_index(struct zo_model_index *index,
                                 struct zo_json_scan *scan)
{
    bool has_map = false, has_metadata = false, more = false;

    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (;;) {
        char *key = NULL;
        bool *seen = NULL;

        scan->name = NULL;
        ZO_TRY(zo_json_scan_more(scan, '}', &more));
        if (!more) {
            break;
        }
        ZO_TRY(zo_json_scan_key(scan, &key));
        seen = strcmp(key, "weight_map") == 0 ? &has_map
               : strcmp(key, "metadata") == 0 ? &has_metadata
                                              : NULL;
        if (seen != NULL && *seen) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: key \"%s\" occurs twice",
                           scan->path, key);
        }
        if (seen != NULL) {
            *seen = true;
        }
        ZO_TRY(seen == &has_map        ? scan_weight_map(index, scan)
               : seen == &has_metadata ? scan_metadata(index, scan)
                                       : zo_json_scan_skip(scan));
    }
    ZO_TRY(zo_json_scan_end(scan));
    if (!has_map || index->count == 0) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s %s \"weight_map\"", scan->path,
                       has_map ? "has an empty" : "has no");
    }
    return ZO_OK;
}

static int compare_files(const void *a, const void *b)
{
    const struct zo_model_index_entry *left = a, *right = b;

    return strcmp(left->file, right->file);
}

static int compare_names(const void *a, const void *b)
{
    const struct zo_model_index_entry *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* Numbers the files, in the order of their names. */
static enum zo_status number_shards(struct zo_model_index *index,
                                    const char *path)
{
    qsort(index->entries, index->count, sizeof(index->entries[0]),
          compare_files);
    for (size_t i = 0; i < index->count; i++) {
        struct zo_model_index_entry *entry = &index->entries[i];

        if (i == 0 || compare_files(entry - 1, entry) != 0) {
            if (index->shard_count == ZO_MODEL_SHARDS_MAX) {
                return ZO_FAIL(ZO_E_CORRUPT, "%s names more than %d shards",
                               path, ZO_MODEL_SHARDS_MAX);
            }
            ZO_TRY(zo_grow(&index->shards, index->shard_count,
                           &index->shard_capacity, sizeof(index->shards[0]),
                           "a table of shards"));
            index->shards[index->shard_count++] = entry->file;
        }
        entry->shard = index->shard_count - 1;
    }
    return ZO_OK;
}

static enum zo_status sort_entries(struct zo_model_index *index,
                                   const char *path)
{
    qsort(index->entries, index->count, sizeof(index->entries[0]),
          compare_names);
    for (size_t i = 1; i < index->count; i++) {
        const char *name = index->entries[i].name;

        if (strcmp(index->entries[i - 1].name, name) == 0) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: tensor \"%.200s\" occurs twice",
                           path, name);
        }
    }
    return ZO_OK;
}

static enum zo_status check_download(const char *path)
{
    struct zo_disk_file file;
    enum zo_status status;

    ZO_TRY(zo_disk_open(path, &file));
    status = zo_download_check(&file);
    zo_disk_close(&file);
    return status;
}

enum zo_status zo_model_index_read(const char *path,
                                   struct zo_model_index *index_out)
{
    struct zo_model_index index = {0};
    struct zo_json_scan scan;
    enum zo_status status;
    size_t size_bytes = 0;

    ZO_TRY(check_download(path));
    ZO_TRY(zo_disk_read_all(path, ZO_MODEL_INDEX_BYTES_MAX, &index.text,
                            &size_bytes));
    ZO_TRY_GOTO(free_index,
                zo_json_scan_begin(&scan, path, index.text, size_bytes));
    ZO_TRY_GOTO(free_index, scan_index(&index, &scan));
    ZO_TRY_GOTO(free_index, number_shards(&index, path));
    ZO_TRY_GOTO(free_index, sort_entries(&index, path));
    *index_out = index;
    return ZO_OK;

free_index:
    zo_model_index_fini(&index);
    return status;
}

void zo_model_index_fini(struct zo_model_index *index)
{
    zo_free(index->entries);
    zo_free(index->shards);
    zo_free(index->text);
    *index = (struct zo_model_index){0};
}

const struct zo_model_index_entry *
zo_model_index_find(const struct zo_model_index *index, const char *name)
{
    const struct zo_model_index_entry wanted = {.name = name};

    return bsearch(&wanted, index->entries, index->count,
                   sizeof(index->entries[0]), compare_names);
}
