#include "src/checkpoint/model_dir_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/json_text.h"
#include "src/checkpoint/model_dir.h"
#include "src/checkpoint/model_files.h"
#include "src/checkpoint/model_index.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/checkpoint/state_format.h"

#define SHARD_BYTES_DEFAULT UINT64_C(10000000000) /* as transformers did */
#define PIECE_BYTES_DEFAULT ((size_t)16 << 20)
#define PIECE_ALIGN         8 /* pieces are whole elements of any type */
#define INDEX_NAME          "model.safetensors.index.json"

/* One write of a directory. */
struct job {
    struct zo_model_write_options options; /* defaults filled in */
    struct zo_notes *notes;
    struct zo_tensor_info *infos; /* owned: the caller's, measured */
    size_t *order;                /* owned: infos, shard after shard */
    size_t *shard_of;             /* owned: of infos[i] */
    size_t shard_count;
    uint64_t total_bytes;
    char *parent, *name;   /* owned: of the target */
    char *partial, *older; /* owned: beside the target */
    void *piece;           /* owned */
    bool has_target;       /* something is to be replaced */
    bool is_in_place;      /* the new folder has its name */
    struct zo_model_written written;
};

static void job_fini(struct job *job)
{
    zo_free(job->infos);
    zo_free(job->order);
    zo_free(job->shard_of);
    zo_free(job->parent);
    zo_free(job->name);
    zo_free(job->partial);
    zo_free(job->older);
    zo_free(job->piece);
    zo_model_written_fini(&job->written);
}

/* "parent/.name.suffix" */
static enum zo_status hidden_path(const struct job *job, const char *suffix,
                                  char **path_out)
{
    const size_t size_bytes =
        strlen(job->parent) + strlen(job->name) + strlen(suffix) + 4;

    ZO_TRY(zo_alloc(size_bytes, 1, "a path", path_out));
    (void)snprintf(*path_out, size_bytes, "%s/.%s.%s", job->parent, job->name,
                   suffix);
    return ZO_OK;
}

/* Sizes, and which tensor goes into which shard, in the caller's order. */
static enum zo_status plan_shards(struct job *job)
{
    const size_t count = job->options.tensor_count;
    uint64_t in_shard = 0;

    ZO_TRY(zo_alloc(count, sizeof(job->infos[0]), "a table of tensors",
                    &job->infos));
    ZO_TRY(zo_alloc(count, sizeof(job->order[0]), "a table of tensors",
                    &job->order));
    ZO_TRY(zo_alloc(count, sizeof(job->shard_of[0]), "a table of tensors",
                    &job->shard_of));
    job->shard_count = 1;
    for (size_t i = 0; i < count; i++) {
        struct zo_tensor_info *info = &job->infos[i];

        *info = job->options.tensors[i];
        if (!zo_tensor_info_measure(info) ||
            !zo_add_u64(job->total_bytes, info->size_bytes,
                        &job->total_bytes)) {
            return ZO_FAIL(ZO_E_SHAPE,
                           "tensor \"%.200s\": its size does not fit",
                           info->name);
        }
        if (in_shard > 0 &&
            info->size_bytes > job->options.shard_bytes - in_shard) {
            job->shard_count++;
            in_shard = 0;
        }
        /* A tensor above the limit has a shard of its own. */
        in_shard = info->size_bytes < job->options.shard_bytes - in_shard
                       ? in_shard + info->size_bytes
                       : job->options.shard_bytes;
        job->order[i] = i;
        job->shard_of[i] = job->shard_count - 1;
    }
    if (job->shard_count > ZO_MODEL_SHARDS_MAX) {
        return ZO_FAIL(ZO_E_ARG, "%s would have %zu shards; want at most %d",
                       job->options.path, job->shard_count,
                       ZO_MODEL_SHARDS_MAX);
    }
    return ZO_OK;
}

/*
 * Within a shard wide elements come first, so that every tensor is aligned
 * to its element.  An insertion sort: all but a few are of one width.
 */
static void sort_shard(struct job *job, size_t first, size_t end)
{
    for (size_t i = first + 1; i < end; i++) {
        const size_t moved = job->order[i];
        const unsigned bits = zo_element_bits(job->infos[moved].element);
        size_t at = i;

        while (at > first &&
               zo_element_bits(job->infos[job->order[at - 1]].element) < bits) {
            job->order[at] = job->order[at - 1];
            at--;
        }
        job->order[at] = moved;
    }
}

/* Is this folder one that a model was written to, and nothing else? */
static enum zo_status check_replaceable(const char *path)
{
    bool is_model = false, is_empty = true, has_folder = false;
    bool is_state = false;
    const struct dirent *entry;
    DIR *stream = opendir(path);

    if (stream == NULL) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot read folder %s: %s",
                              path, strerror(errno));
    }
    while ((entry = readdir(stream)) != NULL) {
        const char *name = entry->d_name;
        struct stat info;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
            continue;
        }
        is_empty = false;
        is_state = is_state || strcmp(name, ZO_STATE_MANIFEST) == 0;
        is_model = is_model || strcmp(name, "config.json") == 0 ||
                   strcmp(name, "model.safetensors") == 0 ||
                   strcmp(name, INDEX_NAME) == 0;
        has_folder =
            has_folder ||
            fstatat(dirfd(stream), name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            S_ISDIR(info.st_mode);
    }
    (void)closedir(stream);
    if (is_state) { /* more than a model: no run could go on from it */
        return ZO_FAIL(ZO_E_USAGE,
                       "%s is a training state: not replaced; want an empty "
                       "or a new folder",
                       path);
    }
    if (has_folder || !(is_model || is_empty)) {
        return ZO_FAIL(
            ZO_E_USAGE, "%s %s: not replaced; want an empty or a new folder",
            path,
            has_folder ? "holds other folders" : "is not a model directory");
    }
    return ZO_OK;
}

static enum zo_status check_target(const char *path, bool replace,
                                   bool *has_target_out)
{
    struct stat info;

    *has_target_out = false;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT
                   ? ZO_OK
                   : ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot look at %s: %s",
                                    path, strerror(errno));
    }
    *has_target_out = true;
    if (!S_ISDIR(info.st_mode)) {
        return ZO_FAIL(ZO_E_USAGE, "%s is there and is %s; want a new folder",
                       path, S_ISLNK(info.st_mode) ? "a link" : "no folder");
    }
    ZO_TRY(check_replaceable(path)); /* else --overwrite would be no help */
    return replace ? ZO_OK
                   : ZO_FAIL(ZO_E_USAGE,
                             "%s is there already; name another folder, or "
                             "replace it with --overwrite",
                             path);
}

enum zo_status zo_model_dir_check_target(const char *path, bool replace)
{
    bool has_target;

    return check_target(path, replace, &has_target);
}

/* What an earlier run that was killed has left is removed. */
static enum zo_status start(struct job *job)
{
    uint64_t free_bytes;
    char want[ZO_TEXT_PAIR_BYTES], have[ZO_TEXT_PAIR_BYTES];

    ZO_TRY(zo_disk_split(job->options.path, &job->parent, &job->name));
    ZO_TRY(hidden_path(job, "partial", &job->partial));
    ZO_TRY(hidden_path(job, "replaced", &job->older));
    ZO_TRY(check_target(job->options.path, job->options.replace,
                        &job->has_target));
    ZO_TRY(plan_shards(job));
    ZO_TRY(zo_alloc(job->options.piece_bytes, 1, "a piece of a tensor",
                    &job->piece));
    ZO_TRY(zo_disk_remove(job->partial));
    free_bytes = zo_disk_free_bytes(job->parent);
    if (free_bytes < job->total_bytes) {
        zo_text_gib_pair(want, job->total_bytes, have, free_bytes);
        return ZO_FAIL(ZO_E_IO, "%s needs %s of disk; %s are free",
                       job->options.path, want, have);
    }
    if (mkdir(job->partial, 0777) != 0) {
        const int error = errno;

        return ZO_FAIL_NATIVE(error == ENOENT ? ZO_E_USAGE : ZO_E_IO, error,
                              "cannot make folder %s: %s", job->partial,
                              strerror(error));
    }
    return ZO_OK;
}

static void shard_name(const struct job *job, size_t shard, char *name,
                       size_t name_bytes)
{
    if (job->shard_count == 1) {
        (void)snprintf(name, name_bytes, "model.safetensors");
    } else {
        (void)snprintf(name, name_bytes, "model-%05zu-of-%05zu.safetensors",
                       shard + 1, job->shard_count);
    }
}

static enum zo_status write_tensor(struct job *job, size_t index,
                                   struct zo_safetensors_writer *writer)
{
    const uint64_t size_bytes = job->infos[index].size_bytes;

    for (uint64_t at = 0; at < size_bytes;) {
        const uint64_t rest = size_bytes - at;
        const size_t now = rest < job->options.piece_bytes
                               ? (size_t)rest
                               : job->options.piece_bytes;

        ZO_TRY(job->options.data(job->options.context, index, at, now,
                                 job->piece));
        ZO_TRY(zo_safetensors_writer_append(writer, job->piece, now));
        at += now;
    }
    return ZO_OK;
}

/* Tensors order[first] to order[end - 1]. */
static enum zo_status write_shard(struct job *job, size_t first, size_t end)
{
    struct zo_safetensors_writer *writer = NULL;
    struct zo_tensor_info *infos = NULL;
    enum zo_status status;
    char *path = NULL;
    char name[64];

    shard_name(job, first < end ? job->shard_of[first] : 0, name, sizeof(name));
    sort_shard(job, first, end);
    ZO_TRY(
        zo_alloc(end - first, sizeof(infos[0]), "a table of tensors", &infos));
    for (size_t i = first; i < end; i++) {
        infos[i - first] = job->infos[job->order[i]];
    }
    ZO_TRY_GOTO(close_writer, zo_disk_join(job->partial, name, &path));
    ZO_TRY_GOTO(close_writer,
                zo_safetensors_writer_open(path, infos, end - first, &writer));
    for (size_t i = first; i < end; i++) {
        ZO_TRY_GOTO(close_writer, write_tensor(job, job->order[i], writer));
    }
    ZO_TRY_GOTO(close_writer, zo_safetensors_writer_finish(writer));

close_writer:
    zo_safetensors_writer_close(writer);
    zo_free(path);
    zo_free(infos);
    return status;
}

static enum zo_status write_shards(struct job *job)
{
    const size_t count = job->options.tensor_count;
    size_t first = 0;

    do { /* one shard at least, even of nothing */
        size_t end = first;

        while (end < count && job->shard_of[end] == job->shard_of[first]) {
            end++;
        }
        ZO_TRY(write_shard(job, first, end));
        first = end;
    } while (first < count);
    return ZO_OK;
}

struct named {
    const char *name;
    size_t shard;
};

static int compare_named(const void *a, const void *b)
{
    const struct named *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* As transformers writes it: sorted, two spaces. */
static enum zo_status make_index(const struct job *job, struct named *named,
                                 struct zo_json_text *json)
{
    const size_t count = job->options.tensor_count;

    for (size_t i = 0; i < count; i++) {
        named[i] = (struct named){job->infos[i].name, job->shard_of[i]};
    }
    qsort(named, count, sizeof(named[0]), compare_named);
    ZO_TRY(zo_json_text_add(json,
                            "{\n  \"metadata\": {\n    \"total_size\": %llu\n"
                            "  },\n  \"weight_map\": {\n",
                            (unsigned long long)job->total_bytes));
    for (size_t i = 0; i < count; i++) {
        char name[64];

        shard_name(job, named[i].shard, name, sizeof(name));
        ZO_TRY(zo_json_text_add(json, "    "));
        ZO_TRY(zo_json_text_quote(json, named[i].name));
        ZO_TRY(zo_json_text_add(json, ": \"%s\"%s\n", name,
                                i + 1 < count ? "," : ""));
    }
    return zo_json_text_add(json, "  }\n}\n");
}

static enum zo_status write_index(const struct job *job)
{
    struct zo_json_text json = {0};
    struct named *named = NULL;
    enum zo_status status;
    char *path = NULL;

    if (job->shard_count == 1) {
        return ZO_OK;
    }
    ZO_TRY(zo_alloc(job->options.tensor_count, sizeof(named[0]), "an index",
                    &named));
    ZO_TRY_GOTO(free_index, make_index(job, named, &json));
    ZO_TRY_GOTO(free_index, zo_disk_join(job->partial, INDEX_NAME, &path));
    ZO_TRY_GOTO(free_index,
                zo_disk_write_all(path, json.text, json.size_bytes));

free_index:
    zo_free(path);
    zo_json_text_fini(&json);
    zo_free(named);
    return status;
}

/* The type of most bytes: what config.json is to say. */
static enum zo_dtype main_dtype(const struct job *job)
{
    uint64_t bytes[] = {[ZO_F32] = 0, [ZO_BF16] = 0, [ZO_F16] = 0};
    enum zo_dtype best = ZO_F32;

    for (size_t i = 0; i < job->options.tensor_count; i++) {
        enum zo_dtype dtype;

        if (zo_element_dtype(job->infos[i].element, &dtype)) {
            bytes[dtype] += job->infos[i].size_bytes;
            best = bytes[dtype] > bytes[best] ? dtype : best;
        }
    }
    return best;
}

static bool is_same_tensor(const struct zo_tensor_info *a,
                           const struct zo_tensor_info *b)
{
    if (a->element != b->element || a->rank != b->rank) {
        return false;
    }
    for (int i = 0; i < a->rank; i++) {
        if (a->shape[i] != b->shape[i]) {
            return false;
        }
    }
    return true;
}

/* Reads back what was written: names, shapes, sizes, index. */
static enum zo_status verify(const struct job *job)
{
    const size_t count = job->options.tensor_count;
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    enum zo_status status;

    ZO_TRY_GOTO(close_dir, zo_model_dir_open(job->partial, &notes, &dir));
    for (size_t i = 0; i < count; i++) {
        size_t index = 0;

        if (!zo_model_dir_find(dir, job->infos[i].name, &index) ||
            !is_same_tensor(&job->infos[i], zo_model_dir_info(dir, index))) {
            status = ZO_FAIL(ZO_E_CORRUPT,
                             "%s: tensor \"%.200s\" was not read back as it "
                             "was written",
                             job->partial, job->infos[i].name);
            goto close_dir;
        }
    }
    if (zo_model_dir_count(dir) != count || notes.count > 0) {
        status =
            ZO_FAIL(ZO_E_CORRUPT, "%s: %zu tensors were read back; want %zu",
                    job->partial, zo_model_dir_count(dir), count);
    }

close_dir:
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
    return status;
}

/* Two renames, where the file system cannot exchange two names. */
static enum zo_status swap_in_two(const struct job *job)
{
    enum zo_status status;

    ZO_TRY(zo_disk_remove(job->older));
    ZO_TRY(zo_disk_rename(job->options.path, job->older));
    status = zo_disk_rename(job->partial, job->options.path);
    if (status != ZO_OK) {
        (void)rename(job->older, job->options.path);
    }
    return status;
}

/* Puts the new folder in the place of the old one, at once if possible. */
static enum zo_status swap_in(const struct job *job)
{
    const char *target = job->options.path;

    if (!job->has_target) {
        return zo_disk_rename(job->partial, target);
    }
    if (renameat2(AT_FDCWD, job->partial, AT_FDCWD, target, RENAME_EXCHANGE) ==
        0) {
        return ZO_OK;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot exchange %s and %s: %s",
                              job->partial, target, strerror(errno));
    }
    return swap_in_two(job);
}

/* The new one is in place: that an old one stays is not a failure. */
static enum zo_status remove_old(const struct job *job)
{
    const char *const olds[] = {job->partial, job->older};

    for (size_t i = 0; i < ZO_COUNT(olds); i++) {
        if (zo_disk_remove(olds[i]) != ZO_OK) {
            ZO_TRY(zo_note_add(job->notes, ZO_NOTE_WARN,
                               "the model that was replaced is left: %s",
                               zo_err_last()->text));
        }
    }
    return ZO_OK;
}

/* The caller's config.json, in place of one that was copied. */
static enum zo_status write_config_json(const struct job *job)
{
    const char *text = job->options.config_json;
    enum zo_status status;
    char *path = NULL;

    if (text == NULL) {
        return ZO_OK;
    }
    ZO_TRY(zo_disk_join(job->partial, "config.json", &path));
    status = zo_disk_write_all(path, text, strlen(text));
    zo_free(path);
    return status;
}

static enum zo_status write_all(struct job *job)
{
    if (job->options.source_path != NULL) {
        ZO_TRY(zo_model_files_copy(job->options.source_path,
                                   job->options.tokenizer_path, job->partial,
                                   main_dtype(job), job->notes, &job->written));
    }
    ZO_TRY(write_config_json(job));
    ZO_TRY(write_shards(job));
    ZO_TRY(write_index(job));
    ZO_TRY(verify(job));
    ZO_TRY(zo_disk_sync_folder(job->partial));
    ZO_TRY(swap_in(job));
    job->is_in_place = true;
    return zo_disk_sync_folder(job->parent);
}

/*
 * After a failure; what is told is the failure.  Once the new folder has its
 * name the old one is kept, until the next write, since the disk may not have
 * the new name yet.
 */
static void clean_up(const struct job *job)
{
    const struct zo_err err = *zo_err_last();

    if (!job->is_in_place) {
        (void)!zo_disk_remove(job->partial);
    }
    (void)zo_err_adopt(&err);
}

enum zo_status zo_model_dir_write(const struct zo_model_write_options *options,
                                  struct zo_notes *notes,
                                  struct zo_model_written *written_out)
{
    struct job job = {.options = *options, .notes = notes};
    enum zo_status status;

    if (job.options.shard_bytes == 0) {
        job.options.shard_bytes = SHARD_BYTES_DEFAULT;
    }
    if (job.options.piece_bytes == 0) {
        job.options.piece_bytes = PIECE_BYTES_DEFAULT;
    }
    job.options.piece_bytes -= job.options.piece_bytes % PIECE_ALIGN;
    ZO_ASSERT(job.options.data != NULL && job.options.piece_bytes > 0);
    ZO_TRY_GOTO(free_job, start(&job));
    status = write_all(&job);
    if (status != ZO_OK) {
        clean_up(&job);
        goto free_job;
    }
    ZO_TRY_GOTO(free_job, remove_old(&job));
    job.written.shard_count = job.shard_count;
    job.written.total_bytes = job.total_bytes;
    if (written_out != NULL) {
        *written_out = job.written;
        job.written = (struct zo_model_written){0};
    }

free_job:
    job_fini(&job);
    return status;
}

void zo_model_written_fini(struct zo_model_written *written)
{
    if (written == NULL) {
        return;
    }
    for (size_t i = 0; i < written->py_count; i++) {
        zo_free(written->py_files[i]);
    }
    zo_free(written->py_files);
    *written = (struct zo_model_written){0};
}
