#include "src/checkpoint/state_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
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

/*
 * Of the manifest: what it says of a tensor, which has a name of less than 100
 * bytes and three kinds, and what it says once; README is in it.  Both are
 * several times what they come to; pieces are counted apart.
 */
#define TENSOR_BYTES ((uint64_t)2 << 10)
#define HEAD_BYTES   ((uint64_t)64 << 10)

#define PIECES_A_WRITER 16 /* at least, where there are several */

/* Writes at a time: more made the disk slower (1.5 GB/s by 16, 2.3 by 4). */
#define DISK_TURNS 4

/* Beside other work: writers that feed the disk; niceness of those that pack.
 */
#define FEEDERS 2
#define NICE    19

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
    struct writer *writers; /* owned */
    size_t writer_count;

    pthread_mutex_t lock; /* guards the manifest's shards and what follows */
    pthread_cond_t has_written;
    int on_disk; /* writers that wait for the disk */
    size_t next; /* the first task that nobody has taken */
    size_t shard_capacity;
    struct zo_err failure; /* the first; status ZO_OK: none */
};

/* Makes pieces, and writes them to shards of its own, one after the other. */
struct writer {
    struct job *job;
    struct zo_state_codec *codec; /* owned */
    struct zo_disk_file file;     /* the shard at hand */
    size_t shard;                 /* its index */
    size_t waiting_bytes;         /* of stored(), not written: no whole block */
    bool feeds; /* stores pieces as they are; see the header */
};

/* ---- before ---------------------------------------------------------------
 */

uint64_t zo_state_bytes_max(uint64_t parameters, uint64_t tensors,
                            enum zo_dtype moment_type, uint64_t files_bytes)
{
    const uint64_t elem_bytes = 4 + 2 * (uint64_t)zo_dtype_bytes(moment_type);

    /* A piece is never longer than it was; its line is below 1 %. */
    return parameters * elem_bytes + parameters / 64 + tensors * TENSOR_BYTES +
           HEAD_BYTES + files_bytes;
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

/* As many as there are threads; of small states fewer, for fewer shards. */
static enum zo_status open_writers(struct job *job)
{
    const int64_t pieces = (int64_t)job->manifest.piece_count;
    const size_t count = (size_t)zo_min_i64(zo_pool_width(job->options->pool),
                                            1 + pieces / PIECES_A_WRITER);
    int64_t longest = 1;

    for (size_t i = 0; i < job->options->tensor_count; i++) {
        longest = zo_max_i64(
            longest, (int64_t)job->manifest.tensors[i].infos[0].elem_count);
    }
    longest = zo_min_i64(longest, job->piece_elems);
    ZO_TRY(zo_alloc(count, sizeof(job->writers[0]), "writers of a state",
                    &job->writers));
    for (; job->writer_count < count; job->writer_count++) {
        struct writer *writer = &job->writers[job->writer_count];

        *writer = (struct writer){
            .job = job,
            .file = {.fd = -1},
            .feeds = job->options->spares_cpu && job->writer_count < FEEDERS,
        };
        ZO_TRY(zo_state_codec_open((size_t)longest * ZO_STATE_PLANES_MAX,
                                   &writer->codec));
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
    ZO_TRY(zo_disk_remove(job->partial));
    if (mkdir(job->partial, 0777) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot make folder %s: %s",
                              job->partial, strerror(errno));
    }
    return ZO_OK;
}

/* ---- pieces ----------------------------------------------------------------
 */

static enum zo_status add_shard(struct job *job, size_t *index_out)
{
    struct zo_state_manifest *manifest = &job->manifest;
    enum zo_status status;

    (void)pthread_mutex_lock(&job->lock);
    status = zo_grow(&manifest->shard_bytes, manifest->shard_count,
                     &job->shard_capacity, sizeof(manifest->shard_bytes[0]),
                     "a list of shards");
    if (status == ZO_OK) {
        *index_out = manifest->shard_count++;
    }
    (void)pthread_mutex_unlock(&job->lock);
    return status;
}

static enum zo_status open_shard(struct writer *writer)
{
    char name[ZO_STATE_NAME_BYTES];
    enum zo_status status;
    char *path = NULL;

    ZO_TRY(add_shard(writer->job, &writer->shard));
    zo_state_shard_name(name, sizeof(name), writer->shard);
    ZO_TRY(zo_disk_join(writer->job->partial, name, &path));
    status = zo_disk_create_direct(path, &writer->file);
    zo_free(path);
    return status;
}

/* Beside other work there are few, who may wait long for a core, and so in
 * turns that the disk has long done with. */
static void begin_write(struct job *job)
{
    (void)pthread_mutex_lock(&job->lock);
    while (!job->options->spares_cpu && job->on_disk >= DISK_TURNS) {
        (void)pthread_cond_wait(&job->has_written, &job->lock);
    }
    job->on_disk++;
    (void)pthread_mutex_unlock(&job->lock);
}

static void end_write(struct job *job)
{
    (void)pthread_mutex_lock(&job->lock);
    job->on_disk--;
    (void)pthread_cond_broadcast(&job->has_written);
    (void)pthread_mutex_unlock(&job->lock);
}

/* The first bytes of stored(); those that wait begin there. */
static enum zo_status write_out(struct writer *writer, size_t size_bytes)
{
    struct job *job = writer->job;
    enum zo_status status;

    ZO_ASSERT(size_bytes <= writer->waiting_bytes);
    begin_write(job);
    status = zo_disk_append(&writer->file, zo_state_codec_stored(writer->codec),
                            size_bytes);
    end_write(job);
    writer->waiting_bytes -= size_bytes;
    memmove(zo_state_codec_stored(writer->codec),
            zo_state_codec_stored(writer->codec) + size_bytes,
            writer->waiting_bytes);
    return status;
}

static enum zo_status close_shard(struct writer *writer)
{
    struct job *job = writer->job;
    uint64_t bytes;

    if (writer->file.fd < 0) {
        return ZO_OK;
    }
    ZO_TRY(write_out(writer, writer->waiting_bytes));
    bytes = writer->file.size_bytes;
    ZO_TRY(zo_disk_finish(&writer->file));
    (void)pthread_mutex_lock(&job->lock);
    job->manifest.shard_bytes[writer->shard] = bytes;
    (void)pthread_mutex_unlock(&job->lock);
    return ZO_OK;
}

/* A piece of so many bytes, packed behind those that wait, gets its place. */
static enum zo_status store(struct writer *writer, size_t size_bytes,
                            struct zo_state_piece *piece)
{
    char *stored = zo_state_codec_stored(writer->codec);
    const size_t waiting = writer->waiting_bytes;

    if (writer->file.fd >= 0 && writer->file.size_bytes + waiting + size_bytes >
                                    writer->job->shard_bytes) {
        ZO_TRY(close_shard(writer));
        memmove(stored, stored + waiting, size_bytes);
    }
    if (writer->file.fd < 0) {
        ZO_TRY(open_shard(writer));
    }
    piece->shard = (uint32_t)writer->shard;
    piece->offset_bytes = writer->file.size_bytes + writer->waiting_bytes;
    writer->waiting_bytes += size_bytes;
    return write_out(writer, writer->waiting_bytes -
                                 writer->waiting_bytes % ZO_DISK_BLOCK);
}

static enum zo_status make_piece(struct writer *writer, const struct task *task)
{
    struct job *job = writer->job;
    const struct zo_state_write_options *options = job->options;
    const struct zo_state_tensor *tensor = &job->manifest.tensors[task->tensor];
    const struct zo_tensor_info *info = &tensor->infos[task->kind];
    const size_t elem_bytes = zo_element_bits(info->element) / 8;
    const size_t elems =
        zo_state_piece_elems(info, job->piece_elems, task->piece);
    struct zo_state_piece piece = {0};
    char *stored = zo_state_codec_stored(writer->codec) + writer->waiting_bytes;
    void *raw = writer->feeds && (uintptr_t)stored % elem_bytes == 0
                    ? stored
                    : zo_state_codec_raw(writer->codec);

    ZO_TRY(options->data(options->context, (enum zo_state_kind)task->kind,
                         task->tensor, (int64_t)task->piece * job->piece_elems,
                         (int64_t)elems, raw));
    if (writer->feeds) {
        zo_state_codec_keep(raw, elems, elem_bytes, stored, &piece);
    } else {
        zo_state_codec_pack(writer->codec, raw, elems, elem_bytes, stored,
                            &piece);
    }
    ZO_TRY(store(writer, zo_state_piece_bytes(&piece), &piece));
    job->manifest.pieces[tensor->first[task->kind] + task->piece] = piece;
    return ZO_OK;
}

/* One that feeds the disk rests while others keep it busy. */
static const struct task *take_task(const struct writer *writer)
{
    struct job *job = writer->job;
    const struct task *task = NULL;

    (void)pthread_mutex_lock(&job->lock);
    while (writer->feeds && job->on_disk >= FEEDERS) {
        (void)pthread_cond_wait(&job->has_written, &job->lock);
    }
    if (job->failure.status == ZO_OK && job->next < job->task_count) {
        task = &job->tasks[job->next++];
    }
    (void)pthread_mutex_unlock(&job->lock);
    return task;
}

static void work(void *argument, int64_t index)
{
    struct job *job = argument;
    struct writer *writer = &job->writers[index];
    const struct task *task;
    enum zo_status status = ZO_OK;

    if (job->options->spares_cpu && !writer->feeds) { /* a wish */
        (void)setpriority(PRIO_PROCESS, 0, NICE);
    }
    while (status == ZO_OK && (task = take_task(writer)) != NULL) {
        status = make_piece(writer, task);
    }
    if (status == ZO_OK) {
        status = close_shard(writer);
    }
    if (status != ZO_OK) {
        (void)pthread_mutex_lock(&job->lock);
        if (job->failure.status == ZO_OK) {
            job->failure = *zo_err_last();
        }
        (void)pthread_mutex_unlock(&job->lock);
    }
}

static enum zo_status write_pieces(struct job *job)
{
    zo_pool_run(job->options->pool, work, job, (int64_t)job->writer_count);
    return job->failure.status == ZO_OK ? ZO_OK : zo_err_adopt(&job->failure);
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
    const struct zo_state_manifest *manifest = &job->manifest;
    struct zo_json_text json = {0};
    enum zo_status status;

    *bytes_out = 0;
    for (size_t i = 0; i < manifest->shard_count; i++) {
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
        ZO_TRY(zo_disk_remove(job->replaced));
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
        (void)keep_failure(zo_disk_remove(job->replaced), &written->late);
    }
}

static enum zo_status write_all(struct job *job, uint64_t *bytes_out)
{
    ZO_TRY(list_tasks(job));
    ZO_TRY(open_writers(job));
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
    for (size_t i = 0; i < job->writer_count; i++) {
        zo_disk_close(&job->writers[i].file);
        zo_state_codec_close(job->writers[i].codec);
    }
    zo_free(job->writers);
    zo_free(job->tasks);
    zo_free(job->path);
    zo_free(job->partial);
    zo_free(job->replaced);
    job->manifest.settings = NULL; /* the caller's */
    zo_state_files_fini(&job->manifest);
    zo_state_manifest_fini(&job->manifest);
    (void)pthread_cond_destroy(&job->has_written);
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
    (void)pthread_cond_init(&job.has_written, NULL);
    job.manifest = (struct zo_state_manifest){
        .program = options->program,
        .piece_elems = job.piece_elems,
        .run = *options->run,
        .settings = (struct zo_state_setting *)(uintptr_t)options->settings,
        .setting_count = options->setting_count,
    };
    status = write_all(&job, &written.bytes);
    written.shard_count = job.manifest.shard_count;
    if (status == ZO_OK) {
        settle(&job, &written);
    } else if (job.partial != NULL) {
        const struct zo_err failure = *zo_err_last();

        (void)!zo_disk_remove(job.partial);
        (void)!zo_err_adopt(&failure);
    }
    job_fini(&job);
    if (status == ZO_OK && written_out != NULL) {
        *written_out = written;
    }
    return status;
}
