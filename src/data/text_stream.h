/*
 * The text of tokens as they come, in whole characters.
 *
 * Layer 6.  A character may take several tokens (bytes of its UTF-8): those
 * at the end that may still become one are held back until they do, or until
 * the end.  Life cycle: init, add, end, fini; all zero is empty.
 */
#ifndef ZO_SRC_DATA_TEXT_STREAM_H
#define ZO_SRC_DATA_TEXT_STREAM_H

#include "src/data/tokenizer.h"

ZO_C_BEGIN

struct zo_text_stream {
    const struct zo_tokenizer *tokenizer; /* borrowed */
    struct zo_ids ids;                    /* so far */
    char *text;                           /* owned: what they decode to */
    size_t text_bytes, given_bytes;
};

void zo_text_stream_init(struct zo_text_stream *stream,
                         const struct zo_tokenizer *tokenizer);
void zo_text_stream_fini(struct zo_text_stream *stream); /* NULL is allowed */

/*
 * Appends a token; *text_out is what is new, borrowed until the next call,
 * and may be empty.
 */
enum zo_status zo_text_stream_add(struct zo_text_stream *stream, int32_t id,
                                  const char **text_out,
                                  size_t *size_bytes_out) ZO_MUST_CHECK;

/* What was held back; nothing if nothing was. */
void zo_text_stream_end(struct zo_text_stream *stream, const char **text_out,
                        size_t *size_bytes_out);

ZO_C_END

#endif
