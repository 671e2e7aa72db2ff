/*
 * The files of a model directory that are not weights: configuration,
 * tokenizer, the model's own .py files, licences.
 *
 * Layer 6.
 */
#ifndef ZO_SRC_CHECKPOINT_MODEL_FILES_H
#define ZO_SRC_CHECKPOINT_MODEL_FILES_H

#include "src/base/dtype.h"
#include "src/base/notes.h"
#include "src/checkpoint/model_dir_writer.h"

ZO_C_BEGIN

/* A tokenizer.json has some 20 MB; what is larger is no such file. */
#define ZO_MODEL_FILE_BYTES_MAX ((size_t)256 << 20)

/*
 * Copies them from `source` to `target`, as real files, synced; those of the
 * tokenizer from `tokenizer` instead, unless it is NULL.  config.json says
 * dtype afterwards.  Fills py_files, py_count and file_count.
 *
 *   ZO_E_USAGE   a folder cannot be read
 *   ZO_E_IO      a read or a write failed
 */
enum zo_status
zo_model_files_copy(const char *source, const char *tokenizer,
                    const char *target, enum zo_dtype dtype,
                    struct zo_notes *notes,
                    struct zo_model_written *written) ZO_MUST_CHECK;

/* The disk that such files of a folder take; 0 where it cannot be read. */
uint64_t zo_model_files_bytes(const char *folder);

ZO_C_END

#endif
