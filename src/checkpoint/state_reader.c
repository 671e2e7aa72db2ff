#include "src/checkpoint/state_reader.h"

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
#include "src/checkpoint/state_codec.h"
#include "src/checkpoint/state_files.h"
#include "src/checkpoint/state_manifest.h"
#include "src/checkpoint/tensor_source_private.h"

/* The tensors of one kind; `source` is first, as readers have it. */
struct kind_source {
    struct zo_tensor_source source;
    struct zo_state *state;
    int kind;
    bool owns_state;
};

/* A codec that no thread uses now. */
struct idle {
    struct zo_state_codec *codec;
    struct idle *next;
};

struct zo_state {
    char *path; /* owned */
    struct zo_state_manifest manifest;
    struct zo_disk_file *shards; /* owned */
    struct kind_source kinds[ZO_STATE_KINDS];
    size_t raw_bytes; /* of the longest piece */

    pthread_mutex_t lock; /* guards what follows */
    struct idle *idle;    /* owned */
};

bool zo_state_is_one(const char *path)
{
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_one;

    if (folder < 0) {
        return false;
    }
    is_one = faccessat(folder, ZO_STATE_MANIFEST, F_OK, 0) == 0;
    (void)close(folder);
    return is_one;
}

/* ---- pieces ----------------------------------------------------------------
 */

static enum zo_status take_codec(struct zo_state *state, struct idle **out)
{
    struct idle *idle;
    enum zo_status status;

    (void)pthread_mutex_lock(&state->lock);
    idle = state->idle;
    if (idle != NULL) {
        state->idle = idle->next;
    }
    (void)pthread_mutex_unlock(&state->lock);
    if (idle == NULL) {
        ZO_TRY(zo_alloc(1, sizeof(*idle), "a codec of states", &idle));
        status = zo_state_codec_open(state->raw_bytes, &idle->codec);
        if (status != ZO_OK) {
            zo_free(idle);
            return status;
        }
    }
    *out = idle;
    return ZO_OK;
}

static void give_codec(struct zo_state *state, struct idle *idle)
{
    (void)pthread_mutex_lock(&state->lock);
    idle->next = state->idle;
    state->idle = idle;
    (void)pthread_mutex_unlock(&state->lock);
}

/* A piece into `target`, checked. */
static enum zo_status read_piece(const struct zo_state *state, int kind,
                                 size_t tensor, size_t index,
                                 struct zo_state_codec *codec, void *target)
{
    const struct zo_state_tensor *named = &state->manifest.tensors[tensor];
    const struct zo_tensor_info *info = &named->infos[kind];
    const struct zo_state_piece *piece =
        &state->manifest.pieces[named->first[kind] + index];
    const size_t elem_bytes = zo_element_bits(info->element) / 8;
    const size_t elems =
        zo_state_piece_elems(info, state->manifest.piece_elems, index);
    const int64_t first = (int64_t)index * state->manifest.piece_elems;
    enum zo_status status;

    ZO_TRY(zo_disk_read(&state->shards[piece->shard], piece->offset_bytes,
                        zo_state_codec_stored(codec),
                        zo_state_piece_bytes(piece)));
    status = zo_state_codec_unpack(codec, piece, elems, elem_bytes, target);
    if (status == ZO_E_CORRUPT) {
        const struct zo_err why = *zo_err_last();

        return ZO_FAIL(
            ZO_E_CORRUPT,
            "%s is damaged at byte %" PRIu64 ": %s; it holds elements %" PRId64
            " to %" PRId64 " of %s of \"%.200s\"",
            state->shards[piece->shard].path, piece->offset_bytes, why.text,
            first, first + (int64_t)elems - 1,
            zo_state_kind_name((enum zo_state_kind)kind), info->name);
    }
    return status;
}

/* The part of one piece that is within [offset, offset + size). */
static enum zo_status read_part(const struct kind_source *self, size_t index,
                                struct zo_state_codec *codec, uint64_t offset,
                                size_t rest, char *target, size_t *now_out)
{
    const struct zo_state *state = self->state;
    const struct zo_tensor_info *info = &self->source.infos[index];
    const size_t elem_bytes = zo_element_bits(info->element) / 8;
    const uint64_t step = (uint64_t)state->manifest.piece_elems * elem_bytes;
    const size_t piece = (size_t)(offset / step);
    const size_t piece_bytes =
        zo_state_piece_elems(info, state->manifest.piece_elems, piece) *
        elem_bytes;
    const size_t skip = (size_t)(offset - piece * step);
    const size_t now = rest < piece_bytes - skip ? rest : piece_bytes - skip;

    *now_out = now;
    if (now == piece_bytes && (uintptr_t)target % sizeof(uint32_t) == 0) {
        return read_piece(state, self->kind, index, piece, codec, target);
    }
    ZO_TRY(read_piece(state, self->kind, index, piece, codec,
                      zo_state_codec_raw(codec)));
    memcpy(target, (const char *)zo_state_codec_raw(codec) + skip, now);
    return ZO_OK;
}

static enum zo_status read_kind(const struct zo_tensor_source *source,
                                size_t index, uint64_t offset_bytes,
                                size_t size_bytes, void *buffer)
{
    const struct kind_source *self = (const struct kind_source *)source;
    enum zo_status status = ZO_OK;
    struct idle *idle = NULL;
    size_t done = 0;

    ZO_TRY(take_codec(self->state, &idle));
    while (status == ZO_OK && done < size_bytes) {
        size_t now = 0;

        status = read_part(self, index, idle->codec, offset_bytes + done,
                           size_bytes - done, (char *)buffer + done, &now);
        done += now;
    }
    give_codec(self->state, idle);
    return status;
}

static void close_kind(struct zo_tensor_source *source)
{
    struct kind_source *self = (struct kind_source *)source;

    ZO_ASSERT(self->owns_state); /* else it is the state that is closed */
    zo_state_close(self->state);
}

static const struct zo_tensor_source_ops kind_ops = {
    .read = read_kind,
    .close = close_kind,
};

/* ---- opening ---------------------------------------------------------------
 */

static enum zo_status open_shard(struct zo_state *state, size_t index)
{
    struct zo_disk_file *file = &state->shards[index];
    char name[ZO_STATE_NAME_BYTES];
    enum zo_status status;
    char *path = NULL;

    zo_state_shard_name(name, sizeof(name), index);
    ZO_TRY(zo_disk_join(state->path, name, &path));
    status = zo_disk_open(path, file);
    if (status == ZO_E_USAGE) {
        const struct zo_err why = *zo_err_last();

        status = ZO_FAIL(ZO_E_CORRUPT, "state %s is damaged: %s", state->path,
                         why.text);
    } else if (status == ZO_OK &&
               file->size_bytes != state->manifest.shard_bytes[index]) {
        status =
            ZO_FAIL(ZO_E_CORRUPT,
                    "%s is damaged: it has %" PRIu64 " bytes; want %" PRIu64,
                    path, file->size_bytes, state->manifest.shard_bytes[index]);
    }
    zo_free(path);
    return status;
}

static enum zo_status open_kind(struct zo_state *state, int kind)
{
    const struct zo_state_manifest *manifest = &state->manifest;
    struct kind_source *self = &state->kinds[kind];

    ZO_TRY(
        zo_strndup(state->path, strlen(state->path), &self->source.file.path));
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const struct zo_tensor_info *info = &manifest->tensors[i].infos[kind];
        const size_t elems =
            zo_state_piece_elems(info, manifest->piece_elems, 0);

        ZO_TRY(zo_tensor_source_add(&self->source, info));
        if (elems * ZO_STATE_PLANES_MAX > state->raw_bytes) {
            state->raw_bytes = elems * ZO_STATE_PLANES_MAX;
        }
    }
    return zo_tensor_source_freeze(&self->source);
}

static enum zo_status check_folder(const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot open state %s: %s",
                              path, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || !zo_state_is_one(path)) {
        return ZO_FAIL(ZO_E_USAGE,
                       "%s is no training state; want a folder with a %s", path,
                       ZO_STATE_MANIFEST);
    }
    return ZO_OK;
}

static enum zo_status open_all(struct zo_state *state)
{
    enum zo_status status;
    char *path = NULL;

    ZO_TRY(zo_disk_join(state->path, ZO_STATE_MANIFEST, &path));
    status = zo_state_manifest_read(path, &state->manifest);
    zo_free(path);
    ZO_TRY(status);
    ZO_TRY(zo_state_files_check(state->path, &state->manifest));
    ZO_TRY(zo_alloc(state->manifest.shard_count, sizeof(state->shards[0]),
                    "a list of shards", &state->shards));
    for (size_t i = 0; i < state->manifest.shard_count; i++) {
        state->shards[i].fd = -1;
    }
    for (size_t i = 0; i < state->manifest.shard_count; i++) {
        ZO_TRY(open_shard(state, i));
    }
    for (int kind = 0; kind < ZO_STATE_KINDS; kind++) {
        ZO_TRY(open_kind(state, kind));
    }
    return ZO_OK;
}

enum zo_status zo_state_open(const char *path, struct zo_state **state_out)
{
    struct zo_state *state = NULL;
    enum zo_status status;

    ZO_TRY(check_folder(path));
    ZO_TRY(zo_alloc(1, sizeof(*state), "a training state", &state));
    (void)pthread_mutex_init(&state->lock, NULL);
    for (int kind = 0; kind < ZO_STATE_KINDS; kind++) {
        state->kinds[kind] = (struct kind_source){
            .source = {.ops = &kind_ops, .file = {.fd = -1}},
            .state = state,
            .kind = kind,
        };
    }
    ZO_TRY_GOTO(close_state, zo_strndup(path, strlen(path), &state->path));
    ZO_TRY_GOTO(close_state, open_all(state));
    *state_out = state;
    return ZO_OK;

close_state:
    zo_state_close(state);
    return status;
}

void zo_state_close(struct zo_state *state)
{
    if (state == NULL) {
        return;
    }
    for (int kind = 0; kind < ZO_STATE_KINDS; kind++) {
        zo_tensor_source_fini(&state->kinds[kind].source);
    }
    for (size_t i = 0; state->shards != NULL && i < state->manifest.shard_count;
         i++) {
        zo_disk_close(&state->shards[i]);
    }
    while (state->idle != NULL) {
        struct idle *idle = state->idle;

        state->idle = idle->next;
        zo_state_codec_close(idle->codec);
        zo_free(idle);
    }
    zo_free(state->shards);
    zo_state_manifest_fini(&state->manifest);
    zo_free(state->path);
    (void)pthread_mutex_destroy(&state->lock);
    zo_free(state);
}

enum zo_status zo_state_open_weights(const char *path,
                                     struct zo_tensor_source **source_out)
{
    struct zo_state *state = NULL;

    ZO_TRY(zo_state_open(path, &state));
    state->kinds[ZO_STATE_MASTER].owns_state = true;
    *source_out = &state->kinds[ZO_STATE_MASTER].source;
    return ZO_OK;
}

/* ---- what is in it ---------------------------------------------------------
 */

const char *zo_state_path(const struct zo_state *state)
{
    return state->path;
}

const char *zo_state_program(const struct zo_state *state)
{
    return state->manifest.program;
}

const struct zo_state_run *zo_state_run(const struct zo_state *state)
{
    return &state->manifest.run;
}

const struct zo_state_setting *zo_state_settings(const struct zo_state *state,
                                                 size_t *count_out)
{
    *count_out = state->manifest.setting_count;
    return state->manifest.settings;
}

size_t zo_state_shard_count(const struct zo_state *state)
{
    return state->manifest.shard_count;
}

uint64_t zo_state_stored_bytes(const struct zo_state *state)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < state->manifest.shard_count; i++) {
        bytes += state->manifest.shard_bytes[i];
    }
    return bytes;
}

const struct zo_tensor_source *zo_state_tensors(const struct zo_state *state,
                                                enum zo_state_kind kind)
{
    return &state->kinds[kind].source;
}

const char *zo_state_shard_of(const struct zo_state *state,
                              enum zo_state_kind kind, size_t index, char *name,
                              size_t name_bytes)
{
    const struct zo_state_tensor *tensor = &state->manifest.tensors[index];

    zo_state_shard_name(name, name_bytes,
                        state->manifest.pieces[tensor->first[kind]].shard);
    return name;
}
