/*
 * The manifest of a training state, as text and as tables.
 *
 * Layer 6, private to src/checkpoint/state_*.c.
 */
#ifndef ZO_SRC_CHECKPOINT_STATE_MANIFEST_H
#define ZO_SRC_CHECKPOINT_STATE_MANIFEST_H

#include "src/checkpoint/json_text.h"
#include "src/checkpoint/state_format.h"
#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

/*
 * All zero is empty.  A tensor's pieces of a kind are pieces[first[kind] + i];
 * names and settings point into `text` when the manifest was read, and are
 * borrowed otherwise.
 */
struct zo_state_tensor {
    struct zo_tensor_info infos[ZO_STATE_KINDS];
    size_t first[ZO_STATE_KINDS];
};

struct zo_state_manifest {
    const char *program;
    int64_t piece_elems;
    struct zo_state_run run;
    struct zo_state_setting *settings; /* owned */
    size_t setting_count, setting_capacity;
    uint64_t *shard_bytes; /* owned */
    size_t shard_count, shard_capacity;
    struct zo_state_tensor *tensors; /* owned */
    size_t tensor_count, tensor_capacity;
    struct zo_state_piece *pieces; /* owned */
    size_t piece_count, piece_capacity;
    struct zo_state_file *files; /* owned; see state_files.h for names */
    size_t file_count, file_capacity;
    char *text; /* owned; or NULL */
};

/* Pieces of a tensor, of each kind. */
size_t zo_state_pieces_of(const struct zo_tensor_info *info,
                          int64_t piece_elems);
/* Elements of one of them. */
size_t zo_state_piece_elems(const struct zo_tensor_info *info,
                            int64_t piece_elems, size_t piece);

enum zo_status zo_state_manifest_text(const struct zo_state_manifest *manifest,
                                      struct zo_json_text *json) ZO_MUST_CHECK;

/*
 * Reads a file, and checks it against itself.
 *
 *   ZO_E_CORRUPT     damaged
 *   ZO_E_NOSUPPORT   of a newer version
 */
enum zo_status
zo_state_manifest_read(const char *path,
                       struct zo_state_manifest *manifest_out) ZO_MUST_CHECK;

void zo_state_manifest_fini(struct zo_state_manifest *manifest);

ZO_C_END

#endif
