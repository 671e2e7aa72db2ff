/*
 * Reader of safetensors files.
 *
 * Layer 6.  The header is checked whole before anything is believed: its
 * length against the file and ZO_SAFETENSORS_HEADER_MAX before any
 * arithmetic, then JSON without duplicate or unknown keys, shapes against
 * byte ranges, and the ranges against the file: every byte of the data
 * belongs to exactly one tensor.  The order of tensors is free.
 */
#ifndef ZO_SRC_CHECKPOINT_SAFETENSORS_H
#define ZO_SRC_CHECKPOINT_SAFETENSORS_H

#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

/* Limit of the reference implementation, in bytes. */
#define ZO_SAFETENSORS_HEADER_MAX 100000000u

/*
 * Opens a file.  On success the caller owns *source_out and ends it with
 * zo_tensor_source_close().
 *
 *   ZO_E_USAGE     the path cannot be opened or is no regular file
 *   ZO_E_CORRUPT   the file is damaged; the text names tensor and range
 *   ZO_E_IO        a read failed
 *   ZO_E_NOMEM     the table of tensors does not fit
 */
enum zo_status
zo_safetensors_open(const char *path,
                    struct zo_tensor_source **source_out) ZO_MUST_CHECK;

ZO_C_END

#endif
