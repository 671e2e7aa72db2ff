/*
 * Reader of PyTorch .bin files: a zip archive of one pickle and one stored
 * entry a storage, as torch.save() has written it since 1.6.
 *
 * Layer 6.  The pickle is interpreted by a machine that knows only what a
 * state dict needs and calls nothing (pickle.h); whatever else it asks for
 * is refused by name.  Views, strides and shared storages read correctly.
 */
#ifndef ZO_SRC_CHECKPOINT_TORCH_BIN_H
#define ZO_SRC_CHECKPOINT_TORCH_BIN_H

#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

/*
 * Opens a file.  On success the caller owns *source_out and ends it with
 * zo_tensor_source_close().
 *
 *   ZO_E_USAGE      the path cannot be opened or is no regular file
 *   ZO_E_CORRUPT    damaged, hostile, or something else: an LFS pointer, an
 *                   HTML page, half a download; the text says which
 *   ZO_E_NOSUPPORT  the format of before PyTorch 1.6, compressed entries,
 *                   big-endian data; the text says how to convert
 *   ZO_E_IO         a read failed
 *   ZO_E_NOMEM      the tables do not fit
 */
enum zo_status
zo_torch_bin_open(const char *path,
                  struct zo_tensor_source **source_out) ZO_MUST_CHECK;

ZO_C_END

#endif
