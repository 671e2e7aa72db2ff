#include "src/checkpoint/state_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/model_files.h"
#include "src/checkpoint/state_codec.h"
#include "src/checkpoint/state_files.h"
#include "src/checkpoint/state_folder.h"
#include "src/checkpoint/state_manifest.h"

/* Beside the numbers: manifest, tokenizer, the model's own files. */
#define FILES_BYTES ((uint64_t)64 << 20)

struct shard {
    struct zo_disk_file file;
    int writing;  /* threads that are */
    bool is_full; /* no more is added */
};

/* One piece to be made. */
struct task {
    size_t tensor;
    int kind;
    size_t piece; /* of the tensor */
};

struct job {
    const struct zo_state_write_options *options;
    int64_t piece_elems;
    uint64_t shard_bytes;
    char *path, *partial, *replaced; /* owned */
    struct zo_state_manifest manifest;
    struct task *tasks; /* owned */
    size_t task_count;

    pthread_mutex_t lock; /* guards what follows */
    struct shard *shards; /* owned */
    size_t shard_count, shard_capacity;
    struct zo_state_codec **codecs; /* owned; those that are idle */
    size_t codec_count;
    struct zo_err failure; /* the first; status ZO_OK: none */
};

/* ---- before ---------------------------------------------------------------
 */

uint64_t zo_state_bytes_max(uint64_t parameters, enum zo_dtype moment_type)
{
    const uint64_t elem_bytes = 4 + 2 * (uint64_t)zo_dtype_bytes(moment_type);

    /* A piece is never longer than it was; its line is below 1 %. */
    return parameters * elem_bytes + parameters / 64 + FILES_BYTES;
}

static enum zo_status list_tensor(struct job *job, size_t index)
{
    const struct zo_state_write_options *options = job->options;
    struct zo_state_tensor *tensor = &job->manifest.tensors[index];

    for (int kind = 0; kind < ZO_STATE_KINDS; kind++) {
        struct zo_tensor_info *info = &tensor->infos[kind];

        *info = options->tensors[index];
        info->element = zo_element_of_dtype(
            kind == ZO_STATE_MASTER ? ZO_F32 : options->moment_type);
        if (!zo_tensor_info_measure(info) || info->elem_count == 0) {
            return ZO_FAIL(ZO_E_SHAPE, "tensor \"%.200s\" cannot be saved",
                           info->name);
        }
        tensor->first[kind] = job->manifest.piece_count;
        job->manifest.piece_count += zo_state_pieces_of(info, job->piece_elems);
    }
    return ZO_OK;
}

/* Tensor by tensor, and in each kind by kind: what lies together is read so. */
static enum zo_status list_tasks(struct job *job)
{
    const size_t count = job->options->tensor_count;
    struct zo_state_manifest *manifest = &job->manifest;

    ZO_TRY(zo_alloc(count, sizeof(manifest->tensors[0]), "a list of tensors",
                    &manifest->tensors));
    manifest->tensor_count = count;
    for (size_t i = 0; i < count; i++) {
        ZO_TRY(list_tensor(job, i));
    }
    ZO_TRY(zo_alloc(manifest->piece_count, sizeof(manifest->pieces[0]),
                    "a list of pieces", &manifest->pieces));
    ZO_TRY(zo_alloc(manifest->piece_count, sizeof(job->tasks[0]),
                    "a list of pieces", &job->tasks));
    for (size_t i = 0; i < count; i++) {
        for (int kind = 0; kind < ZO_STATE_KINDS; kind++) {
            const struct zo_state_tensor *tensor = &manifest->tensors[i];
            const size_t pieces =
                zo_state_pieces_of(&tensor->infos[kind], job->piece_elems);

            for (size_t p = 0; p < pieces; p++) {
                job->tasks[job->task_count++] = (struct task){i, kind, p};
            }
        }
    }
    return ZO_OK;
}

/* One codec a thread, so that none is made while pieces are. */
static enum zo_status open_codecs(struct job *job)
{
    const size_t width = (size_t)zo_pool_width(job->options->pool);
    int64_t longest = 1;

    for (size_t i = 0; i < job->options->tensor_count; i++) {
        longest = zo_max_i64(
            longest, (int64_t)job->manifest.tensors[i].infos[0].elem_count);
    }
    longest = zo_min_i64(longest, job->piece_elems);
    ZO_TRY(zo_alloc(width, sizeof(job->codecs[0]), "codecs of a state",
                    &job->codecs));
    while (job->codec_count < width &&
           job->codec_count < job->manifest.piece_count) {
        ZO_TRY(zo_state_codec_open((size_t)longest * ZO_STATE_PLANES_MAX,
                                   &job->codecs[job->codec_count]));
        job->codec_count++;
    }
    return ZO_OK;
}

static enum zo_status make_folder(struct job *job)
{
    const char *folder = job->options->folder;
    const int64_t step = job->options->run->step;

    ZO_TRY(zo_state_folder_path(folder, step, &job->path));
    ZO_TRY(zo_state_folder_hidden(folder, step, "partial", &job->partial));
    ZO_TRY(zo_state_folder_hidden(folder, step, "replaced", &job->replaced));
    ZO_TRY(zo_disk_remove_folder(job->partial));
    if (mkdir(job->partial, 0777) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot make folder %s: %s",
                              job->partial, strerror(errno));
    }
    return ZO_OK;
}

/* ---- pieces ----------------------------------------------------------------
 */

static enum zo_status open_shard(struct job *job)
{
    char name[ZO_STATE_NAME_BYTES];
    enum zo_status status;
    char *path = NULL;

    ZO_TRY(zo_grow(&job->shards, job->shard_count, &job->shard_capacity,
                   sizeof(job->shards[0]), "a list of shards"));
    zo_state_shard_name(name, sizeof(name), job->shard_count);
    ZO_TRY(zo_disk_join(job->partial, name, &path));
    job->shards[job->shard_count] = (struct shard){.file = {.fd = -1}};
    status = zo_disk_create(path, &job->shards[job->shard_count].file);
    zo_free(path);
    if (status == ZO_OK) {
        job->shard_count++;
    }
    return status;
}

/*
 * Takes a full shard that nobody writes any more out of the table, so that it
 * is synced while others are written.
 */
static bool take_if_done(struct shard *shard, struct zo_disk_file *file_out)
{
    if (!shard->is_full || shard->writing > 0 || shard->file.fd < 0) {
        return false;
    }
    *file_out = shard->file;
    shard->file =
        (struct zo_disk_file){.fd = -1, .size_bytes = file_out->size_bytes};
    return true;
}

/* Its pages are of no use to the run, which may need the memory. */
static enum zo_status finish_file(struct zo_disk_file *file)
{
    enum zo_status status;

    if (fdatasync(file->fd) == 0) {
        (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    status = zo_disk_finish(file);
    zo_disk_close(file);
    return status;
}

/* Gives a piece its place; locked.  *full_out: a shard to be finished. */
static enum zo_status reserve(struct job *job, size_t size_bytes,
                              struct zo_state_piece *piece,
                              struct zo_disk_file *full_out)
{
    struct shard *shard =
        job->shard_count > 0 ? &job->shards[job->shard_count - 1] : NULL;

    if (shard != NULL &&
        (shard->is_full ||
         (shard->file.size_bytes > 0 &&
          shard->file.size_bytes + size_bytes > job->shard_bytes))) {
        shard->is_full = true;
        (void)take_if_done(shard, full_out);
        shard = NULL;
    }
    if (shard == NULL) {
        ZO_TRY(open_shard(job));
        shard = &job->shards[job->shard_count - 1];
    }
    piece->shard = (uint32_t)(job->shard_count - 1);
    piece->offset_bytes = shard->file.size_bytes;
    shard->file.size_bytes += size_bytes;
    shard->writing++;
    return ZO_OK;
}

static enum zo_status store(struct job *job, struct zo_state_codec *codec,
                            struct zo_state_piece *piece, size_t size_bytes)
{
    struct zo_disk_file full = {.fd = -1}, done = {.fd = -1}, file;
    enum zo_status status;

    (void)pthread_mutex_lock(&job->lock);
    status = reserve(job, size_bytes, piece, &full);
    if (status == ZO_OK) {
        file = job->shards[piece->shard].file; /* open while we write */
    }
    (void)pthread_mutex_unlock(&job->lock);
    if (full.fd >= 0) {
        const enum zo_status finished = finish_file(&full);

        status = status == ZO_OK ? finished : status;
    }
    ZO_TRY(status);
    status = zo_disk_write_at(&file, piece->offset_bytes,
                              zo_state_codec_stored(codec), size_bytes);
    (void)pthread_mutex_lock(&job->lock);
    job->shards[piece->shard].writing--;
    (void)take_if_done(&job->shards[piece->shard], &done);
    (void)pthread_mutex_unlock(&job->lock);
    if (done.fd >= 0) {
        const enum zo_status finished = finish_file(&done);

        status = status == ZO_OK ? finished : status;
    }
    return status;
}

static enum zo_status make_piece(struct job *job, const struct task *task,
                                 struct zo_state_codec *codec)
{
    const struct zo_state_write_options *options = job->options;
    const struct zo_state_tensor *tensor = &job->manifest.tensors[task->tensor];
    const struct zo_tensor_info *info = &tensor->infos[task->kind];
    const size_t elem_bytes = zo_element_bits(info->element) / 8;
    const size_t elems =
        zo_state_piece_elems(info, job->piece_elems, task->piece);
    struct zo_state_piece piece = {0};

    ZO_TRY(options->data(options->context, (enum zo_state_kind)task->kind,
                         task->tensor, (int64_t)task->piece * job->piece_elems,
                         (int64_t)elems, zo_state_codec_raw(codec)));
    ZO_TRY(zo_state_codec_pack(codec, elems, elem_bytes, &piece));
    ZO_TRY(store(job, codec, &piece, zo_state_piece_bytes(&piece, elem_bytes)));
    job->manifest.pieces[tensor->first[task->kind] + task->piece] = piece;
    return ZO_OK;
}

static void work(void *argument, int64_t index)
{
    struct job *job = argument;
    struct zo_state_codec *codec = NULL;
    enum zo_status status;

    (void)pthread_mutex_lock(&job->lock);
    if (job->failure.status == ZO_OK) {
        ZO_ASSERT(job->codec_count > 0);
        codec = job->codecs[--job->codec_count];
    }
    (void)pthread_mutex_unlock(&job->lock);
    if (codec == NULL) { /* in vain */
        return;
    }
    status = make_piece(job, &job->tasks[index], codec);
    (void)pthread_mutex_lock(&job->lock);
    job->codecs[job->codec_count++] = codec;
    if (status != ZO_OK && job->failure.status == ZO_OK) {
        job->failure = *zo_err_last();
    }
    (void)pthread_mutex_unlock(&job->lock);
}

static enum zo_status write_pieces(struct job *job)
{
    zo_pool_run(job->options->pool, work, job, (int64_t)job->task_count);
    if (job->failure.status != ZO_OK) {
        return zo_err_adopt(&job->failure);
    }
    for (size_t i = 0; i < job->shard_count; i++) {
        if (job->shards[i].file.fd >= 0) {
            const uint64_t bytes = job->shards[i].file.size_bytes;

            ZO_TRY(finish_file(&job->shards[i].file));
            job->shards[i].file.size_bytes = bytes;
        }
    }
    return ZO_OK;
}

/* ---- after -----------------------------------------------------------------
 */

static enum zo_status write_text(const struct job *job, const char *name,
                                 const char *text, size_t size_bytes)
{
    enum zo_status status;
    char *path = NULL;

    ZO_TRY(zo_disk_join(job->partial, name, &path));
    status = zo_disk_write_all(path, text, size_bytes);
    zo_free(path);
    return status;
}

static enum zo_status write_manifest(struct job *job, uint64_t *bytes_out)
{
    struct zo_state_manifest *manifest = &job->manifest;
    struct zo_json_text json = {0};
    enum zo_status status;

    ZO_TRY(zo_alloc(job->shard_count, sizeof(manifest->shard_bytes[0]),
                    "a list of shards", &manifest->shard_bytes));
    manifest->shard_count = job->shard_count;
    *bytes_out = 0;
    for (size_t i = 0; i < job->shard_count; i++) {
        manifest->shard_bytes[i] = job->shards[i].file.size_bytes;
        *bytes_out += manifest->shard_bytes[i];
    }
    status = zo_state_manifest_text(manifest, &json);
    if (status == ZO_OK) {
        status = write_text(job, ZO_STATE_MANIFEST, json.text, json.size_bytes);
    }
    *bytes_out += json.size_bytes;
    zo_json_text_fini(&json);
    return status;
}

/* The model's own files: what else reads the folder needs them. */
static enum zo_status copy_files(const struct job *job)
{
    const struct zo_state_write_options *options = job->options;
    struct zo_model_written written = {0};
    struct zo_notes notes = {0}; /* told when the model is written */
    enum zo_status status = ZO_OK;

    if (options->source_path != NULL) {
        status = zo_model_files_copy(options->source_path,
                                     options->tokenizer_path, job->partial,
                                     options->source_type, &notes, &written);
    }
    if (status == ZO_OK && options->config_json != NULL) {
        status = write_text(job, "config.json", options->config_json,
                            strlen(options->config_json));
    }
    zo_notes_fini(&notes);
    zo_model_written_fini(&written);
    return status;
}

static enum zo_status write_readme(const struct job *job)
{
    char text[300];

    (void)snprintf(text, sizeof(text),
                   "Training state of zero-offload after step %" PRId64
                   ": weights, moments, where the run stands.\n"
                   "Continue with `zero-offload train --resume`; look with "
                   "`zero-offload inspect --model` this folder.\n",
                   job->options->run->step);
    return write_text(job, "README", text, strlen(text));
}

/* Under its name, in place of one of the same step. */
static enum zo_status rename_folder(struct job *job)
{
    struct stat info;
    const bool replaces = lstat(job->path, &info) == 0;
    enum zo_status status;

    if (replaces && !S_ISDIR(info.st_mode) && !S_ISLNK(info.st_mode)) {
        return ZO_FAIL(ZO_E_IO, "%s is in the way: it is no state", job->path);
    }
    if (replaces) {
        ZO_TRY(zo_state_folder_discard(job->replaced));
        ZO_TRY(zo_disk_rename(job->path, job->replaced));
    }
    status = zo_disk_rename(job->partial, job->path);
    if (status != ZO_OK && replaces) {
        (void)rename(job->replaced, job->path);
    }
    return status;
}

static bool keep_failure(enum zo_status status, struct zo_err *first)
{
    if (status != ZO_OK && first->status == ZO_OK) {
        *first = *zo_err_last();
    }
    return status == ZO_OK;
}

/* What is left to do once the state stands, whatever becomes of it. */
static void settle(const struct job *job, struct zo_state_written *written)
{
    const char *folder = job->options->folder;

    written->is_synced =
        keep_failure(zo_disk_sync_folder(folder), &written->late);
    written->is_latest = keep_failure(
        zo_state_folder_point(folder, job->options->run->step), &written->late);
    if (written->is_synced) { /* or both could be lost */
        (void)keep_failure(zo_state_folder_discard(job->replaced),
                           &written->late);
    }
}

static enum zo_status write_all(struct job *job, uint64_t *bytes_out)
{
    ZO_TRY(list_tasks(job));
    ZO_TRY(open_codecs(job));
    ZO_TRY(make_folder(job));
    ZO_TRY(copy_files(job));
    ZO_TRY(zo_state_files_list(job->partial, &job->manifest));
    ZO_TRY(write_readme(job));
    ZO_TRY(write_pieces(job));
    ZO_TRY(write_manifest(job, bytes_out));
    ZO_TRY(zo_disk_sync_folder(job->partial));
    return rename_folder(job);
}

static void job_fini(struct job *job)
{
    for (size_t i = 0; i < job->shard_count; i++) {
        zo_disk_close(&job->shards[i].file);
    }
    for (size_t i = 0; i < job->codec_count; i++) {
        zo_state_codec_close(job->codecs[i]);
    }
    zo_free(job->shards);
    zo_free(job->codecs);
    zo_free(job->tasks);
    zo_free(job->path);
    zo_free(job->partial);
    zo_free(job->replaced);
    job->manifest.settings = NULL; /* the caller's */
    zo_state_files_fini(&job->manifest);
    zo_state_manifest_fini(&job->manifest);
    (void)pthread_mutex_destroy(&job->lock);
}

enum zo_status zo_state_write(const struct zo_state_write_options *options,
                              struct zo_state_written *written_out)
{
    struct job job = {
        .options = options,
        .piece_elems = options->piece_elems > 0 ? options->piece_elems
                                                : ZO_STATE_PIECE_ELEMS,
        .shard_bytes = options->shard_bytes > 0 ? options->shard_bytes
                                                : ZO_STATE_SHARD_BYTES,
    };
    struct zo_state_written written = {0};
    enum zo_status status;

    ZO_ASSERT(job.piece_elems <= ZO_STATE_PIECE_ELEMS_MAX);
    ZO_ASSERT(options->run->step >= 1); /* or no reader takes it */
    (void)pthread_mutex_init(&job.lock, NULL);
    job.manifest = (struct zo_state_manifest){
        .program = options->program,
        .piece_elems = job.piece_elems,
        .run = *options->run,
        .settings = (struct zo_state_setting *)(uintptr_t)options->settings,
        .setting_count = options->setting_count,
    };
    status = write_all(&job, &written.bytes);
    written.shard_count = job.shard_count;
    if (status == ZO_OK) {
        settle(&job, &written);
    } else if (job.partial != NULL) {
        const struct zo_err failure = *zo_err_last();

        (void)!zo_disk_remove_folder(job.partial);
        (void)!zo_err_adopt(&failure);
    }
    job_fini(&job);
    if (status == ZO_OK && written_out != NULL) {
        *written_out = written;
    }
    return status;
}
