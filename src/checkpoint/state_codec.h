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

/* Room for a piece as it is, and as it is stored; raw_bytes each. */
void *zo_state_codec_raw(struct zo_state_codec *codec);
void *zo_state_codec_stored(struct zo_state_codec *codec);

/*
 * From raw() to stored(): fills the piece's hash and sizes of parts.
 * elem_bytes is 2 or 4.
 */
enum zo_status zo_state_codec_pack(struct zo_state_codec *codec,
                                   size_t elem_count, size_t elem_bytes,
                                   struct zo_state_piece *piece) ZO_MUST_CHECK;

/*
 * From stored() to `target`.  Sizes of parts are between 1 and elem_count.
 *
 *   ZO_E_CORRUPT   these are not the bytes of the piece
 */
enum zo_status zo_state_codec_unpack(struct zo_state_codec *codec,
                                     const struct zo_state_piece *piece,
                                     size_t elem_count, size_t elem_bytes,
                                     void *target) ZO_MUST_CHECK;

/* Bytes of all parts. */
size_t zo_state_piece_bytes(const struct zo_state_piece *piece,
                            size_t elem_bytes);

ZO_C_END

#endif
