/*
 * SentencePiece behind a C interface: the only file that includes its header
 * is sentencepiece_shim.cpp, and no exception leaves it.
 *
 * Layer 6.  A model is read-only once open: any number of threads may encode
 * and decode with it.
 */
#ifndef ZO_SRC_DATA_SENTENCEPIECE_SHIM_H
#define ZO_SRC_DATA_SENTENCEPIECE_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"
#include "src/data/ids.h"

ZO_C_BEGIN

struct zo_sentencepiece; /* opaque */

/*
 * Builds the model from the bytes of a tokenizer.model file; `path` is for
 * messages.  The caller owns *model_out and ends it with
 * zo_sentencepiece_close().
 *
 *   ZO_E_CORRUPT   SentencePiece rejects the bytes; its reason is in the text
 *   ZO_E_NOMEM     no memory
 */
enum zo_status
zo_sentencepiece_open(const void *bytes, size_t size_bytes, const char *path,
                      struct zo_sentencepiece **model_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_sentencepiece_close(struct zo_sentencepiece *model);

/* Pieces in the vocabulary; ids are 0 .. count-1. */
int32_t zo_sentencepiece_count(const struct zo_sentencepiece *model);

/* Ids of the control pieces, -1 where the model has none. */
int32_t zo_sentencepiece_unk(const struct zo_sentencepiece *model);
int32_t zo_sentencepiece_bos(const struct zo_sentencepiece *model);
int32_t zo_sentencepiece_eos(const struct zo_sentencepiece *model);

/* True for pieces that stand for no text (unknown and control pieces). */
bool zo_sentencepiece_is_special(const struct zo_sentencepiece *model,
                                 int32_t id);

/*
 * The piece's own spelling ("\u2581the", "<0x0A>").  Borrowed until close;
 * not text that was decoded.  0 <= id < count.
 */
const char *zo_sentencepiece_piece(const struct zo_sentencepiece *model,
                                   int32_t id);

/* The id of a piece by its spelling, -1 when there is none. */
int32_t zo_sentencepiece_find(const struct zo_sentencepiece *model,
                              const char *piece);

/* Appends the ids of text (UTF-8, may hold NUL) to ids. */
enum zo_status zo_sentencepiece_encode(const struct zo_sentencepiece *model,
                                       const char *text, size_t size_bytes,
                                       struct zo_ids *ids) ZO_MUST_CHECK;

/*
 * The text of ids, each 0 .. zo_sentencepiece_count()-1.  *text_out is owned,
 * terminated, and ended with zo_free(); it may hold NUL bytes.
 */
enum zo_status zo_sentencepiece_decode(const struct zo_sentencepiece *model,
                                       const int32_t *ids, size_t count,
                                       char **text_out,
                                       size_t *size_bytes_out) ZO_MUST_CHECK;

ZO_C_END

#endif
