/*
 * A training state, for reading.  state_format.h says what is in one.
 *
 * Layer 6.  The folder may be a stranger's: sizes are bounded before memory
 * is taken, nothing in it names a path, and no byte of its numbers is handed
 * out before the piece it belongs to has passed its checksum.
 *
 * zo_model_dir_open() takes a state too, whose tensors are then the masters;
 * config.json and the tokenizer lie in the folder as in a model directory.
 *
 * Threads: a state does not change after open; reads may run in several
 * threads at once.
 */
#ifndef ZO_SRC_CHECKPOINT_STATE_READER_H
#define ZO_SRC_CHECKPOINT_STATE_READER_H

#include "src/checkpoint/state_format.h"
#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

struct zo_state; /* opaque */

/* Whether a folder says that it is a state. */
bool zo_state_is_one(const char *path);

/*
 * Opens a folder, and checks its manifest, the model's own files and the
 * sizes of its shards.
 *
 *   ZO_E_USAGE     no such folder, or no state in it
 *   ZO_E_CORRUPT   damaged; names the file
 *   ZO_E_NOSUPPORT of a newer program
 *   ZO_E_IO        a file cannot be read
 */
enum zo_status zo_state_open(const char *path,
                             struct zo_state **state_out) ZO_MUST_CHECK;
void zo_state_close(struct zo_state *state); /* NULL is allowed */

/* All borrowed until close. */
const char *zo_state_path(const struct zo_state *state);
const char *zo_state_program(const struct zo_state *state); /* that wrote it */
const struct zo_state_run *zo_state_run(const struct zo_state *state);
const struct zo_state_setting *zo_state_settings(const struct zo_state *state,
                                                 size_t *count_out);
size_t zo_state_shard_count(const struct zo_state *state);
uint64_t zo_state_stored_bytes(const struct zo_state *state);

/*
 * The tensors of one kind, in one order for all kinds; names are those of the
 * parameters.  Masters are F32, moments F32 or BF16.  Borrowed until close:
 * not to be closed.  Reads return
 *
 *   ZO_E_CORRUPT   a checksum differs; names shard, tensor and elements
 *   ZO_E_IO        a shard cannot be read
 */
const struct zo_tensor_source *zo_state_tensors(const struct zo_state *state,
                                                enum zo_state_kind kind);

/* The name of the shard in which a tensor's first element of a kind lies. */
const char *zo_state_shard_of(const struct zo_state *state,
                              enum zo_state_kind kind, size_t index, char *name,
                              size_t name_bytes);

/*
 * The masters as a source that owns the state: zo_tensor_source_close() ends
 * both.  As zo_state_open().
 */
enum zo_status
zo_state_open_weights(const char *path,
                      struct zo_tensor_source **source_out) ZO_MUST_CHECK;

ZO_C_END

#endif
