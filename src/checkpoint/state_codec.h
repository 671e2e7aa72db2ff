/*
 * Pieces of a training state, packed and unpacked.
 *
 * Layer 6.  The one user of zstd.  A codec belongs to one thread at a time.
 */
#ifndef ZO_SRC_CHECKPOINT_STATE_CODEC_H
#define ZO_SRC_CHECKPOINT_STATE_CODEC_H

#include "src/base/status.h"
#include "src/checkpoint/state_format.h"

ZO_C_BEGIN

struct zo_state_codec; /* opaque */

/* For pieces of up to raw_bytes.  ZO_E_NOMEM. */
enum zo_status
zo_state_codec_open(size_t raw_bytes,
                    struct zo_state_codec **codec_out) ZO_MUST_CHECK;
void zo_state_codec_close(struct zo_state_codec *codec); /* NULL is allowed */

/*
 * Room for a piece as it is, and as it is stored: raw_bytes, of which the
 * latter has ZO_DISK_BLOCK more, and begins as zo_disk_create_direct() wants.
 */
void *zo_state_codec_raw(struct zo_state_codec *codec);
char *zo_state_codec_stored(struct zo_state_codec *codec);

/*
 * From `raw` to `stored`, which has room for as much: fills the piece's hash
 * and sizes.  elem_bytes is 2 or 4; raw is aligned to it.
 */
void zo_state_codec_pack(struct zo_state_codec *codec, const void *raw,
                         size_t elem_count, size_t elem_bytes, char *stored,
                         struct zo_state_piece *piece);

/* The same, as it is, which takes a tenth of the time; both may be one. */
void zo_state_codec_keep(const void *raw, size_t elem_count, size_t elem_bytes,
                         char *stored, struct zo_state_piece *piece);

/*
 * From stored() to `target`.  Sizes are as zo_state_manifest_read() has them.
 *
 *   ZO_E_CORRUPT   these are not the bytes of the piece
 */
enum zo_status zo_state_codec_unpack(struct zo_state_codec *codec,
                                     const struct zo_state_piece *piece,
                                     size_t elem_count, size_t elem_bytes,
                                     void *target) ZO_MUST_CHECK;

ZO_C_END

#endif
