#include "src/checkpoint/model_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/model_index.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/state_reader.h"
#include "src/checkpoint/torch_bin.h"

#define NAMES_SHOWN 5 /* tensors that one message lists */

/* Saved by the official code though it follows from the configuration. */
#define CONSTANT_TENSOR "transformer.rotary_pos_emb.inv_freq"

struct tensor {
    const struct zo_tensor_info *info; /* borrowed from its shard */
    size_t shard, index;               /* of the shard */
};

struct shard {
    char *name; /* owned */
    struct zo_tensor_source *source;
};

struct zo_model_dir {
    char *path; /* owned */
    struct shard *shards;
    size_t shard_count;
    struct tensor *tensors; /* sorted by name */
    size_t count;
    uint64_t total_bytes;
};

/* The places of weights, in the order of precedence.  A state is the folder
 * itself, which its manifest names. */
static const struct place {
    const char *name;
    bool is_index;
    enum zo_status (*open)(const char *path,
                           struct zo_tensor_source **source_out);
} places[] = {
    {"model.safetensors.index.json", true, zo_safetensors_open},
    {"model.safetensors", false, zo_safetensors_open},
    {"pytorch_model.bin.index.json", true, zo_torch_bin_open},
    {"pytorch_model.bin", false, zo_torch_bin_open},
    {ZO_STATE_MANIFEST, false, zo_state_open_weights},
};

static enum zo_status check_folder(const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot open model %s: %s",
                              path, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return ZO_FAIL(ZO_E_USAGE,
                       "model %s is no folder; want the one with config.json "
                       "and the weights",
                       path);
    }
    return ZO_OK;
}

/* A name is there, even as a link that leads nowhere. */
static enum zo_status is_there(const char *folder, const char *name,
                               bool *there_out)
{
    struct stat info;
    char *path = NULL;

    ZO_TRY(zo_disk_join(folder, name, &path));
    *there_out = lstat(path, &info) == 0;
    zo_free(path);
    return ZO_OK;
}

static enum zo_status choose_place(const char *path, struct zo_notes *notes,
                                   const struct place **place_out)
{
    const struct place *chosen = NULL;

    for (size_t i = 0; i < ZO_COUNT(places); i++) {
        bool there = false;

        ZO_TRY(is_there(path, places[i].name, &there));
        if (there && chosen == NULL) {
            chosen = &places[i];
        } else if (there) {
            ZO_TRY(zo_note_add(notes, ZO_NOTE_INFO,
                               "%s: weights are read by %s; %s is not used",
                               path, chosen->name, places[i].name));
        }
    }
    if (chosen == NULL) {
        return ZO_FAIL(ZO_E_USAGE,
                       "no weights in %s; looked for %s, %s, %s, %s, %s", path,
                       places[0].name, places[1].name, places[2].name,
                       places[3].name, places[4].name);
    }
    *place_out = chosen;
    return ZO_OK;
}

static enum zo_status add_shard(struct zo_model_dir *dir, const char *name,
                                const struct place *place)
{
    struct shard *shard = &dir->shards[dir->shard_count++];
    enum zo_status status;
    char *path = NULL;

    ZO_TRY(zo_strndup(name, strlen(name), &shard->name));
    if (place->open == zo_state_open_weights) {
        return place->open(dir->path, &shard->source);
    }
    ZO_TRY(zo_disk_join(dir->path, name, &path));
    status = place->open(path, &shard->source);
    zo_free(path);
    return status;
}

/* All shards are there, before the first is opened. */
static enum zo_status check_ghosts(const struct zo_model_dir *dir,
                                   const struct place *place,
                                   const struct zo_model_index *index)
{
    size_t missing = 0, first = 0;

    for (size_t i = index->shard_count; i-- > 0;) {
        char *path = NULL;
        int gone;

        ZO_TRY(zo_disk_join(dir->path, index->shards[i], &path));
        gone = access(path, F_OK); /* follows links */
        zo_free(path);
        if (gone != 0) {
            missing++;
            first = i;
        }
    }
    if (missing > 0) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: %zu of %zu shards that %s names are not there, "
                       "%.200s first: fetch them",
                       dir->path, missing, index->shard_count, place->name,
                       index->shards[first]);
    }
    return ZO_OK;
}

static enum zo_status open_shards(struct zo_model_dir *dir,
                                  const struct place *place,
                                  const struct zo_model_index *index)
{
    const size_t count = place->is_index ? index->shard_count : 1;

    ZO_TRY(zo_alloc(count, sizeof(dir->shards[0]), "a table of shards",
                    &dir->shards));
    if (!place->is_index) {
        return add_shard(dir, place->name, place);
    }
    ZO_TRY(check_ghosts(dir, place, index));
    for (size_t i = 0; i < count; i++) {
        ZO_TRY(add_shard(dir, index->shards[i], place));
    }
    return ZO_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct tensor *left = a, *right = b;

    return strcmp(left->info->name, right->info->name);
}

/* One sorted table of the tensors of all shards. */
static enum zo_status merge_shards(struct zo_model_dir *dir)
{
    size_t count = 0;

    for (size_t s = 0; s < dir->shard_count; s++) {
        count += zo_tensor_source_count(dir->shards[s].source);
    }
    ZO_TRY(zo_alloc(count, sizeof(dir->tensors[0]), "a table of tensors",
                    &dir->tensors));
    for (size_t s = 0; s < dir->shard_count; s++) {
        const struct zo_tensor_source *source = dir->shards[s].source;

        for (size_t i = 0; i < zo_tensor_source_count(source); i++) {
            const struct zo_tensor_info *info =
                zo_tensor_source_info(source, i);

            dir->tensors[dir->count++] = (struct tensor){info, s, i};
            dir->total_bytes += info->size_bytes;
        }
    }
    qsort(dir->tensors, dir->count, sizeof(dir->tensors[0]), compare_names);
    for (size_t i = 1; i < dir->count; i++) {
        const struct tensor *a = &dir->tensors[i - 1], *b = &dir->tensors[i];

        if (strcmp(a->info->name, b->info->name) == 0) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: tensor \"%.200s\" is in %.200s and in %.200s",
                           dir->path, a->info->name, dir->shards[a->shard].name,
                           dir->shards[b->shard].name);
        }
    }
    return ZO_OK;
}

/* Shards against index: each tensor is named, and in the named shard. */
static enum zo_status check_shards(const struct zo_model_dir *dir,
                                   const struct place *place,
                                   const struct zo_model_index *index)
{
    for (size_t i = 0; i < dir->count; i++) {
        const struct tensor *tensor = &dir->tensors[i];
        const char *name = tensor->info->name;
        const struct zo_model_index_entry *entry =
            zo_model_index_find(index, name);

        if (entry == NULL) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: tensor \"%.200s\" is in %.200s, but %s does "
                           "not name it: they are not of one model",
                           dir->path, name, dir->shards[tensor->shard].name,
                           place->name);
        }
        if (entry->shard != tensor->shard) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: tensor \"%.200s\" is in %.200s, but %s says "
                           "%.200s: they are not of one model",
                           dir->path, name, dir->shards[tensor->shard].name,
                           place->name, index->shards[entry->shard]);
        }
    }
    return ZO_OK;
}

/* Index against shards: each name is somewhere.  Then the sizes. */
static enum zo_status check_index(const struct zo_model_dir *dir,
                                  const struct place *place,
                                  const struct zo_model_index *index,
                                  struct zo_notes *notes)
{
    size_t found = 0;

    for (size_t i = 0; i < index->count; i++) {
        if (!zo_model_dir_find(dir, index->entries[i].name, &found)) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: tensor \"%.200s\" is in no shard, but %s says "
                           "it is in %.200s",
                           dir->path, index->entries[i].name, place->name,
                           index->shards[index->entries[i].shard]);
        }
    }
    ZO_TRY(check_shards(dir, place, index));
    if (index->has_total && index->total_bytes != dir->total_bytes) {
        return zo_note_add(
            notes, ZO_NOTE_WARN,
            "%s: %s says total_size %llu, its tensors have %llu bytes",
            dir->path, place->name, (unsigned long long)index->total_bytes,
            (unsigned long long)dir->total_bytes);
    }
    return ZO_OK;
}

static enum zo_status read_dir(struct zo_model_dir *dir, struct zo_notes *notes,
                               struct zo_model_index *index)
{
    const struct place *place = NULL;
    enum zo_status status;
    char *path = NULL;

    ZO_TRY(choose_place(dir->path, notes, &place));
    if (place->is_index) {
        ZO_TRY(zo_disk_join(dir->path, place->name, &path));
        status = zo_model_index_read(path, index);
        zo_free(path);
        ZO_TRY(status);
    }
    ZO_TRY(open_shards(dir, place, index));
    ZO_TRY(merge_shards(dir));
    return place->is_index ? check_index(dir, place, index, notes) : ZO_OK;
}

enum zo_status zo_model_dir_open(const char *path, struct zo_notes *notes,
                                 struct zo_model_dir **dir_out)
{
    struct zo_model_index index = {0};
    struct zo_model_dir *dir = NULL;
    enum zo_status status;

    ZO_TRY(check_folder(path));
    ZO_TRY(zo_alloc(1, sizeof(*dir), "a model directory", &dir));
    ZO_TRY_GOTO(close_dir, zo_strndup(path, strlen(path), &dir->path));
    ZO_TRY_GOTO(close_dir, read_dir(dir, notes, &index));
    *dir_out = dir;
    dir = NULL;

close_dir:
    zo_model_index_fini(&index);
    zo_model_dir_close(dir);
    return status;
}

void zo_model_dir_close(struct zo_model_dir *dir)
{
    if (dir == NULL) {
        return;
    }
    for (size_t i = 0; i < dir->shard_count; i++) {
        zo_tensor_source_close(dir->shards[i].source);
        zo_free(dir->shards[i].name);
    }
    zo_free(dir->shards);
    zo_free(dir->tensors);
    zo_free(dir->path);
    zo_free(dir);
}

const char *zo_model_dir_path(const struct zo_model_dir *dir)
{
    return dir->path;
}

size_t zo_model_dir_shard_count(const struct zo_model_dir *dir)
{
    return dir->shard_count;
}

const char *zo_model_dir_shard_name(const struct zo_model_dir *dir,
                                    size_t shard)
{
    ZO_ASSERT(shard < dir->shard_count);
    return dir->shards[shard].name;
}

size_t zo_model_dir_count(const struct zo_model_dir *dir)
{
    return dir->count;
}

const struct zo_tensor_info *zo_model_dir_info(const struct zo_model_dir *dir,
                                               size_t index)
{
    ZO_ASSERT(index < dir->count);
    return dir->tensors[index].info;
}

size_t zo_model_dir_shard_of(const struct zo_model_dir *dir, size_t index)
{
    ZO_ASSERT(index < dir->count);
    return dir->tensors[index].shard;
}

bool zo_model_dir_find(const struct zo_model_dir *dir, const char *name,
                       size_t *index_out)
{
    const struct zo_tensor_info info = {.name = name};
    const struct tensor wanted = {.info = &info};
    const struct tensor *found =
        bsearch(&wanted, dir->tensors, dir->count, sizeof(dir->tensors[0]),
                compare_names);

    if (found == NULL) {
        return false;
    }
    *index_out = (size_t)(found - dir->tensors);
    return true;
}

uint64_t zo_model_dir_total_bytes(const struct zo_model_dir *dir)
{
    return dir->total_bytes;
}

bool zo_model_dir_dtype(const struct zo_model_dir *dir,
                        enum zo_dtype *dtype_out)
{
    uint64_t bytes[] = {[ZO_F32] = 0, [ZO_BF16] = 0, [ZO_F16] = 0};
    uint64_t most = 0;

    for (size_t i = 0; i < dir->count; i++) {
        const struct zo_tensor_info *info = dir->tensors[i].info;
        enum zo_dtype dtype;

        if (zo_element_dtype(info->element, &dtype)) {
            bytes[dtype] += info->size_bytes;
        }
    }
    for (size_t i = 0; i < ZO_COUNT(bytes); i++) {
        if (bytes[i] > most) {
            most = bytes[i];
            *dtype_out = (enum zo_dtype)i;
        }
    }
    return most > 0;
}

static enum zo_status check_expected(const struct zo_model_dir *dir,
                                     const struct zo_expected_tensor *expected,
                                     const struct tensor *tensor)
{
    const struct zo_tensor_info *info = tensor->info;
    char got[ZO_SHAPE_TEXT_MAX], want[ZO_SHAPE_TEXT_MAX];
    bool is_same = info->rank == expected->rank;
    enum zo_dtype dtype;

    for (int i = 0; is_same && i < info->rank; i++) {
        is_same = info->shape[i] == expected->shape[i];
    }
    if (!is_same) {
        return ZO_FAIL(
            ZO_E_CORRUPT, "%s: tensor \"%.200s\" in %.200s is %s; want %s",
            dir->path, info->name, dir->shards[tensor->shard].name,
            zo_shape_text(got, sizeof(got), info->shape, info->rank),
            zo_shape_text(want, sizeof(want), expected->shape, expected->rank));
    }
    if (!zo_element_dtype(info->element, &dtype)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: tensor \"%.200s\" in %.200s is of type %s; want "
                       "F32, BF16 or F16",
                       dir->path, info->name, dir->shards[tensor->shard].name,
                       zo_element_name(info->element));
    }
    return ZO_OK;
}

/* "a, b, c, ...": names for a message, the first few. */
struct name_list {
    char text[512];
    size_t count;
};

static void add_name(struct name_list *list, const char *name)
{
    const size_t at = strlen(list->text);

    if (list->count < NAMES_SHOWN) {
        (void)snprintf(list->text + at, sizeof(list->text) - at, "%s%.90s",
                       list->count > 0 ? ", " : "", name);
    } else if (list->count == NAMES_SHOWN) {
        (void)snprintf(list->text + at, sizeof(list->text) - at, ", ...");
    }
    list->count++;
}

static enum zo_status note_unexpected(const struct zo_model_dir *dir,
                                      const bool *is_expected,
                                      struct zo_notes *notes)
{
    struct name_list list = {0};

    for (size_t i = 0; i < dir->count; i++) {
        const char *name = dir->tensors[i].info->name;

        if (!is_expected[i] && strcmp(name, CONSTANT_TENSOR) != 0) {
            add_name(&list, name);
        }
    }
    if (list.count == 0) {
        return ZO_OK;
    }
    return zo_note_add(notes, ZO_NOTE_WARN,
                       "%s: %zu tensors are not part of the model and are "
                       "not read: %s",
                       dir->path, list.count, list.text);
}

enum zo_status
zo_model_dir_check_names(const struct zo_model_dir *dir,
                         const struct zo_expected_tensor *expected,
                         size_t expected_count, struct zo_notes *notes)
{
    struct name_list missing = {0};
    enum zo_status status = ZO_OK;
    bool *is_expected = NULL;

    ZO_TRY(zo_alloc(dir->count, sizeof(is_expected[0]), "a list of tensors",
                    &is_expected));
    for (size_t i = 0; i < expected_count; i++) {
        size_t index = 0;

        if (!zo_model_dir_find(dir, expected[i].name, &index)) {
            add_name(&missing, expected[i].name);
            continue;
        }
        is_expected[index] = true;
        ZO_TRY_GOTO(free_list,
                    check_expected(dir, &expected[i], &dir->tensors[index]));
    }
    if (missing.count > 0) {
        status = ZO_FAIL(
            ZO_E_CORRUPT, "%s: %zu of the model's %zu tensors are missing: %s",
            dir->path, missing.count, expected_count, missing.text);
        goto free_list;
    }
    status = note_unexpected(dir, is_expected, notes);

free_list:
    zo_free(is_expected);
    return status;
}

enum zo_status zo_model_dir_read(const struct zo_model_dir *dir, size_t index,
                                 uint64_t offset_bytes, size_t size_bytes,
                                 void *buffer)
{
    ZO_ASSERT(index < dir->count);
    return zo_tensor_source_read(dir->shards[dir->tensors[index].shard].source,
                                 dir->tensors[index].index, offset_bytes,
                                 size_bytes, buffer);
}

enum zo_status zo_model_dir_read_as(const struct zo_model_dir *dir,
                                    size_t index, uint64_t first_elem,
                                    uint64_t elem_count, enum zo_dtype dtype,
                                    void *buffer,
                                    struct zo_value_counts *counts_inout)
{
    ZO_ASSERT(index < dir->count);
    return zo_tensor_source_read_as(
        dir->shards[dir->tensors[index].shard].source,
        dir->tensors[index].index, first_elem, elem_count, dtype, buffer,
        counts_inout);
}

enum zo_status zo_model_dir_check_values(const struct zo_model_dir *dir,
                                         size_t index, enum zo_dtype dtype,
                                         const struct zo_value_counts *counts,
                                         enum zo_value_policy policy,
                                         struct zo_notes *notes)
{
    const struct zo_tensor_info *info = zo_model_dir_info(dir, index);
    const char *shard =
        zo_model_dir_shard_name(dir, zo_model_dir_shard_of(dir, index));
    char text[1024] = "";

    if (counts->non_finite > 0) {
        (void)snprintf(text, sizeof(text),
                       "%s: tensor \"%.200s\" in %.200s: %llu of %llu values "
                       "are NaN or infinite",
                       dir->path, info->name, shard,
                       (unsigned long long)counts->non_finite,
                       (unsigned long long)info->elem_count);
    } else if (counts->overflowed > 0) {
        (void)snprintf(text, sizeof(text),
                       "%s: tensor \"%.200s\" in %.200s: %llu of %llu values "
                       "are too large for %s: use %s",
                       dir->path, info->name, shard,
                       (unsigned long long)counts->overflowed,
                       (unsigned long long)info->elem_count,
                       zo_dtype_name(dtype), dtype == ZO_F16 ? "bf16" : "fp32");
    } else {
        return ZO_OK;
    }
    return policy == ZO_VALUES_REFUSE
               ? ZO_FAIL(ZO_E_NUMERIC, "%s", text)
               : zo_note_add(notes, ZO_NOTE_WARN, "%s", text);
}
