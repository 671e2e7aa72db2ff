/*
 * A Hugging Face model directory, for reading.
 *
 * Layer 6.  Which weights count is decided in this order, and a note says
 * what was passed over:
 *
 *   1. model.safetensors.index.json and its shards
 *   2. model.safetensors
 *   3. pytorch_model.bin.index.json and its shards
 *   4. pytorch_model.bin
 *   5. manifest.json: a training state, whose masters are the weights
 *
 * With an index only the index counts.  Index and shards are compared in
 * both directions before any data is read: every tensor exactly once, in the
 * shard that the index names.  Symbolic links are followed, since Hugging
 * Face's cache is made of them; names in an index hold no "/" and no "..".
 *
 * Threads: a directory does not change after open; reads may run in several
 * threads at once.
 */
#ifndef ZO_SRC_CHECKPOINT_MODEL_DIR_H
#define ZO_SRC_CHECKPOINT_MODEL_DIR_H

#include "src/base/notes.h"
#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

struct zo_model_dir; /* opaque */

/*
 * Opens and checks a directory.  On success the caller owns *dir_out and
 * ends it with zo_model_dir_close().
 *
 *   ZO_E_USAGE     no such folder, or no weights in it
 *   ZO_E_CORRUPT   a shard is damaged or missing, or disagrees with the
 *                  index; the text names file and tensor
 *   and what zo_safetensors_open() and zo_torch_bin_open() return
 */
enum zo_status zo_model_dir_open(const char *path, struct zo_notes *notes,
                                 struct zo_model_dir **dir_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_model_dir_close(struct zo_model_dir *dir);

/* All borrowed until close. */
const char *zo_model_dir_path(const struct zo_model_dir *dir);
size_t zo_model_dir_shard_count(const struct zo_model_dir *dir);
const char *zo_model_dir_shard_name(const struct zo_model_dir *dir,
                                    size_t shard); /* "model.safetensors" */

/* Tensors sorted by name. */
size_t zo_model_dir_count(const struct zo_model_dir *dir);
const struct zo_tensor_info *zo_model_dir_info(const struct zo_model_dir *dir,
                                               size_t index);
size_t zo_model_dir_shard_of(const struct zo_model_dir *dir, size_t index);
bool zo_model_dir_find(const struct zo_model_dir *dir, const char *name,
                       size_t *index_out);

/* Bytes of all tensors together. */
uint64_t zo_model_dir_total_bytes(const struct zo_model_dir *dir);

/*
 * The number type that holds most bytes of F32, BF16 and F16 tensors: "the
 * source's dtype".  False if there is no such tensor.
 */
bool zo_model_dir_dtype(const struct zo_model_dir *dir,
                        enum zo_dtype *dtype_out);

/* What a model of some architecture must hold. */
struct zo_expected_tensor {
    const char *name;
    int rank;
    int64_t shape[ZO_TENSOR_RANK_MAX];
};

/*
 * Every expected tensor is there, with its shape, as F32, BF16 or F16; those
 * that are not expected get one note (transformer.rotary_pos_emb.inv_freq,
 * a constant that the official code stores, is passed over in silence).
 *
 *   ZO_E_CORRUPT   missing tensors (how many, the first ones), a shape or a
 *                  number type that differs
 */
enum zo_status zo_model_dir_check_names(
    const struct zo_model_dir *dir, const struct zo_expected_tensor *expected,
    size_t expected_count, struct zo_notes *notes) ZO_MUST_CHECK;

/* As zo_tensor_source_read() and zo_tensor_source_read_as(). */
enum zo_status zo_model_dir_read(const struct zo_model_dir *dir, size_t index,
                                 uint64_t offset_bytes, size_t size_bytes,
                                 void *buffer) ZO_MUST_CHECK;
enum zo_status
zo_model_dir_read_as(const struct zo_model_dir *dir, size_t index,
                     uint64_t first_elem, uint64_t elem_count,
                     enum zo_dtype dtype, void *buffer,
                     struct zo_value_counts *counts_inout) ZO_MUST_CHECK;

enum zo_value_policy {
    ZO_VALUES_WARN,   /* a note for each tensor concerned: inspect */
    ZO_VALUES_REFUSE, /* an error: train */
};

/*
 * Judges what reading a tensor as dtype has counted; the text names tensor,
 * shard and counts.
 *
 *   ZO_E_NUMERIC   ZO_VALUES_REFUSE, and a value is not finite or overflows
 */
enum zo_status zo_model_dir_check_values(const struct zo_model_dir *dir,
                                         size_t index, enum zo_dtype dtype,
                                         const struct zo_value_counts *counts,
                                         enum zo_value_policy policy,
                                         struct zo_notes *notes) ZO_MUST_CHECK;

ZO_C_END

#endif
