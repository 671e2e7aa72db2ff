/*
 * Writer of one safetensors file.
 *
 * Layer 6.  Life cycle: open with all tensors declared, append their data in
 * the declared order in pieces of any size, finish, close.  Until finish the
 * data is under a temporary name beside the path; close without a finish
 * that succeeded removes it and leaves the path as it was.
 *
 * Threads: one at a time.
 */
#ifndef ZO_SRC_CHECKPOINT_SAFETENSORS_WRITER_H
#define ZO_SRC_CHECKPOINT_SAFETENSORS_WRITER_H

#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

struct zo_safetensors_writer; /* opaque */

/*
 * Starts a file that holds `count` tensors (element, name, rank, shape; the
 * derived fields are computed here).  The infos are read during the call
 * only.  metadata is {"format":"pt"}; the header is padded with spaces to a
 * multiple of 8.
 *
 *   ZO_E_ARG      a name twice, or the header would pass the readers' limit
 *   ZO_E_SHAPE    a tensor's size does not fit
 *   ZO_E_IO       the file cannot be created or written; native is errno
 */
enum zo_status zo_safetensors_writer_open(
    const char *path, const struct zo_tensor_info *infos, size_t count,
    struct zo_safetensors_writer **writer_out) ZO_MUST_CHECK;

/* The next size_bytes of data.  ZO_E_ARG when it is more than declared. */
enum zo_status
zo_safetensors_writer_append(struct zo_safetensors_writer *writer,
                             const void *data, size_t size_bytes) ZO_MUST_CHECK;

/*
 * Syncs the file to disk and moves it to its path, replacing what was there.
 * ZO_E_ARG when data is missing.
 */
enum zo_status zo_safetensors_writer_finish(
    struct zo_safetensors_writer *writer) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_safetensors_writer_close(struct zo_safetensors_writer *writer);

ZO_C_END

#endif
