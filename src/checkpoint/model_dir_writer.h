/*
 * Writing a Hugging Face model directory, as a whole or not at all.
 *
 * Layer 6.  Weights go into safetensors shards, tensor by tensor through a
 * callback, so that nothing is held whole.  All other files of the source
 * directory (config.json, tokenizer, the model's own .py files, licences)
 * are copied byte for byte as real files: links are followed, weights, their
 * indices, hidden files and folders are left out, executable bits are not
 * kept.  In config.json alone "torch_dtype" is edited, and only when the
 * weights are written in another type.
 *
 * Everything is written to ".NAME.partial" beside the target, synced, read
 * back (names, shapes, sizes), and then renamed.  A failure leaves nothing.
 *
 * Threads: the callback runs in the caller's thread.
 */
#ifndef ZO_SRC_CHECKPOINT_MODEL_DIR_WRITER_H
#define ZO_SRC_CHECKPOINT_MODEL_DIR_WRITER_H

#include "src/base/notes.h"
#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

/*
 * Gives bytes [offset_bytes, offset_bytes + size_bytes) of tensors[index].
 * Called with rising offsets, one tensor after the other, in shard order;
 * pieces are whole elements.
 */
typedef enum zo_status (*zo_tensor_data_fn)(void *context, size_t index,
                                            uint64_t offset_bytes,
                                            size_t size_bytes, void *buffer);

/* Fields left at 0 take the default in brackets. */
struct zo_model_write_options {
    const char *path;           /* required: the directory to be made */
    const char *source_path;    /* directory to copy other files from [none] */
    const char *tokenizer_path; /* and those of the tokenizer [source_path] */
    const char *config_json;    /* text of config.json [the source's] */
    const struct zo_tensor_info *tensors; /* name, element, rank, shape */
    size_t tensor_count;
    zo_tensor_data_fn data; /* required */
    void *context;          /* for data */
    uint64_t shard_bytes;   /* tensor data in a shard, at most [10^10] */
    size_t piece_bytes;     /* largest piece asked of data, >= 8 [16 MiB] */
    bool replace;           /* an existing model directory is replaced */
};

/* What was written.  All zero is empty; ended with zo_model_written_fini(). */
struct zo_model_written {
    char **py_files; /* owned: names of copied .py files, unchecked code */
    size_t py_count;
    size_t file_count; /* other files copied, .py files included */
    size_t shard_count;
    uint64_t total_bytes; /* of tensor data */
};

/*
 * Writes the directory.  *written_out (may be NULL) is filled on success.
 *
 *   ZO_E_USAGE     the target exists and replace is not set, or it exists
 *                  and is no model directory (never replaced); the source
 *                  directory cannot be read
 *   ZO_E_IO        a write failed: path, bytes wanted, strerror, bytes free
 *   ZO_E_ARG, ZO_E_SHAPE   tensors that cannot be written
 *   and what the callback returns
 */
enum zo_status
zo_model_dir_write(const struct zo_model_write_options *options,
                   struct zo_notes *notes,
                   struct zo_model_written *written_out) ZO_MUST_CHECK;

/*
 * What zo_model_dir_write() looks at first, for a caller with much to do
 * before it writes: may a model directory be made here?
 *
 *   ZO_E_USAGE   as above
 */
enum zo_status zo_model_dir_check_target(const char *path,
                                         bool replace) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_model_written_fini(struct zo_model_written *written);

ZO_C_END

#endif
